"""Models: load one unprocessed, know its shape, and reach its hooks the same way in either TransformerLens class.

What differs between `TransformerBridge` and `HookedTransformer` lives here and in `forward.py` and nowhere else.
GGUF files and the packaged models are in `gguf_files.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lens_heads.heads import Head, parse_heads
from lens_heads.norms import is_rms, post_attention_norm

Model: TypeAlias = Any
"""A `transformer_lens` `TransformerBridge` or `HookedTransformer`."""

HookFunction: TypeAlias = Callable[..., Tensor | None]


@dataclass(frozen=True)
class HeadGeometry:
    """The shape of a model as far as heads are concerned.

    `windows[layer]` is the sliding window of a layer in tokens, None where attention is full. `post_norm`: the attention
    output passes a norm of its own before it joins the residual stream (Gemma 2/3, OLMo 2/3). `attn_softcap` and
    `logit_softcap` are tanh caps on attention scores and logits, None without.
    """

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    d_vocab: int
    n_ctx: int
    windows: tuple[int | None, ...]
    post_norm: bool
    qk_norm: bool
    attn_softcap: float | None
    logit_softcap: float | None
    final_norm: Literal["rms", "layer"]

    @cached_property
    def group(self) -> int:
        """Query heads per kv head: query head h reads kv head h // group."""
        return self.n_heads // self.n_kv_heads

    def check_heads(self, heads: Iterable[Head | str | Sequence[int]] | Head | str) -> list[Head]:
        """The heads, parsed and checked. ValueError for a head the model does not have."""
        found = parse_heads(heads)
        for head in found:
            if head.layer >= self.n_layers or head.head >= self.n_heads:
                raise ValueError(
                    f"head {head} does not exist: {self.name} has layers 0-{self.n_layers - 1} "
                    f"and heads 0-{self.n_heads - 1}"
                )
        return found

    def check_scores(self, scores: Any, what: str) -> None:
        """ValueError when scores (a HeadScores) belong to a model of another shape."""
        if (scores.n_layers, scores.n_heads) != (self.n_layers, self.n_heads):
            raise ValueError(
                f"{what} is for a model of {scores.n_layers} layers x {scores.n_heads} heads "
                f"({scores.meta.get('model', 'model unknown')}), but {self.name} has {self.n_layers} x {self.n_heads}: "
                "score this model, or load the model the scores came from"
            )


def is_bridge(model: Model) -> bool:
    """Whether the model is a TransformerBridge; TypeError when it is no TransformerLens model at all."""
    if hasattr(model, "original_model") and hasattr(model, "adapter"):
        return True
    if type(model).__name__ == "HookedTransformer" or hasattr(model, "hook_dict"):
        return False
    raise TypeError(
        f"{type(model).__name__} is not a TransformerLens model: load it with lens_heads.load_model(name), "
        "or wrap it with TransformerBridge.boot_transformers(name, hf_model=model, tokenizer=tokenizer)"
    )


def geometry(model: Model) -> HeadGeometry:
    """Read the shape off the loaded modules (d_head is not always d_model / n_heads: Qwen3, Gemma 3)."""
    bridge, cfg = is_bridge(model), model.cfg
    n_kv = getattr(cfg, "n_key_value_heads", None) or cfg.n_heads
    hf = getattr(model.original_model, "config", None) if bridge else None
    first = model.blocks[0]
    return HeadGeometry(
        name=str(getattr(cfg, "model_name", None) or "model"),
        n_layers=cfg.n_layers,
        n_heads=cfg.n_heads,
        n_kv_heads=n_kv,
        d_head=cfg.d_head,
        d_model=cfg.d_model,
        d_vocab=cfg.d_vocab,
        n_ctx=cfg.n_ctx,
        windows=tuple(_window(model, layer, bridge) for layer in range(cfg.n_layers)),
        post_norm=post_attention_norm(model, 0) is not None,
        qk_norm=any(getattr(first.attn, name, None) is not None for name in ("q_norm", "q_layernorm")),
        attn_softcap=_cap(getattr(hf, "attn_logit_softcapping", None) or getattr(cfg, "attn_scores_soft_cap", None)),
        logit_softcap=_cap(
            getattr(hf, "final_logit_softcapping", None) or getattr(cfg, "output_logits_soft_cap", None)
        ),
        final_norm="rms" if is_rms(model, model.ln_final) else "layer",
    )


def _cap(value: float | None) -> float | None:
    return float(value) if value is not None and value > 0 else None


def _window(model: Model, layer: int, bridge: bool) -> int | None:
    if not bridge:
        local = model.cfg.use_local_attn and model.cfg.attn_types and model.cfg.attn_types[layer] == "local"
        return model.cfg.window_size if local else None
    window = getattr(model.blocks[layer].attn.original_component, "sliding_window", None)
    return int(window) if window else None


def require_raw_weights(model: Model) -> None:
    """ValueError when norms were folded or weights centred: head contributions would mean something else."""
    is_bridge(model)  # TypeError for what is no TransformerLens model, before any of its parts is missed.
    processed = getattr(model, "_weights_processed", False) or getattr(model.cfg, "layer_norm_folding", False)
    folded = str(getattr(model.cfg, "normalization_type", "")).endswith("Pre")
    W_U, W_O = model.W_U.detach().float(), model.blocks[0].attn.W_O.detach().float()
    centred = [
        name
        for name, mean, size in (
            ("W_U", W_U.mean(-1), W_U.std()),
            ("W_O", W_O.reshape(-1, W_O.shape[-1]).mean(-1) if W_O.ndim == 3 else None, W_O.std()),
        )
        if mean is not None and float(mean.abs().max()) < 1e-6 * float(size)
    ]
    if processed or folded or centred:
        why = "norms folded into weights" if processed or folded else f"{' and '.join(centred)} centred"
        raise ValueError(
            f"{geometry(model).name} has processed weights ({why}); scores are defined on the weights as stored: load it "
            "with lens_heads.load_model(name), HookedTransformer.from_pretrained_no_processing(name), or "
            "TransformerBridge.enable_compatibility_mode(no_processing=True)"
        )


