"""Whether the model answered, and at which generated steps: the gate and the answer steps of the LOCOS protocol."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.text import contains
from lens_heads.trials.thinking import TAIL, thoughts, unclosed
from lens_heads.trials.tokenizing import piece

GATE = 0.5
"""A trial passes if the ROUGE-1 recall of the gold answer in the generated text is above this."""


@cache
def _rouge(kind: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([kind], use_stemmer=True)


def rouge(kind: str, gold: str, text: str) -> tuple[float, float]:
    """(recall, F1) of `gold` in `text` by the rouge-score package, stemmed; `kind` is "rouge1" or "rougeL".

    ROUGE ignores everything but a-z and 0-9: an answer without these ("北京") scores 1 if the text contains it, else 0.
    """
    if not re.search(r"[a-z0-9]", gold.lower()):
        found = contains(text, gold)
        return found, found
    score = _rouge(kind).score(gold, text)[kind]
    return float(score.recall), float(score.fmeasure)


def passes(trial: EncodedTrial, text: str) -> bool:
    """Whether the text passes the gate by any accepted answer."""
    return max(rouge("rouge1", gold, text)[0] for gold in (trial.answer, *trial.aliases)) > GATE


def answer_steps(trial: EncodedTrial, generated: list[int], tokenizer: Any) -> list[int]:
    """Indices of the generated steps that write the answer; empty if the text does not contain it.

    The first match of the answer's token sequence (the trial's own, or the text tokenized with or without a leading
    space); without any, the steps whose text overlaps the first case-insensitive occurrence of the answer. Steps of
    thinking (`trials.thinking`) do not count, also where the prompt began it.
    """
    lead = unclosed(tokenizer.decode(trial.tokens[-TAIL:].tolist()))
    texts = [lead + tokenizer.decode(generated[:i]) for i in range(len(generated) + 1)]
    start = _after_thinking(texts)
    for gold in (trial.answer, *trial.aliases):
        forms = [piece(tokenizer, " " + gold), piece(tokenizer, gold)]
        if gold == trial.answer:
            forms.insert(0, trial.answer_tokens.tolist())
        for form in forms:
            for at in range(start, len(generated) - len(form) + 1):
                if form and generated[at : at + len(form)] == form:
                    return list(range(at, at + len(form)))
    texts = [text.lower() for text in texts]  # Lowercasing can change lengths, so all prefixes are lowercased.
    whole = texts[-1]
    for gold in (trial.answer, *trial.aliases):
        at = whole.find(gold.lower(), len(texts[start]))
        if at >= 0:
            end = at + len(gold)
            return [i for i in range(len(generated)) if len(texts[i]) < end and len(texts[i + 1]) > at]
    return []


def _after_thinking(texts: list[str]) -> int:
    end = max((end for start, end in thoughts(texts[-1]) if end < len(texts[-1]) or start == 0), default=0)
    return next(i for i, text in enumerate(texts) if len(text) >= end)
