"""Every elementwise function and conversion of every dtype, against NumPy where it is exact and against the bounds of docs/math.md where not."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.dtypes import DTYPES, DType, bfloat16, bool_, float16, float32
from taskfuse.errors import DTypeError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.values import NATIVE
from taskfuse.testing.accuracy import BOUNDS, bound, reference, samples, terms, ulps
from tests.cuda.elements import Array, differing, elements, operand_dtypes

# of two zeros either is the maximum
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "relu", "clamp"}
FLOATS = [d for d in DTYPES.values() if d.is_float]


def run(ops: list[Elementwise], inputs: list[DType], arrays: list[Array], fast_math: bool = False) -> list[Array]:
    """The results of functions of the same operands, by one kernel."""
    with tf.Fusion("functions") as fusion:
        operands = [tf.define_tensor(["N"], dtype=dtype) for dtype in inputs]
        outputs = [getattr(tf, op.name)(*operands) for op in ops]
        for tv in outputs:
            fusion.add_output(tv)
    schedule(fusion)
    return list(tf.compile(fusion, backend="cuda", fast_math=fast_math)(*arrays))


def schedule(fusion: tf.Fusion) -> None:
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.split(0, 128)
            tv.axis(0).parallelize(tf.ParallelType.BIDx)
            tv.axis(1).parallelize(tf.ParallelType.TIDx)
    fusion.inline_most()


def exact_rows(dtype: DType, arity: int) -> list[Elementwise]:
    def takes(op: Elementwise) -> bool:
        if op.rule is DTypeRule.CAST or op.rule is DTypeRule.SELECT or op.arity != arity or (dtype.is_float and op.name in BOUNDS):
            return False
        if op.rule in (DTypeRule.FLOAT, DTypeRule.DIVIDE, DTypeRule.BITS):
            return dtype.is_float
        try:
            with tf.Fusion("try"):
                getattr(tf, op.name)(*(tf.define_tensor([1], dtype=dtype) for _ in range(arity)))
        except DTypeError:
            return False
        return True

    return [op for op in ELEMENTWISE.values() if takes(op)]


def wrong(op: Elementwise, got: Array, expected: Array, arrays: list[Array]) -> list[str]:
    at = differing(got, expected, op.name in EITHER_ZERO)
    if op.name == "copysign" and arrays[1].dtype.itemsize < 4:
        at = at[arrays[1][at] == arrays[1][at]]  # widening a NaN keeps no sign
    return [f"{op}{tuple(a[at[0]].item() for a in arrays)} is {got[at[0]]}, not {expected[at[0]]} (and {at.size - 1} more)"] if at.size else []


@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_exact_functions(dtype: DType, arity: int) -> None:
    ops = exact_rows(dtype, arity)
    arrays = elements([dtype] * arity, 70000 if arity == 1 else 20000)
    found: list[str] = []
    for op, got in zip(ops, run(ops, [dtype] * arity, arrays), strict=True):
        out = op.result_dtype(dtype)
        compute = bool_ if op.rule is DTypeRule.LOGICAL else dtype.compute
        found += wrong(op, got, NATIVE.apply(op, arrays, [dtype] * arity, compute, out), arrays)
    assert found == []


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE.values() if op.cpp.pair is not None], ids=str)
@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
def test_functions_of_two_16_bit_floats_at_a_time(dtype: DType, op: Elementwise) -> None:
    arrays = [np.resize(a, 81920) for a in elements([dtype] * op.arity, 70000 if op.arity == 1 else 20000)]
    with tf.Fusion("pairs") as fusion:
        fusion.add_output(getattr(tf, op.name)(*(tf.define_tensor([81920], dtype=dtype) for _ in arrays)))
    tf.schedulers.pointwise(fusion)
    assert "set_word(" in tf.lower(fusion).cuda_source().split("__global__")[1]
    (got,) = tf.compile(fusion, backend="cuda")(*arrays)
    assert wrong(op, got, NATIVE.apply(op, arrays, [dtype] * op.arity, dtype.compute, dtype), arrays) == []


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_selection(dtype: DType) -> None:
    where = ELEMENTWISE["where"]
    dtypes = operand_dtypes(where, dtype)
    arrays = elements(dtypes, 1000)
    (got,) = run([where], dtypes, arrays)
    assert wrong(where, got, np.where(*arrays), arrays) == []


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("arity", [1, 2, 3])
def test_functions_within_their_bounds(dtype: DType, arity: int) -> None:
    ops = [op for op in ELEMENTWISE.values() if op.name in BOUNDS and op.arity == arity]
    arrays = samples(ops[0], dtype, 200_000)
    errors = [ulps(got, reference(op, arrays), dtype, terms(op, arrays)) for op, got in zip(ops, run(ops, [dtype] * arity, arrays), strict=True)]
    worst = {op.name: int(np.argmax(e)) for op, e in zip(ops, errors, strict=True)}
    assert [
        f"{op} of {tuple(a[worst[op.name]].item() for a in arrays)}: {e.max():g} ulp"
        for op, e in zip(ops, errors, strict=True)
        if not e.max() <= bound(op.name, dtype)
    ] == []


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE.values() if op.cpp.balanced is not None], ids=str)
@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
def test_forms_of_elements_in_turns(dtype: DType, op: Elementwise) -> None:
    """Each operand twice, side by side: both forms compute it."""
    arrays = [np.resize(np.repeat(a, 2), 409600) for a in samples(op, dtype, 200_000)]
    with tf.Fusion("turns") as fusion:
        fusion.add_output(getattr(tf, op.name)(*(tf.define_tensor([409600], dtype=dtype) for _ in arrays)))
    tf.schedulers.pointwise(fusion)
    assert f"balanced_{op.name}(" in tf.lower(fusion).cuda_source().split("__global__")[1]
    (got,) = tf.compile(fusion, backend="cuda")(*arrays)
    error = ulps(got, reference(op, arrays), dtype, terms(op, arrays))
    assert error.max() <= bound(op.name, dtype), f"{op}({arrays[0][np.argmax(error)]})"


@pytest.mark.parametrize("name", ["div", "reciprocal", "sqrt"])
def test_quotients_and_roots_of_neighbors(name: str) -> None:
    """Every fourth group of neighbors has an operand that is not usual; others have zeros, or significands of ones."""
    op, rng = ELEMENTWISE[name], np.random.default_rng(0)
    arrays = [np.exp2(rng.uniform(-70, 70, 1 << 20)).astype(np.float32) * rng.choice([-1, 1], 1 << 20).astype(np.float32) for _ in range(op.arity)]
    for k, (a, special) in enumerate(zip(arrays, elements([float32] * op.arity, 1 << 16), strict=True)):
        a[: 1 << 18] = np.exp2(rng.uniform(-20, 20, 1 << 18)).astype(np.float32)
        a[5 << 16 : 6 << 16 : 2] = 0.0 if k == 0 else 3.0
        a[6 << 16 : 7 << 16] = np.exp2(rng.integers(-20, 20, 1 << 16)).astype(np.float32) * np.float32(1 if k == 0 else 1 - 2.0**-24)
        a[1 << 19 :: 16][: 1 << 15] = special[: 1 << 15]
    with tf.Fusion("neighbors") as fusion:
        fusion.add_output(getattr(tf, name)(*(tf.define_tensor([1 << 20]) for _ in arrays)))
    tf.schedulers.pointwise(fusion)
    assert f"usual_{'sqrt' if name == 'sqrt' else 'quotient'}(" in tf.lower(fusion).cuda_source().split("__global__")[1]
    (got,) = tf.compile(fusion, backend="cuda")(*arrays)
    assert wrong(op, got, NATIVE.apply(op, arrays, [float32] * op.arity, float32, float32), arrays) == []


@pytest.mark.parametrize("divisor", [30.0, -448.0, 1.2, 0.7, 16777215.0])
def test_quotients_by_constants(divisor: float) -> None:
    """All significands, with exponents from the least on; 0.7 has no two parts."""
    x = np.arange(1 << 23, dtype=np.uint32) + np.uint32(1 << 23) * np.resize(np.arange(255, dtype=np.uint32), 1 << 23)
    x[: 1 << 12] = np.append(np.arange((1 << 12) - 2, dtype=np.uint32), np.array([np.inf, np.nan], np.float32).view(np.uint32))
    with tf.Fusion("constant") as fusion:
        fusion.add_output(tf.define_tensor([1 << 23]) / divisor)
    tf.schedulers.pointwise(fusion)
    assert ("any_constant_quotient(" in tf.lower(fusion).cuda_source().split("__global__")[1]) is (divisor != 0.7)
    given = x.view(np.float32)
    (got,) = tf.compile(fusion, backend="cuda")(given)
    with np.errstate(all="ignore"):
        assert differing(got, given / np.float32(divisor), False).size == 0


def test_fast_math_is_near_and_keeps_special_values() -> None:
    ops = [ELEMENTWISE[name] for name in ("exp", "log", "sin", "cos", "tanh", "sigmoid", "silu", "gelu_tanh", "reciprocal", "sqrt")]
    x = np.linspace(0.01, 3, 10000, dtype=np.float32)
    for op, got in zip(ops, run(ops, [tf.float32], [x], fast_math=True), strict=True):
        np.testing.assert_allclose(got, NATIVE.apply(op, [x], [tf.float32], tf.float32, tf.float32), rtol=2e-3, atol=1e-6, err_msg=op.name)
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    by_name = dict(zip((op.name for op in ops), run(ops, [tf.float32], [special], fast_math=True), strict=True))
    assert all(np.isnan(values[0]) for values in by_name.values())
    np.testing.assert_array_equal(by_name["exp"], [np.nan, np.inf, 0])
    np.testing.assert_array_equal(by_name["sigmoid"], [np.nan, 1, 0])
    np.testing.assert_array_equal(by_name["tanh"], [np.nan, 1, -1])
    base, power = (np.array(v, np.float32) for v in ([-2, -2, -2, 0, -1.5, 2], [2, 3, 0.5, 0, -1, 10]))
    (got,) = run([ELEMENTWISE["pow"]], [tf.float32, tf.float32], [base, power], fast_math=True)
    np.testing.assert_allclose(got, [4, -8, np.nan, 1, -2 / 3, 1024], rtol=1e-5)


def test_quotients_of_which_short_integers_are_made() -> None:
    """Rows in int8: elements are next to where the integer changes, and the divisor of a row has any exponent."""
    rng = np.random.default_rng(0)
    x = (rng.integers(-253, 254, (2000, 512)) / 2).astype(np.float32)
    x[:, 0] = 127
    with np.errstate(over="ignore", invalid="ignore"):
        x *= np.exp2(rng.integers(-149, 122, (2000, 1))).astype(np.float32)
        x[:, 1:] *= np.float32(127) * np.float32(1 / 127)
        x[:, 1:] = (x[:, 1:].view(np.int32) + rng.integers(-2, 3, (2000, 511), np.int32)).view(np.float32)
        x[:3] = [[0], [np.inf], [np.nan]]
        scales = np.abs(x).max(1, keepdims=True) * np.float32(1 / 127)
        wanted = NATIVE.cast(np.rint(x / scales), tf.float32, tf.int8)
    with tf.Fusion("rows") as fusion:
        given = tf.define_tensor([2000, 512], name="x")
        fusion.add_output(tf.cast(tf.round(given / (tf.max(tf.abs(given), 1, keepdims=True) * (1 / 127))), tf.int8))
    call = tf.compile(fusion, backend="cuda")
    assert "narrow_quotient(" in call.kernels[0].cuda_source().split("__global__")[1]
    (got,) = call(x)
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_conversions(source: DType) -> None:
    (array,) = elements([source], 70000)
    with tf.Fusion("conversions") as fusion:
        x = tf.define_tensor(["N"], dtype=source)
        for target in DTYPES.values():
            fusion.add_output(tf.cast(x, target))
    schedule(fusion)
    results = tf.compile(fusion, backend="cuda")(array)
    cast = ELEMENTWISE["cast"]
    found = [w for target, got in zip(DTYPES.values(), results, strict=True) for w in wrong(cast, got, NATIVE.cast(array, source, target), [array])]
    assert found == []
