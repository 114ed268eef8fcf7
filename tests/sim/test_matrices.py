"""Matrix products in every form, ldmatrix, stmatrix: against NumPy, under every interleaving, and with faults planted."""

import numpy as np
import pytest

from taskfuse.dtypes import bfloat16, float8_e4m3, float32, int8, uint8
from taskfuse.ir.matrix_instructions import OperandLayout
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import Interleaving, simulate
from tests.gemms import BF16, E4M3, GEMMS, Case, gemm_fp8, gemm_rs, gemm_sync
from tests.products import ALL_PRODUCTS, AnyProduct, Layout, Product, QuadPairProduct, WarpProduct, expected, operands
from tests.sim.kernels import error, errors, kernel, load, replaced, run_all, without


@pytest.mark.parametrize("product", ALL_PRODUCTS, ids=lambda p: p.name)
def test_products(product: AnyProduct) -> None:
    args = product.arguments()
    (d,) = simulate(product.kernel(), args)
    np.testing.assert_array_equal(d, expected(*args))


@pytest.mark.parametrize(
    "product",
    [
        Product(bfloat16, bfloat16, 24, None),
        Product(int8, uint8, 8, None),
        WarpProduct(bfloat16, bfloat16, "columns"),
        QuadPairProduct((OperandLayout.COLUMN, OperandLayout.ROW)),
    ],
    ids=lambda p: p.name,
)
def test_schedulers_and_the_ring(product: AnyProduct) -> None:
    k, args = product.kernel(), product.arguments()
    run_all(k, args, expected(*args))
    words = [MODULAR.encode(x, p.dtype) for x, p in zip(args, k.inputs, strict=True)]
    exact = words[0] @ words[1].T if k.inputs[0].dtype.is_float else expected(*args)
    np.testing.assert_array_equal(simulate(k, args, values=MODULAR)[0], exact)


@pytest.mark.parametrize("product", [Product(float32, float32), Product(float32, float32, a_layout=None), WarpProduct(float32, float32)], ids=lambda p: p.name)
def test_tf32_drops_the_low_bits(product: Product | WarpProduct) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(x.shape).astype(np.float32) for x in product.arguments())
    (d,) = simulate(product.kernel(), [a, b])
    kept = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b)]
    np.testing.assert_allclose(d, expected(*kept), rtol=1e-5, atol=1e-6)
    assert np.abs(d - expected(a, b)).max() > 1e-4


def test_integer_sums_wrap() -> None:
    product = Product(uint8, uint8)
    head = product.kernel()
    a, b = (np.full(x.shape, 255, np.uint8) for x in product.arguments())
    # 2^31 - 1 is in the accumulators before the first product
    text = str(head).replace("FENCE wgmma", f"FOR v in 0..8 UNROLL:\n  acc[v] = copy({2**31 - 1})\nFENCE wgmma").replace("accumulate t > 0", "accumulate 1 > 0")
    (d,) = simulate(parse_kernel(text), [a, b])
    assert (d == 2**31 - 1 + 64 * 255 * 255 - 2**32).all()


# -- the hand-written kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "shape"), [(case, shape) for case, shapes in GEMMS.items() for shape in shapes])
def test_gemms(case: Case, shape: tuple[int, int, int]) -> None:
    args, want = case(*shape)
    k = parse_kernel(load(case.__name__))
    np.testing.assert_array_equal(simulate(k, args, seed=sum(shape))[0], want)


@pytest.mark.parametrize("case", GEMMS)
def test_gemms_under_every_scheduler(case: Case) -> None:
    args, want = case(*GEMMS[case][-2 if case is gemm_fp8 else -1])
    run_all(parse_kernel(load(case.__name__)), args, want)


