"""A card of every head: what it does on repeated tokens and on text, what its weights do to a token, and what it promotes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import AnyHeads
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import to_query_heads
from lens_heads.interventions.activations import mean_activations
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model, head_geometry, output_weights, require_raw_weights
from lens_heads.model.identity import identified
from lens_heads.model.readout import extreme_tokens
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.ranking.one_pass.repeated import repeated_blocks
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.ranking.one_pass.token_maps import TokenMap, packaged_maps, token_maps
from lens_heads.ranking.one_pass.weighing import value_weights
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.runs.warned import users_line
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.texts import AnyText, plain_texts
from lens_heads.trials.tokenizing import piece, prompt_start

if TYPE_CHECKING:
    import plotly.graph_objects as go

THRESHOLDS = {
    "induction": 0.3,
    "previous": 0.4,
    "duplicate": 0.3,
    "successor": 0.4,
    "copy_suppression": 0.4,
    "copying": 0.4,
    "sink": 0.8,
    "entropy": 0.9,
}
"""A head's kind is the score that exceeds its threshold by the largest factor. Successor's is the paper's, the others ours."""
SCORES = ("previous", "induction", "duplicate", "sink", "entropy", "span", "copying", "successor", "copy_suppression")
ABOUT = ("head", "layer", "index", "kv_head", "window", "kind", "promotes", "writes")
BLOCK, COPIES, SEEDS, TEXTS = 50, 3, 3, 4


@typed_methods
@dataclass(frozen=True, eq=False)
class HeadCards(Drawn):
    """One row per head in `frame`: head, layer, index, kv_head, window, kind, the `SCORES`, promotes, writes, further scores.

    `kind` is one of `THRESHOLDS`, or empty. `promotes`: tokens that the head's mean write on the texts raises most, read by the
    model's own final norm and unembedding. `writes`: the same for the direction that its OV circuit writes most strongly.

    `meta`: the settings. `identity`: the model, by whose weights others are told.

    Example:
        >>> cards = lh.describe(model, heads, text="It rained all day.")
        >>> cards.frame["head"].tolist()
        ['L1H0', 'L0H0']
    """

    model: str
    frame: pd.DataFrame
    meta: dict[str, Any] = field(default_factory=dict)
    identity: ModelIdentity = ModelIdentity("")

    def of(self, kind: str) -> pd.DataFrame:
        """The heads of one kind, the clearest first. ValueError for a kind that does not exist."""
        if kind not in THRESHOLDS:
            raise ValueError(f"kind={kind!r}: the kinds are {', '.join(THRESHOLDS)}")
        return self.frame[self.frame["kind"] == kind].sort_values(kind, ascending=False, ignore_index=True)

    @property
    def kinds(self) -> dict[str, int]:
        """How many heads there are of each kind; "" counts those without."""
        return {str(kind): int(n) for kind, n in self.frame["kind"].value_counts().items()}

    def plot(self, *, title: str | None = None) -> go.Figure:
        """A map of the heads, coloured by kind."""
        from lens_heads import plots

        return plots.kind_map(self.frame, list(THRESHOLDS), title=title or f"Kinds of heads in {self.model}")

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {kind or 'other'}" for kind, n in self.kinds.items())
        return f"HeadCards({self.model}, {len(self.frame)} heads: {counted})"


@typed
def describe(
    model: Model,
    heads: AnyHeads | None = None,
    *,
    text: AnyText | Sequence[AnyText] | None = None,
    rankings: AnyRankings | None = None,
    k: int = 5,
    progress: bool = True,
) -> HeadCards:
    """What every head does: a table with a row a head, made offline.

    Args:
        heads: those to describe; None for all.
        text: one text or several for `sink`, `entropy`, `span` and what heads promote; None for four packaged paragraphs.
        rankings: further HeadScores of this model, a column each: one, several, or a mapping as `score_heads` returns it.
        k: how many tokens `promotes` and `writes` list.

    `previous`, `induction` and `duplicate` are on three random blocks of 50 tokens, three times; `copying`, `successor` and
    `copy_suppression` are shares of token maps, from weights alone, and NaN where the tokenizer does not have such words as
    single tokens. See `ranking/one_pass/scorers/README.md` for each. ValueError for heads that do not exist, scores of another
    model or with the name of another column, and processed weights.

    `progress`: whether to show bars.

    Cost: a pass over each text, and over each of a few repeated blocks; the weights of every head are multiplied once.

    Example:
        >>> cards = lh.describe(model, heads, text="It rained all day.")
        >>> cards.frame[["head", "layer"]].values.tolist()
        [['L1H0', 1], ['L0H0', 0]]
    """
    require_raw_weights(model)
    shape = require(model, "describe", "pattern", "writes")
    everyone = shape.every_head()
    chosen = everyone if heads is None else shape.check_heads(heads)
    checks.whole_number("k", k, 1, shape.d_vocab)
    named = named_scores(rankings)
    more = {name: _by_query_head(one, shape) for name, one in named.items()}
    check_scores_of(model, named)
    texts = _prose(model.tokenizer, shape) if text is None else text
    found = measured(model, texts, progress) | more
    promoted, written = promotes(model, texts, k, progress), writes(model, k)
    rows = []
    for head in chosen:
        own = {name: float(values[head.layer, head.head]) for name, values in found.items()}
        row: dict[str, Any] = {"head": str(head), "layer": head.layer, "index": head.head}
        row |= {
            "kv_head": head.head // shape.layers[head.layer].group,
            "window": shape.windows[head.layer],
            "kind": kind_of(own),
        }
        place = everyone.index(head)
        rows.append(row | own | {"promotes": promoted[place], "writes": written[place]})
    about = {"block": BLOCK, "copies": COPIES, "thresholds": THRESHOLDS}
    return HeadCards(shape.name, pd.DataFrame(rows), about, identified(model, "cards"))


