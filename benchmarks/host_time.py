"""Host time of calls without a GPU: chains of 1 to 13 kernels on a driver and a torch that are not there.

``python benchmarks/host_time.py [--write]``. A launch of this driver costs a call of C and nothing else, and an array is a Python object, so the figures
are what taskfuse itself does in a call: per call, and per kernel. They are the least of the means of many rounds, since a shared machine only adds to them.
What the driver takes for a launch, and torch for an allocation, is in ``benchmarks/results/launch.txt``.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.runtime.executable import Executable

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch, FakeTorchDevice, aligned

RESULTS = Path(__file__).parent / "results" / "host_time.txt"
LENGTHS = (1, 2, 5, 9, 13)
ROUNDS, CALLS = 200, 50
SHAPE = (64, 32)


class Driver(FakeDriver):
    """Its launches cost nothing."""

    def launch(self, function: int, config: int, parameters: int) -> Callable[[], int]:
        return int


class Memory(FakeTensor):
    """What it makes is there already."""

    def new_empty_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> FakeTensor:
        return self


class Torch(FakeTorch):
    """It has made all memory before."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(aligned(1 << 20, "uint8"))

    def empty(self, shape: int | tuple[int, ...], dtype: str, device: FakeTorchDevice) -> FakeTensor:
        return self.memory if dtype == "uint8" else super().empty(shape, dtype, device)


def chain(length: int) -> Executable:
    """Kernels one after another, each of which reads what the one before it makes."""
    with tf.Fusion(f"chain{length}") as fusion:
        tv = tf.define_tensor(list(SHAPE), name="x")
        made: list[list[tf.TensorView]] = []
        for _ in range(length):
            tv = tf.exp(tv)
            made.append([tv])
        fusion.add_output(tv)
    return tf.compile(tf.segment(fusion, made), backend="cuda", specialize=False)


def least(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of each call, all in turn within each round."""
    found = dict.fromkeys(calls, float("inf"))
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            found[name] = min(found[name], (time.perf_counter_ns() - start) / CALLS / 1e3)
    gc.enable()
    return found


def main() -> None:
    """Measure, print and, if asked, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the figures in benchmarks/results/host_time.txt")
    options = parser.parse_args()
    sys.modules["torch"] = torch = Torch()
    kinds = Kinds(Driver(parameter_sizes=(8, 8)))
    arrays.kinds = lambda: kinds
    x, out = (FakeTensor(aligned(SHAPE, "float32")) for _ in range(2))
    calls: dict[str, Callable[[], object]] = {"an empty Python call": lambda: None, "an array of this torch": lambda: torch.empty(SHAPE, "uint8", x.device)}
    for length in LENGTHS:
        run = chain(length)
        for _ in range(3):
            run(x, out=out)
        calls[f"{length} kernel{'s' * (length > 1)}, out="] = lambda run=run: run(x, out=out)
    figures = least(calls)
    one, most = (figures[f"{n} kernel{'s' * (n > 1)}, out="] for n in (2, LENGTHS[-1]))
    each = (most - one) / (LENGTHS[-1] - 2)
    lines = [f"{datetime.date.today()}, {platform.machine()} CPU, one core, Python {platform.python_version()}", "python benchmarks/host_time.py --write", ""]
    lines += [f"microseconds per call, least of {ROUNDS} rounds of {CALLS} calls; float32 {list(SHAPE)}; the driver and torch cost nothing"]
    lines += [f"  {name:40} {us:7.2f}" for name, us in figures.items()]
    lines += [f"a chain: {one - 2 * each:.2f} us and {each:.2f} us for each kernel besides the driver's launch (aim: 1.5)"]
    print("\n".join(lines))
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
