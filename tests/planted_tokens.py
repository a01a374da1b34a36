"""Tiny GPT-2 models whose heads do known things with tokens: an induction circuit, and a map of tokens in the weights.

Embeddings are one-hot, MLPs do nothing (or pass on what they get), and norms have weight 1, so a normalised entry is nearly
the same in every row.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from lens_heads.heads.head import Head
from tests import zoo

PREVIOUS, INDUCTION = Head(0, 0), Head(1, 1)
SUCCESSOR = Head(1, 2)
POSITIONS = 64
SHARP = 1.5
"""Weight of planted queries and keys: scores of 25 and more against nearly 0."""


def _blank(width: int, heads: int) -> Any:
    config = GPT2Config(
        vocab_size=zoo.VOCAB,
        n_embd=width,
        n_head=heads,
        n_layer=2,
        n_positions=POSITIONS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        tokens = torch.arange(zoo.VOCAB)
        model.transformer.wte.weight[tokens, tokens] = 1.0
    config.architectures = ["GPT2LMHeadModel"]
    return model


def induction_model(writes: float = 0.0) -> Any:
    """PREVIOUS looks one back and notes the token there; INDUCTION looks for the notes that equal its own token.

    `writes`: how strongly it then writes the token that it looks at; by default it only looks.
    """
    width, heads = 2 * zoo.VOCAB + POSITIONS, 2
    size, notes, places = width // heads, zoo.VOCAB, 2 * zoo.VOCAB
    model = _blank(width, heads)
    with torch.no_grad():
        at = torch.arange(POSITIONS)
        model.transformer.wpe.weight[at, places + at] = 1.0
        first, second = (block.attn.c_attn.weight for block in model.transformer.h)
        first[places + at, at] = SHARP
        first[places + at[:-1], width + at[:-1] + 1] = SHARP
        tokens = torch.arange(zoo.VOCAB)
        first[tokens, 2 * width + tokens] = 1.0
        model.transformer.h[0].attn.c_proj.weight[tokens, notes + tokens] = (2 / width) ** 0.5
        second[tokens, size + tokens] = SHARP
        second[notes + tokens, width + size + tokens] = SHARP
        second[tokens, 2 * width + size + tokens] = 1.0
        model.transformer.h[1].attn.c_proj.weight[size + tokens, tokens] = writes
    return zoo.bridge("gpt2", hf=model)


def successor_model(pairs: list[tuple[int, int]], seed: int = 0) -> Any:
    """The first MLP passes its input on; SUCCESSOR writes f(t) wherever it reads t; the other heads are random."""
    width, heads = zoo.VOCAB, 4
    size, model = width // heads, _blank(width, heads)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        mlp, shift = model.transformer.h[0].mlp, 20.0
        every = torch.arange(width)
        mlp.c_fc.weight[every, every] = 1.0
        mlp.c_proj.weight[every, every] = 1.0
        mlp.c_fc.bias.fill_(shift)  # Far to the right, GELU is the identity.
        mlp.c_proj.bias.fill_(-shift)
        for block in model.transformer.h:
            block.attn.c_attn.weight.copy_(0.1 * torch.randn(width, 3 * width, generator=generator))
            block.attn.c_proj.weight.copy_(0.1 * torch.randn(width, width, generator=generator))
        attention, begin = model.transformer.h[SUCCESSOR.layer].attn, SUCCESSOR.head * size
        attention.c_attn.weight[:, 2 * width + begin : 2 * width + begin + size] = 0
        attention.c_proj.weight[begin : begin + size] = 0
        for i, (token, image) in enumerate(pairs):
            attention.c_attn.weight[token, 2 * width + begin + i] = 1.0
            attention.c_proj.weight[begin + i, image] = 1.0
    return zoo.bridge("gpt2", hf=model)
