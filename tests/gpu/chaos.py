"""``python -m tests.gpu.chaos``: random kernels of roles, launched a thousand times each while every warp is delayed at random.

Debug builds with ``TASKFUSE_CHAOS``: around each wait, arrival, barrier and copy a warp sleeps for up to four microseconds, another time in
each launch. Every launch writes poisoned outputs, which must be the simulator's where the fusion is exact, and those of the first launch in any
case. A wait that never ends is reported, not waited for. Kernels that the static proof leaves open are launched, too; those that it refutes are failures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import torch

import taskfuse as tf
from taskfuse.errors import LaunchError, RegisterError, TaskfuseError, TaskfuseWarning
from taskfuse.kir import walk
from taskfuse.kir.synchronization import Wait
from taskfuse.reports.certificate import Verdict
from taskfuse.testing import seeded_case
from taskfuse.testing.options import Mix
from taskfuse.testing.tolerance import is_exact
from tests.gpu.device import poisoned, same, to_device, to_numpy

Result = tuple[int, str | None, bool]


def check(seed: int, mix: Mix, launches: int) -> Result:
    """The seed, what went wrong, and whether its kernel has waits at all."""
    case = seeded_case(seed, mix)
    if case.kernel is None or not any(isinstance(s, Wait) for s in walk(case.kernel)):
        return seed, None, False
    os.environ["TASKFUSE_CHAOS"] = str(seed)
    arguments = case.arguments()
    exact = is_exact(case.fusion)
    first: list[torch.Tensor] | None = None
    try:
        simulated = case.kernel.simulate(*arguments, seed=seed)
        given = [to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TaskfuseWarning)
            verdict = case.kernel.verify().verdict
            if verdict is Verdict.REFUTED:
                return seed, "the static proof refutes it", True
            run = tf.compile(case.kernel, backend="cuda", debug=True, unsafe=verdict is not Verdict.PROVED)
            for launch in range(launches):
                outs = tuple(poisoned(out.shape, tv.dtype) for out, tv in zip(simulated, case.fusion.outputs, strict=True))
                run(*given, out=outs)
                bits = [out.reshape(1).view(torch.uint8) if out.ndim == 0 else out.view(torch.uint8) for out in outs]
                if first is None:
                    first = bits
                    if exact and not all(same(to_numpy(out), ref) for out, ref in zip(outs, simulated, strict=True)):
                        return seed, "the first launch is not what the simulator gives", True
                elif not all(bool((a == b).all()) for a, b in zip(first, bits, strict=True)):
                    return seed, f"launch {launch} differs from the first", True
    except RegisterError:  # an instruction that needs more registers than a block of this many threads has
        return seed, None, False
    except LaunchError as error:
        return seed, None if "TMA cannot" in str(error) else f"{type(error).__name__}: {error}", "TMA cannot" not in str(error)
    except (TaskfuseError, RuntimeError) as error:
        return seed, f"{type(error).__name__}: {error}", True
    return seed, None, True


def main() -> int:
    """Check kernels of consecutive seeds in a pool of processes. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=200, help="how many kernels with waits (default: 200)")
    parser.add_argument("--launches", type=int, default=1000, help="of each (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.PIPELINES.value, help="what kind of cases (default: pipelines)")
    parser.add_argument("--jobs", type=int, default=12, help="processes (default: 12)")
    options = parser.parse_args()
    start = time.monotonic()
    failures: list[str] = []
    launched = 0
    work = partial(check, mix=Mix(options.mix), launches=options.launches)
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for seed, failure, has_waits in pool.map(work, range(options.seed, options.seed + 2 * options.kernels)):
            launched += has_waits and launched < options.kernels
            if failure is not None:
                failures.append(f"FAILED python -m tests.gpu.chaos --mix {options.mix} --seed {seed} --kernels 1: {failure}")
    print("\n".join([*failures, f"{launched} kernels, {options.launches} launches each, {len(failures)} failures, {time.monotonic() - start:.0f} s"]))
    return 1 if failures or not launched else 0


if __name__ == "__main__":
    sys.exit(main())
