"""The identities that scores, ablations and patches rest on, each measured on a few tokens of one short prompt.

Every function returns a `Check`: the measured error, relative to the size of what is compared, and what was compared. None
of them changes the model.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.delegated import gate_of
from lens_heads.model.directions import Directions
from lens_heads.model.forward import Cache, advance, fast_attention, notes_queries, prefill, uncached
from lens_heads.model.geometry import Model, attention_out, output_weights
from lens_heads.model.joining import joining
from lens_heads.model.multipliers import logit_multiplier, residual_multiplier
from lens_heads.model.norms import frozen_norm, post_attention_norm
from lens_heads.model.noted_queries import NotedQueries
from lens_heads.model.probe_run import ENDS, ROWS, Check, ProbeRun, relative, run
from lens_heads.model.recurrence import DELTA
from lens_heads.model.rope import fixed_below

EDIT = 0.5
"""How much of every pattern is replaced by equal attention where an edit is tried out."""


def hooks_fire(one: ProbeRun) -> Check:
    note = f"missing: {', '.join(one.missing[:3])}" if one.missing else f"{len(one.seen)} hooks"
    return Check("hooks fire", float(len(one.missing)), 0, note)


def causal(one: ProbeRun) -> Check:
    """No logit moves when a later token is another."""
    mine, theirs = one.plain, one.plain_beside
    error = relative(mine[:-1] - theirs[:-1], mine)
    return Check("no token sees the future", error, one.tolerance, "logits before a token that is exchanged")


def patterns(one: ProbeRun) -> list[Check]:
    """Patterns are distributions; a sink that is learned may take a part of the mass, and linear heads have none."""
    sums, sink = 0.0, 0.0
    for layer in one.shape.softmax:
        mass = one.pattern(layer).sum(-1)
        if has_sinks(one.model, layer):
            sink = max(sink, float((1 - mass).max()))
            mass = mass.clamp(min=1)
        sums = max(sums, float((mass - 1).abs().max()))
    taken = f"learned sinks take up to {sink:.2f} of a row" if sink else ""
    summing = Check("patterns sum to one", sums, one.tolerance, taken)
    return [*_without_softmax(one, "every head has an attention pattern"), summing]


def weights(one: ProbeRun) -> Check:
    """Patterns, or the weights of linear heads, are of what a row reaches."""
    leaks = 0.0
    for layer in one.shape.attending:
        pattern = one.pattern(layer)
        rows = torch.arange(pattern.shape[-1], device=pattern.device)
        hidden = ~one.shape.reaches(layer, rows[:, None], rows)
        leaks = max(leaks, float(pattern[:, hidden].abs().max()) if hidden.any() else 0.0)
    windows = sorted({reach for reach in (*one.shape.windows, *one.shape.chunks) if reach})
    note = f"windows {windows}" if windows else "no windows"
    return Check("patterns are causal and inside the window", leaks, 0, note)


def _without_softmax(one: ProbeRun, name: str) -> list[Check]:
    """A check that fails on the layers of linear heads, if there are any."""
    layers = [f"{', '.join(map(str, at))} ({kind})" for kind, at in one.shape.linear.items()]
    note = f"linear heads in layers {' and '.join(layers)}: load the model without linear_heads for this"
    return [Check(name, float("inf"), 0, note)] if layers else []


def has_sinks(model: Model, layer: int) -> bool:
    """Whether a layer's softmax has a learned logit that stands for no token (gpt-oss)."""
    return getattr(getattr(model.blocks[layer].attn, "original_component", None), "sinks", None) is not None


def gates(one: ProbeRun) -> dict[int, Float[Tensor, "row head d_head"]]:
    """By layer, g of z = g * (A v), where z is not A v."""
    dtype = one.model.cfg.dtype
    found = {layer: gate_of(one.z(layer), one.read(layer), dtype) for layer in one.shape.attending}
    return {layer: gate for layer, gate in found.items() if gate is not None}


def values(one: ProbeRun) -> Check:
    """z is the pattern times the values of the head's kv group; or that times a gate which does not depend on the pattern.

    Any z is some g times A v. What is a gate, or a norm with its scale frozen, stays the same when the pattern is edited, up to
    one factor for a row, or for each head of it where heads have norms of their own.
    """
    gated = gates(one)
    plain = [layer for layer in one.shape.attending if layer not in gated]
    error = max((relative(one.read(layer) - one.z(layer), one.z(layer)) for layer in plain), default=0.0)
    groups = sorted({one.shape.layers[layer].group for layer in one.shape.attending})
    note = f"{' or '.join(map(str, groups))} query heads per kv head"
    if gated:
        error = max(error, _gate_moves(one, min(gated)))
        note += f"; times a gate or norm in layers {', '.join(map(str, gated))}"
    return Check("z = pattern @ v of the head's kv group", error, one.tolerance, note)


