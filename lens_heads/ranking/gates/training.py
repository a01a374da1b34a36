"""The one loop by which gates are trained: frozen weights, batches, schedule, penalty, clamp, the best of validation, resuming.

Nothing depends on what ran before but the state that is stored, so a resumed training equals an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

import torch
from jaxtyping import Float
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lens_heads.model.changes import changing
from lens_heads.model.forward import fast_attention
from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.model.hooks import hooked, running
from lens_heads.model.modes import evaluating
from lens_heads.ranking.gates.gate import Gate, GateBatch
from lens_heads.runs import checks
from lens_heads.runs.shards import Result
from lens_heads.runs.stopping import stoppable
from lens_heads.runs.store import RunFolder
from lens_heads.runs.typed import Default
from lens_heads.trials.encoded import EncodedTrial

WORSE = 10.0
"""A loss this many times what the same trials had before any step, and as many nats above, has diverged."""


class TrainingOptions(TypedDict, total=False):
    """Keywords of every function that trains gates.

    steps: optimizer steps. lr: Adam's learning rate. batch_size: trials in a step. validate_every: steps between two validations,
    and between two stored states. seed: of the trials' order and of what the method draws. checkpoints: compute a layer's
    activations again in the backward pass instead of keeping them, which takes a third more time and memory for one layer at a
    time. out: a run folder, from which an interrupted training goes on. progress: whether to show a bar.
    """

    steps: int
    lr: float
    batch_size: int
    validate_every: int
    seed: Annotated[int, Default(0)]
    checkpoints: Annotated[bool, Default(False)]
    out: str | Path | None
    progress: Annotated[bool, Default(True)]


@dataclass(frozen=True)
class Training:
    """How a gate is trained; see `TrainingOptions`. `ramps`: lr rises over the first fifth of the steps and falls over the last.

    `clip`: the largest norm of a gradient.
    """

    steps: int
    lr: float
    batch_size: int = 1
    validate_every: int = 50
    seed: int = 0
    checkpoints: bool = False
    ramps: bool = False
    clip: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What users see of a method's own way to train."""
        return {name: getattr(self, name) for name in ("steps", "lr", "batch_size", "validate_every")}

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "validate_every"):
            checks.count(name, getattr(self, name))
        checks.seed(self.seed)
        # Adam moves an entry by about lr: beyond this, one step leaves nothing of what float32 held before.
        if checks.finite("lr", self.lr, 0, 1 / torch.finfo(torch.float32).eps) == 0:
            raise ValueError(f"lr={self.lr!r}: must be above zero")

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if not self.ramps:
            return self.lr
        fifth = self.steps / 5
        return self.lr * min(1.0, max((step + 1) / fifth, 0.1), max((self.steps - step) / fifth, 0.1))

    def picked(self, step: int, n: int) -> list[int]:
        """The trials of a step: all once in random order, then all again in another order."""
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        return [_order(self.seed, place // n, n)[place % n] for place in places]


def _order(seed: int, epoch: int, n: int) -> list[int]:
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % checks.LARGEST_SEED)
    return torch.randperm(n, generator=generator).tolist()


@dataclass(eq=False)
class State:
    """A training between two steps. `best` is the parameter of the lowest `best_loss` so far; without validation, the latest.

    `began`: the loss of the first step, before which nothing was learned.
    """

    parameter: Float[Tensor, "layer ..."]
    carried: float
    step: int = 0
    moments: tuple[Tensor, Tensor] | None = None
    best: Float[Tensor, "layer ..."] | None = None
    best_loss: float = math.inf
    history: list[dict[str, float]] = field(default_factory=list)
    since: list[float] = field(default_factory=list)
    began: float = math.nan

    def stored(self) -> Result:
        assert self.moments is not None
        assert self.best is not None
        arrays = {"parameter": self.parameter, "first": self.moments[0], "second": self.moments[1], "best": self.best}
        names = ("step", "carried", "best_loss", "history", "began")
        return Result(arrays, {name: getattr(self, name) for name in names})

    @classmethod
    def read(cls, result: Result, device: torch.device) -> State:
        held = {name: array.to(device) for name, array in result.arrays.items()}
        moments = (held.pop("first"), held.pop("second"))
        return cls(**held, moments=moments, **result.record)


def training_of(given: TrainingOptions, defaults: Training) -> tuple[Training, Path | str | None, bool]:
    """The method's own way to train with the user's options over it, the run folder, and whether to show progress."""
    options: dict[str, Any] = dict(given)
    out, progress = options.pop("out", None), options.pop("progress", True)
    return replace(defaults, **options), out, progress


def train(
    model: Model,
    gate: Gate,
    trials: Sequence[EncodedTrial],
    training: Training,
    validation: Sequence[EncodedTrial] = (),
    folder: RunFolder | None = None,
    begin: Float[Tensor, "layer ..."] | None = None,
    progress: bool = True,
    name: str = "",
) -> State:
    """Train a gate on trials. `begin`: the parameter to go on from. With validation, `best` is that of its lowest loss.

    `name`: of the state in the folder, where one method trains several times.

    The weights are neither changed nor given gradients. ValueError, naming the method and the step, for a loss that is not finite
    or grows without end.
    """
    device, key = model.W_U.device, ("state", name or gate.name)
    held = folder.read(key) if folder is not None else None
    first = gate.start(head_geometry(model), training.seed) if begin is None else begin
    with torch.inference_mode(False):
        state = State(first.detach().clone().float().to(device), gate.carry)
        state = State.read(held, device) if held is not None else state
        state.parameter.requires_grad_(True)
        optimizer = _optimizer(state, training)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        stoppable(folder.path if folder else None),
        Progress(*columns, transient=True, disable=not progress) as bar,
        torch.inference_mode(False),
        for_training(model, training.checkpoints),
    ):
        task = bar.add_task(name or gate.name, total=training.steps, completed=state.step)
        while state.step < training.steps:
            _take(model, gate, state, optimizer, trials, training, first)
            if state.step % training.validate_every == 0 or state.step == training.steps:
                _note(model, gate, state, validation, training, first)
                if folder is not None:
                    state.moments = _moments(optimizer, state.parameter)
                    folder.write(key, state.stored())
            bar.advance(task)
    return state


