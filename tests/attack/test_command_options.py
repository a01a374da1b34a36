"""Every option of every command, each with every malformed value that its type, its bounds or its names exclude.

Options are read from the commands' own signatures, so that a new one has its cases at once; what those cannot know, such as
bounds, stands in the tables here. What a value alone shows is refused before a model is read, and nothing changes on the disk.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
import typer
from typer.models import OptionInfo

from lens_heads.cli.main import app
from lens_heads.inspection.explorer.stored import store
from lens_heads.runs.store import RunFolder
from tests.attack.calls import TRIALS, M, scores
from tests.attack.test_command_line import is_one_line
from tests.commands import model_folder, run, score_file

HEAVY = (
    "lens_heads.model.load.load_local",
    "lens_heads.model.load.boot_bridge",
    "lens_heads.model.load._boot_hooked",
    "lens_heads.cli.plan.show",
    "lens_heads.studies.ranking_methods.study.planted_quality",
)
"""Where a model is read, and what takes as long: nobody gets here with a value that shows by itself that it is wrong."""

BASE: dict[str, str] = {
    "score": "-m MODEL -w n=2 -o OUT",
    "rank": "-m MODEL -w n=3 -o OUT",
    "methods": "",
    "check": "MODEL",
    "tasks": "",
    "heads": "SCORES",
    "demo": "-m MODEL -o OUT",
    "ablate": "-m MODEL -s SCORES -t arithmetic -w n=2 --calibrate arithmetic --calibrate-with n=2 -o OUT",
    "bench": "-m MODEL -t arithmetic -o OUT",
    "patch": "-m MODEL -w n=2 -o OUT",
    "prune": "NEW -m MODEL --heads L0H1",
    "localize": "-m MODEL -t arithmetic -w n=2 -o OUT",
    "describe": "MODEL",
    "explore": "STORED --to PAGE",
    "why": "-m MODEL --prompt PROMPT -o OUT",
    "study locos": "-m MODEL -o OUT",
    "study choosing": "-m MODEL -o OUT",
    "study fragile-tasks": "-m MODEL -o OUT",
    "study capability": "-m MODEL -o OUT",
}
"""A call of every command that goes through, up to where a model is read. OUT holds a run already."""
BESIDE: dict[str, str] = {
    "heads --form": "SCORES --save PAGE",
    "prune --scores": "NEW -m MODEL",
    "prune -k": "NEW -m MODEL --scores SCORES",
    "study capability --words": "-m MODEL -o OUT --preset paper --capability swearing",
}
"""In place of `BASE`, for options that go with others."""
SHARED = (
    "score",
    "rank",
    "demo",
    "ablate",
    "bench",
    "patch",
    "localize",
    "study locos",
    "study choosing",
    "study fragile-tasks",
    "study capability",
)
BESIDE |= {f"{command} --gpus-per-worker": f"{BASE[command]} --workers 1" for command in SHARED}

INT = ("x", "", " ", "1.5", "NaN", "inf", "1e3", "0x10", "-1", "0", "99999999999999999999")
FLOAT = ("x", "", " ", "NaN", "inf", "-inf", "1e400", "-1", "0")
NAME = ("", " ", "zz", "Ω", ",", "0", "\udcff", "a,,b", "x" * 300, "[red]x[/]", "\x1b[31mx")
FROM = ("", " ", "MISSING/at/all", "EMPTY", "BLANK", "BINARY", "NULL", "LIST", "CUT", "FILE", "LINK", "/dev/null")
FOLDER = ("", " ", "FILE", "FILE/below/it", "/proc/nothing", "LINK", "\udcff", "x" * 300)
TO = ("", " ", "FILE/below", "/proc/nothing", "OTHERS")
VALUES: dict[Any, tuple[str, ...]] = {int: INT, float: FLOAT, bool: ("x",), str: NAME, Path: FROM}
WRITTEN: dict[str, tuple[str, ...]] = {
    "out": FOLDER,
    "prune TO": (*FOLDER, "OTHERS"),
    "heads --save": TO,
    "explore --to": TO,
    **{
        f"{command} --out": (*FOLDER, "OTHERS", "DAMAGED")
        for command in ("score", "rank", "ablate", "patch", "localize")
    },
}
"""Places that are written; every other path is read."""

ANY_NAME = tuple(name for name in NAME if name.strip() and name != "\udcff")
HUB = tuple(name for name in ANY_NAME if len(name) < 100)
FINE: dict[str, tuple[str, ...]] = {
    "top": ("0", "99999999999999999999"),
    "bottom": ("0", "99999999999999999999"),
    "model": HUB,
    "ablate --draws": ("0",),
    "ablate --seed": ("0",),
    "patch --ig-steps": ("0",),
    "score --null-spans": ("0",),
    "rank --seed": ("0",),
    "rank --calibrate": ("0",),
    "rank --max-new-tokens": ("0",),
    "localize --seed": ("0",),
    "localize --max-new-tokens": ("0",),
    "describe --text": ("NULL", "LIST", "CUT", "FILE"),
    "study capability --words": ("NULL", "LIST", "CUT", "FILE"),
    "heads --method": ("locos",),
    "why --prompt": ANY_NAME,
    "why --answer": ANY_NAME,
}
"""What is right, though not for every option: bounds that are wider, texts that are free, and names that only the hub knows."""

CALLED = {
    "calibrate": "task",
    "specificity": "task",
    "gpus_per_worker": "num_gpus",
    "tuned_lens": "safetensors",
    "model": "name",
    "prune TO": "path",
}
"""How errors call an option that they name otherwise."""
SAID = {"NaN": "nan", "1e400": "inf"}


class LoadedError(BaseException):
    """A model is read, or the long work before it begins. No error that a command could catch."""


@dataclass(frozen=True)
class Option:
    """An option of a command, or an argument, which has no flags."""

    command: str
    name: str
    flags: tuple[str, ...]
    kind: type
    several: bool

    def __str__(self) -> str:
        long = [flag for flag in self.flags if flag.startswith("--")]
        return f"{self.command} {[*long, *self.flags, self.name.upper()][0]}"

    def of(self, table: dict[str, Any], default: Any) -> Any:
        """What a table says about it, or about all options of its name."""
        return table.get(str(self), table.get(self.name, default))

    @property
    def values(self) -> list[str]:
        """What it may not be."""
        given = self.of(WRITTEN, VALUES[self.kind])
        return [value for value in given if value not in self.of(FINE, ())]

    def words(self, *values: str) -> list[str]:
        """The command with these values of it."""
        base = BESIDE.get(str(self), BASE[self.command]).split()
        if not self.flags:
            return [*self.command.split(), *values, *base[1:]]
        if not self.several:
            for flag in self.flags:
                if flag in base:
                    del base[base.index(flag) : base.index(flag) + 2]
        flag = self.flags[0]
        return [
            *self.command.split(),
            *base,
            *(f"{flag}={each}" if flag[:2] == "--" else f"{flag}{each}" for each in values),
        ]


def commands(of: typer.Typer = app, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command by its name."""
    for each in of.registered_commands:
        assert each.callback is not None
        yield f"{prefix}{each.name or each.callback.__name__}", each.callback
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{prefix}{group.name} ")


