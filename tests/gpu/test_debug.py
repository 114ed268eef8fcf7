"""Debug builds of kernels in which an arrival was taken away report who waits where; each in a process of its own, as its context is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import torch
import taskfuse as tf
from taskfuse.errors import TaskfuseError
from tests.sim.kernels import load, without

name, line, *shape = sys.argv[1:]
kernel = tf.parse_kernel(without(load(name), line))
run = tf.compile(kernel, backend="cuda", debug=True, unsafe=True)
dtype = torch.bfloat16 if name == "gemm" else torch.float32
args = [torch.zeros(tuple(map(int, s.split("x"))), dtype=dtype, device="cuda") for s in shape]
try:
    run(*args)
    torch.cuda.synchronize()
except TaskfuseError as error:
    print(error)
    sys.exit(3)
"""
# Once one role waits in vain, so does the other: which of the two reports is a matter of time.
FAULTS = {
    "the producer never arrives": ("ring", "ARRIVE full", ("9x32",), [("consumer", "full[0]", "parity 0"), ("producer", "empty[0]", "parity 0")]),
    "the consumer never arrives": ("ring", "ARRIVE empty", ("9x32",), [("producer", "empty[0]", "parity 0"), ("consumer", "full[0]", "parity 1")]),
    "the producer's block never releases": (
        "blocks",
        "RELEASE full",
        ("2x9x4",),
        [("low", "full[0]", "phase 0"), ("high", "full[0]", "phase 0"), ("producer", "empty[0]", "phase 0")],
    ),
    "the copy is never issued": ("double", "TMA s[0, 0]", ("8x32",), [("the kernel", "full[0]", "parity 0")]),
    "the slots of a gemm are never released": (
        "gemm",
        "ARRIVE empty",
        ("128x520", "128x520"),
        [("load", "empty[0]", "parity 0"), ("consumer", "full[0]", "parity 1")],
    ),
    "the bytes of a gemm are never expected": (
        "gemm",
        "EXPECT full",
        ("128x520", "128x520"),
        [("consumer", "full[0]", "parity 0"), ("load", "empty[0]", "parity 0")],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_deadlock_is_reported(fault: str, request: pytest.FixtureRequest) -> None:
    name, line, shapes, reports = FAULTS[fault]
    if name == "gemm":
        request.getfixturevalue("hopper")
    command = ["env", "TASKFUSE_WATCHDOG_MS=300", f"PYTHONPATH={ROOT}", sys.executable, "-c", PROGRAM, name, line, *shapes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    assert any(all(word in done.stdout for word in report) for report in reports), done.stdout
