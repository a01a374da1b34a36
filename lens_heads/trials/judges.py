"""Judge: how one benchmark reads an answer out of the generated text and decides whether it is right.

A judge is data. Those of the tasks stand in `tasks/data/templates/*.json`, beside the prompt they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

from lens_heads.trials import sandbox
from lens_heads.trials import text as normalizing
from lens_heads.trials.rhymes import rhyme
from lens_heads.trials.text import squad

NORMALIZATIONS = ("numbers", "squad")
_LABELLED = ("only_label", "first_label", "any_of", "rhymes")
_NUMBER = re.compile(r"(?:(?<!\w)[-\u2212])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class Judge:
    """How a generated text is read and judged. The default: anywhere in the text, as a run of whole words.

    `cut`: the answer ends before the first of these strings in the text (`ignore_case`: in any case, and so the labels of
    "first_label").
    `normalization`: "numbers", this package's own (`lens_heads.trials.text.normalize`: SQuAD's, but numbers keep sign and
    point), or "squad", exactly SQuAD's and MuSiQue's (-3.5 is 35).
    `rule`, after the cut:

    - "contains": the answer's words stand in the text, whole and in a row.
    - "exact_match": text and answer are the same words.
    - "number": the first number of the text is the answer's (1,043.0 is 1043).
    - "final_number": the number after the last "####" of the text, without one its last number, is the answer's, read in the
      same way (GSM8K, Cobbe et al., arXiv 2110.14168).
    - "only_label": BABILong's (Kuratov et al., arXiv 2406.10149; `compare_answers` of its code). Of `labels`, the
      answers there could be, the text holds the right one and no other; of an answer with commas, all of its parts and
      no other. Labels are found as BABILong finds them, anywhere in the text in lower case. Those that the question
      names must be left out of `labels` when the judge is made (see `without`).
    - "first_label": of `labels`, the first that stands in the text as whole words is the answer's: "B", "(B)." and "The answer
      is B, not C" choose B. Capitals count, so an "a" does not choose A; a sentence that begins with the article "A" does.
    - "either_contains": the study's "Different Heads, Same Fragile Tasks": text and answer are equal, or one holds the
      other as a string of characters, so that "1" counts for "1929": loose, to compare with the study. An answer of one
      or two letters, such as a postal code, must stand in the text as a word: "pa" is in "company", and would count.
    - "any_of": any of `labels` stands in the text, whole, in any case; which of them is the answer does not matter.
    - "passes_tests": the text is code, white space and all, and the program of `preamble`, text and `tests` runs to its end
      in `lens_heads.trials.sandbox` (MBPP, Austin et al., arXiv 2108.07732; HumanEval, Chen et al., arXiv 2107.03374). It runs
      only where that was `allowed`.
    - "rhymes": the first word of the text is the answer or rhymes with it (`lens_heads.trials.rhymes`), and is none of `labels`:
      the word that a rhyme was asked for.

    `multiline`: the answer runs over several lines: decoding goes on to the first string of `cut`, not to the first newline.

    An empty answer is always wrong. Raises ValueError for an unknown rule or normalization, an empty string in `cut`,
    and labels, or tests, without the rule that reads them or the other way round.
    """

    cut: tuple[str, ...] = ()
    ignore_case: bool = False
    normalization: str = "numbers"
    rule: str = "contains"
    labels: tuple[str, ...] = ()
    multiline: bool = False
    preamble: str = ""
    tests: str = ""
    allowed: bool = False

    def __post_init__(self) -> None:
        for field in ("cut", "labels"):
            value = getattr(self, field)
            if isinstance(value, str) or not all(isinstance(part, str) and part for part in value):
                raise ValueError(f"a judge's {field} is {value!r}: give a list of texts, none of them empty")
            object.__setattr__(self, field, tuple(value))
        for field, known in (("rule", tuple(RULES)), ("normalization", NORMALIZATIONS)):
            if getattr(self, field) not in known:
                names = " or ".join(map(repr, known))
                raise ValueError(f"a judge's {field} is {getattr(self, field)!r}: use {names}")
        if bool(self.labels) != (self.rule in _LABELLED):
            raise ValueError(
                f"a judge by the rule {self.rule!r} has {len(self.labels)} labels: {', '.join(_LABELLED)} need the labels "
                "there could be, the other rules take none"
            )
        if bool(self.tests.strip()) != (self.rule == "passes_tests") or (
            (self.preamble or self.allowed) and not self.tests
        ):
            raise ValueError(
                f"a judge by the rule {self.rule!r} has tests={self.tests!r}, preamble={self.preamble!r}, "
                f'allowed={self.allowed}: "passes_tests" needs tests, the other rules take none of these'
            )

    def without(self, question: str) -> Judge:
        """The judge for one question: labels that it names are no answers to it. ValueError when none is left."""
        left = tuple(label for label in self.labels if label.lower() not in question.lower())
        return replace(self, labels=left)

    def check_allowed(self, trial: str) -> None:
        """ValueError, saying how to allow it, where the judge would run generated code and nobody has allowed that."""
        if self.rule == "passes_tests" and not self.allowed:
            raise ValueError(
                f"{trial}: judging it runs generated code: allow that with allow_code_execution=True where the task is made "
                "(of your own trials Judge(allowed=True), on the command line --allow-code-execution), or use generate=False "
                "for the log-probability alone"
            )

    def extract(self, text: str) -> str:
        """The part of a generated text that counts as the answer, without white space around it; code keeps its own."""
        found = self._split(text)[0]
        return found if self.rule == "passes_tests" else found.strip()

    def ended(self, text: str) -> bool:
        """Whether the answer has ended in the text generated so far: it has a newline, of several lines a string of `cut`."""
        return len(self._split(text)) > 1 if self.multiline else "\n" in text

    def _split(self, text: str) -> list[str]:
        """The text before the first string of `cut`, and if there is one, what follows."""
        ends = "|".join(re.escape(end) for end in self.cut)
        return re.split(ends, text, maxsplit=1, flags=re.IGNORECASE if self.ignore_case else 0) if ends else [text]

    def normalize(self, text: str) -> str:
        """The text as it is compared."""
        if self.normalization == "squad":
            return squad(text)
        return normalizing.normalize(text)

    def correct(self, text: str, answers: Sequence[str]) -> float:
        """1 when a generated text holds one of the accepted answers by the rule, else 0."""
        found = self.extract(text)
        return max((RULES[self.rule](found, gold, self) for gold in answers), default=0.0)


def exact_match(text: str, gold: str, judge: Judge) -> float:
    """1 when text and answer are equal, and not empty, after the judge's normalisation."""
    return float(judge.normalize(text) == judge.normalize(gold) != "")


