"""Contrastive decoding against the model without some heads (DeCoRe, Gema et al., arXiv 2410.18860)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.evaluation import Evaluation, collect, finite
from lens_heads.heads.head import AnyHeads
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_reference
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.interventions.spans import parts_of
from lens_heads.model.decoding import decode, opened, text_of
from lens_heads.model.forward import Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry
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
from lens_heads.trials.metrics import text_scores
from lens_heads.trials.trial import AnyTrial


def contrasted(
    intact: Float[Tensor, "*row d_vocab"],
    ablated: Float[Tensor, "*row d_vocab"],
    alpha: float | None,
    cap: float | None,
) -> Float[Tensor, "*row d_vocab"]:
    """(1 + alpha) log p_intact - alpha log p_ablated; alpha None: the entropy of p_intact in nats, at most `cap`."""
    one, other = intact.float().log_softmax(-1), ablated.float().log_softmax(-1)
    weight: Tensor | float = alpha if alpha is not None else -(one.exp() * one).sum(-1, keepdim=True).clamp(max=0)
    if alpha is None and cap is not None:
        weight = torch.clamp(torch.as_tensor(weight), max=cap)
    return (1 + weight) * one - weight * other


@typed
@shared
def contrast(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    heads: AnyHeads,
    *,
    alpha: float | None = None,
    cap: float | None = None,
    kind: str | Ablation,
    **options: Unpack[AblationRun],
) -> Evaluation:
    """Decode greedily from what the model says minus what it would say without some heads.

    Args:
        heads: retrieval heads, made on other trials (the authors' 10 to 100 best by `copy`).
        alpha: how much; 0 is plain decoding. None: in every step the entropy of the intact next token, nats, at most `cap`.
        kind: how the heads are ablated; the authors set them to zero.
        **options: `reference` and options of the ablation, and those of the run (`runs.options.RunOptions`).

    As in the authors' code, heads are ablated from the prompt's last token on; the prompt is read by the intact model.
    `logprob` is the gold answer's under the contrast, renormalized. Compare with `evaluate` on the same trials. ValueError
    as `evaluate` raises, and for a reference of another model, or computed on these trials.

    Cost: two runs of each trial, with and without the heads, which decode token by token.

    Example:
        >>> lh.contrast(model, others[:2], heads, max_new_tokens=1, kind="zero").texts
        ('A', 'B')
    """
    for name, value in (("alpha", alpha), ("cap", cap)):
        if value is not None:
            checks.finite(name, value, 0)
    ablation, run = ablation_run(model, kind, options)
    shape, room = head_geometry(model), run.room(True)
    chosen = shape.check_heads(heads)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
    ablation.check_spans(encoded, room=room)
    check_reference(ablation.reference, made_on(encoded), "trials that are answered", "compute it on others")
    settings = {
        **identified(model, "metrics").settings,
        **ablation.settings,
        "trials": trials_digest(encoded),
        "max_new_tokens": room,
    }
    settings |= {"method": "contrast", "alpha": alpha, "cap": cap, "heads": [head.key for head in chosen]}

    def work(batch: list[EncodedTrial]) -> list[Result]:
        return finite(batch, [_answer(model, trial, chosen, ablation, alpha, cap, room) for trial in batch])

    folder = folder_for(model, run.out, settings)
    results = engine.run(encoded, work, folder=folder, progress=run.progress, description="contrasting")
    return collect(encoded, results)


@torch.no_grad()
def _answer(
    model: Model,
    trial: EncodedTrial,
    heads: AnyHeads,
    ablation: Ablation,
    alpha: float | None,
    cap: float | None,
    room: int,
) -> Result:
    """The decoded text with its verdicts, and the gold answer's log-probability."""
    tokens, gold = trial.tokens[None].to(model.W_U.device), trial.answer_tokens.to(model.W_U.device)
    with evaluating(model):
        intact = Cache(model, 1)
        intact.assign(1, 1, parts_of([trial]))
        with fast_attention(model):
            prefill(model, tokens[:, :-1], intact)

        def both(given: Tensor, caches: tuple[Cache, Cache], rows: int = 1) -> Tensor:
            with fast_attention(model):
                one = advance(model, given, caches[0], logits=rows)
            with ablate(model, heads, kind=ablation), fast_attention(model):
                other = advance(model, given, caches[1], logits=rows)
            return contrasted(one, other, alpha, cap)

        forced = torch.cat([tokens[:, -1:], gold[None, :-1]], 1)
        log_p = both(forced, (intact.branch(), intact.branch()), len(gold))[0].log_softmax(-1)
        caches = intact.branch(), intact.branch()
        leads = opened(model, [trial])
        (steps,) = decode(model, tokens[:, -1:], lambda given: both(given, caches), room, [trial.judge], leads)
    text = text_of(model, steps, trial.judge, *leads)
    judged = text_scores(text, (trial.answer, *trial.aliases), trial.judge)
    match = float((log_p.argmax(-1) == gold).all())
    return Result(
        {}, {"text": text, **judged, "logprob": float(log_p[range(len(gold)), gold].mean()), "greedy_match": match}
    )