def _take(
    model: Model,
    gate: Gate,
    state: State,
    optimizer: torch.optim.Optimizer,
    trials: Sequence[EncodedTrial],
    training: Training,
    start: Float[Tensor, "layer ..."],
) -> None:
    """One step of the optimizer. `start`: the parameter before any."""
    for group in optimizer.param_groups:
        group["lr"] = training.rate(state.step)
    with torch.no_grad():
        gate.clamp(state.parameter)
    batch = GateBatch.of(
        model, [trials[i] for i in training.picked(state.step, len(trials))], state.step, training.seed
    )
    optimizer.zero_grad()
    with torch.enable_grad():
        loss = objective(model, gate, state.parameter, state.carried, batch, backward=True)
    _check(gate, state, loss, training, lambda: _losses(model, gate, start, gate.carry, [batch])[0])
    # Beyond it, Adam's second moment overflows and clipping makes zeros: the parameter would stand still without a word.
    norm = float(state.parameter.grad.norm()) if state.parameter.grad is not None else 0.0
    if not math.isfinite(norm):
        raise _diverged(gate, state.step + 1, f"the norm of its gradient is {norm:g}", training)
    if training.clip is not None:
        torch.nn.utils.clip_grad_norm_([state.parameter], training.clip)
    optimizer.step()
    with torch.no_grad():
        gate.clamp(state.parameter)
        state.carried = gate.after(state.parameter, state.carried)
    if not (math.isfinite(state.carried) and bool(state.parameter.isfinite().all())):
        raise _diverged(gate, state.step + 1, "what it has learned is not finite", training)
    state.step += 1
    state.since.append(loss)


def objective(
    model: Model, gate: Gate, parameter: Tensor, carried: float, batch: GateBatch, backward: bool = False
) -> float:
    """Loss and penalty of one batch; with `backward`, the gradient of both is added to that of the parameter."""
    with torch.no_grad():
        batch = replace(batch, teacher=gate.teacher(model, batch))
    attention = fast_attention if gate.fast else nullcontext
    # The backward pass computes blocks again, under the same hooks.
    with hooked(model, gate.hooks(parameter, batch)), attention(model):
        total = gate.loss(model, batch).to(parameter.device) + gate.penalty(parameter, carried)
        if backward:
            total.backward()
    return float(total.detach())


