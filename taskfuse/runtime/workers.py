"""Worker processes that compile fusions in parallel.

They start as ``python -m taskfuse.runtime.workers``, so they neither run the caller's program nor import its frameworks.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.runtime.compile import compile

FEWEST = 3
"""The least number of fusions for which starting processes pays."""


def compiled_elsewhere(fusions: Sequence[Fusion], arguments: dict[str, Any], processes: int) -> list[Any]:
    """The executable of each fusion, or its error, made by several processes; ``None`` for those that the caller must compile itself.

    Each process takes the next fusion when it has finished one, the largest first.

    Args:
        arguments: of :func:`taskfuse.compile`.
        processes: their number; 0: the number of cores, at most 16.
    """
    count = min(processes or min(os.cpu_count() or 1, 16), len(fusions))
    found: list[Any] = [None] * len(fusions)
    if count < 2 or len(fusions) < FEWEST:
        return found
    texts = [str(fusion) for fusion in fusions]
    left: SimpleQueue[int] = SimpleQueue()
    for k in sorted(range(len(texts)), key=lambda k: -len(texts[k])):
        left.put(k)
    with ThreadPoolExecutor(count) as pool:
        for asked in [pool.submit(_ask, texts, left, found, arguments) for _ in range(count)]:
            asked.result()
    return found


def _ask(texts: Sequence[str], left: SimpleQueue[int], found: list[Any], arguments: dict[str, Any]) -> None:
    """Have one process compile fusions while some are left. One that fails otherwise than by an error of taskfuse ends the process and has no result."""
    with subprocess.Popen(
        [sys.executable, "-m", "taskfuse.runtime.workers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((sys.path, arguments), process.stdin)
            while True:
                try:
                    k = left.get_nowait()
                except Empty:
                    break
                pickle.dump(texts[k], process.stdin)
                process.stdin.flush()
                found[k] = pickle.load(process.stdout)
            process.stdin.close()
        except (OSError, EOFError, pickle.UnpicklingError):
            process.kill()


def _work() -> None:
    sys.path[:], arguments = pickle.load(sys.stdin.buffer)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is not the answer
    with out:
        while True:
            try:
                text = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                result: Any = compile(parse_fusion(text), **arguments)
            except TaskfuseError as error:
                result = error
            pickle.dump(result, out)
            out.flush()


if __name__ == "__main__":
    _work()
