"""Recovery against full forwards of the plain model, its statistics, its controls, and what it refuses."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.evidence.recovery import RECOVERY_CONTROLS
from lens_heads.heads import sets as controls
from lens_heads.model.hooks import has_hooks
from lens_heads.stats import crossed_interval, ratio_interval
from lens_heads.trials.encoded import EncodedTrial
from tests import handmade, planted, zoo
from tests.conftest import random_trial, tiny
from tests.ranking.causal import byhand

SOURCES = [planted.COPIER, planted.WRITER]


def planted_trials(n: int) -> list[EncodedTrial]:
    """Trials whose answers are B, C, ...: "A" is an article, which every judge leaves out."""
    return planted.trials(n + 1)[1:]


def summed_logprob(hf: Any, trial: EncodedTrial) -> float:
    return handmade.gold_logprob(hf, trial.tokens, trial.answer_tokens) * len(trial.answer_tokens)


def patched_by_hand(hf: Any, trial: EncodedTrial, ablated: list[lh.Head], patched: list[lh.Head]) -> float:
    """Summed gold log-probability with heads zeroed everywhere and others' clean z put in at the answer rows."""
    tokens = torch.cat([trial.tokens, trial.answer_tokens])
    clean, rows = byhand.read_z(hf, tokens), range(len(trial) - 1, len(tokens) - 1)
    with ExitStack() as stack:
        stack.enter_context(handmade.by_hand(hf, [(h.layer, h.head) for h in ablated], "zero"))
        for layer, attention in enumerate(handmade.attentions(hf)):

            def put(module: Any, args: Any, layer: int = layer) -> Any:
                z = args[0].clone()
                for head in (h for h in patched if h.layer == layer):
                    at = byhand.columns(hf, head.head)
                    for row in (r for r in rows if r < z.shape[1]):
                        z[0, row, at] = clean[layer][row, at]
                return (z, *args[1:])

            stack.callback(handmade.out_projection(attention).register_forward_pre_hook(put).remove)
        return summed_logprob(hf, trial)


def recover(model: Any, ablated: Any, patched: Any, trials: Any, **options: Any) -> lh.Recovery:
    return lh.recovery(
        model,
        trials,
        ablated,
        patched,
        **{"kind": "zero", "progress": False, "controls": lh.Controls(RECOVERY_CONTROLS, 2), **options},
    )


def test_every_number_equals_full_forwards_of_the_plain_model(arch: str, model: Any) -> None:
    hf, trials = zoo.hf_model(arch), [random_trial(0), random_trial(1)]
    ablated, patched = [lh.Head(0, 1), lh.Head(1, 2), lh.Head(2, 0)], [lh.Head(1, 2), lh.Head(2, 3)]
    found = recover(model, ablated, patched, trials, flipped=False, controls=("same_layer",)).per_trial
    shifted = controls.shifted(patched, 4, [*ablated, *patched])
    sets = {
        ("patched", False): (ablated, patched),
        ("same_layer", False): (ablated, shifted),
        ("same_layer", True): (shifted, shifted),
    }
    assert len(found) == len(sets) * len(trials)
    for row in found.itertuples():
        trial = next(t for t in trials if t.id == row.trial)
        broken, mended = sets[row.set, row.fair]
        assert row.lp_clean == pytest.approx(summed_logprob(hf, trial), abs=1e-4)
        assert row.lp_ablated == pytest.approx(patched_by_hand(hf, trial, broken, []), abs=1e-4)
        assert row.lp_patched == pytest.approx(patched_by_hand(hf, trial, broken, mended), abs=1e-4)
        assert row.recovery == pytest.approx((row.lp_patched - row.lp_ablated) / (row.lp_clean - row.lp_ablated))


