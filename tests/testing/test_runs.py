"""Kernels whose PTX is run: a sample of the campaign, and what it tells of a mistake of the printer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from taskfuse.cuda.signature import Source as CudaSource
from taskfuse.cuda.source import emit
from taskfuse.dtypes import float32
from taskfuse.kir import Kernel
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.testing import runs
from taskfuse.testing.chains import chain
from taskfuse.testing.runs import End, KernelSource, RunRow, RunTally, difference, look, main, mismatch, variant
from taskfuse.testing.tolerance import Accepted


@pytest.mark.parametrize("source", [KernelSource.CHAINS, KernelSource.NARROW, KernelSource.FUSIONS])
def test_a_sample(source: KernelSource) -> None:
    tally = RunTally()
    for seed in range(3, 11):
        for row in look(source, seed):
            tally.add(row)
    assert not tally.wrong, tally.wrong
    assert not tally.unknown
    assert tally.rows >= 5


def test_a_mistake_of_the_printer_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs whose halves are in the wrong order."""

    def wrong(kernel: Kernel, of: Variant | None = None) -> CudaSource:
        source = emit(kernel, of)
        return replace(source, text=source.text.replace("(word >> 8 * sizeof(T) * i)", "(word >> 8 * (4 - sizeof(T) * (i + 1)))"))

    monkeypatch.setattr(runs, "emit", wrong)
    assert main(["--kernels", "chains", "--seed", "29", "--cases", "1"]) == 1
    said = capsys.readouterr().out
    assert re.match(r"WRONG python -m taskfuse\.testing\.runs --kernels chains --seed 29 --cases 1 \(chains\)\n  b\d: \d+ of \d+ elements are wrong", said)
    assert said.splitlines()[-3] == "1 kernels, 1 wrong"


def test_what_is_not_known_is_told_and_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def other(kernel: Kernel, of: Variant | None = None) -> CudaSource:
        source = emit(kernel, of)
        return replace(source, text=source.text.replace("  wait_for_stream();\n", '  asm volatile("nanosleep.u32 1;");\n'))

    monkeypatch.setattr(runs, "emit", other)
    assert main(["--kernels", "chains", "--cases", "1"]) == 0
    assert "       1 not known: nanosleep.u32: an instruction that is not known\n" in capsys.readouterr().out


def test_differences() -> None:
    a = np.array([1.0, np.nan, -0.0], np.float32)
    assert difference(a, np.array([1.0, np.nan, 0.0], np.float32)) is None
    assert difference(a, np.array([1.0, 2.0, 3.0], np.float32)) == "2 of 3 elements are wrong, the first at [1]: nan, not 2.0"
    assert difference(a, a.astype(np.float64)) == "float32[3], not float64[3]"


def test_bounds_in_place_of_equality() -> None:
    kernel = chain(1).kernel
    results = [np.ones(int(np.prod([int(str(e)) for e in p.shape])), np.float32) for p in kernel.outputs]
    near = [r + np.float32(2.0**-20) for r in results]
    assert mismatch(kernel, results, results) is None
    assert mismatch(kernel, near, results) is not None
    wide = [Accepted(float32, r - 1e-4, r + 1e-4, np.ones(r.shape, np.bool_)) for r in results]
    assert mismatch(kernel, near, results, wide) is None
    assert "elements are wrong" in str(mismatch(kernel, [r + 1 for r in results], results, wide))


def test_seeds_take_turns() -> None:
    assert [KernelSource.ALL.of(seed) for seed in range(3)] == [KernelSource.CHAINS, KernelSource.NARROW, KernelSource.FUSIONS]
    assert KernelSource.NARROW.of(0) is KernelSource.NARROW
    found = Counter(form for seed in range(40) for form in variant(chain(1).kernel, seed).forms)
    assert min(found[form] for form in ArgumentLayout) >= 5
    assert any(variant(chain(1).kernel, seed).wide for seed in range(40))


def test_a_tally_counts_ends() -> None:
    tally = RunTally()
    for end in End:
        tally.add(RunRow(0, "chains", "", end.value, True, "PTX line 7: a.b: what it does is not known; thread 0"))
    assert str(tally).splitlines() == [
        *(f"{1:8} chains   {end}, exact" for end in sorted(e.value for e in End)),
        "       1 not known: a.b: what it does is not known",
        "5 kernels, 1 wrong",
    ]
