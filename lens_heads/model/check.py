"""check: a report on whether a model behaves as every formula here assumes, to be run on any new model."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch
from einops import einsum, repeat
from jaxtyping import Int
from torch import Tensor

from lens_heads.model.directions import Directions
from lens_heads.model.forward import Cache, advance, fast_attention, notes_queries, prefill
from lens_heads.model.geometry import HeadGeometry, Model, attention_out, geometry, output_weights, require_raw_weights
from lens_heads.model.hooks import recording
from lens_heads.model.modes import evaluating
from lens_heads.model.norms import frozen_norm, post_attention_norm
from lens_heads.model.noted_queries import NotedQueries
from lens_heads.runs import checks

TEXT = (
    "The ferry left the stone quay a little after dawn, and nobody on deck spoke until the bell rang twice. "
    "Behind the harbour office a clerk was counting crates, writing each number down with great care. "
)


@dataclass(frozen=True)
class Check:
    """One statement about the model: the measured error, the tolerance, and a note on what was compared."""

    name: str
    error: float
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance  # False for NaN.


@dataclass(frozen=True)
class CheckReport:
    """The result of `check`: `passed`, and one row per statement in `frame`."""

    model: str
    shape: HeadGeometry
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def frame(self) -> pd.DataFrame:
        rows = [(c.name, c.error, c.tolerance, c.passed, c.note) for c in self.checks]
        return pd.DataFrame(rows, columns=["check", "error", "tolerance", "passed", "note"])

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if not check.passed]
        names = f"; failed: {', '.join(failed)}" if failed else ""
        return f"CheckReport({self.model}: {len(self.checks) - len(failed)} of {len(self.checks)} hold{names})"

    def _repr_html_(self) -> str:
        return self.frame.to_html(index=False)


HOOKS = ("attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_pattern", "attn.hook_z")
STREAM = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out", "hook_resid_post")


@torch.no_grad()
def check(model: Model, tokens: Int[Tensor, " position"] | None = None, tolerance: float | None = None) -> CheckReport:
    """Check hooks, attention and the sums that every score relies on, on one short text or your own `tokens`.

    Errors are relative to the magnitude of the compared values. `tolerance` defaults to 1e-3 in float32 and 5e-2 in half
    precision (bfloat16 activations carry 8 bits). The model runs in eval mode and is restored
    afterwards. Raises ValueError for processed weights; every other failure is a row.
    """
    require_raw_weights(model)
    shape = geometry(model)
    default = 1e-3 if model.cfg.dtype == torch.float32 else 5e-2
    tolerance = default if tolerance is None else checks.finite("tolerance", tolerance, 0)
    ids = _tokens(model, shape) if tokens is None else torch.as_tensor(tokens)
    names = [f"blocks.{layer}.{hook}" for layer in range(shape.n_layers) for hook in (*HOOKS, *STREAM)]
    batch = ids[None].to(model.W_U.device)
    with evaluating(model):
        there = [name for name in names if name in model.hook_dict]
        with recording(model, there, lambda x: x[0].float()) as fired:
            logits = model(batch)[0].float()
        passes = _passes(model, batch, logits, tolerance)
        noted = _noted(model, batch) if notes_queries(model) else None
    seen = {name: values[-1] for name, values in fired.items() if values}
    missing = [name for name in names if name not in seen]
    note = f"missing: {', '.join(missing[:3])}" if missing else f"{len(names)} hooks"
    rows = [Check("hooks fire", float(len(missing)), 0, note)]
    if not missing:
        rows += _attention(shape, seen, tolerance)
        if noted is not None:
            rows.append(_same_patterns(shape, seen, noted, tolerance))
        rows += _stream(model, shape, seen, tolerance)
        rows.append(_closure(model, shape, seen, logits, ids, tolerance))
    rows.append(passes)
    return CheckReport(shape.name, shape, tuple(rows))


def _tokens(model: Model, shape: HeadGeometry) -> Int[Tensor, " position"]:
    """Enough text to exceed the shortest sliding window, if that is cheap."""
    window = min((w for w in shape.windows if w), default=64)
    wanted = min(max(64, window + 16 if window <= 1024 else 64), shape.n_ctx)
    ids = model.tokenizer(TEXT * (1 + wanted // 30)).input_ids[:wanted]
    return torch.tensor(ids)


def _relative(error: Tensor, size: Tensor) -> float:
    return float(error.abs().max() / size.abs().max().clamp(min=1e-12))


def _attention(shape: HeadGeometry, seen: dict[str, Tensor], tolerance: float) -> list[Check]:
    """Patterns are causal distributions inside the window, and z is the pattern applied to the correct kv head."""
    sums, leaks, mixed = 0.0, 0.0, 0.0
    for layer in range(shape.n_layers):
        pattern = seen[f"blocks.{layer}.attn.hook_pattern"]
        rows = torch.arange(pattern.shape[-1], device=pattern.device)
        distance = rows[:, None] - rows[None]
        window = shape.windows[layer]
        hidden = (distance < 0) | (distance >= window) if window else distance < 0
        sums = max(sums, float((pattern.sum(-1) - 1).abs().max()))
        leaks = max(leaks, float(pattern[:, hidden].abs().max()) if hidden.any() else 0.0)
        v = seen[f"blocks.{layer}.attn.hook_v"].reshape(len(rows), -1, shape.d_head)
        v = repeat(v, "key kv e -> key (kv group) e", group=shape.n_heads // v.shape[1])
        z = seen[f"blocks.{layer}.attn.hook_z"].reshape(len(rows), shape.n_heads, shape.d_head)
        mixed = max(mixed, _relative(einsum(pattern, v, "head row key, key head e -> row head e") - z, z))
    windows = sorted({w for w in shape.windows if w})
    return [
        Check("patterns sum to one", sums, tolerance),
        Check("patterns are causal and inside the window", leaks, 0, f"windows {windows}" if windows else "no windows"),
        Check("z = pattern @ v of the head's kv group", mixed, tolerance, f"{shape.group} query heads per kv head"),
    ]


def _noted(model: Model, batch: Int[Tensor, "1 position"]) -> NotedQueries:
    """The last rows of a forward in two chunks, noted as those that are scored."""
    cache, middle, noted = Cache(model, 1), batch.shape[1] // 2, NotedQueries(4)
    with fast_attention(model):
        prefill(model, batch[:, :middle], cache)
    with fast_attention(model, attend=noted):
        advance(model, batch[:, middle:], cache, logits=0)
    return noted


def _same_patterns(shape: HeadGeometry, seen: dict[str, Tensor], noted: NotedQueries, tolerance: float) -> Check:
    errors = []
    for layer in range(shape.n_layers):
        hooked = seen[f"blocks.{layer}.attn.hook_pattern"][:, -noted.rows :]
        errors.append(float((noted.pattern(layer)[0].to(hooked) - hooked).abs().max()))
    return Check("patterns follow from queries noted under sdpa", max(errors), tolerance, "as scores read them")


def _stream(model: Model, shape: HeadGeometry, seen: dict[str, Tensor], tolerance: float) -> list[Check]:
    """Head writes (with bias and post-norm) sum to the attention output, and outputs to the residual stream."""
    writes, adds = 0.0, 0.0
    for layer in range(shape.n_layers):
        at = f"blocks.{layer}"
        out = _attention_out(model, shape, seen, layer)
        norm = post_attention_norm(model, layer)
        if norm is not None:
            frozen = frozen_norm(model, norm)
            out = frozen.gain * (out - out.mean(-1, keepdim=True) if frozen.centers else out) / frozen.scale(out)
        wanted = seen[f"{at}.hook_attn_out"]
        writes = max(writes, _relative(out - wanted, wanted))
        total = seen[f"{at}.hook_resid_pre"].to(wanted) + wanted + seen[f"{at}.hook_mlp_out"]
        adds = max(adds, _relative(total - seen[f"{at}.hook_resid_post"], seen[f"{at}.hook_resid_post"]))
    return [
        Check("head writes sum to the attention output", writes, tolerance, "post-norm" if shape.post_norm else ""),
        Check("attention and MLP outputs sum to the residual stream", adds, tolerance),
    ]


def _attention_out(model: Model, shape: HeadGeometry, seen: dict[str, Tensor], layer: int) -> Tensor:
    """Sum of the head writes and the output bias, before any post-norm."""
    z = seen[f"blocks.{layer}.attn.hook_z"]
    z = z.reshape(len(z), shape.n_heads, shape.d_head)
    return attention_out(model, layer, z, output_weights(model, layer).to(z))


def _closure(
    model: Model, shape: HeadGeometry, seen: dict[str, Tensor], logits: Tensor, ids: Tensor, tolerance: float
) -> Check:
    """Per-head contributions + attention biases + MLPs + embedding + final biases = the logit (before a softcap)."""
    directions = Directions(model, shape, "exact")
    assert directions.final is not None
    rows = torch.arange(len(ids) - 8, len(ids)).clamp(min=0)
    logits = logits[rows]
    best = logits.argmax(-1)
    u = directions.unembedding(best, seen[f"blocks.{shape.n_layers - 1}.hook_resid_post"][rows])
    raw = model.W_U[:, best].detach().float().T
    total = raw @ directions.final.bias.to(raw)
    b_U = getattr(model, "b_U", None)
    total = total if b_U is None else total + b_U[best].detach().float()
    embedding = seen["blocks.0.hook_resid_pre"][rows]
    total = total + (embedding * u.to(embedding)).sum(-1).to(total)
    for layer in range(shape.n_layers):
        out = _attention_out(model, shape, seen, layer)[rows]
        here = u.to(out)  # Layers of a model spread over devices are elsewhere than its unembedding.
        at_layer, _ = directions.at_layer(here, layer, out)
        wrote = (out * at_layer).sum(-1) + (seen[f"blocks.{layer}.hook_mlp_out"][rows] * here).sum(-1)
        total = total + wrote.to(total)
    wanted = logits.gather(-1, best[:, None])[:, 0]
    note = "all heads, MLPs, embedding and biases"
    if shape.logit_softcap:
        wanted = shape.logit_softcap * torch.atanh(wanted / shape.logit_softcap)
        note += f"; before the softcap of {shape.logit_softcap:g}"
    return Check("contributions close on the logit", _relative(total - wanted, wanted), tolerance, note)


def _passes(model: Model, batch: Int[Tensor, "1 position"], logits: Tensor, tolerance: float) -> Check:
    """A chunked prefill (by sdpa if possible) and a hookable chunk on its cache give the logits of one plain forward."""
    cache, middle = Cache(model, 1), batch.shape[1] // 2
    with fast_attention(model):
        prefill(model, batch[:, :middle], cache, chunk=max(1, middle // 3))
    end = advance(model, batch[:, middle:], cache, logits=4)  # Hookable, as a scored chunk is.
    error = _relative(end[0].float() - logits[-4:], logits)
    return Check("chunked prefill into the cache gives the same logits", error, tolerance)
