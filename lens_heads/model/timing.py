"""How fast this machine runs a model of a shape: two of its layers, drawn at random, are timed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import nn
from torch.utils.benchmark import Timer

from lens_heads.model.forward import CHUNK
from lens_heads.model.planning import Machine, Shape

LAYERS, PAST = 2, 4 * CHUNK
POINTS = [(size, past) for past in (0, PAST) for size in (1, 32, CHUNK)]
"""Tokens of a forward, and of those before it, that are timed."""


@torch.no_grad()
def this_machine(shape: Shape, dtype: torch.dtype, device: str = "cpu") -> Machine:
    """What a model of this shape takes here. Measuring takes some seconds.

    Layers take a constant, so much per token, per token and key, and per key, which is fitted to the points timed.
    """
    layers = _layers(shape, dtype, device)
    seconds = [_forward(layers, size, past, device) / LAYERS for size, past in POINTS]
    features = np.array([[1.0, size, size * (past + size), past + size] for size, past in POINTS])
    scale = 1 / np.array(seconds)[:, None]  # Relative errors count, or long forwards would decide alone.
    fit, _ = nnls(features * scale, np.ones(len(POINTS)))
    head = torch.randn(shape.d_vocab, shape.d_model, dtype=dtype, device=device)
    few, many = (
        _time(lambda rows=rows: nn.functional.linear(rows, head))
        for rows in (torch.randn(size, shape.d_model, dtype=dtype, device=device) for size in (1, 65))
    )
    each = max(0.0, (many - few) / 64)
    return Machine(tuple(map(float, fit)), (few - each, each), head.element_size(), 0.7e9)  # type: ignore[arg-type]  # four


def _layers(shape: Shape, dtype: torch.dtype, device: str) -> Any:
    """A model of two layers without an unembedding."""
    from transformers import AutoModel, AutoModelForCausalLM

    config = copy.deepcopy(shape.config)
    text = config.get_text_config()
    text.num_hidden_layers, text.vocab_size = LAYERS, 256
    text.max_position_embeddings = max(text.max_position_embeddings, PAST + CHUNK)
    text.pad_token_id = text.bos_token_id = text.eos_token_id = 0
    if getattr(text, "layer_types", None):
        text.layer_types = list(text.layer_types)[:LAYERS]
    if type(config).__module__.startswith("transformers_modules"):  # Code that came along, and was trusted.
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    else:
        model = AutoModel.from_config(config, attn_implementation="sdpa")
    return model.to(device, dtype).eval()


def _forward(model: Any, size: int, past: int, device: str) -> float:
    """The median seconds of one forward after others."""
    from transformers import DynamicCache

    tokens, cache = torch.ones(1, size, dtype=torch.long, device=device), DynamicCache()
    for _ in range(0, past, CHUNK):
        model(tokens.new_ones(1, CHUNK), past_key_values=cache, use_cache=True)

    def run() -> None:
        model(tokens, past_key_values=copy.deepcopy(cache), use_cache=True)

    return max(1e-9, _time(run) - _time(lambda: copy.deepcopy(cache)))


def _time(work: Callable[[], Any]) -> float:
    """The median seconds of one call."""
    work()
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=0.4).median
