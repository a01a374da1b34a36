"""bench: every ranking method on the same trials, judged on the same others, with what it costs.

`lens-heads bench` runs it. What is ranked is stored: an interrupted run continues with the next method.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from rich.console import Console

from lens_heads import plots, report, tasks
from lens_heads.answering.ability import Ability, ability
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.faithfulness import faithfulness
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.controls import Controls
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.identity import identify
from lens_heads.ranking.method import Method
from lens_heads.ranking.registry import identity, resolve
from lens_heads.report import tables
from lens_heads.runs.digests import digest
from lens_heads.runs.files import check_place, plain_name, write_atomic
from lens_heads.runs.store import RunFolder
from lens_heads.runs.tables import read_table, write_table
from lens_heads.runs.typed import typed
from lens_heads.stats import top_k_stability
from lens_heads.studies import pages
from lens_heads.studies.finding import ASKED, asked, meaning, plain
from lens_heads.studies.pages import Shown
from lens_heads.studies.presets import named_preset
from lens_heads.studies.ranking_methods.bench import PLANTED, Bench
from lens_heads.studies.ranking_methods.cell import Cell
from lens_heads.studies.ranking_methods.presets import METRIC, PRESETS, SETUPS, Preset, Setup, gather, setup_of
from lens_heads.studies.ranking_methods.ranking import MethodRankings, planted_quality, rank_all
from lens_heads.studies.ranking_methods.recommend import GOALS, recommend
from lens_heads.studies.runner import Models, PresetOf, StudyRunOptions, at_work, loaded, minutes_per_pass, ready
from lens_heads.studies.seen import Seen, keep, sections
from lens_heads.trials.trial import AnyTrial


@dataclass(frozen=True, eq=False)
class Judged:
    """What the rankings' heads did on test trials: `curve` and `other` (ablated), `kept` (None without pairs)."""

    curve: AblationCurve
    other: AblationCurve
    kept: FaithfulnessCurve | None
    able: Ability | None


def first_look(model: Model, name: str, setup: Setup, plan: Preset, folder: Path | None) -> Ability | None:
    """What the model can do of a task with choices, before any head is ranked; of passages with one needle, what they can show.
    Both are printed."""
    (trials, _), found = setup.load(model, "test", plan.test), None
    said = ""
    if all(trial.choices for trial in trials):
        out = None if folder is None else folder / "ability"
        found = ability(model, trials, batch_size=plan.batch_size, out=out)
        said = str(found)
    elif setup.task == "packaged":
        texts = tasks.packaged(split="select", n=ASKED, **setup.arguments)
        said = meaning(asked(model, texts, None if folder is None else folder / "question"))
    if said:
        tables.show(tables.plain(f"{head_geometry(model).name}, {name}: {said}"))
    return found


def judge(
    model: Model,
    name: str,
    setup: Setup,
    scores: Mapping[str, HeadScores],
    reference: MeanActivations,
    plan: Preset,
    folder: Path | None,
    able: Ability | None = None,
) -> Judged:
    """Of all rankings and of random heads the ablation curves on the task and on its other task, and faithfulness.

    `able`: what the model can do of the task.
    """
    (trials, pairs), other = setup.load(model, "test", plan.test), SETUPS[setup.other]

    def at(name: str) -> Path | None:
        return None if folder is None else folder / name

    def ablated(
        task: str, on: Sequence[AnyTrial], means: MeanActivations, ks: Sequence[int], out: str
    ) -> AblationCurve:
        how: dict[str, Any] = {"reference": means, "generate": False, "batch_size": plan.batch_size, "out": at(out)}
        controls = Controls("random", plan.draws, trials=plan.few)
        return ablation_curve(model, {task: on}, dict(scores), ks=ks, controls=controls, **how)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Ties are the methods' own.
        curve = ablated(name, trials, reference, plan.ks, "ablation")
        aside, (calibrating, _) = other.load(model, "test", plan.other)[0], other.load(model, "select", plan.calibrate)
        beside = ablated(
            setup.other, aside, mean_activations(model, calibrating, n=None, progress=False), (plan.k,), "other"
        )
        kept = None
        if pairs:
            controls = Controls("random", plan.kept_draws, trials=None)
            kept = faithfulness(
                model, pairs[: plan.pairs], dict(scores), controls=controls, out=at("kept"), positions="all"
            )
    return Judged(curve, beside, kept, able)


