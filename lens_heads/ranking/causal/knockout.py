"""Knockout: what changes in the model's next token, or in its last hidden state, when a head is switched off?

Ships and Sahara (Zhou et al., arXiv 2410.13708): no gold answer is needed, so any behaviour that shows in the first token
counts. `knockout_heads` scores each head alone on each prompt, `sahara` finds a set of heads on all prompts together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores, settings_of
from lens_heads.heads.sets import by_lowest_layer
from lens_heads.interventions.ablate import ablate_each
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_reference
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.interventions.replay import Prefilled, at_once, prefilled
from lens_heads.interventions.spans import parts_of
from lens_heads.model.forward import Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import recording
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.model.workers import shared
from lens_heads.ranking.method import Method, k_rounds
from lens_heads.ranking.method import every_head as passes_for_every_head
from lens_heads.runs import checks, engine
from lens_heads.runs.code import labelled
from lens_heads.runs.digests import digest
from lens_heads.runs.memory import in_parts
from lens_heads.runs.options import Run
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import check_unique, encode_all
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoded import EncodedTrial, placed
from lens_heads.trials.texts import AnyText, EncodedText, listed_texts, plain_texts
from lens_heads.trials.trial import Trial

Prompt: TypeAlias = AnyText | Trial | EncodedTrial
KnockoutMeasure: TypeAlias = Callable[[Float[Tensor, " d_vocab"], Float[Tensor, " d_vocab"]], Float[Tensor, ""] | float]
"""From the float32 logits of the last prompt row, intact and with the head ablated, to a number; larger: the head matters."""


def kl(intact: Float[Tensor, " d_vocab"], ablated: Float[Tensor, " d_vocab"]) -> Float[Tensor, ""]:
    """KL(intact || ablated) of the next token, in nats. By log-softmax, where the authors' code adds 1e-12 to probabilities."""
    p, q = intact.log_softmax(-1), ablated.log_softmax(-1)
    return (p.exp() * (p - q)).sum()


@typed
@shared
def knockout_heads(
    model: Model,
    trials: Iterable[Prompt] | Prompt,
    *,
    kind: str | Ablation,
    measure: str | KnockoutMeasure = "kl",
    **options: Unpack[AblationRun],
) -> HeadScores:
    """Ablate every head alone on each prompt, and measure how far the next token's distribution moves.

    Args:
        trials: strings, token ids, (prompt, response) pairs of strings, or trials, whose answers are not read.
        kind: as in `ablate`. "uniform" is Ships' undifferentiated attention, written into the pattern: the authors scale the
            query by 1e-4, which QK-norm undoes. "scale" with `factor=` is their scaled contribution.
        measure: "kl" (KL of the intact from the ablated next token, nats: Ships), or a function of both rows of logits.
        **options: `reference` and options of the ablation, and `out` and `progress`.

    Returns HeadScores of method "knockout", per prompt. The heads of a prompt run side by side, each from its layer on.

    Raises ValueError for no prompts, an unknown kind or measure, and a measure that is not one finite number.

    `model`: as in `rank`.

    Cost: for each prompt a plain pass, and one for every head, of its last row alone.

    Example:
        >>> found = lh.knockout_heads(model, trials[:2], kind="zero")
        >>> [planted.roles[head] for head in found.top(2)]
        ['copier', 'writer']
    """
    ablation, run = ablation_run(model, kind, options)
    if isinstance(measure, str) and measure != "kl":
        raise ValueError(f"measure={measure!r}: use 'kl', or a function of the intact and the ablated logits")
    judge: KnockoutMeasure = kl if isinstance(measure, str) else measure
    shape, encoded, identity = head_geometry(model), encode_prompts(model, trials), identified(model, "scores")
    ablation.check_spans(encoded, what="prompts")
    check_reference(ablation.reference, made_on(encoded), "prompts", "compute it on others")
    named = "kl" if isinstance(measure, str) else labelled(_name(measure), measure, run.out is not None)
    settings = {**identity.settings, **ablation.settings, "measure": named, "prompts": _digest(encoded, ablation)}

    def work(batch: list[EncodedText]) -> list[Result]:
        (one,) = batch
        filled = prefilled(model, [one])  # type: ignore[list-item]  # only its tokens are read
        (intact,), _ = last_rows(model, one, [()], ablation, filled)
        values = shape.table()
        everyone = [(head,) for head in shape.every_head()]
        rerun = partial(last_rows, model, one, ablation=ablation, filled=filled)
        for sets, (rows, _) in in_parts(rerun, everyone, at_once(model, len(one.tokens))):
            for (head,), ablated in zip(sets, rows, strict=True):
                values[head.layer, head.head] = _number(judge(intact, ablated), one, head)
        return [Result({"score": values}, {})]

    results = _run(model, encoded, work, run, settings, "knockout")
    kept = {one.id: result.arrays["score"] for one, result in zip(encoded, results, strict=True) if result.keep}
    about: dict[str, Any] = {"model": identity, "made_on": made_on(encoded), "settings": settings_of(settings)}
    about |= {"score_unit": "nats", "signed": False} if named == "kl" else {}  # A KL below zero is rounding.
    return HeadScores.from_trials("knockout", torch.stack(list(kept.values())), list(kept), meta=settings, **about)


