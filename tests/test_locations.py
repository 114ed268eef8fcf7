"""Every statement of a kernel that was lowered from a fusion comes from a line of the user's, and no pass loses it."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import taskfuse as tf
from examples import gemm
from taskfuse import ParallelType as P
from taskfuse.cli.load import EXAMPLES, load
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.scalar import const, substitute
from taskfuse.kir import map_expressions, map_stmts, specialized, stmt_text, walk
from taskfuse.kir.nodes import Bind, Compute, For, If, Stmt, VectorCopy
from taskfuse.kir.synchronization import Arrive, Wait
from taskfuse.location import Location
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.testing.options import OPTIONS, Mix
from tests.lines import line_of
from tests.random_cases import PAIRS, random_case_of
from tests.schedulers.back_to_backs import of_queries
from tests.schedulers.convolutions import Convolution


def without_line(kernel: tf.Kernel) -> list[str]:
    return [stmt_text(s, kernel) for s in walk(kernel) if s.location is None]


# -- none is without ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.py")))
def test_every_statement_of_an_example_has_a_line_of_it(name: str) -> None:
    for program in load(str(EXAMPLES / f"{name}.py")):
        kernel = program.kernel()
        assert without_line(kernel) == []
        assert {Path(s.location.file).stem for s in walk(kernel) if s.location is not None} == {name}


@pytest.mark.parametrize("mix", [m for m in Mix if m in OPTIONS], ids=lambda m: m.value)
def test_every_statement_of_a_random_kernel_has_a_line(mix: Mix) -> None:
    kernels = [k for seed in PAIRS[mix] if (k := random_case_of(seed, mix).kernel) is not None]
    assert kernels
    for kernel in kernels:
        assert without_line(kernel) == []


def product(m: int, n: int, k: int, dtype: tf.DType) -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([m, k], dtype=dtype), tf.define_tensor([n, k], dtype=dtype)
        fusion.add_output(tf.matmul(a, b.T, dtype=tf.float64 if dtype is tf.float64 else tf.float32))
    return fusion


SPECIAL: dict[str, Callable[[], tf.Fusion]] = {
    "a causal walk": lambda: of_queries(is_causal=True),
    "a convolution": Convolution(2, 16, 16, (6, 6), (3, 3), padding=1).fusion,
    "float64": lambda: product(64, 64, 64, tf.float64),
    "packed factors": lambda: product(33, 65, 63, tf.bfloat16),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_every_statement_of_a_special_product_has_a_line(name: str) -> None:
    for step in choose_segments(SPECIAL[name]()).steps:
        assert without_line(tf.lower(step.fusion)) == []


# -- which line ---------------------------------------------------------------------------------------------------------------------------


def test_which_line_a_statement_comes_from() -> None:
    kernel = tf.lower(gemm.build())
    lines: dict[str, set[int]] = {}
    for s in walk(kernel):
        assert s.location is not None
        lines.setdefault(stmt_text(s, kernel), set()).add(s.location.line)

    def of(start: str) -> set[int]:
        return set[int]().union(*(found for text, found in lines.items() if text.startswith(start)))

    def at(text: str) -> set[int]:
        return {line_of(text, gemm.build)}

    operands, product, result, store = at("a_s, b_s = "), at("acc = tf.matmul"), at("d = tf.cast"), at("d_s = d.cache_before")
    assert of("WGMMA") == of("FENCE wgmma") == of("COMMIT wgmma") == of("WAIT_GROUP wgmma <= 0") == product  # what it computes
    assert of("WAIT_GROUP wgmma <= 1") == operands  # it goes before a slot is given back
    assert of("tv5 = add") == at("total = acc + bias")
    assert of("tv6 = relu") == at("positive = tf.relu")
    assert of("COPY tv12[0] <- bias") == at("bias_r = bias.cache_after()")
    assert of("STMATRIX") == of("FENCE proxy.async") == of("tv10.ring") == store
    assert of("TMA tv7.map") == of("COMMIT bulk") == of("WAIT_GROUP bulk <= 0") == result
    ring = ("TMA tv8", "TMA tv9", "EXPECT ch0", "WAIT ch0", "ARRIVE ch0", "INIT ch0", "ch0.p", "ch0.c", "FENCE mbarrier_init", "SYNC block")
    assert set[int]().union(*map(of, ring)) == operands  # a barrier, a cursor: the first tensor of its ring
    assert of("SYNC named") == store  # a barrier: the tensor that crosses it
    assert of("FOR i16 in") == operands | product  # a loop: the first tensor in it, in each role
    assert of("IF threadIdx.y == 0") == at("fusion.group([load, consumer]")  # a dispatch: its group
    assert lines["SETMAXNREG 24"] == {line_of("load, mma, epilogue = ", gemm.build)}  # a budget: its role
    assert lines["SETMAXNREG 240"] == {line_of("consumer = ", gemm.build)}


def test_a_reduction_joins_its_parts_on_its_own_line() -> None:
    with tf.Fusion("sums") as fusion:
        x = tf.define_tensor(["N", 256], name="x")
        y = x * 2.0
        total = tf.sum(y, axis=1)
        fusion.add_output(total)
    for tv in (y, total):
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    y.inline_at(1)
    kernel = tf.lower(fusion)
    here = test_a_reduction_joins_its_parts_on_its_own_line
    assert without_line(kernel) == []
    assert {(s.location.line, s.location.column) for s in walk(kernel) if s.location is not None} == {
        (line_of("y = x * 2.0", here), 12),
        (line_of("total = tf.sum", here), 16),
    }
    assert all(s.location == total.location for s in walk(kernel) if stmt_text(s, kernel).startswith(("SHUFFLE", "SYNC")))


def test_a_task_that_nobody_made_comes_from_its_first_tensor() -> None:
    with tf.Fusion("two") as fusion:
        x = tf.define_tensor([64], name="x")
        a = tf.exp(x)
        b = tf.sin(x)
        fusion.add_output(a)
        fusion.add_output(b)
    for tv in (a, b):
        tv.axis(0).parallelize(P.TIDx)
    fusion.group([fusion.task([a])]).parallelize(P.TIDy)
    kernel = tf.lower(fusion)
    assert without_line(kernel) == []


def test_a_fusion_that_was_read_is_its_own_place() -> None:
    text = str(gemm.build())
    for fusion, file in ((tf.parse_fusion(text), "<fusion text>"), (parse_fusion(text, "gemm.fusion"), "gemm.fusion")):
        kernel = tf.lower(fusion)
        assert {s.location.file for s in walk(kernel) if s.location is not None} == {file}
        assert without_line(kernel) == []
        for start, name in (("WGMMA", "tv4"), ("STMATRIX", "tv10"), ("SETMAXNREG 240", "group consumer")):
            (line,) = {s.location.line for s in walk(kernel) if s.location is not None and stmt_text(s, kernel).startswith(start)}
            assert text.split("\n")[line - 1].lower().startswith(name)


# -- kept ---------------------------------------------------------------------------------------------------------------------------------


def lines(kernel: tf.Kernel) -> list[Location | None]:
    return [s.location for s in walk(kernel)]


def test_a_line_is_no_part_of_what_a_statement_is() -> None:
    kernel = tf.lower(gemm.build())
    bare = replace(kernel, body=map_stmts(kernel.body, lambda s: replace(s, location=Location("elsewhere.py", 1))))
    assert lines(bare) != lines(kernel)
    assert bare == kernel
    assert hash(bare) == hash(kernel)
    assert str(bare) == str(kernel)
    assert bare.text(witness=True) == kernel.text(witness=True)
    assert all("location" not in repr(s) for s in walk(kernel))


def test_passes_keep_lines() -> None:
    kernel = tf.lower(gemm.build())
    known = {id(s.location) for s in walk(kernel)}
    at = specialized(kernel, {"M": 256, "N": 256, "K": 128})
    same = replace(kernel, body=map_stmts(kernel.body, lambda s: map_expressions(s, lambda e: substitute(e, {}))))
    assert lines(same) == lines(kernel)
    assert {id(s.location) for s in walk(at)} == known  # the same objects: a kernel has few lines
    assert without_line(at) == []


def test_a_pass_that_makes_new_statements_cannot_lose_the_line() -> None:
    kernel = tf.lower(gemm.build())

    def unrolled(s: Stmt) -> Stmt | tuple[Stmt, ...]:
        match s:
            case For(body=body, unroll=True):
                return (Bind(const(0), P.TIDx, const(1), body), For("new", const(0), const(1), const(1), False, body))
            case Wait():
                return (Arrive(s.barrier), Wait(s.barrier, s.parity))
            case _:
                return s

    made = replace(kernel, body=map_stmts(kernel.body, unrolled))
    assert sum(1 for _ in walk(made)) > sum(1 for _ in walk(kernel))
    assert without_line(made) == []
    arrivals = [s for s in walk(made) if isinstance(s, Arrive) and s.barrier.name == "ch0.full"]
    assert {s.location.line for s in arrivals if s.location is not None} == {line_of("a_s, b_s = ", gemm.build)}


def test_a_pickled_kernel_keeps_them() -> None:
    kernel = tf.lower(gemm.build())
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    assert lines(again) == lines(kernel)


def test_kernels_that_nobody_lowered_have_none() -> None:
    kernel = tf.parse_kernel(str(tf.lower(gemm.build())))
    assert set(lines(kernel)) == {None}
    assert len(without_line(kernel)) > 50
    assert any(isinstance(s, Compute | VectorCopy | If) for s in walk(kernel))
