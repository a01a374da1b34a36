"""The one study runner: models in turn, folders, a clock over stages, page and JSON after every model, two models at a time.

A study brings its presets, its stages, its claims and the sections of its page (`Study`); the rest is here.
"""

from __future__ import annotations

import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pandas as pd
from rich.console import Console

from lens_heads import report
from lens_heads.model.geometry import Model, geometry
from lens_heads.model.identity import identify
from lens_heads.model.load import load_model
from lens_heads.report import tables
from lens_heads.runs.store import RunFolder, running_command, versions, write_atomic

MODELS = ("gemma-3-270m", "smollm2-135m-instruct")
"""The packaged ones."""
Models = Iterable[str | Path | Model] | str | Path | Model
Value = TypeVar("Value")
Plan = TypeVar("Plan")


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """What a study found in one model, or in two beside each other.

    `frames`: every table by name, "claims" among them; `trials`: tables of single trials, which stay out of the JSON.
    `settings`: what the run folder was made under. `seconds` by stage.
    """

    model: str
    settings: dict[str, Any]
    frames: dict[str, pd.DataFrame]
    trials: dict[str, pd.DataFrame] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's name without its organisation or folder."""
        return Path(self.model).name

    @property
    def claims(self) -> pd.DataFrame:
        """One row per claim, with its verdict."""
        return self.frames["claims"]

    def all_frames(self) -> dict[str, pd.DataFrame]:
        """Every table that the run folder keeps."""
        return {**self.frames, **self.trials}

    def notes(self) -> dict[str, Any]:
        """What the JSON says beside the tables."""
        return {}

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        seconds = {stage: round(spent, 1) for stage, spent in self.seconds.items()}
        frames = {name: records(frame) for name, frame in self.frames.items()}
        return {"settings": self.settings, "seconds": seconds, **self.notes(), **frames}


Found = TypeVar("Found", bound=Finding)


@dataclass(frozen=True, eq=False)
class StageRun:
    """Where a study's stages work: the folder, and the clock over them."""

    folder: Path
    settings: dict[str, Any]
    console: Console
    seconds: dict[str, float]

    @classmethod
    def begin(cls, folder: Path, settings: dict[str, Any], console: Console) -> StageRun:
        """Open or continue the folder. ValueError when it holds a run of other settings."""
        RunFolder(folder, settings)
        file = folder / "seconds.json"
        return cls(folder, settings, console, json.loads(file.read_text()) if file.exists() else {})

    def stage(self, name: str, work: Callable[..., Value], *args: Any, **options: Any) -> Value:
        """Run a stage, say so, and remember in the folder how long it took, over all the runs that it needed."""
        started = time.monotonic()
        try:
            return work(*args, **options)
        finally:  # An interrupted stage is continued: what it took so far counts too.
            now = time.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + now
            write_atomic(self.folder / "seconds.json", json.dumps(self.seconds))
            self.console.print(f"{name}: {now:.0f} s")


class Study(ABC, Generic[Plan, Found]):
    """What a study brings: `name` (of its JSON), its plan (a preset), and the methods below."""

    name: ClassVar[str]

    def __init__(self, plan: Plan, preset: str, extra: Mapping[str, Any] | None = None) -> None:
        self.plan, self.preset, self.extra = plan, preset, dict(extra or {})

    def check(self, model: Model) -> None:
        """Refuse, before a folder is made, a model on which the study cannot run."""

    @abstractmethod
    def one(self, model: Model, run: StageRun) -> Found:
        """The whole study on one model."""

    def pair_settings(self, a: Found, b: Found) -> dict[str, Any] | None:
        """What the part on two models depends on; None where the study has no such part."""
        return None

    def two(self, models: tuple[Model, Model], a: Found, b: Found, run: StageRun) -> Any:
        """The part on two models."""
        raise NotImplementedError

    @abstractmethod
    def page(self, findings: Sequence[Found], pairs: Sequence[Any]) -> report.Page:
        """The page on what there is so far."""

    def beside(self, findings: Sequence[Found], pairs: Sequence[Any]) -> dict[str, Any]:
        """What the JSON says of all models together."""
        return {}


