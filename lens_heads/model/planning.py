"""What a run would cost: forwards, time and memory, from a model's configuration, and from two of its layers timed here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lens_heads.model import gguf as gguf_files
from lens_heads.model.architectures import (
    architecture_of,
    attending_layers,
    check_causal,
    check_configuration,
    unsuited,
)
from lens_heads.model.folders import configuration
from lens_heads.model.foreign_code import foreign_code
from lens_heads.model.forward import CHUNK
from lens_heads.runs import checks
from lens_heads.runs.reading import parse_json


@dataclass(frozen=True)
class Shape:
    """A model without its weights, of so many `params`. `attending`: how many of its layers have heads."""

    name: str
    n_layers: int
    attending: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    d_vocab: int
    d_mlp: int
    params: int
    config: Any = field(compare=False, repr=False)

    @property
    def size(self) -> int:
        """The number of heads in all layers."""
        return self.attending * self.n_heads

    def cache_bytes(self, tokens: float, width: int) -> float:
        """Keys and values of so many tokens, of `width` bytes a number."""
        return 2 * self.attending * self.n_kv_heads * self.d_head * tokens * width

    def memory(self, tokens: float, width: int, kept: bool = False) -> float:
        """Bytes of a run over so many tokens beside the weights: keys and values, and one chunk's widest layer.

        `kept`: also the residual streams of an unablated run, and the keys and values of one more.
        """
        chunk = CHUNK * (4 * self.d_mlp + 4 * self.n_heads * self.d_head) * width
        streams = self.n_layers * self.d_model * tokens * width + self.cache_bytes(tokens, width)
        return self.cache_bytes(tokens, width) + chunk + kept * streams


def shape_of(name: str, revision: str | None = None, trust_remote_code: bool = False) -> Shape:
    """The shape of a model by name, folder or `.gguf` file, as `load_model` takes them, or of a configuration as JSON.

    Nothing but the configuration is read, and code that the folder brings along runs only with `trust_remote_code`. ValueError
    or OSError for a configuration that cannot be read, or of a model without attention.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    given = name.lstrip().startswith("{")
    label = "the configuration" if given else name
    source = None if given else gguf_files.local_source(name)
    if revision is not None and (given or source is not None):
        what = "a configuration written out" if given else f"{name} is a local model"
        raise ValueError(f"revision={revision!r:.60}: {what}, and only hub models have revisions")
    with foreign_code(trust_remote_code, label):
        if given:
            written = parse_json(name, label)
            if not isinstance(written.get("model_type"), str):
                raise ValueError(f'{label} has no model_type: add one, such as "model_type": "llama"')
            with gguf_files.loading(label):
                config: Any = AutoConfig.for_model(written.pop("model_type"), **written)
            check_configuration(label, config)
        else:
            config, _ = configuration(name, source, revision, trust_remote_code)
        check_causal(label, config)
        with gguf_files.loading(label):
            with torch.device("meta"):
                model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
            return _shape(str(config.model_type) if given else Path(name).name, config, model)


def _shape(name: str, config: Any, model: Any) -> Shape:
    """The shape of a model that is there without its weights."""
    text = config.get_text_config(decoder=True)
    n_layers, n_heads = text.num_hidden_layers, text.num_attention_heads
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == n_layers)
    layers = next(lists, None)
    if layers is None:
        raise unsuited(name, architecture_of(config), f"has no list of {n_layers} layers", "plan another model")
    return Shape(
        name=name,
        n_layers=n_layers,
        attending=attending_layers(text),
        n_heads=n_heads,
        n_kv_heads=getattr(text, "num_key_value_heads", None) or n_heads,
        d_head=getattr(text, "head_dim", None) or text.hidden_size // n_heads,
        d_model=text.hidden_size,
        d_vocab=text.vocab_size,
        d_mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        params=sum(each.numel() for each in model.parameters()),
        config=config,
    )