COLUMNS = ("damage", "area", "beyond_random", "share", "specific", "cpr_log", "cpr", "auroc")


def page(bench: Bench, plan: Preset) -> report.Page:
    """The page for everything measured so far."""
    said, many = str(recommend(bench)).splitlines(), len(bench.cells) > 1
    models, tasks = (", ".join(dict.fromkeys(getattr(one, what) for one in bench.cells)) for what in ("model", "task"))
    figure = bench.plot() if many else bench.plot(bench.cells[0].model, bench.cells[0].task)
    # The method whose heads do most damage, which greedy search's need not.
    most = [str(cell.frame.sort_values("damage")["method"].iloc[-1]) for cell in bench.cells]
    whole = Shown(
        {"plan": plan, "models": models, "tasks": tasks},
        {"overall": bench.overall} if many else {},
        heads=[
            f"{name} does most damage on {cell.task} in {cell.model}"
            for name, cell in zip(most, bench.cells, strict=True)
        ],
        verdict=said[-1] if many else " ".join(line.strip() for line in said[1:3]),
        first=[report.Figure(figure, "Above and to the left is better. Named: no cheaper method does more.")],
    )
    parts = [("overall", whole), *(("cells", _shown(bench, cell)) for cell in bench.cells)]
    for by, goal in reversed(GOALS.items()):
        lines = str(recommend(bench, by=by)).replace("\n  ", "\n\n").replace("\n", "\n\n")
        parts.insert(0, ("goals", Shown({"goal": goal, "said": lines})))
    return pages.page(__name__, whole, parts)


def _shown(bench: Bench, cell: Cell) -> Shown:
    rows = bench.frame[(bench.frame["model"] == cell.model) & (bench.frame["task"] == cell.task)]
    shown = ["method", "passes", "seconds"]
    for name in COLUMNS:
        shown += [name, f"{name}_low", f"{name}_high"]
    figures = {"cost": bench.plot(cell.model, cell.task)}
    if (kept := cell.kept) is not None:  # The six methods with the largest area, and random heads.
        areas = {
            name: kept.cpr(name, scale="log").value for name in kept.frame.query("set == 'top'")["method"].unique()
        }
        best = sorted(areas, key=lambda name: -areas[name])[:6]
        chosen = kept.frame[kept.frame["method"].isin([*best, "any"])]
        figures["kept"] = plots.faithfulness_curves(chosen, kept.mlps)
    left_out = "; ".join(f"{name} ({why})" for name, why in cell.left_out.items())
    none = cell.curve.values(Condition.none(), cell.metric)
    words = {"cell": cell, "trials": len(none), "base": none.mean()}
    words["ability"] = f" {cell.model} {cell.ability}." if cell.ability else ""
    words["metric"] = "answers have a log-probability" if cell.metric == METRIC else "choices have a margin"
    words["left_out"] = f" Left out: {left_out}." if left_out else ""
    return Shown(words, {"methods": rows[[*shown, "cmd", "heads_for_80", "stability"]]}, figures)


SHOWN = 5
"""Methods whose heads the page's explorer shows: those that do most damage."""


