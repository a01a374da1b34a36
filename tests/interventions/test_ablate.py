"""Every kind of ablation equals a plain model with hand-written hooks, however the forward is run."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.interventions import kinds
from lens_heads.interventions.ablate import KINDS, ablate
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.forward import Cache, advance, left_pad, prefill
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks, hooked
from tests import handmade, planted, zoo
from tests.conftest import random_trial, tiny

HEADS = [(0, 1), (1, 2), (2, 0), (2, 3)]
"""Sliding and full layers, and two heads of one layer."""
N = 24
"""Four times the sliding window."""
SHORT = 15
"""The other trial of `resample` ends before the prompts do."""


@dataclass(frozen=True)
class Case:
    """One call of `ablate`."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self.kind + "".join(f"-{value}" for value in self.options.values())

    def reference(self, model: Any) -> Any:
        return _references(model.cfg.model_name).get(self.kind)

    def ablated(self, model: Any, heads: Any = HEADS) -> Any:
        return ablate(model, heads, kind=self.kind, reference=self.reference(model), **self.options)

    def by_hand(self, hf: Any, heads: Any = HEADS) -> Any:
        table = _tables(hf).get(self.kind)
        return handmade.by_hand(hf, heads, self.kind, table, **(self.shown or self.options))


CASES = [
    Case("zero"),
    Case("mean"),
    Case("resample"),
    Case("scale", {"factor": -1.5}),
    Case("query_zero"),
    Case("query_mean"),
    Case("uniform"),
    Case("streaming", {"sink": 2, "recent": 3}),
    Case("streaming", {}, shown={"sink": 4, "recent": 64}),
    Case("identity", {"u": 0.7}),
    Case("identity", {}, shown={"u": 1.0}),
    Case("add", {"factor": -2.0}, shown={"factor": -2.0, "span": None}),
    Case("add", {"factor": 1.0, "span": (5, 9)}),
    Case("mix", {}, shown={"a": 1.0, "span": None}),
    Case("mix", {"a": 0.6, "span": (4, 30)}),
    Case("emphasise", {"span": (2, 7), "factor": 30.0}),
    Case("chunks", {"n_chunks": 3, "chunk_size": 3}),
    Case("chunks", {"n_chunks": 4, "chunk_size": 2}),
]
POSITIONAL = [
    case
    for case in CASES
    if case.kind in ("resample", "uniform", "streaming", "identity", "emphasise", "chunks") and case.options
] + [case for case in CASES if case.kind in ("resample", "uniform")]
every_kind = pytest.mark.parametrize("case", CASES, ids=str)
positional = pytest.mark.parametrize("case", POSITIONAL, ids=str)


def _random(*shape: int, seed: int) -> Tensor:
    return 0.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _tables(hf: Any) -> dict[str, Any]:
    """A reference that is different at every layer, position, head and component."""
    e, heads = handmade.d_head(hf), hf.config.num_attention_heads
    return {
        "mean": _random(zoo.LAYERS, heads, e, seed=1),
        "query_mean": _random(zoo.LAYERS, heads, e, seed=2),
        "resample": _random(zoo.LAYERS, SHORT, heads, e, seed=3),
    } | dict.fromkeys(
        ("add", "mix"), (_random(zoo.LAYERS, heads, e, seed=4), _random(zoo.LAYERS, heads, seed=5).sigmoid())
    )


@cache
def _references(arch: str) -> dict[str, Any]:
    tables = _tables(plain(arch))
    means = MeanActivations(tables["mean"], tables["query_mean"], ("made-up",))
    vectors = dict.fromkeys(("add", "mix"), HeadVectors(*tables["add"]))
    return {"mean": means, "query_mean": means, "resample": TrialActivations(tables["resample"], "made-up"), **vectors}


@cache
def plain(arch: str) -> Any:
    return zoo.hf_model(arch)


@pytest.fixture
def hf(arch: str) -> Any:
    return plain(arch)


def prompt(n: int = N, seed: int = 0) -> Tensor:
    return random_trial(seed, n, needle=(1, 4)).tokens


