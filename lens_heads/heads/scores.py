"""HeadScores: the value that every ranking method returns and every intervention takes.

File formats are in `files.py`, figures in `plots`, the statistics themselves in `stats`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads import stats
from lens_heads.heads.fields import check_finite, check_names, check_null, check_shapes
from lens_heads.heads.files import read_scores, write_envelope, write_lists
from lens_heads.heads.grouping import Labels, groups_of
from lens_heads.heads.head import Head, Unit
from lens_heads.heads.made_on import MadeOn
from lens_heads.heads.ranks import check_ranked, check_ranks
from lens_heads.heads.sets import random_heads, random_like
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.identity import RECORDED, ModelIdentity
from lens_heads.runs.typed import typed_methods
from lens_heads.runs.warned import users_line
from lens_heads.stats.clusters import fewest_clusters, whole_clusters
from lens_heads.stats.positive_mean import FEWEST_TRIALS

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ABOUT = ("unit", "best", "selected", "signed", "score_unit", "evaluations", "base", "fit", "outcomes", "settings")
"""Attributes stored in score files under their own names."""

SETTINGS = ("metric", "kind", "positions", "direction", "corruption", "teacher_forced")
"""What scores of one method may have been made with, otherwise than others of it."""


def settings_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `SETTINGS` that a record of a run, or the `meta` of an older file, has."""
    return {name: about[name] for name in SETTINGS if name in about}


Best = Literal["highest", "lowest"]


