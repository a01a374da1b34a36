"""A tiny model whose heads do known things, built by hand. Ground truth for scorers and interventions.

The model is a two-layer Llama of four heads per layer with weights set by hand:

- The residual stream holds two spaces side by side: dimensions 0..255 say which token stands here (one-hot embedding of
  length `SIZE`), and dimensions 256..511 say which token comes next (the unembedding reads only these). MLPs are zero,
  norms have weight 1.
- RoPE turns every dimension pair but the first few by next to nothing (theta = 1e12), and queries and keys use the
  slowest pair alone: attention depends on tokens, not on positions.
- A needle reads `(b=B)`: a clue (`a` to `h`), a sign, and the answer, the clue's capital. Prompts end in `?`, the only
  token with a query. A planted head gives nearly all of the `?` row's attention to the tokens it looks for; every other
  row attends evenly.

The four planted heads:

- `COPIER` looks at the answer and writes that token's own unembedding: a literal copy.
- `WRITER` looks at the clue, never at the answer, and writes the answer's unembedding: what copy scores miss.
- `DECOY` looks at the answer and writes nothing: W_O is zero.
- `SUPPRESSOR` looks at the answer and writes minus half its unembedding.

The other four attend evenly and write a little noise. The model answers every trial: the copier and the writer outvote
the suppressor, and the answer's own embedding asks for a newline next, which ends a greedy decode.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lens_heads.heads.head import Head
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo

COPIER, WRITER, DECOY, SUPPRESSOR = Head(0, 1), Head(1, 2), Head(0, 3), Head(1, 0)
LAYERS, HEADS, D_HEAD = 2, 4, 32
STRENGTH = {COPIER: 1.0, WRITER: 0.8, DECOY: 0.0, SUPPRESSOR: -0.5}
"""What each planted head adds to the answer token's logit (raw direction) when all its attention is where it looks."""

SIZE = 3.0
"""Length of a token's embedding: well above what heads write, so that norms hardly change from layer to layer."""

CLUES, ANSWERS, FILLER = "abcdefgh", "ABCDEFGH", "ijklmnopqrstuvwxyz"


def _id(character: str) -> int:
    return zoo.tokenizer()(character, add_special_tokens=False).input_ids[0]


def _ids(text: str) -> list[int]:
    return [_id(character) for character in text]


@cache
def hf_model() -> Any:
    """The Hugging Face model; treat it as read-only."""
    width = 2 * zoo.VOCAB
    config = LlamaConfig(
        vocab_size=zoo.VOCAB,
        hidden_size=width,
        intermediate_size=4,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=D_HEAD,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="eager",
    )
    generator = torch.Generator().manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    clues, answers, newline, query = _ids(CLUES), _ids(ANSWERS), _id("\n"), _id("?")
    slowest = D_HEAD // 2 - 1
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        tokens = torch.arange(zoo.VOCAB)
        model.model.embed_tokens.weight[tokens, tokens] = SIZE
        model.model.embed_tokens.weight[torch.tensor(answers), zoo.VOCAB + newline] = 1.0
        model.lm_head.weight[tokens, zoo.VOCAB + tokens] = 1.0
        for layer in range(LAYERS):
            attention = model.model.layers[layer].self_attn
            for index in range(HEADS):
                head, rows = Head(layer, index), slice(index * D_HEAD, (index + 1) * D_HEAD)
                if head not in STRENGTH:
                    attention.v_proj.weight[rows] = 0.02 * torch.randn(D_HEAD, width, generator=generator)
                    attention.o_proj.weight[:, rows] = 0.002 * torch.randn(width, D_HEAD, generator=generator)
                    continue
                looks_for = clues if head == WRITER else answers
                # What the norm makes of the entry that says which token stands here: it fixes the length of the whole.
                share = 1.0 if head == WRITER else SIZE / (SIZE**2 + 1) ** 0.5
                length = share * width**0.5
                attention.q_proj.weight[index * D_HEAD + slowest, query] = 1.0
                for i, (seen, answer) in enumerate(zip(looks_for, answers, strict=True)):
                    attention.k_proj.weight[index * D_HEAD + slowest, seen] = 1.0
                    attention.v_proj.weight[index * D_HEAD + i, seen] = 1 / length
                    attention.o_proj.weight[zoo.VOCAB + answer, index * D_HEAD + i] = STRENGTH[head]
    config.architectures = ["LlamaForCausalLM"]
    return model


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


def trials(n: int = 8, length: int = 40, seed: int = 0, corrupt: bool = False) -> list[EncodedTrial]:
    """`n` trials of `length` tokens, every answer in turn, the needle at another place in each.

    `corrupt=True`: the same prompts with the needle's five tokens replaced by filler; ids and gold answers stay.
    """
    generator = torch.Generator().manual_seed(seed)
    filler = torch.tensor(_ids(FILLER))
    made = []
    for i in range(n):
        clue, answer = CLUES[i % len(CLUES)], ANSWERS[i % len(ANSWERS)]
        tokens = filler[torch.randint(len(filler), (length,), generator=generator)]
        tokens[0], tokens[-1] = 1, _id("?")
        start = int(torch.randint(1, length - 6, (1,), generator=generator))
        if not corrupt:
            tokens[start : start + 5] = torch.tensor(_ids(f"({clue}={answer})"))
        made.append(EncodedTrial(tokens, (start, start + 5), answer, torch.tensor(_ids(answer)), f"planted-{i}"))
    return made
