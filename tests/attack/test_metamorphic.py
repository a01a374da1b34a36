"""What must hold between two calls, whatever the right numbers are: a table of relations, and the functions that have them.

A relation makes another world (`tests.attack.worlds`) or another call, in which every number is known from those of the first.
Functions that a relation leaves out cannot have it, for the reason that stands there. Two relations need other processes and
stand elsewhere: calls shared among workers (`tests/model/test_workers.py`), and calls that are killed (`test_kills.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads import tasks
from lens_heads.answering.patch_metrics import OF_ONE_RUN
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.store import RunFolder
from lens_heads.trials.metrics import TEXT_METRICS
from tests import handmade, zoo
from tests.attack import worlds
from tests.attack.worlds import Found, World, hf_model, swept, turned, world
from tests.commands import needles, run, score_file
from tests.compare.permuted import shuffle_heads
from tests.rounding import STEPS, rounding

Function = Callable[..., Found]
FUNCTIONS: dict[str, Function] = {
    "score_heads": worlds.score_heads,
    "score_heads, named": worlds.score_heads_named,
    "score_heads, decoding": worlds.score_heads_decoding,
    "score_heads, null_spans": worlds.score_heads_nulls,
    "score_heads, texts": worlds.score_texts,
    "score_heads, pairs": worlds.score_pairs,
    "score_heads, repeated": worlds.score_repeated,
    "score_heads, weights": worlds.score_weights,
    "score_documents": worlds.score_documents,
    "rerank": worlds.rerank,
    "evaluate": worlds.evaluate,
    "contrast": worlds.contrast,
    "reinforce": worlds.reinforce,
    "ablation_curve": worlds.ablation_curve,
    "ablation_curve, mean": worlds.ablation_curve_mean,
    "ablation_curve, uniform": worlds.ablation_curve_uniform,
    "faithfulness": worlds.faithfulness,
    "streaming": worlds.streaming,
    "influence": worlds.influence,
    "patch_heads": swept(lh.patch_heads, corruption=turned),
    "patch_heads, all": swept(lh.patch_heads, corruption=turned, positions="all"),
    "path_patch": worlds.path_patch,
    "attribution_patch": swept(lh.attribution_patch, positions="all", corruption=turned),
    "attribute_queries": swept(lh.ranking.attribute_queries, corruption=turned),
    "attribute_ablation": swept(lh.attribute_ablation, kind="mean", reference="means"),
    "gradient_importance": swept(lh.ranking.gradient_importance, normalise=False),
    "gradient_importance, shares": swept(lh.ranking.gradient_importance),
    "aie": swept(lh.average_indirect_effect, vectors="vectors", metric="first_token_prob"),
    "knockout_heads": swept(lh.knockout_heads, kind="uniform"),
    "recovery": worlds.recovery,
    "sahara": worlds.sahara,
    "probe_heads": worlds.probe_heads,
    "localize_heads": worlds.localize_heads,
    "localize_heads, one_shot": worlds.one_shot,
    "localize_heads, kv_group": worlds.one_shot_groups,
    "localize_heads, greedy": worlds.greedy,
    "look": worlds.look,
    "token_curves": worlds.token_curves,
    "mean_activations": worlds.mean_activations,
    "trial_activations": worlds.trial_activations,
    "row_activations": worlds.row_activations,
    "task_vectors": worlds.task_vectors,
    "describe": worlds.describe,
    "head_signatures": worlds.head_signatures,
}
SLOW = (
    "score_heads, decoding", "contrast", "reinforce", "streaming", "ablation_curve, uniform", "path_patch", "sahara",
    "localize_heads", "localize_heads, greedy", "localize_heads, kv_group", "look", "describe",
)  # fmt: skip
"""Functions that stand on a relation's first model only."""


@dataclass(frozen=True)
class Case:
    """One function in one world, and a folder of its own."""

    function: str
    world: World
    arch: str
    folder: Path

    def __call__(self, world: World | None = None, **options: Any) -> Found:
        return FUNCTIONS[self.function](world or self.world, **options)

    @property
    def base(self) -> Found:
        """What the plain call returns."""
        return plain(self.function, self.arch)


@cache
def plain(function: str, arch: str) -> Found:
    found = FUNCTIONS[function](world(arch))
    assert not found.rows or "repeated" in function or list(found.rows) == [one.id for one in world(arch).trials]
    return found


# Relations: each returns what a call gave and what it had to give.

Relation = Callable[[Case], tuple[Found, Found]]


