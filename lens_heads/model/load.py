"""load_model: a model with unprocessed weights, as a `TransformerBridge` or a `HookedTransformer`.

GGUF files and the packaged models are in `gguf.py`.
"""

from __future__ import annotations

import os
import reprlib
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import torch

from lens_heads.model.adapters import mend
from lens_heads.model.architectures import adapting, check_parts, drop_unread, quantized
from lens_heads.model.beginning import begin_as_own
from lens_heads.model.folders import configuration, load_local
from lens_heads.model.foreign_code import foreign_code, nothing_installed
from lens_heads.model.forward import Cache, advance
from lens_heads.model.geometry import Model
from lens_heads.model.gguf import loading, local_source
from lens_heads.runs.hub import as_reachable, off_the_hub
from lens_heads.runs.reading import reason, user_path
from lens_heads.runs.typed import LISTED, Default, typed

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
"""The device maps that accelerate makes."""


class LoadOptions(TypedDict, total=False):
    """The options of `load_model`, which explains them."""

    device: Any
    dtype: torch.dtype | str | None
    lens: Literal["bridge", "hooked"] | None
    device_map: str | dict[str, Any] | None
    revision: str | None
    trust_remote_code: Annotated[bool, Default(False)]
    prepend_bos: bool | None
    linear_heads: Annotated[bool, Default(False)]


