"""Ctrl-C at any instruction leaves nothing on the model."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import run_activations
from lens_heads.model.changes import changing
from lens_heads.model.forward import fast_attention, noting_tuples
from lens_heads.model.hooks import has_hooks, hooked, recording, running
from lens_heads.model.joining import joining
from lens_heads.model.modes import evaluating
from tests import zoo
from tests.conftest import random_trial

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Interrupted when dropped.

TRIAL = random_trial(n=12)
TRACED = ("lens_heads/", "contextlib.py", "hook_points.py", "torch/utils/hooks.py")
"""Parts of the paths of the files whose instructions are interrupted."""
TABLES = ("hooks", "hooks_with_kwargs", "hooks_always_called", "pre_hooks", "pre_hooks_with_kwargs")


@pytest.fixture(scope="module")
def model() -> Any:
    made = zoo.bridge("gpt2", n_ctx=64)
    made.train()
    return made


@pytest.fixture(autouse=True)
def torch_itself() -> Iterator[None]:
    """An interrupt just before `torch.no_grad()` ends leaves gradients off in this thread, as in any code. Others need them."""
    yield
    torch.set_grad_enabled(True)


def state(model: Any) -> Any:
    """Everything on the model that a context may change."""
    parts = {id(module): module for part in (model, model.original_model) for module in part.modules()}
    modules = [
        (
            module.training,
            vars(module).get("forward"),
            [
                list(vars(module)[f"_forward_{name}"])
                for name in ("hooks", "pre_hooks", "pre_hooks_with_kwargs", "hooks_with_kwargs")
            ],
            len(vars(module).get("fwd_hooks", ())),
        )
        for module in parts.values()
    ]
    return modules, model.original_model.config._attn_implementation


class Interrupter:
    """Counts the instructions that run, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at: int = -1, again: int = -1) -> None:
        self.count, self.at, self.again = 0, at, again

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            if not any(part in frame.f_code.co_filename for part in TRACED):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.count += 1
            if self.count in (self.at, self.again):
                raise KeyboardInterrupt
        return self

    def run(self, work: Callable[[], Any]) -> BaseException | None:
        """The interrupt that ended the work, if one did."""
        before = sys.gettrace()
        try:
            sys.settrace(self)
            work()
        except KeyboardInterrupt as interrupt:
            return interrupt
        finally:
            sys.settrace(before)
        return None


def hook(x: torch.Tensor, hook: Any) -> None:
    """Changes nothing."""


@contextmanager
def nested(model: Any) -> Iterator[None]:
    names = ["blocks.0.hook_resid_post"]
    with (
        evaluating(model),
        hooked(model, [(names[0], hook)]),
        ablate(model, "L0H1", kind="zero"),
        recording(model, names),
    ):
        yield


CONTEXTS: dict[str, Callable[[Any], Any]] = {
    "changing": changing,
    "hooked": lambda model: hooked(model, [(f"blocks.{i}.attn.hook_z", hook) for i in range(3)]),
    "recording": lambda model: recording(model, ["blocks.1.hook_resid_post", "blocks.2.attn.hook_pattern"]),
    "fast_attention": fast_attention,
    "evaluating": evaluating,
    "noting_tuples": noting_tuples,
    "joining": lambda model: joining(model, [2]),
    "ablate": lambda model: ablate(model, ["L0H0", "L1H1"], kind="zero"),
    "nested": nested,
}