def batches(case: Case) -> tuple[Found, Found]:
    """Three trials in one forward pass give what they give one by one."""
    return case(batch_size=3), case(batch_size=1) if case.function in LOCALIZED else case.base  # Their default is 8.


def padding(case: Case) -> tuple[Found, Found]:
    """The shortest trial beside the longest, with padding before it, gives what it gives alone."""
    short, long = (sorted(case.world.trials, key=len)[place] for place in (0, -1))
    both, alone = (case(case.world.asked(trials), batch_size=2) for trials in ([short, long], [short]))
    return both.of([short.id]), alone.of([short.id])


def chunks(case: Case) -> tuple[Found, Found]:
    """A prompt in pieces of five tokens gives what it gives at once."""
    return case(chunk=5), case.base


def one_by_one(case: Case) -> tuple[Found, Found]:
    """Sets of heads, one in each forward pass, give what they give side by side."""
    per_pass: dict[str, Any] = {"heads_per_pass": 1} if case.function.startswith(("patch_heads", "aie")) else {}
    expected = case.base
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lens_heads.interventions.replay.ROWS", {"cpu": 1})
        return case(**per_pass), expected


def reordered(case: Case) -> tuple[Found, Found]:
    """Trials in another order give the same rows in that order, and the same of all."""
    trials = [case.world.trials[i] for i in (2, 0, 3, 1)]
    expected = replace(case.base, rows=case.base.of(one.id for one in trials).rows if case.base.rows else {})
    return case(case.world.asked(trials)), expected


def renamed(case: Case) -> tuple[Found, Found]:
    """Trials under other ids give the same numbers under these."""
    names = {one.id: f"{'zyxw'[i]} of another name" for i, one in enumerate(case.world.trials)}
    trials = [replace(one, id=names[one.id]) for one in case.world.trials]
    return case(case.world.asked(trials)), case.base.renamed(names.__getitem__)


def repeated(case: Case) -> tuple[Found, Found]:
    """A trial that stands there twice, under two ids, gives the same twice."""
    one = case.world.trials[1]
    found = case(case.world.asked([*case.world.trials, replace(one, id="again")]))
    return Found({"": found.rows["again"]}), Found({"": found.rows[one.id]})


def merged(case: Case) -> tuple[Found, Found]:
    """Two halves give the rows of the whole, and their mean, by their weights, is that of the whole."""
    trials = case.world.trials
    halves = [case(case.world.asked(part)) for part in (trials[:2], trials[2:])]
    rows = dict(chain.from_iterable(half.rows.items() for half in halves))
    weights = [half.weight for half in halves if half.weight is not None]
    if not weights:
        return Found(rows), replace(case.base, whole={})
    parts = {name: [half.whole[name] for half in halves] for name in case.base.whole}
    shares = torch.tensor(weights) / sum(weights)
    means = {name: torch.einsum("i,i...->...", shares, torch.stack(each)) for name, each in parts.items()}
    return Found(rows, means), case.base


def moved_heads(case: Case) -> tuple[Found, Found]:
    """Where kv groups, and heads inside them, stand in another order, the numbers of heads stand so, and others are the same."""
    moved, move = in_another_order(case.arch)
    before = case(replace(case.world, controls=())) if case.function in DRAWN else case.base
    return case(moved), before.map(move)


def relabelled(case: Case) -> tuple[Found, Found]:
    """Where every token has another id, in the weights and in the trials, the numbers are the same, but for texts."""
    texts = (*TEXT_METRICS, "text")
    return case(in_other_tokens(case.arch)).without(*texts), case.base.without(*texts)


def rescaled(case: Case) -> tuple[Found, Found]:
    """With queries and values doubled, keys and W_O halved, only z, q and what is said to be in their units are others."""
    factors = {"z": 2, "q": 2, "task_kv": 2, "grams": 4}
    return case(with_scales(case.arch)), case.base.map(lambda name, x: factors.get(name, 1) * x)


def other_units(case: Case) -> tuple[Found, Found]:
    """Effects on 2 m + 1 are twice those on m, and shares of effects are the same."""

    def twice(logits: Tensor, gold: Tensor) -> Tensor:
        return 2 * OF_ONE_RUN["logprob"](logits, gold) + 1

    twice.__name__ = "logprob"  # The column that holds it.

    def expected(name: str, x: Tensor) -> Tensor:
        if case.function == "faithfulness":
            return 2 * x + 1 if name.startswith("logprob") else x
        return x if case.function.endswith("shares") else 2 * x

    return case(metric=twice), case(metric="logprob").map(expected)


