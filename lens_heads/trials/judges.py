"""Judges: how a benchmark extracts an answer from a generated text and decides whether it is correct. One class per rule.

The tasks' judges are in `tasks/data/templates/*.json`, beside their prompts; `judge_of` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, ClassVar, Self

from lens_heads.trials import containment as comparing
from lens_heads.trials import sandbox
from lens_heads.trials.characters import compared
from lens_heads.trials.rhymes import rhyme

NORMALIZATIONS = {
    "numbers": comparing.normalize,
    "squad": comparing.squad,
    "rouge": comparing.rouge_words,
    "verbatim": str,
}
_NUMBER = re.compile(r"(?:(?<!\w)-)?\d+(?:\.\d+)?")


def _texts(field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(part, str) and part for part in value):
        raise ValueError(f"a judge's {field} is {value!r}: must be a list of non-empty strings")
    return tuple(value)


@dataclass(frozen=True)
class Judge:
    """The default rule: the text contains the answer's words, whole and consecutive.

    `cut`: the answer ends before the first of these strings in the text (`ignore_case`: in any case).
    `normalization`: "numbers", this package's own, for every script (`containment`); "squad", exactly that of SQuAD and MuSiQue
    (-3.5 is 35); "rouge", the words of a-z and 0-9 that the rouge-score package reads, with which the gate of `score_heads`
    is the LOCOS authors'; or "verbatim", the characters themselves, anywhere ("Ann" in "Annika"), as NoLiMa judges.
    `multiline`: the answer may span lines: decoding stops at the first string of `cut` instead of the first newline.

    An empty answer is always wrong. ValueError for an unknown normalization and an empty string in `cut`.

    Example:
        >>> judge = lh.Judge(ignore_case=True)
        >>> judge.is_right("It is Paris, in France.", "Paris"), judge.is_right("It is Parisian.", "Paris")
        (True, False)
    """

    cut: tuple[str, ...] = ()
    ignore_case: bool = False
    normalization: str = "numbers"
    multiline: bool = False
    rule: ClassVar[str] = "contains"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cut", _texts("cut", self.cut))
        if self.normalization not in NORMALIZATIONS:
            known = " or ".join(map(repr, NORMALIZATIONS))
            raise ValueError(f"normalization={self.normalization!r}: must be {known}")

    def is_right(self, text: str, gold: str) -> bool:
        """Whether the extracted text gives the answer."""
        return self.contains(text, gold)

    def without(self, question: str) -> Self:
        """The judge for one question, if the question affects what counts."""
        return self

    def check_allowed(self, trial: str) -> None:
        """ValueError, with the remedy, if judging would run generated code without permission."""

    def extract(self, text: str) -> str:
        """The part of a generated text that counts as the answer, without surrounding whitespace."""
        return self._split(text)[0].strip()

    def ended(self, text: str) -> bool:
        """Whether the text generated so far has ended the answer, by a newline or, if `multiline`, a string of `cut`."""
        return len(self._split(text)) > 1 if self.multiline else "\n" in text

    def correct(self, text: str, answers: Sequence[str]) -> float:
        """1 if a generated text gives one of the accepted answers by the rule, else 0."""
        found = self.extract(text)
        return float(any(self.is_right(found, gold) for gold in answers))

    def normalize(self, text: str) -> str:
        """The text in the form in which it is compared."""
        return NORMALIZATIONS[self.normalization](text)

    def contains(self, text: str, gold: str) -> bool:
        """Whether the text contains the answer as consecutive whole words, after normalization; verbatim, anywhere."""
        if self.normalization == "numbers":
            return comparing.find(text, gold) is not None
        words, answer = self.normalize(text), self.normalize(gold)
        edge = "" if self.normalization == "verbatim" else " "
        return bool(answer) and f"{edge}{answer}{edge}" in f"{edge}{words}{edge}"

    def equals(self, text: str, gold: str) -> bool:
        """Whether text and answer are equal, and not empty, after normalization."""
        return self.normalize(text) == self.normalize(gold) != ""

    def _split(self, text: str) -> list[str]:
        """The text before the first string of `cut`, and if there is one, the text after it."""
        ends = "|".join(re.escape(end) for end in self.cut)
        return re.split(ends, text, maxsplit=1, flags=re.IGNORECASE if self.ignore_case else 0) if ends else [text]


@dataclass(frozen=True)
class ExactMatch(Judge):
    """Text and answer are the same words."""

    rule: ClassVar[str] = "exact_match"

    def is_right(self, text: str, gold: str) -> bool:
        return self.equals(text, gold)


@dataclass(frozen=True)
class FirstNumber(Judge):
    """The first number in the text equals the answer's (1,043.0 is 1043, 3,5 is 3.5, and so are digits of other scripts)."""

    rule: ClassVar[str] = "number"

    def is_right(self, text: str, gold: str) -> bool:
        return self.number(text) is not None and self.number(text) == self.number(gold)

    def number(self, text: str) -> Decimal | None:
        """The number that counts; None if the text has none."""
        found = _NUMBER.search(compared(text))
        return Decimal(found[0]) if found else None


