"""A model's folder, or its repository on the hub: configuration, weights and tokenizer, as transformers reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lens_heads.model import gguf
from lens_heads.model.architectures import check_causal, check_configuration, quantized
from lens_heads.model.gguf import loading
from lens_heads.model.gguf_fields import truth
from lens_heads.runs.reading import read_json, reason
from lens_heads.trials.bos import begins, put_bos


def configuration(
    name: str | Path, source: Path | None, revision: str | None = None, trusted: bool = False
) -> tuple[Any, Path | None]:
    """The configuration of a local source, or else of the hub model `name`, and the folder of a local one.

    Raises FileNotFoundError for a folder without a configuration; ValueError or OSError for a configuration that cannot be read,
    an adapter (LoRA), which is no model, and an architecture without a causal language model's attention.
    """
    from transformers import AutoConfig
    from transformers.utils.peft_utils import find_adapter_config_file

    folder = gguf.converted(source) if source is not None and source.suffix == ".gguf" else source
    place = name if folder is None else folder
    with loading(name):
        adapter = find_adapter_config_file(str(place), revision=revision, local_files_only=folder is not None)
    if adapter is not None:
        raise _no_model(str(name), Path(adapter))
    if folder is not None and not (folder / "config.json").exists():
        raise FileNotFoundError(f"{folder} contains no config.json: pass the folder that save_pretrained wrote")
    with loading(name):
        config = AutoConfig.from_pretrained(
            place, revision=revision, trust_remote_code=trusted, local_files_only=folder is not None
        )
    check_configuration(str(name), config)
    return config, folder


def _no_model(name: str, adapter: Path) -> ValueError:
    """What to do with an adapter, which transformers ignores, or loads on its base model where the package peft is installed."""
    try:
        base = read_json(adapter)["base_model_name_or_path"]
    except (OSError, ValueError, TypeError, KeyError):
        base = None
    merge = f"PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({base or 'BASE'!r}), {name!r}).merge_and_unload()"
    whole = adapter.with_name("config.json").exists()
    ending = ", or remove adapter_config.json if the weights beside it are merged already" if whole else ""
    return ValueError(
        f"{name} holds an adapter (adapter_config.json), which is no whole model: merge it with the package peft, "
        f"{merge}, write the result and the tokenizer to a new folder by save_pretrained, and load that{ending}"
    )


def load_local(
    source: Path, dtype: torch.dtype, device: str | torch.device | None = None, trusted: bool = False
) -> dict[str, Any]:
    """`hf_model` and `tokenizer` of a local folder or `.gguf` file, for TransformerLens to wrap.

    The weights are moved to `device` here, because TransformerLens does not move a model passed to it. Errors as in
    `configuration`, and ValueError or OSError for weights or a tokenizer that cannot be read.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config, folder = configuration(source, source, trusted=trusted)
    assert folder is not None  # A local source has one.
    check_causal(str(source), config)
    own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trusted}
    with loading(source), quantized(str(source), config):
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **own)
    model, found = loaded
    if found["missing_keys"]:  # transformers fills them with random numbers and goes on.
        raise ValueError(f"{source}: the weights lack {min(found['missing_keys'])}; save the whole model again")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **own)
    except Exception as error:  # of transformers, tokenizers or a file system
        raise ValueError(
            f"{source} has no tokenizer: put its tokenizer files beside the weights ({reason(error)})"
        ) from error
    adds = truth(source, "tokenizer.ggml.add_bos_token") if source.suffix == ".gguf" else None
    if adds is not None and adds != bool(begins(tokenizer)):  # transformers does not read it.
        put_bos(tokenizer, adds)
    model = model.eval()
    return {"hf_model": model if device is None else model.to(device), "tokenizer": tokenizer}
