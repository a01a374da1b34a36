"""Scores of weights: each equals a plain loop on every attention variant; maps that do not fit are named."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from lens_heads.tasks.succession import CYCLES, SEQUENCES, successor_pairs
from tests import zoo
from tests.conftest import tiny
from tests.planted_tokens import SUCCESSOR, successor_model


def read(arch: str, hf: Any, layer: int, token: int, raw: bool) -> torch.Tensor:
    """What the heads of a layer read of a token: raw, what the first MLP makes of it; else also its embedding, and the gain."""
    inner = hf.transformer if arch == "gpt2" else hf.model
    first, here = ((inner.h if arch == "gpt2" else inner.layers)[i] for i in (0, layer))
    embedding = (inner.wte if arch == "gpt2" else inner.embed_tokens)(torch.tensor([[token]]))
    if raw:
        return first.mlp(embedding)[0, 0]
    if arch == "gpt2":
        stream = (embedding + first.mlp(first.ln_2(embedding)))[0, 0]
        return (stream - stream.mean()) * here.ln_1.weight
    if arch.startswith("gemma"):
        added = first.post_feedforward_layernorm(first.mlp(first.pre_feedforward_layernorm(embedding)))
        return (embedding + added)[0, 0] * (1 + here.input_layernorm.weight)
    if arch.startswith("olmo"):
        return (embedding + first.post_feedforward_layernorm(first.mlp(embedding)))[0, 0]
    return (embedding + first.mlp(first.post_attention_layernorm(embedding)))[0, 0] * here.input_layernorm.weight


@torch.no_grad()
def by_loop(arch: str, pairs: list[tuple[int, int]], lowest: bool, raw: bool) -> torch.Tensor:
    hf = zoo.hf_model(arch)
    layers = hf.transformer.h if arch == "gpt2" else hf.model.layers
    known = sorted({token for pair in pairs for token in pair})
    out = torch.zeros(3, 4)
    for layer in range(1, 3):
        attention = layers[layer].attn if arch == "gpt2" else layers[layer].self_attn
        for head in range(4):
            hits = 0
            for token, image in pairs:
                x = read(arch, hf, layer, token, raw)
                if arch == "gpt2":
                    value = x @ attention.c_attn.weight[:, 64 + 8 * head : 72 + 8 * head]
                    write = value @ attention.c_proj.weight[8 * head : 8 * head + 8]
                else:
                    size, kv = attention.head_dim, head // (4 // hf.config.num_key_value_heads)
                    value = attention.v_proj.weight[kv * size : (kv + 1) * size] @ x
                    write = attention.o_proj.weight[:, head * size : (head + 1) * size] @ value
                logits = [float(hf.lm_head.weight[other] @ write) for other in known]
                best = min(logits) if lowest else max(logits)
                hits += known[logits.index(best)] == image
            out[layer, head] = hits / len(pairs)
    return out


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("method", ["token_map", "token_map_raw"])
def test_token_map_matches_a_loop_written_from_the_formula(arch: str, method: str, lowest: bool) -> None:
    model, pairs = tiny(arch), [(token, token + 2) for token in range(5, 17)]
    probe = lh.token_maps({"mine": lh.ranking.TokenMap(tuple(pairs), lowest)})
    found = lh.score_heads(model, probe, [method], progress=False)[method]
    torch.testing.assert_close(found.values, by_loop(arch, pairs, lowest, method == "token_map_raw"))
    assert found.meta["blind_layers"] == {method: [0]}
    assert found.trial_ids == ("mine",)
    assert not has_hooks(model)


def test_the_paper_s_formula_runs_only_if_it_is_named(gqa: Any) -> None:
    probe = lh.token_maps({"x": [(3, 4), (4, 5)]})
    assert list(lh.score_heads(gqa, probe, progress=False)) == ["token_map"]


def test_what_copies_an_embedding_is_found_only_beside_the_embedding() -> None:
    """A first MLP that writes noise: by itself it says nothing of the token; with it, the gain before the head must be undone."""
    model = successor_model([(token, token) for token in range(20, 40)])
    block, generator = model.original_model.transformer.h, torch.Generator().manual_seed(1)
    with torch.no_grad():
        block[0].mlp.c_proj.weight.copy_(0.01 * torch.randn(block[0].mlp.c_proj.weight.shape, generator=generator))
        block[0].mlp.c_fc.bias.zero_()
        block[0].mlp.c_proj.bias.zero_()
        gain = torch.exp(torch.randn(256, generator=generator))
        block[1].ln_1.weight.copy_(gain)
        begin, size = SUCCESSOR.head * 64, 2 * 256
        values = block[1].attn.c_attn.weight[:, size + begin : size + begin + 64]
        values.copy_(values / gain[:, None])
    maps = lh.token_maps({"copying": [(token, token) for token in range(20, 40)]})
    found = lh.score_heads(model, maps, ["token_map", "token_map_raw"], progress=False)
    assert found["token_map"][SUCCESSOR] == 1
    assert found["token_map_raw"][SUCCESSOR] < 0.3


def test_words_are_single_tokens_after_a_space_and_others_are_left_out() -> None:
    class Words:
        """A tokenizer that knows some words."""

        known: ClassVar = {" one": [7], " two": [8], " three": [9, 4]}

        def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
            return type("Encoding", (), {"input_ids": self.known.get(text, [1])})

        def decode(self, ids: list[int]) -> str:
            return "ab"

    (found,) = lh.token_maps({"m": [("one", " two"), ("two", "three"), (" two", "one")]}).encode(Words(), _shape())
    assert found.tokens.tolist() == [7, 8]
    assert [found.sources.tolist(), found.targets.tolist()] == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match=r"map 'm': 1 of 2 pairs are single tokens"):
        lh.token_maps({"m": [("one", "two"), ("two", "three")]}).encode(Words(), _shape())


def _shape() -> Any:
    return lh.head_geometry(tiny("llama-gqa"))


def test_successions() -> None:
    pairs = successor_pairs()
    assert {("9", "10"), ("Sunday", "Monday"), ("December", "January"), ("Y", "Z"), ("ninth", "tenth")} <= set(pairs)
    assert ("Z", "A") not in pairs
    assert len(pairs) == sum(map(len, SEQUENCES.values())) - len(SEQUENCES) + len(CYCLES)
    assert len(dict(pairs)) == len(pairs), "no word has two successors"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: lh.token_maps({}), "there are no maps"),
        (lambda m: lh.token_maps([("a", "b")]), "maps must be a mapping .* not a list"),
        (lambda m: lh.token_maps({"x": ["ab", "cd"]}), "map 'x': 'ab' is not a pair"),
        (lambda m: lh.token_maps({"x": [(1, 2, 3)]}), r"map 'x': \(1, 2, 3\) is not a pair"),
        (lambda m: lh.score_heads(m, lh.token_maps({"x": [(1, 2)]})), "map 'x': 1 of 1 pairs"),
        (lambda m: lh.score_heads(m, lh.token_maps({"x": [(1, 999), (2, 3)]})), "map 'x': token id 999"),
        (
            lambda m: lh.score_heads(m, lh.token_maps({"x": [(3, 4), (4, 5)]}), ["sink"]),
            "sink reads plain texts",
        ),
    ],
)
def test_what_does_not_fit_is_named(gqa: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(gqa)


def test_a_mapping_is_a_map_and_a_head_without_an_ov_circuit_knows_none() -> None:
    model, pairs = successor_model([(3, 4), (5, 3)]), {5: 3, 3: 4}
    with torch.no_grad():
        model.original_model.transformer.h[1].attn.c_proj.weight[:64] = 0
    found = lh.score_heads(model, lh.token_maps({"m": pairs}), progress=False)["token_map"]
    assert found[SUCCESSOR] == 1
    assert found["L1H0"] == 0  # All its logits are 0, the first of them would be the target's.


def test_maps_are_taken_apart_into_rankings(gqa: Any) -> None:
    maps = {"one": [(3, 4), (4, 5), (5, 6)], "other": [(7, 8), (8, 9), (9, 7)]}
    both = lh.score_heads(gqa, lh.token_maps(maps), progress=False)["token_map"]
    found = lh.ranking.by_map(both)
    assert list(found) == ["one", "other"]
    for name, pairs in maps.items():
        alone = lh.score_heads(gqa, lh.token_maps({name: pairs}), progress=False)["token_map"]
        torch.testing.assert_close(found[name].values, alone.values)
        assert (found[name].method, found[name].trial_ids) == (name, (name,))
        assert found[name].top(3) == alone.top(3)


def test_folded_weights_are_refused() -> None:
    model = zoo.bridge("llama-gqa")
    model.enable_compatibility_mode(disable_warnings=True)
    with pytest.raises(ValueError, match="has processed weights"):
        lh.score_heads(model, lh.token_maps({"x": [(3, 4), (4, 5)]}))