def dtype_of(given: torch.dtype | str | None, device: torch.device | str | None) -> torch.dtype:
    """The dtype that `load_model` means on a device; None stands for GPUs. ValueError for any other."""
    names = {str(dtype).removeprefix("torch."): dtype for dtype in _DTYPES}
    if given == "auto":
        return torch.bfloat16 if _has_bfloat16(torch.device(device or "cuda")) else torch.float32
    found = torch.float32 if given is None else names.get(given) if isinstance(given, str) else given
    if found not in _DTYPES:
        raise ValueError(f"dtype={given!r:.60}: use {', '.join(names)} or auto")
    return found


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16, and does not only imitate it."""
    if device.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    known = getattr(torch.cpu, "get_capabilities", dict)()  # Since torch 2.9.
    return device.type == "cpu" and any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


@typed
def load_model(
    name: Annotated[str | Path, LISTED],
    *,
    device: Annotated[str | torch.device | None, LISTED] = None,
    dtype: torch.dtype | str | None = None,
    lens: Literal["bridge", "hooked"] | None = None,
    device_map: str | dict[str, Any] | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    prepend_bos: bool | None = None,
    linear_heads: bool = False,
) -> Model:
    """Load a model with its weights as stored, ready for every function here.

    Args:
        name: a hub name, a local folder, a `.gguf` file, or a packaged model ("smollm2-135m-instruct", "gemma-3-270m").
        device: as in torch; by default CUDA if available, else CPU. Not together with `device_map`.
        dtype: of the weights, or its name; default float32. "auto": bfloat16 where the device computes in it (GPUs, CPUs with
            AVX-512 BF16 or AMX), else float32. Scores are computed in float32 regardless.
        lens: "bridge" (default) for a TransformerBridge, "hooked" for a HookedTransformer (TransformerLens 3.9 only).
        device_map: as in transformers, to spread a model over several GPUs; hub names and folders only.
        revision: branch, tag or commit of a hub model.
        trust_remote_code: run code that the model's folder or repository brings along (`auto_map`). Never otherwise, and nobody
            is asked.
        prepend_bos: whether prompts begin with a BOS. None: as the model's own tokenizer does, so not for Pythia, Qwen or
            SmolLM2, which never saw one, though TransformerLens puts one there. True is for comparing with results that
            were made so.
        linear_heads: show the heads of linear attention (gated delta rule) and Mamba-2 in the layers of a hybrid that have those
            alone. What reads writes then ranks, ablates and patches them with the others, by exact signed weights of earlier
            positions in the place of a pattern (`lens_heads/model/recurrence.py`); what reads attention is refused.

    After loading, a few tokens are run once, so that a model that breaks does so here.

    Raises:
        FileNotFoundError: the folder or file, or a packaged model's package, is missing.
        OSError, ValueError: the model cannot be loaded, e.g. because there is none of that name, or its files are damaged.
        ValueError: the architecture has no attention heads, no adapter in TransformerLens, or lacks something that every
            function reads; weights are quantized in a way that cannot be read here; the folder holds an adapter (LoRA), not a
            model; or the model needs code of its own without `trust_remote_code`.
        ValueError: the device or dtype cannot be used, the arguments are incompatible, or this TransformerLens has no
            HookedTransformer.

    Example:
        >>> written = lh.prune(model, heads[:1], "folder").path
        >>> loaded = lh.load_model(written, device="cpu")
        >>> lh.head_geometry(loaded).n_heads, lh.evaluate(loaded, trials[:2], max_new_tokens=1).texts
        (4, ('A', 'B'))
    """
    chosen: LoadOptions = {"device": device, "dtype": dtype, "lens": lens, "device_map": device_map}
    chosen |= {"revision": revision, "trust_remote_code": trust_remote_code, "prepend_bos": prepend_bos}
    chosen["linear_heads"] = linear_heads
    check_loading(name, **chosen)
    source = local_source(name)
    if device is None and device_map is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = dtype_of(dtype, device)
    given: dict[str, Any] = {"device": device, "dtype": dtype, "revision": revision, "device_map": device_map}
    options = {key: value for key, value in given.items() if value is not None}
    with foreign_code(trust_remote_code, str(name)), as_reachable() if source is None else nullcontext():
        if source is not None and device_map is None:
            options |= load_local(source, dtype, device, trust_remote_code)
        if lens == "hooked":
            model = _boot_hooked(str(name), options)
        else:
            options |= {"trust_remote_code": True} if trust_remote_code else {}
            model = boot_bridge(str(name), source, options, linear_heads)
            check_bridge(str(name), model)
    if model.tokenizer is None:
        raise ValueError(f"{name} has no tokenizer: put its tokenizer files beside the weights")
    read: dict[str, Any] = {"trust_remote_code": trust_remote_code, **({"revision": revision} if revision else {})}
    begin_as_own(model, options.get("tokenizer"), prepend_bos, **read)
    model.cfg.model_name = Path(name).name if source is not None else str(name)
    return model


def check_loading(name: str | Path, **options: Unpack[LoadOptions]) -> None:
    """All that `load_model` refuses before it reads a model: what is wrong with the options, and names of files that are not."""
    device, spread, revision = (options.get(each) for each in ("device", "device_map", "revision"))
    lens, bos, trusted = options.get("lens"), options.get("prepend_bos"), options.get("trust_remote_code", False)
    if device is not None and spread is not None:
        raise ValueError("device and device_map are mutually exclusive: pass only one")
    if lens not in (None, "bridge", "hooked"):
        raise ValueError(f"lens={lens!r}: use 'bridge' or 'hooked'")
    for option, given in (("trust_remote_code", trusted), ("linear_heads", options.get("linear_heads", False))):
        if not isinstance(given, bool):
            raise TypeError(f"{option}={given!r:.60}: must be True or False")
    if options.get("linear_heads") and lens == "hooked":
        raise ValueError("linear_heads=True needs a TransformerBridge: omit lens=")
    if not isinstance(bos, bool | None):
        raise ValueError(f"prepend_bos={bos!r}: use True, False, or None for what the model's own tokenizer does")
    if device is not None:
        _check_device(device)
    _check_spread(spread)
    if not isinstance(name, str | os.PathLike):
        raise TypeError(
            f"name={reprlib.repr(name)}: a {type(name).__name__} is no name: pass the hub name or folder that it comes from "
            "(load_model reads the weights itself), or save it to a folder first, with its tokenizer, by save_pretrained"
        )
    user_path(name, "name")
    source = local_source(name)
    dtype_of(options.get("dtype"), device or ("cpu" if spread is None and not torch.cuda.is_available() else None))
    if source is not None:
        _check_local(name, source, lens, spread, revision)


def _check_spread(device_map: Any) -> None:
    """ValueError for a map of devices that is none."""
    known = device_map in _SPREAD or _is_device(device_map) if isinstance(device_map, str) else device_map is None
    named = isinstance(device_map, dict) and all(type(place) in (int, str) for place in device_map.values())
    if not known and not (named and device_map):
        raise ValueError(
            f"device_map={device_map!r:.60}: use {', '.join(map(repr, _SPREAD))}, one device, or one for each module by its name"
        )


def _is_device(name: str) -> bool:
    try:
        return torch.device(name).type != "meta"
    except RuntimeError:
        return False


def _check_local(name: str | Path, source: Path, lens: str | None, device_map: object, revision: str | None) -> None:
    """ValueError for options that a local model cannot have."""
    if revision is not None:
        raise ValueError(f"revision={revision!r}: {name} is a local model, and only hub models have revisions")
    if device_map is not None and (source.suffix == ".gguf" or lens == "hooked"):
        raise ValueError(f"device_map is for hub models and folders, but {name} goes to one device: use device=")
    if lens == "hooked" and str(name) != "gemma-3-270m":
        raise ValueError(
            f"lens='hooked' needs a name HookedTransformer knows, but {name} is a local model. Omit lens= for a "
            "TransformerBridge, or pass a HookedTransformer of your own: every function accepts one"
        )


def _check_device(device: str | torch.device) -> None:
    """Try the device out. ValueError, which lists those that work here."""
    try:
        if torch.device(device).type == "meta":
            raise ValueError("it holds no values")
        torch.empty(1, device=device)
    except Exception as error:  # torch raises RuntimeError, AssertionError and others
        usable = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        usable += ["mps"] if torch.backends.mps.is_available() else []
        raise ValueError(
            f"device={str(device)!r:.60}: cannot be used here; use {' or '.join(usable)} ({reason(error)})"
        ) from None


def boot_bridge(name: str, source: Path | None, options: dict[str, Any], linear_heads: bool = False) -> Model:
    """A TransformerBridge with HookedTransformer's hook names and raw weights; `options` of `boot_transformers`.

    ValueError for an architecture that TransformerLens has no adapter for, or whose adapter breaks; with `linear_heads`, for one
    without such heads.
    """
    from transformer_lens.model_bridge import TransformerBridge

    # For a loaded model the name is a mere label, but a bare packaged name would be taken for a hub alias.
    loaded = options.get("hf_model")
    label = f"local/{Path(name).name}" if loaded is not None else str(source) if source else name
    if loaded is not None:
        config = loaded.config
        drop_unread(config)
    else:
        config, _ = configuration(name, source, options.get("revision"), options.get("trust_remote_code", False))
    # TransformerLens looks there for the image processor of a model from a folder, by a name that is a mere label.
    local = off_the_hub() if loaded is not None else nullcontext()
    with loading(name), adapting(name, config), quantized(name, config), nothing_installed(), local:
        model = TransformerBridge.boot_transformers(label, **options)
        # VaultGemma's adapter says no, because of processed weights alone; none are processed here.
        model.adapter.supports_compatibility_mode = True
        mend(model)
        if linear_heads:
            from lens_heads.model.linear_heads import show_linear_heads

            show_linear_heads(model, name)
        model.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    model.eval()
    return model


def check_bridge(name: str, model: Model) -> None:
    """ValueError for a bridge that lacks what every function reads, or whose forward breaks, whole or into a cache in two
    parts, which is what every function runs."""
    check_parts(name, model)
    tokens = (torch.arange(8) % model.cfg.d_vocab)[None].to(model.W_U.device)
    with torch.no_grad(), adapting(name, model.original_model.config):
        model(tokens)
        cache = Cache(model, 1)
        for part in tokens.split(4, 1):
            advance(model, part, cache)


def _boot_hooked(name: str, options: dict[str, Any]) -> Model:
    try:
        from transformer_lens import HookedTransformer
    except ImportError:
        raise ValueError(
            "lens='hooked' needs a TransformerLens version with HookedTransformer: "
            "pip install 'transformer-lens==3.9.*', or omit lens= for a TransformerBridge"
        ) from None
    hooked_transformer: Any = HookedTransformer
    with loading(name):
        return hooked_transformer.from_pretrained_no_processing(name, **options)
