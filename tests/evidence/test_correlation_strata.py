"""correlate inside answer formats and without covariates: plain loops, planted models, the measured study."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from lens_heads.evidence.correlation import correlate
from tests.evidence.matrices import planted

MEASURED = Path(__file__).with_name("fragility.json")
STUDY = Path(__file__).parents[2] / "benchmarks" / "results" / "study_fragile_tasks.json"
FORMATS = {
    "registrant_name": "name",
    "ceo_lastname": "name",
    "headquarters_city": "place",
    "headquarters_state": "place",
    "incorporation_state": "place",
    "incorporation_year": "numeric",
    "employees_count_total": "numeric",
    "holder_record_amount": "numeric",
}
WEAK = {"a": 0.5, "b": 0.0, "c": 0.25, "d": 0.1, "e": 0.4, "f": 0.3}


def frames(seed: int, level: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two models of eight tasks at two k that share nothing but the formats' levels, of this spread."""
    rng = np.random.default_rng(seed)
    by_format = dict(zip(["name", "place", "numeric"], level * rng.normal(size=3), strict=True))
    shared = np.array([by_format[each] for each in FORMATS.values()])
    own = rng.normal(size=(2, 1, 8)) + 0.3 * rng.normal(size=(2, 2, 8)) + np.arange(2)[:, None]
    a, b = (pd.DataFrame(shared + each, [8, 16], list(FORMATS)) for each in own)
    return a, b


def left(frame: pd.DataFrame, covariates: list[pd.DataFrame]) -> pd.DataFrame:
    """Residuals at each k of least squares on a mean per format and the covariates."""
    rows = {}
    for k, row in frame.iterrows():
        dummies = [[float(FORMATS[task] == each) for task in frame.columns] for each in ("name", "place", "numeric")]
        design = np.array([*dummies, *(each.loc[k, frame.columns] for each in covariates)]).T
        rows[k] = row - design @ np.linalg.lstsq(design, row.to_numpy(), rcond=None)[0]
    return pd.DataFrame(rows).T[frame.columns]


def looped(a: pd.DataFrame, b: pd.DataFrame, of_a: list[pd.DataFrame], of_b: list[pd.DataFrame]) -> tuple[float, float]:
    """(r, p) over every order of tasks that keeps formats."""
    tasks, x, y = list(a.columns), left(a, of_a), left(b[a.columns], of_b)
    members = [[i for i, task in enumerate(tasks) if FORMATS[task] == each] for each in ("name", "place", "numeric")]
    found = []
    for moved in itertools.product(*(itertools.permutations(each) for each in members)):
        order = list(range(8))
        for places, others in zip(members, moved, strict=True):
            for place, other in zip(places, others, strict=True):
                order[place] = other
        permuted = left(pd.DataFrame(y.to_numpy()[:, order], y.index, tasks), of_b)
        found.append(float(scipy_stats.pearsonr(x.to_numpy().ravel(), permuted.to_numpy().ravel()).statistic))
    return found[0], float(np.mean([value >= found[0] - 1e-9 for value in found]))


# The numbers


@pytest.mark.slow
def test_strata_and_covariates_are_a_plain_loop() -> None:
    a, b = frames(0)
    rng = np.random.default_rng(1)
    of_a, of_b = (pd.DataFrame(rng.normal(size=(2, 8)), [8, 16], list(FORMATS)) for _ in range(2))
    length = dict(zip(FORMATS, rng.normal(size=8), strict=True))
    lengths = pd.DataFrame([length, length], [8, 16])
    covariates = {"random heads": (of_a, of_b.iloc[::-1, ::-1]), "length": (length, pd.Series(length))}
    found = correlate(a, b.iloc[::-1, ::-1], strata={**FORMATS, "other": "name"}, covariates=covariates)
    assert found.within is not None
    assert found.partial_all is not None
    assert (found.within.r, found.within.p) == pytest.approx(looped(a, b, [], []))
    one = found.partial["random heads"]
    assert (one.r, one.p) == pytest.approx(looped(a, b, [of_a], [of_b]))
    other = found.partial["length"]
    assert (other.r, other.p) == pytest.approx(looped(a, b, [lengths], [lengths]))
    together = found.partial_all
    assert (together.r, together.p) == pytest.approx(looped(a, b, [of_a, lengths], [of_b, lengths]))
    assert (found.r, found.p) == (correlate(a, b).r, correlate(a, b).p)
    assert one.smallest_p == found.within.smallest_p == 1 / 72


def test_covariates_need_no_strata() -> None:
    """Fragility is a shared covariate and noise."""
    rng, size = np.random.default_rng(2), pd.Series(np.arange(8.0), list(FORMATS))
    a, b = (pd.DataFrame(size.to_numpy() + rng.normal(size=(3, 8)), [2, 4, 8], list(FORMATS)) for _ in range(2))
    found = correlate(a, b, covariates={"size": (size, size)})
    assert found.r2 > 0.6
    assert found.verdict() == "correlated"
    assert found.partial["size"].r2 < 0.1
    assert found.partial_all == found.partial["size"]
    assert found.within is None


def test_random_heads_alone_are_correlated_where_there_are_any() -> None:
    a, b = planted(1, WEAK, draws=3), planted(2, WEAK)
    found = correlate(a, b, n=10, permutations=99)
    alone = correlate(a.statistic("random"), b.statistic("random"), permutations=99)
    assert found.random == alone.plain
    relative = correlate(a, b, n=10, statistic="beyond_random", relative=True)
    shares = correlate(a.statistic("random", relative=True), b.statistic("random", relative=True))
    assert relative.random is not None
    assert relative.random.r == pytest.approx(shares.r)
    assert correlate(a, b, n=10, statistic="disruptivity").random is None, "random heads belong to no source"
    assert correlate(a, planted(3, WEAK, draws=0), n=10).random is None


