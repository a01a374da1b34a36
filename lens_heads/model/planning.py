"""What a run would cost: forwards, time and memory, from a model's configuration alone.

Work is counted in floating-point operations (a product of [a, b] and [b, c] takes 2abc) and in bytes that must be read; a machine
does each at a rate, which is measured where this process runs and stated for others.

    n tokens, in chunks of c    2 P n  +  2 L H e n (n + c)    P parameters of the blocks; L layers, H heads of size e
    one token after n others    2 P  +  4 L H e n, or reading P parameters and 2 L K e n keys and values, whichever takes longer
    unembedding of r rows       2 D V r, or reading D V parameters    for D dimensions, V tokens
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.benchmark import Timer

from lens_heads.model import gguf as gguf_files
from lens_heads.model.forward import CHUNK
from lens_heads.runs import checks


@dataclass(frozen=True)
class Shape:
    """A model without its weights. `block_params`: of all blocks together, `params`: of everything."""

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    d_vocab: int
    d_mlp: int
    block_params: int
    params: int

    def flops(self, tokens: float, past: float = 0) -> tuple[float, float]:
        """Operations of a forward of `tokens` after `past` others: in products with the blocks' weights, and in attention."""
        keys = past + tokens  # Of a chunk; the mask hides some, but nobody skips them.
        return 2.0 * self.block_params * tokens, 4.0 * self.n_layers * self.n_heads * self.d_head * tokens * keys

    def cache_bytes(self, tokens: int, width: int) -> int:
        """Keys and values of so many tokens, of `width` bytes a number."""
        return 2 * self.n_layers * self.n_kv_heads * self.d_head * tokens * width

    def memory(self, tokens: int, width: int, kept: bool = False) -> float:
        """Bytes of a run over so many tokens: weights, keys and values, and one chunk's widest layer.

        `kept`: also the residual streams of an unablated run, and the keys and values of one more.
        """
        chunk = CHUNK * (4 * self.d_mlp + 4 * self.n_heads * self.d_head) * width
        streams = self.n_layers * self.d_model * tokens * width + self.cache_bytes(tokens, width)
        return self.params * width + self.cache_bytes(tokens, width) + chunk + kept * streams


def shape_of(name: str, revision: str | None = None) -> Shape:
    """The shape of a model by name, folder or `.gguf` file, as `load_model` takes them, or of a configuration as JSON.

    ValueError or OSError for a configuration that cannot be read.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    with gguf_files.loading(name):
        if name.lstrip().startswith("{"):
            given = json.loads(name)
            config: Any = AutoConfig.for_model(given.pop("model_type"), **given)
        else:
            source = gguf_files.local_source(name)
            folder = gguf_files.converted(source) if source is not None and source.suffix == ".gguf" else source
            config = AutoConfig.from_pretrained(folder or name, revision=revision)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        text = config.get_text_config()
        layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
        n_heads = text.num_attention_heads
        return Shape(
            name=Path(name).name if not name.lstrip().startswith("{") else str(config.model_type),
            n_layers=len(layers),
            n_heads=n_heads,
            n_kv_heads=getattr(text, "num_key_value_heads", None) or n_heads,
            d_head=getattr(text, "head_dim", None) or text.hidden_size // n_heads,
            d_model=text.hidden_size,
            d_vocab=text.vocab_size,
            d_mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            block_params=sum(each.numel() for each in layers.parameters() if each.ndim > 1),
            params=sum(each.numel() for each in model.parameters()),
        )


@dataclass(frozen=True)
class Machine:
    """What one device does: operations per second in products and in attention, bytes per second, `width` bytes per number.

    `start`: memory that a process takes before it holds a model, bytes.
    """

    name: str
    products: float
    attention: float
    bandwidth: float
    width: int
    start: float = 0.0

    def seconds(self, shape: Shape, tokens: float, past: int = 0) -> float:
        """A forward of `tokens` after `past` others, in chunks."""
        spent, begin = 0.0, 0.0
        while begin < tokens:
            size = min(float(CHUNK), tokens - begin)
            products, attention = shape.flops(size, past + begin)
            read = shape.block_params * self.width / self.bandwidth
            spent += max(products / self.products, read)
            spent += max(attention / self.attention, shape.cache_bytes(int(past + begin), self.width) / self.bandwidth)
            begin += size
        return spent

    def unembedding(self, shape: Shape, rows: float) -> float:
        """The logits of so many rows at once."""
        size = shape.d_model * shape.d_vocab
        return max(2 * size * rows / self.products, size * self.width / self.bandwidth)


def _stated(name: str, peak: float, bandwidth: float) -> Machine:
    """A GPU by its data sheet (dense bfloat16), of which programs like this reach about these shares."""
    return Machine(name, 0.45 * peak, 0.3 * peak, 0.7 * bandwidth, 2, 1.5e9)


MACHINES: dict[str, Machine] = {
    "a100": _stated("A100 80GB", 312e12, 2.04e12),
    "h100": _stated("H100 SXM", 989e12, 3.35e12),
    "h200": _stated("H200 SXM", 989e12, 4.8e12),
    "b200": _stated("B200", 2250e12, 8.0e12),
}
"""Other machines, by their makers' numbers."""


