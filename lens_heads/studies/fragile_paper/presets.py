"""Presets of the study of fragile tasks: which reports, how many of them, and how many heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lens_heads.ablation.evaluation import FORCED_METRICS, METRICS
from lens_heads.runs import checks
from lens_heads.tasks.sec10k.settings import settings

HEADS = 32 * 32
"""Llama-3.1-8B has 1,024 heads; the paper's `ks` are of these, and other models lose the same share."""

TASKS = tuple(settings()["tasks"])


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `documents` are arguments of `sec10k_documents`, whose "select" companies serve to detect heads; `trials` are arguments of
    `sec10k`, whose "test" companies serve to ablate them. n in either is per task. `ks` are numbers of heads out of 1,024.
    `metric` measures drops, and `right` (above one half) says which trials are right. `generate` decodes `max_new_tokens` and
    judges the text; without it, both metrics must need no decoding. `recovery_k` heads are ablated and restored on at most
    `recovery_trials` trials per task. `matched_k` heads are compared with their partners in the other model.

    Raises ValueError for a `recovery_k`, `lead`, `metric` or `right` that the other settings do not provide.
    """

    documents: dict[str, Any]
    trials: dict[str, Any]
    ks: tuple[int, ...] = (8, 16, 32, 48, 64, 96, 128)
    random_draws: int = 5
    methods: tuple[str, ...] = ("qr", "core", "summed_attention")
    lead: str = "qr"
    kind: str = "zero"
    metric: str = "correct"
    right: str = "correct"
    generate: bool = True
    max_new_tokens: int = 30
    batch_size: int = 6
    recovery_k: int = 64
    recovery_trials: int = 50
    recovery_draws: int = 20
    matched_k: int = 64
    match_texts: int = 16
    tasks: tuple[str, ...] = TASKS

    def __post_init__(self) -> None:
        checks.whole_fields(self, random_draws=0, max_new_tokens=1, batch_size=1, recovery_k=1, recovery_trials=0)
        checks.whole_fields(self, recovery_draws=0, matched_k=1, match_texts=2)
        checks.whole_numbers("ks", self.ks)
        measured = METRICS if self.generate else FORCED_METRICS
        for name, among in (("recovery_k", self.ks), ("lead", self.methods), ("metric", measured), ("right", measured)):
            if getattr(self, name) not in among:
                why = f" is not measured with generate={self.generate}" if among is measured else ""
                raise ValueError(f"{name}={getattr(self, name)!r}{why}: use one of {', '.join(map(str, among))}")

    def by_task(self, made: Callable[..., list[Any]], arguments: dict[str, Any], split: str) -> dict[str, list[Any]]:
        """The trials of every task, made by `sec10k` or `sec10k_documents`."""
        n = None if arguments.get("n") is None else arguments["n"] * len(self.tasks)
        trials = made(**{**arguments, "task": self.tasks, "split": split, "n": n})
        return {task: [trial for trial in trials if trial.meta["task"] == task] for task in self.tasks}

    def size(self, k: int, heads: int) -> int:
        """The same share of a model's heads as k of 1,024, at least one."""
        return max(1, round(k * heads / HEADS))

    def sizes(self, heads: int) -> dict[int, int]:
        """Numbers of heads in this model, with the first of `ks` that each stands for."""
        found: dict[int, int] = {}
        for k in self.ks:
            found.setdefault(self.size(k, heads), k)
        return found


_SMALL: dict[str, Any] = dict(metric="logprob", right="greedy_match", generate=False)
PRESETS: dict[str, Preset] = {
    "packaged": Preset(
        documents={"n": 4, "chunk_words": 100, "n_documents": 2},
        trials={"n": 6, "words": 60},
        ks=(32, 64, 128),
        recovery_trials=4,
        recovery_draws=3,
        **_SMALL,
    ),
    "quick": Preset(
        documents={"n": 2, "chunk_words": 100, "n_documents": 1},
        trials={"n": 2, "words": 40},
        ks=(64,),
        random_draws=2,
        recovery_trials=1,
        recovery_draws=2,
        match_texts=4,
        **_SMALL,
    ),
    "paper": Preset(documents={"chunk_words": 400, "n_documents": 20}, trials={"words": 5000}),
}
"""`packaged` and `quick` need no download and suit models with a few hundred million parameters. They take short excerpts of
synthetic reports, judged by the answer's log-probability and by whether greedy decoding starts with the answer. `paper` has the
paper's sizes, on real filings; it takes 20 chunks besides the section that states the fact, because a whole filing exceeds a
context of 32,768 tokens."""


def on_reports(found: Preset, name: str, path: str | None) -> Preset:
    """The preset of this name on the reports at `path`. Raises ValueError for "paper" without a path."""
    if path is not None:
        return replace(found, documents={**found.documents, "path": path}, trials={**found.trials, "path": path})
    if name == "paper":
        raise ValueError(
            "preset='paper' needs real filings: pass path=, a folder or .zip of edgar-crawler's JSON files"
        )
    return found