def test_taking_random_heads_out_is_written_down_in_the_table() -> None:
    a, b = planted(1, WEAK, draws=3), planted(2, WEAK)
    drops = (a.statistic("random"), b.statistic("random"))
    found = correlate(a, b, n=10, strata=dict.fromkeys(WEAK, "word"), covariates={"random heads": drops})
    table = found.frame.set_index("how")
    assert list(table.index) == [
        "tasks alike",
        "inside strata",
        "without random heads",
        "without all covariates",
        "random heads alone",
    ]
    assert table.loc["inside strata"].to_dict() == pytest.approx(table.loc["tasks alike"].to_dict()), "a single stratum"
    assert table.loc["random heads alone", "r2"] == pytest.approx(correlate(*drops).r2)
    assert table.loc["without random heads", "p"] == found.partial["random heads"].p
    assert (table["smallest_p"] == 1 / 720).all()


# Something and nothing


@pytest.mark.slow
def test_answer_format_alone_is_not_called_agreement() -> None:
    found = [correlate(*frames(seed, level=3.0), strata=FORMATS, permutations=99, seed=seed) for seed in range(300)]
    assert np.mean([each.verdict() == "correlated" for each in found]) <= 0.06
    assert np.mean([each.p <= 0.05 for each in found]) > 0.3, "which it is without strata"


def frame_of(by_k: dict[str, dict[str, float]]) -> pd.DataFrame:
    """Rows k, columns tasks."""
    return pd.DataFrame.from_dict(by_k, "index").rename(index=int).sort_index()


def measured() -> list[pd.DataFrame]:
    """The log-probability fragility of two models, from an earlier study of few trials; rows k, columns tasks."""
    models = json.loads(MEASURED.read_text(encoding="utf-8"))["models"].values()
    return [frame_of(each["fragility"]) for each in models]


def measured_covariates() -> dict[str, list[pd.DataFrame | pd.Series]]:
    """Random heads' drops (rows k of 1,024, as in the fragility) and the log-probability without ablation, of both models."""
    models = json.loads(MEASURED.read_text(encoding="utf-8"))["models"].values()
    base = [pd.Series(each["log-probability"]) for each in models]
    return {"random heads": [frame_of(each["random heads"]) for each in models], "log-probability": base}


def test_the_measured_fragility_cannot_be_told_inside_formats() -> None:
    """Published here as R² .56, p .011: three tasks with numbers as answers are hard to break in both models."""
    a, b = measured()
    without = correlate(a, b)
    assert without.r2 == pytest.approx(0.56, abs=0.01)
    assert without.p < 0.02
    found = correlate(a, b, strata=FORMATS)
    assert found.within is not None
    assert found.within.r2 < 0.01
    assert found.within.p > 0.05
    assert found.within.can_tell()
    assert found.verdict() == "cannot be told"


def test_random_heads_explain_much_of_the_measured_fragility() -> None:
    a, b = measured()
    both = {name: (of_a, of_b) for name, (of_a, of_b) in measured_covariates().items()}
    alone = correlate(*both["random heads"])
    assert alone.r2 > 0.3
    found = correlate(a, b, strata=FORMATS, covariates=both)
    assert all(each.verdict() == "cannot be told" for each in [*found.partial.values(), found.partial_all])


def test_more_trials_say_the_same() -> None:
    """The stored study has three times the trials: alike over all tasks, and nothing inside one format of answers."""
    pair = json.loads(STUDY.read_text(encoding="utf-8"))["pairs"][0]
    found = {row["how"]: row for row in pair["correlations"] if row["statistic"] == "logprob: fragility"}
    assert found["tasks alike"]["p"] < 0.02
    assert found["tasks alike"]["r2"] > 0.4
    assert found["inside strata"]["p"] > 0.05
    assert {claim["verdict"] for claim in pair["claims"]} == {"cannot be told"}


# What is said, and what is refused


def test_it_says_both() -> None:
    a, b = frames(3)
    found = correlate(a, b, strata=FORMATS)
    assert found.within is not None
    assert repr(found).endswith(f", inside strata R^2 {found.within.r2:.3f}, p = {found.within.p:.2g})")
    assert f"inside strata of tasks R² = {found.within.r2:.3f}" in found.plot().layout.title.subtitle.text
    nothing = correlate(a, b, strata={task: task for task in FORMATS})
    assert nothing.within is not None
    assert math.isnan(nothing.within.r)
    assert nothing.verdict(alpha=0.9) == "cannot be told"
    sure = replace(found, plain=replace(found.plain, p=0.001), within=replace(found.within, p=0.5))
    assert sure.verdict() == "cannot be told", "the p without strata does not count"


def test_tasks_without_a_stratum_or_covariate_are_refused() -> None:
    a, b = frames(4)
    length = dict.fromkeys(FORMATS, 1.0)
    short = {task: value for task, value in length.items() if task != "ceo_lastname"}
    refused = [
        (dict(strata=short), "strata has no task 'ceo_lastname'. Give every task a label"),
        (dict(covariates={"length": (length, short)}), "covariate length of b has no task 'ceo_lastname'. Add it"),
        (dict(covariates={"drop": (a.drop(index=16), b)}), "covariate drop of a has no k 16. Add it"),
        (
            dict(covariates={"length": ({**length, "ceo_lastname": math.nan}, length)}),
            "covariate length of a is nan at [0, ",
        ),
    ]
    for arguments, message in refused:
        with pytest.raises(ValueError, match=re.escape(message)):
            correlate(a, b, **arguments)
