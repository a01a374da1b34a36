"""A tiny model whose heads do known things: `lh.planted_model`'s weights, with the heads in fixed places.

Two layers of four heads. `COPIER` looks at the answer and writes it, `WRITER` looks at the clue and writes the answer (what copy
scores miss), `DECOY` looks at the answer and writes nothing, `SUPPRESSOR` writes minus half of the answer; the other four attend
evenly and write a little noise.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch

from lens_heads.heads.head import Head
from lens_heads.heads.sets import every_head
from lens_heads.sanity import planted_weights
from lens_heads.sanity.planted import Planted, Role
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo

COPIER, WRITER, DECOY, SUPPRESSOR = Head(0, 1), Head(1, 2), Head(0, 3), Head(1, 0)
LAYERS, HEADS, D_HEAD = 2, 4, planted_weights.D_HEAD
ROLES: dict[Head, Role] = dict.fromkeys(every_head(LAYERS, HEADS), "noise")
ROLES |= {COPIER: "copier", WRITER: "writer", DECOY: "decoy", SUPPRESSOR: "suppressor"}


@cache
def _written() -> tuple[Any, dict[str, int]]:
    return planted_weights.write_weights(ROLES, [], (LAYERS, HEADS, HEADS), False, None, zoo.tokenizer(), 0)


def hf_model() -> Any:
    """The Hugging Face model; treat it as read-only."""
    return _written()[0]


def _strength(head: Head) -> float:
    """What a head adds to the answer token's logit (raw direction) when all its attention is where it looks."""
    rows = slice(head.head * D_HEAD, (head.head + 1) * D_HEAD)
    return float(hf_model().model.layers[head.layer].self_attn.o_proj.weight.detach()[zoo.VOCAB :, rows].sum()) / len(
        planted_weights.ANSWERS
    )


STRENGTH = {head: _strength(head) for head in (COPIER, WRITER, DECOY, SUPPRESSOR)}


def model(hf: Any = None, dtype: torch.dtype = torch.float32) -> Any:
    """A fresh TransformerBridge over the planted weights: over `hf`, or a model of its own.

    A bridge wraps the parts of its model; wrapped again and again, one that all share would get deeper and slower.
    """
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(
        "planted", hf_model=hf or copy.deepcopy(hf_model()), tokenizer=zoo.tokenizer(), device="cpu", dtype=dtype
    )
    bridge.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    return bridge.eval()


@cache
def _truth() -> Planted:
    return Planted(model(), ROLES, _written()[1])


def trials(n: int = 8, length: int = 40, seed: int = 0, corrupt: bool = False) -> list[EncodedTrial]:
    """`n` trials of `length` tokens, every answer in turn; `corrupt`: filler in place of the needle, with the same ids."""
    return _truth().trials(n, length=length, seed=seed, corrupt=corrupt)