def resumed(case: Case) -> tuple[Found, Found]:
    """A call that was interrupted after its second result goes on from there, and gives what one without a folder gives."""
    write, written = RunFolder.write, list[Any]()

    def counted(folder: RunFolder, key: Any, result: Any) -> None:
        write(folder, key, result)
        written.append(key)
        if len(written) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "write", counted)
        with pytest.raises(KeyboardInterrupt):
            case(out=case.folder / "run")
        found = case(out=case.folder / "run")
    assert len(written) == len(set(written)) > 2, "a result was stored twice, or all were before the interrupt"
    return found, case.base


# The table


def every(*without: str) -> tuple[str, ...]:
    """All functions but these."""
    assert set(without) <= set(FUNCTIONS)
    return tuple(name for name in FUNCTIONS if name not in without)


NEEDLES = ("score_heads", "score_heads, named", "score_heads, decoding", "score_heads, null_spans")
CURVES = ("ablation_curve", "ablation_curve, mean", "ablation_curve, uniform")
LOCALIZED = tuple(name for name in FUNCTIONS if name.startswith("localize_heads"))
DRAWN = (*CURVES, "faithfulness", "streaming", "recovery")
"""Functions with random heads as controls."""
BATCHED = (*NEEDLES, "evaluate", *CURVES, "recovery", *LOCALIZED)
DRAWN_BY_PLACE, DRAWN_BY_ID, DRAWN_BY_HEAD = "probe_heads", "score_heads, null_spans", "localize_heads"
"""Functions that draw folds, null spans and masks."""
CAPPED = ("streaming",)
"""Functions that a model with capped scores cannot run."""
TOGETHER = ("localize_heads", "localize_heads, greedy", "sahara", "probe_heads", "gradient_importance, shares")
"""Functions whose numbers depend on all trials together."""
NO_TRIALS = ("score_heads, repeated", "rerank")
NO_ROWS = ("mean_activations", "task_vectors", "describe", "sahara")
NO_IDS = (*NO_ROWS, "score_heads, texts", "influence", "token_curves", "head_signatures")
TEXTS = ("score_heads, repeated", "rerank", "describe", "head_signatures")
"""Functions of texts, or that draw tokens themselves."""
EFFECTS = (
    "faithfulness", "patch_heads", "patch_heads, all", "path_patch", "attribution_patch", "attribute_queries",
    "attribute_ablation", "gradient_importance", "gradient_importance, shares", "aie",
)  # fmt: skip
STORED = (
    *NEEDLES, "score_heads, texts", "score_heads, pairs", "score_documents", "evaluate", "contrast", "reinforce", *CURVES,
    *EFFECTS, "streaming", "recovery", "influence", "knockout_heads", "sahara", "probe_heads", *LOCALIZED,
)  # fmt: skip

TABLE: dict[Relation, tuple[Iterable[str], tuple[str, ...]]] = {
    batches: (BATCHED, ("gemma2", "gpt2")),
    padding: ([name for name in BATCHED if name not in TOGETHER], ("gemma2", "gpt2")),
    chunks: ((*NEEDLES, "score_documents", "rerank", "look"), ("gemma2", "llama-gqa")),
    one_by_one: (
        (*CURVES, "patch_heads", "patch_heads, all", "aie", "recovery", "knockout_heads", *LOCALIZED),
        ("llama-gqa",),
    ),
    reordered: (every(*NO_TRIALS, DRAWN_BY_PLACE), ("gpt2",)),
    renamed: (every(*NO_TRIALS, *NO_IDS, DRAWN_BY_ID), ("llama-gqa",)),
    repeated: (every(*NO_TRIALS, *NO_ROWS, *CAPPED, DRAWN_BY_PLACE), ("gemma2",)),
    merged: (every(*NO_TRIALS, *TOGETHER, "describe"), ("llama-gqa",)),
    moved_heads: (every(DRAWN_BY_HEAD), ("llama-gqa", "gpt2")),
    relabelled: (every(*TEXTS, *CAPPED, "score_heads, decoding"), ("gemma2",)),
    rescaled: (every(), ("llama-gqa",)),
    other_units: (EFFECTS, ("gpt2",)),
    resumed: (STORED, ("llama-gqa",)),
}
"""The relations, each with the functions that have it and the models it is shown on."""

