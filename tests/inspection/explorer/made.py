"""Explorers of the planted model and pages with recorded data, for the tests."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.explorer import recorded
from lens_heads.inspection.explorer.contents import contents
from lens_heads.inspection.look_results import Look
from tests import planted

MARKUP = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'


@cache
def scores() -> dict[str, HeadScores]:
    return lh.score_heads(planted.model(), planted.trials(6), ["locos", "copy"], teacher_forced=True, progress=False)


@cache
def looks() -> tuple[Look, ...]:
    return tuple(lh.look(planted.model(), trial) for trial in planted.trials(2))


def about(**more: Any) -> dict[str, Any]:
    return {**contents(lh.head_geometry(planted.model()), scores(), [look.trial for look in looks()]), **more}


def hostile() -> Look:
    """A look whose texts are markup, wherever text stands."""
    one = looks()[0]
    words = (MARKUP, *one.words[1:])
    produced = tuple(MARKUP for _ in one.produced_words)
    return replace(
        one, trial=MARKUP, words=words, produced_words=produced, vocabulary=dict.fromkeys(one.vocabulary, MARKUP)
    )


def long(n: int) -> Look:
    """A look at n random tokens, with values of every size."""
    one, rng = looks()[0], torch.Generator().manual_seed(n)
    heads, steps = len(one.heads), len(one.rows)
    values = torch.randn(heads, steps, n, generator=rng) * (torch.rand(heads, steps, n, generator=rng) < 0.05)
    return replace(
        one,
        words=tuple(f" w{i % 50}" for i in range(n)),
        rows=tuple(n - steps + step for step in range(steps)),
        needle=(n // 2, n // 2 + 5),
        question=(n - 12, n - 4),
        tokens=torch.arange(n),
        attention=values.abs().half() / 10,
        phi=values.half(),
    )


def page(folder: Path, looks: Any, more: str = "", **traits: Any) -> Path:
    """A page as reports embed it."""
    payload = recorded.record(about(trials=[look.trial for look in looks], **traits), looks)
    style = recorded.asset("explorer.css")
    text = f"<!doctype html><html lang=en><meta charset=utf-8><title>x</title><style>{style}</style>{recorded.element(payload)}"
    file = folder / "page.html"
    file.write_text(f"{text}<script type=module>{recorded.module()}{more}</script>", encoding="utf-8")
    return file


def with_kernel(folder: Path) -> Path:
    """The module as a notebook runs it: `render` on a model whose kernel is this page's own bank, which records messages."""
    data = recorded.record(about(experiments=[["mean", "needs others"], ["zero", ""], ["patch", ""]]), looks())
    script = f"""
      class Kernel extends Bank {{ send(message) {{ window.sent = [...(window.sent ?? []), message]; }} }}
      window.model = new Kernel({json.dumps(data)});
      window.stop = render({{ model: window.model, el: document.getElementById("here") }});
    """
    text = recorded.asset("explorer.js").replace("export default { render };", "")
    style = recorded.asset("explorer.css")
    file = folder / "kernel.html"
    head = f"<!doctype html><meta charset=utf-8><style>{style}</style>"
    file.write_text(f"{head}<div id=here></div><script type=module>{text}{script}</script>", encoding="utf-8")
    return file
