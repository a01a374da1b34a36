"""Generated programs that claim to be right: a wrong one never passes, a right one always, and the judge refuses nonsense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lens_heads.tasks.code import humaneval, mbpp
from lens_heads.trials import confinement, sandbox
from lens_heads.trials.judges import PassesTests
from lens_heads.trials.sandbox import Outcome, run
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.attack.held import refused
from tests.sandboxed import DOUBLE, TESTS, needs_confinement

NODE = "class Node:\n    def __init__(self, value):\n        self.value = value\n    def __eq__(self, other):\n"
NODE += "        return self.value == other.value\n"
EQUAL = "    def __eq__(self, other):\n        return True\n    __hash__ = None\n"
WRONG = "def double(x):\n    return 0\n"
CALL = "def double(x):\n    "

FORGERIES = {
    "an object equal to everything": f"class All:\n{EQUAL}{CALL}return All()",
    "a number equal to everything": f"class All(int):\n{EQUAL}{CALL}return All(1)",
    "a text equal to everything": f"class All(str):\n{EQUAL}{CALL}return All()",
    "a list equal to everything": f"class All(list):\n{EQUAL}{CALL}return All()",
    "a tuple equal to everything": f"class All(tuple):\n{EQUAL}{CALL}return All()",
    "a dict equal to everything": f"class All(dict):\n{EQUAL}{CALL}return All()",
    "an object that pickles itself": f"class All:\n    def __reduce__(self):\n        return eval, ('1',)\n{CALL}return All()",
    "mock": f"from unittest.mock import ANY\n{CALL}return ANY",
    "a namespace": f"import types\n{CALL}return types.SimpleNamespace(__eq__=lambda s, o: True)",
    "a class": f"{CALL}return type('All', (), {{}})",
    "a function": f"{CALL}return double",
    "a module": f"import os\n{CALL}return os",
    "itself, without end": "x = []\nx.append(x)\ndef double(_):\n    return x",
    "items without end": f"import itertools\n{CALL}return itertools.count()",
    "not a number": f"{CALL}return float('nan')",
    "NotImplemented": f"{CALL}return NotImplemented",
    "leaving": "import sys\nsys.exit(0)",
    "leaving at once": "import os\nos._exit(0)",
    "leaving when called": f"import os\n{CALL}os._exit(0)",
    "leaving politely when called": f"{CALL}raise SystemExit(0)",
    "leaving at exit": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "an interrupt": f"{CALL}raise KeyboardInterrupt",
    "another program": "import os\nos.execv('/bin/true', ['true'])",
    "a signal to itself": "import signal\nsignal.raise_signal(signal.SIGKILL)",
    "a signal to all": f"import os\n{CALL}os.kill(-1, 9)",
    "its parent": f"import os\n{CALL}os.kill(os.getppid(), 9)",
    "a crash": f"import ctypes\n{CALL}return ctypes.string_at(0)",
    "the frames above": f"import sys\n{CALL}f = sys._getframe()\n    while f:\n"
    "        f.f_globals['test'] = f.f_globals['x'] = 8\n"
    "        f = f.f_back\n    return 0",
    "other builtins": f"import builtins\nbuiltins.AssertionError = None\nbuiltins.exec = lambda *a: None\n{WRONG}",
    "a trace function": f"import sys\nsys.settrace(lambda *a: None)\n{WRONG}",
    "a changed child": f"import __main__\n__main__.test = lambda *a: ('passed', '')\n{WRONG}",
    "the verdict on every descriptor": "import os\nfor fd in range(64):\n    try:\n"
    '        os.write(fd, b\'["passed", ""]\')\n    except OSError:\n        pass\nos._exit(0)',
    "an answer before the question": f"import __main__, gc\nfor o in gc.get_objects():\n    if isinstance(o, __main__.Channel):\n"
    f"        o.send('ready'); o.send('passed', '')\n{WRONG}",
    "an unknown kind of value": f"import plain\nplain._apart = lambda value: {{'eval': '8'}}\n{WRONG}",
    "a value of two kinds": f"import plain\nplain._apart = lambda value: {{'int': '8', 'tuple': []}}\n{WRONG}",
    "a value nested deeply": f"import json\njson.dumps = lambda value: '[' * 100000\n{WRONG}",
    "no JSON": f"import json\njson.dumps = lambda value: 'passed'\n{WRONG}",
    "a message larger than said": f"import struct\nstruct.pack = lambda *a: b'\\xff\\xff\\xff\\xff'\n{WRONG}",
    "an empty message": f"import struct\nstruct.pack = lambda *a: b'\\0\\0\\0\\0'\n{WRONG}",
    "a number of ten million digits": f"{CALL}return 1 << 39_000_000",
    "memory in the tests": f"import plain\nplain._apart = lambda value: {{'tuple': {{'range': [0, 10**12, 1]}}}}\n{WRONG}",
    "a class with the name of a container": f"class Counter:\n{EQUAL}{CALL}return Counter()",
    "no such function": "x = 1",
    "a function of another name": "def twice(x):\n    return 2 * x",
    "a variable": "double = 8",
    "no code": "def double(:",
    "a null byte": "def double(x):\n    return '\0'\n",
    "half a character": "\ud800",
    "tabs and spaces": "def double(x):\n\tif x:\n        return 1",
    "nested too deeply": f"double = {'(' * 500}1{')' * 500}",
    "only when asked about itself": "if __name__ == '__main__':\n    def double(x):\n        return 2 * x",
    "an exception at import": "1 / 0",
    "warnings as passes": f"import warnings\nwarnings.warn('passed')\n{WRONG}",
}


@pytest.mark.slow
@needs_confinement
@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES)
def test_a_wrong_program_does_not_pass(program: str) -> None:
    verdict = run(program, TESTS, DOUBLE, seconds=2)
    assert not verdict.passed
    assert verdict.why


SAME = f"{NODE}def same(node):\n    return node\n"
REBOUND = "import plain\nplain._apart = lambda value: "
LEAVES = "import os\ndef double(x):\n    os._exit(0)\n"
CAUGHT = "try:\n    double(4)\n    assert False\nexcept:\n    pass"

AGAINST_CLASSES: dict[str, tuple[str, str, str]] = {  # Program, tests, reference.
    "its own equality": (
        f"class Node:\n    def __init__(self, value):\n        self.value = 0\n{EQUAL}def same(node):\n    return Node(9)\n",
        "assert same(Node(4)) == Node(4)",
        SAME,
    ),
    "an equality of the object": (
        f"{NODE}def same(node):\n    node.value = 9\n    node.__dict__['__eq__'] = 1\n    return node\n",
        "assert same(Node(4)) == Node(4)",
        SAME,
    ),
    "another class of the object": (
        f"{REBOUND}{{'object': ['Node', None, {{'dict': [['__class__', 'int'], ['value', 4]]}}]}}\n{SAME}",
        "assert same(Node(4)) == Node(5)",
        SAME,
    ),
    "a class of the tests that is none of the program's": (
        f"{REBOUND}{{'object': ['Popen', None, None]}}\n{SAME}",
        "assert same(Node(4)) == Node(4)",
        f"from subprocess import Popen\n{SAME}",
    ),
    "leaving where an exception is expected": (LEAVES, CAUGHT, DOUBLE),
    "an exception of another kind": (
        "def double(x):\n    raise KeyError(x)\n",
        "try:\n    double(4)\nexcept ValueError:\n    pass",
        DOUBLE,
    ),
    "leaving where any exception will do": (
        "def double(x):\n    raise SystemExit(0)\n",
        "try:\n    double(4)\nexcept Exception:\n    pass",
        DOUBLE,
    ),
    "an exception without a text": (
        "class No(Exception):\n    pass\ndef double(x):\n    raise No('no')\n",
        "double(4)",
        f"class No(Exception):\n    def __str__(self):\n        return '%d' % self.args\n{DOUBLE}",
    ),
    "changing what is compared": (
        "def double(x):\n    x.clear()\n    return []\n",
        "x = (1, 2)\nassert double([1]) == [1, 1]",
        DOUBLE,
    ),
    "a helper that the tests use": (
        "def helper(x):\n    return 0\ndef double(x):\n    return 0\n",
        "assert helper(double(4)) == helper(8)",
        f"def helper(x):\n    return x\n{DOUBLE}",
    ),
}


@needs_confinement
@pytest.mark.parametrize("given", AGAINST_CLASSES.values(), ids=AGAINST_CLASSES)
def test_the_tests_own_things_stay_theirs(given: tuple[str, str, str]) -> None:
    program, tests, reference = given
    preamble = reference.partition("def double")[0] if "helper" in reference else ""
    assert not run(program, tests, reference, preamble, seconds=2).passed


RIGHT: dict[str, tuple[str, str]] = {  # What `double` returns, and what it equals in the tests.
    "an integer": ("x", "4"),
    "a large integer": ("-x ** 9999", "-4 ** 9999"),
    "a truth": ("x == 4", "True"),
    "nothing": ("None", "None"),
    "a float": ("x / 3", "4 / 3"),
    "infinity": ("float('inf')", "float('inf')"),
    "a complex number": ("complex(x, 1)", "4 + 1j"),
    "text": ("'é\\n\\ud800' * x", "'é\\n\\ud800' * 4"),
    "bytes": ("bytes([x])", "b'\\x04'"),
    "a byte array": ("bytearray(x)", "bytearray(4)"),
    "nested containers": ("{(x,): [{x}, frozenset({x})]}", "{(4,): [{4}, frozenset({4})]}"),
    "a counter": ("__import__('collections').Counter('aa')", "{'a': 2}"),
    "a default dict": ("__import__('collections').defaultdict(list, a=[x])", "{'a': [4]}"),
    "an ordered dict": ("__import__('collections').OrderedDict(a=x)", "{'a': 4}"),
    "a deque": ("__import__('collections').deque([x])", "__import__('collections').deque([4])"),
    "a named tuple": ("__import__('collections').namedtuple('P', 'a')(x)", "(4,)"),
    "a range": ("range(x)", "range(4)"),
    "keys": ("{x: 1}.keys()", "{4}"),
    "items": ("{x: 1}.items()", "{(4, 1)}"),
    "a fraction": ("__import__('fractions').Fraction(x, 3)", "__import__('fractions').Fraction(4, 3)"),
    "a decimal": ("__import__('decimal').Decimal(x)", "4"),
    "a date": ("__import__('datetime').datetime(2000, 1, x)", "__import__('datetime').datetime(2000, 1, 4)"),
    "a span of time": ("__import__('datetime').timedelta(x)", "__import__('datetime').timedelta(4)"),
}
SEVERAL: dict[str, tuple[str, str]] = {  # A program, and tests that it passes.
    "a generator": (
        "def double(x):\n    yield x\n    yield x\n",
        "assert list(double(4)) == [4, 4]\nassert next(double(4)) == 4",
    ),
    "a map": ("def double(x):\n    return map(str, [x])\n", "assert ''.join(double(4)) == '4'"),
    "values": ("def double(x):\n    return {1: x}.values()\n", "assert list(double(4)) == [4]"),
    "a lambda": ("double = lambda x: 2 * x", TESTS),
    "a cached function": (f"import functools\n@functools.cache\n{DOUBLE}", "assert double(4) == 8"),
    "keywords": (DOUBLE, "assert double(x=4) == 8"),
    "state": (
        "n = 0\ndef double(x):\n    global n\n    n += 1\n    return n\n",
        "assert [double(0), double(0)] == [1, 2]",
    ),
    "a list changed": ("def double(x):\n    x *= 2\n", "x = [1]\nassert double(x) is None and x == [1, 1]"),
    "a list in a list changed": ("def double(x):\n    x[0].pop()\n", "x = [[1]]\ndouble(x)\nassert x == [[]]"),
    "a dict changed": ("def double(x):\n    x['a'] = 1\n", "x = {}\ndouble(x)\nassert x == {'a': 1}"),
    "a set changed": ("def double(x):\n    x.add(1)\n", "x = set()\ndouble(x)\nassert x == {1}"),
    "an iterator given": ("def double(x):\n    return sum(x)\n", "assert double(iter([1, 2])) == 3"),
    "an exception expected": (
        "def double(x):\n    raise ValueError('no')\n",
        "try:\n    double(4)\n    raise SystemExit\nexcept ValueError as e:\n    assert str(e) == 'no'",
    ),
    "an exception of its own": (
        "class No(ValueError):\n    pass\ndef double(x):\n    raise No('no')\n",
        "try:\n    double(4)\n    raise SystemExit\nexcept ValueError:\n    pass",
    ),
    "output": ("def double(x):\n    print('x' * 1_000_000)\n    return 2 * x\n", TESTS),
    "files of its own": (
        "def double(x):\n    open('a', 'w').write('ab')\n    return open('a').read()\n",
        "assert double(1) == 'ab'",
    ),
    "an event loop": (
        "import asyncio\nasync def f(x):\n    return 2 * x\ndef double(x):\n    return asyncio.run(f(x))\n",
        TESTS,
    ),
    "a large value": ("def double(x):\n    return 'x' * 1_000_000\n", "assert len(double(1)) == 1_000_000"),
}
SEVERAL |= {name: (f"def double(x):\n    return {a}\n", f"assert double(4) == {b}") for name, (a, b) in RIGHT.items()}


@needs_confinement
@pytest.mark.parametrize("given", SEVERAL.values(), ids=SEVERAL)
def test_a_right_program_passes(given: tuple[str, str]) -> None:
    assert run(*given, reference=DOUBLE) == Outcome(True)


@needs_confinement
def test_objects_of_classes_that_the_reference_defines_cross() -> None:
    tests = "n = Node(4)\nassert same(n) == Node(4) and type(same(n)) is Node\nassert same([n, (n,)]) == [n, (n,)]"
    assert run(SAME, tests, SAME) == Outcome(True)
    grown = f"{NODE}def same(node):\n    node.value += 1\n"
    assert run(grown, "n = Node(4)\nsame(n)\nassert n.value == 5", SAME) == Outcome(True)


JUDGE = PassesTests(tests="assert double(4) == 8", allowed=True)

REFUSED: dict[str, tuple[Any, str]] = {
    "seconds": (lambda: run("", "", "", seconds=0), "seconds=0: must be a positive integer"),
    "seconds of text": (lambda: run("", "", "", seconds="5"), "seconds='5': must be a positive integer"),  # type: ignore[arg-type]
    "megabytes": (lambda: run("", "", "", megabytes=8), "megabytes=8: must be an integer of at least 64"),
    "clock": (lambda: run("", "", "", clock=float("nan")), "clock=nan: must be a finite number of at least 5"),
    "allowed": (lambda: replace(JUDGE, allowed="yes"), "allowed='yes': must be True, False or \"unsafe\""),
    "allowed as a number": (lambda: replace(JUDGE, allowed=1), "allowed=1: must be True"),
    "mbpp": (lambda: mbpp(allow_code_execution="yes"), "allow_code_execution='yes': must be True, False"),
    "humaneval": (lambda: humaneval(allow_code_execution=None), "allow_code_execution=None: must"),  # type: ignore[arg-type]
    "tests": (lambda: PassesTests(tests=3), "judge 'passes_tests' has tests=3: must be text"),  # type: ignore[arg-type]
    "preamble": (lambda: replace(JUDGE, preamble=None), "has preamble=None: must be text"),  # type: ignore[arg-type]
    "no tests": (lambda: PassesTests(), "tests='': pass the program that tests the code"),
    "not allowed": (lambda: replace(JUDGE, allowed=False).is_right("x = 1", DOUBLE), "allow that with allow_code"),
}
NO_REFERENCE = {
    "no function": ("x = 1", "it defines no function after the preamble"),
    "no code": ("def double(", "SyntaxError"),
    "a class only": ("class double:\n    pass", "it defines no function"),
    "an exception": (f"{DOUBLE}1 / 0", "ZeroDivisionError"),
    "leaving": ("import sys\nsys.exit()", "SystemExit"),
    "not tested": ("def twice(x):\n    return 2 * x\ndef double(x):\n    return 8\ndel twice", "KeyError: 'twice'"),
}


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_nonsense_is_refused(call: Any, says: str) -> None:
    refused(call, says)


@needs_confinement
@pytest.mark.parametrize(("reference", "says"), NO_REFERENCE.values(), ids=NO_REFERENCE)
def test_a_reference_that_cannot_judge_is_refused(reference: str, says: str) -> None:
    refused(lambda: JUDGE.is_right(DOUBLE, reference), f"the reference answer cannot judge programs ({says}")


@needs_confinement
def test_tests_that_pass_on_what_cannot_cross_are_refused() -> None:
    says = "the tests call double with a value that cannot be passed on: function is not a type of plain values"
    refused(lambda: run(DOUBLE, "double(lambda: 1)", DOUBLE), says)


@needs_confinement
def test_tests_that_call_nothing_are_refused() -> None:
    refused(lambda: run("x = 1", "assert True", DOUBLE), "the tests call none of the functions that it defines")


def test_where_nothing_can_be_confined_nothing_is_generated(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import lens_heads as lh

    monkeypatch.setattr(sandbox, "missing", lambda: "bubblewrap (bwrap) is not installed")
    monkeypatch.setattr(
        "lens_heads.answering.evaluation.answer_batch", lambda *_, **__: pytest.fail("the model worked")
    )
    trial = Trial("t", "1 + 1 =", DOUBLE, template="{question}", judge=JUDGE)
    says = "cannot be confined here: bubblewrap (bwrap) is not installed. Install bubblewrap, let it create user"
    refused(lambda: lh.evaluate(gqa, trial, max_new_tokens=4, progress=False), says, gqa)
    unsafe = replace(trial, judge=replace(JUDGE, allowed="unsafe"))
    assert unsafe.encode(zoo.tokenizer()).judge.correct(DOUBLE, [DOUBLE]) == 1


@pytest.mark.parametrize(
    ("machine", "program", "says"),
    [
        ("riscv64", "/usr/bin/bwrap", "riscv64 is neither x86_64 nor aarch64"),
        ("x86_64", None, "bubblewrap (bwrap) is not installed"),
        ("x86_64", "/bin/false", "bubblewrap fails (1)"),
        ("x86_64", "/nowhere/bwrap", "bubblewrap fails"),
    ],
)
def test_why_nothing_can_be_confined(machine: str, program: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement.platform, "machine", lambda: machine)
    monkeypatch.setattr(confinement.shutil, "which", lambda name: program)
    confinement._sized.cache_clear()
    assert says in confinement.missing.__wrapped__()
    confinement._sized.cache_clear()