def options() -> list[Option]:
    """Every option of every command."""
    found = []
    for command, function in commands():
        hints = typing.get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints[name] if isinstance(parameter.annotation, str) else parameter.annotation
            kind, info = typing.get_args(hint)[:2]
            if isinstance(kind, types.UnionType):
                kind = next(each for each in typing.get_args(kind) if each is not types.NoneType)
            several = typing.get_origin(kind) is list
            found.append(
                Option(command, name, _flags(name, info), typing.get_args(kind)[0] if several else kind, several)
            )
    return found


def _flags(name: str, info: Any) -> tuple[str, ...]:
    """What an option is called; nothing for an argument."""
    if not isinstance(info, OptionInfo):
        return ()
    given = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    return tuple(given or [f"--{name.replace('_', '-')}"])


OPTIONS = options()
BUILT = functools.cache(typer.main.get_command)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("places")
    for name, content in {
        "file": b"x",
        "null.json": b"null",
        "list.json": b"[1, 2]",
        "cut.json": b'{"meta": {"method": "locos"}, "scores": {"0-0": [1.0, ',
        "blank": b"",
        "lens.safetensors": b"no lens",
        "binary.json": bytes(range(256)) * 4,
    }.items():
        (root / name).write_bytes(content)
    for name in ("empty", "others", "damaged"):
        (root / name).mkdir()
    (root / "others" / "mine.txt").write_text("mine")
    (root / "damaged" / "run.json").write_text('{"settings": {}, ')
    (root / "link").symlink_to(root / "leads nowhere")
    RunFolder(root / "out", {"mine": 1}).score_file("locos").write_text("{}")
    store(root / "stored" / "explorer", M(), TRIALS[:1], scores())
    made = {"MODEL": model_folder(root / "model"), "SCORES": score_file(root / "scores" / "locos.json")}
    made |= {name.partition(".")[0].upper(): root / name for name in ("file", "null.json", "list.json", "cut.json")}
    made |= {
        name.partition(".")[0].upper(): root / name for name in ("blank", "binary.json", "empty", "others", "damaged")
    }
    made |= {name.upper(): root / name for name in ("link", "out", "stored", "new", "missing")}
    made |= {"LENS": root / "lens.safetensors", "CONTROL": score_file(root / "scores" / "random.json", "random")}
    made["COLUMN"] = score_file(root / "scores" / "sink.json", "sink")
    made["PAGE"] = tmp_path_factory.mktemp("pages") / "page"
    return {**{name: str(path) for name, path in made.items()}, "PROMPT": "The sea is grey", "ROOT": str(root)}