def _losses(model: Model, gate: Gate, parameter: Tensor, carried: float, batches: Sequence[GateBatch]) -> list[float]:
    """Loss and penalty of batches, without gradients."""
    with torch.no_grad():
        return [
            objective(model, gate, parameter.detach().float().to(model.W_U.device), carried, one) for one in batches
        ]


def _note(
    model: Model,
    gate: Gate,
    state: State,
    validation: Sequence[EncodedTrial],
    training: Training,
    start: Float[Tensor, "layer ..."],
) -> None:
    """Validate, keep the parameter if it is the best so far, and add a row to the history."""
    size, parameter, loss = training.batch_size, state.parameter.detach(), math.nan
    if validation:
        parts = [validation[at : at + size] for at in range(0, len(validation), size)]
        batches = [GateBatch.of(model, part) for part in parts]

        def mean(parameter: Tensor, carried: float) -> float:
            losses = _losses(model, gate, parameter, carried, batches)
            return sum(loss * len(part) for loss, part in zip(losses, parts, strict=True)) / len(validation)

        loss = mean(parameter, state.carried)
        _check(gate, state, loss, training, lambda: mean(start, gate.carry), validated=True)
    row = {"step": state.step, "loss": sum(state.since) / max(1, len(state.since)), "validation": loss}
    state.history.append(row)
    state.since = []
    if state.best is None or not validation or loss < state.best_loss:
        state.best, state.best_loss = parameter.clone(), loss


def _check(
    gate: Gate,
    state: State,
    loss: float,
    training: Training,
    at_start: Callable[[], float],
    validated: bool = False,
) -> None:
    """ValueError for a loss that is not finite, or far above that of the same trials before any step (`at_start`)."""
    before = math.nan
    if math.isfinite(loss):
        state.began = loss if state.step == 0 else state.began
        if state.step == 0 or loss <= max(WORSE * state.began, state.began + WORSE):  # The usual case, at no cost.
            return
        before = at_start()
        if loss <= max(WORSE * before, before + WORSE):
            return
    was = f", {before:.3g} before any" if math.isfinite(before) else ""
    what, at = ("its loss of validation", state.step) if validated else ("its loss", state.step + 1)
    raise _diverged(gate, at, f"{what} is {loss:.3g}", training, was)


def _diverged(gate: Gate, at: int, what: str, training: Training, was: str = "") -> ValueError:
    heavy = [name for name in ("weight", "lag") if gate.settings.get(name)]
    other = f", or a smaller {heavy[0]} than {abs(gate.settings[heavy[0]]):g}" if heavy else ""
    return ValueError(
        f"{gate.name}: the training diverges: {what} at step {at}{was}. Use a smaller lr than {training.lr:g}{other}, and "
        "float32 or bfloat16"
    )


def _optimizer(state: State, training: Training) -> torch.optim.Adam:
    """Adam over the parameter, with the moments of a stored state."""
    optimizer = torch.optim.Adam([state.parameter], lr=training.lr)
    if state.moments is not None:
        names = ("exp_avg", "exp_avg_sq")
        optimizer.state[state.parameter] = dict(zip(names, state.moments, strict=True)) | {
            "step": torch.tensor(float(state.step))
        }
    return optimizer


def _moments(optimizer: torch.optim.Optimizer, parameter: Tensor) -> tuple[Tensor, Tensor]:
    held = optimizer.state[parameter]
    return held["exp_avg"], held["exp_avg_sq"]


@contextmanager
def for_training(model: Model, checkpoints: bool) -> Iterator[None]:
    """Inside, no weight wants a gradient, nothing drops out, and with `checkpoints` blocks are computed again when needed."""
    wrapped = model.original_model if is_bridge(model) else model
    again = [(block, partial(_again, block.forward)) for block in model.blocks] if checkpoints else []
    with changing(model) as change, evaluating(model), running(model, again):
        wanting = [weight for weight in wrapped.parameters() if weight.requires_grad]
        change.note(partial(_want, wanting, True))
        _want(wanting, False)
        yield


def _want(weights: list[Any], value: bool) -> None:
    for weight in weights:
        weight.requires_grad_(value)


def _again(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def settings_of(gate: Gate, training: Training) -> dict[str, Any]:
    """What identifies a training in a run folder, but for the model and the trials."""
    return {"method": gate.name, **gate.settings, **asdict(training)}
