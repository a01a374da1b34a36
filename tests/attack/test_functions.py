"""A user's own function is known by all it does and reads, or refused for a run folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

import lens_heads as lh
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.runs.code import code_of
from lens_heads.runs.references import is_library
from tests import zoo
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

READ: dict[str, tuple[str, str]] = {
    "a constant": ("", "x + {v}"),
    "a number": ("T = {v}", "x + T"),
    "a text": ("T = 'a' * {v}", "x + len(T)"),
    "a list": ("T = [0] * 900 + [{v}]", "x + T[-1]"),
    "a dictionary": ("T = dict(a=1, b=[{v}])", "x + T['b'][0]"),
    "a set of texts": ("T = set('a b c d e f'.split()) | set(['g' * {v}])", "x + len(T)"),
    "a set of sets": ("T = {frozenset({c, 'g' * {v}}) for c in 'abcdef'}", "x + len(T)"),
    "a set in the code": ("", "str(x) in {'a', 'b', 'c', 'd', 'g' * {v}}"),
    "keys of many kinds": ("T = {(1, 'a'): 2, frozenset('abcd'): 3, None: {v}}", "x + T[None]"),
    "an element of an array": ("import numpy as np\nT = np.zeros(5000)\nT[2500] = {v}", "x + T[2500]"),
    "the dtype of an array": ("import numpy as np\nT = np.zeros(4, dtype=['f2', 'f4', 'f8'][{v}])", "x + T[0]"),
    "an array of objects": ("import numpy as np\nT = np.array(['a', 'b' * {v}], dtype=object)", "x + len(T[1])"),
    "an element of a tensor": ("import torch\nT = torch.zeros(5000)\nT[2500] = {v}", "x + T[2500]"),
    "a view of a tensor": ("import torch\nT = torch.arange(9.0).reshape(3, 3).T[{v}]", "x + T[0]"),
    "a bfloat16 tensor": ("import torch\nT = torch.full((3,), {v}).bfloat16()", "x + T[0]"),
    "a function's code": ("def h(x):\n    return x + {v}", "h(x)"),
    "a function's default": ("def h(x, y={v}):\n    return x + y", "h(x)"),
    "a function's keyword": ("def h(x, *, y={v}):\n    return x + y", "h(x)"),
    "a function's function": ("def g(x):\n    return x + {v}\ndef h(x):\n    return g(x)", "h(x)"),
    "a function's global": ("T = {v}\ndef h(x):\n    return x + T", "h(x)"),
    "a function's closure": ("def make(t):\n    return lambda x: x + t\nh = make({v})", "h(x)"),
    "a function's attribute": ("def h(x):\n    return x + h.t\nh.t = {v}", "h(x)"),
    "a cached function": ("import functools\n@functools.cache\ndef h(x):\n    return x + {v}", "h(x)"),
    "a wrapped function": ("import torch\n@torch.no_grad()\ndef h(x):\n    return x + {v}", "h(x)"),
    "a wrapper": (
        "import functools\ndef wrap(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x) * {v}\n    return g\n"
        "@wrap\ndef h(x):\n    return x",
        "h(x)",
    ),
    "a partial": ("from functools import partial\nh = partial(pow, {v})", "h(x)"),
    "a class's attribute": ("class C:\n    t = {v}", "x + C.t"),
    "a class's method": ("class C:\n    def m(self, x):\n        return x + {v}", "C().m(x)"),
    "a class's property": ("class C:\n    @property\n    def t(self):\n        return {v}", "x + C().t"),
    "a static method": ("class C:\n    @staticmethod\n    def m(x):\n        return x + {v}", "C.m(x)"),
    "a cached property": (
        "import functools\nclass C:\n    @functools.cached_property\n    def t(self):\n        return {v}",
        "x + C().t",
    ),
    "a base class": ("class B:\n    t = {v}\nclass C(B):\n    pass", "x + C.t"),
    "an object": ("class C:\n    pass\nT = C()\nT.t = {v}", "x + T.t"),
    "an object with slots": ("class C:\n    __slots__ = ('t',)\nT = C()\nT.t = {v}", "x + T.t"),
    "a bound method": (
        "class C:\n    def __init__(self, t):\n        self.t = t\n    def m(self, x):\n        return x + self.t\nh = C({v}).m",
        "h(x)",
    ),
    "a bound builtin": ("h = [7, 8, 9, {v}].index", "h(x)"),
    "a data class": ("from dataclasses import dataclass\n@dataclass\nclass C:\n    t: int = 0\nT = C({v})", "x + T.t"),
    "a named tuple": ("from collections import namedtuple\nC = namedtuple('C', 't')\nT = C({v})", "x + T.t"),
    "an enumeration": ("import enum\nclass E(enum.Enum):\n    a = {v}", "x + E.a.value"),
    "a member": ("import enum\nclass E(enum.Enum):\n    a = {v}\nT = E.a", "x + T.value"),
    "a pattern": ("import re\nT = re.compile('a' * {v})", "bool(T.match(x))"),
    "a path": ("from pathlib import Path\nT = Path('a' * {v})", "x + len(T.name)"),
    "a random state": ("import random\nT = random.Random({v})", "x + T.random()"),
    "a data frame": ("import pandas as pd\nT = pd.DataFrame(dict(a=[1, {v}]))", "x + T['a'][1]"),
    "a network": ("import torch\nT = torch.nn.Linear(2, 2)\ntorch.nn.init.constant_(T.weight, {v})\n"
                  "torch.nn.init.zeros_(T.bias)", "T(x)"),
    "an own part of a network": (
        "import torch\nclass N(torch.nn.Module):\n    def forward(self, x):\n        return x * {v}\n"
        "T = torch.nn.Sequential(N())",
        "T(x)",
    ),
    "a network's setting": ("import torch\nT = torch.nn.LeakyReLU({v})", "T(x)"),
    "an own network": (
        "import torch\nclass N(torch.nn.Module):\n    def forward(self, x):\n        return x * {v}\nT = N()",
        "T(x)",
    ),
    "an own module": ("import types\nconfig = types.ModuleType('config')\nconfig.t = {v}", "x + config.t"),
    "a module in a module": (
        "import types\na = types.ModuleType('a')\na.b = types.ModuleType('b')\na.b.t = {v}",
        "x + a.b.t",
    ),
}  # fmt: skip
"""What is read: a text that makes it, and one that reads it. `{v}` is what changes."""

KINDS = {
    "function": "def f(x):\n    return {e}",
    "lambda": "f = lambda x: {e}",
    "inner": "def f(x):\n    return [(lambda: {e})() for _ in range(2)][0]",
    "method": "class M:\n    def m(self, x):\n        return {e}\nf = M().m",
    "object": "class M:\n    def __call__(self, x):\n        return {e}\nf = M()",
    "partial": "import functools\ndef take(x, y):\n    return {e}\nf = functools.partial(take, y=1)",
    "decorated": "import torch\n@torch.no_grad()\ndef f(x):\n    return {e}",
}

FORMS = {
    "default": "def f(x, y={v}):\n    return x + y",
    "keyword": "def f(x, *, y={v}):\n    return x + y",
    "closure": "def make(t):\n    def f(x):\n        return x + t\n    return f\nf = make({v})",
    "closed over array": "import numpy as np\ndef make(t):\n    return lambda x: x + t[2500]\n"
    "t = np.zeros(5000)\nt[2500] = {v}\nf = make(t)",
    "attribute": "def f(x):\n    return x + f.t\nf.t = {v}",
    "argument of a partial": "import functools\nf = functools.partial(pow, {v})",
    "keyword of a partial": "import functools\nf = functools.partial(pow, exp={v})",
    "tensor in a partial": "import functools, torch\nt = torch.zeros(5000)\nt[2500] = {v}\nf = functools.partial(torch.add, t)",
    "partial of a partial": "import functools\nf = functools.partial(functools.partial(pow, {v}), 2)",
    "object": "class M:\n    def __init__(self, t):\n        self.t = t\n"
    "    def __call__(self, x):\n        return x + self.t\nf = M({v})",
    "class": "class M:\n    t = {v}\n    def __call__(self, x):\n        return x + self.t\nf = M()",
    "class method": "class M:\n    t = {v}\n    @classmethod\n    def m(cls, x):\n        return x + cls.t\nf = M.m",
    "inherited": "class B:\n    def __call__(self, x):\n        return x + {v}\nclass M(B):\n    pass\nf = M()",
    "one of two lambdas in a line": "f, g = [(lambda x: x, lambda x: -x), (lambda x: -x, lambda x: x)][{v} - 1]",
    "recursion": "def f(x):\n    return f(x - 1) if x else {v}",
    "mutual recursion": "def f(x):\n    return g(x - 1) if x else 0\ndef g(x):\n    return f(x - 1) if x else {v}",
    "circle": "T = [{v}]\nT.append(T)\ndef f(x):\n    return x + T[0]",
    "object that knows itself": "class M:\n    def __call__(self, x):\n        return x\nf = M()\nf.me = f\nf.t = {v}",
    "network": "import torch\nf = torch.nn.Linear(2, 2)\ntorch.nn.init.constant_(f.weight, {v})\ntorch.nn.init.zeros_(f.bias)",
    "operator": "import operator\nf = operator.itemgetter({v})",
    "compiled": "import torch\n@torch.compile\ndef f(x):\n    return x + {v}",
    "generator function": "def f(x):\n    yield x + {v}",
    "wrapped twice": "import torch\n@torch.no_grad()\n@torch.enable_grad()\ndef f(x):\n    return x + {v}",
}  # fmt: skip

OFTEN = ("a constant", "an element of a tensor", "a function's global", "an own module")
"""What every kind of function is tried with; plain functions read everything."""
TEXTS = {
    f"{thing}, {kind}": f"{made}\n{KINDS[kind].replace('{e}', read)}"
    for thing, (made, read) in READ.items()
    for kind in (KINDS if thing in OFTEN else ["function"])
}
TEXTS |= FORMS


def made(text: str, value: int = 1) -> Any:
    """The function `f` of a program in which `{v}` has this value."""
    sys.modules["mine"] = module = ModuleType("mine")  # Known by its name, as what a file holds is.
    exec(compile(text.replace("{v}", str(value)), "mine.py", "exec"), vars(module))
    return module.f


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_function_that_does_or_reads_something_else_is_another_one(name: str) -> None:
    one, again, other = (code_of(made(TEXTS[name], value)) for value in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.slow
def test_functions_are_the_same_in_every_process() -> None:
    program = (
        "import json; from tests.attack.test_functions import *;"
        "print(json.dumps({n: code_of(made(t)) for n, t in TEXTS.items()}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout) == {name: code_of(made(text)) for name, text in TEXTS.items()}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("def f(x):\n    return x", "def f(x):  # a comment\n\n    return x", id="a comment"),
        pytest.param(
            "T = 1\ndef f(x):\n    return x", "T = 2\ndef f(x):\n    return x", id="a global that is not read"
        ),
        pytest.param("def f(x):\n    return x", "def g(x):\n    pass\ndef f(x):\n    return x", id="another function"),
        pytest.param(
            "T = dict(a=1, b=2)\ndef f(x):\n    return T",
            "T = dict(b=2, a=1)\ndef f(x):\n    return T",
            id="order of keys",
        ),
        pytest.param("T = {'a', 'b'}\nf = lambda x: T", "T = {'b', 'a'}\nf = lambda x: T", id="order of a set"),
        pytest.param(
            "import numpy as np\nT = np.ones((2, 2))\nf = lambda x: T",
            "import numpy as np\nT = np.ones((4, 4))[::2, ::2]\nf = lambda x: T",
            id="strides",
        ),
    ],
)
def test_what_changes_nothing_leaves_the_same_function(one: str, other: str) -> None:
    assert code_of(made(one)) == code_of(made(other))


UNKNOWN = {
    "an open file": ("import os\nT = os.fdopen(os.dup(2), 'w')\ndef f(x):\n    return T", "T (a value of type TextIOWrapper)"),
    "a lock": ("import threading\nT = threading.Lock()\ndef f(x):\n    return T", "T (a value of type lock)"),
    "a generator": ("T = (i for i in [1])\ndef f(x):\n    return T", "T (a value of type generator)"),
    "a lock in an object": (
        "import threading\nclass M:\n    def __init__(self):\n        self.t = threading.Lock()\n"
        "    def __call__(self, x):\n        return x\nf = M()",
        "a value of type lock",
    ),
    "a weak reference": (
        "import weakref\nclass C:\n    pass\nc = C()\nT = weakref.ref(c)\ndef f(x):\n    return T",
        "T (a value of type",
    ),
    "open": ("def f(x):\n    return open('x').read()", "f reads what open gives"),
    "a function that opens": ("def g():\n    return open('x').read()\ndef f(x):\n    return g()", "f reads what open gives"),
    "eval": ("def f(x):\n    return eval('T')", "f reads what eval gives"),
    "exec": ("def f(x):\n    exec('y = 1')", "f reads what exec gives"),
    "globals": ("def f(x):\n    return globals()['T']", "f reads what globals gives"),
    "input": ("def f(x):\n    return input()", "f reads what input gives"),
    "an inner input": ("def f(x):\n    return [input() for _ in x]", "f reads what input gives"),
    "the environment": ("import os\ndef f(x):\n    return os.environ['T']", "f reads what environ gives"),
    "getenv": ("import os\ndef f(x):\n    return os.getenv('T')", "f reads what getenv gives"),
    "a file's text": ("from pathlib import Path\nf = lambda x: Path('x').read_text()", "<lambda> reads what read_text gives"),
    "a relative import": ("def f(x):\n    from . import y\n    return y", "f reads what a relative import gives"),
    "a relative import of a known name": ("def f(x):\n    from .random import y\n    return y", "what a relative import gives"),
    "a missing module": ("def f(x):\n    import no_such_module_1\n    return no_such_module_1.x", "the module no_such_module_1"),
    "a deep list": ("T = []\nfor _ in range(99999):\n    T = [T]\ndef f(x):\n    return T", "something nested too deeply"),
    "an object that raises": (
        "class C:\n    def __getattribute__(self, name):\n        raise KeyError(name)\nT = C()\ndef f(x):\n    return T",
        "T (a value of type C)",
    ),
    "a meta tensor": ("import torch\nT = torch.zeros(3, device='meta')\ndef f(x):\n    return T", "T (a value of type Tensor)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_identified_is_refused_with_the_remedy(name: str) -> None:
    text, says = UNKNOWN[name]
    refused(lambda: code_of(made(text)), says)
    refused(lambda: code_of(made(text)), "omit out=, or pass what it needs as numbers, text, arrays or tensors")


TRIAL = random_trial(n=12)
WEIGHTS = torch.ones(4)
HANDLE = (i for i in range(1))


def weighted(view: Any) -> torch.Tensor:
    return view.pattern.sum((-1, -2)) * WEIGHTS


def scaled(logits: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    return logits[:, 0, 0] * WEIGHTS[2]


def unknown(logits: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    return logits[:, 0, 0] + (0 if HANDLE is None else 1)


def unknown_score(view: Any) -> torch.Tensor:
    return weighted(view) if HANDLE else WEIGHTS


def patch(out: Path | None, metric: Any) -> Any:
    return lh.patch_heads(tiny("gpt2"), TRIAL, metric=metric, out=out, progress=False)


def score(out: Path | None, function: Any) -> Any:
    return lh.score_heads(tiny("gpt2"), TRIAL, Scorer("mine", function), teacher_forced=True, out=out, progress=False)


def test_use_leaves_the_same_function() -> None:
    """What an object caches while it is used is not part of it."""
    made_of = "import pandas as pd\nT = pd.DataFrame(dict(a=[1, 2]))\n"
    text = made_of + "def f(x):\n    return T['a'].loc[1], T.a.mean(), T.index.is_unique"
    function = made(text)
    before = code_of(function)
    function(0)
    assert code_of(function) == before
    model = tiny("gpt2")
    before = code_of(lambda x: model(x))
    model(TRIAL.tokens[None])
    assert code_of(lambda x: model(x)) == before


USES = {
    "a tokenizer": ("from tests import zoo\nT = zoo.tokenizer()", "T(['a', 'bc'], padding=True, truncation=True, max_length=x)"),
    "a function of random": ("from random import choice as T", "T([x])"),
    "a function of numpy's random": ("from numpy.random import rand as T", "T(x)"),
    "a distribution of scipy": ("from scipy.stats import norm as T", "T.rvs(x)"),
    "an empty object with a cached property": (
        "import functools\nclass C:\n    @functools.cached_property\n    def t(self):\n        return 1\nT = C()",
        "T.t + x",
    ),
    "a compiled function": ("import torch\nT = torch.compile(lambda x: x, backend='eager')", "T(x)"),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_use_leaves_the_same_function_of(name: str) -> None:
    make, read = USES[name]
    function = made(f"{make}\ndef f(x):\n    return {read}")
    before = code_of(function)
    function(3)
    assert code_of(function) == before


def test_a_tokenizer_is_the_same_wherever_it_was_loaded_from(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        zoo.tokenizer().save_pretrained(tmp_path / folder)
    one, other = (AutoTokenizer.from_pretrained(tmp_path / folder) for folder in ("one", "other"))
    assert code_of(lambda x: one(x)) == code_of(lambda x: one(x))
    assert code_of(one) == code_of(other)
    other.add_tokens(["more"])
    assert code_of(one) != code_of(other)


def test_packages_are_known_by_name_wherever_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the system and of the user too; a notebook's own functions are never a package's."""
    for folder, installed in {
        "/usr/lib/python3/dist-packages": True,
        "/home/me/.local/lib/site-packages": True,
        "/me": False,
    }.items():
        monkeypatch.setitem(sys.modules, "theirs", module := ModuleType("theirs"))
        module.__file__ = f"{folder}/theirs.py"
        function = made("def f(x):\n    return x")
        function.__module__, module.f = "theirs", function  # type: ignore[attr-defined]
        assert is_library(function) == installed
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", f"{sysconfig.get_path('purelib')}/ipykernel_launcher.py", raising=False)
    function.__module__ = "__main__"
    monkeypatch.setattr(main, "f", function, raising=False)
    assert not is_library(function)


@pytest.mark.parametrize(("run", "function"), [(patch, scaled), (score, weighted)], ids=["metric", "scorer"])
def test_a_run_is_not_continued_with_another_function(
    run: Any, function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", function)
    run(tmp_path / "run", function)
    monkeypatch.setattr(sys.modules[__name__], "WEIGHTS", torch.tensor([1.0, 1, 3, 1]))
    refused(lambda: run(tmp_path / "run", function), "different settings", tiny("gpt2"))


@pytest.mark.parametrize(("run", "function"), [(patch, unknown), (score, unknown_score)], ids=["metric", "scorer"])
def test_what_cannot_be_identified_runs_without_a_folder_only(run: Any, function: Any, tmp_path: Path) -> None:
    assert run(None, function)
    refused(lambda: run(tmp_path / "run", function), "HANDLE (a value of type generator)", tiny("gpt2"))
    assert not (tmp_path / "run").exists()