@torch.no_grad()
def whole(model: Any, tokens: Tensor) -> Tensor:
    return model(tokens[None])[0]


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=3e-5, rtol=3e-4)


# Against plain forwards


@every_kind
def test_every_kind_equals_hand_written_hooks(case: Case, model: Any, hf: Any) -> None:
    with case.by_hand(hf):
        expected = handmade.logits(hf, prompt())
    with case.ablated(model):
        got = whole(model, prompt())
    same(got, expected)
    untouched = handmade.logits(hf, prompt())
    if case.shown != {"sink": 4, "recent": 64}:  # Sink and recent keys are all there are in a prompt this short.
        assert not torch.allclose(untouched, expected, atol=1e-2)
    same(whole(model, prompt()), untouched)


def test_a_window_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: uniform weights that forget the sliding window are caught."""

    def forgetful(x: Tensor, at: Any) -> Tensor:
        without = replace(at.shape, layers=tuple(replace(layer, window=None) for layer in at.shape.layers))
        seen = at.now.visible(x, without, at.layer)[:, None].to(x)
        return (seen / seen.sum(-1, keepdim=True)).expand_as(x)

    hf, model, case = plain("gemma3"), tiny("gemma3"), Case("uniform")
    with case.by_hand(hf, [(0, 1)]):
        expected = handmade.logits(hf, prompt())
    monkeypatch.setitem(kinds.KINDS, "uniform", kinds.Kind("hook_pattern", forgetful))
    with case.ablated(model, [(0, 1)]):
        got = whole(model, prompt())
    same(got[: zoo.WINDOW], expected[: zoo.WINDOW])
    with pytest.raises(AssertionError):
        same(got, expected)


def test_zeroed_queries_attend_uniformly_where_norms_are_per_head(arch: str, model: Any) -> None:
    """OLMo norms all heads' queries together, so there a zero in one head changes the others."""
    with ablate(model, HEADS, kind="uniform"):
        uniform = whole(model, prompt())
    with ablate(model, HEADS, kind="query_zero"):
        zeroed = whole(model, prompt())
    if not arch.startswith("olmo"):
        same(zeroed, uniform)
        return
    assert not torch.allclose(zeroed, uniform, atol=1e-2)
    layer = [(1, head) for head in range(4)]
    with ablate(model, layer, kind="uniform"):
        uniform = whole(model, prompt())
    with ablate(model, layer, kind="query_zero"):
        same(whole(model, prompt()), uniform)


@pytest.mark.parametrize("case", [case for case in CASES if KINDS[case.kind].hook == "hook_pattern"], ids=str)
def test_patterns_stay_distributions_over_visible_keys(case: Case, arch: str, model: Any, hf: Any) -> None:
    seen: dict[int, Tensor] = {}
    look = [(f"blocks.{i}.attn.hook_pattern", lambda x, hook, i=i: seen.update({i: x[0]})) for i in range(zoo.LAYERS)]
    with case.ablated(model), hooked(model, look):
        whole(model, prompt())
    for layer, head in HEADS:
        pattern, width = seen[layer][head], handmade.window(hf, layer) or N
        torch.testing.assert_close(pattern.sum(-1), torch.ones(N))
        rows, keys = torch.arange(N)[:, None], torch.arange(N)
        assert pattern[(keys > rows) | (keys <= rows - width)].abs().max() == 0


# However the forward is run


def in_chunks(model: Any, tokens: Tensor, chunk: int, cache: Any) -> Tensor:
    parts = [
        advance(model, tokens[None, start : start + chunk], cache, torch.zeros(1, dtype=torch.long), logits=chunk)
        for start in range(0, len(tokens), chunk)
    ]
    return torch.cat(parts, 1)[0]


@every_kind
@torch.no_grad()
def test_a_cache_changes_nothing(case: Case, model: Any, hf: Any) -> None:
    with case.by_hand(hf):
        expected = handmade.logits(hf, prompt())
    with case.ablated(model):
        cache = Cache(model, 1)
        same(in_chunks(model, prompt(), 5, cache), expected)
        cache.crop(12)
        same(in_chunks(model, prompt()[12:], 1, cache), expected[12:])  # Decoding anew after a step back.