RS, SYNC = load("gemm_rs"), load("gemm_sync")
FAULTS = {
    "fragments not waited for": (gemm_rs, without(RS, "WAIT_GROUP wgmma <= 1"), "k: Local 'a_r' accessed while a wgmma that reads it is in flight"),
    "one fragment": (gemm_rs, RS.replace("a_r[8*(kk % 2)", "a_r[0*(kk % 2)"), "k: Local 'a_r' accessed while a wgmma that reads it is in flight"),
    "no wgmma fence": (gemm_rs, without(RS, "FENCE wgmma"), "k: missing wgmma.fence: a warp has not fenced its registers"),
    "fragments written behind the fence": (
        gemm_rs,
        replaced(RS, "      FENCE wgmma\n", "      FENCE wgmma\n      a_r[8*(kk % 2)] = copy(0.0)\n"),
        "k: missing wgmma.fence: a warp has not fenced its registers",
    ),
    "too few registers": (gemm_rs, replaced(RS, "bfloat16 acc[0], a_r[8*(kk % 2)]", "bfloat16 acc[0], a_r[9]"), "wgmma needs 8 registers"),
    "fragment not loaded": (gemm_sync, replaced(SYNC, "LDMATRIX b_r[8*i]", "LDMATRIX b_r[0]"), "k: read of uninitialized Local 'b_r'"),
    "accumulators not set": (gemm_sync, replaced(SYNC, "0..32 UNROLL", "0..31 UNROLL"), "k: read of uninitialized Local 'acc'"),
    "half a warp loads": (
        gemm_sync,
        replaced(SYNC, "      LDMATRIX a_r", "      IF threadIdx.x < 16:\n        LDMATRIX a_r"),
        "k: ldmatrix executed by 16 threads of warp 0",
    ),
    "half a warp multiplies": (
        gemm_sync,
        replaced(SYNC, "        MMA", "        IF threadIdx.x < 16:\n          MMA"),
        "k: mma executed by 16 threads of warp 0",
    ),
    "unaligned rows": (gemm_sync, SYNC.replace("[64, 40] align 16", "[64, 36] align 16"), "not a multiple of 16"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    case, text, message = FAULTS[name]
    args, _ = case(64, 64, 64)
    k = parse_kernel(text.replace(f"KERNEL {case.__name__}", "KERNEL k"))
    found = error(k, args, interleaving=Interleaving.ROUND_ROBIN).splitlines()
    assert message in found[0]


def test_help_of_registers_in_flight() -> None:
    args, _ = gemm_rs(64, 64, 64)
    lines = error(parse_kernel(without(RS, "WAIT_GROUP wgmma <= 1")), args).splitlines()
    assert lines[-1] == "help: wait for the wgmma before its operand registers are accessed"


def test_operands_in_registers_are_read_when_the_engine_gets_to_them() -> None:
    """Whatever the interleaving, a register that is written too early is noticed: the fault does not depend on when the wgmma runs."""
    args, _ = gemm_rs(64, 64, 64)
    assert errors(parse_kernel(without(RS, "WAIT_GROUP wgmma <= 1")), args) == {"gemm_rs: Local 'a_r' accessed while a wgmma that reads it is in flight"}


# -- ldmatrix, stmatrix ----------------------------------------------------------------------------------------------------------------

MOVES = """
FOR v in 0..COUNT UNROLL:
  y[threadIdx.x, v] = copy(r[v])
"""


def moved(line: str, count: int, dtype: str = "float16", columns: int = 8) -> Kernel:
    """What ldmatrix makes of rows of Shared memory."""
    body = f"FOR i in 0..{columns}:\n  s[threadIdx.x, i] = copy(x[threadIdx.x, i])\nSYNC block\n{line}{MOVES.replace('COUNT', str(count))}"
    declarations = (f"LOCAL r: {dtype}[{count}]", f"SHARED s: {dtype}[32, {columns}] align 16")
    return kernel(body, *declarations, inputs=f"x: {dtype}[32, {columns}]", outputs=f"y: {dtype}[32, {count}]")


@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_ldmatrix(matrices: int, transpose: bool) -> None:
    x = np.arange(256).reshape(32, 8).astype(np.float16)
    suffix = ("" if matrices == 4 else f".x{matrices}") + (".trans" if transpose else "")
    tiles = x.reshape(4, 8, 8)[:matrices]
    if transpose:
        tiles = tiles.transpose(0, 2, 1)
    # lane t has the elements 2 * (t % 4) and + 1 of row t // 4 of every matrix
    want = tiles.reshape(matrices, 32, 2).transpose(1, 0, 2).reshape(32, -1)
    run_all(moved(f"LDMATRIX{suffix} r[0] <- s[threadIdx.x, 0]", 2 * matrices), [x], want)


@pytest.mark.parametrize(("dtype", "size"), [("int8", 1), ("float8_e4m3", 1), ("int32", 4), ("float32", 4)])
def test_ldmatrix_of_other_elements(dtype: str, size: int) -> None:
    columns, packed = 16 // size, 4 // size
    x = (np.arange(32 * columns) % 16).reshape(32, columns).astype({"float8_e4m3": E4M3}.get(dtype, dtype))
    want = x.reshape(4, 32, packed).transpose(1, 0, 2).reshape(32, -1)
    k = moved("LDMATRIX r[0] <- s[threadIdx.x, 0]", 4 * packed, dtype, columns)
    np.testing.assert_array_equal(simulate(k, [x])[0], want)


@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_stmatrix_undoes_ldmatrix(matrices: int, transpose: bool) -> None:
    suffix = ("" if matrices == 4 else f".x{matrices}") + (".trans" if transpose else "")
    rows = 8 * matrices
    body = f"""
    FOR i in 0..8:
      s[threadIdx.x, i] = copy(x[threadIdx.x, i])
    SYNC block
    LDMATRIX{suffix} r[0] <- s[threadIdx.x, 0]
    STMATRIX{suffix} t[threadIdx.x % {rows}, 0] <- r[0]
    SYNC block
    FOR i in 0..8:
      y[threadIdx.x, i] = copy(t[threadIdx.x % {rows}, i])
    """
    declarations = ("LOCAL r: bfloat16[8]", "SHARED s: bfloat16[32, 8] align 16", f"SHARED t: bfloat16[{rows}, 8] align 16")
    x = np.arange(256).reshape(32, 8).astype(BF16)
    k = kernel(body, *declarations, inputs="x: bfloat16[32, 8]", outputs="y: bfloat16[32, 8]")
    run_all(k, [x], np.tile(x[:rows], (4 // matrices, 1)))


def test_faults_of_ldmatrix() -> None:
    x = np.zeros((32, 8), np.float16)
    line = "LDMATRIX r[0] <- s[threadIdx.x, 0]"
    for new, message in (
        (f"IF threadIdx.x < 8:\n  {line}", "k: ldmatrix executed by 8 threads of warp 0"),
        (line.replace("[threadIdx.x, 0]", "[threadIdx.x + 1, 0]"), "k: Shared 's' accessed out of bounds"),
        (line.replace("[threadIdx.x, 0]", "[threadIdx.x, 4]"), "k: Shared 's' accessed out of bounds"),
        (f"FOR half in 0..2 UNROLL:\n  {line.replace('r[0]', 'r[half]')}", "k: ldmatrix needs 8 registers of Local 'r', which does not have them"),
    ):
        assert errors(moved(new, 8), [x]) == {message}
    unset = moved(line, 8)
    unset = parse_kernel(str(unset).replace("FOR i in 0..8:", "FOR i in 0..7:", 1))
    assert errors(unset, [x]) == {"k: read of uninitialized Shared 's'"}


def test_a_launch_on_other_operands() -> None:
    """Sums of products of random numbers: exact products, one rounding per instruction."""
    product = Product(float8_e4m3, float8_e4m3, 64, Layout(64), Layout(32))
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(x.shape).astype(E4M3) for x in operands(float8_e4m3, float8_e4m3, (64, 64), 64))
    np.testing.assert_allclose(simulate(product.kernel(), [a, b])[0], expected(a, b), rtol=1e-6, atol=1e-6)