CASES = [
    pytest.param(relation, function, arch, id=f"{relation.__name__}-{function}-{arch}")
    for relation, (functions, archs) in TABLE.items()
    for function in functions
    for arch in (archs[:1] if function in SLOW else archs)
]


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*failed:UserWarning")  # A batch that raises would run again in halves.
@pytest.mark.parametrize(("relation", "function", "arch"), CASES)
def test_relation(relation: Relation, function: str, arch: str, tmp_path: Path, answered: None) -> None:
    alike(*relation(Case(function, world(arch), arch, tmp_path)))


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is generated passes the gate, and its first and last step are the answer."""
    monkeypatch.setattr("lens_heads.trials.answers.passes", lambda trial, text: True)
    monkeypatch.setattr(
        "lens_heads.trials.answers.answer_steps", lambda trial, generated, tokenizer: sorted({0, len(generated) - 1})
    )


def alike(found: Found, expected: Found) -> None:
    """The same trials in the same order, with the same numbers but for rounding at the size of the largest of their name."""
    assert list(found.rows) == list(expected.rows)
    assert expected.rows or expected.whole, "nothing is compared"
    pairs = [(found.whole, expected.whole), *((found.rows[trial], row) for trial, row in expected.rows.items())]
    sizes: dict[str, float] = dict(expected.sizes)
    for _, row in pairs:
        for name, x in row.items():
            sizes[name] = max(sizes.get(name, 1.0), float(x.nan_to_num().abs().max()) if x.numel() else 0)
    for row, wanted in pairs:
        assert row.keys() == wanted.keys()
        for name, x in wanted.items():
            steps = STEPS if x.dtype == torch.float32 else 2  # `look` keeps float16.
            tolerance = rounding(sizes[name], steps, x.dtype)
            torch.testing.assert_close(
                row[name], x, atol=tolerance, rtol=0, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
            )


# Other worlds


@cache
def in_another_order(arch: str) -> tuple[World, Callable[[str, Tensor], Tensor]]:
    """The same world with heads in another order, and how numbers of heads stand there. No heads are drawn at random."""
    before, hf = world(arch), hf_model(arch)
    truth = shuffle_heads(hf, torch.Generator().manual_seed(1))
    model, group = zoo.bridge(arch, hf=hf), lh.head_geometry(before.model).group
    n_heads = lh.head_geometry(before.model).n_heads

    def move(name: str, x: Tensor) -> Tensor:
        if x.ndim < 2:
            return x
        new, share = x.clone(), 1 if x.shape[1] == n_heads else group
        for old, now in truth.items():
            new[now.layer, now.head // share] = x[old.layer, old.head // share]
        return new

    assert any(old != now for old, now in truth.items())
    return at_heads(replace(before, model=model, controls=()), lambda x: move("", x)), move


def at_heads(world: World, change: Callable[[Tensor], Tensor]) -> World:
    """A world whose ranking, means and vectors are changed: a function of [layer, head, ...]."""
    per_trial = torch.stack([change(x) for x in world.ranking.per_trial])
    means = replace(world.means, z=change(world.means.z), q=change(world.means.q))
    ranking = lh.HeadScores.from_trials(world.ranking.method, per_trial, world.ranking.trial_ids)
    return replace(world, ranking=ranking, means=means, vectors=replace(world.vectors, z=change(world.vectors.z)))


@cache
@torch.no_grad()
def in_other_tokens(arch: str) -> World:
    """The same world where every token but the special ones has the id of another."""
    before, hf = world(arch), hf_model(arch)
    ids = torch.cat([torch.arange(3), 3 + torch.randperm(zoo.VOCAB - 3, generator=torch.Generator().manual_seed(2))])
    for weight in {id(x): x for x in (hf.get_input_embeddings().weight, hf.get_output_embeddings().weight)}.values():
        weight[ids] = weight.clone()
    trials = [
        replace(
            one,
            tokens=ids[one.tokens],
            answer_tokens=ids[one.answer_tokens],
            choice_tokens=tuple(ids[each] for each in one.choice_tokens),
        )
        for one in before.trials
    ]
    return replace(before, model=zoo.bridge(arch, hf=hf), trials=tuple(trials))


@cache
@torch.no_grad()
def with_scales(arch: str) -> World:
    """The same world with queries and values doubled, keys and the outputs of heads halved. Powers of two round nothing."""
    before, hf = world(arch), hf_model(arch)
    for attention in handmade.attentions(hf):
        for name, factor in (("q_proj", 2), ("k_proj", 0.5), ("v_proj", 2), ("o_proj", 0.5)):
            getattr(attention, name).weight.mul_(factor)
    return at_heads(replace(before, model=zoo.bridge(arch, hf=hf)), lambda x: 2 * x)


# The command line


@dataclass(frozen=True)
class Command:
    """A command, the same call in Python, and where the command left its numbers."""

    words: tuple[str, ...]
    call: Callable[[Any, list[Any], HeadScores], Found]
    read: Callable[[Path], Found]


def of_files(*names: str) -> Callable[[Path], Found]:
    """Scores from the files that a command wrote."""
    return lambda out: worlds.of_scores({name: HeadScores.load(out / f"{name}.json") for name in names})


Q: dict[str, Any] = {"progress": False}
METHODS = ("locos", "attention_mass", "dla", "headkv")
SMALL = {"n_masks": 12, "sparsity": 0.25, "k": 1}
COMMANDS = {
    "score": Command(
        ("score", "--teacher-forced", "--methods", ",".join(METHODS), "--batch-size", "2"),
        lambda model, trials, _: worlds.of_scores(lh.score_heads(model, trials, METHODS, teacher_forced=True, **Q)),
        of_files(*METHODS),
    ),
    "score, exact": Command(
        ("score", "--teacher-forced", "--methods", "locos", "--direction", "exact", "--null-spans", "3"),
        lambda model, trials, _: worlds.of_scores(
            lh.score_heads(model, trials, "locos", teacher_forced=True, direction="exact", null_spans=3, **Q)
        ),
        of_files("locos"),
    ),
    "patch": Command(
        ("patch",),
        lambda model, trials, _: worlds.of_scores(lh.patch_heads(model, trials, **Q)),
        of_files("patching_answer"),
    ),
    "patch, attribution": Command(
        ("patch", "--ig-steps", "1", "--positions", "all", "--metric", "answer_logit"),
        lambda model, trials, _: worlds.of_scores(
            lh.attribution_patch(model, trials, metric="answer_logit", positions="all", **Q)
        ),
        of_files("attribution"),
    ),
    "localize": Command(
        ("localize", "--masks", "12", "--sparsity", "0.25", "-k", "1"),
        lambda model, trials, _: worlds.of_scores(lh.localize_heads(model, trials, **SMALL, **Q, kind="zero")),
        of_files("css"),
    ),
    "localize, kv_group": Command(
        ("localize", "--method", "one_shot", "--unit", "kv_head", "-k", "1"),
        lambda model, trials, _: worlds.of_scores(
            lh.localize_heads(model, trials, method="one_shot", unit="kv_head", k=1, **Q, kind="zero")
        ),
        of_files("one_shot"),
    ),
    "ablate": Command(
        ("ablate", "-s", "SCORES", "--kind", "zero", "--ks", "1,3", "--draws", "2", "--no-text"),
        lambda model, trials, scores: worlds.of_frame(
            lh.ablation_curve(
                model, trials, scores, ks=(1, 3), kind="zero", controls=lh.Controls(draws=2), generate=False, **Q
            ).per_trial
        ),
        lambda out: worlds.of_frame(pd.read_parquet(out / "per_trial.parquet")),
    ),
    "ablate, streaming": Command(
        (
            "ablate",
            "-s",
            "SCORES",
            "--kind",
            "streaming",
            "--option",
            "sink=1",
            "--option",
            "recent=9",
            "--ks",
            "3",
            "--no-text",
        ),
        lambda model, trials, scores: worlds.of_frame(
            lh.ablation_curve(
                model, trials, scores, ks=3, kind="streaming", sink=1, recent=9, generate=False, **Q
            ).per_trial
        ),
        lambda out: worlds.of_frame(pd.read_parquet(out / "per_trial.parquet")),
    ),
}


@pytest.fixture(scope="module", params=["llama-gqa", "gpt2"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder of a model, and the model that is loaded from it."""
    folder = tmp_path_factory.mktemp(request.param)
    zoo.hf_model(request.param).save_pretrained(folder)
    zoo.tokenizer().save_pretrained(folder)
    return folder, lh.load_model(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gives_what_the_call_gives(
    name: str, saved: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder, model), command, out = saved, COMMANDS[name], tmp_path / "run"
    given = {"source": str(needles(tmp_path / "data")), "needle_set": "one.json", "lengths": [240], "depths": [0.5]}
    task = [word for key, value in given.items() for word in ("--with", f"{key}={value}")]
    scores = score_file(tmp_path / "scores.json")
    words = [str(scores) if word == "SCORES" else word for word in command.words]
    words += ["-m", str(folder), "--task", "nolima", *task, "--with", "chat=false", "-o", str(out)]
    assert run(*words, monkeypatch=monkeypatch) == 0
    alike(command.read(out), command.call(model, tasks.load("nolima", chat=False, **given), HeadScores.load(scores)))
