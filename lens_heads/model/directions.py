"""Unembedding directions: the vector that a head's write is projected on.

`raw` (default): the lm_head row of the answer token as stored, without final or post-attention norm (the LOCOS paper).
`exact`: the true linear read-out at that row with every norm's scale frozen, so that all contributions sum to the logit.
Constants that multiply what attention writes or the logits (Granite, Cohere) belong to it; `raw` leaves them out.
A tuned-lens file: (I + A_l)^T u per layer, with the constant u . b_l (Belrose et al., arXiv 2303.08112), which every head gets
once, spread over positions as its attention is (the LOCOS authors' code).

A logit softcap (Gemma 2) is non-linear: `exact` reads the logit before the cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model
from lens_heads.model.multipliers import logit_multiplier, residual_multiplier
from lens_heads.model.norms import FrozenNorm, frozen_norm, post_attention_norm
from lens_heads.runs.digests import digest, tensor_digest
from lens_heads.runs.reading import reason, user_path
from lens_heads.runs.typed import typed_methods


@typed_methods
@dataclass(frozen=True)
class TunedLens:
    """Translators per layer: `A` [layer, d_model, d_model] and `b` [layer, d_model] map h to h + h @ A^T + b."""

    A: Float[Tensor, "layer d_model d_model"]
    b: Float[Tensor, "layer d_model"]

    @classmethod
    def load(cls, path: str | Path, geometry: HeadGeometry) -> TunedLens:
        """Read translators `{layer}.weight`, `{layer}.bias` from a safetensors file, or from a folder with one.

        Numbering follows the tuned-lens package: translator i reads the residual stream entering block i, so translator
        l + 1 reads the writes of layer l's heads, and the last layer has none (the identity). Raises ValueError for pickled
        files (`.pt` is never unpickled), missing translators, and wrong shapes.
        """
        from safetensors.torch import load_file

        file = _lens_file(path)

        try:
            tensors = load_file(file)
        except Exception as error:  # Damaged bytes can raise anything.
            raise _no_lens(file, error) from None
        d = geometry.d_model
        A, b = torch.zeros(geometry.n_layers, d, d), torch.zeros(geometry.n_layers, d)
        for layer in range(geometry.n_layers - 1):
            weight, bias = tensors.get(f"{layer + 1}.weight"), tensors.get(f"{layer + 1}.bias")
            if weight is None or weight.shape != (d, d) or (bias is not None and bias.shape != (d,)):
                found = "missing" if weight is None else f"of shape {tuple(weight.shape)}"
                found += "" if bias is None else f" and its bias of shape {tuple(bias.shape)}"
                raise ValueError(
                    f"{file}: translator {layer + 1}.weight is {found}; {geometry.name} needs [{d}, {d}] (bias [{d}]) "
                    f"for each of translators 1 to {geometry.n_layers - 1}"
                )
            for name, values in (("weight", weight), ("bias", bias)):
                if values is not None and not values.isfinite().all():
                    bad = float(values[~values.isfinite()][0])
                    raise ValueError(
                        f"{file}: translator {layer + 1}.{name} contains {bad}: train or save the lens again"
                    )
            A[layer] = weight.float()
            b[layer] = 0 if bias is None else bias.float()
        return cls(A, b)


def _lens_file(path: str | Path) -> Path:
    """The file of a tuned lens. ValueError or FileNotFoundError where it cannot be one."""
    path = user_path(path, "direction")
    file = next(iter(sorted(path.glob("*.safetensors"))), path) if path.is_dir() else path
    if not file.suffix and not path.exists():
        raise ValueError(f"direction {str(path)!r}: use 'raw', 'exact', or a tuned-lens safetensors file")
    if file.suffix != ".safetensors":
        raise ValueError(
            f"{file} is not a safetensors file, and pickled lenses are not supported: convert it with "
            "safetensors.torch.save_file(torch.load('params.pt', weights_only=True), 'params.safetensors')"
        )
    if not file.exists():
        raise FileNotFoundError(f"no tuned lens at {file}")
    return file


def _no_lens(file: Path, error: Exception) -> ValueError:
    return ValueError(f"{file}: not a safetensors file of a tuned lens ({reason(error)}): save it again")


def check_direction(direction: str | Path) -> None:
    """ValueError or FileNotFoundError for a direction that there is not, whatever the model."""
    if str(direction) not in ("raw", "exact"):
        from safetensors import safe_open

        file = _lens_file(direction)
        try:
            with safe_open(file, framework="pt"):
                pass
        except Exception as error:  # Damaged bytes can raise anything.
            raise _no_lens(file, error) from None


class Directions:
    """The directions of one model for one choice of `direction`; see the module docstring."""

    def __init__(self, model: Model, geometry: HeadGeometry, direction: str | Path) -> None:
        self.model, self.geometry = model, geometry
        self.name = str(direction)
        self.exact = self.name == "exact"
        self.lens = None if self.name in ("raw", "exact") else TunedLens.load(direction, geometry)
        self.final: FrozenNorm | None = frozen_norm(model, model.ln_final) if self.exact else None

    @property
    def made_exact(self) -> Directions:
        """The exact directions of the same model: itself, if it is exact."""
        return self if self.exact else Directions(self.model, self.geometry, "exact")

    @property
    def identity(self) -> str:
        """The name; for a tuned lens, of its file with a hash of all its entries: another lens of that name is another run."""
        if self.lens is None:
            return self.name
        return f"{Path(self.name).name} ({digest([tensor_digest(part) for part in (self.lens.A, self.lens.b)])})"

    def unembedding(
        self, tokens: Int[Tensor, " row"], final_resid: Float[Tensor, "row d_model"] | None
    ) -> Float[Tensor, "row d_model"]:
        """Rows of W_U for the tokens; under `exact` pulled back through the final norm at `final_resid`."""
        u = self.model.W_U[:, tokens.to(self.model.W_U.device)].detach().float().T
        if self.final is None:
            return u
        assert final_resid is not None
        gain = self.final.gain  # An unembedding that is the embedding is where that is, not where the final norm is.
        u = u.to(gain) * logit_multiplier(self.model)
        return self.final.pull_back(u, self.final.scale(final_resid).to(gain))

    def at_layer(
        self, u: Float[Tensor, "row d_model"], layer: int, attention_out: Float[Tensor, "row d_model"] | None
    ) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, " row"]]:
        """(directions, constant per head) for the writes of one layer.

        `attention_out` (see `geometry.attention_out`) is only needed by `exact` on a post-norm block.
        """
        none = u.new_zeros(len(u))
        if self.lens is not None:
            A, b = self.lens.A[layer].to(u.device), self.lens.b[layer].to(u.device)
            return u + u @ A, u @ b
        norm = post_attention_norm(self.model, layer) if self.exact else None
        u = u * residual_multiplier(self.model) if self.exact else u
        if norm is None:
            return u, none
        assert attention_out is not None
        frozen = frozen_norm(self.model, norm)
        return frozen.pull_back(u, frozen.scale(attention_out)), none
