"""evaluate: a model's answers, and the probability it assigns to the gold answers, under its current hooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.choices import CHOICE_METRICS, answers_and_choices
from lens_heads.heads.grouping import Labels, groups_of
from lens_heads.interventions.ablate import warn_of_leaks
from lens_heads.interventions.replay import Prefilled
from lens_heads.interventions.spans import parts_of
from lens_heads.model.decoding import greedy, opened, text_of
from lens_heads.model.forward import CHUNK, Cache, fast_attention, left_pad, prefill, repeated
from lens_heads.model.geometry import Model, is_bridge
from lens_heads.model.identity import identify
from lens_heads.model.modes import evaluating
from lens_heads.model.rope import batched
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import engine
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.options import Run, RunOptions
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.stats import Interval, mean_interval, share_interval
from lens_heads.stats.shares import are_shares
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.metrics import TEXT_METRICS, text_scores
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    import pandas as pd

FORCED_METRICS = ("logprob", "greedy_match", *CHOICE_METRICS)
"""Metrics measured by teacher forcing, without decoding; the last four only on trials with choices."""
METRICS = (*TEXT_METRICS, *FORCED_METRICS)


def range_of(metric: str) -> tuple[float, float]:
    """The smallest and the largest value of a metric: log-probabilities end at 0, margins nowhere, all others lie in 0 to 1."""
    if metric.endswith("margin"):
        return -math.inf, math.inf
    return (-math.inf, 0.0) if metric.endswith("logprob") else (0.0, 1.0)


@typed_methods
@dataclass(frozen=True, eq=False)
class Evaluation(Tabled):
    """Metric values per trial ([trial] each) and the generated texts.

    `logprob` is the gold answer's teacher-forced mean log-probability per token, in nats; `greedy_match` is 1 if each of its
    tokens is the likeliest, so that greedy decoding would begin with them. `choices.CHOICE_METRICS` are included if every
    trial has choices, all others if texts were generated: they compare the answer that the trial's judge extracts, and
    `correct` is the judge's verdict. `texts` are the complete texts. `groups` are the trials' labels, one list per kind of
    group; empty without groups.

    `trial_ids`, `metrics` and `answers`: by trial, in the order given.

    Example:
        >>> found = lh.evaluate(model, trials, max_new_tokens=2)
        >>> found.trial_ids[0], found.texts[0], found.metrics["greedy_match"][0].item()
        ('planted-0-0', 'A', 1.0)
    """

    trial_ids: tuple[str, ...]
    metrics: dict[str, Float[Tensor, " trial"]]
    texts: tuple[str, ...]
    answers: tuple[str, ...]
    groups: Labels = ()

    def mean(self, metric: str) -> float:
        """Mean over trials."""
        return float(self._values(metric).mean())

    def interval(self, metric: str, *, level: float = 0.95) -> Interval[float]:
        """The mean over trials with its bounds: Wilson's for right answers, `stats.mean_interval` for others.

        Trials of one group count together. NaN below five trials or groups. Never beyond what the metric can be: above 0 for
        a log-probability.
        """
        values = self._values(metric)
        if are_shares(values.numpy()):
            return share_interval(values.numpy(), groups=self.groups, level=level)
        _, low, high = map(float, mean_interval(values, groups=self.groups, level=level))
        return Interval(self.mean(metric), low, high, level).within(*range_of(metric))

    def of(self, ids: Sequence[str]) -> Evaluation:
        """Of these trials alone, in this order. ValueError for one that is not here."""
        at = {id: place for place, id in enumerate(self.trial_ids)}
        if unknown := [id for id in ids if id not in at]:
            raise ValueError(
                f"no trial {unknown[0]!r} was evaluated: choose from trial_ids, {', '.join(self.trial_ids[:5])}, ..."
            )
        places = [at[id] for id in ids]

        def some(values: Sequence[str]) -> tuple[str, ...]:
            return tuple(values[place] for place in places)

        metrics = {name: values[places] for name, values in self.metrics.items()}
        groups = tuple(list(some(labels)) for labels in self.groups)
        return replace(
            self,
            trial_ids=some(self.trial_ids),
            metrics=metrics,
            texts=some(self.texts),
            answers=some(self.answers),
            groups=groups,
        )

    @property
    def frame(self) -> pd.DataFrame:
        """One row per trial: id, answer, text, and every metric."""
        import pandas as pd

        columns: dict[str, Any] = {"trial": self.trial_ids, "answer": self.answers, "text": self.texts}
        return pd.DataFrame({**columns, **{name: values.tolist() for name, values in self.metrics.items()}})

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {self.mean(name):.3f}" for name in self.metrics)
        return f"Evaluation({len(self.trial_ids)} trials: {means})"

    def _values(self, metric: str) -> Float[Tensor, " trial"]:
        if metric not in self.metrics:
            raise ValueError(f"no metric {metric!r}: this evaluation has {', '.join(self.metrics)}")
        return self.metrics[metric]


@typed
@shared
def evaluate(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    generate: bool = True,
    **run: Unpack[RunOptions],
) -> Evaluation:
    """Evaluate the model under its current hooks on trials (with or without needle).

    Args:
        generate: also decode greedily (to a newline, a stop token or `max_new_tokens`) and judge the text; without it
            only teacher-forced metrics are measured.
        **run: see `runs.options.RunOptions`. A run folder cannot identify an ablation: to store results under one, use
            `ablation_curve`.

    Raises ValueError for no trials, `out` with hooks attached, prompts longer than the context window, nothing to generate,
    or trials whose judging would run generated code without permission; TypeError for anything but a TransformerLens model.

    Cost: a pass over each trial's prompt; every token of the gold answer, of a choice or of decoded text adds a row.

    Example:
        >>> found = lh.evaluate(model, trials, max_new_tokens=2)
        >>> found.texts[:3], found.metrics["correct"].mean().item()
        (('A', 'B', 'C'), 1.0)
    """
    is_bridge(model)  # A TypeError for other models before an attribute is missing.
    options = Run.of(run)
    shape, room = require(model, "evaluate"), options.room(generate)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
    warn_of_leaks(made_on(encoded))
    settings = {**identify(model).settings, "trials": trials_digest(encoded), "max_new_tokens": room or None}
    results = engine.run(
        encoded,
        lambda batch: finite(batch, answer_batch(model, batch, room)),
        key=lambda trial: trial.id,
        folder=folder_for(model, options.out, settings),
        batch_size=batched(model, options.batch_size),
        size=len,
        progress=options.progress,
        description="evaluating",
    )
    return collect(encoded, results)


def check_metric(metric: str, trials: Iterable[AnyTrial], generate: bool) -> None:
    """ValueError for a metric that would not be measured on these trials, listing those that would."""
    measured = METRICS if generate else FORCED_METRICS
    if metric not in measured:
        remedy = "" if generate else "; the others need generate=True"
        raise ValueError(f"metric {metric!r} is not measured: there is {', '.join(measured)}{remedy}")
    without = next((trial.id for trial in trials if not trial.choices), None)
    if metric in CHOICE_METRICS and without is not None:
        raise ValueError(
            f"metric {metric!r} compares choices, but trial {without} has none: pass Trial(choices=...), or use 'logprob'"
        )


def finite(trials: Sequence[EncodedTrial], results: list[Result]) -> list[Result]:
    """The results. ValueError for a metric that is not finite, before it is stored."""
    for trial, result in zip(trials, results, strict=True):
        for name, value in result.record.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"trial {trial.id}: {name} is {value}: load the model in float32 or bfloat16")
    return results


def collect(trials: Sequence[EncodedTrial], results: Sequence[Result]) -> Evaluation:
    """The results of `answer_batch` as one Evaluation, without the trials that raised (a warning reported them)."""
    kept = [(trial, result) for trial, result in zip(trials, results, strict=True) if result.keep]
    names = [name for name in METRICS if all(name in result.record for _, result in kept)]
    return Evaluation(
        trial_ids=tuple(trial.id for trial, _ in kept),
        metrics={name: torch.tensor([float(result.record[name]) for _, result in kept]) for name in names},
        texts=tuple(str(result.record["text"]) for _, result in kept),
        answers=tuple(trial.answer for trial, _ in kept),
        groups=groups_of(trial for trial, _ in kept),
    )


@torch.no_grad()
def answer_batch(
    model: Model,
    trials: Sequence[EncodedTrial],
    max_new_tokens: int,
    chunk: int = CHUNK,
    filled: Prefilled | None = None,
    begins: Sequence[int] = (0,),
    beginning: Cache | None = None,
) -> list[Result]:
    """One prefill per batch, then the gold answer's log-probability, then a greedy continuation (unless 0 tokens).

    A batch holds all variants of the trials, variant by variant (`ablate_each`), one for each of `begins`. With `filled`, an
    unablated prefill of the same trials, each variant recomputes only the layers from where it begins; `begins` and `beginning`
    are as in `Prefilled.replay`.
    """
    variants = len(begins)
    tokens, pads = left_pad([trial.tokens for trial in trials], model.W_U.device)
    prompts, last = tokens[:, :-1], repeated(tokens[:, -1:], variants)
    with evaluating(model), fast_attention(model):
        if filled is None:
            cache = Cache(model, len(trials) * variants)
            cache.assign(variants, len(trials), parts_of(trials, max_new_tokens))
            answers = (len(ids) for trial in trials for ids in (trial.answer_tokens, *trial.choice_tokens))
            cache.whole = tokens.shape[1] + max(max_new_tokens, *answers) - 1  # Nothing follows the last token.
            prefill(model, repeated(prompts, variants), cache, repeated(pads, variants), chunk)
        else:
            cache = filled.replay(model, begins, chunk, beginning)
        pads, listed = repeated(pads, variants), [*trials] * variants
        gold, chosen = answers_and_choices(model, listed, last, cache, pads)
        judges = [trial.judge for trial in listed]
        leads = opened(model, listed)
        steps = greedy(model, last, cache, pads, max_new_tokens, judges, leads) if max_new_tokens else None
    results: list[Result] = []
    for i, trial in enumerate(listed):
        text = text_of(model, steps[i], trial.judge, leads[i]) if steps else ""
        judged = text_scores(text, (trial.answer, *trial.aliases), trial.judge) if steps else {}
        picked, likeliest = gold[i]
        forced = {"logprob": float(picked.mean()), "greedy_match": float(likeliest.all())}
        results.append(Result({}, {"text": text, **judged, **forced, **chosen[i]}))
    return results