def contains(text: str, gold: str, judge: Judge) -> float:
    """1 when the answer's words stand in the text as a run of whole words, after the judge's normalisation."""
    if judge.normalization == "squad":
        words, answer = squad(text), squad(gold)
        return float(bool(answer) and f" {answer} " in f" {words} ")
    return normalizing.contains(text, gold)


def number(text: str, gold: str, judge: Judge) -> float:
    """1 when the first number in the text equals the answer's."""
    found, wanted = _first_number(text), _first_number(gold)
    return float(found is not None and found == wanted)


def _first_number(text: str) -> Decimal | None:
    found = _NUMBER.search(text)
    return Decimal(found[0].replace(",", "").replace("\N{MINUS SIGN}", "-")) if found else None


def final_number(text: str, gold: str, judge: Judge) -> float:
    """1 when the number after the last "####", or the last number, equals the answer's."""
    found, wanted = _final_number(text), _final_number(gold)
    return float(found is not None and found == wanted)


def _final_number(text: str) -> Decimal | None:
    marked = text.rpartition("####")
    if marked[1]:
        return _first_number(marked[2])
    every = _NUMBER.findall(text)
    return _first_number(every[-1]) if every else None


def only_label(text: str, gold: str, judge: Judge) -> float:
    """1 when the answer's labels are in the text, and no other label is; see `Judge`."""
    found = {label.lower() for label in judge.labels if label.lower() in text.lower()}
    gold = gold.lower()
    wanted = {part.strip() for part in gold.split(",")} if "," in gold else {gold}
    return float(found == wanted)


def first_label(text: str, gold: str, judge: Judge) -> float:
    """1 when the first label in the text is the answer's, as whole words; where two begin, the longer one counts."""
    flags = re.IGNORECASE if judge.ignore_case else 0
    every = "|".join(re.escape(label) for label in sorted(judge.labels, key=len, reverse=True))
    found = re.search(rf"(?<!\w)(?:{every})(?!\w)", text, flags)
    return float(found is not None and re.fullmatch(re.escape(gold), found[0], flags) is not None)


def either_contains(text: str, gold: str, judge: Judge) -> float:
    """1 when one holds the other, or they are equal, after the judge's normalisation; neither may be empty."""
    text, gold = judge.normalize(text), judge.normalize(gold)
    if not text or not gold:
        return 0.0
    inside = gold in text.split() if gold.isalpha() and len(gold) <= 2 else gold in text
    return float(inside or text in gold)


def any_of(text: str, gold: str, judge: Judge) -> float:
    """1 when one of the judge's labels stands in the text as whole words, in any case."""
    return float(_whole(judge.labels).search(text) is not None)


@lru_cache(maxsize=32)
def _whole(labels: tuple[str, ...]) -> re.Pattern[str]:
    words = (r"\s+".join(map(re.escape, label.split())) for label in labels)
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


def passes_tests(text: str, gold: str, judge: Judge) -> float:
    """1 when the code passes the judge's tests; see `Judge`. Nothing is run for no code, nor without permission."""
    judge.check_allowed("a text")
    return float(bool(text.strip()) and sandbox.passes(f"{judge.preamble}{text}\n{judge.tests}\n"))


def rhymes(text: str, gold: str, judge: Judge) -> float:
    """1 when the text's first word is the answer or rhymes with it, and is not the word asked about."""
    found = re.search(r"[a-z']+", text.lower())
    asked = {label.lower() for label in judge.labels}
    return float(bool(found) and found[0] not in asked and (found[0] == gold.lower() or rhyme(found[0], gold)))


RULES: dict[str, Callable[[str, str, Judge], float]] = {
    "contains": contains,
    "exact_match": exact_match,
    "number": number,
    "final_number": final_number,
    "only_label": only_label,
    "first_label": first_label,
    "either_contains": either_contains,
    "any_of": any_of,
    "passes_tests": passes_tests,
    "rhymes": rhymes,
}

DEFAULT = Judge()
