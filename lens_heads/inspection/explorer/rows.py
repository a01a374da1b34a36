"""A `Look` as the explorer takes it: the prompt as plain values, and the rows of some heads as bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lens_heads.inspection.look_results import Look

MOST = 65504.0
"""The largest float16: what exceeds it is shown as this."""


def prompt(look: Look) -> dict[str, Any]:
    """The tokens, spans and steps of a look, ready for JSON."""
    return {
        "trial": look.trial,
        "answer": look.answer,
        "words": list(look.words),
        "produced": list(look.produced_words),
        "logprobs": [float(f"{value:.5g}") if math.isfinite(value) else None for value in look.logprobs.tolist()],
        "rows": list(look.rows),
        "needle": look.needle,
        "question": look.question,
    }


def rows(look: Look, heads: Sequence[str]) -> bytes:
    """Attention and phi of these heads as little-endian float16 [head, step, attention or phi, position]."""
    places = look.places(list(heads))
    both = torch.stack([look.attention[places].float(), look.phi[places].float()], dim=2)
    return both.clamp(-MOST, MOST).numpy().astype(np.dtype("<f2")).tobytes()


def tops(look: Look, heads: Sequence[str]) -> list[list[dict[str, list[tuple[str, float]]]]]:
    """Per head and step, the tokens that its write raises and lowers most, each with its logit.

    The write stands alone and is normalised, so a logit says nothing beside another head's.
    """
    found = []
    for place in look.places(list(heads)):
        steps = []
        for step in range(len(look.rows)):
            sides = {}
            for at, side in enumerate(("raises", "lowers")):
                ids, values = look.top_ids[place, step, at].tolist(), look.top_logits[place, step, at].tolist()
                sides[side] = [
                    (look.vocabulary[token], round(value, 3)) for token, value in zip(ids, values, strict=True)
                ]
            steps.append(sides)
        found.append(steps)
    return found
