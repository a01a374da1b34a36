"""The stages of the study of fragile tasks on two models: do the same tasks break, and which heads correspond?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from lens_heads import compare
from lens_heads.evidence.correlation import correlate
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.evidence.validation import MatchValidation, validate_match
from lens_heads.heads.controls import Controls
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.runs.digests import digest
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding
from lens_heads.studies.fragile_paper.judged import by_metric
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.studies.fragile_paper.related import FORMATS
from lens_heads.studies.fragile_paper.stages import of_tasks
from lens_heads.trials.trial import AnyTrial

JUDGED = ("fragility beyond random", "disruptivity beyond random")
"""The correlations that claims are about; the raw ones stand beside them."""
DRAWS = 3
"""Random sets of heads in the validation of a match."""
COVARIATES = {"log-probability without ablation": "unablated", "answer length": "answer_tokens"}


def correlation_tables(correlations: dict[str, Correlation]) -> dict[str, pd.DataFrame]:
    """Every way to correlate each statistic, one row each; and the points behind every correlation.

    R² has an interval over items, and a noise ceiling, where tasks count alike; not where a statistic of both matrices is needed.
    """
    rows, points = [pd.DataFrame({"statistic": []})], [pd.DataFrame({"statistic": []})]
    for label, found in correlations.items():
        low, high = found.interval or (math.nan, math.nan)
        ceiling = math.nan if found.noise_ceiling_r2 is None else found.noise_ceiling_r2
        alike = {"low": low, "high": high, "noise_ceiling_r2": ceiling}
        frame = found.to_frame()
        frame.insert(0, "statistic", label)
        for name, value in alike.items():
            frame[name] = [value if how == "tasks alike" else math.nan for how in frame["how"]]
        rows.append(frame)
        points.append(found.points.assign(statistic=label))
    return {
        name: pd.concat(each[1:] or each, ignore_index=True)
        for name, each in (("correlations", rows), ("points", points))
    }


def correlated(a: FragileFinding, b: FragileFinding, plan: Preset) -> tuple[dict[str, Correlation], dict[str, str]]:
    """Correlations across models by metric and statistic ("logprob: fragility"), and why others could not be computed.

    Tasks are permuted inside answer formats. Items that both models were asked are resampled together.
    """
    found, reasons = {}, {}
    theirs = by_metric(b.matrix, plan)
    for metric, mine in by_metric(a.matrix, plan).items():
        other = theirs[metric]
        same = all(mine.items(task) == other.items(task) for task in mine.targets if task in other.targets)
        options = {"strata": FORMATS, "covariates": _covariates(a, b), "names": (a.model, b.model)}
        of_matrices = {**options, "paired_items": same}
        frames = [_disruptivity_beyond_random(each) for each in (mine, other)]
        ways = {
            JUDGED[0]: (mine, other, "beyond_random", of_matrices),
            JUDGED[1]: (*frames, JUDGED[1], options),
            "fragility": (mine, other, "fragility", of_matrices),
            "disruptivity": (mine, other, "disruptivity", of_matrices),
        }
        for label, (x, y, name, how) in ways.items():
            try:
                found[f"{metric}: {label}"] = correlate(x, y, statistic=name, **how)
            except ValueError as error:
                reasons[f"{metric}: {label}"] = str(error)
    return found, reasons


def _covariates(a: FragileFinding, b: FragileFinding) -> dict[str, tuple[pd.Series, pd.Series]]:
    """What could make tasks fragile in both models besides their heads, by task."""
    tables = [each.frames["tasks"].set_index("task") for each in (a, b)]
    return {name: (tables[0][column], tables[1][column]) for name, column in COVARIATES.items()}


def _disruptivity_beyond_random(matrix: TransferMatrix) -> pd.DataFrame:
    """What a task's heads cost the other tasks, less what random heads cost those."""
    disruptivity, random = matrix.disruptivity(), matrix.statistic("random")
    others = random[disruptivity.columns].rsub(random.sum(axis=1), axis=0) / (len(random.columns) - 1)
    return disruptivity - others


def scores_digest(each: FragileFinding) -> str:
    """A short hash of all scores."""
    return digest(
        [[method, task, found.values.tolist()] for method, t in each.scores.items() for task, found in t.items()]
    )


def by_name(each: FragileFinding) -> dict[str, HeadScores]:
    """The scores by method and task."""
    return {
        f"{method} {task}": found
        for method, by_task in each.scores.items()
        for task, found in of_tasks(by_task).items()
    }


def matched(
    models: tuple[Model, Model],
    scores: tuple[dict[str, HeadScores], dict[str, HeadScores]] | None,
    plan: Preset,
    folder: Path,
) -> HeadMatch:
    """Match heads by all features, or without scores; computed once per folder."""
    if (folder / "match.json").exists():
        return HeadMatch.load(folder)
    texts = common_texts(plan.match_texts)
    match = compare.match_heads(*models, rankings=scores, texts=texts, resamples=50, permutations=200)
    match.save(folder)
    return match


def validated(
    match: HeadMatch,
    models: tuple[Model, Model],
    a: FragileFinding,
    tests: Mapping[str, Sequence[AnyTrial]],
    plan: Preset,
    folder: Path,
) -> MatchValidation:
    """Ablate a's top heads over all tasks, and their partners in b."""
    groups = {f"{plan.lead}, {ALL}": a.scores[plan.lead][ALL]}
    k, out = a.headline, folder / "validation"
    return validate_match(
        match,
        *models,
        tests,
        groups=groups,
        k=k,
        kind=plan.kind,
        controls=Controls("random_like", DRAWS),
        batch_size=plan.batch_size,
        out=out,
    )


def depth(a: FragileFinding, b: FragileFinding, plan: Preset) -> pd.DataFrame:
    """Whether the top heads of each task sit at the same relative depth in both models."""
    rows = []
    bins = min(10, *(each.scores[plan.lead][ALL].n_layers for each in (a, b)))
    k_a, k_b = a.headline, b.headline
    for task, mine in a.scores[plan.lead].items():
        found = compare.overlap_by_depth(mine, b.scores[plan.lead][task], k=k_a, k_b=k_b, bins=bins)
        row = {"task": task, "k_a": found.k_a, "k_b": found.k_b, "overlap": found.overlap, "expected": found.expected}
        rows.append(row | {"p_value": found.p_value, "spearman": found.spearman})
    return pd.DataFrame(rows)
