"""What a GPU cannot run is known before there are arrays, where the launch shape is constant."""

import math
import threading
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.cuda import fit, source
from taskfuse.cuda.kernel_interface import KernelInterface, interface_of
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.cuda.resources import Diagnostic, diagnostics
from taskfuse.cuda.signature import Source
from taskfuse.errors import CudaUnavailableError, LaunchError
from taskfuse.kir import parse_kernel
from taskfuse.reports.resources import Resources
from taskfuse.target import H100
from tests.calls import always

COPY = """
KERNEL k(x: float32[{n}, 32]) -> (y: float32[{n}, 32])
  GRID ({grid}) BLOCK (32, {threads}, 1)

y[{row}, threadIdx.x] = copy(x[{row}, threadIdx.x])
"""
MEET = """
KERNEL k(x: float32[{n}, 32]) -> (y: float32[{n}, 32])
  GRID ({n}, 1, 1)  BLOCK (32, 1, 1)
  GLOBAL w: float32[{n}, 32]
  COUNTER written

w[blockIdx.x, threadIdx.x] = square(x[blockIdx.x, threadIdx.x])
SYNC grid written, 32*{n}
y[blockIdx.x, threadIdx.x] = copy(w[(blockIdx.x + 1) % {n}, threadIdx.x])
"""


def compiled_as(monkeypatch: pytest.MonkeyPatch, registers: int) -> None:
    def compiled(text: str, name: str, options: CompileOptions, settings: object) -> Binary:
        assert options.arch == "sm_90"
        return Binary(b"", "", Resources(registers, 0, 0, 0, 0, 1), ())

    monkeypatch.setattr(fit, "compiled", compiled)


def test_what_fits() -> None:
    for text in (COPY.format(n=8, grid="8, 1, 1", threads=1, row="blockIdx.x"), MEET.format(n=64)):
        fit.check_code(interface_of(parse_kernel(text)), H100, None, fast_math=False)


