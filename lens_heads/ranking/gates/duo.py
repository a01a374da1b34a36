"""DuoAttention (Xiao et al., arXiv 2410.10819): which kv heads need the whole context, and which a sink and recent tokens?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack, get_args

import torch
from einops import repeat
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Unit
from lens_heads.heads.styles import add_style
from lens_heads.interventions.kinds import KINDS, Setting
from lens_heads.model.forward import fast_attention, uncached
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import HookFunction, hooked, recording
from lens_heads.model.passes import Running
from lens_heads.ranking.gates.fitted import Fitted, TrainingData
from lens_heads.ranking.gates.gate import Gate, GateBatch, Hooks, on_z
from lens_heads.ranking.gates.methods import streaming, training_method
from lens_heads.ranking.gates.passkeys import passkeys
from lens_heads.ranking.gates.training import Training, TrainingOptions
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.trials.trial import AnyTrial

Full = Literal["mixed", "teacher"]
DEFAULTS = Training(steps=200, lr=0.02, ramps=True)
"""The authors take 2,000 steps, on contexts of 1,000 to 32,000 tokens."""


@dataclass(frozen=True)
class Duo(Gate):
    """out = alpha full + (1 - alpha) stream for every kv head; stream reads the first `sink` and the last `recent` keys alone.

    loss = mean over the answers' rows and d_model of (h_intact - h_mixed)^2, h the state after the final norm.
    """

    sink: int
    recent: int
    full: Full
    weight: float

    name: ClassVar[str] = "duo_gate"
    unit: ClassVar[Unit] = "kv_head"
    fast: ClassVar[bool] = False

    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer kv_head"]:
        return torch.ones(shape.n_layers, shape.n_kv_heads)

    def read(self, parameter: Float[Tensor, "layer ..."]) -> Float[Tensor, "layer kv_head"]:
        return parameter

    def alphas(self, parameter: Float[Tensor, "layer ..."], batch: GateBatch) -> Float[Tensor, "layer kv_head"]:
        """The gates in the forward of a batch."""
        return parameter

    def hooks(self, parameter: Float[Tensor, "layer ..."], batch: GateBatch) -> Hooks:
        shape = batch.shape
        alphas = repeat(self.alphas(parameter, batch), "layer kv -> layer (kv group)", group=shape.group)

        def on_pattern(layer: int) -> HookFunction:
            at = Setting(
                layer, list(range(shape.layers[layer].n_heads)), shape, Running(batch.forward), None, self._stream
            )

            def hook(pattern: Tensor, hook: Any) -> Tensor:
                stream = KINDS["streaming"].edit(pattern, at)
                mix = alphas[layer, None, :, None, None].to(pattern)
                return stream if self.full == "teacher" else mix * pattern + (1 - mix) * stream

            return hook

        def mixed(layer: int) -> Any:
            def mix(z: Tensor) -> Tensor:
                alpha = alphas[layer, :, None].to(z.device)
                return alpha * batch.teacher["z"][layer].to(z) + (1 - alpha) * z

            return mix

        patterns = [(f"blocks.{layer}.attn.hook_pattern", on_pattern(layer)) for layer in shape.attending]
        return patterns if self.full == "mixed" else [*patterns, *on_z(shape, mixed)]

    @property
    def _stream(self) -> dict[str, float]:
        return {"sink": self.sink, "recent": self.recent}

    def teacher(self, model: Model, batch: GateBatch) -> dict[str, Any]:
        """The intact model's last states and, where the full branch is the teacher's, every layer's z."""
        names = [f"blocks.{layer}.attn.hook_z" for layer in batch.shape.attending]
        with recording(model, names if self.full == "teacher" else []) as seen, fast_attention(model):
            states = _states(model, batch)
        z = {
            at: batch.shape.by_head(parts[0], at)
            for at, parts in zip(batch.shape.attending, seen.values(), strict=False)
        }
        return {"states": states, "z": z}

    def loss(self, model: Model, batch: GateBatch) -> Float[Tensor, ""]:
        both = zip(batch.answers(batch.teacher["states"]), batch.answers(_states(model, batch)), strict=True)
        return torch.cat([(intact - mixed).pow(2).mean(-1) for intact, mixed in both]).mean()

    def penalty(self, parameter: Float[Tensor, "layer ..."], carried: float) -> Float[Tensor, ""]:
        return self.weight * parameter.abs().mean()

    def clamp(self, parameter: Float[Tensor, "layer ..."]) -> None:
        parameter.clamp_(0, 1)


