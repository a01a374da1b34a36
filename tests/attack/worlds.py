"""A world of a tiny model and a few trials, and public functions as functions of it: numbers by trial, and of all trials."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

import pandas as pd
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads import compare
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations
from lens_heads.ranking.one_pass.scorers import NAMED_SCORERS, SCORERS, TEXT_SCORERS
from lens_heads.trials.documents import EncodedDocuments
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo
from tests.compare.permuted import TEXTS
from tests.conftest import random_trial

Row: TypeAlias = dict[str, Tensor]
USUAL = [name for name, scorer in TEXT_SCORERS.items() if not scorer.only_named]
LENGTHS = (18, 26, 14, 20)


@dataclass(frozen=True, eq=False)
class World:
    """A model, what it is asked, and what belongs to its heads: a ranking made on other trials, means, and vectors.

    `controls`: of curves; their random heads are drawn by number, whatever the heads are called in another world.
    """

    model: Any
    trials: tuple[EncodedTrial, ...]
    ranking: HeadScores
    means: MeanActivations
    vectors: lh.HeadVectors
    controls: tuple[str, ...] = ("random",)

    @property
    def heads(self) -> list[lh.Head]:
        return self.ranking.top(3)

    def asked(self, trials: Sequence[EncodedTrial]) -> World:
        """The same world with other trials."""
        return replace(self, trials=tuple(trials))


@dataclass(frozen=True, eq=False)
class Found:
    """What a function returned: `rows` by trial, and `whole`, of all trials together.

    What is known head by head, or of kv heads, is [layer, head, ...]; everything else has at most one axis. `weight`: how much
    `whole` counts in a mean of several, None if it is no mean. `sizes`: of the numbers that a difference or ratio is made of.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    whole: Row = field(default_factory=dict)
    weight: float | None = None
    sizes: dict[str, float] = field(default_factory=dict)

    def map(self, change: Callable[[str, Tensor], Tensor]) -> Found:
        """The same with every number changed: a function of its name and value."""
        rows = {trial: {name: change(name, x) for name, x in row.items()} for trial, row in self.rows.items()}
        return replace(self, rows=rows, whole={name: change(name, x) for name, x in self.whole.items()})

    def without(self, *names: str) -> Found:
        """The same without the numbers of these names, under any condition."""

        def kept(row: Row) -> Row:
            return {name: x for name, x in row.items() if name.split(": ")[0] not in names}

        return replace(self, rows={trial: kept(row) for trial, row in self.rows.items()}, whole=kept(self.whole))

    def of(self, trials: Iterable[str]) -> Found:
        """The rows of some trials, in this order, and nothing of all of them."""
        return Found({trial: self.rows[trial] for trial in trials})

    def renamed(self, names: Callable[[str], str]) -> Found:
        """The same with the trials under other ids."""
        return replace(self, rows={names(trial): row for trial, row in self.rows.items()})


def trial(seed: int, length: int) -> EncodedTrial:
    """A trial with everything that any function asks for: a needle, two choices, a text, and a label."""
    made = random_trial(seed, length, (4, 8), answer=2)
    other = random_trial(seed + 50, 2, (0, 1), 1).tokens
    about = {"text": TEXTS[seed].strip(), "label": seed % 2}
    choices = {"choices": ("x", "y"), "choice_tokens": (made.answer_tokens, other)}
    return replace(made, question=(9, 12), meta=about, **choices)  # type: ignore[arg-type]


def hf_model(arch: str) -> Any:
    """A model of two layers, of which one has a sliding window where the architecture has any."""
    changes: dict[str, Any] = {"n_layer" if arch == "gpt2" else "num_hidden_layers": 2}
    if "layer_types" in zoo.CONFIGS[arch][1]:
        changes["layer_types"] = ["sliding_attention", "full_attention"]
    return zoo.hf_model(arch, **changes)


@cache
def world(arch: str) -> World:
    model, draw = zoo.bridge(arch, hf=hf_model(arch)), torch.Generator().manual_seed(3)
    shape = lh.head_geometry(model)
    heads = (shape.n_layers, shape.n_heads)
    z, q, v = torch.randn(3, *heads, shape.d_head, generator=draw)
    ranking = HeadScores.from_trials("mine", torch.rand(2, *heads, generator=draw), ["other-0", "other-1"])
    trials = tuple(trial(seed, length) for seed, length in enumerate(LENGTHS))
    return World(model, trials, ranking, MeanActivations(z, q, ("other-0",)), lh.HeadVectors(v))