@typed
def bench(
    models: Models,
    tasks: Sequence[str] | str = "retrieval",
    methods: Iterable[Any] | None = None,
    *,
    preset: PresetOf[Preset] = "default",
    out: str | Path | None = None,
    arguments: Mapping[str, Any] | None = None,
    **options: Unpack[StudyRunOptions],
) -> Bench:
    """Which method finds the heads that matter, and at what cost? One table for every model and task.

    Args:
        models: names as `load_model` takes them, or loaded models.
        tasks: names of `SETUPS` (retrieval, ioi, arithmetic, induction, capitals, copy_colors, greater_than, choice), or of any
            task with two halves.
        methods: names as in `lh.methods`, your own `Scorer`s, `Method`s, `HeadScores`, or functions of `Material`; None: all
            that apply. Each gets a row.
        preset: "default", "quick", "thorough", or your own `Preset`.
        out: the run folder: a folder per model and task, `report.html` and `bench.json`. The same call continues it, also with
            other methods; other trials are refused.
        arguments: further arguments of the task, if there is one.
        **options: those of `load_model` for models given by name; `workers` and `num_gpus` as in `lh.worker_pool`; `command`,
            shown on the page, by default the running command; `plan`: only print about how many passes it takes, and return an
            empty table.

    Methods rank heads on the same selection trials. Their top heads are ablated (mean of other trials) and kept on the same test
    trials. A method that fails is left out, with a warning.

    Raises ValueError for an unknown task, method or preset, no models, and a folder with other settings.

    Example:
        >>> plan = lh.studies.bench(model, "arithmetic", ["dla"], arguments={"digits": 1}, plan=True)
        bench: what it would cost, in passes of one trial ...
        >>> len(plan.cells)
        0
    """
    size, name = named_preset(preset, PRESETS)
    listed = [tasks] if isinstance(tasks, str) else list(tasks)
    if not listed:
        raise ValueError("there are no tasks: name at least one, e.g. 'retrieval'")
    if arguments and len(listed) > 1:
        raise ValueError(f"arguments= belong to one task, but there are {len(listed)}: run them separately")
    setups = {task: setup_of(task, dict(arguments or {})) for task in listed}
    chosen, given = resolve(methods), ready(models, options)
    if options.get("plan"):
        return _planned(given, setups, chosen, size, options)
    folder, console, cells = None if out is None else check_place(out), Console(emoji=False), []
    if folder is None:
        planted = planted_quality(chosen, size.planted, size.masks)
    else:  # Stored for these methods.
        label = digest([[identity(method) for method in chosen], size.planted, size.masks])[:12]
        if not (file := folder / f"planted-{label}.parquet").exists():
            write_table(file, planted_quality(chosen, size.planted, size.masks))
        planted = read_table(file)
    for one in given:
        with at_work(one, options) as model:
            require_raw_weights(model)
            for task, setup in setups.items():
                console.rule(tables.plain(f"{head_geometry(model).name}, {task}"))
                cells.append(_cell(model, task, setup, chosen, size, folder))
                found = Bench(cells, planted)
                tables.show(tables.bench(found.cell(cells[-1].model, task).frame))
                if folder is not None:
                    _write(found, size, name, folder, options.get("command"))
        del model  # Before the next one is loaded.
    return Bench(cells, planted)


def _cell(model: Model, task: str, setup: Setup, chosen: Sequence[Method], plan: Preset, out: Path | None) -> Cell:
    """One model and task: rank, judge, and store."""
    name = plain_name(Path(head_geometry(model).name).name, "model")
    folder = None
    if out is not None:
        folder = out / name / plain_name(task, "task")
        settings = {**identify(model).settings, "preset": asdict(plan), "setup": asdict(setup)}
        RunFolder(folder, settings)
    material = gather(model, setup, plan.select, plan.calibrate, masks=plan.masks, k=plan.k, seed=plan.seed)
    able = first_look(model, task, setup, plan, folder)
    found = rank_all(chosen, material, plan, folder)
    if not found.scores:
        raise ValueError(f"no method ranked the heads of {name} on {task}: {found.left_out}")
    judged = judge(model, task, setup, found.scores, material.reference, plan, folder, able)
    families = {method.name: method.family for method in chosen}
    cell = cell_of(name, task, plan, families, found, judged, setup.metric)
    if folder is not None:
        cell.save(folder)
        best = sorted(cell.methods, key=lambda method: -cell.goodness(method, "damage"))[:SHOWN]
        shown = {method: found.scores[method] for method in best}
        keep(folder, model, Seen(setup.load(model, "test", plan.test)[0], shown, cell.curve))
    return cell