@typed
@shared
def sahara(
    model: Model,
    trials: Iterable[Prompt] | Prompt,
    *,
    k: int = 5,
    kind: str | Ablation,
    **options: Unpack[AblationRun],
) -> HeadScores:
    """The set of heads that together turn the prompts' last hidden states furthest, found greedily.

    M [prompt, d_model] holds the hidden states after the final norm at the last row; u is its first left singular vector, not
    centred. The angle between u of the intact and of the ablated model, in degrees, grows by the heads chosen so far and one
    more at a time. `k` times all heads run on every prompt. Arguments as in `knockout_heads`.

    Returns HeadScores of method "sahara": `order` holds the chosen heads, `values` the angle of every head alone,
    `meta["angles"]` the angle after each choice. There are no trials to resample: the angle is one number for all prompts.
    Raises ValueError for fewer than two prompts, between whose states there is no angle.

    Example:
        >>> found = lh.ranking.sahara(untrained, trials, k=2, kind="uniform")
        >>> one, two = found.meta["angles"]
        >>> len(found.order), two > one > 0
        (2, True)
    """
    shape, encoded = head_geometry(model), encode_prompts(model, trials)
    everyone = shape.every_head()
    checks.whole_number("k", k, 1, len(everyone), ", the number of heads")
    if len(encoded) < 2:
        raise ValueError("one prompt: the direction of its state among prompts is not defined: pass several")
    ablation, run = ablation_run(model, kind, options)
    ablation.check_spans(encoded, what="prompts")
    check_reference(ablation.reference, made_on(encoded), "prompts", "compute it on others")
    identity = identified(model, "scores")
    settings = {**identity.settings, **ablation.settings, "measure": "angle", "prompts": _digest(encoded, ablation)}
    filled = [prefilled(model, [one]) for one in encoded]  # type: ignore[list-item]  # only its tokens are read

    def states(sets: Sequence[tuple[Head, ...]]) -> Float[Tensor, "set prompt d_model"]:
        rows = [last_rows(model, one, sets, ablation, each)[1] for one, each in zip(encoded, filled, strict=True)]
        return torch.stack(rows, 1)

    intact = main_direction(states([()])[0])

    def work(batch: list[tuple[Head, ...]]) -> list[Result]:
        return [Result({"angle": angle(intact, main_direction(each))}, {}) for each in states(batch)]

    most = at_once(model, max(len(one.tokens) for one in encoded))

    chosen: list[Head] = []
    angles: list[float] = []
    alone = shape.table()
    while len(chosen) < k:
        sets = [(*chosen, head) for head in everyone if head not in chosen]
        found = _run(model, sets, work, run, settings, f"sahara {len(chosen) + 1}/{k}", _key, most)
        _check_whole(sets, found)
        turned = torch.stack([result.arrays["angle"] for result in found])
        if not chosen:
            alone[~shape.holes] = turned.to(alone)
        best = int(turned.argmax())
        chosen.append(sets[best][-1])
        angles.append(float(turned[best]))
    about = {"order": tuple(chosen), "selected": True, "score_unit": "degrees", "signed": False, "model": identity}
    about |= {"settings": settings_of(settings), "made_on": made_on(encoded)}
    meta = {**settings, "angles": angles, "k": k}
    return HeadScores.from_trials("sahara", alone[None], ["all prompts"], meta=meta, **about)


def _check_whole(sets: Sequence[tuple[Head, ...]], found: Sequence[Result]) -> None:
    """ValueError for a set of heads that failed: without it the best of a round is not known."""
    lost = next((heads for heads, result in zip(sets, found, strict=True) if not result.keep), None)
    if lost is not None:
        raise ValueError(
            f"sahara: without {', '.join(map(str, lost))} the model failed (see the warning above), so the best head of this "
            "round is not known: repeat the call, with the same out= to continue"
        )