@pytest.mark.slow
def test_the_planted_heads_recover_and_controls_do_not() -> None:
    model, trials = planted.model(), planted_trials(7)
    made = lh.patch_heads(model, trials, progress=False)
    with pytest.raises(ValueError, match="ranking 'patching_answer' was made on 7 of the trials, needles or groups"):
        recover(model, SOURCES, SOURCES, trials, ranking=made)
    scores = lh.HeadScores.from_trials("patching_answer", made.per_trial, [f"other-{i}" for i in range(7)])
    found = recover(model, SOURCES, SOURCES, trials, ranking=scores, max_new_tokens=2)
    frame = found.frame.set_index(["set", "fair"])
    assert found.examples == {"all": 7, "used": 7, "right_clean": 7, "right_ablated": 0}
    assert frame.loc[("patched", False), "recovery"] == pytest.approx(1, abs=0.02)
    assert abs(frame.loc[("same_layer", False), "recovery"]) < 0.1
    everyone = [lh.Head(layer, head) for layer in range(2) for head in range(4)]
    drawn = lh.Controls(RECOVERY_CONTROLS, 2)
    for name, sets in (("random", drawn.random(everyone, 2)), ("random_like", drawn.random_like(SOURCES, everyone))):
        own = found.per_trial[(found.per_trial["set"] == name) & ~found.per_trial["fair"]]
        for draw, mean in own.groupby("draw")["recovery"].mean().items():
            assert abs(mean) < 0.1 or set(sets[draw]) & set(SOURCES), "only the heads themselves restore anything"
    # The lowest head, which writes against the answer, costs less than nothing when it is ablated itself.
    assert frame.loc[("bottom", True), "cost"] < 0
    assert frame.loc[("random", True), "undefined"] == 1
    assert frame.loc[("patched", False), "undefined"] == 0


@pytest.mark.slow
def test_only_examples_that_flip_count() -> None:
    model, trials = planted.model(), planted_trials(4)
    wrong = [EncodedTrial(t.tokens, t.needle, "Z", t.answer_tokens, f"wrong-{t.id}") for t in trials[:2]]
    found = recover(model, SOURCES, SOURCES, [*trials, *wrong], controls=(), max_new_tokens=2)
    assert found.examples == {"all": 6, "used": 4, "right_clean": 4, "right_ablated": 0}
    assert set(found.per_trial["trial"]) == {t.id for t in trials}
    everyone = recover(model, SOURCES, SOURCES, [*trials, *wrong], controls=(), flipped=False)
    assert everyone.examples == {"all": 6, "used": 6}


def test_no_example_that_flips_is_an_error_that_counts() -> None:
    model = planted.model()
    with pytest.raises(
        ValueError, match=r"no example is right when clean and wrong when ablated: 2 of 2 .* 2 when abl"
    ):
        recover(model, [planted.DECOY], [planted.DECOY], planted_trials(2), max_new_tokens=2)
    assert not has_hooks(model)


def table(clean: list[float], ablated: list[float], patched: list[float]) -> lh.Recovery:
    rows = [
        {"trial": str(i), "set": "patched", "draw": 0, "fair": False, "lp_clean": c, "lp_ablated": a, "lp_patched": p}
        for i, (c, a, p) in enumerate(zip(clean, ablated, patched, strict=True))
    ]
    frame = pd.DataFrame(rows)
    frame["cost"] = frame["lp_clean"] - frame["lp_ablated"]
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["recovery"] = (frame["lp_patched"] - frame["lp_ablated"]) / frame["cost"]
    return lh.Recovery(frame, {"all": len(rows), "used": len(rows)}, {})


def test_the_ratio_of_sums_holds_where_the_mean_of_ratios_explodes() -> None:
    """Three examples that recover wholly, and one whose ablation cost next to nothing."""
    found = table([-1, -1, -1, -1], [-5, -5, -5, -1.01], [-1, -1, -1, -1.5])
    row = found.frame.iloc[0]
    assert float(found.per_trial["recovery"].mean()) < -10
    assert row["recovery"] == pytest.approx((12 - 0.49) / 12.01)
    assert row["median"] == pytest.approx(1)
    assert row["undefined"] == 0.25
    assert row["cost"] == pytest.approx(12.01 / 4)