@positional
@torch.no_grad()
def test_a_cache_that_drops_what_left_the_window_changes_nothing(case: Case, model: Any, hf: Any) -> None:
    """Hugging Face's own cache keeps the last keys only on sliding layers."""
    from transformers import DynamicCache

    with case.by_hand(hf):
        expected = handmade.logits(hf, prompt())
    with case.ablated(model):
        store = DynamicCache(config=model.original_model.config)
        parts = [model(prompt()[None, at], past_key_values=store) for at in (slice(0, 9), slice(9, 20))]
        parts += [model(prompt()[None, i : i + 1], past_key_values=store) for i in range(20, N)]
    same(torch.cat(parts, 1)[0], expected)


@every_kind
@torch.no_grad()
def test_generating_equals_a_full_forward_for_every_token(case: Case, model: Any, hf: Any) -> None:
    tokens, expected = prompt(n=12), []
    with case.by_hand(hf):
        for _ in range(4):
            expected.append(handmade.logits(hf, tokens)[-1])
            tokens = torch.cat([tokens, expected[-1].argmax()[None]])
    got: list[Tensor] = []
    look = model.original_model.register_forward_hook(lambda module, args, out: got.append(out.logits[0, -1].clone()))
    try:
        with case.ablated(model):
            made = model.generate(
                prompt(n=12)[None], max_new_tokens=4, do_sample=False, stop_at_eos=False, verbose=False
            )
    finally:
        look.remove()
    assert made[0].tolist() == tokens.tolist()
    same(torch.stack(got), torch.stack(expected))


@every_kind
@torch.no_grad()
def test_a_left_padded_batch_equals_one_by_one(case: Case, model: Any, hf: Any) -> None:
    rows = [prompt(N, 0), prompt(9, 1), prompt(17, 2)]
    with case.by_hand(hf):
        expected = [handmade.logits(hf, row) for row in rows]
    tokens, pads = left_pad(rows, "cpu")
    with case.ablated(model):
        cache = Cache(model, len(rows))
        prefill(model, tokens[:, :-4], cache, pads, chunk=7)
        parts = [advance(model, tokens[:, N - 4 + i : N - 3 + i], cache, pads) for i in range(4)]
    got = torch.cat(parts, 1)
    for i in range(len(rows)):
        same(got[i], expected[i][-4:])


# Composition


@every_kind
def test_two_contexts_equal_one(case: Case, model: Any) -> None:
    with case.ablated(model):
        together = whole(model, prompt())
    with case.ablated(model, HEADS[:3]), case.ablated(model, HEADS[3:]):
        nested = whole(model, prompt())
    assert torch.equal(nested, together)


def test_the_innermost_acts_last(model: Any) -> None:
    mean, head = Case("mean").reference(model), (1, 2)
    with ablate(model, head_of(head), kind="zero"):
        zero = whole(model, prompt())
    with ablate(model, head_of(head), kind="mean", reference=mean):
        meaned = whole(model, prompt())
        with ablate(model, head_of(head), kind="zero"):
            assert torch.equal(whole(model, prompt()), zero)
        assert torch.equal(whole(model, prompt()), meaned)
    with ablate(model, head_of(head), kind="zero"), ablate(model, head_of(head), kind="mean", reference=mean):
        assert torch.equal(whole(model, prompt()), meaned)
    with ablate(model, head_of(head), kind="scale", factor=0.5), ablate(model, head_of(head), kind="scale", factor=0.0):
        same(whole(model, prompt()), zero)


def head_of(pair: tuple[int, int]) -> str:
    return f"L{pair[0]}H{pair[1]}"


@pytest.mark.parametrize("heads", ["L0H1,L2H3", [lh.Head(0, 1), "2-3"], [(2, 3), (0, 1), (2, 3)]], ids=str)
def test_heads_in_any_spelling(gqa: Any, heads: Any) -> None:
    with ablate(gqa, [(0, 1), (2, 3)], kind="scale", factor=2):
        expected = whole(gqa, prompt())
    with ablate(gqa, heads, kind="scale", factor=2):
        assert torch.equal(whole(gqa, prompt()), expected)


