"""The weights of planted heads, written entry by entry into a Hugging Face model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import Head

CLUES, ANSWERS, QUESTIONS, FILLER = "abcdefgh", "ABCDEFGH", "12345678", "ijklmnopqrstuvwxyz"
"""A question asks for the answer at its place; `?` asks for any."""
STRENGTH = {
    "copier": 1.0,
    "selector": 1.0,
    "writer": 0.8,
    "suppressor": -0.5,
    "main": 1.0,
    "backup": 1.0,
    "reader": 1.0,
}
"""What a head writes of the answer, as a multiple of one unit."""
VOCAB, D_HEAD, SIZE, LOGIT = 256, 32, 3.0, 8.0
"""`SIZE`: length of an embedding, well above what heads write. `LOGIT`: the answer's logit with all heads, about."""
NOISE = 0.002
NOTED = {False: 16.0, True: 100.0}
"""How much more than the `?` itself a note counts in a query, by whether what is written is normalised, and so smaller."""


def byte_tokenizer(folder: str) -> Any:
    """One token per byte, 256 in all with three special ones. TransformerLens reads it again from the folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<pad>", "<bos>", "<eos>", *alphabet[: VOCAB - 3]]
    raw = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    raw.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    made = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>")
    made.save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def write_weights(
    roles: Mapping[Head, str],
    pairs: Sequence[tuple[Head, Head]],
    size: tuple[int, int, int],
    post_norm: bool,
    window: int | None,
    tokenizer: Any,
    seed: int,
) -> tuple[Any, dict[str, int]]:
    """The Hugging Face model, and the token id of every character in use."""
    ids = {c: tokenizer(c, add_special_tokens=False).input_ids[0] for c in f"{CLUES}{ANSWERS}{QUESTIONS}{FILLER}(=)?\n"}
    width = 2 * VOCAB + len(pairs)
    width += -width % (2 * size[1])
    model = _blank(size, width, post_norm, window)
    answers = torch.tensor([ids[c] for c in ANSWERS])
    writing = {head.layer for head, role in roles.items() if STRENGTH.get(role, 0) > 0 and role != "backup"}
    generator, every = torch.Generator().manual_seed(seed), torch.arange(VOCAB)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
            if post_norm and "post_attention_layernorm" in name:
                # What a layer's heads write together gets one length; all that write an answer make the logit.
                parameter.fill_(LOGIT / max(len(writing), 1) * SIZE / width)
        model.model.embed_tokens.weight[every, every] = SIZE
        model.model.embed_tokens.weight[answers, VOCAB + ids["\n"]] = 1.0
        model.lm_head.weight[every, VOCAB + every] = 1.0
        entry = SIZE if post_norm else width**0.5
        positive = sum(STRENGTH.get(role, 0) for role in roles.values() if role != "backup")
        unit = 1.0 if post_norm else LOGIT / max(positive, 1.0) * SIZE / width**0.5
        notes = {head: 2 * VOCAB + number for number, pair in enumerate(pairs) for head in pair}
        for head, role in roles.items():
            part = _Part(model.model.layers[head.layer].self_attn, head.head, size[1] // size[2])
            if role == "noise":
                part.noise(generator)
            else:
                _plant(part, role, notes.get(head), ids, entry, unit, NOTED[post_norm])
    return model, ids


class _Part:
    """The rows and columns of one head in its layer's projections."""

    def __init__(self, attention: Any, index: int, group: int) -> None:
        self.attention = attention
        self.q, self.kv = index * D_HEAD, index // group * D_HEAD
        self.slow = D_HEAD // 2 - 1  # RoPE turns this entry, and the seven below it, by next to nothing.

    def query(self, dimension: int, value: float, below: int = 0) -> None:
        self.attention.q_proj.weight[self.q + self.slow - below, dimension] = value

    def key(self, token: int, value: float = 1.0, below: int = 0) -> None:
        self.attention.k_proj.weight[self.kv + self.slow - below, token] = value

    def value(self, at: int, token: int, value: float) -> None:
        self.attention.v_proj.weight[self.kv + at, token] = value

    def write(self, at: int, dimension: int, value: float) -> None:
        self.attention.o_proj.weight[dimension, self.q + at] = value

    def noise(self, generator: torch.Generator) -> None:
        rows = self.attention.o_proj.weight
        drawn: Float[Tensor, "width d_head"] = NOISE * torch.randn(rows.shape[0], D_HEAD, generator=generator)
        rows[:, self.q : self.q + D_HEAD] = drawn
        if not self.attention.v_proj.weight[self.kv : self.kv + D_HEAD].any():
            width = self.attention.v_proj.weight.shape[1]
            self.attention.v_proj.weight[self.kv : self.kv + D_HEAD] = 0.02 * torch.randn(
                D_HEAD, width, generator=generator
            )


def _plant(
    part: _Part, role: str, note: int | None, ids: dict[str, int], entry: float, unit: float, noted: float
) -> None:
    """Queries at `?` (turned round by a note), keys and values at the answer (or the clue), and what is written of them."""
    part.attention.v_proj.weight[part.kv : part.kv + D_HEAD] = 0  # Noise of another head of the group.
    for asked in "?" + QUESTIONS if role != "selector" else "":
        part.query(ids[asked], -1.0 if role == "reader" else 1.0)
    if role in ("reader", "backup"):
        assert note is not None
        part.query(note, noted if role == "reader" else -noted)
    clue_read, length = role in ("writer", "feeder"), entry
    if (
        not clue_read and entry != SIZE
    ):  # An answer's embedding has a second entry, what follows it, which a norm counts in.
        length *= SIZE / (SIZE**2 + 1) ** 0.5
    for at, (clue, answer, question) in enumerate(zip(CLUES, ANSWERS, QUESTIONS, strict=True)):
        seen = ids[clue] if clue_read else ids[answer]
        if role == "selector":  # An entry for each question, which meets its own answer alone.
            part.query(ids[question], 1.0, below=at)
            part.key(seen, below=at)
        else:
            part.key(seen)
        part.value(at, seen, 1 / length)
        if role in STRENGTH:
            part.write(at, VOCAB + ids[answer], unit * STRENGTH[role])
        if role in ("main", "feeder"):
            assert note is not None
            part.write(at, note, 0.7)


def _blank(size: tuple[int, int, int], width: int, post_norm: bool, window: int | None) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    layers, heads, kv_heads = size
    kind = ("olmo3" if window else "olmo2") if post_norm else ("mistral" if window else "llama")
    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": width,
        "intermediate_size": 4,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": D_HEAD,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e12},
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    settings |= {"sliding_window": window} if window else {}
    settings |= {"layer_types": ["sliding_attention"] * layers} if window and post_norm else {}
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings), attn_implementation="eager")
    model.config.architectures = [type(model).__name__]
    return model.eval()
