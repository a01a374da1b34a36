"""bench: every ranking method on the same trials, judged on the same others, with what it costs.

`lens-heads bench` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
from rich.console import Console

from lens_heads import report
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
from lens_heads.studies.finding import plain
from lens_heads.studies.presets import named_preset
from lens_heads.studies.ranking_methods.bench import PLANTED, Bench
from lens_heads.studies.ranking_methods.cell import Cell
from lens_heads.studies.ranking_methods.page import page
from lens_heads.studies.ranking_methods.presets import PRESETS, Preset, Setup, gather, setup_of
from lens_heads.studies.ranking_methods.ranking import judge, planted_quality, rank_all
from lens_heads.studies.runner import Models, PresetOf, StudyOptions, at_work, loaded, minutes_per_pass, ready
from lens_heads.studies.seen import Seen, keep, sections

SHOWN = 5
"""Methods whose heads the page's explorer shows: those that do most damage."""


@typed
def bench(
    models: Models,
    tasks: Sequence[str] | str = "retrieval",
    methods: Iterable[Any] | None = None,
    preset: PresetOf[Preset] = "default",
    out: str | Path | None = None,
    arguments: Mapping[str, Any] | None = None,
    plan: bool = False,
    command: str | None = None,
    **loading: Unpack[StudyOptions],
) -> Bench:
    """Which method finds the heads that matter, and at what cost? One table for every model and task.

    Args:
        models: names as `load_model` takes them, or loaded models.
        tasks: names of `presets.SETUPS` (retrieval, ioi, arithmetic, induction, capitals, copy_colors), or of any task with two
            halves.
        methods: names as in `lh.methods()`, your own `Scorer`s, `Method`s, `HeadScores`, or functions of `Material`; None: all
            that apply. Each gets a row.
        preset: "default", "quick", "thorough", or your own `Preset`.
        out: the run folder: a folder per model and task, `report.html` and `bench.json`. The same call continues it, also with
            other methods; other trials are refused.
        arguments: further arguments of the task, if there is one.
        plan: only print about how many passes it takes, and return an empty table.
        command: shown on the page; default: the running command.
        **loading: options of `load_model` for models given by name, and `workers` and `num_gpus` as in `lh.worker_pool`.

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
    chosen, given = resolve(methods), ready(models, loading)
    if plan:
        return _planned(given, setups, chosen, size, loading)
    folder, console, cells = None if out is None else check_place(out), Console(emoji=False), []
    if folder is None:
        planted = planted_quality(chosen, size.planted, size.masks)
    else:  # Stored for these methods.
        label = digest([[identity(method) for method in chosen], size.planted, size.masks])[:12]
        if not (file := folder / f"planted-{label}.parquet").exists():
            write_table(file, planted_quality(chosen, size.planted, size.masks))
        planted = read_table(file)
    for one in given:
        with at_work(one, loading) as model:
            require_raw_weights(model)
            for task, setup in setups.items():
                console.rule(tables.plain(f"{head_geometry(model).name}, {task}"))
                cells.append(_cell(model, task, setup, chosen, size, folder))
                found = Bench(cells, planted)
                tables.show(tables.bench(found.cell(cells[-1].model, task).frame))
                if folder is not None:
                    _write(found, size, name, folder, command)
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
    found = rank_all(chosen, material, plan, folder)
    if not found.scores:
        raise ValueError(f"no method ranked the heads of {name} on {task}: {found.left_out}")
    judged = judge(model, task, setup, found.scores, material.reference, plan, folder)
    families = {method.name: method.family for method in chosen}
    cell = Cell.of(name, task, plan, families, found, judged)
    if folder is not None:
        cell.save(folder)
        best = sorted(cell.methods, key=lambda method: -cell.goodness(method, "damage"))[:SHOWN]
        shown = {method: found.scores[method] for method in best}
        keep(folder, model, Seen(setup.load(model, "test", plan.test)[0], shown, cell.curve))
    return cell


def _write(bench: Bench, plan: Preset, preset: str, out: Path, command: str | None) -> None:
    """The page, the table as JSON, and the planted models' values."""
    found = page(bench, plan)
    seen = {
        f"{cell.model}, {cell.task}: see the heads": out / cell.model / plain_name(cell.task, "task")
        for cell in bench.cells
    }
    provenance = report.Provenance.now({"preset": preset, "settings": asdict(plan)}, command)
    report.write_report(out / "report.html", found.title, found.summary, [*found.sections, *sections(seen)], provenance)
    write_table(out / PLANTED, bench.planted)
    text = {"preset": preset, "settings": asdict(plan), "methods": bench.frame.to_dict("records")}
    write_atomic(out / "bench.json", json.dumps(plain(text), indent=1, allow_nan=False) + "\n")


def _planned(
    given: Sequence[Any], setups: Mapping[str, Setup], chosen: Sequence[Method], plan: Preset, loading: StudyOptions
) -> Bench:
    """Print what the methods of every family and the judging would cost, in passes of one trial, and what is left out."""
    rows, console = [], Console(emoji=False)
    for one in given:
        model = loaded(one, loading)
        shape = head_geometry(model)
        costs = {method.name: method.passes(shape, plan.masks, plan.k) for method in chosen}
        able = [method for method in chosen if costs[method.name] <= plan.searched]
        families = pd.Series({method.name: method.family for method in able}, dtype=object)
        ranking = pd.Series(costs)[families.index].groupby(families, sort=False).sum() * plan.select
        parts = {f"rank: {family}": float(passes) for family, passes in ranking.items()}
        parts["ablation"] = len(plan.ks) * (len(able) * plan.test + plan.draws * plan.few)
        parts["other task"] = (len(able) + plan.draws) * plan.other
        parts["faithfulness"] = 6 * (len(able) + plan.kept_draws) * plan.pairs
        for task, setup in setups.items():
            trials, _ = setup.load(model, "test", plan.test)
            minutes = minutes_per_pass(model, trials, plan.batch_size)
            about = {"model": f"{shape.name}, {task}"}
            rows += [about | {"stage": part, "passes": n, "minutes": n * minutes} for part, n in parts.items()]
        dear = ", ".join(f"{name} ({passes:.0f})" for name, passes in costs.items() if passes > plan.searched)
        if dear:
            console.print(tables.plain(f"{shape.name}: above {plan.searched} passes, so left out: {dear}"))
    tables.show(tables.planned(pd.DataFrame(rows), "bench: what it would cost, in passes of one trial"))
    return Bench([], pd.DataFrame())
