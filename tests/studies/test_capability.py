"""The study of capabilities on tiny random models: every stage, models beside each other, the folder, the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lens_heads import studies
from lens_heads.studies.capability_paper.capabilities import OFFLINE, Capability
from lens_heads.studies.capability_paper.presets import Preset
from tests import zoo

LONG = {"context_length": 500}  # Of bytes.
RETRIEVAL = Capability(("packaged", {"split": "select", **LONG}), ("packaged", {"split": "test", **LONG}), share=0.5)
TINY = Preset(
    {**{name: OFFLINE[name] for name in ("capitals", "induction", "rhyme")}, "retrieval": RETRIEVAL},
    n_select=4,
    n_test=3,
    n_masks=12,
    sparsity=0.25,
    k=2,
    at_least=2,
    ks=(1, 2),
    random_draws=2,
    most_evaluations=30,
)


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [zoo.bridge(name, n_ctx=2048) for name in ("qwen3", "gemma3")]


@pytest.fixture(scope="module")
def done(models: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    out = tmp_path_factory.mktemp("study") / "run"
    return studies.capability(models, preset=TINY, out=out, command="the command"), out


def test_smoke(done: Any) -> None:
    import pandas as pd

    pd.set_option("display.width", 250, "display.max_columns", 40)
    for each in done[0]:
        for n, f in each.frames.items():
            print(n)
            print(f)
