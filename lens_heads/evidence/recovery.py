"""Recovery: does restoring the heads' clean outputs undo the damage of an ablation, and do control heads fail to?

The recovery analysis of "Different Heads, Same Fragile Tasks" (heads ablated everywhere, patched only at the prediction
rows), with more robust statistics: a ratio of sums instead of a mean of ratios, which diverges where ablation costs nothing,
and controls that were themselves ablated. `recovery_results.py` summarizes the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Unpack

import torch

from lens_heads.answering.pair_runs import Z
from lens_heads.evidence.recovery_results import PATCHED, Recovery
from lens_heads.heads import sets as control_sets
from lens_heads.heads.controls import SAME_LAYER, AnyControls, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.grouping import labels
from lens_heads.heads.head import AnyHeads, Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import TrialActivations
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_independent
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.interventions.patch import patch
from lens_heads.interventions.replay import Prefilled, prefilled
from lens_heads.interventions.spans import parts_of
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.decoding import greedy, opened, text_of
from lens_heads.model.forward import Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import recording
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

RECOVERY_CONTROLS = ("random", "random_like", SAME_LAYER, "bottom")

BESIDE = Controls(RECOVERY_CONTROLS)
"""The controls by default."""


class _Set(NamedTuple):
    """One condition: the heads that are ablated and those that are then patched. `fair`: a control that is both."""

    name: str
    draw: int
    fair: bool
    ablated: tuple[Head, ...]
    patched: tuple[Head, ...]


@typed
@shared
def recovery(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    ablated: AnyHeads,
    patched: AnyHeads,
    *,
    controls: AnyControls = BESIDE,
    ranking: HeadScores | None = None,
    fair: bool = True,
    flipped: bool = True,
    kind: str | Ablation,
    **options: Unpack[AblationRun],
) -> Recovery:
    """Ablate heads at all positions, patch heads with their clean outputs, and measure how much of the answer returns.

    recovery = (lp_patched - lp_ablated) / (lp_clean - lp_ablated), with lp the gold answer's summed log-probability in nats.
    The clean `z` is written at the rows that produce the answer; everything else stays ablated.

    Args:
        trials: trials. `flipped` uses only those whose text is right when clean and wrong when ablated.
        ablated, patched: sets of heads, usually the same.
        controls: heads patched instead of `patched`: "random", "random_like", "same_layer" (the next heads of each layer
            outside both sets; fewer if a layer is full), "bottom" (the lowest of the `ranking` outside both).
        ranking: the scores that "bottom" needs; it is left out without them.
        fair: also ablate every control itself and patch it. A control that was never ablated has little to restore.
        kind: as in `ablate`.
        **options: `reference` and options of the ablation, and run options (`runs.options.RunOptions`).

    Raises ValueError for heads that do not exist, empty sets, unknown controls, or trials that the `ranking` was made on;
    `NothingFlipped` if no trial flips.

    Cost: for each trial a pass clean, one ablated, and one patched for each set of heads and each draw; with `fair` as many
    again, and with `flipped` two texts are decoded.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.recovery(model, others[:2], heads, heads, controls=few, fair=False, max_new_tokens=1, kind="zero")
        >>> patched = found.per_trial[found.per_trial["set"] == "patched"]
        >>> round(float(patched["recovery"].mean()), 2)
        1.0
    """
    controls = Controls.given(controls, BESIDE, RECOVERY_CONTROLS, few=False, several=False)
    ablation, run = ablation_run(model, kind, options)
    shape, room = head_geometry(model), run.max_new_tokens if flipped else 0
    broken, mended = _check(shape, ablated, patched, flipped, room)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
    ablation.check_spans(encoded, room=room)
    rankings = {} if ranking is None else {ranking.method: ranking}
    if ranking is not None:
        shape.check_scores(ranking, f"ranking {ranking.method!r}")
    check_scores_of(model, rankings)
    check_independent(rankings, ablation.reference, made_on(encoded))
    sets = _sets(shape, broken, mended, controls, ranking)
    sets += [one._replace(fair=True, ablated=one.patched) for one in sets[1:]] if fair else []
    settings = identified(model, "metrics").settings | ablation.settings
    settings |= {
        "trials": trials_digest(encoded),
        "sets": [[*one[:3], ",".join(map(str, one.ablated)), ",".join(map(str, one.patched))] for one in sets],
        "max_new_tokens": room,
    }
    results = engine.run(
        encoded,
        lambda batch: [_example(model, batch[0], sets, ablation, room)],
        folder=folder_for(model, run.out, settings),
        progress=run.progress,
        description="recovery",
    )
    rows = zip(encoded, results, strict=True)
    kept = [(trial.id, found.record | labels(trial)) for trial, found in rows if found.keep]
    return Recovery.from_records(kept, sets, flipped, {**settings, "flipped": flipped})


def _check(
    shape: HeadGeometry, ablated: AnyHeads, patched: AnyHeads, flipped: bool, room: int
) -> tuple[tuple[Head, ...], tuple[Head, ...]]:
    if flipped:
        checks.whole_number("max_new_tokens", room, remedy=", because flipped=True judges generated text")
    broken, mended = tuple(shape.check_heads(ablated)), tuple(shape.check_heads(patched))
    if not broken or not mended:
        raise ValueError("there are no heads to ablate or to patch: give at least one of each")
    return broken, mended


def _sets(
    shape: HeadGeometry,
    broken: tuple[Head, ...],
    mended: tuple[Head, ...],
    controls: Controls,
    ranking: HeadScores | None,
) -> list[_Set]:
    """The heads themselves, then every control in their place."""
    everyone = shape.every_head()
    avoid = {*broken, *mended}
    lowest = ranking.ranking()[::-1] if ranking is not None else []
    found = {
        "random": controls.random(everyone, len(mended)),
        "random_like": controls.random_like(mended, everyone),
        SAME_LAYER: [control_sets.shifted(mended, [layer.n_heads for layer in shape.layers], avoid)],
        "bottom": [[head for head in lowest if head not in avoid][: len(mended)]],
    }
    drawn = [(name, draw, heads) for name in controls.names for draw, heads in enumerate(found[name]) if heads]
    return [
        _Set(PATCHED, 0, False, broken, mended),
        *(_Set(name, draw, False, broken, tuple(heads)) for name, draw, heads in drawn),
    ]


@torch.no_grad()
def _example(model: Model, trial: EncodedTrial, sets: list[_Set], ablation: Ablation, max_new_tokens: int) -> Result:
    """Log-probabilities of one example (clean; per set, ablated and patched), and whether its text was right."""
    record: dict[str, Any] = {"sets": []}
    filled = prefilled(model, [trial])
    with evaluating(model):
        cache, shape = _cache(model, trial, filled), head_geometry(model)
        with recording(model, map(Z.format, shape.attending)) as kept:
            record["clean"] = _logprob(model, trial, cache.branch())
        record["right_clean"] = _right(model, trial, cache, max_new_tokens)
        found = {
            at: shape.by_head(part, at)[0].float().cpu()
            for at, (part,) in zip(shape.attending, kept.values(), strict=True)
        }
        z = shape.stacked(found, heads=-2)
        clean = TrialActivations(z, trial.id, first=len(trial) - 1)
        for group in dict.fromkeys(one.ablated for one in sets):
            flipped = record["right_clean"] and not record.get("right_ablated")
            if max_new_tokens and group != sets[0].ablated and not flipped:
                break  # The example is not used, so skip its controls.
            with ablate(model, group, kind=ablation):
                cache = _cache(model, trial, filled, group)
                before = _logprob(model, trial, cache.branch())
                if group == sets[0].ablated:
                    record["right_ablated"] = _right(model, trial, cache, max_new_tokens)
                for number, one in enumerate(sets):
                    if one.ablated == group:
                        with patch(model, one.patched, clean):
                            after = _logprob(model, trial, cache.branch())
                        record["sets"].append([number, before, after])
    return Result({}, record)


def _cache(model: Model, trial: EncodedTrial, filled: Prefilled | None, heads: Sequence[Head] = ()) -> Cache:
    """The prompt without its last token, under the current hooks; only layers from the lowest of `heads` up run again."""
    with fast_attention(model):
        if filled is not None:
            return filled.replay(model, [control_sets.lowest_layer(heads, model.cfg.n_layers)])
        cache = Cache(model, 1)
        cache.assign(1, 1, parts_of([trial]))
        prefill(model, trial.tokens[None, :-1].to(model.W_U.device), cache)
        return cache


def _logprob(model: Model, trial: EncodedTrial, cache: Cache) -> float:
    """Summed log-probability of the gold answer, in nats."""
    rows = torch.cat([trial.tokens[-1:], trial.answer_tokens[:-1]])[None].to(model.W_U.device)
    with fast_attention(model):
        logits = advance(model, rows, cache, logits=rows.shape[1])
    gold = trial.answer_tokens.to(logits.device)
    return float(logits[0].float().log_softmax(-1).gather(-1, gold[:, None]).sum())


def _right(model: Model, trial: EncodedTrial, cache: Cache, max_new_tokens: int) -> bool | None:
    """Whether the greedy text is correct; None if nothing is generated."""
    if not max_new_tokens:
        return None
    last, leads = trial.tokens[None, -1:].to(model.W_U.device), opened(model, [trial])
    with fast_attention(model):
        (steps,) = greedy(model, last, cache.branch(), None, max_new_tokens, [trial.judge], leads)
    return trial.judge.correct(text_of(model, steps, trial.judge, *leads), (trial.answer, *trial.aliases)) > 0.5