def _gate_moves(one: ProbeRun, layer: int) -> float:
    """How much g of a layer changes, apart from a factor for each row, or each of its heads, when its pattern is edited."""
    other = run(one.model, one.ids, one.tolerance, [_flatten(one.shape, layer)])
    (read, z), (read_, z_) = ((each.read(layer), each.z(layer)) for each in (one, other))
    enough = torch.minimum(read.abs(), read_.abs()) > 1e-2 * read.abs().amax((1, 2), keepdim=True)
    enough &= (z.abs() > 1e-3 * z.abs().max()) & enough.sum((1, 2), keepdim=True).bool()
    ratio = torch.where(enough, (z_ * read) / torch.where(enough, read_ * z, 1), torch.nan)
    apart = ratio if one.shape.layers[layer].linear == DELTA else ratio.flatten(1)[:, None]
    middle = apart.nanmedian(-1, keepdim=True).values
    return float(torch.nan_to_num(ratio / middle - 1).abs().max())


def _flatten(shape: HeadGeometry, layer: int) -> tuple[str, Any]:
    """A hook that replaces a part of the pattern by equal attention to what a row reaches."""

    def edit(pattern: Float[Tensor, "batch head row key"], hook: Any) -> Tensor:
        rows = torch.arange(pattern.shape[-1], device=pattern.device)
        seen = shape.reaches(layer, rows[:, None], rows).to(pattern)
        return (1 - EDIT) * pattern + EDIT * seen / seen.sum(-1, keepdim=True)

    return f"blocks.{layer}.attn.hook_pattern", edit


def edits(one: ProbeRun) -> Check:
    """Where hooks have changed the patterns, z is the changed patterns times v."""
    layers = one.shape.attending
    other = run(one.model, one.ids, one.tolerance, [_flatten(one.shape, layer) for layer in layers])
    gated = gates(one)
    plain = [layer for layer in layers if layer not in gated]
    error = max((relative(other.read(layer) - other.z(layer), other.z(layer)) for layer in plain), default=0.0)
    error = max(error, _gate_moves(one, min(gated)) if gated else 0.0)
    return Check("an edited pattern moves z", error, one.tolerance, "all patterns half flattened")


def queries(one: ProbeRun) -> Check:
    """Queries set to zero change every layer's pattern."""
    name = "an edited query moves the pattern"
    if linear := _without_softmax(one, name):
        return linear[0]

    def zero(q: Tensor, hook: Any) -> Tensor:
        return torch.zeros_like(q)

    layers = one.shape.attending
    other = run(one.model, one.ids, one.tolerance, [(f"blocks.{layer}.attn.hook_q", zero) for layer in layers])
    still = [layer for layer in layers if torch.equal(one.pattern(layer), other.pattern(layer))]
    return Check(name, float(len(still)), 0, "queries set to zero")


def stream(one: ProbeRun) -> list[Check]:
    """Head writes (with bias, post-norm and multiplier) sum to the attention output, and outputs to the residual stream."""
    writes, adds = 0.0, 0.0
    for layer in one.shape.attending:
        at = f"blocks.{layer}"
        out = _written(one, layer)
        norm = post_attention_norm(one.model, layer)
        if norm is not None:
            frozen = frozen_norm(one.model, norm)
            out = frozen.gain * (out - out.mean(-1, keepdim=True) if frozen.centers else out) / frozen.scale(out)
        out = out * residual_multiplier(one.model)
        wanted = one.seen[f"{at}.hook_attn_out"]
        writes = max(writes, relative(out - wanted, wanted))
        if one.shape.layers[layer].mixer:  # What else the layer adds is not shown.
            continue
        total = one.seen[f"{at}.hook_resid_pre"].to(wanted) + wanted + one.seen[f"{at}.hook_mlp_out"]
        adds = max(adds, relative(total - one.seen[f"{at}.hook_resid_post"], one.seen[f"{at}.hook_resid_post"]))
    return [
        Check("head writes sum to the attention output", writes, one.tolerance, "post-norm" * one.shape.post_norm),
        Check("attention and MLP outputs sum to the residual stream", adds, one.tolerance),
    ]