Ended = Callable[[list[str]], tuple[Any, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], places: dict[str, str]) -> Ended:
    """Runs a command without the network; gives its exit code, or "loaded" where a model is read, and what it wrote to stderr."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("LENS_HEADS_DEBUG", raising=False)
    monkeypatch.chdir(places["ROOT"])
    transformers.utils.logging.disable_progress_bar()

    def load(*_: object, **__: object) -> None:
        raise LoadedError

    monkeypatch.setattr("typer.main.get_command", BUILT)  # Which takes longer than most commands.
    for where in HEAVY:
        monkeypatch.setattr(where, load)

    def ended(words: list[str]) -> tuple[Any, str]:
        try:
            code: Any = run(*words, monkeypatch=monkeypatch)
        except LoadedError:
            code = "loaded"
        return code, capsys.readouterr().err

    return ended


def filled(word: str, places: dict[str, str]) -> str:
    """A word, or its value, with the names of places replaced by where they are."""
    flag, equals, value = word.rpartition("=")
    first, slash, rest = value.partition("/")
    return f"{flag}{equals}{places.get(first, first)}{slash}{rest}"


def snapshot(places: dict[str, str]) -> dict[str, Any]:
    """All that is on the disk."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in sorted(Path(places["ROOT"]).rglob("*"))
    }


def faults(option: Option, value: str, code: Any, said: str, places: dict[str, str]) -> list[str]:
    """What is wrong with how a value was refused."""
    if code != 2:
        return [f"ended with {code}"]
    written = filled(value, places)
    plain = said.replace("-", "_").lower()
    shown = {written, repr(written)[1:-1], SAID.get(value, written), written.replace("[", "\\["), written[:40]}
    flags = [flag.strip("-").replace("-", "_") for flag in option.flags]
    names = [option.name.strip("_"), option.of(CALLED, option.name), *flags]
    is_path = (option.kind is Path or option.name == "direction") and value.strip() and written in said
    found = [] if is_one_line(said) else ["is not one line"]
    found += [] if is_path or any(name in plain for name in names) else ["does not name the option"]
    found += [] if option.kind is bool or any(each in said for each in shown) else ["does not name the value"]
    return found + (["comes from elsewhere"] if "LENS_HEADS_DEBUG" in said or "Traceback" in said else [])