def test_zero_denominators_are_undefined_not_a_crash() -> None:
    row = table([-1, -2], [-1, -2], [-1, -1]).frame.iloc[0]
    assert all(math.isnan(row[name]) for name in ("recovery", "low", "median"))
    assert row["undefined"] == 1


def test_the_interval_of_recovery_is_that_of_a_ratio_by_groups_of_examples() -> None:
    generator = np.random.default_rng(0)
    clean, cost = -generator.random(12), 2 + generator.random(12)
    gain = cost * np.repeat(generator.random(6), 2)
    found = table(list(clean), list(clean - cost), list(clean - cost + gain))
    above, below = torch.from_numpy(gain)[None], torch.from_numpy(cost)[None]
    order = np.argsort([str(i) for i in range(12)])  # Examples by name.
    alone = ratio_interval(above[:, order], below[:, order])
    assert found.frame.iloc[0][["recovery", "low", "high"]].to_list() == pytest.approx(alone)
    pairs = [f"needle {i // 2}" for i in range(12)]
    grouped = lh.Recovery(found.per_trial.assign(group=pairs, group_2=""), found.examples, {}).frame.iloc[0]
    expected = ratio_interval(above[:, order], below[:, order], groups=[pairs[i] for i in order])
    assert grouped[["recovery", "low", "high"]].to_list() == pytest.approx(expected)
    assert grouped["high"] - grouped["low"] > alone.high - alone.low
    few = table([-1.0] * 4, [-3.0, -4, -5, -6], [-2.0, -1, -2, -1]).frame.iloc[0]
    assert not math.isnan(few["recovery"])
    assert math.isnan(few["low"]), "no interval below five examples"


def test_examples_keep_their_groups() -> None:
    trials = [replace(trial, group=f"needle {i % 2}") for i, trial in enumerate(planted_trials(2))]
    found = recover(planted.model(), SOURCES, SOURCES, trials, controls=(), flipped=False)
    assert found.per_trial.set_index("trial")["group"].to_dict() == {trial.id: trial.group for trial in trials}
    assert set(found.per_trial["group_2"]) == {""}


def test_results_are_stored_and_read_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, trials = planted.model(), planted_trials(2)
    first = recover(model, SOURCES, SOURCES, trials, max_new_tokens=2, out=tmp_path / "run")
    monkeypatch.setattr(import_module("lens_heads.evidence.recovery"), "_example", None)  # Nothing may be run again.
    again = recover(model, SOURCES, SOURCES, trials, max_new_tokens=2, out=tmp_path / "run")
    pd.testing.assert_frame_equal(first.per_trial, again.per_trial)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"controls": ("nobody",)}, "unknown control 'nobody': the controls are bottom, random"),
        (
            {"controls": "no_needle"},
            "unknown control 'no_needle': here they are random, random_like, same_layer, bottom",
        ),
        ({"ablated": ["L9H0"]}, "head L9H0 does not exist"),
        ({"patched": []}, "there are no heads to ablate or to patch"),
        ({"kind": "mean"}, "kind='mean' needs a reference"),
        ({"trials": []}, "there are no trials"),
        ({"max_new_tokens": 0}, "max_new_tokens=0: must be a positive integer, because flipped=True judges"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"ablated": ["L0H1"], "patched": ["L0H1"], "trials": [random_trial()], **change}
    model = tiny("llama-gqa")
    with pytest.raises(ValueError, match=message):
        recover(model, **arguments)
    assert not has_hooks(model)


def test_random_sets_are_of_all_heads_and_neighbours_of_the_others() -> None:
    seen: set[lh.Head] = set()
    everyone = [lh.Head(layer, head) for layer in range(3) for head in range(4)]
    chosen = [lh.Head(0, 1), lh.Head(0, 2), lh.Head(2, 3)]
    for seed in range(20):
        drawn = controls.random_heads(everyone, 3, seed)
        matched = controls.random_like(chosen, everyone, seed)
        assert len(set(drawn)) == 3
        assert sorted(head.layer for head in matched) == [0, 0, 2]
        seen |= {*drawn, *matched}
    assert seen == set(everyone), "the chosen among them"
    assert controls.shifted(chosen, 4) == [lh.Head(0, 3), lh.Head(0, 0), lh.Head(2, 0)]
    assert controls.shifted([lh.Head(1, head) for head in range(4)], 4) == []