def _prose(tokenizer: Any, shape: HeadGeometry) -> list[str]:
    """The texts that are read by default. ValueError where the context is too short for them."""
    texts = common_texts(n=TEXTS)
    longest = max(len(prompt_start(tokenizer, one)) for one in texts)
    if longest > shape.n_ctx:
        raise ValueError(
            f"the texts of prose that describe reads have up to {longest} tokens, but the context window of {shape.name} is "
            f"{shape.n_ctx}: pass shorter ones, text=[...]"
        )
    return texts


def kind_of(scores: dict[str, float]) -> str:
    """The kind whose threshold a head's score exceeds by the largest factor; empty if it reaches none."""
    factors = {kind: scores[kind] / threshold for kind, threshold in THRESHOLDS.items() if scores[kind] >= threshold}
    return max(factors, key=factors.__getitem__, default="")


def measured(model: Model, texts: Any, progress: bool) -> dict[str, Float[Tensor, "layer head"]]:
    """The `SCORES` of all heads."""
    block = min(BLOCK, (head_geometry(model).n_ctx - 1) // COPIES)
    blocks = [repeated_blocks(model, block=block, copies=COPIES, seed=seed) for seed in range(SEEDS)]
    found = score_heads(model, blocks, ["previous", "induction", "duplicate"], progress=progress)
    found |= score_heads(model, plain_texts(texts), ["sink", "entropy", "span"], progress=progress)
    values = {name: scores.values for name, scores in found.items()}
    for name, one in packaged_maps(model.tokenizer, head_geometry(model).d_vocab).items():
        values[name] = _of_map(model, name, one)
    return {name: values[name] for name in SCORES}


def _of_map(model: Model, name: str, one: TokenMap) -> Float[Tensor, "layer head"]:
    """The shares of one map; NaN, with a warning, where the tokenizer lacks its words."""
    probe, shape = token_maps({name: one}), head_geometry(model)
    try:
        probe.encode(model.tokenizer, shape)
    except ValueError as error:
        warnings.warn(f"describe leaves {name} out: {error}", stacklevel=users_line())
        return torch.full((shape.n_layers, shape.n_heads), torch.nan)
    return score_heads(model, probe, ["token_map"], progress=False)["token_map"].values


def named_scores(scores: AnyRankings | None) -> dict[str, HeadScores]:
    """The user's scores by the name of their column. ValueError for a name that a card has already."""
    named = {} if scores is None else by_name(scores)
    taken = next((name for name in named if name in (*SCORES, *ABOUT)), None)
    if taken is not None:
        raise ValueError(f"scores {taken!r}: a card has a column of this name: pass a mapping with another one")
    return named


def promotes(model: Model, texts: Any, k: int, progress: bool) -> list[str]:
    """The tokens that each head's mean write on the texts raises most, for all heads in order."""
    encoded = plain_texts(texts).encode(model.tokenizer, head_geometry(model))
    unread: Any = piece(model.tokenizer, "-")  # A trial has an answer, which means do not read.
    trials = [EncodedTrial(one.tokens, None, "-", unread, one.id) for one in encoded]
    means = mean_activations(model, trials, n=None, progress=progress).z
    vectors = {
        layer: _written(means[layer], output_weights(model, layer).cpu()) for layer in head_geometry(model).attending
    }
    return top_tokens(model, vectors, k)


def writes(model: Model, k: int) -> list[str]:
    """The tokens of the direction that each head's OV circuit W_V W_O writes most strongly.

    A direction has two signs; that with the larger single logit W_U gives it is taken.
    """
    found: list[str] = []
    for layer in head_geometry(model).attending:
        W_V, W_O = value_weights(model, layer).cpu(), output_weights(model, layer).cpu()
        core = torch.linalg.qr(
            W_V
        ).R  # [head, e, e]: W_V W_O = Q R W_O, so its right singular vectors are those of R W_O.
        main = torch.linalg.svd(core @ W_O, full_matrices=False).Vh[:, 0]
        both = torch.stack([main, -main])
        raised = torch.stack([(side.to(model.W_U) @ model.W_U).amax(-1) for side in both])
        found += top_tokens(model, {layer: both[raised.argmax(0).cpu(), torch.arange(len(main))]}, k)
    return found


def _written(
    z: Float[Tensor, "head d_head"], W_O: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head d_model"]:
    """What heads write of a z that may be filled up."""
    return einsum(z[: len(W_O), : W_O.shape[1]], W_O, "head e, head e d -> head d")


def top_tokens(model: Model, vectors: Mapping[int, Float[Tensor, "head d_model"]], k: int) -> list[str]:
    """The k tokens that each write raises most, as text. `vectors`: by layer."""
    named: list[str] = []
    for layer, vector in vectors.items():
        ids, _ = extreme_tokens(model, vector, layer, k)
        named += [" ".join(repr(model.tokenizer.decode([token])) for token in row) for row in ids[:, 0].tolist()]
    return named


def _by_query_head(scores: HeadScores, shape: HeadGeometry) -> Float[Tensor, "layer head"]:
    one = to_query_heads(scores, shape.group) if scores.unit == "kv_head" else scores
    shape.check_scores(one, f"scores {scores.method!r}")
    return one.values