@typed_methods
@dataclass(frozen=True, eq=False)
class HeadScores(Drawn):
    """Scores of every head of one model by one method.

    `values` float32 [layer, head] is the mean over the trials that count for the method, unless the method says otherwise;
    `per_trial` float32 [trial, layer, head] and `trial_ids` keep the single trials, so that everything can be resampled. Where a
    model has no head (hybrid models, whose layers differ), all of them are NaN, and nothing ranks or draws what is not there.

    Attributes:
        unit: what is scored, "query_head" or "kv_head".
        best: which scores are best, "highest" or "lowest" (`localize_heads`: the effect of ablating a head on a metric).
        order: heads that rank before all others, in this order; the others follow by score.
        selected: the heads were selected on these trials, which therefore cannot show how good they are.
        signed: scores can be negative, as a test of mean > 0 requires; by default, whether any score is.
        score_unit: unit of the scores, for figures ("logits", "nats").
        evaluations: runs over all its trials that a search asked for (`localize_heads`); 1 for methods that do not search.
        base: the metric without ablation, the mean over the trials, of methods that ablate sets of heads (`localize_heads`).
        fit: the record of the `Fit` that a regression on masks is read from; empty for other methods.
        outcomes: how many trials came to which end (`score_heads`); empty for other methods.
        settings: the metric, kind, positions, direction, corruption and teacher forcing they were made with, as far as the method
            has them. To compare scores of one method that differ in one of them is refused.
        model: the model the scores belong to.
        made_on: the trials the scores were made on, including those that did not count.
        meta: further information for readers.
        null: float32 [draw, layer, head], the `values` that each of several draws gave without an effect (`score_heads` with
            `null_spans`: the same score at other spans of the prompts), or None.

    Raises ValueError for infinite scores and those that are NaN in some trials alone, an unknown `unit` or `best`, and shapes
    that disagree.

    Example:
        >>> scores.method, scores.top(2) == heads
        ('locos', True)
    """

    method: str
    values: Float[Tensor, "layer head"]
    per_trial: Float[Tensor, "trial layer head"]
    trial_ids: tuple[str, ...]
    meta: dict[str, Any] = field(default_factory=dict)
    unit: Unit = "query_head"
    best: Best = "highest"
    order: tuple[Head, ...] = ()
    selected: bool = False
    signed: bool = None  # type: ignore[assignment]  # read off the scores
    score_unit: str = ""
    evaluations: int = 1
    base: float | None = None
    fit: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    model: ModelIdentity = ModelIdentity("")
    made_on: tuple[MadeOn, ...] = ()
    null: Float[Tensor, "draw layer head"] | None = None

    def __post_init__(self) -> None:
        for name in ("values", "per_trial", *["null"] * (self.null is not None)):
            if not isinstance(getattr(self, name), Tensor):
                raise TypeError(f"{self.method}: {name} must be a tensor, not {type(getattr(self, name)).__name__}")
            object.__setattr__(self, name, getattr(self, name).detach().to("cpu", torch.float32))
        if isinstance(self.trial_ids, str):
            raise TypeError(f"{self.method}: trial_ids={self.trial_ids!r}: must be a list with one id per trial")
        object.__setattr__(self, "trial_ids", tuple(self.trial_ids))
        object.__setattr__(self, "order", tuple(map(self._own, self.order)))
        if not isinstance(self.settings, Mapping):
            raise TypeError(f"{self.method}: settings={self.settings!r:.60}: must be a dictionary")
        check_shapes(self.method, self.values, self.per_trial, self.trial_ids)
        for name, known in (("unit", Unit), ("best", Best)):
            if getattr(self, name) not in get_args(known):
                raise ValueError(
                    f"{self.method}: {name}={getattr(self, name)!r}: must be {' or '.join(map(repr, get_args(known)))}"
                )
        check_names(self.method, self.trial_ids, self.order, (self.n_layers, self.n_heads))
        check_finite(self.method, self.values, self.per_trial, self.trial_ids)
        _ = self.there
        if self.null is not None:
            check_null(self.method, self.null, self.values)
        if self.signed is None:
            object.__setattr__(self, "signed", bool((self.per_trial < 0).any()))

    @classmethod
    def from_trials(
        cls,
        method: str,
        per_trial: Float[Tensor, "trial layer head"],
        trial_ids: Sequence[str],
        *,
        meta: dict[str, Any] | None = None,
        **about: Any,
    ) -> HeadScores:
        """Scores whose `values` are the mean over trials; `about` are further attributes. ValueError without trials."""
        if len(per_trial) == 0:
            raise ValueError(f"{method}: no trial contributed a score: {about.get('outcomes') or 'empty input'}")
        return cls(method, per_trial.float().mean(0), per_trial, trial_ids, meta or {}, **about)  # type: ignore[arg-type]  # any list

    @property
    def n_layers(self) -> int:
        return self.values.shape[0]

    @cached_property
    def there(self) -> Bool[Tensor, "layer head"]:
        """Where there is a head; as it was made, so that a score which is overwritten by NaN is no hole."""
        return ~self.values.isnan()

    @property
    def flat(self) -> Float[Tensor, " head_of_model"]:
        """The values of all heads, by layer, then head; see `heads`."""
        return self.values[self.there]

    @property
    def flat_trials(self) -> Float[Tensor, "trial head_of_model"]:
        """The single trials, as `flat`."""
        return self.per_trial[:, self.there]

    @property
    def heads(self) -> list[Head]:
        """All heads, by layer, then head."""
        return [Head(layer, head, self.unit) for layer, head in self.there.nonzero().tolist()]

    @property
    def n_heads(self) -> int:
        return self.values.shape[1]

    def __getitem__(self, head: Head | str | Sequence[int]) -> float:
        """The score of one head: `scores["L12H1"]`."""
        found = self._own(head)
        if found.layer >= self.n_layers or found.head >= self.n_heads:
            known = f"these scores have layers 0-{self.n_layers - 1} and heads 0-{self.n_heads - 1}"
            raise ValueError(f"head {found} does not exist: {known}")
        if not self.there[found.layer, found.head]:
            raise ValueError(
                f"head {found} does not exist: layer {found.layer} has {int(self.there[found.layer].sum())} heads"
            )
        return float(self.values[found.layer, found.head])

    @property
    def groups(self) -> Labels:
        """The trials' groups, one list of labels per kind of group; () without groups. Intervals and p resample them whole."""
        known = {one.id: one for one in self.made_on}
        return groups_of(known.get(trial) or MadeOn(trial) for trial in self.trial_ids)

    @property
    def sign(self) -> int:
        """-1 if the lowest scores are best, else 1."""
        return -1 if self.best == "lowest" else 1

    def ranking(self) -> list[Head]:
        """All heads, best first; ties are ordered by layer, then head."""
        heads = self.heads
        ranked = [heads[int(i)] for i in torch.argsort(self.sign * self.flat, descending=True, stable=True)]
        return list(dict.fromkeys([*self.order, *ranked]))

    def top(self, k: int) -> list[Head]:
        """The k best heads, best first.

        ValueError if all heads score the same, which ranks nothing. Warns if the k-th ties with the next, so that the choice
        between them is arbitrary (`ties`). `ranking()[:k]` takes heads that tie by layer and head without a word.
        """
        found = self.ranking()[: self._count(k)]
        check_ranks({self.method: self}, [k])
        return found

    def bottom(self, k: int) -> list[Head]:
        """The k worst heads, worst first. ValueError if all heads score the same."""
        check_ranked(self.method, self)
        return self.ranking()[::-1][: self._count(k)]

    def random(self, k: int, *, seed: int = 0, like: Literal["layer"] | None = None) -> list[Head]:
        """k random heads of all, those of the top k among them, as the control "random" draws them (see `Controls`).

        `like="layer"` matches the top k's number of heads in each layer ("random_like"), so that depth alone cannot explain a
        difference.
        """
        if like not in (None, "layer"):
            raise ValueError(f"like={like!r}: use None for any heads, or 'layer' to match the layers of the top k")
        checks.seed(seed)
        ranked, k = self.ranking(), self._count(k)
        return random_heads(ranked, k, seed) if like is None else random_like(ranked[:k], ranked, seed)

    def interval(self, *, level: float = 0.95, n: int = 1000, seed: int = 0) -> stats.Interval[Tensor]:
        """Every head's mean over trials with its bounds, each [layer, head]; see `stats.mean_interval`.

        NaN below five trials or groups, for heads `selected` on these trials, whose intervals would be biased upwards, and for
        `values` that are no mean over them.
        """
        checks.level(level)
        checks.count("n", n)
        checks.seed(seed)
        if self.selected:
            return stats.Interval(self.values, self.values * torch.nan, self.values * torch.nan, level)
        found = stats.mean_interval(self.flat_trials, groups=self.groups, level=level, n=n, seed=seed)
        means = torch.isclose(
            self.flat, found.value.float(), rtol=1e-4, atol=1e-6 * float(self.flat_trials.abs().max())
        )
        low, high = (self._placed(torch.where(means, bound, torch.nan)) for bound in (found.low, found.high))
        return stats.Interval(self.values, low, high, level)

    def p_values(self) -> Float[Tensor, "layer head"]:
        """One-sided p per head, float64, NaN where there is none: is its score above the null's (below, if the lowest are best)?

        With a `null` of S draws, p = (1 + #{draws whose best head reaches the score}) / (S + 1), which holds for all heads
        together (family-wise; Westfall and Young's maxT). Without, the question is whether the mean over trials is above
        zero, head by head: see `stats.positive_mean`. ValueError where `untested` says why there is no test.
        """
        self._check_tested(1.0)
        if self.null is not None:
            return self._placed(stats.family_wise_p(self.sign * self.flat, self.sign * self.null[:, self.there]))
        return self._placed(stats.positive_mean_p(self.sign * self._independent))

    def significant(self, *, alpha: float = 0.05) -> Bool[Tensor, "layer head"]:
        """Heads above the null at alpha: their family-wise error with a `null`, else their false-discovery rate.

        The latter is Benjamini and Hochberg's procedure over all heads. ValueError where `untested` says why not.
        """
        self._check_tested(checks.share("alpha", alpha, "0.05"))
        p = self.p_values()
        if self.null is not None:
            return p <= alpha
        told = torch.zeros_like(self.there)
        told[self.there] = stats.benjamini_hochberg(p[self.there], alpha=alpha)
        return told

    def untested(self, *, alpha: float = 0.05) -> str:
        """Why `significant(alpha)` has no answer, and what to do about it; empty if it has one."""
        return self._untested(checks.share("alpha", alpha, "0.05"))

    def _untested(self, alpha: float) -> str:
        n = fewest_clusters(self.groups, len(self.per_trial))
        remedy = "score with null_spans=99, or compare with controls"
        if self.selected:
            return f"{self.method} chose its heads on these trials: test them on others (ablation_curve)"
        if self.null is not None:
            few = f"{len(self.null)} draws of the null give no p up to {alpha:g}"
            short = 1 / (len(self.null) + 1) > alpha
            return f"{self.method}: {few}: score with null_spans={math.ceil(1 / alpha - 1e-9) - 1} or more" * short
        if not self.signed:
            return f"{self.method} cannot be negative, so a mean above zero shows nothing: {remedy}"
        few = f"{n} {'groups of ' * (n < len(self.per_trial))}trials are too few to tell skew from an effect"
        return f"{self.method}: {few}: use {FEWEST_TRIALS} or more, or {remedy}" * (n < FEWEST_TRIALS)

    def ties(self, k: int) -> list[Head]:
        """Heads of the top k that tie with the next head below, so that the choice between them is arbitrary."""
        ranked, chosen = self.ranking(), set(self.order)
        top = ranked[: self._count(k)]
        return [head for head in top if k < len(ranked) and self[head] == self[ranked[k]] and head not in chosen]

    def reliability(self, *, n: int = 100, seed: int = 0) -> float:
        """Split-half reliability: mean Spearman over n random halvings, Spearman-Brown corrected; NaN if `selected`."""
        checks.count("n", n)
        checks.seed(seed)
        return math.nan if self.selected else stats.split_half_reliability(self.flat_trials, n=n, seed=seed)

    def stability(self, k: int, *, n: int = 100, seed: int = 0) -> stats.TopKStability:
        """Would other trials choose the same top k? Jaccard of random halves against chance; see `stats.top_k_stability`.

        ValueError for heads `selected` on these trials.
        """
        if self.selected:
            raise ValueError(
                f"{self.method} chose its heads on all of these trials: compare two rankings of other trials"
            )
        scores = (self.sign * self.flat_trials).double().numpy()
        return stats.top_k_stability(scores, k=self._count(k), n_splits=n, seed=seed)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per head, best first: layer, head, name, score, and its 95 % interval (low, high)."""
        frame = self.ranked
        for name, bound in zip(("low", "high"), self.interval()[1:], strict=True):
            frame[name] = [float(bound[layer, head]) for layer, head in zip(frame["layer"], frame["head"], strict=True)]
        return frame

    @property
    def ranked(self) -> pd.DataFrame:
        """`frame` without the intervals, which take a bootstrap."""
        ranked = self.ranking()
        rows = [{"layer": at.layer, "head": at.head, "name": str(at), "score": self[at]} for at in ranked]
        return pd.DataFrame(rows, columns=["layer", "head", "name", "score"])

    def plot(self, *, title: str | None = None) -> go.Figure:
        """A heatmap of the scores, layer by head."""
        from lens_heads import plots

        return plots.head_map(self, title=title)

    def _repr_html_(self) -> str:
        best = self.frame.head(10).to_html(index=False, float_format=lambda x: f"{x:.3f}", na_rep="–")
        about = f"<b>{escape(self.method)}</b>: {self._size}, {escape(str(self.model))}"
        return f"{about}; the ten best, with 95 % intervals over trials{best}"

    def __repr__(self) -> str:
        best = ", ".join(f"{head} {self[head]:.3g}" for head in self.ranking()[:3])
        return f"HeadScores({self.method!r}, {self._size}, best: {best})"

    @property
    def _size(self) -> str:
        heads = "heads" if self.there.all() else f"heads, {len(self.flat)} of them there"
        return f"{self.n_layers} layers x {self.n_heads} {heads}, {len(self.trial_ids)} trials"

    def save(self, path: str | Path, *, form: Literal["envelope", "lists"] = "envelope") -> Path:
        """Write JSON: "envelope" (LOCOS: meta, scores, trial_ids, confidence_intervals; and the null) or "lists" (Wu et al.).

        "lists" is in the order of the published files, layer by layer, on which HeadKV's loader relies; "envelope" lists the best
        head first. Floats survive the round trip exactly. ValueError if "lists" would lose something that decides the ranking,
        and for a `meta` of your own with a name that the file needs.
        """
        if form == "lists":
            self._check_plain()
            return write_lists(path, self.per_trial)
        if form != "envelope":
            raise ValueError(f"form={form!r}: use 'envelope' (the LOCOS form) or 'lists' (that of Wu et al.)")
        about: dict[str, Any] = {name: getattr(self, name) for name in ("method", *_ABOUT)}
        about = {name: value for name, value in about.items() if value is not None and value != {}}
        about["shape"] = list(self.values.shape)
        about |= {} if self.there.all() else {"heads": [str(head) for head in self.heads]}
        about |= {"model": self.model.name, "weights": self.model.weights, "dtype": self.model.dtype}
        about |= {
            name: getattr(self.model, name) for name in ("wrapper", "changed", "begins") if getattr(self.model, name)
        }
        about |= {"order": [str(head) for head in self.order], "made_on": [one.record for one in self.made_on]}
        if not self._is_mean:
            about["values"] = [[None if math.isnan(value) else value for value in row] for row in self.values.tolist()]
        for name in self.meta.keys() & {*about, *_ABOUT, *RECORDED[1:]}:
            if name not in about or self.meta[name] != about[name]:
                raise ValueError(
                    f"{self.method}: meta[{name!r}]={self.meta[name]!r:.60}: a score file has the scores' own {name} there, "
                    f"{about.get(name)!r:.60}: give yours another name"
                )
        bounds = self.interval()[1:] if len(self.per_trial) else (self.values, self.values)
        return write_envelope(
            path, self.ranking(), self.per_trial, self.trial_ids, {**self.meta, **about}, bounds, self.null
        )

    @classmethod
    def load(cls, path: str | Path, *, method: str | None = None) -> HeadScores:
        """Read either published JSON form; `method` names scores of a file that does not (default without either: "copy").

        Warns of the "lists" form, which says nothing of the method, the model and the trials, so that none of these is checked.

        Raises ValueError naming the file and the head or field for truncated JSON, a score that is not a finite number,
        ragged lists, missing heads and malformed fields; FileNotFoundError if there is no file.
        """
        read = read_scores(path)
        meta = dict(read.meta)
        about: dict[str, Any] = {"settings": settings_of(meta)}  # Older files have them in their `meta` alone.
        about |= {name: meta.pop(name) for name in _ABOUT if name in meta}
        try:
            unit = about.get("unit", "query_head")
            about["order"] = tuple(Head.parse(head, unit=unit) for head in meta.pop("order", ()))
        except ValueError as error:
            raise ValueError(f"{path}: meta.order: {error}") from None
        about["model"] = ModelIdentity.stored(meta)
        for name in ("model", *RECORDED[1:]):  # Its name stands under "model".
            meta.pop(name, None)
        # Older files have no `made_on` but record the same in the list of trials.
        listed = meta.pop("made_on", None) or meta.get("trials")
        rows = listed if isinstance(listed, list) else []
        about["made_on"] = tuple(MadeOn.read(one) for one in rows if isinstance(one, dict))
        if read.meta.keys() == {"source"}:
            said = "" if method else ". They are called 'copy', as the published ones are: pass method= for another"
            warnings.warn(
                f"{path} does not say of which model and trials its scores are, so nothing checks that they are used "
                f"on this model, and on other trials{said}",
                stacklevel=users_line(),
            )
        written = meta.get("method")
        if method and written and method != written:
            raise ValueError(f"{path} holds scores of method {written!r}: leave out method={method!r}")
        named, values = method or meta.pop("method", None) or "copy", meta.pop("values", None)
        try:
            found = cls.from_trials(named, read.per_trial, read.trial_ids, meta=meta, null=read.null, **about)
            return found if values is None else replace(found, values=torch.tensor(values))
        except ValueError as error:  # What no field shows by itself: ids that occur twice, sums that are not finite.
            raise ValueError(f"{path}: {error}") from None

    @property
    def _independent(self) -> Float[Tensor, "group head_of_model"]:
        """One value per group of trials, with the same mean; the trials themselves without groups."""
        return torch.from_numpy(whole_clusters(self.flat_trials.double().numpy(), self.groups))

    def _placed(self, flat: Float[Tensor, " head_of_model"]) -> Float[Tensor, "layer head"]:
        """A table of what is known of each head, NaN where there is none."""
        table = torch.full(self.values.shape, torch.nan, dtype=flat.dtype)
        table[self.there] = flat
        return table

    def _own(self, head: Head | str | Sequence[int]) -> Head:
        """A head in any notation, as one of the unit that these scores are of. ValueError for a kv head among query heads."""
        found = Head.parse(head, unit=self.unit)
        if found.unit == "kv_head" != self.unit:
            raise ValueError(
                f"{self.method} scores query heads, but {found} is a kv head: units.query_heads are its own"
            )
        return replace(found, unit=self.unit)

    def _check_tested(self, alpha: float) -> None:
        if why := self._untested(alpha):
            raise ValueError(why)

    @property
    def _is_mean(self) -> bool:
        return torch.equal(self.flat, self.flat_trials.mean(0))

    def _check_plain(self) -> None:
        if not self.there.all():
            raise ValueError(
                f"{self.method}: form 'lists' has a score of every head of every layer: use form='envelope'"
            )
        lost = "best" if self.sign < 0 else "order" if self.order else "" if self._is_mean else "values"
        if lost:
            raise ValueError(
                f"{self.method}: form 'lists' cannot store {lost!r}, without which heads rank differently: use "
                "form='envelope'"
            )

    def _count(self, k: int) -> int:
        most = len(self.flat)
        return checks.whole_number("k", k, 0, most, f", the number of heads that {self.method} scores")