@every_kind
def test_no_heads_changes_nothing_at_all(case: Case, model: Any) -> None:
    before = whole(model, prompt())
    with case.ablated(model, []):
        assert torch.equal(whole(model, prompt()), before)


def test_mean_at_query_and_at_pattern_compose(model: Any, hf: Any) -> None:
    """Kinds at different places do not disturb each other."""
    with (
        handmade.by_hand(hf, [(0, 0)], "query_mean", _tables(hf)["query_mean"]),
        handmade.by_hand(hf, [(0, 1)], "uniform"),
    ):
        expected = handmade.logits(hf, prompt())
    mean = Case("query_mean").reference(model)
    with ablate(model, "L0H0", kind="query_mean", reference=mean), ablate(model, "L0H1", kind="uniform"):
        same(whole(model, prompt()), expected)


# Nothing is left behind


def traces(model: Any) -> tuple[int, int]:
    """Forward hooks and pre-hooks of every module of the model and of what it wraps."""
    modules = {id(m): m for m in [*model.modules(), *model.original_model.modules()]}.values()
    return sum(len(m._forward_hooks) for m in modules), sum(len(m._forward_pre_hooks) for m in modules)


@every_kind
def test_nothing_is_left_behind(case: Case, model: Any) -> None:
    clean = whole(model, prompt())  # TransformerLens attaches some of its own in the first forward.
    before = traces(model)
    with case.ablated(model):
        assert has_hooks(model)
        assert traces(model)[1] > before[1]
        whole(model, prompt())
    assert not has_hooks(model)
    assert traces(model) == before
    with pytest.raises(RuntimeError, match="in the middle"), case.ablated(model):
        raise RuntimeError("in the middle")
    assert not has_hooks(model)
    assert traces(model) == before
    assert torch.equal(whole(model, prompt()), clean)


def test_nothing_is_left_behind_by_an_error_inside_a_forward(gqa: Any) -> None:
    whole(gqa, prompt())
    before = traces(gqa)

    def fail(x: Tensor, hook: Any) -> None:
        raise RuntimeError("in a layer")

    with (
        pytest.raises(RuntimeError, match="in a layer"),
        ablate(gqa, HEADS, kind="uniform"),
        ablate(gqa, HEADS, kind="zero"),
        hooked(gqa, [("blocks.1.hook_resid_pre", fail)]),
    ):
        whole(gqa, prompt())
    assert not has_hooks(gqa)
    assert traces(gqa) == before


def test_the_users_own_hook_survives(gqa: Any) -> None:
    """Before, inside and after the block, also when it sits on the very hook that is ablated."""
    seen: list[Tensor] = []
    point = gqa.hook_dict["blocks.1.attn.hook_z"]
    point.add_hook(lambda x, hook: seen.append(x.detach().clone()))
    try:
        whole(gqa, prompt())
        with ablate(gqa, "L1H2", kind="zero"):
            whole(gqa, prompt())
        assert len(point.fwd_hooks) == 1
        whole(gqa, prompt())
    finally:
        point.remove_hooks("fwd")
    assert len(seen) == 3
    torch.testing.assert_close(seen[0], seen[2], atol=0, rtol=0)
    torch.testing.assert_close(seen[1], seen[0], atol=0, rtol=0)  # It was there first, so it sees z as it was.
    assert not has_hooks(gqa)


def test_an_edit_leaves_its_input_alone(gqa: Any) -> None:
    """A tensor another hook holds is not written to."""
    held: list[Tensor] = []
    with (
        hooked(gqa, [("blocks.0.attn.hook_pattern", lambda x, hook: held.append(x))]),
        ablate(gqa, "L0H1", kind="uniform"),
    ):
        whole(gqa, prompt())
    clean: list[Tensor] = []
    with hooked(gqa, [("blocks.0.attn.hook_pattern", lambda x, hook: clean.append(x))]):
        whole(gqa, prompt())
    assert torch.equal(held[0], clean[0])


