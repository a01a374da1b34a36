"""Repair: put heads' attention where another task would have it, and see whether the answer returns.

Merullo et al. (arXiv 2310.08744, section 5): in Colored Objects the heads that inhibit wrong names in IOI look elsewhere; when
their attention is put on the wrong options, the model's accuracy nearly doubles. So heads are shared, only their inputs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, Unpack

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads.evidence.curve_results import MAIN_TASK, AblationCurve
from lens_heads.heads.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.grouping import labels
from lens_heads.heads.head import AnyHeads, Head
from lens_heads.model.forward import Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.digests import digest
from lens_heads.runs.options import LoopOptions, Run
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

BESIDE = Controls(("random", "random_like"), draws=40)
"""The controls by default."""

Towards: TypeAlias = Literal["others", "answer"] | Callable[[EncodedTrial], Sequence[int]]
NAME = "moved"


@typed
@shared
def repair(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    heads: AnyHeads,
    *,
    towards: Towards = "others",
    controls: AnyControls = BESIDE,
    sets_per_pass: int = 32,
    **run: Unpack[LoopOptions],
) -> AblationCurve:
    """At the rows that give the answer, spread the heads' attention evenly over some tokens of the prompt.

    Args:
        heads: for instance those of a stage of `trace_circuit` on another task.
        trials: trials, which the heads were not found on.
        towards: "others", wherever the prompt has a choice that is not the answer (the paper's repair); "answer", wherever it
            has the answer; or a function of the encoded trial that returns positions of its prompt.
        controls: "random" and "random_like".
        sets_per_pass: sets of heads that run side by side.
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns an `AblationCurve` of "logprob" and "greedy_match": the heads are the ranking "moved", so
    `curve.difference(Condition.top("moved", k), Condition.none(), "greedy_match")` is what the repair gains. A head whose window
    holds none of the positions is left as it is.

    Raises ValueError for no heads, a head that does not exist, trials without choices, and a choice that the prompt lacks.

    Cost: for each trial a run without changes, one with the heads moved, and one for each draw, side by side.

    Example:
        >>> needle = lambda trial: list(range(*trial.needle))
        >>> found = lh.evidence.repair(model, others, heads, towards=needle, controls=())
        >>> found.difference(lh.Condition.top("moved", 2), lh.Condition.none(), "logprob").value < 0
        True
    """
    shape, options = (
        require(model, "repair", "edits", "pattern"),
        Run.of({**run, "batch_size": checks.whole_number("sets_per_pass", sets_per_pass)}),
    )
    chosen = list(dict.fromkeys(shape.check_heads(heads)))
    if not chosen:
        raise ValueError("there are no heads whose attention could be moved: give at least one")
    controls = Controls.given(controls, BESIDE, BESIDE.names, few=False, several=False)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    aims = {trial.id: positions(model, trial, towards) for trial in encoded}
    sets = _sets(shape, chosen, controls)
    settings = {
        **identified(model, "metrics").settings,
        "trials": trials_digest(encoded),
        "towards": digest(list(aims.items())),
    }
    settings["sets"] = digest([[str(head) for head in one.heads] for one in sets])

    def work(batch: list[EncodedTrial]) -> list[Result]:
        (trial,) = batch
        parts = [sets[at : at + options.batch_size] for at in range(0, len(sets), options.batch_size)]
        rows = torch.cat([_measured(model, trial, aims[trial.id], part) for part in parts])
        return [Result({"values": rows}, {})]

    folder = folder_for(model, options.out, settings)
    results = engine.run(encoded, work, folder=folder, progress=options.progress, description="repair")
    kept = [(one, result.arrays["values"]) for one, result in zip(encoded, results, strict=True) if result.keep]
    meta = {
        **settings,
        "task": MAIN_TASK,
        "rankings": [NAME],
        "ks": [len(chosen)],
        "draws": controls.draws,
        "seed": controls.seed,
    }
    return AblationCurve(pd.DataFrame([row for trial, values in kept for row in _rows(trial, sets, values)]), meta)


def positions(model: Model, trial: EncodedTrial, towards: Towards) -> list[int]:
    """Where a trial's attention goes. ValueError for positions outside the prompt, and for a choice that it lacks."""
    if callable(towards):
        given = towards(trial)
        if not isinstance(given, Sequence) or not given:
            raise ValueError(
                f"towards({trial.id}) returned {given!r:.40}: it must list at least one position of the prompt"
            )
        return [checks.whole_number(f"towards({trial.id})", at, 0, len(trial) - 1) for at in given]
    if towards not in ("others", "answer"):
        raise ValueError(f"towards={towards!r}: use 'others', 'answer', or a function of the encoded trial")
    if len(trial.choices) < 2:
        raise ValueError(f"trial {trial.id} has no choices besides its answer: pass Trial(choices=...), or a function")
    wanted = [choice for choice in trial.choices if (choice == trial.answer) == (towards == "answer")]
    return sorted({at for choice in wanted for at in _found(trial, choice)})


def _found(trial: EncodedTrial, choice: str) -> list[int]:
    ids = trial.choice_tokens[trial.choices.index(choice)].tolist()
    tokens = trial.tokens.tolist()
    starts = [at for at in range(len(tokens) - len(ids) + 1) if tokens[at : at + len(ids)] == ids]
    if not starts:
        raise ValueError(
            f"trial {trial.id}: its prompt has no {choice!r} in the tokens of the choice: give towards= a function"
        )
    return [start + step for start in starts for step in range(len(ids))]


def _sets(shape: HeadGeometry, chosen: list[Head], controls: Controls) -> list[HeadSet]:
    """No head, the chosen, and both kinds of random ones."""
    everyone, k = shape.every_head(), len(chosen)
    kinds = {
        Condition.random(k): controls.random(everyone, k),
        Condition.random_like(NAME, k): controls.random_like(chosen, everyone),
    }
    random = [head_set(kind, heads, draw) for kind, drawn in kinds.items() for draw, heads in enumerate(drawn)]
    return [NO_ABLATION, head_set(Condition.top(NAME, k), chosen), *random]


@torch.no_grad()
def _measured(model: Model, trial: EncodedTrial, aim: list[int], sets: Sequence[HeadSet]) -> Float[Tensor, "set 2"]:
    """Log-probability of the answer and whether greedy decoding gives it, under every set. The prompt runs once."""
    device = model.W_U.device
    rows = torch.cat([trial.tokens[-1:], trial.answer_tokens[:-1]])
    with evaluating(model):
        with fast_attention(model):
            cache = Cache(model, 1)
            prefill(model, trial.tokens[None, :-1].to(device), cache)
        with hooked(model, _hooks(head_geometry(model), len(trial), aim, sets)):
            tokens = rows.expand(len(sets), -1).to(device)
            logits = advance(model, tokens, cache.branch(0, len(sets)), logits=len(rows)).float()
    gold = trial.answer_tokens.to(device).expand(len(sets), -1)
    logprob = logits.log_softmax(-1).gather(-1, gold[..., None])[..., 0].mean(-1)
    return torch.stack([logprob, (logits.argmax(-1) == gold).all(-1).float()], -1).cpu()


def _hooks(shape: HeadGeometry, prompt: int, aim: list[int], sets: Sequence[HeadSet]) -> list[tuple[str, Any]]:
    """A hook for every layer with a head of any set."""
    chosen = torch.zeros(shape.n_layers, len(sets), shape.n_heads, dtype=torch.bool)
    for number, one in enumerate(sets):
        for head in one.heads:
            chosen[head.layer, number, head.head] = True
    layers = [layer for layer in range(shape.n_layers) if chosen[layer].any()]
    return [
        (f"blocks.{layer}.attn.hook_pattern", _move(chosen[layer], prompt - 1, aim, shape, layer)) for layer in layers
    ]


def _move(chosen: Bool[Tensor, "set head"], first: int, aim: list[int], shape: HeadGeometry, layer: int) -> Any:
    """The hook: chosen heads attend evenly to those of the positions that a row reaches, if it reaches any."""

    def hook(x: Float[Tensor, "set head row key"], hook: Any) -> Tensor:
        rows = first + torch.arange(x.shape[-2], device=x.device)[:, None]
        keys = first + x.shape[-2] - x.shape[-1] + torch.arange(x.shape[-1], device=x.device)
        seen = torch.isin(keys, torch.tensor(aim, device=x.device)) & shape.reaches(layer, rows, keys)
        number = seen.sum(-1, keepdim=True)
        there = chosen.to(x.device)[:, :, None, None] & (number > 0)
        return torch.where(there, (seen / number.clamp(min=1)).to(x), x)

    return hook


def _rows(trial: EncodedTrial, sets: Sequence[HeadSet], values: Float[Tensor, "set 2"]) -> list[dict[str, Any]]:
    return [
        {"method": one.condition.method, "set": one.condition.set, "k": one.condition.k, "draw": one.draw}
        | {"heads": ",".join(map(str, one.heads)), "task": MAIN_TASK, "trial": trial.id}
        | labels(trial)
        | {"answer": trial.answer, "text": "", "logprob": logprob, "greedy_match": right}
        for one, (logprob, right) in zip(sets, values.tolist(), strict=True)
    ]