def run_study(
    study: Study[Plan, Found], models: Models, out: str | Path, command: str | None, loading: dict[str, Any]
) -> tuple[list[Found], list[Any]]:
    """Findings of every model, and of every two. The same call continues a run folder; other settings are refused.

    `report.html`, `study_<name>.json` and Parquet tables are written after every model, so that one that fails takes
    nothing away from those before it. `command` is what the page says it was made by; None for the running command.
    """
    out, console, listed = Path(out), Console(), several(models)
    findings: list[Found] = []
    pairs: list[Any] = []
    plan: Any = study.plan
    for given in listed:
        model = loaded(given, loading)
        study.check(model)
        shape, settings = geometry(model), {**identify(model).settings, "preset": asdict(plan), **study.extra}
        console.rule(shape.name)
        run = StageRun.begin(out / Path(shape.name).name, settings, console)
        findings.append(_kept(study.one(model, run), run))
        if "claims" in findings[-1].frames:
            tables.show(tables.claims(findings[-1].frames["claims"], f"{shape.name}: claims (preset {study.preset})"))
        _write(study, findings, pairs, out, command)
        del model  # Before two others are loaded.
    for (one, a), (other, b) in itertools.combinations(zip(listed, findings, strict=True), 2):
        settings = study.pair_settings(a, b)
        if settings is not None:
            console.rule(f"{a.model} and {b.model}")
            run = StageRun.begin(out / f"{a.name}--{b.name}", settings, console)
            pairs.append(_kept(study.two((loaded(one, loading), loaded(other, loading)), a, b, run), run))
            _write(study, findings, pairs, out, command)
    total = sum(sum(each.seconds.values()) for each in [*findings, *pairs])
    page = out / "report.html"
    console.print(f"\nThe page with every figure: [bold]{page}[/]   (run folder {out}; {total / 60:.1f} minutes)")
    return findings, pairs


def _kept(found: Value, run: StageRun) -> Value:
    """The finding, its tables stored as Parquet."""
    folder = run.folder / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in found.all_frames().items():  # type: ignore[attr-defined]
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    return found


def _write(study: Study[Plan, Found], findings: list[Found], pairs: list[Any], out: Path, command: str | None) -> None:
    """The page and the JSON of what there is so far."""
    command, page = command or running_command(), study.page(findings, pairs)
    provenance = report.Provenance.now({"preset": study.preset, "settings": findings[0].settings["preset"]}, command)
    report.write_report(out / "report.html", page.title, page.summary, page.sections, provenance)
    text = {"command": command, "preset": study.preset, "versions": versions(), **study.beside(findings, pairs)}
    text["models"] = {each.model: each.summary() for each in findings}
    text |= {"pairs": [each.summary() for each in pairs]} if pairs else {}
    write_atomic(out / f"study_{study.name}.json", json.dumps(text, indent=1, default=str) + "\n")


def named_preset(which: Any, presets: Mapping[str, Plan]) -> tuple[Plan, str]:
    """A preset by name, or one's own, and what it is called. ValueError for an unknown name."""
    if not isinstance(which, str):
        return which, "own"
    if which not in presets:
        raise ValueError(f"preset={which!r}: use {', '.join(presets)}, or a Preset")
    return presets[which], which


def several(models: Models) -> list[Any]:
    """The models, also when it is a single one. ValueError for none."""
    single = isinstance(models, str | Path) or hasattr(models, "cfg")
    listed: list[Any] = [models] if single else list(models)  # type: ignore[arg-type]  # not single
    if not listed:
        raise ValueError("there are no models: name at least one")
    names = [Path(str(one) if isinstance(one, str | Path) else geometry(one).name).name for one in listed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"two models are called {twice!r}, and results are stored by name: rename one, or run them apart"
        )
    return listed


def loaded(given: Any, loading: dict[str, Any]) -> Model:
    """The model, loaded where it is given by name."""
    return load_model(given, **loading) if isinstance(given, str | Path) else given


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, which knows no NaN, in four significant digits."""
    rounded = frame.map(lambda value: float(f"{value:.4g}") if isinstance(value, float) else value)
    return rounded.astype(object).where(rounded.notna(), None).to_dict("records")  # type: ignore[return-value]  # columns are named