@contextmanager
def hooked(model: Model, hooks: Iterable[tuple[str, HookFunction]]) -> Iterator[None]:
    """Attach forward hooks `fn(tensor, hook) -> tensor | None` by name and take exactly these away again.

    Unlike `model.hooks`, a hook reached under an alias fires once, and other hooks are never touched.
    """
    added: list[tuple[Any, Any]] = []
    points = model.hook_dict
    try:
        for name, function in hooks:
            if name not in points:
                close = difflib.get_close_matches(name, points, n=1)
                raise ValueError(
                    f"{geometry(model).name} has no hook {name!r}"
                    + (f"; the nearest is {close[0]!r}" if close else "")
                    + ": a bridge needs enable_compatibility_mode(no_processing=True)"
                )
            points[name].add_hook(function)
            added.append((points[name], points[name].fwd_hooks[-1]))
        yield
    finally:
        for point, handle in reversed(added):
            handle.hook.remove()
            if handle in point.fwd_hooks:
                point.fwd_hooks.remove(handle)


def has_hooks(model: Model) -> bool:
    """Whether anything at all is hooked onto the model now."""
    return any(point.fwd_hooks or point.bwd_hooks for point in model.hook_dict.values())


def dtype_named(name: str) -> torch.dtype:
    """A dtype by its name on the command line. ValueError for any but float32, bfloat16, float16."""
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in kinds:
        raise ValueError(f"dtype {name!r}: use {', '.join(kinds)}")
    return kinds[name]


def load_model(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    lens: Literal["bridge", "hooked"] | None = None,
    device_map: str | dict[str, Any] | None = None,
    revision: str | None = None,
) -> Model:
    """Load a model with its weights as stored, ready for every function here.

    Args:
        name: a hub name, a local folder, a `.gguf` file, or a packaged model ("smollm2-135m-instruct", "gemma-3-270m").
        device: as in torch; default: CUDA when there is one, else CPU. Not together with `device_map`.
        dtype: of the weights; default float32. Scores are computed in float32 whatever it is.
        lens: "bridge" (default) for a TransformerBridge, "hooked" for a HookedTransformer (TransformerLens 3.9 only).
        device_map: as in transformers, to spread a model over several GPUs; hub names and folders only.
        revision: branch, tag or commit of a hub model.

    Raises:
        FileNotFoundError: the folder or file, or a packaged model's package, is missing (the remedy is in the text).
        ValueError: the arguments do not go together, or this TransformerLens has no HookedTransformer.
    """
    from lens_heads import gguf_files

    if device is not None and device_map is not None:
        raise ValueError("give device or device_map, not both")
    if lens not in (None, "bridge", "hooked"):
        raise ValueError(f"lens={lens!r}: use 'bridge' or 'hooked'")
    source = gguf_files.local_source(name)
    if device is None and device_map is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = dtype or torch.float32
    options: dict[str, Any] = {"device": device, "dtype": dtype, "revision": revision}
    if source is not None:
        if revision is not None:
            raise ValueError(f"revision={revision!r}: {name} is a local model; revisions belong to hub models")
        if device_map is not None and (source.suffix == ".gguf" or lens == "hooked"):
            raise ValueError(f"device_map spreads hub models and folders; {name} goes to one device: use device=")
        if lens == "hooked" and str(name) != "gemma-3-270m":
            raise ValueError(
                f"lens='hooked' needs a name HookedTransformer knows, and {name} is a local model: leave lens out for a "
                "TransformerBridge, or build the HookedTransformer yourself (it is accepted everywhere)"
            )
        if device_map is None:
            options |= gguf_files.load_local(source, dtype, device)
    model = (
        _boot_hooked(str(name), options) if lens == "hooked" else _boot_bridge(str(name), source, device_map, options)
    )
    if model.tokenizer is None:
        raise ValueError(f"{name} has no tokenizer: put its tokenizer files beside the weights")
    model.cfg.model_name = Path(name).name if source is not None else str(name)
    return model


def _boot_bridge(name: str, source: Path | None, device_map: Any, options: dict[str, Any]) -> Model:
    from transformer_lens.model_bridge import TransformerBridge

    options = {key: value for key, value in options.items() if value is not None}
    if device_map is not None:
        options["device_map"] = device_map
    # With the weights in hand the name is a label; a bare packaged name would be taken for a hub alias.
    label = str(source) if source and device_map else f"local/{Path(name).name}" if source else name
    model = TransformerBridge.boot_transformers(label, **options)
    model.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    model.eval()
    return model


def _boot_hooked(name: str, options: dict[str, Any]) -> Model:
    try:
        from transformer_lens import HookedTransformer
    except ImportError:
        raise ValueError(
            "lens='hooked' needs a TransformerLens that still has HookedTransformer: "
            "pip install 'transformer-lens==3.9.*', or leave lens out for a TransformerBridge"
        ) from None
    hooked_transformer: Any = HookedTransformer
    revision = options.pop("revision")
    if revision is not None:
        options["revision"] = revision
    return hooked_transformer.from_pretrained_no_processing(name, **options)
