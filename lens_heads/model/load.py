"""Models: load one unprocessed, know its shape, and reach its hooks the same way in either TransformerLens class.

What differs between `TransformerBridge` and `HookedTransformer` lives here and in `forward.py` and nowhere else.
GGUF files and the packaged models are in `gguf_files.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from lens_heads.model.geometry import Model


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
    from lens_heads.model import gguf as gguf_files

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