def _written(one: ProbeRun, layer: int) -> Float[Tensor, "row d_model"]:
    """Sum of the head writes and the output bias, before any post-norm."""
    z = one.z(layer)
    return attention_out(one.model, layer, z, output_weights(one.model, layer).to(z))


def unembedding(one: ProbeRun) -> Check:
    """The last norm and the unembedding make the logits of the last residual stream, and nothing else does."""
    last = _closing_rows(one)
    stream = one.seen[f"blocks.{one.shape.n_layers - 1}.hook_resid_post"][last]
    total = (stream * _exact(one).to(stream)).sum(-1)
    return _closes("the last norm and the unembedding give the logits", one, total, "")


def closing(one: ProbeRun) -> Check:
    """Per-head contributions + attention biases + MLPs + embedding + final biases = the logit (before a softcap)."""
    model, shape = one.model, one.shape
    directions, rows, u = Directions(model, shape, "exact"), _closing_rows(one), _exact(one)
    embedding = one.seen["blocks.0.hook_resid_pre"][rows]
    total = (embedding * u.to(embedding)).sum(-1)
    for layer, here in enumerate(shape.layers):
        before, after = (one.seen[f"blocks.{layer}.{hook}"][rows] for hook in ENDS)
        at = u.to(after)  # Layers of a model spread over devices are elsewhere than its unembedding.
        if not here.n_heads:
            wrote = ((after - before.to(after)) * at).sum(-1)
        else:
            out = _written(one, layer)[rows]
            at_layer, _ = directions.at_layer(at, layer, out)
            wrote = (out * at_layer).sum(-1)
            if here.mixer:
                rest = after - before.to(after) - one.seen[f"blocks.{layer}.hook_attn_out"][rows]
            else:
                rest = one.seen[f"blocks.{layer}.hook_mlp_out"][rows]
            wrote = wrote + (rest * at).sum(-1)
        total = total + wrote.to(total)
    others = ", other mixers" if shape.stateful else ""
    return _closes("contributions close on the logit", one, total, f"all heads, MLPs{others}, embedding and biases")


def _closing_rows(one: ProbeRun) -> Int[Tensor, " row"]:
    return torch.arange(len(one.ids) - min(8, len(one.logits)), len(one.ids))


def _best(one: ProbeRun) -> Int[Tensor, " row"]:
    return one.logits[-len(_closing_rows(one)) :].argmax(-1)


def _exact(one: ProbeRun) -> Float[Tensor, "row d_model"]:
    """Directions in the residual stream to the most likely token of the last rows."""
    stream = one.seen[f"blocks.{one.shape.n_layers - 1}.hook_resid_post"][_closing_rows(one)]
    return Directions(one.model, one.shape, "exact").unembedding(_best(one), stream)


def _closes(name: str, one: ProbeRun, total: Float[Tensor, " row"], note: str) -> Check:
    """Whether contributions of the residual stream, with the biases of the last norm and of the unembedding, are the logit."""
    model, best = one.model, _best(one)
    norm = frozen_norm(model, model.ln_final)
    raw = model.W_U[:, best].detach().float().T
    biases = raw @ norm.bias.to(raw)
    b_U = getattr(model, "b_U", None)
    biases = biases if b_U is None else biases + b_U[best].detach().float()
    total = total + (biases * logit_multiplier(model)).to(total)
    wanted = one.logits[-len(best) :].gather(-1, best[:, None])[:, 0]
    total = total.to(wanted)
    off = total - wanted
    if cap := one.shape.logit_softcap:
        # Near its cap a logit is rounded in few steps, which the inverse of the cap magnifies; the slope takes that back.
        off = (total - cap * torch.atanh(wanted / cap)) * (1 - (wanted / cap).square())
        note = "; ".join(filter(None, [note, f"before the softcap of {cap:g}"]))
    return Check(name, relative(off, wanted), one.tolerance, note)


