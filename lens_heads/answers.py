"""Did the model answer, and at which generated steps? The gate and the answer steps of the LOCOS protocol."""

from __future__ import annotations

import re
import string
from functools import cache
from typing import Any

from lens_heads.compose import piece
from lens_heads.trials import EncodedTrial

GATE = 0.5
"""A trial passes when ROUGE-1 recall of the gold answer in the generated text is above this."""

_IN_NUMBER = re.compile(r"(?<![\w-])-(?=[$€£]?\.?\d)|(?<=\d)\.(?=\d)|(?<![\w.])\.(?=\d)")
"""The sign or the point of a number: -5, 3.5, -.5; not the hyphen of 1990-95 or well-known, not the stop after 5."""

_ALONE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef“”„«»]"
)
"""Characters of scripts that put no space between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese), and quotes."""


def normalize(text: str) -> str:
    """SQuAD's normalisation: lower case, no punctuation, no articles, single spaces; numbers keep sign and point."""
    text = text.lower().replace("\N{MINUS SIGN}", "-")
    kept = {found.start() for found in _IN_NUMBER.finditer(text)}
    text = "".join(char for at, char in enumerate(text) if char not in string.punctuation or at in kept)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def contains(text: str, gold: str) -> float:
    """1 when the answer's words stand in the text as a run of whole words, after normalisation.

    Where a script puts no space between words, every character counts as one.
    """
    words, needle = (" ".join(_ALONE.sub(r" \g<0> ", normalize(part)).split()) for part in (text, gold))
    return float(bool(needle) and f" {needle} " in f" {words} ")


@cache
def _rouge(kind: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([kind], use_stemmer=True)


def rouge(kind: str, gold: str, text: str) -> tuple[float, float]:
    """(recall, F1) of `gold` in `text` by the rouge-score package, stemmed; `kind` is "rouge1" or "rougeL".

    ROUGE knows a-z and 0-9 only: an answer without any of them ("北京") scores whether the text contains it, 1 or 0.
    """
    if not re.search(r"[a-z0-9]", gold.lower()):
        found = contains(text, gold)
        return found, found
    score = _rouge(kind).score(gold, text)[kind]
    return float(score.recall), float(score.fmeasure)


def passes(trial: EncodedTrial, text: str) -> bool:
    """The gate, by the best of the accepted answers."""
    return max(rouge("rouge1", gold, text)[0] for gold in (trial.answer, *trial.aliases)) > GATE


def answer_steps(trial: EncodedTrial, generated: list[int], tokenizer: Any) -> list[int]:
    """Indices of the generated steps that write the answer; empty when it is not there.

    First match of the gold answer's token sequence (as the trial has it, or tokenized with or without a leading space);
    else the steps whose text overlaps the first case-insensitive occurrence of the answer. Steps inside `<think>` do
    not count.
    """
    texts = [tokenizer.decode(generated[:i]) for i in range(len(generated) + 1)]
    start = _after_thinking(texts)
    for gold in (trial.answer, *trial.aliases):
        forms = [piece(tokenizer, " " + gold), piece(tokenizer, gold)]
        if gold == trial.answer:
            forms.insert(0, trial.answer_tokens.tolist())
        for form in forms:
            for at in range(start, len(generated) - len(form) + 1):
                if form and generated[at : at + len(form)] == form:
                    return list(range(at, at + len(form)))
    texts = [text.lower() for text in texts]  # All of them: lower case can be longer than the text it came from.
    whole = texts[-1]
    for gold in (trial.answer, *trial.aliases):
        at = whole.find(gold.lower(), len(texts[start]))
        if at >= 0:
            end = at + len(gold)
            return [i for i in range(len(generated)) if len(texts[i]) < end and len(texts[i + 1]) > at]
    return []


def _after_thinking(texts: list[str]) -> int:
    if "<think>" not in texts[-1] and "</think>" not in texts[-1]:  # Some chat templates open it in the prompt.
        return 0
    return next((i for i, text in enumerate(texts) if "</think>" in text), len(texts) - 1)
