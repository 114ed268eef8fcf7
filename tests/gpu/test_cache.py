"""A process finds on disk what another one compiled."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

PROGRAM = """
import torch
import taskfuse as tf
from taskfuse.cuda import cache
from examples import founding

compiled = []
original = cache.compile_cubin
def counted(*arguments):
    compiled.append(arguments[1])
    return original(*arguments)
cache.compile_cubin = counted
x = torch.ones(64, 5, 8, device="cuda")
(out,) = tf.compile(founding.build(), backend="cuda")(x)
print(len(compiled), float(out.double().sum()))
"""
ROOT = Path(__file__).parents[2]


def run(cache: Path) -> list[str]:
    command = ["env", f"TASKFUSE_CACHE_DIR={cache}", f"PYTHONPATH={ROOT}", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert [first[0], second[0]] == ["1", "0"]
    assert first[1] == second[1]


def test_a_damaged_entry_is_rebuilt(tmp_path: Path) -> None:
    first = run(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 0x10
            path.write_bytes(content)
    assert run(tmp_path) == first