def this_machine(shape: Shape, dtype: torch.dtype, device: str = "cpu") -> Machine:
    """Rates measured here, on products and attention of this model's sizes. Takes a few seconds."""

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(size, dtype=dtype, device=device)

    x, up = drawn(CHUNK, shape.d_model), drawn(shape.d_model, shape.d_mlp)
    q, kv = drawn(1, shape.n_heads, CHUNK, shape.d_head), drawn(1, shape.n_heads, 4 * CHUNK, shape.d_head)
    row, weights = drawn(1, shape.d_model), drawn(shape.d_model, 32 * shape.d_mlp)
    attend = nn.functional.scaled_dot_product_attention
    products = 2 * x.numel() * shape.d_mlp / _time(lambda: x @ up)
    attention = 4 * q.numel() * kv.shape[2] / _time(lambda: attend(q, kv, kv))
    bandwidth = weights.nbytes / _time(lambda: row @ weights)
    return Machine("this machine", products, attention, bandwidth, x.element_size(), 0.6e9)


@dataclass(frozen=True)
class Job:
    """What a call does on one trial: plain forwards of its prompt, and seconds and bytes on one device."""

    name: str
    forwards: float
    seconds: float
    memory: float


@dataclass(frozen=True)
class Sizes:
    """What is asked: tokens of the prompt, of the gold answer, and generated; sets of `k` heads ablated; masks of as many."""

    context: int
    answer: int = 6
    new_tokens: int = 50
    sets: int = 60
    k: int = 5
    masks: int = 200

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checks.whole_number(name, value)


def jobs(shape: Shape, machine: Machine, sizes: Sizes) -> list[Job]:
    """What the usual calls cost per trial.

    An ablated run starts at its lowest ablated layer: of k heads drawn from all, it runs k / (k + 1) of the layers. A patched
    head runs half of them. Of a pair's runs only what follows their first difference is run twice; here all is.
    """
    n, m, width, heads = sizes.context, sizes.answer, machine.width, shape.n_layers * shape.n_heads
    plain = machine.seconds(shape, n)
    rows = machine.seconds(shape, m, n)
    above = sizes.k / (sizes.k + 1)
    token = machine.seconds(shape, 1, n) + machine.unembedding(shape, 1)
    decoded = sizes.new_tokens * token + machine.seconds(shape, sizes.new_tokens, n)
    answered = machine.unembedding(shape, m)
    variants = CHUNK / m  # Of patched heads, in one forward.
    patched = heads / variants * (machine.seconds(shape, CHUNK, n) / 2 + machine.unembedding(shape, CHUNK))
    lean, kept = shape.memory(n + sizes.new_tokens, width), shape.memory(n, width, kept=True)
    ablated = [("ablate sets of heads", sizes.sets), ("localize by masks", sizes.masks)]
    return [
        Job("score, gold answers", 1, plain + 2 * rows, lean),
        Job("score, decoding", 1, plain + decoded, lean),
        *[
            Job(name, 1 + runs * above, plain + runs * (above * (plain + rows) + answered), kept)
            for name, runs in ablated
        ],
        Job("patch every head, answer rows", 2 + heads * m / n / 2, 2 * plain + patched, kept),
        Job("patch every head, all positions", 2 + heads / 2, 2 * plain + heads * (plain / 2 + answered), kept),
    ]


@torch.no_grad()
def _time(work: Callable[[], Any]) -> float:
    """The median seconds of one call."""
    work()
    threads = torch.get_num_threads()
    return Timer("work()", globals={"work": work}, num_threads=threads).blocked_autorange(min_run_time=0.5).median