def turned(trial: EncodedTrial) -> Tensor:
    """A corruption that knows no token: the needle back to front."""
    tokens, needle = trial.tokens.clone(), slice(*(trial.needle or (0, 0)))
    tokens[needle] = tokens[needle].flip(0)
    return tokens


def documents(trial: EncodedTrial) -> EncodedDocuments:
    """The prompt as three documents, the needle the right one, and a question of three tokens."""
    start, end = trial.needle or (0, 0)
    ask, null = len(trial) - 3, torch.cat([trial.tokens[:-3], trial.tokens[-2:]])
    spans = ((1, start), (start, end), (end, ask))
    return EncodedDocuments(trial.id, trial.tokens, null, ask, spans, (1, 1, 0), (1,))


def score_heads(world: World, **options: Any) -> Found:
    given = {"methods": list(SCORERS), "teacher_forced": True, **options}
    return of_scores(lh.score_heads(world.model, world.trials, progress=False, **given))


def score_heads_named(world: World, **options: Any) -> Found:
    """Apart from the others, since some of these read the last 32 rows, so that nothing is left to prefill."""
    named = [name for name, scorer in NAMED_SCORERS.items() if not scorer.needs]  # Its trials have no distractors.
    return score_heads(world, methods=named, **options)


def score_heads_decoding(world: World, **options: Any) -> Found:
    return score_heads(world, teacher_forced=False, max_new_tokens=4, **options)


def score_heads_nulls(world: World, **options: Any) -> Found:
    return score_heads(world, methods=["locos", "attention_mass"], null_spans=3, **options)


def score_texts(world: World, **options: Any) -> Found:
    """A probe of texts knows them by number: as ids they have those of the trials."""
    texts = lh.plain_texts([torch.cat([one.tokens, one.tokens[:4]]) for one in world.trials], min_distance=4)
    found = of_scores(lh.score_heads(world.model, texts, ["receiver", *USUAL], progress=False, **options))
    return found.renamed(lambda name: world.trials[int(name.removeprefix("text-"))].id)


def score_pairs(world: World, **options: Any) -> Found:
    return of_scores(lh.score_heads(world.model, lh.context_pairs(world.trials), progress=False, **options))


def score_repeated(world: World, **options: Any) -> Found:
    blocks = [lh.repeated_blocks(world.model, block=12, copies=3, seed=seed) for seed in range(2)]
    return of_scores(lh.score_heads(world.model, blocks, progress=False, **options))


def score_weights(world: World, **options: Any) -> Found:
    """A map of tokens by trial: each to the one that follows it."""
    maps = {one.id: dict(itertools.pairwise(one.tokens.tolist())) for one in world.trials}
    found = lh.score_heads(world.model, lh.token_maps(maps), progress=False, **options)
    return of_scores(found)


def score_documents(world: World, **options: Any) -> Found:
    found = lh.score_documents(world.model, list(map(documents, world.trials)), progress=False, **options)
    return replace(
        of_scores(found), sizes={"core": 25}
    )  # A sigmoid, no steeper than 1/4, of attention divided by 0.01.


def rerank(world: World, **options: Any) -> Found:
    texts = [one.meta["text"][:20] for one in world.trials]
    found = lh.rerank(world.model, "who ran?", texts, world.heads, **options).sort_values("position")
    return Found(whole={"score": torch.tensor(found["score"].to_numpy()).float()})


def evaluate(world: World, **options: Any) -> Found:
    return of_evaluation(lh.evaluate(world.model, world.trials, max_new_tokens=3, progress=False, **options))


def contrast(world: World, **options: Any) -> Found:
    options = {"max_new_tokens": 3, "progress": False, **options}
    return of_evaluation(lh.contrast(world.model, world.trials, world.heads, **{"kind": "zero", **options}))


def reinforce(world: World, **options: Any) -> Found:
    return of_evaluation(lh.reinforce(world.model, world.trials, max_new_tokens=3, progress=False, **options))


def ablation_curve(world: World, kind: str = "zero", **options: Any) -> Found:
    options = {"controls": lh.Controls(world.controls, 1), "generate": False, "progress": False, **options}
    curve = lh.ablation_curve(world.model, world.trials, world.ranking, ks=(1, 4), kind=kind, **options)
    return of_frame(curve.per_trial).of(one.id for one in world.trials)  # The table is in the order of the batches.


