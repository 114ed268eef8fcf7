"""Targets: which one a GPU is, what follows from it, and that everything that depends on a machine hears of it."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import taskfuse as tf
import taskfuse.target
from taskfuse.errors import LoweringError, UnsupportedError
from taskfuse.lowering import LoweringOptions
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import (
    A100,
    DEFAULT,
    H100,
    H200,
    LIMITS,
    MAX_GRID,
    MBARRIER_COUNT,
    PLAIN_SHARED,
    REGISTERS,
    TARGETS,
    THREAD_REGISTERS,
    TMA_STRIDE,
    as_target,
    capability,
    target_of,
)


@pytest.mark.parametrize(
    ("name", "arch", "target"),
    [
        ("NVIDIA H200", "sm_90", H200),
        ("NVIDIA H100 80GB HBM3", "sm_90", H100),
        ("NVIDIA A100-SXM4-80GB", "sm_80", A100),
        ("NVIDIA GH200 480GB", "sm_90", H200),
        ("NVIDIA GeForce RTX 4090", "sm_89", DEFAULT),
    ],
)
def test_the_target_of_a_gpu(name: str, arch: str, target: tf.Target) -> None:
    assert target_of(name, arch) is target


def test_names_and_architectures() -> None:
    assert as_target("h100") is H100
    assert as_target("sm_80") is A100
    assert as_target(H200) is H200
    with pytest.raises(UnsupportedError, match="target 'H300' is not supported: there is no such target"):
        as_target("H300")
    with pytest.raises(UnsupportedError, match="its limits are not known"):
        capability("sm_77")
    with pytest.raises(UnsupportedError, match="its limits are not known"):
        replace(H200, arch="sm_77")


@pytest.mark.parametrize("target", [5, "H300"])
def test_what_is_no_target(target: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: tf.compile(product(), "sim", target=target),
        lambda: tf.schedulers.matmul(product(), target=target),
        lambda: tf.schedulers.auto(product(), target=target),
        lambda: tf.horizontal_cost([product(), product()], target=target),
        lambda: LoweringOptions(target=target),
    ]
    for call in calls:
        with pytest.raises(UnsupportedError, match=r"^target (5|'H300') is not supported: "):
            call()


def test_instructions_of_one_architecture_and_of_all_later_ones() -> None:
    assert H200.has(90, feature=True)
    assert not A100.has(90)
    assert H200.has(80)
    assert not H200.has(80, feature=True)


def test_rows_are_possible() -> None:
    for t in TARGETS.values():
        assert t.limits is LIMITS[t.capability]
        assert t.limits.block_shared < t.limits.shared
        assert t.dram_bytes_per_us < t.l2_bytes_per_us < t.sms * t.shared_bytes_per_cycle * t.clock_mhz


def product() -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        a, b = (tf.define_tensor([512, 512], dtype=tf.float16, name=name) for name in "ab")
        fusion.add_output(tf.matmul(a, b))
    return fusion


def test_a_target_without_wgmma_gets_a_schedule_without() -> None:
    assert choose_segments(product()).steps[0].schedule.scheduler == "matmul"
    found = choose_segments(product(), target=A100).steps[0].schedule
    assert found.scheduler != "matmul"
    assert "which only sm_90a has; A100 is sm_80" in dict(found.refused)["matmul"]
    run = tf.compile(product(), "sim", target="A100")
    assert run.kernel.ptx("sm_80")


def test_a_block_has_as_much_shared_memory_as_the_target() -> None:
    def fusion() -> tf.Fusion:
        with tf.Fusion("large") as made:
            x = tf.define_tensor([200, 1024], dtype=tf.int8, name="x")
            staged = tf.copy(x)
            made.add_output(tf.copy(staged))
        staged.set_memory_type(tf.MemoryType.Shared)
        return made

    tf.lower(fusion(), LoweringOptions(target=H200))
    with pytest.raises(LoweringError, match="a block would need 204800 bytes; sm_80 has 166912"):
        tf.lower(fusion(), LoweringOptions(target=A100))


def test_figures_decide() -> None:
    """A machine with a fifth of the bandwidth expects five times the time of what only moves bytes."""

    def us(target: tf.Target) -> float:
        with tf.Fusion("pointwise") as fusion:
            x = tf.define_tensor([1 << 26], name="x")
            fusion.add_output(x + 1.0)
        return choose_segments(fusion, target=target).us - target.launch_us

    assert us(replace(H200, dram_bytes_per_us=H200.dram_bytes_per_us / 5)) == pytest.approx(5 * us(H200))


def test_bytes_and_instructions_take_time() -> None:
    assert H200.dram_us(4.3e6) == 1
    assert H200.dram_us(4.3e6, 0.5) == 2
    assert H200.issue_us(128 * 132 * 1700) == 1
    assert H200.issue_us(128 * 1700, 1) == 1
    assert A100.dram_us(1.8e6) == A100.issue_us(128 * 108 * 1410) == 1
    assert H200.tensor_us(2048 * 132 * 1700, 2) == 1


def test_a_kernel_takes_its_launch_and_the_longest() -> None:
    assert H200.kernel_us(3.0, 7.0, 5.0) == 7.0 + H200.launch_us
    assert H200.alone_us(3.0, 7.0) == 8.0 + H200.launch_us
    assert replace(H200, launch_us=1.0).kernel_us(3.0) == 4.0


@pytest.mark.parametrize(("threads", "share"), [(0, 0.0), (132 * 512, 0.5), (132 * 1024, 1.0), (10**9, 1.0)])
def test_few_threads_leave_bandwidth(threads: int, share: float) -> None:
    assert H200.fill(threads) == share


FIGURES = {
    *(float(value) for t in TARGETS.values() for f in fields(t) if isinstance(value := getattr(t, f.name), int | float)),
    *(float(n) for limits in LIMITS.values() for n in (limits.shared, limits.block_shared)),
    *map(float, (REGISTERS, PLAIN_SHARED, THREAD_REGISTERS, MBARRIER_COUNT, TMA_STRIDE, MAX_GRID[1])),
}
"""Numbers of machines. Those that are small, round or powers of two stand for much else."""
OTHERS = {("schedulers/config.py", 132.0), ("check/magnitudes.py", 2.0**40)}
"""Registers of a thread; numbers whose products with others fit 64 bits."""


def numbers(tree: ast.AST) -> Iterator[float]:
    """The literals of a module, and what arithmetic of literals gives."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield float(value)
            case ast.BinOp(left=ast.Constant(value=int() as a), op=ast.Mult() | ast.LShift() | ast.Pow(), right=ast.Constant(value=int() as b)) if b < 1 << 20:
                yield float(a << b if isinstance(node.op, ast.LShift) else a**b if isinstance(node.op, ast.Pow) else a * b)
            case _:
                pass


