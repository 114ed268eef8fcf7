"""Random kernels on the GPU, against the simulator and NumPy. ``python -m tests.gpu.random_kernels`` runs as many as wanted.

A fusion of exact functions must give what the simulator gives, bit by bit: a kernel states the order of every sum. Other fusions must stay
where NumPy's own results lie when its functions are off by a few ulp (:mod:`taskfuse.testing.tolerance`). Outputs are given, poisoned; every other one with
gaps between its elements, which must stay as they were.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

import taskfuse as tf
from taskfuse.errors import LaunchError, RegisterError, TaskfuseError, TaskfuseWarning
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.testing import seeded_case
from taskfuse.testing.case import Case
from taskfuse.testing.options import Mix
from taskfuse.testing.tolerance import accepted, is_exact
from tests.gpu.device import Array, gaps, poisoned, same, to_device, to_numpy

LAUNCHES = 3  # of each kernel


@dataclass(frozen=True)
class Verdict:
    """What came of a seed: ``failure`` is None if all was well; ``checked`` is false if the case does not lower."""

    seed: int
    checked: bool
    failure: str | None = None


def check_seed(seed: int, mix: Mix = Mix.MIXED) -> Verdict:
    """Compile the kernel of a seed, launch it and compare."""
    case = seeded_case(seed, mix)
    if case.kernel is None:
        return Verdict(seed, checked=False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*registers spill", TaskfuseWarning)  # slow, not wrong
            failure = _check(case, case.kernel, seed)
    except RegisterError:  # an instruction that needs more registers than a block of this many threads has
        return Verdict(seed, checked=False)
    except LaunchError as error:
        if "TMA cannot" in str(error):  # rows of a random argument that the copy engine cannot take
            return Verdict(seed, checked=False)
        failure = f"{type(error).__name__}: {error}"
    except (TaskfuseError, RuntimeError) as error:
        failure = f"{type(error).__name__}: {error}"
    if failure is None:
        return Verdict(seed, checked=True)
    command = f"python -m tests.gpu.random_kernels --mix {mix.value} --seed {seed} --cases 1"
    return Verdict(seed, checked=True, failure=f"FAILED {command}\n{failure}\n\n{case.report()}")


def _check(case: Case, kernel: tf.Kernel, seed: int) -> str | None:
    arguments = case.arguments()
    simulated = kernel.simulate(*arguments, seed=seed)
    wanted = accepted(case.fusion, arguments)
    exact = is_exact(case.fusion)
    run = tf.compile(kernel, backend="cuda")
    strided = not any(isinstance(p, TensorMapParam) for p in kernel.params)  # the copy engine takes outputs as they are
    given = [to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    for launch in range(LAUNCHES):
        step = 1 + (seed + launch) % 2 if strided else 1
        outs = tuple(poisoned(out.shape, tv.dtype, step) for out, tv in zip(simulated, case.fusion.outputs, strict=True))
        run(*given, out=outs)
        for tv, out, reference, bound in zip(case.fusion.outputs, outs, simulated, wanted, strict=True):
            found = to_numpy(out)
            if exact and not same(found, reference):
                return f"launch {launch}: {tv.name} is not what the simulator gives\n{_first(found, reference)}"
            wrong = bound.wrong(found)
            if len(wrong):
                at = tuple(int(k) for k in wrong[0])
                return f"launch {launch}: {len(wrong)} of {found.size} of {tv.name} are wrong, {at}: {found[at]}, not {bound.low[at]} to {bound.high[at]}"
            if step > 1 and out.numel() and out.ndim and not bool((gaps(out, step) == (255 if out.element_size() == 1 else -1)).all()):
                return f"launch {launch}: {tv.name} was written between its elements"
    return None


def _first(found: Array, reference: Array) -> str:
    wrong = np.argwhere((found != reference) & ~((found != found) & (reference != reference)))
    at = tuple(int(k) for k in wrong[0])
    return f"{len(wrong)} of {found.size} elements differ, the first at {at}: {found[at]!r}, simulated {reference[at]!r}"


def main() -> int:
    """Check the kernels of consecutive seeds in a pool of processes. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.random_kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=800, help="how many seeds (default: 800, of which about three in four lower)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.MIXED.value, help="what kind of cases (default: mixed)")
    parser.add_argument("--jobs", type=int, default=8, help="processes, each with a context of its own on the GPU (default: 8)")
    options = parser.parse_args()
    start = time.monotonic()
    seeds = range(options.seed, options.seed + options.cases)
    mixes = [Mix(options.mix)] * len(seeds)
    if len(seeds) == 1:
        verdicts = [check_seed(options.seed, mixes[0])]
    else:
        # spawned: a context does not survive a fork
        with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            verdicts = list(pool.map(check_seed, seeds, mixes, chunksize=8))
    failures = [v.failure for v in verdicts if v.failure]
    print("\n".join(failures[:5]))
    checked = sum(v.checked for v in verdicts)
    print(f"{len(seeds)} seeds, {checked} kernels checked on {torch.cuda.get_device_name()}, {len(failures)} failures, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