# What is refused


@pytest.mark.parametrize("head", ["L3H0", "L0H4", (7, 7)])
def test_a_head_that_does_not_exist(model: Any, head: Any) -> None:
    name = head_geometry(model).name
    expected = rf"head {lh.Head.parse(head)} does not exist: {name} has layers 0-2 and heads 0-3"
    with pytest.raises(ValueError, match=expected), ablate(model, ["L0H0", head], kind="zero"):
        pass
    assert not has_hooks(model)


WRONG = {
    "unknown kind": ({"kind": "erase"}, r"unknown kind of ablation 'erase': the kinds are zero, mean, .*identity"),
    "unknown option": (
        {"kind": "streaming", "factor": 3},
        r"kind='streaming' has no option 'factor': its options are sink, recent",
    ),
    "option where there is none": (
        {"kind": "query_zero", "factor": 2.0},
        r"kind='query_zero' has no option 'factor': its options are none",
    ),
    "missing option": ({"kind": "scale"}, r"kind='scale' needs factor=\.\.\., e\.g\."),
    "missing mean": ({"kind": "mean"}, r"kind='mean' needs a reference, none was given: .*mean_activations\("),
    "the default kind needs one too": ({}, r"kind='mean' needs a reference, none was given"),
    "missing query mean": ({"kind": "query_mean"}, r"kind='query_mean' needs a reference, none was given"),
    "missing trial": (
        {"kind": "resample"},
        r"kind='resample' needs a reference, none was given: .*trial_activations\(",
    ),
    "wrong type of reference": (
        {"kind": "resample", "reference": MeanActivations(torch.zeros(3, 4, 8), torch.zeros(3, 4, 8), ())},
        r"kind='resample' needs a reference, got MeanActivations",
    ),
    "a tensor as reference": ({"kind": "mean", "reference": torch.zeros(3, 4, 8)}, r"needs a reference, got Tensor"),
    "means of another model": (
        {
            "kind": "mean",
            "reference": MeanActivations(torch.zeros(3, 5, 8), torch.zeros(3, 5, 8), (), {"model": "other-5"}),
        },
        r"shape \(3, 5, 8\) \(other-5\), but llama-gqa needs \(3, 4, 8\)",
    ),
    "means of another width": (
        {"kind": "query_mean", "reference": MeanActivations(torch.zeros(3, 4, 16), torch.zeros(3, 4, 16), ())},
        r"llama-gqa needs \(3, 4, 8\)",
    ),
    "a trial of another model": (
        {"kind": "resample", "reference": TrialActivations(torch.zeros(3, 9, 5, 8), "t7")},
        r"the reference of trial t7 is from another model",
    ),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
def test_what_is_refused_names_the_remedy(gqa: Any, call: Any) -> None:
    arguments, message = call
    before = traces(gqa)
    with pytest.raises(ValueError, match=message), ablate(gqa, "L0H0", **arguments):
        pass
    assert traces(gqa) == before
    assert not has_hooks(gqa)


def test_a_second_bridge_over_the_same_model_is_ablated_too() -> None:
    """Its attention wraps the first bridge's, which would run past the second one's hooks."""
    shared = copy.deepcopy(planted.hf_model())
    planted.model(shared)
    second = planted.model(shared)
    trials = planted.trials(2)
    before = lh.evaluate(second, trials, generate=False, progress=False).mean("logprob")
    with lh.ablate(second, [planted.COPIER, planted.WRITER], kind="zero"):
        after = lh.evaluate(second, trials, generate=False, progress=False).mean("logprob")
    assert after < before - 1


def test_a_model_of_another_library_is_refused_with_the_remedy(gqa: Any) -> None:
    for wrong in (gqa.original_model, gqa.tokenizer, "gpt2"):
        said = "is not a TransformerLens model: load it with lens_heads.load_model"
        with pytest.raises(TypeError, match=said), lh.ablate(wrong, ["L0H0"], kind="zero"):
            pass
        with pytest.raises(TypeError, match="is not a TransformerLens model"):
            lh.knockout_heads(wrong, ["The"], kind="uniform")
