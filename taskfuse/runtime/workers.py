"""Worker processes that compile fusions in parallel.

One process starts as ``python -m taskfuse.runtime.workers`` and imports taskfuse, but neither the caller's program nor its frameworks; then it forks. The
workers stay for later graphs, and end when the caller does, or after :data:`IDLE_SECONDS` without a request. :func:`start` can be called long before there
is something to compile, so that the imports are done by then.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from io import BufferedRWPair
from typing import Any

from taskfuse.collector import SELDOM
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin
from taskfuse.cuda.present import present
from taskfuse.cuda.sources import sources
from taskfuse.errors import TaskfuseError
from taskfuse.free_cores import at_work, share
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ops.create import define_tensor
from taskfuse.ops.reduce import sum as sum_over
from taskfuse.options import cores, read_options, set_variables, variables
from taskfuse.runtime.compile import compile
from taskfuse.runtime.decision_cache import packed, restored
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import Maker
from taskfuse.target import DEFAULT

FEWEST = 2
"""Fusions below which there is nothing to do side by side."""
MOST = 16
"""Processes, unless the caller wants more."""
IDLE_SECONDS = 300.0


@dataclass(slots=True)
class _Request:
    """A fusion to compile."""

    fusion: Fusion
    text: str
    arguments: Mapping[str, Any]
    sizes: Mapping[str, int]
    answer: Future[Any] = field(default_factory=Future[Any])

    def read(self, stream: BufferedRWPair) -> Any:
        """The answer that a process writes: an executable, as :func:`packed` gives it or as it is, or an error."""
        content, made = pickle.load(stream)
        if content is None:
            return made
        given = {name: self.arguments[name] for name in ("backend", "arch", "fast_math") if name in self.arguments}
        return restored(content, self.fusion, Maker(**given), read_options())


class _Pool:
    """The processes, each at the other end of a stream that a thread reads.

    Attributes:
        size: how many were started.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._there = threading.Condition()
        self._left: list[tuple[int, int, _Request]] = []  # a heap, the largest first
        self._count = 0
        self._is_closed = False
        pairs = [socket.socketpair() for _ in range(size)]
        ends = [theirs.fileno() for _, theirs in pairs]
        command = [sys.executable, "-m", "taskfuse.runtime.workers", *map(str, ends)]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, pass_fds=ends, start_new_session=True)
        self._sockets = [ours for ours, _ in pairs]
        self._alive = size
        for ours, theirs in pairs:
            theirs.close()
            threading.Thread(target=self._serve, args=(ours.makefile("rwb"),), name="taskfuse worker", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._alive > 0 and self._process.poll() is None

    def submit(self, requests: Sequence[_Request]) -> None:
        """Have the processes answer requests, the largest first; with ``None`` if no process is left."""
        with self._there:
            for request in requests:
                heappush(self._left, (-len(request.text), self._count, request))
                self._count += 1
            self._there.notify_all()
        if not self.is_alive:
            self._give_up()

    def _serve(self, stream: BufferedRWPair) -> None:
        """Have one process answer requests until it ends. One that ends, otherwise than by an error of taskfuse, leaves its request to the caller."""
        while True:
            with self._there:
                while not self._left and not self._is_closed:
                    self._there.wait()
                if self._is_closed:
                    return
                request = heappop(self._left)[2]
            try:
                pickle.dump((sys.path, variables(), request.text, request.arguments, dict(request.sizes)), stream)
                stream.flush()
                result = request.read(stream)
            except Exception:  # what a process writes as it ends need not be a pickle: any error of reading it
                with self._there:
                    self._alive -= 1
                request.answer.set_result(None)
                if not self._alive:
                    self._give_up()
                return
            request.answer.set_result(result)

    def _give_up(self) -> None:
        """Answer what is left: there is no process."""
        with self._there:
            left, self._left = self._left, []
        for _, _, request in left:
            request.answer.set_result(None)

    def close(self) -> None:
        """End the processes: also if processes that are forked of this one hold the streams, too."""
        with self._there:
            self._is_closed = True
            self._there.notify_all()
        self._give_up()
        for one in self._sockets:
            with suppress(OSError):  # it has ended
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._process.terminate()  # it may still be importing taskfuse
        self._process.wait()

    def leave(self) -> None:
        """Release the streams in a process that is forked of the one that started the processes, so that they end with that one."""
        for one in self._sockets:
            os.close(one.detach())


_pools: list[_Pool] = []
_lock = threading.Lock()


def start(processes: int = 0) -> _Pool | None:
    """Start the processes, if they are not there; ``None`` where one would be all, or processes cannot be forked.

    Args:
        processes: how many; 0: as many as there are cores that this process may use, at most 16.
    """
    count = processes or min(cores(), MOST)
    if count < 2 or not hasattr(os, "fork") or not sys.executable:
        return None
    with _lock:
        for ended in [pool for pool in _pools if not pool.is_alive]:
            ended.close()
            _pools.remove(ended)
        if not (_pools and _pools[-1].size >= count):
            _pools.append(_Pool(count))
        return _pools[-1]


@atexit.register
def stop() -> None:
    """End all processes."""
    with _lock:
        for pool in _pools:
            pool.close()
        _pools.clear()


def _forked() -> None:
    """A process that is forked of the caller has no processes, and no thread that holds the lock."""
    global _lock
    _lock = threading.Lock()
    for pool in _pools:
        pool.leave()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def compiled_for(fusion: Fusion, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> Executable:
    """The executable of a fusion that will be called with extents near ``sizes``: it is scheduled for them, and its specialization for them made.

    Args:
        arguments: of :func:`taskfuse.compile`.
        sizes: values of dimensions, or of some.
    """
    run = compile(fusion, **arguments, sizes=sizes)
    if fusion.dims and sizes.keys() >= fusion.dims.keys():
        with suppress(TaskfuseError):  # the call itself says what is wrong with them
            run.at(sizes)
    return run


def compiled_elsewhere(
    fusions: Sequence[Fusion], arguments: Mapping[str, Any], processes: int, *, fewest: int = FEWEST, sizes: Sequence[Mapping[str, int]] = ()
) -> list[Future[Any]]:
    """The executable of each fusion, or its error, made by several processes while the caller does something else; ``None`` for those that it must compile.

    Each process takes the next fusion when it has finished one, the largest first.

    Args:
        arguments: of :func:`taskfuse.compile`.
        processes: their number; 0: the number of cores, at most 16.
        fewest: fewer fusions are left to the caller.
        sizes: of each fusion, those of :func:`compiled_for`; none are given if all extents are constant.
    """
    pool = start(processes) if len(fusions) >= fewest else None
    requests = [_Request(fusion, str(fusion), arguments, sizes[k] if sizes else {}) for k, fusion in enumerate(fusions)]
    if pool is None:
        for request in requests:
            request.answer.set_result(None)
    else:
        pool.submit(requests)
    return [request.answer for request in requests]


def _warm() -> None:
    """Do once what each process would do at its first request: import what schedules, lowers, proves and compiles; find the GPU; read the files of taskfuse."""
    settings = read_options()
    sources(settings)
    present()
    with Fusion("warm") as fusion:
        fusion.add_output(sum_over(define_tensor([4096, 1024]), 1))
    compile(fusion, "cuda", target=DEFAULT, cache=False)
    compile_cubin('extern "C" __global__ void warm() {}', "warm", CompileOptions())


def _serve(ends: Sequence[int]) -> None:
    """Fork into a process for each end of a stream, and wait for them."""
    with suppress(TaskfuseError):  # the first request says the same
        _warm()
    gc.freeze()
    gc.set_threshold(*SELDOM)  # all that a process does is search, lower and prove
    share(len(ends))
    for number, end in enumerate(ends):
        if not os.fork():
            for other in ends:
                if other != end:
                    os.close(other)
            try:
                _work(socket.socket(fileno=end), number)
            finally:
                os._exit(0)
    for end in ends:
        os.close(end)
    for _ in ends:
        os.wait()


def _work(end: socket.socket, number: int) -> None:
    end.settimeout(IDLE_SECONDS)
    stream = end.makefile("rwb")
    while True:
        try:
            path, environment, text, arguments, sizes = pickle.load(stream)
        except (EOFError, TimeoutError):
            return
        sys.path[:] = path
        set_variables(environment)
        content: object = None
        try:
            with at_work(number):
                fusion = parse_fusion(text)
                result: Any = compiled_for(fusion, arguments, sizes)
                if not (arguments.get("debug") or arguments.get("unsafe")):
                    content = packed(result, fusion, read_options())
        except TaskfuseError as error:
            result = error
        pickle.dump((content, None) if content is not None else (None, result), stream)
        stream.flush()


if __name__ == "__main__":
    _serve([int(end) for end in sys.argv[1:]])
