"""What single heads carry: what the question selects, the name, or word of the question to the heads that select."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch

from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.causal.paths import path_patch
from lens_heads.studies.two_needles.stages import Setup

ROLES = {
    "selects": "patched from the prompt that asks for the other needle, logits of right minus other",
    "names": "patched from the prompt with another name in the needle, nats of the right answer",
    "tells": "patched from the prompt that asks for the other needle on the way to the queries of the heads that select, logits",
}
"""What is exchanged in each; every head alone, on questions that judge."""
RECEIVERS = 4
"""The heads that select best on selection questions, whose queries hear the others."""
SENDERS = 72
"""The heads that may tell them, at most: those below with the largest effect, either way, on selection questions. A run each."""


def roles(setup: Setup, patched: HeadScores) -> dict[str, HeadScores]:
    """Every head's part, by the names of `ROLES`. `patched`: the ranking by patching on selection questions."""
    out, few = setup.out / "roles", setup.test[: setup.plan.few]
    asked: dict[str, Any] = {"metric": "first_token_logit_diff", "corruption": "counterfactual"}
    receivers = patched.top(RECEIVERS)
    found = {"selects": patch_heads(setup.model, few, out=out / "selects", **asked)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A name of more tokens than any other's makes no pair.
        found["names"] = patch_heads(setup.model, few, corruption="swap", out=out / "names")
    last = max(head.layer for head in receivers)
    below = [head for head in patched.heads if head.layer < last]
    senders = sorted(below, key=lambda head: -abs(float(patched.values[head.layer, head.head])))[:SENDERS]
    if senders:
        found["tells"] = path_patch(setup.model, few, senders, receivers, out=out / "tells", **asked)
    return found


def by_passage(found: HeadScores) -> HeadScores:
    """The scores with passages as units: the mean over both questions of each. Templates are too few to stand for others here."""
    passages = [id.removesuffix("-exchanged") for id in found.trial_ids]
    rows = {each: [at for at, id in enumerate(passages) if id == each] for each in dict.fromkeys(passages)}
    means = torch.stack([found.per_trial[at].mean(0) for at in rows.values()])
    return HeadScores.from_trials(found.method, means, list(rows), signed=True, score_unit=found.score_unit)


def parts(found: Mapping[str, HeadScores]) -> pd.DataFrame:
    """A row per head that has a part by any of `roles` (5 % false discoveries over passages): its effects with intervals, and its
    parts. Fewer than ten passages tell none."""
    found = {name: by_passage(one) for name, one in found.items()}
    told = {name: torch.zeros_like(one.values) if one.untested() else one.significant() for name, one in found.items()}
    intervals = {name: one.interval() for name, one in found.items()}
    rows = []
    for head in next(iter(found.values())).heads:
        at = (head.layer, head.head)
        own = [name for name, one in told.items() if one[at]]
        if not own:
            continue
        row: dict[str, Any] = {"head": str(head), "parts": ", ".join(own)}
        for name, one in intervals.items():
            row |= {f"{name}{end}": float(part[at]) for end, part in zip(("", "_low", "_high"), one, strict=True)}
        rows.append(row)
    columns = ["head", "parts", *(f"{name}{end}" for name in ROLES for end in ("", "_low", "_high"))]
    return pd.DataFrame(rows, columns=columns).sort_values("selects", ascending=False, ignore_index=True)
