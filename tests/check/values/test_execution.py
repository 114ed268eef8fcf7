"""Values by execution: right kernels hold, and each planted fault of values is found, with the reason."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import taskfuse as tf
from examples import (
    block_roles,
    cat,
    founding,
    gemm,
    gemm_cluster,
    gemm_multistage,
    gemm_pingpong,
    gemm_split_cluster,
    horizontal_fusion,
    matmul,
    nested_groups,
    pipeline,
    stream,
    transpose,
)
from taskfuse import MemoryType as M
from taskfuse import ParallelType as P
from taskfuse.check.refuted import TooLarge, WorkBudget
from taskfuse.check.values.execution import Finding, Witness, execute
from taskfuse.dtypes import DType, float16, float32
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.matrix_instructions import OperandLayout
from taskfuse.ir.scalar import FALSE, TRUE, Expr, and_, const, not_, parse_expr, sym
from taskfuse.kir import Kernel, map_stmts, parse_kernel, stmt_text, walk
from taskfuse.kir.nodes import Choose, Compute, For, GatherCopy, Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Access, Content, Descriptor, Holds, Immediate, Operand
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.witness import Definition, Reduce
from taskfuse.location import Quote
from tests.products import ALL_PRODUCTS, PRODUCTS, QUAD_PAIR_PRODUCTS, WARP_PRODUCTS, AnyProduct, Product, QuadPairProduct, WarpProduct
from tests.random_cases import random_case_of

Sizes = dict[str, int]


def wide() -> WorkBudget:
    return WorkBudget(10**6, 10**9)


def found(kernel: Kernel, **sizes: int) -> Finding:
    """What is found; it must be something."""
    result = execute(kernel, sizes, wide())
    assert isinstance(result, Finding)
    return result


def holds(kernel: Kernel, **sizes: int) -> None:
    assert execute(kernel, sizes, wide()) is None


def edited(kernel: Kernel, text: str, new: Callable[[Any], Stmt | tuple[Stmt, ...]]) -> Kernel:
    """The kernel with another statement in the place of each whose text begins so; there is one at least."""
    seen: list[Stmt] = []

    def changed(s: Stmt) -> Stmt | tuple[Stmt, ...]:
        if not stmt_text(s, kernel).strip().startswith(text):
            return s
        seen.append(s)
        return new(s)

    made = replace(kernel, body=map_stmts(kernel.body, changed))
    assert seen, str(kernel)
    return made


# -- right kernels ------------------------------------------------------------------------------------------------------------------

EXAMPLES: list[tuple[str, Callable[[], tf.Fusion], list[Sizes]]] = [
    ("founding", founding.build, [{"B": 2, "S": 3, "T": 4}, {"B": 1, "S": 2, "T": 33}]),
    ("founding_persistent", lambda: founding.build(3, 2), [{"B": 4, "S": 2, "T": 8}]),
    ("cat_gather", cat.gather, [{"M": 2, "N": 3, "K": 40}]),
    ("cat_scatter_shared_loop", cat.scatter_shared_loop, [{"M": 3, "N": 40}]),
    ("cat_scatter_horizontal", cat.scatter_horizontal, [{"M": 3, "N": 40, "K": 7, "L": 3}]),
    ("horizontal_fusion", horizontal_fusion.build, [{"M": 2, "N": 3, "R": 4}]),
    ("nested_groups", nested_groups.build, [{"M": 2, "N": 33}]),
    ("pipeline", pipeline.build, [{"M": 2, "N": 65}]),
    ("stream", stream.build, [{"M": 9, "N": 68}]),
    ("block_roles", block_roles.build, [{"T": 4, "N": 3, "M": 5}]),
    ("transpose", transpose.build, [{"M": 5, "N": 34}]),
    ("matmul", matmul.build, [{"M": 3, "K": 17, "N": 4}]),
    ("gemm", gemm.build, [{"M": 130, "K": 72, "N": 8}]),
    ("gemm_cluster", gemm_cluster.build, [{"M": 130, "K": 72, "N": 8}]),
    ("gemm_split_cluster", gemm_split_cluster.build, [{"M": 130, "N": 8}]),
    ("gemm_pingpong", gemm_pingpong.build, [{"M": 130, "K": 72, "N": 8}]),
    ("gemm_multistage", gemm_multistage.build, [{"M": 40, "K": 128, "N": 24}]),
]


@pytest.mark.parametrize(("build", "sizes"), [case[1:] for case in EXAMPLES], ids=[case[0] for case in EXAMPLES])
def test_examples_hold(build: Callable[[], tf.Fusion], sizes: list[Sizes]) -> None:
    kernel = tf.lower(build())
    for extents in sizes:
        assert execute(kernel, {e.name: extents[e.name] for e in kernel.extents}, wide()) is None


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_cases_hold(first: int) -> None:
    for seed in range(first, first + 10):
        case = random_case_of(seed)
        if case.kernel is not None:
            try:
                assert execute(case.kernel, case.sizes, WorkBudget(4_000, 10**7)) is None, case.report()
            except TooLarge:
                continue


def test_a_kernel_without_witness_says_nothing_of_values() -> None:
    kernel = tf.parse_kernel("KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n\ny[threadIdx.x] = copy(x[3 - threadIdx.x])\n")
    assert execute(kernel, {}) is Witness.MISSING


def test_a_large_launch_is_not_looked_at() -> None:
    with pytest.raises(TooLarge):
        execute(tf.lower(pipeline.build()), {"M": 2, "N": 65}, WorkBudget(20, 20))
    budget = WorkBudget(10, 10)
    with pytest.raises(TooLarge):
        execute(tf.lower(pipeline.build()), {"M": 200, "N": 65}, budget)
    assert budget == WorkBudget(10, 10)  # outputs that it cannot write are not begun


# -- pointwise ----------------------------------------------------------------------------------------------------------------------


def chain() -> Kernel:
    """b = x - y, then c = exp(b) read by other threads through Shared memory."""
    with tf.Fusion("chain") as fusion:
        x, y = (tf.define_tensor([40], dtype=tf.float32, name=n) for n in "xy")
        b = x - y
        c = tf.exp(b)
        fusion.add_output(c)
    b.set_memory_type(M.Shared)
    b.axis(0).parallelize(P.TIDx)
    c.split(0, 16)
    c.axis(1).parallelize(P.TIDx)
    return tf.lower(fusion)


def test_an_index_off_by_one() -> None:
    kernel = chain()
    holds(kernel)
    text = next(line.strip() for line in str(kernel).split("\n") if "exp(" in line)
    wrong = edited(kernel, text, lambda s: replace(s, operands=(Access("tv2", (s.operands[0].index[0] - parse_expr("threadIdx.x % 2"),)),)))
    finding = found(wrong)
    assert finding.subject == "tv3[1]"
    assert finding.reason == "for element [1] of tv3: reads element [0] of tv2 where element [1] of tv2 is defined"
    assert finding.notes[0].startswith("thread 1: tv3[16*i0 + threadIdx.x] = exp(tv2[")
    note = finding.notes[0]
    assert isinstance(note, Quote)
    assert note.location is not None
    assert note.location.file == __file__


def test_operands_in_the_wrong_order() -> None:
    wrong = edited(chain(), "tv2[threadIdx.x] = sub", lambda s: replace(s, operands=(s.operands[1], s.operands[0])))
    assert found(wrong).reason == "for element [0] of tv2: reads element [0] of y where element [0] of x is defined"


def test_another_function() -> None:
    wrong = edited(chain(), "tv2[threadIdx.x] = sub", lambda s: replace(s, op=ELEMENTWISE["add"]))
    assert found(wrong).reason == "computes add where tv2 is sub"


def test_a_statement_that_is_missing() -> None:
    assert found(edited(chain(), "tv2[threadIdx.x] = sub", lambda s: ())).reason.endswith("reads nothing where element [0] of tv2 is defined")


def test_a_guard_too_tight_and_dropped() -> None:
    kernel = chain()
    guard = line(kernel, "IF", "< 40")
    tight = and_(parse_expr("threadIdx.x < 15"), parse_expr("16*i0 + threadIdx.x < 40"))
    wrong = edited(kernel, guard, lambda s: replace(s, branches=(replace(s.branches[0], cond=tight),)))
    assert (found(wrong).subject, found(wrong).reason) == ("tv3[15]", "is never stored")
    loose = edited(kernel, guard, lambda s: replace(s, branches=(replace(s.branches[0], cond=parse_expr("16*i0 + threadIdx.x < 41")),)))
    assert found(loose).reason == "index 40 of axis 0 is outside 0..40"


def test_an_output_stored_twice() -> None:
    kernel = chain()
    text = next(line.strip() for line in str(kernel).split("\n") if "exp(" in line)
    finding = found(edited(kernel, text, lambda s: replace(s, out=Access("tv3", (s.out.index[0] - parse_expr("threadIdx.x % 2"),)))))
    assert finding.reason == "is stored twice"
    assert [note.split(":")[0] for note in finding.notes if note.startswith("thread")] == ["thread 0", "thread 1"]


def test_a_cast_that_is_dropped() -> None:
    with tf.Fusion("casts") as fusion:
        x = tf.define_tensor([8], dtype=tf.float32, name="x")
        half = tf.cast(x * 2.0, tf.float16)
        fusion.add_output(tf.cast(half, tf.float32) + 1.0)
    kernel = tf.lower(fusion)
    holds(kernel)
    dropped = edited(kernel, "tv4[i3] = add", lambda s: replace(s, operands=(Access("tv1", (sym("i3"),)), s.operands[1])))
    assert found(dropped).reason == "for element [0] of tv4: reads element [0] of tv1 where element [0] of tv3 is defined"
    wide = edited(kernel, "tv3[i2] = cast", lambda s: replace(s, operands=(Access("tv1", (sym("i2"),)),), dtype=tf.float32))
    assert found(wide).reason == "for element [0] of tv3: reads element [0] of tv1 where element [0] of tv2 is defined"


# -- padding, concatenation, gathers ------------------------------------------------------------------------------------------------


def test_a_mask_inverted() -> None:
    with tf.Fusion("pads") as fusion:
        x = tf.define_tensor([6], dtype=tf.float32, name="x")
        fusion.add_output(tf.exp(tf.pad(x, [(1, 1)])))
    kernel = tf.lower(fusion)
    holds(kernel)
    choice = next(line.strip() for line in str(kernel).split("\n") if "pad(" in line)
    wrong = edited(kernel, choice, lambda s: replace(s, cases=tuple(replace(c, operand=Immediate(0.0, tf.float32)) for c in s.cases)))
    assert found(wrong).reason.endswith("reads the constant 0.0 where element [0] of x is defined")


def test_a_gather_from_elsewhere() -> None:
    with tf.Fusion("takes") as fusion:
        x = tf.define_tensor([6, 4], dtype=tf.float32, name="x")
        rows = tf.define_tensor([5], dtype=tf.int64, name="rows")
        fusion.add_output(tf.take(x, rows, axis=0))
    kernel = tf.lower(fusion)
    holds(kernel)

    def last(s: GatherCopy) -> Stmt:
        return replace(s, source=replace(s.source, index=(s.source.index[0], 3 - s.source.index[1])))

    assert "from where it is not defined" in found(edited(kernel, "GATHER", last)).reason
    other = edited(kernel, "GATHER", lambda s: replace(s, values=tuple(replace(v, source=replace(v.source, index=(const(0),))) for v in s.values)))
    assert "from where it is not defined" in found(other).reason


# -- reductions ---------------------------------------------------------------------------------------------------------------------


def total(op: str = "sum", threads: int = 64) -> Kernel:
    """Rows of 100 reduced by some threads each: shuffles, then a round over Shared memory if there are several warps."""
    with tf.Fusion("total") as fusion:
        x = tf.define_tensor([3, 100], dtype=tf.float32, name="x")
        r = {"sum": tf.sum, "max": tf.max}[op](x, axis=1)
        fusion.add_output(r)
    r.split(1, threads)
    r.axis(2).parallelize(P.TIDx)
    r.axis(0).parallelize(P.BIDx)
    return tf.lower(fusion)


def line(kernel: Kernel, *words: str) -> str:
    """The first line with some words."""
    return next(text.strip() for text in str(kernel).split("\n") if all(w in text for w in words))


def test_reductions_hold() -> None:
    for threads in (4, 24, 32, 64, 96):
        holds(total("sum", threads))
        holds(total("max", threads))


def test_a_term_that_is_skipped() -> None:
    kernel = total()
    wrong = edited(
        kernel,
        line(kernel, "IF", "< 100"),
        lambda s: replace(s, branches=(replace(s.branches[0], cond=and_(s.branches[0].cond, parse_expr("threadIdx.x != 5"))),)),
    )
    assert found(wrong).reason == "element [0] of tv1 lacks the term at [0, 5] and 1 more"


def test_a_term_that_is_taken_twice() -> None:
    kernel = total()
    finding = found(edited(kernel, line(kernel, "add(tv1", "x["), lambda s: (s, s)))
    assert "twice: by block 0, thread" in finding.reason
    # the greatest of elements is the same if one is taken twice
    holds(edited(total("max"), line(total("max"), "maximum(tv1", "x["), lambda s: (s, s)))


def test_a_shuffle_with_another_mask() -> None:
    kernel = total()
    finding = found(edited(kernel, line(kernel, "xor 8"), lambda s: replace(s, mask=4)))
    assert "twice" in finding.reason or "lacks" in finding.reason


def test_a_start_that_is_not_neutral() -> None:
    kernel = total()
    wrong = edited(kernel, line(kernel, "copy(0.0)"), lambda s: replace(s, operands=(Immediate(1.0, tf.float32),)))
    assert "joins the constant 1.0, which is not a partial result of tv1" in found(wrong).reason


def test_a_term_of_another_row() -> None:
    kernel = total()
    wrong = edited(
        kernel, line(kernel, "add(tv1", "x["), lambda s: replace(s, operands=(s.operands[0], replace(s.operands[1], index=(const(0), s.operands[1].index[1]))))
    )
    assert "of tv1: reads element [0, 0] of x where element [1, 0] of x is defined" in found(wrong).reason


def test_another_combine() -> None:
    kernel = total("max")
    assert "computes minimum" in found(edited(kernel, line(kernel, "maximum(tv1", "x["), lambda s: replace(s, op=ELEMENTWISE["minimum"]))).reason


def test_a_slot_of_a_warp_that_is_stale() -> None:
    kernel = total()
    slots = [s for s in str(kernel).split("\n") if "FOR part.k" in s]
    assert slots
    finding = found(edited(kernel, "FOR part.k", lambda s: replace(s, start=const(1))))
    assert "lacks" in finding.reason


def test_a_scan_that_is_off_by_one() -> None:
    with tf.Fusion("scan") as fusion:
        x = tf.define_tensor([3, 7], dtype=tf.float32, name="x")
        fusion.add_output(tf.cumsum(x, axis=1))
    kernel = tf.lower(fusion)
    holds(kernel)
    store, step = line(kernel, "= copy(tv1.acc"), line(kernel, "= add(tv1.acc")
    late = edited(edited(kernel, store, lambda s: ()), step, lambda s: (replace(next_of(kernel, store)), s))
    assert "lacks" in found(late).reason
    assert "twice" in found(edited(kernel, step, lambda s: (s, s))).reason


def next_of(kernel: Kernel, text: str) -> Stmt:
    """The first statement with a text."""
    return next(s for s in walk(kernel) if stmt_text(s, kernel).strip().startswith(text))


# -- rings, copies, tensor cores ----------------------------------------------------------------------------------------------------

SMALL = {"M": 24, "K": 72, "N": 24}


def test_a_stale_slot_of_a_ring() -> None:
    kernel = tf.lower(pipeline.build())
    read = line(kernel, "gelu_tanh(")

    def before(s: Compute) -> Stmt:
        operand = s.operands[0]
        assert isinstance(operand, Access)
        return replace(s, operands=(Access(operand.buffer, ((operand.index[0] + 2) % 3, *operand.index[1:])),))

    finding = found(edited(kernel, read, before), M=1, N=100)
    assert "reads nothing" in finding.reason or "reads element" in finding.reason


def faults_of_gemm() -> list[tuple[str, str, Callable[[Any], Stmt], str]]:
    def other(d: Descriptor, **new: Any) -> Descriptor:
        return replace(d, **new)

    return [
        ("descriptor of the neighbor", "WGMMA", lambda s: replace(s, b=other(s.b, offset=s.b.offset + 32)), "where element"),
        ("wrong swizzle", "WGMMA", lambda s: replace(s, a=other(s.a, swizzle=64)), "where element"),
        ("wrong stride", "WGMMA", lambda s: replace(s, a=other(s.a, sbo=512)), "where element"),
        ("operands exchanged", "WGMMA", lambda s: replace(s, b=s.a), "where element"),
        ("never from zero", "WGMMA", lambda s: replace(s, accumulate=TRUE), "adds to"),
        ("always from zero", "WGMMA", lambda s: replace(s, accumulate=FALSE), "lacks the term"),
    ]


@pytest.mark.parametrize(("text", "new", "reason"), [f[1:] for f in faults_of_gemm()], ids=[f[0] for f in faults_of_gemm()])
def test_faults_of_wgmma(text: str, new: Callable[[Any], Stmt], reason: str) -> None:
    assert reason in found(edited(tf.lower(gemm_pingpong.build()), text, new), **SMALL).reason


def test_faults_of_bulk_copies() -> None:
    kernel = tf.lower(gemm_pingpong.build())

    def moved(s: TmaLoad | TmaStore) -> Stmt:
        return replace(s, coords=(*s.coords[:-1], s.coords[-1] + 8))

    loads = [s for s in str(kernel).split("\n") if "TMA " in s and " on " in s]
    assert "where element" in found(edited(kernel, loads[0].strip(), moved), **SMALL).reason


def test_faults_of_fragments() -> None:
    kernel = tf.lower(gemm_multistage.build())
    sizes = {"M": 8, "K": 64, "N": 8}
    neighbor = edited(kernel, "MMA", lambda s: replace(s, a=Access(s.a.buffer, ((s.a.index[0] + 8) % 64,))))
    assert "where element" in found(neighbor, **sizes).reason
    turned = edited(kernel, "LDMATRIX tv9", lambda s: replace(s, transpose=True))
    assert "where element" in found(turned, **sizes).reason
    copies = edited(kernel, "COPY.async tv7", lambda s: replace(s, valid=not_(s.valid)))
    assert found(copies, **sizes).reason
    index = edited(
        kernel, "LDMATRIX tv8", lambda s: replace(s, source=replace(s.source, index=(*s.source.index[:-2], (s.source.index[-2] + 1) % 8, s.source.index[-1])))
    )
    assert "where element" in found(index, **sizes).reason


def witnessed(kernel: Kernel, rows: int, columns: int, k: int, dtype: DType, index: Mapping[type, tuple[Expr, ...]]) -> Kernel:
    """A product with its definition, and what its instruction claims."""
    i, j, t = (sym(f"i{n}") for n in range(3))
    zero = Immediate(0.0 if dtype.is_float else 0, dtype)
    rule = Reduce(COMBINES["add"], ELEMENTWISE["mul"], (Access("a", (i, t)), Access("b", (j, t))), zero, dtype)
    shape = const(rows), const(columns)
    d = Definition("d", dtype, shape, (*shape, const(k)), (i, j), rule)

    def held(s: Stmt) -> Stmt:
        return replace(s, holds=Holds("d", index[type(s)], Content.TERM)) if isinstance(s, Wgmma | Mma) else s

    return replace(kernel, body=map_stmts(kernel.body, held), definitions=(d,))


def held_product(product: AnyProduct) -> Kernel:
    kernel = product.kernel()
    dtype = kernel.outputs[0].dtype
    m, n, k = (sym(f"tile.{axis}") for axis in range(3))
    size = 32 // product.dtype.itemsize
    if isinstance(product, WarpProduct):
        return witnessed(kernel, 32, 8, product.steps * size, dtype, {Mma: (m + 16 * sym("threadIdx.y"), n, k + size * sym("t"))})
    if isinstance(product, QuadPairProduct):
        pair = 8 * (sym("threadIdx.x") // 4 % 4) + 32 * sym("threadIdx.y")
        return witnessed(kernel, 64, 8, product.steps * 4, dtype, {Mma: (m + pair, n, k + 4 * sym("t"))})
    return witnessed(kernel, 64, product.n, product.steps * size, dtype, {Wgmma: (m, n, k + size * sym("t"))})


@pytest.mark.parametrize("product", ALL_PRODUCTS, ids=lambda p: p.name)
def test_every_form_of_product_holds(product: AnyProduct) -> None:
    kernel = held_product(product)
    holds(kernel)

    def fault(s: Stmt) -> Stmt:
        match s:
            case Wgmma():
                return replace(s, b=replace(s.b, lbo=s.b.lbo // 2, sbo=s.b.sbo // 2))
            case _:
                return s

    if isinstance(product, Product):
        assert "where element" in found(replace(kernel, body=map_stmts(kernel.body, fault))).reason


@pytest.mark.parametrize("product", QUAD_PAIR_PRODUCTS, ids=lambda p: p.name)
def test_faults_of_quad_pairs(product: QuadPairProduct) -> None:
    kernel = held_product(product)
    a, b = product.layouts
    other = {OperandLayout.ROW: OperandLayout.COLUMN, OperandLayout.COLUMN: OperandLayout.ROW}
    for layouts in ((other[a], b), (a, other[b])):
        assert "where element" in found(edited(kernel, "MMA", lambda s, layouts=layouts: replace(s, layouts=layouts))).reason
    neighbor = edited(kernel, "MMA", lambda s: replace(s, holds=replace(s.holds, index=(s.holds.index[0] + 8, *s.holds.index[1:]))))
    assert found(neighbor).reason
    (d,) = kernel.definitions
    assert isinstance(d.rule, Reduce)
    summed = float16 if product.sums is float32 else float32
    wrong = replace(kernel, definitions=(replace(d, rule=replace(d.rule, dtype=summed)),))
    assert f"sums in {product.sums} where d is summed in {summed}" in found(wrong).reason


def test_factors_may_change_places_in_a_definition() -> None:
    for product in (PRODUCTS[0], WARP_PRODUCTS[0], QUAD_PAIR_PRODUCTS[0]):
        kernel = held_product(product)
        (d,) = kernel.definitions
        assert isinstance(d.rule, Reduce)
        holds(replace(kernel, definitions=(replace(d, rule=replace(d.rule, operands=(d.rule.operands[1], d.rule.operands[0]))),)))


def test_an_output_in_another_tile() -> None:
    kernel = tf.lower(gemm_pingpong.build())
    stores = [s for s in walk(kernel) if isinstance(s, TmaStore)]
    assert stores
    wrong = edited(kernel, stmt_text(stores[0], kernel), lambda s: replace(s, coords=(*s.coords[:-1], s.coords[-1] + 8)))
    finding = found(wrong, **SMALL)
    assert (finding.subject, finding.reason) == ("tv4[0, 0]", "is never stored")


def test_partial_results_of_blocks() -> None:
    with tf.Fusion("grid") as fusion:
        x = tf.define_tensor([3, 100], dtype=tf.float32, name="x")
        r = tf.sum(x, axis=1)
        fusion.add_output(r)
    r.split(1, 32)
    r.axis(1).parallelize(P.BIDx)
    r.axis(2).parallelize(P.TIDx)
    kernel = tf.lower(fusion)
    holds(kernel)
    joins = [s for s in walk(kernel) if isinstance(s, For) and s.var.endswith("BIDx")]
    assert joins
    wrong = edited(kernel, stmt_text(joins[0], kernel).split("\n")[0].strip(), lambda s: replace(s, start=const(1)))
    assert found(wrong).reason.startswith("element [0] of tv1 lacks the term at [0, ")


def test_parts_in_the_wrong_order() -> None:
    with tf.Fusion("cats") as fusion:
        x, y = (tf.define_tensor([4], dtype=tf.float32, name=n) for n in "xy")
        fusion.add_output(tf.exp(tf.cat([x, y], 0)))
    kernel = tf.lower(fusion)
    holds(kernel)
    choices = [s for s in walk(kernel) if isinstance(s, Choose)]
    assert choices

    def other(operand: Operand) -> Operand:
        assert isinstance(operand, Access)
        return replace(operand, buffer={"x": "y", "y": "x"}[operand.buffer])

    def exchanged(s: Choose) -> Stmt:
        return replace(s, cases=tuple(replace(c, operand=other(c.operand)) for c in s.cases))

    wrong = edited(kernel, stmt_text(choices[0], kernel), exchanged)
    assert found(wrong).reason.endswith("reads element [0] of y where element [0] of x is defined")


CHAIN = """KERNEL chain(x: float32[4]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED s: float32[9] align 16
  DEFINE t: float32[9] = copy(x[1])
  DEFINE y: float32[8] = copy(t[i0 + 1])

s[0] = copy(x[1])
FOR i in 0..8:
  s[i + 1] = copy(s[i])
FOR k in 0..8:
  y[k] = copy(s[k + 1])
"""


def test_iterations_that_read_what_those_before_wrote_come_one_after_another() -> None:
    assert execute(parse_kernel(CHAIN), {}) is None
    wrong = execute(parse_kernel(CHAIN.replace("s[i + 1] = copy(s[i])", "s[i] = copy(s[i + 1])")), {})
    assert isinstance(wrong, Finding)
    assert "never" in wrong.reason or "nothing" in wrong.reason
    late = execute(parse_kernel(CHAIN.replace("FOR k in 0..8:", "s[5] = copy(x[0])\nFOR k in 0..8:")), {})
    assert isinstance(late, Finding)
    assert late.subject == "y[4]"