@dataclass(frozen=True)
class Machine:
    """Seconds that a model takes here (see `timing`).

    `layer`: of a layer's forward: a constant, per token, per token and key, and per key. `logits`: of an unembedding: a constant,
    and per row. `width`: bytes of a number. `start`: bytes that a process takes before it holds a model.
    """

    layer: tuple[float, float, float, float]
    logits: tuple[float, float]
    width: int = 4
    start: float = 0.0

    def seconds(self, shape: Shape, tokens: float, past: float = 0, runs: float = 1) -> float:
        """A forward of `tokens` after `past` others, in chunks; `runs`: of so many rows of a batch."""
        whole = tokens // CHUNK
        keys = whole * past + CHUNK * whole * (whole + 1) / 2  # What the whole chunks attend to, in sum.
        spent = self._chunks(shape, CHUNK * runs, keys, whole)
        rest = tokens - whole * CHUNK
        return spent + (self._chunks(shape, rest * runs, past + tokens, 1) if rest else 0.0)

    def _chunks(self, shape: Shape, rows: float, keys: float, number: float) -> float:
        """Seconds of so many chunks of `rows` each, which attend to `keys` in sum: time is linear in the keys of a chunk."""
        features = (number, number * rows, rows * keys, keys)
        return shape.n_layers * sum(x * y for x, y in zip(self.layer, features, strict=True))

    def unembedding(self, rows: float) -> float:
        """The logits of so many rows at once."""
        return self.logits[0] + self.logits[1] * rows

    def memory(self, shape: Shape, tokens: float, kept: bool = False) -> float:
        """Bytes of a run over so many tokens."""
        return self.start + shape.params * self.width + shape.memory(tokens, self.width, kept)


@dataclass(frozen=True)
class Job:
    """What a call does on one trial: plain forwards of its prompt, and its seconds. `kept`: it keeps an unablated run."""

    name: str
    forwards: float
    seconds: float
    kept: bool = False


@dataclass(frozen=True)
class Sizes:
    """What is asked: tokens of the prompt, of the gold answer, and generated; sets of `k` heads ablated; masks of as many.

    `changed`: tokens of a pair's prompt from the first that differs on; None: half of it.
    """

    context: int
    answer: int = 6
    new_tokens: int = 0
    sets: int = 60
    k: int = 5
    masks: int = 200
    changed: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                checks.whole_number(name, value, 0 if name == "new_tokens" else 1)


def jobs(shape: Shape, machine: Machine, sizes: Sizes) -> list[Job]:
    """What the usual calls cost per trial.

    An ablated run starts at its lowest ablated layer: of k heads drawn from all, it runs k / (k + 1) of the layers. A patched
    head runs half of them, from the first token that differs on, and the second run of a pair starts there too.
    """
    n, m, heads = sizes.context, sizes.answer, shape.size
    changed = sizes.changed or max(1, n // 2)
    plain, rows = machine.seconds(shape, n), machine.seconds(shape, m, n)
    above = sizes.k / (sizes.k + 1)
    token = machine.seconds(shape, 1, n) + machine.unembedding(1)
    decoded = sizes.new_tokens * token
    answered = machine.unembedding(m)
    both = plain + machine.seconds(shape, changed, n - changed) + 2 * answered
    at_once = max(1.0, CHUNK / m)  # Patched heads in one forward.
    patched = heads / at_once * (machine.seconds(shape, m, n, at_once) / 2 + machine.unembedding(at_once * m))
    wide = max(1.0, CHUNK / changed)
    again = (machine.seconds(shape, changed, n - changed, wide) / 2 + machine.unembedding(m * wide)) / wide
    ablated = [("ablate sets of heads", sizes.sets), ("localize by masks", sizes.masks)]
    return [
        Job("score, gold answers", 1, machine.seconds(shape, n + m)),
        Job("score, decoding", 1, plain + decoded),
        *[
            Job(name, 1 + runs * above, plain + runs * (above * plain + rows + answered), True)
            for name, runs in ablated
        ],
        Job("patch every head, answer rows", 1 + changed / n + heads * m / n / 2, both + patched, True),
        Job("patch every head, all positions", 1 + (1 + heads / 2) * changed / n, both + heads * again, True),
    ]
