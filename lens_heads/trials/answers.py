"""Whether the model answered, and at which generated steps: the gate and the answer steps of the LOCOS protocol."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

from lens_heads.trials.containment import contains, find, occurrences, words
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.thinking import TAIL, after_thinking, thoughts, unclosed
from lens_heads.trials.tokenizing import piece

GATE = 0.5
"""A trial passes if the share of the gold answer's words that the generated text holds is above this."""


_PLAIN = re.compile(r"[a-z0-9]+")


@cache
def _rouge(kind: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([kind], use_stemmer=True)


@cache
def _stemmer() -> Any:
    from rouge_score.tokenizers import DefaultTokenizer

    return DefaultTokenizer(use_stemmer=True)


def rouge(kind: str, gold: str, text: str) -> tuple[float, float]:
    """(recall, F1) of `gold` in `text` by the rouge-score package, stemmed; `kind` is "rouge1" or "rougeL".

    ROUGE ignores everything but a-z and 0-9: an answer without these ("北京") scores 1 if the text contains it, else 0.
    """
    if not re.search(r"[a-z0-9]", gold.lower()):
        found = contains(text, gold)
        return found, found
    score = _rouge(kind).score(gold, text)[kind]
    return float(score.recall), float(score.fmeasure)


def recall(gold: str, text: str) -> float:
    """The share of the answer's words that the text holds, each as often: ROUGE-1 recall for every script.

    Words are those of `trials.containment.words`; those of a-z and 0-9 are compared by their stems, others as `containment.find`
    does. Where both texts are such words and nothing else belongs to them (no sign, decimal or other letter), it is exactly
    the rouge-score package's. An answer that the text holds as a whole is held ("U.S." in "US").
    """
    if find(text, gold, articles=True) is not None:
        return 1.0
    wanted = Counter(_stem(word) for word in words(gold))
    written = Counter(_stem(word) for word in words(text))
    held = sum(
        min(n, written[word] if _PLAIN.fullmatch(word) else occurrences(text, word)) for word, n in wanted.items()
    )
    return held / wanted.total() if wanted else 0.0


def _stem(word: str) -> str:
    return _stemmer().tokenize(word)[0] if _PLAIN.fullmatch(word) else word


def passes(trial: EncodedTrial, text: str) -> bool:
    """Whether the text passes the gate by any accepted answer: it holds more than half of the answer's words (`recall`).

    Thinking is no part of it (`trials.thinking`).

    The LOCOS authors' gate is the rouge-score package's recall, which reads a-z and 0-9 only: for "Łódź" the text "I'd say
    Kraków" passes there (both have a "d"), for "-5" "5", for "C++" "C". Where a trial's judge has `normalization="rouge"`,
    the gate is theirs; on answers and texts of plain words the two are equal.
    """
    text, authors = after_thinking(text), trial.judge.normalization == "rouge"
    golds = (trial.answer, *trial.aliases)
    return max(rouge("rouge1", gold, text)[0] if authors else recall(gold, text) for gold in golds) > GATE


def answer_steps(trial: EncodedTrial, generated: list[int], tokenizer: Any) -> list[int]:
    """Indices of the generated steps that write the answer; empty if the text does not contain it.

    The first match of the answer's token sequence (the trial's own, or the text tokenized with or without a leading
    space); without any, the steps whose text overlaps the first place where `trials.containment.find` finds the answer. Steps of
    thinking (`trials.thinking`) do not count, also where the prompt began it. A character of several tokens counts with
    all of them.
    """
    written = _Written(trial, generated, tokenizer)
    for gold in (trial.answer, *trial.aliases):
        forms = [piece(tokenizer, " " + gold), piece(tokenizer, gold)]
        if gold == trial.answer:
            forms.insert(0, trial.answer_tokens.tolist())
        for form in forms:
            for at in range(len(generated) - len(form) + 1):
                if form and generated[at : at + len(form)] == form and all(written.shown[at : at + len(form)]):
                    return list(range(at, at + len(form)))
    for gold in (trial.answer, *trial.aliases):
        found = find(written.text, gold)
        while found is not None:
            steps = written.steps(*found)
            if all(written.shown[i] for i in steps):
                return steps
            found = find(written.text, gold, found[1])
    return []


class _Written:
    """Which characters of a generated text each step wrote, and which steps are not thinking.

    A step that ends inside a character of several tokens wrote that character too: before it is whole, the text decodes
    differently there.
    """

    def __init__(self, trial: EncodedTrial, generated: list[int], tokenizer: Any) -> None:
        lead = unclosed(tokenizer.decode(trial.tokens[-TAIL:].tolist()))
        texts = [lead + tokenizer.decode(generated[:i]) for i in range(len(generated) + 1)]
        whole = texts[-1]
        final = [_common(text, whole) for text in texts]
        hidden = thoughts(whole)
        self._ranges = [(final[i], final[i + 1] + (len(texts[i + 1]) > final[i + 1])) for i in range(len(generated))]
        self.shown = [not any(start < b and end > a for a, b in hidden) for start, end in self._ranges]
        self.text = whole

    def steps(self, start: int, end: int) -> list[int]:
        """The steps that wrote any of the characters."""
        return [i for i, (a, b) in enumerate(self._ranges) if a < end and b > start]


def _common(one: str, other: str) -> int:
    """The length of what two texts begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