def elsewhere(name: str, source: str) -> list[float]:
    distinct = {n for n in FIGURES if n > 100 and n not in {2000, *(2.0**k for k in range(30))}}
    return [n for n in numbers(ast.parse(source)) if n in distinct and (name, n) not in OTHERS]


def test_figures_of_machines_have_one_home() -> None:
    package = Path(tf.__file__).parent
    own = package / "target.py"
    paths = [p for p in package.rglob("*.py") if p != own and not p.is_relative_to(package / "testing")]
    found = {name: n for p in paths if (n := elsewhere(name := p.relative_to(package).as_posix(), p.read_text(encoding="utf-8")))}
    assert found == {}, "take them from taskfuse.target"


def measured(source: str) -> list[str]:
    """Constants of a module that repeat one of :mod:`taskfuse.target`, and those whose docstring tells of a GPU or of a benchmark."""
    found: list[str] = []
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
                repeats = hasattr(taskfuse.target, name) and isinstance(value, ast.Constant)
                if repeats or re.search(r"\b([HA][12]00|benchmarks/)", str(text)):
                    found.append(name)
            case _:
                pass
    return found


def test_what_was_measured_is_a_figure_of_the_target() -> None:
    package = Path(tf.__file__).parent
    homes = {package / "target.py", package / "figures.py"}
    paths = [p for p in package.rglob("*.py") if p not in homes]
    found = {p.relative_to(package).as_posix(): names for p in paths if (names := measured(p.read_text(encoding="utf-8")))}
    assert found == {}, "make it an attribute of a class of taskfuse/figures.py, or say what it is if no machine decides"


@pytest.mark.parametrize(
    "source",
    [
        "WARP = 32",
        "WARP: Final = 32",
        'REACHED: Final = 0.85\n"""Of the rate, on an H200."""',
        'SHARE = {1: 0.5}\n"""``benchmarks/online.py``."""',
    ],
)
def test_a_measured_constant_elsewhere_is_found(source: str) -> None:
    assert measured(source)


def test_other_constants_are_not_found() -> None:
    assert measured('WARP = warp()\nLEAST = 16\n"""Choices from which on a copy pays."""\n"""On an H100."""') == []


@pytest.mark.parametrize("source", ["LIMIT = 227 * 1024", "x = 232448", "f(228 << 10)", "MHZ = 1700", "BYTES = 4.3e6", "sms = 132", "return min(n, 255)"])
def test_a_figure_elsewhere_is_found(source: str) -> None:
    assert elsewhere("schedulers/cost.py", source)