@dataclass(frozen=True)
class FinalNumber(FirstNumber):
    """The number after the last "####", else the last one, equals the answer's (GSM8K; Cobbe et al., arXiv 2110.14168)."""

    rule: ClassVar[str] = "final_number"

    def number(self, text: str) -> Decimal | None:
        _, marked, after = text.rpartition("####")
        every = _NUMBER.findall(compared(text))
        return super().number(after if marked else every[-1] if every else "")


@dataclass(frozen=True)
class EitherContains(Judge):
    """Text and answer are equal, or one contains the other as a substring ("1" counts for "1929").

    The loose rule of "Different Heads, Same Fragile Tasks", for comparison with that study. An answer of one or two
    letters, such as a state code, must be a whole word of the text, or "company" would count for "pa".
    """

    rule: ClassVar[str] = "either_contains"

    def is_right(self, text: str, gold: str) -> bool:
        text, gold = self.normalize(text), self.normalize(gold)
        if not text or not gold:
            return False
        return (gold in text.split() if gold.isalpha() and len(gold) <= 2 else gold in text) or text in gold


@dataclass(frozen=True)
class Labelled(Judge):
    """A rule with a list of possible answers, its `labels`. ValueError for no labels or an empty one."""

    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "labels", _texts("labels", self.labels))
        if not self.labels:
            raise ValueError(f"judge {self.rule!r} has no labels: pass the possible answers")

    def without(self, question: str) -> Self:
        """The judge for one question, without the labels that the question names. ValueError if none are left."""
        return replace(self, labels=tuple(label for label in self.labels if not self._names(question, label)))

    def _names(self, text: str, label: str) -> bool:
        return label.lower() in text.lower()


@dataclass(frozen=True)
class OnlyLabel(Labelled):
    """The text contains the right label and no other; for an answer with commas, all of its parts and no other.

    BABILong's rule (Kuratov et al., arXiv 2406.10149; `compare_answers` in its code): labels match anywhere in the text, in
    lower case ("one" in "none"; not with `whole_words`), and those that the question names must be removed first (`without`).
    """

    whole_words: bool = False
    rule: ClassVar[str] = "only_label"

    def is_right(self, text: str, gold: str) -> bool:
        found = {label.lower() for label in self.labels if self._names(text, label)}
        gold = gold.lower()
        return found == ({part.strip() for part in gold.split(",")} if "," in gold else {gold})

    def _names(self, text: str, label: str) -> bool:
        return comparing.find(text, label) is not None if self.whole_words else super()._names(text, label)


