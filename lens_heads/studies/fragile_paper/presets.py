"""How large the study is, by name: which reports, how many of them, how many heads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from lens_heads.ablation.evaluation import FORCED_METRICS, METRICS
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial

HEADS = 32 * 32
"""Of Llama-3.1-8B, whose numbers of ablated heads the study gives; other models lose the same share."""

TASKS = tuple(settings()["tasks"])


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `documents` are arguments of `sec10k_documents`, on whose "select" companies heads are detected, `trials` those of
    `sec10k`, on whose "test" companies they are ablated; n of both is per task. `ks`: numbers of heads ablated of 1,024.
    `metric` is what drops are measured in, `right` (above one half) says which trials are right. `generate`: decode
    `max_new_tokens` and judge the text; without it both have to be metrics that need no decoding.
    `recovery_k` heads are ablated and given back on at most `recovery_trials` trials a task. `matched_k` heads of a task, and
    of all, are ablated with their partners in the other model.
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
    tasks: tuple[str, ...] = field(default=TASKS)

    def __post_init__(self) -> None:
        needed = (("recovery_k", self.recovery_k, self.ks), ("lead", self.lead, self.methods))
        for name, value, among in needed:
            if value not in among:
                raise ValueError(f"{name}={value!r} is none of {', '.join(map(str, among))}: choose one of them")
        measured = METRICS if self.generate else FORCED_METRICS
        for name in ("metric", "right"):
            if getattr(self, name) not in measured:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not measured with generate={self.generate}: {', '.join(measured)}"
                )

    def detection(self) -> dict[str, list[DocumentTrial]]:
        """Document trials by task."""
        return _by_task(sec10k_documents(**self._call(self.documents, "select")), self.tasks)

    def evaluation(self) -> dict[str, list[Trial]]:
        """Trials of other companies by task."""
        return _by_task(sec10k(**self._call(self.trials, "test")), self.tasks)

    def size(self, k: int, heads: int) -> int:
        """As large a share of a model's heads as k is of 1,024, at least one."""
        return max(1, round(k * heads / HEADS))

    def sizes(self, heads: int) -> dict[int, int]:
        """Numbers of heads in this model, and which of `ks` each stands for (the first, where several are one)."""
        found: dict[int, int] = {}
        for k in self.ks:
            found.setdefault(self.size(k, heads), k)
        return found

    def _call(self, arguments: dict[str, Any], split: str) -> dict[str, Any]:
        n = arguments.get("n")
        return {**arguments, "task": self.tasks, "split": split, "n": None if n is None else n * len(self.tasks)}


def _by_task(trials: list[Any], tasks: tuple[str, ...]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for trial in trials:
        found[trial.meta["task"]].append(trial)
    return {task: found[task] for task in tasks}


PRESETS: dict[str, Preset] = {
    "packaged": Preset(
        documents={"n": 4, "chunk_words": 100, "n_documents": 2},
        trials={"n": 6, "words": 60},
        ks=(32, 64, 128),
        random_draws=5,
        metric="logprob",
        right="greedy_match",
        generate=False,
        recovery_trials=4,
        recovery_draws=3,
    ),
    "quick": Preset(
        documents={"n": 2, "chunk_words": 100, "n_documents": 1},
        trials={"n": 2, "words": 40},
        ks=(64,),
        random_draws=2,
        metric="logprob",
        right="greedy_match",
        generate=False,
        recovery_trials=1,
        recovery_draws=2,
        match_texts=4,
    ),
    "paper": Preset(documents={"chunk_words": 400, "n_documents": 20}, trials={"words": 5000}),
}
"""`packaged` and `quick` need no download and suit models of some hundred million parameters: short stretches of made-up
reports, judged by the answer's log-probability, and by whether greedy decoding begins with it. `paper` has the sizes of the
study, on real filings, of which it takes 20 chunks beside the section that states the fact: a whole filing exceeds a context
of 32,768 tokens."""


def on_reports(found: Preset, name: str, path: str | None) -> Preset:
    """The preset of this name on the reports at `path`. ValueError for "paper" without any."""
    if name == "paper" and path is None:
        raise ValueError(
            "preset='paper' is for real filings: give path=, a folder or .zip of edgar-crawler's JSON files"
        )
    if path is None:
        return found
    return replace(found, documents={**found.documents, "path": path}, trials={**found.trials, "path": path})
