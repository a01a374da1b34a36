"""Planted heads do what their roles say, by ablation and by patching, on every kind of model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.made_on import shared
from lens_heads.model.geometry import head_geometry
from lens_heads.sanity.planted import EFFECTS, Planted
from lens_heads.trials.digests import made_on

SIZES: dict[str, dict[str, Any]] = {
    "MHA": {},
    "GQA": {"layers": 5, "kv_heads": 2},
    "window": {"window": 64},
    "post-norm": {"layers": 9, "post_norm": True},
    "post-norm MQA with windows": {"layers": 10, "kv_heads": 1, "post_norm": True, "window": 64},
    "many": {"layers": 6, "heads": 8, "copiers": 3, "decoys": 4, "backups": 2, "chains": 2},
}


@cache
def made(name: str, seed: int = 1) -> Planted:
    return lh.planted_model(seed=seed, **SIZES[name])


def cost(found: Planted, heads: list[lh.Head]) -> float:
    """What ablating heads costs the answer, in nats."""
    with lh.ablate(found.model, heads, kind="zero"):
        now = lh.evaluate(found.model, found.trials(4), generate=False, batch_size=4, progress=False).mean("logprob")
    return base(found) - now


@cache
def base(found: Planted) -> float:
    return lh.evaluate(found.model, found.trials(4), generate=False, batch_size=4, progress=False).mean("logprob")


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_every_head_does_what_its_role_says(name: str) -> None:
    found = made(name)
    trials = found.trials(8)
    assert lh.evaluate(found.model, trials, generate=False, batch_size=8, progress=False).mean("greedy_match") == 1
    lost_by = {head: cost(found, [head]) for head, role in found.roles.items() if role != "noise"}
    for head, lost in lost_by.items():
        role = found.roles[head]
        if role in ("copier", "writer", "reader", "feeder"):
            assert lost > 0.15, (head, role)
        elif role == "suppressor":
            assert lost < -0.05
        elif role in ("decoy", "backup"):
            assert abs(lost) < 0.05, (head, role)
        elif role == "main":
            assert lost < 0.1, "its backup takes over"
    redundant = found.of("main", "backup")
    assert cost(found, redundant) > max(lost_by[head] for head in redundant) + 0.3
    assert abs(cost(found, found.of("noise")[:4])) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MHA", "GQA", "many"])
def test_exact_patching_ranks_the_heads_that_matter_first(name: str) -> None:
    found = made(name)
    pairs = [
        replace(both[0], corrupt=both[1].tokens)
        for both in zip(found.trials(4), found.trials(4, corrupt=True), strict=True)
    ]
    scores = lh.patch_heads(found.model, pairs, positions="all", progress=False)
    wanted = [head for head in found.matters if found.roles[head] != "suppressor"]
    silent = [head for head, role in found.roles.items() if EFFECTS[role] == "none" or role == "feeder"]
    assert min(scores[head] for head in wanted if head not in silent) > max(scores[head] for head in silent)
    for head in found.of("decoy"):
        assert scores[head] == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_scores_are_judged_by_the_truth() -> None:
    found = made("many")
    trials = found.trials(16, length=60)
    scores = lh.score_heads(found.model, trials, ["locos", "attention_spatial"], teacher_forced=True, progress=False)
    writing = found.of("copier", "writer", "main", "reader")
    locos, looks = (found.quality(scores[name], truth=writing) for name in ("locos", "attention_spatial"))
    assert locos["precision"] == 1
    assert locos["auroc"] == locos["average_precision"] == 1
    assert looks["precision"] < 1, "decoys look, too"
    aurocs = []
    for seed in range(40):
        values = torch.rand(1, 6, 8, generator=torch.Generator().manual_seed(seed))
        aurocs.append(found.quality(lh.HeadScores.from_trials("random", values, ["a"]))["auroc"])
    assert sum(aurocs) / 40 == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_the_model_is_as_asked_and_as_its_seed_says() -> None:
    shape = head_geometry(made("GQA").model)
    assert (shape.n_layers, shape.n_heads, shape.n_kv_heads) == (5, 4, 2)
    assert set(head_geometry(made("window").model).windows) == {64}
    again, other = lh.planted_model(seed=1), lh.planted_model(seed=2)
    assert again.roles == made("MHA").roles != other.roles
    torch.testing.assert_close(again.model.W_U, made("MHA").model.W_U)
    frame = made("many").frame
    assert dict(frame["role"].value_counts())["decoy"] == 4
    assert set(frame["effect"]) == {"direct", "indirect", "redundant", "none"}
    clean, corrupt = (made("MHA").trials(3, seed=5, corrupt=corrupt) for corrupt in (False, True))
    for a, b in zip(clean, corrupt, strict=True):
        assert a.needle is not None
        start, end = a.needle
        assert torch.equal(a.tokens[:start], b.tokens[:start])
        assert torch.equal(a.tokens[end:], b.tokens[end:])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lh.planted_model(heads=4, kv_heads=3), "heads=4 is no multiple of kv_heads=3"),
        (lambda: lh.planted_model(layers=1, heads=4), "8 planted heads need a place each, but the model has 4"),
        (lambda: lh.planted_model(layers=1, heads=8), "main and backup need two layers, but only layer 0"),
        (lambda: lh.planted_model(layers=4, post_norm=True), "8 planted heads need a place each, but the model has 4"),
        (lambda: lh.planted_model(copiers=-1), "copiers=-1"),
        (lambda: made("MHA").trials(2, length=4), "length=4"),
        (lambda: made("MHA").of("mover"), "unknown role 'mover'"),
        (
            lambda: made("MHA").quality(lh.HeadScores.from_trials("m", torch.rand(1, 2, 4), ["a"])),
            "scores of 2 layers x 4 heads",
        ),
        (
            lambda: made("MHA").quality(lh.HeadScores.from_trials("m", torch.rand(1, 4, 4), ["a"]), truth=[]),
            "the truth has 0 of 16 heads",
        ),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_a_window_that_only_the_configuration_names_bounds_attention_also_when_it_is_made_even() -> None:
    found = lh.planted_model(window=16)
    assert head_geometry(found.model).windows == (16,) * 4
    (trial,) = found.trials(1)
    seen: dict[str, torch.Tensor] = {}

    def keep(pattern: torch.Tensor, hook: Any) -> None:
        seen["pattern"] = pattern[0].clone()

    far = torch.ones(40, 40).tril(-16).bool()
    for kind in (None, "uniform"):
        with lh.ablate(found.model, ["L1H2"] if kind else [], kind=kind or "zero"), torch.no_grad():
            found.model.run_with_hooks(trial.tokens[None], fwd_hooks=[("blocks.1.attn.hook_pattern", keep)])
        assert float(seen["pattern"][:, far].abs().max()) == 0
    torch.testing.assert_close(seen["pattern"][2, 39, 24:], torch.full((16,), 1 / 16))


@pytest.mark.slow
def test_what_is_planted_goes_the_way_of_any_claim() -> None:
    """Chosen on the trials of one seed and judged on those of another, with random heads and without the needle."""
    made = lh.planted_model(backups=0)
    select, test = made.trials(16), made.trials(16, seed=1)
    assert not shared(made_on(select), made_on(test))
    scores = lh.score_heads(made.model, select, ["locos"], teacher_forced=True, progress=False)
    curve = lh.ablation_curve(
        made.model,
        {"planted": test},
        scores,
        ks=(3,),
        reference=lh.mean_activations(made.model, select, progress=False),
        controls=lh.Controls(("random", "random_like", "no_needle"), draws=40),
        generate=False,
        progress=False,
    )
    assert set(scores["locos"].top(3)) == set(made.of("copier", "writer", "reader"))
    assert lh.verdicts.breaks(curve).word == "holds"
    with pytest.raises(ValueError, match="was made on 16 of the trials"):
        lh.ablation_curve(made.model, {"planted": select}, scores, ks=(3,), kind="zero", generate=False, progress=False)