def entered(context: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def work(model: Any) -> None:
        with context(model):
            pass

    return work


RUNS: dict[str, Callable[[Any], Any]] = {
    "patch": lambda model: entered(lambda m: lh.patch(m, "L0H1", TRIAL))(model),
    "score_heads": lambda model: lh.score_heads(model, TRIAL, ["locos"], teacher_forced=True, progress=False),
    "patch_heads": lambda model: lh.patch_heads(model, TRIAL, progress=False),
    "evaluate": lambda model: lh.evaluate(model, TRIAL, max_new_tokens=2, progress=False),
    "activations": lambda model: run_activations(model, TRIAL.tokens, "x"),
    "check": lambda model: lh.check_model(model, tokens=TRIAL.tokens),
}
WORKS = {name: entered(context) for name, context in CONTEXTS.items()} | RUNS


def attack(model: Any, name: str, times: int, look: Callable[[Any], Any] = lambda interrupt: None) -> None:
    """Interrupt the work at so many of its instructions; no interrupt may leave anything."""
    work, rng = WORKS[name], random.Random(name)
    counter = Interrupter()
    assert counter.run(lambda: work(model)) is None
    before = state(model)
    for at in rng.sample(range(1, counter.count + 1), min(times, counter.count)):
        look(Interrupter(at).run(lambda: work(model)))
        assert state(model) == before, f"interrupted at instruction {at} of {counter.count}, {name} left something"


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_an_interrupt_leaves_nothing(model: Any, name: str) -> None:
    attack(model, name, 18 if name in CONTEXTS else 7)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_no_interrupt_leaves_anything(model: Any, name: str) -> None:
    attack(model, name, 500 if name in CONTEXTS else 80)


class Alarm:
    """Raises KeyboardInterrupt wherever the main thread is after so many seconds, as Ctrl-C does, also inside torch's Python."""

    def __init__(self, after: float) -> None:
        self.after, self.armed = after, False

    def _ring(self, *_: Any) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def interrupts(self, work: Callable[[], Any]) -> bool:
        before = signal.signal(signal.SIGALRM, self._ring)
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, self.after)
            work()
        except KeyboardInterrupt:
            return True
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return False


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarms")
@pytest.mark.parametrize("name", WORKS)
def test_signals_at_any_time_leave_nothing(model: Any, name: str) -> None:
    work, rng, hits = (lambda: WORKS[name](model)), random.Random(name), 0
    work()
    started = time.perf_counter()
    work()
    spent, before = time.perf_counter() - started, state(model)
    for _ in range(60):
        hits += Alarm(rng.uniform(1e-5, spent)).interrupts(work)
        assert state(model) == before, f"a signal during {name} left something"
    assert hits > 0, "some came in the middle of the work"


@pytest.mark.parametrize("name", RUNS)
def test_the_next_call_finds_nothing_while_a_debugger_holds_the_interrupt(model: Any, name: str) -> None:
    """As a notebook does: it keeps the last traceback, and with it all that the interrupted frames hold."""
    held: list[Any] = []

    def look(interrupt: Any) -> None:
        held.append(interrupt)
        assert not has_hooks(model)

    attack(model, name, 4, look)


def test_the_next_call_undoes_what_a_lost_exit_left(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes at the first instruction of the exit, and its traceback is kept."""
    before, held = state(model), []

    def lost(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(changing, "__exit__", lost)
        patched.setattr(changing, "__del__", lost)
        try:
            lh.evaluate(model, TRIAL, max_new_tokens=2, progress=False)
        except KeyboardInterrupt as interrupt:
            held.append(interrupt)
    assert state(model) != before
    assert not has_hooks(model)
    assert state(model) == before


def test_nested_changes_that_lost_their_exits_are_undone_from_the_innermost_on(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gives back what it found, the inner one what the outer one had put there."""
    before, held = state(model), []
    module = model.blocks[0]

    def lost(*_: Any) -> None:
        raise KeyboardInterrupt

    def call() -> None:
        with running(model, [(module, lambda x: x)]), running(model, [(module, lambda x: -x)]):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(changing, "__exit__", lost)
        patched.setattr(changing, "__del__", lost)
        patched.setitem(call.__globals__, "__name__", "lens_heads.call")  # As a function of the package does.
        try:
            call()
        except KeyboardInterrupt as interrupt:
            held.append(interrupt)
    assert state(model) != before
    assert not has_hooks(model)
    assert state(model) == before


def test_an_interrupt_during_cleanup_is_delayed_until_it_is_done(model: Any) -> None:
    seen: list[str] = []

    def undo() -> None:
        seen.append("undo")
        if len(seen) < 4:
            raise KeyboardInterrupt

    change = changing(model).__enter__()
    change.note(lambda: seen.append("all"))
    change.note(undo)
    with pytest.raises(KeyboardInterrupt):
        change.close()
    assert seen == ["undo"] * 4 + ["all"]


def test_an_undo_that_always_fails_is_reported(model: Any) -> None:
    def undo() -> None:
        raise RuntimeError("the module is gone")

    change = changing(model).__enter__()
    change.note(undo)
    with pytest.raises(RuntimeError, match="the module is gone"):
        change.close()
    change._undo.clear()
    change.close()