@pytest.mark.parametrize("name", BASE)
def test_every_command_goes_through_with_right_values(name: str, command: Ended, places: dict[str, str]) -> None:
    """Or else nothing of what follows would show anything."""
    code, said = command([filled(word, places) for word in [*name.split(), *BASE[name].split()]])
    assert code == (0 if name in ("tasks", "methods", "heads", "explore") else "loaded"), said


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_a_malformed_value_is_refused_before_a_model_is_read(
    option: Option, command: Ended, places: dict[str, str]
) -> None:
    before, wrong = snapshot(places), []
    for value in option.values:
        code, said = command([filled(word, places) for word in option.words(value)])
        wrong += [f"{value!r} {fault}: {said}" for fault in faults(option, value, code, said, places)]
        assert snapshot(places) == before, value
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.of(FINE, ())], ids=str)
def test_what_is_said_to_be_right_is_taken(option: Option, command: Ended, places: dict[str, str]) -> None:
    for value in option.of(FINE, ()):
        code, said = command([filled(word, places) for word in option.words(value)])
        assert code in (0, "loaded"), (value, said)


SINGLE = [option for option in OPTIONS if option.flags and not option.several and option.kind is not bool]


@pytest.mark.parametrize("option", SINGLE, ids=str)
def test_a_second_value_is_refused(option: Option, command: Ended, places: dict[str, str]) -> None:
    code, said = command([filled(word, places) for word in option.words("one", "two")])
    assert (code, is_one_line(said)) == (2, True), said
    assert option.flags[0] in said
    assert "'two' is its value number 2. Give one" in said


def test_the_table_is_complete_and_large() -> None:
    assert set(BASE) == {name for name, _ in commands()}
    assert {str(option) for option in OPTIONS} | {option.name for option in OPTIONS} >= {
        *FINE,
        *WRITTEN,
        *CALLED,
        *BESIDE,
    }
    assert sum(len(option.values) for option in OPTIONS) > 1500


