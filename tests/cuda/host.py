"""Device code on the host: the C++ compiler of this machine runs what needs no GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER = shutil.which("g++") or shutil.which("clang++")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")

SHIM = """\
#include <cstdio>
#include <cstdlib>
#define __device__
#define __forceinline__ inline
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
"""


def run(folder: Path, text: str) -> str:
    """What the program ``text`` (with :data:`SHIM` before it) prints; signed overflow ends it with an error."""
    assert COMPILER is not None
    source, program = folder / "program.cpp", folder / "program"
    source.write_text(SHIM + text, encoding="utf-8")
    subprocess.run([COMPILER, "-std=c++17", "-O0", "-ftrapv", "-w", "-o", str(program), str(source)], check=True, timeout=300)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=60).stdout
