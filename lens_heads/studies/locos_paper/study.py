"""The study, end to end: detection, ablation, judged texts, causal evidence, what the heads read, claims, one page.

`locos` runs it; every stage keeps its own folder, so that the same call continues where it stopped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from lens_heads.ablation.curves import AblationCurve
from lens_heads.causal import Recovery
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import geometry
from lens_heads.model.identity import fingerprint
from lens_heads.report import tables
from lens_heads.runs.store import RunFolder, running_command, versions, write_atomic
from lens_heads.studies.locos_paper import stages
from lens_heads.studies.locos_paper.claims import LEAD, Evidence, claims
from lens_heads.studies.locos_paper.presets import Preset, preset
from lens_heads.studies.running import Clock, Models, loaded, records, save_tables, several

MODELS = ("gemma-3-270m", "smollm2-135m-instruct")


@dataclass(frozen=True, eq=False)
class Finding:
    """Everything the study found on one model.

    `frames` are the analyses by name: overlaps, jaccard, against_cri, thirds, spread, provenance,
    beyond_sink. `recovered` is a sentence where no
    example could be recovered. `questions` of the test trials by id. `seconds` by stage.
    """

    model: str
    k: int
    baseline: str
    scores: dict[str, HeadScores]
    cri: HeadScores
    literal: HeadScores
    curve: AblationCurve
    texts: AblationCurve
    recovered: Recovery | str
    frames: dict[str, pd.DataFrame]
    claims: pd.DataFrame
    settings: dict[str, Any]
    questions: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)

    def all_frames(self) -> dict[str, pd.DataFrame]:
        """Every number as a table: what the run folder keeps in Parquet."""
        ranked = {**self.scores, "cri": self.cri, "literal_share": self.literal}
        scored = [_ranked(name, found).assign(method=name) for name, found in ranked.items()]
        frames = {"scores": pd.concat(scored, ignore_index=True), "claims": self.claims, **self.frames}
        frames |= {"ablation": self.curve.frame, "ablation_trials": self.curve.per_trial}
        frames |= {"texts": self.texts.frame, "texts_trials": self.texts.per_trial}
        frames["differences"] = self.curve.differences("logprob", lead=LEAD)
        for task in self.settings["preset"]["spared"]:
            frames[f"dissociation_{task}"] = self.curve.dissociation(task, "logprob")
        if isinstance(self.recovered, Recovery):
            frames |= {"recovery": self.recovered.frame, "recovery_examples": self.recovered.per_example}
        return frames


def locos(
    models: Models = MODELS,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/locos",
    tuned_lens: str | Path | None = None,
    command: str | None = None,
    **loading: Any,
) -> list[Finding]:
    """Re-run the argument of the LOCOS paper (arXiv 2607.01002) on one or more models.

    Args:
        models: names as `load_model` takes them, or loaded models.
        preset: "packaged" (offline, small models), "quick", "paper", "scripts" (see `presets`), or a `Preset` of your own.
        out: the run folder, with a folder per model (Parquet tables, scores, curves), `report.html` and a summary per
            model, `study_locos_<model>.json`. The same call continues it; other settings are refused.
        tuned_lens: a safetensors file as `score_heads(direction=...)` takes it; only with a single model.
        command: what the page says it was made by; default: the running command.
        **loading: how models given by name are loaded: device, dtype, ... of `load_model`.

    Returns a `Finding` per model; prints the table of claims as it goes.

    Raises ValueError for an unknown preset, no models, or a folder of other settings.
    """
    from lens_heads.studies.locos_paper.page import write_page

    plan, out, console = _preset(preset), Path(out), Console()
    command = command or running_command()
    listed = several(models)
    if tuned_lens is not None and len(listed) > 1:
        raise ValueError("a tuned lens belongs to one model: run the study on that model alone")
    name = preset if isinstance(preset, str) else "own"
    findings: list[Finding] = []
    for model in listed:
        findings.append(_one(model, plan, name, out, Path(tuned_lens) if tuned_lens else None, console, loading))
        # After every model, so that one that fails takes nothing away from those before it.
        write_page(findings, name, out / "report.html", command)
        text = json.dumps(summary(findings[-1], command), indent=1, default=str)
        write_atomic(out / f"study_locos_{Path(findings[-1].model).name}.json", text + "\n")
    total = sum(sum(finding.seconds.values()) for finding in findings)
    console.print(
        f"\nThe page with every figure: [bold]{out / 'report.html'}[/]   (run folder {out}; {total / 60:.1f} minutes)"
    )
    return findings


_preset = preset  # The argument of the same name hides it.


def _one(
    given: Any, plan: Preset, name: str, out: Path, tuned_lens: Path | None, console: Console, loading: dict[str, Any]
) -> Finding:
    """The whole study on one model."""
    model = loaded(given, loading)
    shape = geometry(model)
    console.rule(shape.name)
    settings = {
        "model": shape.name,
        "weights": fingerprint(model),
        "preset": asdict(plan),
        "tuned_lens": str(tuned_lens) if tuned_lens else None,
    }
    folder = out / Path(shape.name).name
    RunFolder(folder, settings)
    clock = Clock(console, folder)
    k = plan.headline_k(shape.n_layers * shape.n_heads)
    select, test = plan.trials(plan.select), plan.trials(plan.test)
    scores = clock("detection", lambda: stages.detect(model, select, plan, folder, tuned_lens))
    tables.show(tables.top_heads(scores, 3, f"{shape.name}: the best heads of each method"))
    reference = clock("means", lambda: stages.means(model, select, plan, folder))
    curve = clock("ablation", lambda: stages.curve(model, test, scores, plan, k, reference, folder))
    baseline = stages.best_baseline(curve, k)
    texts = clock("texts", lambda: stages.judged_texts(model, test, scores, plan, k, baseline, reference, folder))
    cri = clock("patching", lambda: stages.patched(model, test, texts, plan, folder))
    recovered = clock("recovery", lambda: stages.mended(model, test, scores[LEAD], plan, k, folder))
    reading = clock("reading", lambda: stages.read(model, select, scores, plan, folder))
    frames = {
        **stages.agreement(model, scores, cri, k),
        "provenance": reading.provenance,
        "beyond_sink": reading.beyond_sink,
    }
    finding = Finding(
        model=shape.name,
        k=k,
        baseline=baseline,
        scores=scores,
        cri=cri,
        literal=reading.literal,
        curve=curve,
        texts=texts,
        recovered=recovered,
        frames=frames,
        claims=claims(Evidence(curve, texts, k, baseline, plan.described())),
        settings=settings,
        questions={trial.id: trial.question for trial in test},
        seconds=clock.spent,
    )
    save_tables(finding.all_frames(), folder / "tables")
    tables.show(tables.claims(finding.claims, f"{shape.name}: the paper's claims, k = {k} (preset {name})"))
    return finding


def summary(finding: Finding, command: str) -> dict[str, Any]:
    """The numbers of one model in one JSON: claims, best heads, curves, analyses; per-trial tables stay in Parquet."""
    frames = {
        name: records(frame)
        for name, frame in finding.all_frames().items()
        if not name.endswith(("_trials", "_examples")) and name != "scores"
    }
    ranked = {**finding.scores, "cri": finding.cri, "literal_share": finding.literal}
    return {
        "command": command,
        "model": finding.model,
        "k": finding.k,
        "best_attention_baseline": finding.baseline,
        "settings": finding.settings,
        "versions": versions(),
        "seconds": {stage: round(spent, 1) for stage, spent in finding.seconds.items()},
        "outcomes": finding.scores[LEAD].meta["outcomes"],
        "top": {name: records(_ranked(name, found).head(10)) for name, found in ranked.items()},
        "recovery_note": finding.recovered if isinstance(finding.recovered, str) else finding.recovered.examples,
        **frames,
    }


def _ranked(name: str, found: HeadScores) -> pd.DataFrame:
    """The heads with intervals; of the literal share, a ratio of sums, the bootstrap of per-trial values is no interval."""
    return found.to_frame(interval=name != "literal_share")