def cell_of(
    model: str,
    task: str,
    plan: Preset,
    families: Mapping[str, str],
    found: MethodRankings,
    judged: Judged,
    metric: str,
) -> Cell:
    """A cell from the rankings and what their heads did."""
    k = min(plan.k, max(one.k for one in judged.curve.conditions()))
    rows = [
        {"method": name, "family": families[name], "passes": found.passes[name], "seconds": found.seconds[name]}
        | _stability(scores, found.halves.get(name), k)
        for name, scores in found.scores.items()
    ]
    able = {} if judged.able is None else {"ability": str(judged.able), "does": judged.able.does}
    parts = (judged.curve, judged.other, judged.kept, found.left_out)
    return Cell(model, task, k, pd.DataFrame(rows), *parts, metric=metric, **able)


def _stability(scores: HeadScores, halves: tuple[HeadScores, HeadScores] | None, k: int) -> dict[str, float]:
    """The Jaccard of the top k heads of two halves of the trials, and that of random sets.

    NaN for methods whose trials cannot be halved, unless two runs on half of them are given.
    """
    chance = top_k_stability(np.zeros((1, len(scores.flat))), k=k).expected
    if halves is not None:
        one, other = (set(half.ranking()[:k]) for half in halves)
        return {"stability": len(one & other) / len(one | other), "chance": chance}
    if scores.selected or not len(scores.trial_ids):
        return {"stability": math.nan, "chance": chance}
    return {"stability": float(scores.stability(k).jaccard), "chance": chance}


def _write(bench: Bench, plan: Preset, preset: str, out: Path, command: str | None) -> None:
    """The page, the table as JSON, and the planted models' values."""
    found = page(bench, plan)
    seen = {
        f"{cell.model}, {cell.task}: see the heads": out / cell.model / plain_name(cell.task, "task")
        for cell in bench.cells
    }
    provenance = report.Provenance.now(settings={"preset": preset, "settings": asdict(plan)}, command=command)
    report.write_report(
        out / "report.html", found.title, found.summary, [*found.sections, *sections(seen)], provenance=provenance
    )
    write_table(out / PLANTED, bench.planted)
    text = {"preset": preset, "settings": asdict(plan), "methods": bench.frame.to_dict("records")}
    write_atomic(out / "bench.json", json.dumps(plain(text), indent=1, allow_nan=False) + "\n")


def _planned(
    given: Sequence[Any], setups: Mapping[str, Setup], chosen: Sequence[Method], plan: Preset, options: StudyRunOptions
) -> Bench:
    """Print what the methods of every family and the judging would cost, in passes of one trial, and what is left out."""
    rows, console = [], Console(emoji=False)
    for one in given:
        model = loaded(one, options)
        shape = head_geometry(model)
        costs = {method.name: method.passes(shape, plan.masks, plan.k) for method in chosen}
        for task, setup in setups.items():
            trials, _ = setup.load(model, "test", plan.test)
            why = {method.name: method.lacks(trials, plan.calibrate > 0) for method in chosen}
            why |= {
                name: why[name] or f"about {passes:.0f} passes, more than {plan.searched}"
                for name, passes in costs.items()
                if passes > plan.searched
            }
            able = [method for method in chosen if not why[method.name]]
            families = pd.Series({method.name: method.family for method in able}, dtype=object)
            ranking = pd.Series(costs)[families.index].groupby(families, sort=False).sum() * plan.select
            parts = {f"rank: {family}": float(passes) for family, passes in ranking.items()}
            parts["ablation"] = len(plan.ks) * (len(able) * plan.test + plan.draws * plan.few)
            parts["other task"] = (len(able) + plan.draws) * plan.other
            parts["faithfulness"] = 6 * (len(able) + plan.kept_draws) * plan.pairs
            minutes = minutes_per_pass(model, trials, plan.batch_size)
            about = f"{shape.name}, {task}"
            rows += [{"model": about, "stage": part, "passes": n, "minutes": n * minutes} for part, n in parts.items()]
            for name, reason in why.items():
                if reason:
                    console.print(tables.plain(f"{about}: {name} is left out: {reason}"))
    tables.show(tables.planned(pd.DataFrame(rows), "bench: what it would cost, in passes of one trial"))
    return Bench([], pd.DataFrame())
