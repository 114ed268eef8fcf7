"""Processes that compile fusions side by side.

They are started as ``python -m taskfuse.runtime.workers``, so that they run nothing of the caller's program, and import none of its frameworks.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.runtime.compile import compile

FEWEST = 3
"""Fusions below which processes take longer to start than they save."""


def compiled_elsewhere(fusions: Sequence[Fusion], arguments: dict[str, Any], processes: int) -> list[Any]:
    """The executable of each fusion, or its error, made by several processes; ``None`` for those that the caller has to compile itself.

    Args:
        arguments: of :func:`taskfuse.compile`.
        processes: how many; 0: as many as there are cores, at most 8.
    """
    count = min(processes or min(os.cpu_count() or 1, 8), len(fusions))
    if count < 2 or len(fusions) < FEWEST:
        return [None] * len(fusions)
    shares = [list(range(k, len(fusions), count)) for k in range(count)]
    found: list[Any] = [None] * len(fusions)
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(_asked, [str(fusions[k]) for k in share], arguments) for share in shares]
        for share, results in zip(shares, waiting, strict=True):
            for k, result in zip(share, results.result(), strict=True):
                found[k] = result
    return found


def _asked(texts: list[str], arguments: dict[str, Any]) -> list[Any]:
    """What one process makes of fusions; ``None`` each if it fails otherwise than by an error of taskfuse."""
    task = pickle.dumps((sys.path, texts, arguments))
    done = subprocess.run([sys.executable, "-m", "taskfuse.runtime.workers"], input=task, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        return [None] * len(texts)
    return pickle.loads(done.stdout)


def _work() -> None:
    path, texts, arguments = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    out = os.dup(1)
    os.dup2(2, 1)  # what is printed is not the answer
    results: list[Any] = []
    for text in texts:
        try:
            results.append(compile(parse_fusion(text), **arguments))
        except TaskfuseError as error:
            results.append(error)
    with os.fdopen(out, "wb") as stream:
        pickle.dump(results, stream)


if __name__ == "__main__":
    _work()
