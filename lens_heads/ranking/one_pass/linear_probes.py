"""Linear probes: from what one head passes on at the end of a prompt, can a label of the prompt be read?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lens_heads.heads.grouping import named_groups
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import run_activations
from lens_heads.model.geometry import Model
from lens_heads.model.identity import identified, identify
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.options import LoopOptions, Run
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial


@typed
@shared
def probe_heads(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    labels: Sequence[Any],
    folds: int = 5,
    strength: float = 0.1,
    null_draws: int = 0,
    seed: int = 0,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Fit a logistic regression to each head's z at the prompt's last row, and score it on the trials it was not fitted to.

    Args:
        labels: one per trial, of two or more kinds.
        folds: of the cross-validation. Trials of one group are never in two folds, and kinds of label are spread evenly.
        strength: the inverse of the ridge penalty, on standardized inputs.
        null_draws: probes of shuffled labels, by which `scores.significant()` knows the best of all heads by chance.
        seed: of the folds and draws.
        **run: `out` and `progress`, see `runs.options.LoopOptions`. The folder holds activations; probes are fitted anew.

    Returns HeadScores of method "probe": per trial, 1 if the label is read right, 0 if not, 0.5 for neither.
    `meta["chance"]` is the share of the commonest label. What can be read from a head need not be used by the model: ablate
    it to know.

    A linear probe stands here for sparse autoencoders with discrete codes, which answer the same question less simply.
    ValueError for other numbers of labels than trials, fewer than two kinds, and fewer trials (or groups) of a kind than folds.

    Cost: a pass for each trial, and a regression for every head and fold.

    Example:
        >>> found = lh.probe_heads(model, planted.trials(16), labels=["first", "second"] * 8, folds=2)
        >>> found.method, found.meta["chance"]
        ('probe', 0.5)
    """
    options, shape = Run.of(run), require(model, "probe_heads")
    checks.whole_number("folds", folds, 2)
    checks.count("null_draws", null_draws, 0)
    if checks.finite("strength", strength, 0) == 0:
        raise ValueError("strength=0: the inverse of the penalty must be above zero, such as 0.1")
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    kinds = _kinds(labels, encoded, folds)
    settings = {**identified(model, "scores").settings, "method": "probe", "trials": trials_digest(encoded)}

    def work(batch: list[EncodedTrial]) -> list[Result]:
        (trial,) = batch
        return [Result({"z": run_activations(model, trial.tokens, trial.id, len(trial) - 1).z[:, -1]}, {})]

    folder = folder_for(model, options.out, settings)
    results = engine.run(encoded, work, folder=folder, size=len, progress=options.progress, description="probe")
    kept = [i for i, result in enumerate(results) if result.keep]
    z = torch.stack([results[i].arrays["z"] for i in kept]).float().numpy()
    rng, groups = np.random.default_rng(checks.seed(seed)), _groups([encoded[i] for i in kept])
    right = _right(z, kinds[kept], groups, folds, strength, seed)
    draws = [_right(z, rng.permutation(kinds[kept]), groups, folds, strength, seed).mean(0) for _ in range(null_draws)]
    null = torch.from_numpy(np.stack(draws)).float() if draws else None
    meta = {
        **settings,
        "chance": max(Counter(kinds[kept].tolist()).values()) / len(kept),
        "folds": folds,
        "strength": strength,
    }
    about: dict[str, Any] = {"model": identify(model), "made_on": made_on(encoded), "score_unit": "share", "null": null}
    return HeadScores.from_trials(
        "probe", torch.from_numpy(right).float(), [encoded[i].id for i in kept], meta=meta, **about
    )


def _kinds(labels: Sequence[Any], trials: Sequence[EncodedTrial], folds: int) -> Int[np.ndarray, " trial"]:
    """Labels as numbers. ValueError for labels that no probe can be fitted to."""
    if len(labels) != len(trials):
        raise ValueError(f"there are {len(labels)} labels for {len(trials)} trials: give one label for each")
    strange = next((label for label in labels if not isinstance(label, Hashable)), None)
    if strange is not None:
        raise TypeError(f"label {strange!r:.60}: labels must be texts or numbers, not a {type(strange).__name__}")
    counts = Counter(labels)
    if len(counts) < 2:
        raise ValueError(f"all labels are {next(iter(counts))!r}: a probe needs two kinds or more")
    rare, number = counts.most_common()[-1]
    if number < folds:
        raise ValueError(f"label {rare!r} has {number} trials, fewer than folds={folds}: give more, or use fewer folds")
    grouped = Counter(label for label, _ in {*zip(labels, _groups(trials).tolist(), strict=True)})
    rare, number = grouped.most_common()[-1]
    if number < folds:
        raise ValueError(
            f"label {rare!r} has trials of {number} groups, and no group is in two folds: use folds={number} or fewer"
        )
    order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([order[label] for label in labels])


def _groups(trials: Sequence[EncodedTrial]) -> Int[np.ndarray, " trial"]:
    """A number per trial, the same for trials that share a group, or have others between them that do."""
    named = [named_groups(trial) for trial in trials]
    order = {name: i for i, name in enumerate(dict.fromkeys(name for names in named for name in names), len(trials))}
    links = [(i, order[name]) for i, names in enumerate(named) for name in names]
    size = len(trials) + len(order)
    rows, columns = np.array(links, dtype=int).reshape(-1, 2).T
    linked = coo_array((np.ones(len(links)), (rows, columns)), shape=(size, size))
    return connected_components(linked, directed=False)[1][: len(trials)]


def _right(
    z: Float[np.ndarray, "trial layer head d_head"],
    kinds: Int[np.ndarray, " trial"],
    groups: Int[np.ndarray, " trial"],
    folds: int,
    strength: float,
    seed: int,
) -> Float[np.ndarray, "trial layer head"]:
    """Whether each trial's label is read right from each head, by probes that were not fitted to it."""
    right = np.full(z.shape[:3], 0.5)
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed % 2**32)
    for fitted, held in splitter.split(z, kinds, groups):
        if len(np.unique(kinds[fitted])) < 2 or not len(held):
            continue
        for layer, head in np.ndindex(*z.shape[1:3]):
            probe = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=200))
            probe.fit(z[fitted, layer, head], kinds[fitted])
            right[held, layer, head] = probe.predict(z[held, layer, head]) == kinds[held]
    return right
