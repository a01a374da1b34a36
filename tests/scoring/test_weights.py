"""Scores of weights: each equals a plain loop on every attention variant; maps that do not fit are named."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

import lens_heads as lh
from lens_heads.tasks.successors import CYCLES, SEQUENCES, successor_pairs
from tests import zoo
from tests.conftest import tiny
from tests.planted_tokens import SUCCESSOR, successor_model


def by_loop(arch: str, pairs: list[tuple[int, int]], lowest: bool) -> torch.Tensor:
    hf = zoo.hf_model(arch)
    inner = hf.transformer if arch == "gpt2" else hf.model
    layers = inner.h if arch == "gpt2" else inner.layers
    known = sorted({token for pair in pairs for token in pair})
    embed = inner.wte if arch == "gpt2" else inner.embed_tokens
    out = torch.zeros(3, 4)
    for layer in range(1, 3):
        attention = layers[layer].attn if arch == "gpt2" else layers[layer].self_attn
        for head in range(4):
            hits = 0
            for token, image in pairs:
                with torch.no_grad():
                    x = layers[0].mlp(embed(torch.tensor([[token]])))[0, 0]
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
def test_token_map_matches_a_loop_written_from_the_formula(arch: str, lowest: bool) -> None:
    model, pairs = tiny(arch), [(token, token + 2) for token in range(5, 11)]
    probe = lh.probes.weights({"mine": lh.probes.TokenMap(tuple(pairs), lowest)})
    found = lh.score_heads(model, probe, ["token_map"], progress=False)["token_map"]
    torch.testing.assert_close(found.values, by_loop(arch, pairs, lowest))
    assert found.meta["blind_layers"] == {"token_map": [0]}
    assert found.trial_ids == ("mine",)


def test_words_are_single_tokens_after_a_space_and_others_are_left_out() -> None:
    class Words:
        """A tokenizer that knows some words."""

        known: ClassVar = {" one": [7], " two": [8], " three": [9, 4]}

        def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
            return type("Encoding", (), {"input_ids": self.known.get(text, [1])})

        def decode(self, ids: list[int]) -> str:
            return "ab"

    (found,) = lh.probes.weights({"m": [("one", " two"), ("two", "three"), (" two", "one")]}).encode(Words(), _shape())
    assert found.tokens.tolist() == [7, 8]
    assert [found.sources.tolist(), found.targets.tolist()] == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match=r"map 'm': 1 of 2 pairs are single tokens"):
        lh.probes.weights({"m": [("one", "two"), ("two", "three")]}).encode(Words(), _shape())


def _shape() -> Any:
    return lh.geometry(tiny("llama-gqa"))


def test_successions() -> None:
    pairs = successor_pairs()
    assert {("9", "10"), ("Sunday", "Monday"), ("December", "January"), ("Y", "Z"), ("ninth", "tenth")} <= set(pairs)
    assert ("Z", "A") not in pairs
    assert len(pairs) == sum(map(len, SEQUENCES.values())) - len(SEQUENCES) + len(CYCLES)
    assert len(dict(pairs)) == len(pairs), "no word has two successors"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: lh.probes.weights({}), "there are no maps"),
        (lambda m: lh.probes.weights([("a", "b")]), "maps must be a mapping .* not a list"),
        (lambda m: lh.probes.weights({"x": ["ab", "cd"]}), "map 'x': 'ab' is not a pair"),
        (lambda m: lh.probes.weights({"x": [(1, 2, 3)]}), r"map 'x': \(1, 2, 3\) is not a pair"),
        (lambda m: lh.score_heads(m, lh.probes.weights({"x": [(1, 2)]})), "map 'x': 1 of 1 pairs"),
        (lambda m: lh.score_heads(m, lh.probes.weights({"x": [(1, 999), (2, 3)]})), "map 'x': token id 999"),
        (lambda m: lh.score_heads(m, lh.probes.weights({"x": [(3, 4), (4, 5)]}), ["sink"]), "sink reads plain texts"),
    ],
)
def test_what_does_not_fit_is_named(gqa: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(gqa)


def test_a_mapping_is_a_map_and_a_head_without_an_ov_circuit_knows_none() -> None:
    model, pairs = successor_model([(3, 4), (5, 3)]), {5: 3, 3: 4}
    with torch.no_grad():
        model.original_model.transformer.h[1].attn.c_proj.weight[:64] = 0
    found = lh.score_heads(model, lh.probes.weights({"m": pairs}), progress=False)["token_map"]
    assert found[SUCCESSOR] == 1
    assert found["L1H0"] == 0  # All its logits are 0, the first of them would be the target's.


def test_maps_are_taken_apart_into_rankings(gqa: Any) -> None:
    maps = {"one": [(3, 4), (4, 5), (5, 6)], "other": [(7, 8), (8, 9), (9, 7)]}
    both = lh.score_heads(gqa, lh.probes.weights(maps), progress=False)["token_map"]
    found = lh.probes.by_map(both)
    assert list(found) == ["one", "other"]
    for name, pairs in maps.items():
        alone = lh.score_heads(gqa, lh.probes.weights({name: pairs}), progress=False)["token_map"]
        torch.testing.assert_close(found[name].values, alone.values)
        assert (found[name].method, found[name].trial_ids) == (name, (name,))
        assert found[name].top(3) == alone.top(3)


def test_folded_weights_are_refused() -> None:
    model = zoo.bridge("llama-gqa")
    model.enable_compatibility_mode(disable_warnings=True)
    with pytest.raises(ValueError, match="has processed weights"):
        lh.score_heads(model, lh.probes.weights({"x": [(3, 4), (4, 5)]}))
