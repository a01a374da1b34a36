"""How commands load their model and share their work: options that stand once here, for all commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from lens_heads.runs.reading import parse_json

TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run code that the model's folder or repository brings along (auto_map); read it first.",
    ),
]

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Loading:
    """The options of a command that loads a model."""

    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: a GPU if available).")] = None
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 where the device computes in it.")
    ] = "float32"
    lens: Annotated[str | None, typer.Option(help="TransformerLens class: bridge, or hooked (3.9 only).")] = None
    device_map: Annotated[
        str | None, typer.Option(help="Spread the model over GPUs: auto, or a map as JSON. Hub models and folders.")
    ] = None
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None
    prepend_bos: Annotated[
        bool | None,
        typer.Option(
            "--prepend-bos/--no-prepend-bos",
            help="Begin prompts with a BOS, or with none.",
            show_default="as the model's own tokenizer does",
        ),
    ] = None
    trust_remote_code: TrustCode = False
    linear_heads: Annotated[
        bool, typer.Option("--linear-heads", help="Show the heads of linear attention and Mamba-2 of a hybrid, too.")
    ] = False

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given, as `load_model` takes them."""
        spread = self.device_map
        given: dict[str, Any] = {
            "device": self.device,
            "dtype": self.dtype,
            "lens": self.lens,
            "revision": self.revision,
            "prepend_bos": self.prepend_bos,
        }
        given["device_map"] = parse_json(spread, "--device-map") if spread and spread[0] == "{" else spread
        given["trust_remote_code"] = self.trust_remote_code or None
        given["linear_heads"] = self.linear_heads or None
        return {name: value for name, value in given.items() if value is not None}

    def load(self, name: str) -> Any:
        """The model of this name."""
        from lens_heads.model.load import load_model

        return load_model(name, **self.options)

    def tokenizer(self, name: str) -> Any:
        """The tokenizer of the model of this name, without its weights."""
        from transformers import AutoTokenizer

        from lens_heads.model.foreign_code import foreign_code
        from lens_heads.model.gguf import converted, loading, local_source

        source = local_source(name)
        folder = converted(source) if source is not None and source.is_file() else source or name
        with foreign_code(self.trust_remote_code, name), loading(name):
            return AutoTokenizer.from_pretrained(
                folder, revision=self.revision or "main", trust_remote_code=self.trust_remote_code
            )


@dataclass(frozen=True)
class Sharing(Loading):
    """The options of a command whose work can be shared."""

    workers: Annotated[
        str | None,
        typer.Option(help="Processes that share the work: a number, cuda:0,cuda:1, ray://HOST:PORT or auto."),
    ] = None
    gpus_per_worker: Annotated[
        float | None, typer.Option(help="GPUs of each worker (default: 1); a share such as 0.5 is possible.")
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(help="Only part i of n (0/4), in one folder with the others; auto: as the scheduler says."),
    ] = None

    @contextmanager
    def model(self, name: str, out: Path | None) -> Iterator[Any]:
        """The model of this name, its workers and its part of the run."""
        from lens_heads.model.workers import worker_pool
        from lens_heads.runs.store import check_run_folder

        if out is not None:
            check_run_folder(out)
        with self.part(out):
            model = self.load(name)
            with worker_pool(model, self.workers, num_gpus=self.gpus_per_worker or 1):
                yield model

    @contextmanager
    def part(self, out: Path | None) -> Iterator[None]:
        """Inside, this process does its part of the run. ValueError for workers or a part that cannot be."""
        from lens_heads.model.worker_devices import check_workers
        from lens_heads.runs.parts import sharding

        if self.gpus_per_worker is not None and self.workers is None:
            raise ValueError(
                f"--gpus-per-worker {self.gpus_per_worker:g} needs --workers: omit it, or pass --workers auto"
            )
        check_workers(self.workers, 1 if self.gpus_per_worker is None else self.gpus_per_worker)
        if self.shard is not None and out is None:
            raise ValueError("--shard needs --out: the parts of a run meet in one folder")
        with sharding(self.shard):
            yield

    @property
    def all_options(self) -> dict[str, Any]:
        """The options as studies take them."""
        shared = {"workers": self.workers, "num_gpus": self.gpus_per_worker or 1}
        return self.options | (shared if self.workers is not None else {})


@dataclass(frozen=True)
class Planned(Sharing):
    """The options of a command whose work can be shared, and planned first."""

    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it takes on this machine (forwards, hours, memory), and stop.")
    ] = False


def loads(command: Command) -> Command:
    """A command whose parameter `loading`, a `Loading` or `Sharing`, becomes one option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    kind = hints["loading"]
    known = [field.name for field in fields(kind)]

    def call(**given: Any) -> Any:
        mine = {name: given.pop(name) for name in known}
        return command(**given, loading=kind(**mine))

    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "loading"
    ]
    types = get_type_hints(kind, include_extras=True)
    more = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in fields(kind)
    ]
    call.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]  # read by inspect, and so by typer
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *more]}
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    return call  # type: ignore[return-value]  # the same command, with its options spelled out
