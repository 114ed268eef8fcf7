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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BufferedRWPair
from queue import Empty, SimpleQueue
from typing import Any

from taskfuse.cuda.nvrtc import version
from taskfuse.errors import CudaUnavailableError, TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.options import set_variables, variables
from taskfuse.runtime.compile import compile

FEWEST = 2
"""Fusions below which there is nothing to do side by side."""
MOST = 16
"""Processes, unless the caller wants more."""
IDLE_SECONDS = 300.0


class _Pool:
    """The processes, each at the other end of a stream.

    Attributes:
        size: how many were started.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._idle: SimpleQueue[BufferedRWPair | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._left = size
        pairs = [socket.socketpair() for _ in range(size)]
        ends = [theirs.fileno() for _, theirs in pairs]
        command = [sys.executable, "-m", "taskfuse.runtime.workers", *map(str, ends)]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, pass_fds=ends, start_new_session=True)
        self._sockets = [ours for ours, _ in pairs]
        for ours, theirs in pairs:
            theirs.close()
            self._idle.put(ours.makefile("rwb"))

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._left > 0 and self._process.poll() is None

    def ask(self, asked: Sequence[bytes], left: SimpleQueue[int], found: list[Any]) -> None:
        """Have one process answer requests while some are left. One that ends, otherwise than by an error of taskfuse, leaves its request unanswered."""
        stream = self._idle.get()
        try:
            while stream is not None:
                k = left.get_nowait()
                stream.write(asked[k])
                stream.flush()
                found[k] = pickle.load(stream)
        except Empty:
            pass
        except Exception:  # what a process writes as it ends need not be a pickle: any error of reading it
            with self._lock:
                self._left -= 1
                if self._left:
                    return
            stream = None  # who waits for a process is told that there is none
        self._idle.put(stream)

    def close(self) -> None:
        """End the processes: also if processes that are forked of this one hold the streams, too."""
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
        processes: how many; 0: as many as there are cores, at most 16.
    """
    count = processes or min(os.cpu_count() or 1, MOST)
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


def compiled_elsewhere(fusions: Sequence[Fusion], arguments: dict[str, Any], processes: int) -> list[Any]:
    """The executable of each fusion, or its error, made by several processes; ``None`` for those that the caller must compile itself.

    Each process takes the next fusion when it has finished one, the largest first.

    Args:
        arguments: of :func:`taskfuse.compile`.
        processes: their number; 0: the number of cores, at most 16.
    """
    found: list[Any] = [None] * len(fusions)
    pool = start(processes) if len(fusions) >= FEWEST else None
    if pool is None:
        return found
    texts = [str(fusion) for fusion in fusions]
    asked = [pickle.dumps((sys.path, variables(), text, arguments)) for text in texts]
    left: SimpleQueue[int] = SimpleQueue()
    for k in sorted(range(len(texts)), key=lambda k: -len(texts[k])):
        left.put(k)
    count = min(processes or pool.size, pool.size, len(fusions))
    with ThreadPoolExecutor(count) as threads:
        for answered in [threads.submit(pool.ask, asked, left, found) for _ in range(count)]:
            answered.result()
    return found


def _serve(ends: Sequence[int]) -> None:
    """Fork into a process for each end of a stream, and wait for them."""
    with suppress(CudaUnavailableError):
        version()  # loads NVRTC, once for all
    gc.freeze()
    for end in ends:
        if not os.fork():
            for other in ends:
                if other != end:
                    os.close(other)
            try:
                _work(socket.socket(fileno=end))
            finally:
                os._exit(0)
    for end in ends:
        os.close(end)
    for _ in ends:
        os.wait()


def _work(end: socket.socket) -> None:
    end.settimeout(IDLE_SECONDS)
    stream = end.makefile("rwb")
    while True:
        try:
            path, environment, text, arguments = pickle.load(stream)
        except (EOFError, TimeoutError):
            return
        sys.path[:] = path
        set_variables(environment)
        try:
            result: Any = compile(parse_fusion(text), **arguments)
        except TaskfuseError as error:
            result = error
        pickle.dump(result, stream)
        stream.flush()


if __name__ == "__main__":
    _serve([int(end) for end in sys.argv[1:]])
