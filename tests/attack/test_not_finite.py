"""NaN and infinite numbers are refused where they enter, and blamed on whom they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

import lens_heads as lh
from lens_heads.evidence.correlation import correlate
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.ranking.causal.attribution import attribution_patch
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import solve_masks
from tests import zoo
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

NAN, INF = float("nan"), float("inf")
PARTS = ("weight", "bias")
TRIALS = [random_trial(0), random_trial(1)]


def MODEL() -> Any:
    return tiny("llama-gqa")


def ablate(kind: str, **options: Any) -> None:
    with lh.ablate(MODEL(), "L0H0", kind=kind, **options):
        pass


def score(found: Any) -> Any:
    mine = lh.Scorer("mine", lambda view: found)
    return lh.score_heads(MODEL(), TRIALS, mine, teacher_forced=True, progress=False)


def patched(metric: Any, method: Callable[..., Any] = patch_heads) -> Any:
    return method(MODEL(), TRIALS, positions="all", metric=metric, progress=False)


def to_nan(logits: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    return logits[:, 0, 0] * NAN


def to_infinity(logits: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    return logits[:, 0, 0] + INF


def to_number(logits: torch.Tensor, gold: torch.Tensor) -> Any:
    return 1.0


def to_matrix(logits: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    return logits[:, 0]


def head_scores(value: float) -> HeadScores:
    values = torch.ones(2, 3, 4)
    values[1, 2, 3] = value
    return HeadScores.from_trials("m", values, ["a", "b"])


def means(z: float, q: float = 0) -> MeanActivations:
    return MeanActivations(torch.full((3, 4, 8), z), torch.full((3, 4, 8), q), ("a",))


def masks(value: Any) -> np.ndarray:
    found = np.zeros((6, 3, 4), dtype=object if isinstance(value, str) else float)
    found[0, 0, 0], found[1, 1, 1] = 1, value
    return found


def measured(value: Any) -> Any:
    return MaskedMetric(MODEL(), TRIALS, progress=False)(masks(value))


def table(value: Any) -> pd.DataFrame:
    found = pd.DataFrame(np.random.default_rng(0).random((2, 5)), index=[1, 2], columns=list("abcde")).astype(object)
    found.loc[2, "c"] = value
    return found


def solved(response: Any, **options: Any) -> Any:
    drawn = np.random.default_rng(0).random((8, 3, 4)) < 0.3
    return solve_masks(drawn, response, **{"method": "script", **options})


def broken() -> Any:
    """A model whose every logit is NaN."""
    model = zoo.bridge("llama-gqa")
    with torch.no_grad():
        model.original_model.lm_head.weight.fill_(NAN)
    return model


GOOD = np.arange(8.0)
LINES: list[tuple[str, Callable[[], Any], str]] = [
    ("factor nan", lambda: ablate("scale", factor=NAN), "factor=nan: must be a finite number"),
    ("factor infinite", lambda: ablate("scale", factor=INF), "factor=inf: must be a finite number"),
    ("factor text", lambda: ablate("scale", factor="2"), "factor='2': must be a finite number"),
    ("factor true", lambda: ablate("scale", factor=True), "factor=True: must be a finite number"),
    ("u beyond", lambda: ablate("identity", u=2), "u=2: must be a finite number from 0 to 1"),
    ("u nan", lambda: ablate("identity", u=NAN), "u=nan"),
    ("sink below 0", lambda: ablate("streaming", sink=-1), "sink=-1: must be a non-negative integer"),
    ("recent nan", lambda: ablate("streaming", recent=NAN), "recent=nan"),
    ("means nan", lambda: means(NAN), "the means: z contains nan"),
    ("means infinite", lambda: means(INF), "the means: z contains inf"),
    ("queries nan", lambda: means(0, NAN), "the means: q contains nan"),
    ("run nan", lambda: TrialActivations(torch.full((3, 5, 4, 8), NAN), "t"), "the run of trial t: z contains nan"),
    ("run from -1", lambda: TrialActivations(torch.zeros(3, 5, 4, 8), "t", -1), "first=-1"),
    (
        "scorer nan",
        lambda: score(torch.full((4,), NAN)),
        "mine is not finite: your scorer must return finite scores",
    ),
    ("scorer infinite", lambda: score(torch.tensor([0, 0, INF, 0])), "trial random-0: mine is not finite: your scorer"),
    ("scorer list", lambda: score([1.0] * 4), "scorer mine returned list"),
    ("scorer None", lambda: score(None), "scorer mine returned NoneType"),
    ("scorer shape", lambda: score(torch.zeros(3)), "scorer mine returned shape [3]"),
    ("metric nan", lambda: patched(to_nan), "the metric to_nan is nan"),
    ("metric infinite", lambda: patched(to_infinity), "the metric to_infinity is inf"),
    ("metric number", lambda: patched(to_number), "the metric to_number returned float"),
    ("metric matrix", lambda: patched(to_matrix), "the metric to_matrix returned shape"),
    ("metric of no name", lambda: patched(3), "metric=3: must be a name or a function"),
    ("attributed nan", lambda: patched(to_nan, attribution_patch), "the metric to_nan is nan"),
    ("attributed infinite", lambda: patched(to_infinity, attribution_patch), "the metric to_infinity is inf"),
    ("score nan", lambda: head_scores(NAN), "m: the score of L2H3 is nan"),
    ("score infinite", lambda: head_scores(-INF), "m: the score of L2H3 is -inf"),
    ("mask nan", lambda: measured(NAN), "a mask contains nan"),
    ("mask two", lambda: measured(2), "a mask contains 2.0"),
    ("mask half", lambda: measured(0.5), "a mask contains 0.5"),
    ("mask text", lambda: measured("yes"), "a mask contains yes"),
    ("masks of twos", lambda: solve_masks(masks(2), np.arange(6.0), method="script"), "a mask contains 2.0"),
    ("masks of nan", lambda: solve_masks(masks(NAN), np.arange(6.0), method="script"), "a mask contains nan"),
    ("response nan", lambda: solved([*GOOD[:7], NAN]), "the response to mask 7 is nan"),
    ("response infinite", lambda: solved([INF, *GOOD[1:]]), "the response to mask 0 is inf"),
    ("base nan", lambda: solved(GOOD, base=NAN, method="paper"), "must be one finite number"),
    ("alpha infinite", lambda: solved(GOOD, alpha=INF), "alpha=inf: must be a finite number"),
    ("table nan", lambda: correlate(table(NAN), table(0.5)), "fragility of a is NaN for task 'c' at k=2"),
    ("table infinite", lambda: correlate(table(INF), table(0.5)), "fragility of a is inf for task 'c' at k=2"),
    ("table text", lambda: correlate(table(0.5), table("much")), "fragility of b is 'much' for task 'c' at k=2"),
    ("weight nan", lambda: lh.match_heads(MODEL(), MODEL(), weights={"cka": NAN}), "weights['cka']=nan"),
    ("weight infinite", lambda: lh.match_heads(MODEL(), MODEL(), weights={"cka": INF}), "weights['cka']=inf"),
    (
        "log-probabilities",
        lambda: lh.evaluate(broken(), TRIALS, generate=False, progress=False),
        "trial random-0: logprob is nan: load the model in float32 or bfloat16",
    ),
    (
        "log-probabilities of a curve",
        lambda: lh.ablation_curve(
            broken(), TRIALS, head_scores(2), ks=1, kind="zero", controls=(), generate=False, progress=False
        ),
        "trial random-0: logprob is nan",
    ),
]


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_tuned_lens_is_blamed_by_its_file(tmp_path: Path, name: str, value: float) -> None:
    lens = {
        f"{i}.{part}": torch.zeros(32, 32)[: 32 if part == "weight" else 1].squeeze() for i in (1, 2) for part in PARTS
    }
    lens[f"2.{name}"][0] = value
    save_file(lens, tmp_path / "mine.safetensors")
    refused(
        lambda: lh.score_heads(
            MODEL(), TRIALS, "locos", teacher_forced=True, direction=tmp_path / "mine.safetensors", progress=False
        ),
        f"mine.safetensors: translator 2.{name} contains {value}",
        MODEL(),
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("run", "says"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_not_finite(run: Callable[[], Any], says: str) -> None:
    refused(run, says, MODEL())


RIGHT: list[tuple[str, Callable[[], Any]]] = [
    ("a negative factor", lambda: ablate("scale", factor=-1)),
    ("a numpy factor", lambda: ablate("scale", factor=np.float32(0.5))),
    ("sink 0", lambda: ablate("streaming", sink=0)),
    ("masks of numbers", lambda: measured(1)),
    ("a table of numbers", lambda: correlate(table(0.5), table(0.7))),
    ("scores of integers", lambda: score(torch.ones(4, dtype=torch.long))),
]


@pytest.mark.parametrize("run", [run for _, run in RIGHT], ids=[name for name, _ in RIGHT])
def test_finite(run: Callable[[], Any]) -> None:
    run()
