"""The study of choices: which heads pick, of two needles of one kind, the one that the question asks for?

`choosing` runs it. A model that does not do the task gets no verdict on its heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import report
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.asked import ASKED, asked
from lens_heads.studies.presets import named_preset, resized, trials_of
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct, several
from lens_heads.studies.seen import Seen
from lens_heads.studies.two_needles import stages
from lens_heads.studies.two_needles.claims import claims, registered
from lens_heads.studies.two_needles.finding import ChoosingFinding, ability_table, by_kind, looked_at
from lens_heads.studies.two_needles.page import page
from lens_heads.studies.two_needles.presets import KINDS, LEAD, METRIC, PRESETS, Preset
from lens_heads.trials.trial import Trial


@typed
def choosing(
    models: Models = MODELS,
    preset: PresetOf[Preset] = "direct",
    out: str | Path = "runs/choosing",
    command: str | None = None,
    max_trials: int | None = None,
    plan: bool = False,
    **loading: Unpack[StudyOptions],
) -> list[ChoosingFinding]:
    """Which heads choose what the question asks for? Passages hold two needles of one kind, and each is asked for in turn.

    First comes what the model can do: only passages of which it answers both questions are used, and of a model that is not
    better than chance nothing more is said. Heads are ranked by every one-pass method, by scores that use the second needle, and
    by patching with exchanged questions; their top heads are ablated where the answer begins, under four kinds of ablation. The
    measure is the choice, log p(right) - log p(other), beside the right answer's log-probability.

    Args:
        models: names as `load_model` takes them, or loaded models.
        preset: "direct", "onehop", "twohop" (kinds of question), each also with "-chat" for models that answer in a chat,
            "quick", "negative-model", or your own `Preset`.
        out: the run folder, as in `locos`. The same call continues it; other settings are refused.
        command: shown on the page; default: the running command.
        max_trials: in place of the preset's: the most test questions.
        plan: only print what it would cost, and return nothing.
        **loading: options of `load_model` (device, dtype, ...) for models given by name, and `workers` and `num_gpus` as in
            `lh.worker_pool`.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.

    Example:
        >>> lh.studies.choosing(model, preset="quick", plan=True)
        choosing: what it would cost ...
        []
    """
    size, name = named_preset(preset, PRESETS)
    study = ChoosingStudy(resized(size, None, max_trials), name)
    return conduct(study, several(models), out, command, plan, loading)[0]


class ChoosingStudy(Study[Preset, ChoosingFinding]):
    """The study of choices for the runner."""

    name = "choosing"

    def check(self, model: Model) -> None:
        framed = any(call[1].get("chat") for call in (self.plan.select, self.plan.test))
        if framed and not model.tokenizer.chat_template:
            raise ValueError(
                f"preset={self.preset!r} frames prompts by a chat template, and {head_geometry(model).name} has none: use "
                f"{self.preset.removesuffix('-chat')!r}"
            )

    def one(self, model: Model, run: StageRun) -> ChoosingFinding:
        plan, folder = self.plan, run.folder
        select, test = trials_of(plan.select), trials_of(plan.test)
        first = run.stage("ability", stages.can, model, select, plan, folder / "ability")
        tables.show(tables.plain(f"{head_geometry(model).name}, selection passages: {first.able}"))
        question = run.stage("question", asked, model, select, folder / "question")
        judging = run.stage("test ability", stages.can, model, test, plan, folder / "ability-test")
        ranking, passing = (stages.comparable(model, one.passing) for one in (first, judging))
        found = ChoosingFinding(
            model=head_geometry(model).name,
            frames={"ability": judging.able.frame},
            trials={"ability_trials": ability_table(judging.able)},
            able=judging.able,
            question=question,
            passages={"all": len(test), "both right": len(passing)},
        )
        if not isinstance(question, str):
            found.frames["question"] = question.frame
        if first.able.does and judging.able.does and min(len(ranking), len(passing)) >= FEWEST:
            rank, judge = stages.asked_twice(ranking[: plan.choose]), stages.asked_twice(passing, plan.max_trials)
            found = measured(found, stages.Setup(model, plan, rank, judge, folder), run)
        tables.show(tables.plain(found.sentence))
        found.frames["claims"] = claims(found)
        return found

    def seen(self, found: ChoosingFinding) -> Seen | None:
        if not found.curves:
            return None
        names = [name for name in (LEAD, "attention_mass", stages.PATCHED) if name in found.scores]
        return Seen(trials_of(self.plan.test), {name: found.scores[name] for name in names}, found.curves[KINDS[0]])

    def registered(self) -> pd.DataFrame:
        return registered(self.plan)

    def costs(self, model: Model) -> dict[str, int]:
        shape, plan = head_geometry(model), self.plan
        heads, (select, test) = shape.n_layers * shape.n_heads, (call[1]["n"] for call in (plan.select, plan.test))
        judged = min(plan.max_trials, 2 * test)
        whole = min(plan.whole, judged)
        return {
            "ability": 2 * (select + test),
            "question": 3 * min(ASKED, select),
            "ranking": 2 * min(plan.choose, select) * 4,
            # Where only the last row is ablated, one prefill serves all sets of heads: about so many more in all.
            "judging": len(KINDS) * judged * 3,
            "everywhere": whole * (1 + len(plan.whole_ks) * (len(stages.LEADS) + 1 + plan.whole_draws)),
            "patching": 2 * min(plan.choose, select) * (2 + heads // 20),
        }

    def probe(self) -> list[Trial]:
        return trials_of(self.plan.test)[:4]

    def page(self, findings: Sequence[ChoosingFinding], pairs: Sequence[Any]) -> report.Page:
        return page(findings, self.plan)


def measured(found: ChoosingFinding, setup: stages.Setup, run: StageRun) -> ChoosingFinding:
    """The finding with all that follows the gate."""
    scores = run.stage("ranking", stages.ranked, setup)
    k = run.stage("choice", stages.chosen, setup, scores)
    curves = run.stage("judging", stages.judged, setup, scores)
    literal = run.stage("reading", stages.literal, setup)
    tables.show(tables.curve(curves[KINDS[0]], METRIC))
    found = replace(found, k=k, scores=scores, curves=curves, literal=literal)
    found.frames.update(
        areas=by_kind(curves, METRIC, LEAD),
        answer_areas=by_kind(curves, "logprob", LEAD),
        judged=together({kind: curve.frame for kind, curve in curves.items()}),
        heads=looked_at(found),
    )
    found.trials["judged_trials"] = together({kind: curve.per_trial for kind, curve in curves.items()})
    return found


def together(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of all kinds of ablation as one, each of which names its kind."""
    return pd.concat([frame.assign(kind=kind) for kind, frame in frames.items()], ignore_index=True)