def ablation_curve_mean(world: World, **options: Any) -> Found:
    return ablation_curve(world, "mean", reference=world.means, **options)


def ablation_curve_uniform(world: World, **options: Any) -> Found:
    return ablation_curve(world, "uniform", **options)


def faithfulness(world: World, **options: Any) -> Found:
    options = {"corruption": turned, "controls": lh.Controls(world.controls, 1), "progress": False, **options}
    found = lh.faithfulness(world.model, world.trials, world.ranking, ks=(2, 5), **{"positions": "all", **options})
    f = {f"f of {k}": torch.tensor(found.faithfulness(lh.Condition.top("mine", k)).value) for k in (2, 5)}
    means = found.per_trial.groupby("set")[found.metric].mean()
    size = float(abs(means["none"]) / abs(means["given"] - means["none"]))
    return replace(of_frame(found.per_trial), whole=f, sizes=dict.fromkeys(f, size))


def streaming(world: World, **options: Any) -> Found:
    given: dict[str, Any] = {
        "shares": (0.5,),
        "sink": 1,
        "recent": 4,
        "controls": lh.Controls("random", 1),
        "max_new_tokens": 2,
        **options,
    }
    table = lh.streaming(world.model, world.trials, {"mine": world.ranking}, progress=False, **given).per_trial
    table = table if world.controls else table[table["set"] != "random"]
    return of_frame(table.assign(set=table["share"], k=0))


def swept(function: Callable[..., HeadScores], *more: Any, **usual: Any) -> Callable[..., Found]:
    """A function of a model and trials (and what follows them) that returns scores."""

    def run(world: World, **options: Any) -> Found:
        given = {
            name: getattr(world, value) if value in ("means", "vectors") else value for name, value in usual.items()
        }
        return of_scores(function(world.model, world.trials, *more, **{**given, "progress": False, **options}))

    return run


def path_patch(world: World, **options: Any) -> Found:
    options = {"corruption": turned, "progress": False, **options}
    receivers = [head for head in world.ranking.ranking() if head.layer == 1][:2]
    return of_scores(lh.path_patch(world.model, world.trials, None, receivers, **options))


def recovery(world: World, **options: Any) -> Found:
    """Log-probabilities: the ratio of their differences has no size of its own."""
    given = {"controls": lh.Controls(world.controls, 1), "fair": False, "flipped": False, "progress": False, **options}
    found = lh.recovery(world.model, world.trials, world.heads, world.heads[:2], **{"kind": "zero", **given}).per_trial
    rows: dict[str, Row] = {}
    for one in found.to_dict("records"):
        numbers = {
            f"{name}: {one['set']}": torch.tensor(float(one[name])) for name in ("lp_clean", "lp_ablated", "lp_patched")
        }
        rows.setdefault(str(one["trial"]), {}).update(numbers)
    return Found(rows)


def sahara(world: World, **options: Any) -> Found:
    found = lh.ranking.sahara(world.model, world.trials, k=2, kind="zero", progress=False, **options)
    return Found(whole={"angle": found.values})


def influence(world: World, **options: Any) -> Found:
    texts = [one.tokens.tolist() for one in world.trials]
    table = lh.influence(world.model, texts, world.heads, progress=False, **{"kind": "uniform", **options}).tokens
    by_text = [torch.tensor(x["difference"].to_numpy()).float() for _, x in table.groupby("document", sort=False)]
    return Found({one.id: {"difference": x} for one, x in zip(world.trials, by_text, strict=True)})


def probe_heads(world: World, **options: Any) -> Found:
    labels = [one.meta["label"] for one in world.trials]
    return of_scores(lh.probe_heads(world.model, world.trials, labels=labels, folds=2, progress=False, **options))


def localize_heads(world: World, **options: Any) -> Found:
    options = {"method": "css", "n_masks": 15, "sparsity": 0.25, "k": 1, "progress": False, **options}
    return of_scores(lh.localize_heads(world.model, world.trials, **{"kind": "zero", **options}))


def one_shot(world: World, **options: Any) -> Found:
    return localize_heads(world, method="one_shot", **options)


def one_shot_groups(world: World, **options: Any) -> Found:
    return localize_heads(world, method="one_shot", unit="kv_head", **options)


