"""Workers: processes on this machine or a cluster that share the units of a call, each with its own copy of the model.

Through Ray (the extra `ray`), which is imported only here. Every worker runs the same call (`runs.crew`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import queue
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from lens_heads.model.copies import SEVERAL, packed, unpacked
from lens_heads.model.cost import add, counted
from lens_heads.model.foreign_code import brought_along
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.model.worker_devices import devices_of, each_takes
from lens_heads.runs.blocks import block
from lens_heads.runs.crew import Done, current_crew, in_crew, portable
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line

Call = TypeVar("Call", bound=Callable[..., Any])
OPEN: list[Crew] = []
"""The crews of the `with worker_pool(...)` blocks that are open."""


@typed
@block
def worker_pool(model: Model, workers: int | str | None, *, num_gpus: float = 1) -> Iterator[None]:
    """Inside, every call on this model shares its units among workers, which start once and keep their copies of the model.

    Args:
        workers: a number: one for each of the first GPUs, or on the CPU, whose cores they share; "auto": one for each GPU;
            devices ("cuda:0,cuda:1"); or "ray://HOST:PORT", a cluster, with one worker for each of its GPUs. None: this process.
        num_gpus: GPUs of each worker: .5 puts two on one; over several a worker spreads its model, as `device_map="auto"` does.
            Not for named devices, nor on the CPU.

    The model may lie anywhere; each worker holds a copy of its weights, which must not change inside. Batches are those of one
    process, so results are equal bit for bit on GPUs, and on CPUs with as many threads (`torch.set_num_threads`, which workers
    divide). A worker that dies gives its units back once.

    Raises ValueError for devices that do not exist, processed weights or a model with hooks, ImportError without Ray.

    Example:
        >>> with lh.worker_pool(model, None):
        ...     found = lh.rank(model, trials, "locos")
        >>> found["locos"].top(2) == heads
        True
    """
    if workers is None:
        yield
        return
    crew = Crew(model, workers, num_gpus)
    try:
        OPEN.append(crew)
        yield
    finally:
        OPEN.remove(crew)
        crew.close()


def shared(function: Call) -> Call:
    """A function of a model that takes `workers=`, as `worker_pool` explains, and shares its loops among them."""

    @functools.wraps(function)
    def call(model: Model, *args: Any, workers: int | str | None = None, **options: Any) -> Any:
        if current_crew() is not None:
            return function(model, *args, **options)
        crew = next((crew for crew in reversed(OPEN) if crew.model is model), None)
        if crew is None:
            with worker_pool(model, workers):
                return (function if workers is None else call)(model, *args, **options)
        with crew.running(function, args, options), in_crew(crew):
            return function(model, *args, **options)

    signature = inspect.signature(function)
    given = list(signature.parameters.values())
    if not any(each.kind is each.VAR_KEYWORD for each in given):  # There, it is among the options.
        given.append(inspect.Parameter("workers", inspect.Parameter.KEYWORD_ONLY, default=None))
    call.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]  # for `typed` and help()
    return call  # type: ignore[return-value]  # the same function, with one more keyword


class Crew:
    """The driver's side: the workers of one model, and what they are doing."""

    def __init__(self, model: Model, how: int | str, num_gpus: float = 1) -> None:
        self.model, self._ray = model, _ray()
        address = how if isinstance(how, str) and how.startswith("ray://") else None
        devices = [] if address else devices_of(how, self._ray, each_takes(num_gpus))  # Before Ray takes its seconds.
        self._started = not self._ray.is_initialized()
        if self._started:
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            own = (
                {}
                if address
                else {"_node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": os.cpu_count()}
            )
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        try:
            devices = devices or devices_of(how, self._ray, each_takes(num_gpus))
            for module in brought_along():
                self._ray.cloudpickle.register_pickle_by_value(module)  # Workers have no such module to import.
            weights = self._ray.put(packed(model))
            threads = max(1, torch.get_num_threads() // len(devices))
            self.actors = [self._start(weights, device, threads, num_gpus) for device in devices]
            self._ray.get([actor.ready.remote() for actor in self.actors])
        except BaseException:
            self.close()
            raise

    def _start(self, weights: Any, device: str, threads: int, num_gpus: float) -> Any:
        resources = {"num_gpus": num_gpus} if device in ("cuda", SEVERAL) else {"num_cpus": 0}
        remote = self._ray.remote(max_concurrency=4, max_restarts=0, **resources)(_Worker)
        return remote.remote(weights, device, threads)

    @contextmanager
    def running(self, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Iterator[None]:
        """Inside, the workers run the same call. Nothing is stored there, and no progress shown."""
        if has_hooks(self.model):
            raise ValueError(
                f"{head_geometry(self.model).name} has hooks attached (an ablation?), which the workers' copies lack"
            )
        given = {name: value for name, value in options.items() if name not in ("out", "progress")}
        name = function.__module__, function.__name__
        sent = self._ray.put((tuple(args), given | {"progress": False}))
        self._loop = 0
        for actor in list(self.actors):
            try:
                self._ray.get(actor.begin.remote())
            except self._ray.exceptions.RayActorError:
                self._lose(actor)
        if not self.actors:
            raise RuntimeError("every worker has died: leave the block, and start new ones")
        calls = [actor.call.remote(name, sent) for actor in self.actors]
        ended = False
        try:
            yield
            ended = True
        finally:
            if not ended:
                for actor in self.actors:
                    actor.stop.remote()
            self._ray.wait(calls, num_returns=len(calls))

    def share(self, batches: Sequence[list[int]]) -> Iterator[Done]:
        """What became of every batch, in the order in which they end; those of a worker that died run once more."""
        waiting = deque((batch, False) for batch in batches)
        busy: dict[Any, tuple[Any, list[int], bool]] = {}
        idle = list(self.actors)
        while waiting or busy:
            while waiting and idle:
                batch, again = waiting.popleft()
                actor = idle.pop()
                busy[actor.work.remote(self._loop, batch)] = actor, batch, again
            if not busy:
                raise RuntimeError("every worker has died: the same call continues the run, if it has a folder")
            (ref,), _ = self._ray.wait(list(busy), num_returns=1)
            actor, batch, again = busy.pop(ref)
            try:
                done = self._ray.get(ref)
            except self._ray.exceptions.RayActorError as error:
                self._lose(actor)
                if not again:
                    waiting.appendleft((batch, True))
                    continue
                lost = RuntimeError(f"two workers died of it: {error}")
                nothing = Result({}, {"outcome": "error", "error": str(lost)}, keep=False)
                done = Done([(i, nothing) for i in batch], len(batch), lost)
            else:
                idle.append(actor)
                add(done.work)
            yield done

    def _lose(self, actor: Any) -> None:
        """Go on without a worker that died."""
        self.actors.remove(actor)
        warnings.warn(f"a worker died ({len(self.actors)} left)", stacklevel=users_line())

    def tell(self, results: list[Result]) -> None:
        """Give the results of a whole loop to all workers."""
        sent = self._ray.put(results)
        for actor in self.actors:
            actor.over.remote(self._loop, sent)
        self._loop += 1

    def close(self) -> None:
        """End the workers, and Ray if it was started for them."""
        for actor in getattr(self, "actors", []):
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


class _Stopped(BaseException):
    """The driver's call has ended early."""


class _Worker:
    """The worker's side. The call runs in one thread; others bring what the driver sends."""

    def __init__(self, weights: Any, device: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = unpacked(weights, device)

    def begin(self) -> None:
        """Before a call."""
        self._failed: BaseException | None = None
        self._stopped, self._loop = False, -1
        self._inbox: defaultdict[int, queue.Queue[Any]] = defaultdict(
            queue.Queue
        )  # By loop: calls may overtake each other.
        self._outbox: queue.Queue[Done | BaseException] = queue.Queue()

    def ready(self) -> None:
        """Returns once the model is loaded."""

    def call(self, name: tuple[str, str], sent: Any) -> None:
        """The whole call, under the driver's direction."""
        args, options = sent
        function: Callable[..., Any] = getattr(importlib.import_module(name[0]), name[1])
        try:
            with in_crew(self), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # The driver warns.
                function(self.model, *args, **options)
        except _Stopped:
            pass
        except Exception as error:
            self._failed = portable(error)
            self._outbox.put(self._failed)

    def work(self, loop: int, batch: list[int]) -> Done:
        """One batch of a loop, in the thread of the call."""
        self._inbox[loop].put(batch)
        done = self._failed or self._outbox.get()
        if isinstance(done, BaseException):
            raise done
        return done

    def over(self, loop: int, results: list[Result]) -> None:
        """A loop has ended, with these results."""
        self._inbox[loop].put(tuple(results))

    def stop(self) -> None:
        """The driver's call has ended early."""
        self._stopped = True
        self._inbox[self._loop].put(_Stopped())

    def serve(self, work: Callable[[list[int]], Done]) -> list[Result]:
        """Called by the loop: work on batches until the driver says that it is over."""
        self._loop += 1
        while True:
            message = _Stopped() if self._stopped else self._inbox[self._loop].get()
            if isinstance(message, _Stopped):
                raise message
            if isinstance(message, tuple):
                return list(message)
            with counted(self.model) as cost:
                done = work(message)
            self._outbox.put(replace(done, work=cost.work))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("workers= needs Ray: pip install 'lens-heads[ray]'") from error
    return ray
