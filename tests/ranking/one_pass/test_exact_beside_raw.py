"""LOCOS and DLA with the exact read-out beside the raw ones: the same numbers as two passes, from one."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.one_pass import batch, capture
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.ranking.one_pass.scorers.locos import locos
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo
from tests.conftest import random_trial

PLAIN, EXACT = ["locos", "dla"], ["locos_exact", "dla_exact"]


def forced(model: Any, trials: list[EncodedTrial], methods: Any, **options: Any) -> dict[str, HeadScores]:
    return lh.score_heads(model, trials, methods, teacher_forced=True, progress=False, **options)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_one_pass_gives_what_two_give(model: Any, batch_size: int) -> None:
    trials = [random_trial(0), random_trial(1, 17, (0, 3)), random_trial(2, 40, (20, 33))]
    together = forced(model, trials, [*PLAIN, *EXACT], batch_size=batch_size)
    raw = forced(model, trials, PLAIN, batch_size=batch_size)
    exact = forced(model, trials, PLAIN, direction="exact", batch_size=batch_size)
    for name in PLAIN:
        torch.testing.assert_close(together[name].per_trial, raw[name].per_trial, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(together[f"{name}_exact"].per_trial, exact[name].per_trial, atol=1e-6, rtol=1e-6)
        assert (raw[name].values - exact[name].values).abs().max() > 0.01, "the two are not the same thing"


def test_in_an_exact_run_the_plain_names_are_exact_to_the_last_digit(model: Any, trial: EncodedTrial) -> None:
    found = forced(model, [trial], [*PLAIN, *EXACT], direction="exact")
    for name in PLAIN:
        assert torch.equal(found[name].per_trial, found[f"{name}_exact"].per_trial)


def test_the_exact_ones_do_not_depend_on_the_run(gqa: Any, trial: EncodedTrial, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    width = zoo.D_MODEL
    lens = {f"{i}.weight": torch.randn(width, width, generator=generator) for i in range(zoo.LAYERS)}
    file = tmp_path / "lens.safetensors"
    save_file(lens, file)
    runs = [forced(gqa, [trial], [*PLAIN, *EXACT], direction=direction) for direction in ("raw", file)]
    for name in PLAIN:
        assert torch.equal(*(run[f"{name}_exact"].values for run in runs))
        assert not torch.allclose(*(run[name].values for run in runs))
        assert [run[f"{name}_exact"].settings["direction"] for run in runs] == ["exact", "exact"]
        assert runs[0][name].settings["direction"] == "raw"


@pytest.mark.parametrize(("direction", "per_layer"), [("raw", 2), ("exact", 1)])
def test_phi_is_computed_once_for_each_direction(
    gqa: Any, trial: EncodedTrial, direction: str, per_layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    phi: Any = LayerView.__dict__["phi"]

    def counted(view: LayerView) -> torch.Tensor:
        seen.append(view.layer)
        return phi.func(view)

    counting: Any = cached_property(counted)
    counting.__set_name__(LayerView, "phi")
    monkeypatch.setattr(LayerView, "phi", counting)
    forced(gqa, [trial], [*PLAIN, *EXACT], direction=direction, null_spans=13)
    assert [seen.count(layer) for layer in range(zoo.LAYERS)] == [per_layer] * zoo.LAYERS


@pytest.mark.parametrize("name", ["llama-gqa", "gpt2"])
def test_the_prompt_is_read_once(name: str, trial: EncodedTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the answer, where its rows can be noted. Else these run again with hooks, and once before for the final norm."""
    calls: list[int] = []
    for module in (batch, capture):
        whole = module.advance

        def counted(*args: Any, _whole: Any = whole, **options: Any) -> Any:
            calls.append(args[1].shape[1])
            return _whole(*args, **options)

        monkeypatch.setattr(module, "advance", counted)
    prefill = batch.prefill

    def read(model: Any, tokens: Any, *args: Any) -> None:
        calls.extend([tokens.shape[1]] * bool(tokens.numel()))
        prefill(model, tokens, *args)

    monkeypatch.setattr(batch, "prefill", read)
    rows, before, model = len(trial.answer_tokens), len(trial) - 1, zoo.bridge(name)
    forced(model, [trial], [*PLAIN, *EXACT])
    assert calls == ([before + rows] if name == "llama-gqa" else [before, rows, rows])
    calls.clear()
    forced(model, [trial], PLAIN)
    assert calls == ([before + rows] if name == "llama-gqa" else [before, rows])


def test_a_scorer_of_ones_own_may_be_exact_and_is_another_method_then(
    gqa: Any, trial: EncodedTrial, tmp_path: Path
) -> None:
    mine = [Scorer("mine", locos), Scorer("mine", locos, direction="exact")]
    found = [forced(gqa, [trial], one, out=tmp_path / one.direction)["mine"].values for one in mine]
    both = forced(gqa, [trial], ["locos", "locos_exact"])
    assert torch.equal(found[0], both["locos"].values)
    assert torch.equal(found[1], both["locos_exact"].values)
    with pytest.raises(ValueError, match="different settings"):
        forced(gqa, [trial], mine[1], out=tmp_path / "run")
    with pytest.raises(ValueError, match="scorer mine: direction='raw': use one of run, exact"):
        Scorer("mine", locos, direction="raw")  # type: ignore[arg-type]  # not one