def greedy(world: World, **options: Any) -> Found:
    return localize_heads(world, method="greedy", k=2, **options)


def look(world: World, **options: Any) -> Found:
    """All heads of every trial, as [layer, head, step, ...]."""
    names, rows = ("attention", "phi", "z", "writes", "top_logits"), {}
    layers = lh.head_geometry(world.model).n_layers
    for one in world.trials:
        seen = lh.look(world.model, one, k=3, **options)
        rows[one.id] = {name: getattr(seen, name).unflatten(0, (layers, -1)) for name in names}
    return Found(rows)


def token_curves(world: World, **options: Any) -> Found:
    options = {"window": 3, "near": 2, "far": 6, **options}
    made = {one.id: lh.token_curves(world.model, one.tokens.tolist(), **options) for one in world.trials}
    return Found({name: {curve: found.values for curve, found in curves.items()} for name, curves in made.items()})


def mean_activations(world: World, **options: Any) -> Found:
    found = lh.mean_activations(world.model, world.trials, progress=False, **options)
    return Found(whole={"z": found.z, "q": found.q}, weight=found.meta["positions"])


def trial_activations(world: World, **options: Any) -> Found:
    found = {one.id: lh.trial_activations(world.model, one, **options).z for one in world.trials}
    return Found({name: {"z": z.transpose(1, 2)} for name, z in found.items()})


def row_activations(world: World, **options: Any) -> Found:
    found = lh.row_activations(world.model, world.trials, progress=False, **options)
    return Found({name: {"z": z} for name, z in zip(found.trial_ids, found.z, strict=True)})


def task_vectors(world: World, **options: Any) -> Found:
    return Found(whole={"z": lh.task_vectors(world.model, world.trials).z}, weight=len(world.trials))


def describe(world: World, **options: Any) -> Found:
    texts = [one.meta["text"] for one in world.trials]
    cards = lh.describe(world.model, text=texts, progress=False, **options).frame
    numbers = cards[["sink", "entropy", "span", "previous", "induction", "duplicate", "copying", "successor"]]
    layers = lh.head_geometry(world.model).n_layers
    return Found(whole={str(name): torch.tensor(x).float().reshape(layers, -1) for name, x in numbers.items()})


def head_signatures(world: World, **options: Any) -> Found:
    found = compare.head_signatures(world.model, [one.meta["text"] for one in world.trials], progress=False)
    layers = found.patterns.shape[1]
    grams = [torch.cat(list(gram), -1).unflatten(0, (layers, -1)) for gram in found.grams]
    each = zip(world.trials, found.patterns, grams, strict=True)
    return Found({one.id: {"patterns": patterns, "grams": gram} for one, patterns, gram in each})


def of_scores(found: HeadScores | Mapping[str, HeadScores]) -> Found:
    """Scores of one method or several, with their nulls."""
    by_name = {found.method: found} if isinstance(found, HeadScores) else found
    rows: dict[str, Row] = {}
    for name, scores in by_name.items():
        for trial, values in zip(scores.trial_ids, scores.per_trial, strict=True):
            rows.setdefault(trial, {})[name] = values
    whole = {name: scores.values for name, scores in by_name.items()}
    nulls = {f"null of {name}": x.null.movedim(0, -1) for name, x in by_name.items() if x.null is not None}
    return Found(rows, whole | nulls, len(rows))


def of_evaluation(found: lh.Evaluation) -> Found:
    """The metrics by trial, and the texts as numbers of their bytes."""
    rows = {trial: {name: x[i] for name, x in found.metrics.items()} for i, trial in enumerate(found.trial_ids)}
    for trial, text in zip(found.trial_ids, found.texts, strict=True):
        rows[trial]["text"] = torch.tensor([*text.encode()], dtype=torch.float32)
    means = {name: torch.tensor(found.mean(name)) for name in found.metrics}
    return Found(rows, means, len(rows))


def of_frame(found: pd.DataFrame) -> Found:
    """The numbers of a table by trial and condition."""
    known = [name for name in ("logprob", "choice_logprob", "correct", "bytes") if name in found]
    rows: dict[str, Row] = {}
    for one in found.to_dict("records"):
        condition = f"{one['method']} {one['set']} {one['k']} {one['draw']}"
        numbers = {f"{name}: {condition}": torch.tensor(float(one[name])) for name in known}
        rows.setdefault(str(one["trial"]), {}).update(numbers)
    return Found(rows)
