"""Streaming: decoding with a cache in which only the best kv heads keep the whole context. What is lost, what is saved?"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, cast

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from lens_heads.answering.evaluation import range_of
from lens_heads.evidence.curve_results import MAIN_TASK
from lens_heads.heads.conditions import KEY
from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.gates import share_count
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.grouping import groups_in, labels
from lens_heads.heads.head import Head
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.ranks import check_ranks
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import named_as_query_heads, to_kv_heads
from lens_heads.interventions.independence import check_independent
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.decoding import greedy, opened, text_of
from lens_heads.model.forward import CHUNK, advance, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.blocks import block
from lens_heads.runs.digests import digest
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.options import Run, RunOptions
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.runs.warned import users_line
from lens_heads.stats import crossed_interval
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.metrics import text_scores
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from lens_heads.model.streaming_cache import StreamingCache

BESIDE = Controls("random")
"""The controls by default."""

RANDOM, METRICS = "random", ("logprob", "correct", "bytes")
_SETS = {"whole": "given", "none": "none", RANDOM: "random"}
"""The sets of what is no ranking."""


@typed
@block
def streaming_cache(
    model: Model, heads: Iterable[Head | str], *, sink: int = 4, recent: int = 64
) -> Iterator[StreamingCache]:
    """A cache in which these kv heads keep everything and all others the first `sink` and the last `recent` tokens.

    Inside the block, `prefill`, `advance` and `greedy` of `lens_heads.model` take it as they take a `Cache`. ValueError for
    a kv head that does not exist, and models that cannot (see `StreamingCache`). Warns where the heads were query heads, as the
    best by scores of these are.

    `model`: in which they are. `heads`: those that keep the whole context.

    Cost: none of its own: it changes the forwards that run inside the block.

    Example:
        >>> with lh.evidence.streaming_cache(model, ["L0K1"], sink=1, recent=4) as cache:
        ...     pass
        >>> type(cache).__name__
        'StreamingCache'
    """
    from lens_heads.model.streaming_cache import StreamingCache  # transformers, which takes seconds

    with StreamingCache(model, _mask(head_geometry(model), heads), sink, recent).attending(model) as cache:
        yield cache


def _mask(shape: HeadGeometry, heads: Iterable[Head | str]) -> Bool[Tensor, "layer kv_head"]:
    shape.check_kv_heads("a streaming cache")
    full, listed = torch.zeros(shape.n_layers, shape.n_kv_heads, dtype=torch.bool), list(heads)
    queries = named_as_query_heads(listed)
    if queries and shape.group > 1:
        warnings.warn(
            f"{', '.join(queries[:3])} are taken for kv heads of those numbers, though they are query heads: pass "
            f"units.to_kv_heads(scores, {shape.group}).top(k), or write L0K1",
            stacklevel=users_line(),
        )
    for given in listed:
        head = Head.parse(given, unit="kv_head")
        if head.layer >= shape.n_layers or head.head >= shape.layers[head.layer].n_kv_heads:
            raise ValueError(
                f"kv head {given} does not exist: {shape.name} has layers 0-{shape.n_layers - 1} and kv heads "
                f"0-{shape.n_kv_heads - 1}; units.to_kv_heads makes a ranking of them"
            )
        full[head.layer, head.head] = True
    return full


@typed_methods
@dataclass(frozen=True, eq=False)
class StreamingTable(Drawn):
    """What deployments keep: `per_trial` has a row per trial and set of kv heads: method (a ranking, "random", "whole", "none"),
    set, k (how many keep everything), draw, task, trial, share, logprob (nats per token of the gold answer), correct, bytes of
    the cache after the prompt, and `kept`, these as a share of the whole cache's.

    Example:
        >>> few, lines = lh.Controls("random", draws=1), {"locos": scores}
        >>> found = lh.streaming(model, others[:2], lines, shares=[0.25], sink=1, recent=4, controls=few, max_new_tokens=1)
        >>> sorted(set(found.per_trial["method"]))
        ['locos', 'none', 'random', 'whole']
    """

    per_trial: pd.DataFrame

    @property
    def frame(self) -> pd.DataFrame:
        """`of("logprob")`: a row per method and share."""
        return self.of("logprob")

    def of(self, metric: str, *, level: float = 0.95) -> pd.DataFrame:
        """A row per method and share: the metric's mean with its interval over trials (and draws), `beyond_random`, what
        it is more than with random heads kept, with an interval over both, and the share of the cache that is kept. ValueError
        for another metric than those of `per_trial`."""
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r}: use {' or '.join(map(repr, METRICS))}")
        rows = []
        known = self.per_trial.pivot_table(index="trial", columns=["method", "share", "draw"], values=metric)
        for group, part in self.per_trial.groupby(["method", "share"], sort=False):
            method, share = cast(tuple[str, float], group)
            values = known[method][share]
            row = {"method": method, "share": share, "kept": part["kept"].mean()}
            row |= _interval(metric, values, self.per_trial, level)
            if method != RANDOM and (RANDOM, share) in {column[:2] for column in known.columns}:
                beyond = -known[RANDOM][share].sub(values.iloc[:, 0], axis=0)
                row |= _interval("beyond_random", beyond, self.per_trial, level)
            rows.append(row)
        return pd.DataFrame(rows)

    def plot(self, metric: str = "logprob", *, title: str | None = None) -> go.Figure:
        """The metric against the share of the cache that is kept: a line per ranking, random kv heads in grey."""
        from lens_heads import plots

        return plots.cache_curves(self.of(metric), metric, title=title)


def _interval(name: str, values: pd.DataFrame, rows: pd.DataFrame, level: float) -> dict[str, float]:
    groups = groups_in(rows, values.index, "trial")
    found = crossed_interval(torch.from_numpy(values.to_numpy(float).T.copy()), groups=groups, level=level)
    found = found.within(*range_of(name)) if name in ("logprob", "correct") else found
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


@typed
@shared
def streaming(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    rankings: AnyRankings,
    *,
    shares: Iterable[float] = (0.25, 0.5, 0.75),
    sink: int = 4,
    recent: int = 64,
    controls: AnyControls = BESIDE,
    **run: Unpack[RunOptions],
) -> StreamingTable:
    """Answer trials with a cache in which only the best kv heads of each ranking keep the whole context, beside random heads.

    Args:
        trials: other trials than the rankings were made on.
        rankings: as in `ablation_curve`; scores of query heads count for the kv head they read, by the best of its group.
        shares: of the kv heads, how many keep everything, counted as `heads.gate_threshold` does (half of 90 are 45, a quarter of
            18 are 5).
        sink, recent: tokens that the others keep, as in `ablate(model, heads, "streaming")`.
        controls: "random": random kv heads of each size.
        **run: see `runs.options.RunOptions`; one trial runs at a time.

    Returns a `StreamingTable`, which also has the whole cache ("whole", share 1) and none of it ("none", share 0). DuoAttention's
    deployment, with any ranking in place of its gates.

    Raises ValueError for rankings of another model, made on these trials, or called "whole", "none" or "random", shares outside
    0 to 1, and models whose attention cannot be computed by another function.

    Cost: for each trial a run with the whole cache, one for each ranking and share, and one for each draw and share.

    Example:
        >>> few, lines = lh.Controls("random", draws=1), {"locos": scores}
        >>> found = lh.streaming(model, others[:2], lines, shares=[0.25], sink=1, recent=4, controls=few, max_new_tokens=1)
        >>> float(found.per_trial.groupby("method")["correct"].mean()["locos"])
        1.0
    """
    options, shape = Run.of(run), require(model, "streaming", "pattern")
    checks.whole_number("sink", sink, 0)
    checks.whole_number("recent", recent)
    controls = Controls.given(controls, BESIDE, ("random",), few=False, several=False)
    room = options.room(True)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
    short = [trial.id for trial in encoded if len(trial) <= sink + recent]
    if short:
        warnings.warn(
            f"trial {short[0]} has no more than sink + recent = {sink + recent} tokens ({len(short)} of {len(encoded)} trials), "
            "so that every cache keeps it whole: use longer prompts, or a smaller recent",
            stacklevel=users_line(),
        )
    named = by_name(rankings)
    check_independent(named, None, made_on(encoded))
    check_scores_of(model, named)
    wanted = [checks.share("shares", share, "0.5") for share in shares]
    kept = _conditions(shape, named, wanted, controls)
    settings = {**identified(model, "metrics").settings, "trials": trials_digest(encoded), "max_new_tokens": room}
    settings |= {"method": "streaming", "sink": sink, "recent": recent}
    settings["kept"] = digest(
        [[list(name), sorted(f"L{head.layer}H{head.head}" for head in heads)] for name, heads in kept.items()]
    )

    def work(batch: list[EncodedTrial]) -> list[Result]:
        (trial,) = batch
        rows = [
            {"method": name, "set": _SETS.get(name, "top"), "k": len(heads), "draw": draw, "share": share}
            | _answer(model, trial, heads, sink, recent, room)
            for (name, share, draw), heads in kept.items()
        ]
        return [Result({}, {"rows": rows})]

    folder = folder_for(model, options.out, settings)
    results = engine.run(encoded, work, folder=folder, size=len, progress=options.progress, description="streaming")
    done = [(trial, result.record["rows"]) for trial, result in zip(encoded, results, strict=True) if result.keep]
    table = pd.DataFrame(
        [
            {**{name: row[name] for name in KEY[:4]}, "task": MAIN_TASK, "trial": trial.id, **labels(trial)}
            | {"tokens": len(trial), **row}
            for trial, rows in done
            for row in rows
        ]
    )
    whole = table[table["method"] == "whole"].set_index("trial")["bytes"]
    return StreamingTable(table.assign(kept=table["bytes"] / table["trial"].map(whole)))


def _conditions(
    shape: HeadGeometry, rankings: Mapping[str, HeadScores], shares: list[float], controls: Controls
) -> dict[tuple[str, float, int], list[Head]]:
    """The kv heads that keep everything, by ranking, share and draw."""
    everyone = shape.every_head(unit="kv_head")
    found: dict[tuple[str, float, int], list[Head]] = {("whole", 1.0, 0): everyone, ("none", 0.0, 0): []}
    by_kv: dict[str, HeadScores] = {}
    for name, scores in rankings.items():
        if name in ("whole", "none", RANDOM):
            raise ValueError(f"ranking {name!r}: rows of that name stand beside every ranking; give it another one")
        by_kv[name] = to_kv_heads(scores, shape.group) if scores.unit == "query_head" else scores
        if tuple(by_kv[name].values.shape) != (shape.n_layers, shape.n_kv_heads):
            raise ValueError(f"ranking {name!r} is of another model than {shape.name}: score this one")
    check_ranks(by_kv, [share_count(len(everyone), share) for share in shares])
    for share in shares:
        k = share_count(len(everyone), share)
        found |= {(name, share, 0): scores.ranking()[:k] for name, scores in by_kv.items()}
        found |= {(RANDOM, share, draw): heads for draw, heads in enumerate(controls.random(everyone, k))}
    return found


@torch.no_grad()
def _answer(model: Model, trial: EncodedTrial, heads: list[Head], sink: int, recent: int, room: int) -> dict[str, Any]:
    """The gold answer's log-probability, the verdict on the decoded text (with room for it), and the cache's size."""
    tokens, gold = trial.tokens[None].to(model.W_U.device), trial.answer_tokens.to(model.W_U.device)
    with evaluating(model), streaming_cache(model, heads, sink=sink, recent=recent) as cache:
        prefill(model, tokens[:, :-1], cache, chunk=CHUNK)  # type: ignore[arg-type]  # used like a Cache
        size, again = cache.bytes, cache.branch()
        forced = torch.cat([tokens[:, -1:], gold[None, :-1]], 1)
        log_p = advance(model, forced, cache, logits=len(gold))[0].float().log_softmax(-1)  # type: ignore[arg-type]
        found = {"logprob": float(log_p[range(len(gold)), gold].mean()), "bytes": size}
        with again.attending(model):
            leads = opened(model, [trial])
            (steps,) = greedy(model, tokens[:, -1:], again, None, room, [trial.judge], leads)  # type: ignore[arg-type]
    text = text_of(model, steps, trial.judge, *leads)
    return {**found, "correct": float(text_scores(text, (trial.answer, *trial.aliases), trial.judge)["correct"])}