def _states(model: Model, batch: GateBatch) -> Float[Tensor, "batch row d_model"]:
    """States after the final norm, of the last rows of all, float32."""
    rows: list[Tensor] = []
    name = f"blocks.{batch.shape.n_layers - 1}.hook_resid_post"
    with hooked(model, [(name, lambda x, hook: rows.append(x[:, -batch.longest :]))]):
        uncached(model, batch.tokens, batch.pads, 1)
    return model.ln_final(rows[0]).float()


@typed(**DEFAULTS.options)
def duo(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial | None = None,
    *,
    sink: int = 16,
    recent: int = 64,
    weight: float = 0.05,
    full: Full = "mixed",
    **training: Unpack[TrainingOptions],
) -> Fitted:
    """Train DuoAttention's gates: how much of its full attention each kv head keeps when that is penalised.

    Args:
        trials: trials whose answers' rows have to stay as they are; default: 50 `passkeys`.
        sink, recent: keys of the streaming branch. The authors' 128 and 256 are for contexts of thousands of tokens.
        weight: of the penalty, the mean gate.
        full: the full branch. "mixed": it sees the mixed run's own states, the paper's formula. "teacher": it is the intact run's
            output of the head, as in the authors' code.
        **training: see `TrainingOptions`. By default 200 steps of one trial, lr .02, rising and falling.

    Returns a `Fitted` whose scores, of unit "kv_head", are the gates, 0 to 1: `scores.top(k)` are the heads to keep. A model
    without grouped heads has a gate for each of its heads. The published gates are read by `read_gates`.

    Raises ValueError for trials longer than the context window, or so short that both branches are the same.

    Cost: `steps` passes forward and backward of `batch_size` trials, and the validation trials forward every `validate_every`
    steps.

    Example:
        >>> fitted = lh.ranking.duo(model, trials, sink=1, recent=4, steps=30)
        >>> [planted.roles[head] for head in lh.units.query_heads(fitted.scores.top(2), 1)]
        ['copier', 'writer']
    """
    check_streaming(sink, recent, full)
    weight = checks.finite("weight", weight, 0)
    if weight == 0:
        raise ValueError("weight=0: no gate would have a reason to close; the authors' is 0.05")
    return fit_streaming(model, Duo(sink, recent, full, weight), trials, DEFAULTS, training)


def check_streaming(sink: int, recent: int, full: str) -> None:
    """ValueError for numbers of keys and a full branch that there are not."""
    checks.whole_number("sink", sink, 0)
    checks.whole_number("recent", recent)
    if full not in get_args(Full):
        raise ValueError(f"full={full!r}: use 'mixed' (the paper's formula) or 'teacher' (as in the authors' code)")


def fit_streaming(
    model: Model,
    gate: Duo,
    trials: Iterable[AnyTrial] | AnyTrial | None,
    defaults: Training,
    training: TrainingOptions,
) -> Fitted:
    """Train gates between full and streaming attention. ValueError if the streaming branch reads everything that there is."""
    head_geometry(model).check_kv_heads(gate.name)
    given = passkeys(model, seed=training.get("seed", 0)) if trials is None else trials
    material = TrainingData.of(model, gate, given, defaults, training)
    longest = max(len(trial) for trial in material.trials)
    if longest <= gate.sink + gate.recent:
        raise ValueError(
            f"{gate.name}: the longest prompt has {longest} tokens, all of which sink={gate.sink} and recent={gate.recent} keep: "
            "give longer trials, or use smaller numbers"
        )
    return material.fit(gate)


LABEL = "DuoAttention"
add_style("duo", LABEL, "gate")
METHODS = (
    training_method(
        "duo_gate", streaming(duo), 2, teacher=1, paper="DuoAttention, arXiv 2410.10819",
        fails="asks which heads need the far context, whatever they do with it", label=LABEL,
    ),
)  # fmt: skip
