"""The study runner: it runs a study on each model in turn, then on each pair, and writes the page and the JSON as it goes.

A study supplies its presets, stages, claims and page (`Study`). Folders, timing, resuming and output live here.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar

import pandas as pd
from rich.console import Console

from lens_heads import report
from lens_heads.answering.evaluation import evaluate
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.interventions.ablate import ablate
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identify
from lens_heads.model.load import LoadOptions, check_loading, load_model
from lens_heads.model.worker_devices import check_workers
from lens_heads.model.workers import worker_pool
from lens_heads.report import tables
from lens_heads.runs.files import check_place, plain_name, write_atomic
from lens_heads.runs.reading import read_json
from lens_heads.runs.store import RunFolder, running_command, versions
from lens_heads.runs.tables import write_table
from lens_heads.runs.typed import LISTED, Default
from lens_heads.sanity.models import random_initialised
from lens_heads.studies import pages
from lens_heads.studies.claims import Claim, published, registered
from lens_heads.studies.finding import Finding, plain
from lens_heads.studies.pages import Shown
from lens_heads.studies.seen import Seen, keep, sections
from lens_heads.trials.trial import AnyTrial, Trial

MODELS = ("gemma-3-270m", "smollm2-135m-instruct")
"""The packaged models."""
Models = Iterable[str | Path | Model] | str | Path | Model
Value = TypeVar("Value")
Plan = TypeVar("Plan")
PresetOf: TypeAlias = Annotated[str | Plan, LISTED]
"""A preset of a study, or its name; `named_preset` lists the names."""


AnyFinding = TypeVar("AnyFinding", bound=Finding)


class StudyRunOptions(LoadOptions, total=False):
    """The options of `load_model` for models given by name, the workers of `lh.worker_pool`, and how a study is run.

    `command`: shown on the page; default: the running command. `plan`: only print what it would cost, from the preset and one
    measured block, and return nothing.
    """

    workers: int | str | None
    num_gpus: Annotated[float, Default(1)]
    command: str | None
    plan: Annotated[bool, Default(False)]


class StudyOptions(StudyRunOptions, total=False):
    """Those of `load_model` and `StudyRunOptions`; and in place of the preset's: `precision`, the half-width in nats at which
    no more test trials are run, and `max_trials`, the most of them.
    """

    precision: float | None
    max_trials: int | None


@dataclass(frozen=True, eq=False)
class StageRun:
    """Where the stages of a study work: the run folder, and the time each stage took."""

    folder: Path
    settings: dict[str, Any]
    console: Console
    seconds: dict[str, float]

    @classmethod
    def begin(cls, folder: Path, settings: dict[str, Any], console: Console) -> StageRun:
        """Open the folder, or continue it. Raises ValueError if it holds a run with other settings."""
        RunFolder(folder, settings)
        try:
            seconds = {str(stage): float(spent) for stage, spent in read_json(folder / "seconds.json").items()}
        except (OSError, ValueError, TypeError, AttributeError):  # Forgotten, since no result depends on them.
            seconds = {}
        return cls(folder, settings, console, seconds)

    def stage(self, name: str, work: Callable[..., Value], *args: Any) -> Value:
        """Run a stage and record its time, which adds up over interrupted runs."""
        started = time.monotonic()
        try:
            return work(*args)
        finally:
            now = time.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + now
            write_atomic(self.folder / "seconds.json", json.dumps(self.seconds))
            self.console.print(f"{tables.plain(name)}: {now:.0f} s")

    def keep(self, found: AnyFinding) -> AnyFinding:
        """Store the tables of a finding as Parquet, print its claims, and add the settings and times of this run."""
        for name, frame in found.all_frames().items():
            write_table(self.folder / "tables" / f"{name}.parquet", frame)
        tables.show(tables.claims(found.claims.astype({"value": float, "low": float}), f"{found.model}: claims"))
        return replace(found, settings=self.settings, seconds=self.seconds)


class Study(ABC, Generic[Plan, AnyFinding]):
    """What a study supplies: `name` (of its JSON file), its plan (a preset), and the methods below."""

    name: ClassVar[str]

    def __init__(self, plan: Plan, preset: str, extra: Mapping[str, Any] | None = None) -> None:
        self.plan, self.preset, self.extra = plan, preset, dict(extra or {})

    def check(self, model: Model) -> None:
        """Refuse a model that the study cannot run on, before its folder is created."""

    def claims(self) -> Sequence[Claim]:
        """The claims that this plan can judge."""
        return published(type(self).__module__)["claims"]

    def words(self) -> dict[str, Any]:
        """What fills the texts of the claims, and of the page."""
        return {"plan": self.plan, **vars(self.plan)}

    def registered(self) -> pd.DataFrame:
        """The claims before anything runs: id, claim, estimand, metric, threshold, k, n, holds_if."""
        return registered(type(self).__module__, self.claims(), self.words())

    @abstractmethod
    def costs(self, shape: HeadGeometry) -> dict[str, int]:
        """Trial-passes (one trial under one set of heads) by stage, from the preset alone."""

    @abstractmethod
    def probe(self) -> list[Trial]:
        """A few of the trials that the study runs, to measure what a pass takes."""

    @abstractmethod
    def one(self, model: Model, run: StageRun) -> AnyFinding:
        """Run the study on one model."""

    def seen(self, found: AnyFinding) -> Seen | None:
        """What the explorer on the page shows of a model; None for no explorer."""
        return None

    def pair_settings(self, a: AnyFinding, b: AnyFinding) -> dict[str, Any] | None:
        """What the part on two models depends on; None if the study has no such part."""
        return None

    def two(self, models: tuple[Model, Model], a: AnyFinding, b: AnyFinding, run: StageRun) -> Any:
        """Run the part on two models."""
        raise NotImplementedError

    def page(self, findings: Sequence[AnyFinding], pairs: Sequence[Any]) -> report.Page:
        """The page for everything found so far: that of `page.json`, with the words and tables that all studies have."""
        whole = self.shown(findings, pairs)
        words = {**self.words(), "models": ", ".join(each.model for each in findings)}
        words |= {"control": getattr(self.plan, "control", None) or ""}
        words |= {"claims": "; ".join(f"{each.model}: {pages.counted(each.claims)}" for each in findings)}
        tables = {"registered": self.registered(), **whole.tables}
        parts = [("pairs", each, self.shown_pair(each)) for each in pairs]
        parts += [("models", each, self.shown_model(each)) for each in findings]
        filled = [
            (
                name,
                replace(one, words={**self.words(), "each": each, **one.words}, tables={**_stored(each), **one.tables}),
            )
            for name, each, one in parts
        ]
        return pages.page(type(self).__module__, replace(whole, words={**words, **whole.words}, tables=tables), filled)

    def shown(self, findings: Sequence[AnyFinding], pairs: Sequence[Any]) -> Shown:
        """What the page shows of all models together: the table of claims, the summary, and what else it has."""
        raise NotImplementedError

    def shown_model(self, each: AnyFinding) -> Shown:
        """What the page shows of a model besides its tables."""
        raise NotImplementedError

    def shown_pair(self, each: Any) -> Shown:
        """What the page shows of two models besides their tables."""
        raise NotImplementedError

    def beside(self, findings: Sequence[AnyFinding]) -> dict[str, Any]:
        """What the JSON holds about all models together."""
        return {}


def _stored(each: Finding) -> dict[str, Any]:
    """The tables of a finding that have rows."""
    return {name: frame for name, frame in each.frames.items() if not frame.empty}


def conduct(
    study: Study[Plan, AnyFinding], models: Models, out: str | Path, options: StudyRunOptions
) -> tuple[list[AnyFinding], list[Any]]:
    """Run a study, and return what it found in every model and in every pair; with `plan`, only print what it would cost.

    `report.html`, `study_<name>.json` and the Parquet tables are written after every model and every pair, so a later failure
    loses nothing, and the same call continues a run folder. At most two models are loaded at a time.
    """
    if options.get("plan"):
        planned(study, models, options)
        return [], []
    out, console, listed, plan = check_place(out), Console(emoji=False), ready(models, options), study.plan
    findings: list[AnyFinding] = []
    pairs: list[Any] = []
    tables.show(tables.registered(study.registered(), f"{study.name}: registered before the run"))
    for given in listed:
        with at_work(given, options, plan) as model:
            study.check(model)
            name = head_geometry(model).name
            console.rule(tables.plain(name))
            settings = {**identify(model).settings, "preset": asdict(plan), **study.extra}  # type: ignore[call-overload]  # a dataclass
            run = StageRun.begin(out / plain_name(Path(name).name, "model"), settings, console)
            findings.append(replace(run.keep(study.one(model, run)), file_sha256=file_sha256(given)))
            if (shown := study.seen(findings[-1])) is not None:
                run.stage("explorer", keep, run.folder, model, shown)
            _write(study, findings, pairs, out, options.get("command"))
            for earlier, a in zip(listed, findings[:-1], strict=False):
                b, settings = findings[-1], study.pair_settings(a, findings[-1])
                if settings is not None:
                    console.rule(tables.plain(f"{a.model} and {b.model}"))
                    run = StageRun.begin(out / f"{a.name}--{b.name}", settings, console)
                    first = controlled(loaded(earlier, options), plan)
                    pairs.append(run.keep(study.two((first, model), a, b, run)))
                    _write(study, findings, pairs, out, options.get("command"))
        del model  # Before the next one is loaded.
    minutes = sum(sum(each.seconds.values()) for each in [*findings, *pairs]) / 60
    console.print(
        f"\nReport: [bold]{tables.plain(str(out / 'report.html'))}[/]   ({minutes:.1f} minutes)", soft_wrap=True
    )
    return findings, pairs


def planned(study: Study[Any, Any], models: Models, options: StudyRunOptions) -> pd.DataFrame:
    """What a study would cost, before it runs: a row per model and stage with passes and minutes, and prints it.

    Minutes are the passes times what one takes in a measured block: the probe's trials, ablated from the middle layer on. A
    stage that decodes, or that patches many heads at once, takes more or less than that.
    """
    rows = []
    for given in ready(models, options):
        model = loaded(given, options)
        shape, trials = head_geometry(model), study.probe()
        minutes = minutes_per_pass(model, trials)
        rows += [
            {"model": shape.name, "stage": stage, "passes": passes, "minutes": passes * minutes}
            for stage, passes in study.costs(shape).items()
        ]
    found = pd.DataFrame(rows)
    tables.show(tables.planned(found, f"{study.name}: what it would cost"))
    return found


def minutes_per_pass(model: Model, trials: Sequence[AnyTrial], batch_size: int = 1) -> float:
    """What one trial under one set of heads takes, measured on these trials, ablated from the middle layer on."""
    heads = [Head(head_geometry(model).n_layers // 2, 0)]
    with ablate(model, heads, kind="zero"):
        evaluate(model, trials[:1], generate=False, progress=False)  # The first pass is slower.
        started = time.monotonic()
        evaluate(model, trials, generate=False, batch_size=batch_size, progress=False)
    return (time.monotonic() - started) / len(trials) / 60


def controlled(model: Model, plan: Any) -> Model:
    """The model, or an untrained one if the preset is that negative control."""
    return random_initialised(model) if getattr(plan, "control", None) == "random_initialised" else model


def _write(
    study: Study[Plan, AnyFinding], findings: list[AnyFinding], pairs: list[Any], out: Path, command: str | None
) -> None:
    """Write the page and the JSON of everything found so far."""
    command, page = command or running_command(), study.page(findings, pairs)
    provenance = report.Provenance.now(
        settings={"preset": study.preset, "settings": findings[0].settings["preset"]}, command=command
    )
    explored = sections({f"{each.model}: see the heads": out / plain_name(each.name, "model") for each in findings})
    parts = [*page.sections[:1], *explored, *page.sections[1:]]
    report.write_report(out / "report.html", page.title, page.summary, parts, provenance=provenance)
    text = {"command": command, "preset": study.preset, "versions": versions(), **study.beside(findings)}
    text["models"] = {each.model: each.summary() for each in findings}
    text |= {"pairs": [each.summary() for each in pairs]} if pairs else {}
    write_atomic(out / f"study_{study.name}.json", json.dumps(plain(text), indent=1, allow_nan=False) + "\n")


def several(models: Models) -> list[Any]:
    """The models as a list. Raises ValueError if there are none, or if two have the same name."""
    single = isinstance(models, str | Path) or hasattr(models, "cfg")
    if not single and not isinstance(models, Iterable):
        raise TypeError(f"models={models!r:.60}: must be names as load_model takes them, or loaded models")
    listed: list[Any] = [models] if single else list(models)  # type: ignore[arg-type]  # not single
    if not listed:
        raise ValueError("there are no models: name at least one")
    names = [Path(str(one) if isinstance(one, str | Path) else head_geometry(one).name).name for one in listed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"two models are called {twice!r}, and results are stored by name: rename one, or run them separately"
        )
    return listed


def ready(models: Models, options: StudyRunOptions) -> list[Any]:
    """The models as a list. ValueError, TypeError or OSError for all that is wrong with any before one is loaded: it would show
    hours later."""
    listed, loading = several(models), _loads(options)
    named = [one for one in listed if isinstance(one, str | Path)]
    if loading and not named:
        raise TypeError(f"unexpected {', '.join(loading)}: models that are already loaded take no loading options")
    for name in named:
        check_loading(name, **loading)
    check_workers(options.get("workers"), options.get("num_gpus", 1))
    return listed


def loaded(given: Any, options: StudyRunOptions) -> Model:
    """The model, loaded if it is given by name."""
    return load_model(given, **_loads(options)) if isinstance(given, str | Path) else given


@contextmanager
def at_work(given: Any, options: StudyRunOptions, plan: Any = None) -> Iterator[Model]:
    """The model that a plan is about, with the workers that the options of a study may name (`workers`, `num_gpus`)."""
    model = controlled(loaded(given, options), plan)
    with worker_pool(model, options.get("workers"), num_gpus=options.get("num_gpus", 1)):
        yield model


def _loads(options: StudyRunOptions) -> LoadOptions:
    """The options of `load_model` among those of a study."""
    own = ("workers", "num_gpus", "command", "plan")
    return {name: value for name, value in options.items() if name not in own}  # type: ignore[return-value]  # the others


def file_sha256(given: Any) -> str | None:
    """The sha256 of the file that a model is loaded from, if it is a single one."""
    if not isinstance(given, str | Path) or not Path(given).is_file():
        return None
    with open(given, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