def test_more_blocks_than_a_grid_has(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_as(monkeypatch, 16)
    kernel = parse_kernel(COPY.format(n=65536, grid="1, 65536, 1", threads=1, row="blockIdx.y"))
    with pytest.raises(LaunchError, match="65536 blocks in y; a grid has at most 65535"):
        fit.check_code(interface_of(kernel), H100, None, fast_math=False)


@pytest.mark.parametrize("registers", [64, 66])
def test_more_registers_than_there_are(monkeypatch: pytest.MonkeyPatch, registers: int) -> None:
    compiled_as(monkeypatch, registers)
    kernel = parse_kernel(COPY.format(n=32 * 8, grid="8, 1, 1", threads=32, row="32*blockIdx.x + threadIdx.y"))
    if registers == 64:
        fit.check_code(interface_of(kernel), H100, None, fast_math=False)
    else:
        with pytest.raises(LaunchError, match="no multiprocessor holds a block: 66 registers of each of 1024 threads"):
            fit.check_code(interface_of(kernel), H100, None, fast_math=False)


@pytest.mark.parametrize("blocks", [132 * 32, 132 * 32 + 1])
def test_more_blocks_that_wait_for_each_other_than_are_resident(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    compiled_as(monkeypatch, 16)
    kernel = parse_kernel(MEET.format(n=blocks))
    if blocks == 132 * 32:
        fit.check_code(interface_of(kernel), H100, None, fast_math=False)
    else:
        with pytest.raises(LaunchError, match="its 4225 blocks wait for each other, and H100 holds 4224 of them at once"):
            fit.check_code(interface_of(kernel), H100, None, fast_math=False)


def test_without_a_compiler_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: object) -> Binary:
        raise CudaUnavailableError(what="NVRTC", reason="it is not installed")

    monkeypatch.setattr(fit, "compiled", compiled)
    fit.check_code(interface_of(parse_kernel(MEET.format(n=1 << 20))), H100, None, fast_math=False)


def test_several_kernels_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other to be compiled; what is wrong with one is told by the check alone."""
    both = threading.Barrier(2, timeout=60)
    texts: list[str] = []

    def compile_quietly(text: str, name: str, options: CompileOptions, settings: object) -> Binary:
        assert options.arch == "sm_90"
        both.wait()
        texts.append(text)
        raise CudaUnavailableError(what="NVRTC", reason="it is not installed")

    monkeypatch.setattr(fit, "compile_quietly", compile_quietly)
    monkeypatch.setattr(fit, "free_cores", lambda: 2)
    kernels = [interface_of(parse_kernel(MEET.format(n=n))) for n in (32, 64)]
    fit.Ahead(H100, None, fast_math=False).keep(kernels)
    assert len(set(texts)) == 2
    monkeypatch.setattr(fit, "free_cores", lambda: 1)
    fit.Ahead(H100, None, fast_math=False).keep(kernels)
    assert len(texts) == 2, "one core is no faster with threads"


def test_what_a_search_does_not_take_is_not_compiled_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being compiled goes on; of what waits only the kernels that were chosen are compiled."""
    started, released = threading.Semaphore(0), threading.Event()
    texts: list[str] = []

    def compile_quietly(text: str, name: str, options: CompileOptions, settings: object) -> None:
        texts.append(text)
        started.release()
        assert released.wait(60)

    monkeypatch.setattr(fit, "compile_quietly", compile_quietly)
    monkeypatch.setattr(fit, "free_cores", lambda: 8)
    kernels = [interface_of(parse_kernel(MEET.format(n=n))) for n in (32, 64, 96, 128, 160)]
    ahead = fit.Ahead(H100, None, fast_math=False)
    for kernel in kernels:
        ahead.begin(kernel)
    assert all(started.acquire(timeout=60) for _ in range(fit.BESIDE))
    threading.Timer(0.1, released.set).start()
    ahead.keep([kernels[0], *kernels[3:]])
    assert [sum(str(n) in text for text in texts) for n in (96, 128, 160)] == [0, 1, 1]


def test_a_text_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling ahead, looking at the code and counting its registers, of one interface."""
    printed, emit = list[str](), source.emit

    def noted(kernel: tf.Kernel, *options: Any) -> Source:
        printed.append(kernel.name)
        return emit(kernel, *options)

    monkeypatch.setattr(source, "emit", noted)
    monkeypatch.setenv("TASKFUSE_CACHE_BYTES", "0")
    compiled_as(monkeypatch, registers=32)
    monkeypatch.setattr(fit, "compile_quietly", fit.compiled)
    monkeypatch.setattr(fit, "free_cores", always(2))
    kernels = [interface_of(parse_kernel(MEET.format(n=n))) for n in (32, 64)]
    fit.Ahead(H100, None, fast_math=False).keep(kernels)
    for own in kernels:
        fit.check_code(own, H100, None, fast_math=False)
        assert fit.lost_registers(own, H100, None, fast_math=False) == 0
    assert len(printed) == 2


def test_what_is_refused_drops_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search goes on, where a GPU is to run it."""
    asked: list[str] = []

    def refuse(interface: KernelInterface, target: tf.Target, arch: str | None, fast_math: bool) -> None:
        asked.append(interface.head.name)
        if len(asked) == 1:
            raise fit.refused(interface.head, "it is too large")

    monkeypatch.setattr(fit, "check_code", refuse)
    with tf.Fusion("doubled") as fusion:
        fusion.add_output(tf.define_tensor([64, 64], name="x") * 2.0)
    schedule = tf.compile(fusion, "cuda", target="H100").schedule
    assert schedule is not None
    assert "it is too large" in schedule.explain()
    assert len(asked) == 2
    tf.compile(fusion, "sim")
    assert len(asked) == 2


@pytest.mark.parametrize("of_registers", [False, True])
def test_machine_code_that_loses_registers(monkeypatch: pytest.MonkeyPatch, of_registers: bool) -> None:
    said = (Diagnostic("something", of_registers=of_registers),)
    monkeypatch.setattr(fit, "compile_quietly", always(Binary(b"", "", None, said)))
    kernel = parse_kernel(COPY.format(n=8, grid="8, 1, 1", threads=1, row="blockIdx.x"))
    assert fit.lost_registers(interface_of(kernel), H100, None, fast_math=False) == (math.inf if of_registers else 0)


def test_machine_code_that_spills_and_has_arrays_in_local_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = Resources(64, 0, 148, 40, 44, 0, local_arrays=108)
    monkeypatch.setattr(fit, "compile_quietly", always(Binary(b"", "", resources, diagnostics("", resources))))
    kernel = parse_kernel(COPY.format(n=8, grid="8, 1, 1", threads=1, row="blockIdx.x"))
    assert fit.lost_registers(interface_of(kernel), H100, None, fast_math=False) == 192