def chunked(one: ProbeRun) -> list[Check]:
    """A prefill and a further chunk on its cache give the logits of one forward without a cache.

    Where rotations depend on the length of a text, also on one so long that they are others.
    """
    cache, middle = Cache(one.model, 1), len(one.ids) // 2
    prefill(one.model, one.batch[:, :middle], cache)
    end = advance(one.model, one.batch[:, middle:], cache, logits=len(one.ids) - middle)[0].float()
    found = [Check("chunked prefill into the cache gives the same logits", _same(one, end), one.tolerance)]
    if fixed_below(one.model) + len(one.ids) <= one.shape.n_ctx:
        length = int(fixed_below(one.model)) + len(one.ids)
        ids = one.batch.repeat(1, 1 + length // len(one.ids))[:, :length]
        cache = Cache(one.model, 1)
        cache.whole = length
        prefill(one.model, ids[:, :-ROWS], cache, chunk=max(ROWS, length // 3))
        end = advance(one.model, ids[:, -ROWS:], cache, logits=ROWS)[0].float()
        whole = uncached(one.model, ids, ids.new_zeros(1), ROWS)[0].float()
        name = "chunked prefill gives the same logits where rotations are those of long texts"
        found.append(Check(name, relative(end - whole, whole), one.tolerance, f"{length} tokens"))
    return found


def gradients(one: ProbeRun) -> Check:
    """A forward without a cache, through which gradients flow, gives the logits of the others."""
    name, rows = "a forward without a cache gives the same logits", len(one.logits)
    logits = uncached(one.model, one.batch, one.batch.new_zeros(1), rows)[0].float()
    return Check(name, relative(logits - one.logits, one.logits), one.tolerance)


EXACT = 3e-5
"""What rounding leaves between two ways to the same float32 logits, relative to their size: a dozen times what models show. An
attention that sdpa computes otherwise (Falcon's with ALiBi) is off by ten times as much, and by .05 nats."""


def shortcut_tolerance(one: ProbeRun) -> float:
    """A shortcut has to give the model's own numbers, not about these."""
    return min(one.tolerance, EXACT) if one.model.cfg.dtype in (torch.float32, torch.float64) else one.tolerance


def shortcuts(one: ProbeRun) -> dict[str, Check]:
    """ "fast": what sdpa leaves in the cache gives the same logits. "noted", where queries are noted: the patterns that follow
    from them are the hooked ones."""
    cache, middle, queries = Cache(one.model, 1), len(one.ids) // 2, NotedQueries(4)
    noting = notes_queries(one.model)
    with fast_attention(one.model):
        prefill(one.model, one.batch[:, :middle], cache)
    alike = all(cache.values(at)[0].shape == kept[:, :middle].shape for at, kept in one.values.items())
    with fast_attention(one.model, attend=queries) if noting else nullcontext():
        end = advance(one.model, one.batch[:, middle:], cache, logits=len(one.ids) - middle)[0].float()
    name, note = "fast attention gives the same logits", "as prompts are read"
    # What it leaves in a cache has to be what hooks read there: DeepSeek's own attention caches latents.
    error = _same(one, end) if alike else float("inf")
    found = {"fast": Check(name, error, shortcut_tolerance(one), note, shortcut=True)}
    if noting:
        errors = []
        for layer in one.shape.attending:
            own = one.pattern(layer)[:, -queries.rows :]
            errors.append(float((queries.pattern(layer)[0].to(own) - own).abs().max()))
        name, note = "patterns follow from queries noted under sdpa", "as scores read them"
        found["noted"] = Check(name, max(errors), shortcut_tolerance(one), note, shortcut=True)
    return found


def _same(one: ProbeRun, end: Float[Tensor, "row d_vocab"]) -> float:
    """The error of a prompt's last rows against one forward without a cache."""
    whole = one.plain
    rows = min(len(end), len(whole))
    return relative(end[-rows:] - whole[-rows:], whole)


def joined(one: ProbeRun) -> Check:
    """Variants of a prompt that join one forward at different layers give the logits of single forwards."""
    residuals = [one.seen[f"blocks.{layer}.hook_resid_post"][None] for layer in range(one.shape.n_layers)]
    residuals = [stream.to(one.model.cfg.dtype) for stream in residuals]
    cache = Cache(one.model, 1)
    cache.assign(2, 1)
    name, note = "variants join one forward", "as ablations and patches run many at once"
    try:
        with joining(one.model, [0, 1], residuals, one.tuples):
            both = advance(one.model, one.batch, cache, logits=len(one.logits)).float()
    except Exception:  # Code that reshapes by its own count of rows (MPT, GPT-BigCode, XGLM).
        return Check(name, float("inf"), shortcut_tolerance(one), "not here: one head at a time", shortcut=True)
    errors = [relative(logits - one.logits, one.logits) for logits in both]
    return Check(name, max(errors) if len(both) == 2 else float("inf"), shortcut_tolerance(one), note, shortcut=True)