@dataclass(frozen=True)
class FirstLabel(Labelled):
    """The first label in the text, as whole words, is the answer: "B", "(B)." and "The answer is B, not C" choose B.

    Case matters unless `ignore_case`: "a" does not choose A, but a sentence that begins with the article "A" does. Of two
    labels that begin at the same place, the longer one counts.
    """

    rule: ClassVar[str] = "first_label"

    def is_right(self, text: str, gold: str) -> bool:
        flags = re.IGNORECASE if self.ignore_case else 0
        every = "|".join(re.escape(label) for label in sorted(self.labels, key=len, reverse=True))
        found = re.search(rf"(?<!\w)(?:{every})(?!\w)", text, flags)
        return found is not None and re.fullmatch(re.escape(gold), found[0], flags) is not None


@dataclass(frozen=True)
class AnyOf(Labelled):
    """The text contains any label, as whole words and in any case; it need not be the answer."""

    rule: ClassVar[str] = "any_of"

    def is_right(self, text: str, gold: str) -> bool:
        return any(comparing.find(text, label) is not None for label in self.labels)


@dataclass(frozen=True)
class Rhymes(Labelled):
    """The first word of the text is the answer or rhymes with it (`trials.rhymes`), and is none of the labels."""

    rule: ClassVar[str] = "rhymes"

    def is_right(self, text: str, gold: str) -> bool:
        found = re.search(r"[a-z']+", text.lower())
        if found is None or found[0] in {label.lower() for label in self.labels}:
            return False
        return found[0] == gold.lower() or rhyme(found[0], gold)


@dataclass(frozen=True)
class PassesTests(Judge):
    """The text is code, and the functions that the answer defines pass `tests` when the text after `preamble` defines them.

    MBPP (Austin et al., arXiv 2108.07732), HumanEval (Chen et al., arXiv 2107.03374). It runs in `trials.sandbox`, and only if
    `allowed`: True, or "unsafe" for a disposable machine without confinement. Code keeps its whitespace. ValueError without
    tests, and for an answer that is no program or that the tests do not call.
    """

    preamble: str = ""
    tests: str = ""
    allowed: bool | str = False
    rule: ClassVar[str] = "passes_tests"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("preamble", "tests"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"judge {self.rule!r} has {name}={getattr(self, name)!r}: must be text")
        if not self.tests.strip():
            raise ValueError(f"judge {self.rule!r} has tests={self.tests!r}: pass the program that tests the code")
        sandbox.permission("allowed", self.allowed)

    def is_right(self, text: str, gold: str) -> bool:
        self.check_allowed("a text")
        if not text.strip():
            return False
        program, reference = f"{self.preamble}{text}", f"{self.preamble}{gold}"
        return sandbox.run(program, self.tests, reference, self.preamble, unsafe=self.allowed == "unsafe").passed

    def check_allowed(self, trial: str) -> None:
        """ValueError without permission, OSError where code cannot be confined, each with the remedy."""
        if not self.allowed:
            raise ValueError(
                f"{trial}: judging it runs generated code: allow that with allow_code_execution=True when creating the task "
                "(PassesTests(allowed=True) in your own trials, --allow-code-execution on the command line), or use "
                "generate=False to measure only the log-probability"
            )
        sandbox.check_confined(self.allowed == "unsafe")

    def extract(self, text: str) -> str:
        return self._split(text)[0]


_LABELS = (OnlyLabel, FirstLabel, AnyOf, Rhymes)
_KINDS = (Judge, ExactMatch, FirstNumber, FinalNumber, EitherContains, *_LABELS, PassesTests)
RULES: dict[str, type[Judge]] = {kind.rule: kind for kind in _KINDS}
"""All rules by their names in template files."""
DEFAULT = Judge()


def judge_of(rule: str = "contains", **given: Any) -> Judge:
    """A judge from the name of its rule and its fields, as in template files. ValueError for an unknown rule or field."""
    if rule not in RULES:
        raise ValueError(f"rule={rule!r}: must be one of {', '.join(RULES)}")
    known = [field.name for field in fields(RULES[rule])]
    for name in given:
        if name not in known:
            raise ValueError(f"judge {rule!r} has no field {name!r}: the fields are {', '.join(known)}")
    return RULES[rule](**given)
