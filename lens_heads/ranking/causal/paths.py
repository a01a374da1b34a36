"""Path patching: what one head passes to another head, or to the logits, and to nothing else   (Wang et al., arXiv 2211.00593)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Unpack

from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.pair_runs import CLEAN, CORRUPT, PairRuns, PairScore, Z, run_pair
from lens_heads.answering.patch_metrics import Measure
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import AnyHeads, Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import by_layer
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import HookFunction, recording
from lens_heads.model.workers import shared
from lens_heads.ranking.causal.sweep import sweep
from lens_heads.ranking.method import Method, total
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Corruption, TokenPair
from lens_heads.trials.trial import AnyTrial

Component = Literal["q", "k", "v"]
MLP = "blocks.{}.hook_mlp_out"


@dataclass(frozen=True)
class _Path:
    """Where a path ends, which run it is patched into, and whether MLPs are frozen.

    `into`: per layer, the receivers' indices on the head axis of the component; empty if the logits receive.
    """

    into: dict[int, list[int]]
    component: Component
    base: int
    freeze_mlps: bool


@typed
@shared
def path_patch(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    senders: AnyHeads | None,
    receivers: AnyHeads | Literal["logits"],
    *,
    component: Component = "q",
    metric: str | Measure = "logprob",
    base: Literal["clean", "corrupt"] = "clean",
    corruption: Corruption | None = None,
    freeze_mlps: bool = False,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """How much of the answer each sender carries along the path to the receivers alone.

    First, the `base` run is repeated with the sender's output taken from the other run and every other head frozen to the
    base run. What then reaches the receivers' queries (keys, values) is inserted into another base run, in which everything
    else is recomputed. With "logits" as the receiver, the first of these runs is the result: the sender's direct effect.

    Args:
        trials: as in `patch_heads`.
        senders: heads, each patched on its own. None: every head in a layer below the last receiver's.
        receivers: heads, patched together, or "logits".
        component: the receivers' input that the path leads into. Query heads of a group share their keys and values, so
            with "k" and "v" all heads of a receiver's group receive.
        metric, corruption, **run: as in `patch_heads`.
        base: "clean" (the paper's direction): score = metric(clean) - metric(clean with the path corrupt). "corrupt":
            score = metric(corrupt with the path clean) - metric(corrupt). In both, positive: the path carries the answer.
        freeze_mlps: False, as in the paper, lets MLPs between sender and receiver respond to the sender. True leaves only
            the direct edge of the residual stream, as in TransformerLens's `get_act_patch_direct_path` (which requires
            blocks without post-norm and, for keys and values, as many kv heads as query heads).

    Returns HeadScores of method "path_patch", with all positions patched. Heads that are not senders score 0.

    Raises ValueError as `patch_heads` does, and for a sender below no receiver, or an unknown component or base.

    `model`: as there.

    Cost: for each trial a pass for each side, and for every sender one from its layer on and, unless `receivers` are the
    logits, one more from the receivers on.

    Example:
        >>> direct = lh.path_patch(model, pairs[:2], None, "logits")
        >>> direct.top(2) == heads
        True
    """
    shape = head_geometry(model)
    chosen, to = _check(shape, senders, receivers, component, base)
    share = 1 if component == "q" else shape.group  # A group shares its keys and values.
    into = by_layer(dict.fromkeys(Head(head.layer, head.head // share) for head in to))
    path = _Path(into, component, CLEAN if base == "clean" else CORRUPT, freeze_mlps)

    def score(pair: TokenPair) -> PairScore:
        hooks = ("attn.hook_z", "hook_resid_post", *(("hook_mlp_out",) if freeze_mlps else ()))
        runs = run_pair(model, pair, "all", hooks)
        return runs.scores(metric, chosen, partial(_patched, runs, path), path.base)

    more = {
        "senders": "all" if senders is None else [str(head) for head in chosen],
        "receivers": [str(head) for head in to] or "logits",
        "component": component if to else None,
        "base_run": base,
        "freeze_mlps": freeze_mlps,
    }
    return sweep(model, "path_patch", trials, score, metric, "all", corruption, run, **more)


def _check(
    shape: HeadGeometry, senders: Any, receivers: Any, component: str, base: str
) -> tuple[list[Head], list[Head]]:
    """The senders and the receivers; no receivers means the logits."""
    if component not in ("q", "k", "v"):
        raise ValueError(f"component={component!r}: must be 'q', 'k' or 'v'")
    if base not in ("clean", "corrupt"):
        raise ValueError(f"base={base!r}: use 'clean' (as in the paper) or 'corrupt'")
    to_logits = isinstance(receivers, str) and receivers == "logits"
    to = [] if to_logits else shape.check_heads(receivers)
    if not to and not to_logits:
        raise ValueError("there are no receivers: give heads, or 'logits'")
    last = max((head.layer for head in to), default=shape.n_layers)
    chosen = (
        [head for head in shape.every_head() if head.layer < last] if senders is None else shape.check_heads(senders)
    )
    late = [head for head in chosen if head.layer >= last]
    if late or not chosen:
        what = f"sender {late[0]} is not" if late else "no head is"
        raise ValueError(
            f"{what} in a layer below a receiver ({', '.join(map(str, to))}). Heads only reach later layers."
        )
    return chosen, to


def _patched(runs: PairRuns, path: _Path, senders: list[Head]) -> Float[Tensor, "sender step d_vocab"]:
    """The answer logits with each sender patched along the path, one per row of the batch."""
    into = {f"blocks.{layer}.attn.hook_{path.component}": places for layer, places in path.into.items()}
    sizes = {}  # The number of heads that the component has in each layer.
    for name, layer in zip(into, path.into, strict=True):
        here = runs.shape.layers[layer]
        sizes[name] = here.n_heads if path.component == "q" else here.n_kv_heads
    begins, last = [head.layer for head in senders], max(path.into, default=None)
    with recording(runs.model, into) as arrived:
        logits = runs.rerun(path.base, begins, _frozen(runs, path, senders), None if last is None else last + 1)
    if last is None:
        return logits

    def put(x: Tensor, hook: Any, name: str) -> Tensor:
        changed = x.clone().reshape(*x.shape[:2], sizes[name], -1)
        changed[:, :, into[name]] = arrived[name][0][: len(x)].reshape(changed.shape)[:, :, into[name]]
        return changed.reshape(x.shape)

    first = [min(layer for layer in path.into if layer > begin) for begin in begins]
    return runs.rerun(path.base, first, [(name, partial(put, name=name)) for name in into])


def _frozen(runs: PairRuns, path: _Path, senders: list[Head]) -> list[tuple[str, HookFunction]]:
    """Hooks that freeze every head (and MLP) to the base run, except each row's sender, which comes from the other run."""
    hooks: list[tuple[str, HookFunction]] = []
    for layer in range(senders[0].layer, runs.shape.n_layers):
        if path.freeze_mlps:
            mlp = runs.kept[MLP.format(layer)][path.base]
            hooks.append((MLP.format(layer), lambda x, hook, mlp=mlp: mlp.expand(x.shape)))
        if layer not in runs.shape.attending:
            continue

        def freeze(x: Tensor, hook: Any, layer: int = layer) -> Tensor:
            z = runs.z(layer, path.base).expand(len(x), -1, -1, -1)
            return runs.swapped(
                z.reshape(x.shape), layer, senders, runs.z(layer, CORRUPT if path.base == CLEAN else CLEAN)
            )

        hooks.append((Z.format(layer), freeze))
    return hooks


METHODS = (
    Method(
        "path_patch", "patching", lambda m: path_patch(m.model, m.pairs, None, "logits", **m.loop("path_patch")), "pairs",
        lambda shape, masks, k: 2.0 + total(shape), only_named=True, signed=True, paper="path patching, arXiv 2211.00593",
        fails="of the paths, the one to the logits alone: misses heads that others read", label="path patching", unit="nats",
    ),
)  # fmt: skip