ABLATE = "ablate -m MODEL -s SCORES -t arithmetic -w n=2"
LOCALIZE = "localize -m MODEL -t arithmetic -w n=2"
WHY = "why -m MODEL --prompt PROMPT"
TOGETHER: list[tuple[str, str]] = [
    ("score -m MODEL -w n=2 --methods locos,locos", "--methods: 'locos' is given twice"),
    ("score -m MODEL -w n=2 --methods locos,", "--methods 'locos,': there is an empty name"),
    ("score -m MODEL -w n=2 --methods ,", "--methods ',': there is an empty name"),
    ("score -m MODEL -w n=2 --methods qr", "qr reads documents"),
    ("score -m MODEL -t sec10k_documents --methods locos", "locos reads needles"),
    ("score -m MODEL -w n=2 -w n=2", "--with n= is given twice"),
    ("score -m MODEL -t arithmetic -w n=2", "has no needle, but head scores compare"),
    ("score -m MODEL -t sec10k_documents -w n=2 --teacher-forced", "--teacher-forced applies to trials with a needle"),
    ("score -m MODEL -t sec10k_documents -w n=2 --direction exact", "--direction applies to trials with a needle"),
    ("score -m MODEL -t sec10k_documents -w n=2 --null-spans 9", "--null-spans applies to trials with a needle"),
    ("score -m MODEL -w n=2 --direction none.safetensors", "no tuned lens at none.safetensors"),
    ("score -m MODEL -w n=2 --direction LENS", "lens.safetensors: not a safetensors file of a tuned lens"),
    ("score -m MODEL -w n=2 --shard 0/2", "--shard needs --out"),
    ("score -m MODEL -w n=2 --shard 5/4 -o NEW", "shard '5/4': use i/n with i from 0 to n - 1"),
    ("score -m MODEL -w n=2 --shard -1/4 -o NEW", "shard '-1/4': use i/n"),
    ("score -m MODEL -w n=2 --workers 1,cpu", "there is no device '1' here"),
    ("score -m MODEL -w n=2 --workers cpu,", "there is no device '' here"),
    ("score -m MODEL -w n=2 --gpus-per-worker 0.5", "--gpus-per-worker 0.5 needs --workers"),
    ("check MODEL --device cpu --device-map auto", "mutually exclusive"),
    ("check MODEL --device-map {}", "--device-map {}: use 'auto'"),
    ('check MODEL --device-map {"":0.5}', "--device-map {'': 0.5}: use 'auto'"),
    ("check MODEL --device-map [0]", "--device-map '[0]': use 'auto'"),
    ("check MODEL extra", "unexpected extra argument"),
    ("check MODEL --lens hooked", "--lens 'hooked' needs a name HookedTransformer knows"),
    ("tasks extra", "unexpected extra argument"),
    ("tasks --all", "No such option"),
    ("heads SCORES --form lists", "--form lists needs --save"),
    ("demo -m MODEL --quick --full", "--quick conflicts with --full"),
    ("demo -m MODEL -m MODEL -o OUT", "two models are called 'model'"),
    ("demo -m MODEL -m MISSING/at/all -o OUT", "missing/at/all"),
    (f"{ABLATE} --kind zero --calibrate arithmetic", "--calibrate arithmetic: zero ablation takes no means"),
    (f"{ABLATE} --kind zero --calibrate-with n=2", "--calibrate-with: zero ablation takes no means"),
    (f"{ABLATE} --calibrate-with n=2 --calibrate-with n=3", "--calibrate-with n= is given twice"),
    (f"{ABLATE} --kind scale", "--kind 'scale' needs factor="),
    (f"{ABLATE} --kind scale --option factor=x", "factor='x': must be a finite number"),
    (f"{ABLATE} --kind scale --option factor=NaN", "factor='NaN': must be a finite number"),
    (f"{ABLATE} --kind scale --option factor=true", "factor=True: must be a finite number"),
    (f"{ABLATE} --kind scale --option factor", "--option 'factor' is not of the form name=value"),
    (f"{ABLATE} --kind scale --option factor=1 --option factor=2", "--option factor= is given twice"),
    (f"{ABLATE} --kind streaming --option sink=-1", "sink=-1: must be a non-negative integer"),
    (f"{ABLATE} --kind chunks --option n_chunks=1.5", "n_chunks=1.5: must be an integer of at least 3"),
    (f"{ABLATE} --kind emphasise --option span=[5,2]", "span="),
    (f"{ABLATE} --kind zero --option factor=2", "--kind 'zero' has no option 'factor'"),
    (f"{ABLATE} --specificity arithmetic", "--task and --specificity: 'arithmetic' is given twice"),
    (f"{ABLATE} --specificity ioi --specificity ioi", "--task and --specificity: 'ioi' is given twice"),
    (f"{ABLATE} --specificity sec10k_documents", "task 'sec10k_documents' makes document trials"),
    (f"{ABLATE} --ks 1,", "--ks '1,': '' is not a positive integer"),
    (f"{ABLATE} --ks 1,99999999999", "'99999999999' is not an integer from 1 to 2147483647"),
    (f"{ABLATE} --draws 0 --verdict -3", "--verdict -3: must be a positive integer"),
    (f"{ABLATE} --draws -1 --verdict 3", "--draws -1: must be a non-negative integer"),
    (f"{ABLATE} -s CONTROL", "a ranking is called 'random', the name of a control"),
    (f"{ABLATE} --no-text --allow-code-execution", "no task of arithmetic runs generated code"),
    ("patch -m MODEL -t arithmetic -w n=2 --corruption remove", "has no needle to remove"),
    ("patch -m MODEL -w n=2 --corruption counterfactual", "has no counterfactual"),
    ("patch -m MODEL -t sec10k_documents", "task 'sec10k_documents' makes document trials"),
    (f"{LOCALIZE} --method greedy --estimator bic", "greedy uses no regression"),
    (f"{LOCALIZE} --method greedy --patience 3", "--patience 3: greedy draws no masks"),
    (f"{LOCALIZE} --metric choice", "metric 'choice' compares choices"),
    (f"{LOCALIZE} --metric correct --max-new-tokens 0", "--max-new-tokens 0: must be a positive integer"),
    (f"{LOCALIZE} --kind mean", "--kind='mean': use 'zero'"),
    (f"{LOCALIZE} --kind scale", "--kind='scale': "),
    (f"{LOCALIZE} --masks 3", "--masks 3: must be an integer of at least 5"),
    ("localize -m MODEL -t sec10k_documents", "task 'sec10k_documents' makes document trials"),
    ("prune NEW -m MODEL", "pass either --heads"),
    ("prune NEW -m MODEL --heads L0H1 --scores SCORES", "pass either --heads"),
    ("prune NEW -m MODEL --heads L0H1 -k 2", "-k 2 needs --scores"),
    ("prune NEW -m MODEL --heads L0H1,0-1", "--heads: 'L0H1' is given twice"),
    ("prune NEW -m MODEL --heads L0H1,", "--heads 'L0H1,': there is an empty name"),
    ("prune NEW -m MODEL --heads L0K1", "--heads 'L0K1': 'L0K1' is a kv head"),
    ("describe MODEL --heads L0H1,L-1H0", "cannot read 'L-1H0' as a head"),
    ("describe MODEL --scores SCORES --scores SCORES", "two rankings are called 'locos'"),
    ("describe MODEL --scores COLUMN", "scores 'sink': a card has a column of this name"),
    (f"{WHY} --answer x --needle lake", "the needle 'lake' occurs 0 times"),
    (f"{WHY} --question e", "the question 'e' occurs 3 times"),
    (f"{WHY} --kind resample", "--kind='resample': use 'mean', 'zero'"),
    ("bench -m MODEL -t arithmetic -t arithmetic", "--task: 'arithmetic' is given twice"),
    ("bench -m MODEL -t arithmetic -t ioi -w n=2", "arguments= belong to one task"),
    ("bench -m MODEL -t arithmetic -w digits=x", "digits='x'"),
    ("bench -m MODEL -t retrieval -w context_length=0", "context_length=0"),
    ("bench -m MODEL -t parametric", "task 'parametric' has no halves"),
    ("bench -m MODEL -t sec10k_documents", "makes document trials"),
    ("bench -m MODEL --methods locos,locos", "--methods: 'locos' is given twice"),
    ("bench -m MODEL -m MISSING/at/all", "missing/at/all"),
    ("bench -m MODEL --plan --dtype int8", "--dtype 'int8'"),
    ("study locos -m MODEL -m MISSING/at/all -o OUT", "missing/at/all"),
    ("study locos -m MODEL --plan --workers 0", "--workers 0"),
    ("study locos -m MODEL -o OUT --tuned-lens LENS", "lens.safetensors: not a safetensors file of a tuned lens"),
    ("study locos -m MODEL -m EMPTY -o OUT --tuned-lens LENS", "a tuned lens belongs to one model"),
    ("study fragile-tasks -m MODEL --preset paper", "--preset 'paper' needs real filings"),
    ("study fragile-tasks -m MODEL --quick --preset paper", "--quick conflicts with --preset paper"),
    ("study capability -m MODEL --quick --preset thorough", "--quick conflicts with --preset thorough"),
    (
        "study capability -m MODEL --capability arithmetic --capability arithmetic",
        "--capability: 'arithmetic' is given twice",
    ),
    ("study capability -m MODEL --allow-code-execution=yes", "--allow-code-execution=yes: omit the value"),
]
"""Words that are right one by one, and wrong together."""


@pytest.mark.parametrize(("words", "says"), TOGETHER, ids=[line[0] for line in TOGETHER])
def test_what_is_wrong_together_is_refused_before_a_model_is_read(
    words: str, says: str, command: Ended, places: dict[str, str]
) -> None:
    before = snapshot(places)
    code, said = command([filled(word, places) for word in words.split()])
    assert says in said, said
    assert (code, is_one_line(said)) == (2, True), said
    assert snapshot(places) == before