def main_direction(states: Float[Tensor, "prompt d_model"]) -> Float[Tensor, " prompt"]:
    """The first left singular vector."""
    return torch.linalg.svd(states.double(), full_matrices=False).U[:, 0]


def angle(a: Float[Tensor, " prompt"], b: Float[Tensor, " prompt"]) -> Float[Tensor, ""]:
    """Between two lines, in degrees, 0 to 90."""
    return torch.rad2deg(torch.arccos((a @ b).abs().clamp(max=1))).float()


def encode_prompts(model: Model, prompts: Iterable[Prompt] | Prompt) -> list[EncodedText]:
    """Prompts of any form in tokens. ValueError for none, repeated ids, and ids or lengths that the model does not have."""
    shape = head_geometry(model)
    listed: list[Any] = [prompts] if isinstance(prompts, Trial | EncodedTrial) else listed_texts(prompts)
    if listed and all(isinstance(one, Trial | EncodedTrial) for one in listed):
        trials = encode_all(listed, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
        return [EncodedText(one.id, one.tokens, group=one.group, place=one.place, needle=one.needle) for one in trials]
    encoded = placed(plain_texts(listed).encode(model.tokenizer, shape))
    check_unique(one.id for one in encoded)
    return encoded


@torch.no_grad()
def last_rows(
    model: Model, one: EncodedText, sets: Sequence[Sequence[Head]], ablation: Ablation, filled: Prefilled | None
) -> tuple[Float[Tensor, "set d_vocab"], Float[Tensor, "set d_model"]]:
    """Logits, and the hidden states after the final norm, of the last prompt row, each set ablated everywhere; float32."""
    tokens, n_layers = one.tokens[None].to(model.W_U.device), int(model.cfg.n_layers)
    order, begins = by_lowest_layer(sets, n_layers)
    places, name = torch.tensor(order).argsort(), f"blocks.{n_layers - 1}.hook_resid_post"
    with ablate_each(model, [sets[at] for at in order], ablation), evaluating(model), fast_attention(model):
        if filled is None:
            cache = Cache(model, len(sets))
            cache.assign(len(sets), 1, parts_of([one]))  # type: ignore[list-item]  # only its tokens and needle are read
            prefill(model, tokens[:, :-1].expand(len(sets), -1), cache)
        else:
            cache = filled.replay(model, begins)
        with recording(model, [name]) as seen:
            logits = advance(model, tokens[:, -1:].expand(len(sets), -1), cache)
        hidden = model.ln_final(seen[name][0])
    return logits[:, -1].float().cpu()[places], hidden[:, -1].float().cpu()[places]


def _run(
    model: Model,
    items: Sequence[Any],
    work: Callable[[list[Any]], list[Result]],
    run: Run,
    settings: dict[str, Any],
    description: str,
    key: Callable[[Any], Any] = attrgetter("id"),
    most: int = 1,
) -> list[Result]:
    folder = folder_for(model, run.out, settings)
    return engine.run(items, work, key, folder=folder, batch_size=most, progress=run.progress, description=description)


def _key(heads: tuple[Head, ...]) -> tuple[str, ...]:
    return ("+".join(sorted(head.key for head in heads)),)


def _digest(encoded: Sequence[EncodedText], ablation: Ablation) -> str:
    spans = [one.needle for one in encoded] if ablation.options.get("span") == "needle" else []
    return digest([[one.id, one.tokens.tolist()] for one in encoded] + spans)


def _name(measure: Any) -> str:
    return getattr(measure, "__name__", type(measure).__name__)


def _number(value: Any, one: EncodedText, head: Head) -> float:
    """A measure's value. ValueError unless it is one finite number."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        tensor = torch.empty(0)
    if tensor.numel() != 1 or not torch.isfinite(tensor.float()).all():
        raise ValueError(f"{one.id}: the measure gave {value!r:.60} for {head}: it must be one finite number")
    return float(tensor)


METHODS = (
    Method(
        "knockout", "ablation", lambda m: knockout_heads(m.model, m.trials, kind="uniform", **m.loop("knockout")),
        passes=passes_for_every_head, signed=False, paper="Ships, arXiv 2410.13708",
        fails="any change of the next token counts, also to a better answer", unit="nats",
    ),
    Method(
        "sahara", "search", lambda m: sahara(m.model, m.trials, k=m.k, kind="uniform", **m.loop("sahara")), passes=k_rounds,
        halves=True, only_named=True, signed=False, paper="Sahara, arXiv 2410.13708",
        fails="any turn of the last hidden states counts; heads after the chosen ones rank by themselves alone",
        unit="degrees",
    ),
)  # fmt: skip