def test_broken_recovery_is_caught() -> None:
    """Patching all rows instead of the answer rows gives other numbers than the loop by hand."""
    arch, trial = "llama-gqa", random_trial()
    heads = [lh.Head(0, 1), lh.Head(1, 2)]
    by_hand = patched_by_hand(zoo.hf_model(arch), trial, heads, heads)
    tokens: Tensor = torch.cat([trial.tokens, trial.answer_tokens])
    model = tiny(arch)
    with torch.no_grad(), lh.ablate(model, heads, kind="zero"), lh.patch(model, heads, trial, positions="all"):
        rows = model(tokens[None])[0].log_softmax(-1)
    everywhere = sum(float(rows[len(trial) - 1 + i, token]) for i, token in enumerate(trial.answer_tokens.tolist()))
    assert abs(everywhere - by_hand) > 1e-2


def test_controls_are_not_run_for_an_example_that_does_not_flip(monkeypatch: pytest.MonkeyPatch) -> None:
    model, trials = planted.model(), planted_trials(2)
    wrong = EncodedTrial(trials[0].tokens, trials[0].needle, "Z", trials[0].answer_tokens, "wrong")
    ablated: list[tuple[lh.Head, ...]] = []
    inner = lh.ablate

    def counted(model: Any, heads: Any, **more: Any) -> Any:
        ablated.append(tuple(heads))
        return inner(model, heads, **more)

    monkeypatch.setattr(import_module("lens_heads.evidence.recovery"), "ablate", counted)
    options: dict[str, Any] = {"controls": lh.Controls("random", 3), "max_new_tokens": 2}
    recover(model, SOURCES, SOURCES, [trials[0]], **options)
    assert len(set(filter(None, ablated))) == 4  # The heads themselves, and three draws of controls.
    ablated.clear()
    recover(model, SOURCES, SOURCES, [trials[0], wrong], **options)
    assert len(list(filter(None, ablated))) == 5  # For the second example the heads themselves alone.


def test_differences_are_taken_on_the_same_examples() -> None:
    """Patched returns 3 of 4 nats or more, a control 1 of the same; the fair control, itself ablated, cost 0.5."""
    rows = []
    extras = (0.0, 1.0, 0.5, 2.0, 0.25, 1.5)
    for example, extra in zip("abcdef", extras, strict=True):
        clean, ablated = -1.0, -5.0 - extra
        for name, fair, draw, before, after in [
            ("patched", False, 0, ablated, ablated + 3),
            *[("random", False, draw, ablated, ablated + 1) for draw in range(5)],
            ("random", True, 0, clean - 0.5, clean),
        ]:
            rows.append(
                {"trial": example, "set": name, "draw": draw, "fair": fair, "lp_clean": clean, "lp_ablated": before}
                | {"lp_patched": after, "cost": clean - before, "recovery": (after - before) / (clean - before)}
            )
    found = lh.Recovery(pd.DataFrame(rows), {"all": 6, "used": 6}, {}).differences().set_index("fair")
    assert found["of"].to_dict() == {False: "recovery", True: "cost"}
    cost, columns = 4 + torch.tensor([extras], dtype=torch.float64), ["difference", "low", "high"]
    shares = ratio_interval(torch.full((5, 6), 2.0, dtype=torch.float64), cost.expand(5, 6))
    assert found.loc[False, columns].to_list() == pytest.approx(shares)
    assert found.loc[False, "difference"] == pytest.approx(2 * 6 / (24 + sum(extras)))
    assert found.loc[True, columns].to_list() == pytest.approx(crossed_interval(cost - 0.5))
    assert found.loc[True, "low"] < found.loc[True, "difference"] == pytest.approx(3.5 + sum(extras) / 6)
