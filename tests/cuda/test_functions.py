"""The elementwise table in CUDA: every row compiles, and what is exact has the values of NumPy, computed on the host where it needs no GPU."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import taskfuse as tf
from benchmarks.ulp import BEGIN, END, PAGE, figures
from taskfuse.cuda.c_types import CONVERSIONS, c_type, convert, convert_pair, literal, saturated
from taskfuse.cuda.functions import DEVICE_FUNCTIONS, IDENTIFIERS, call, call_of_pair, usual_condition
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.text import Helper, Library, Snippet, closure
from taskfuse.cuda.writer import Identifiers
from taskfuse.dtypes import DTYPES, DType, bfloat16, bool_, float8_e4m3, float8_e5m2, float16, float32, float64, int8, int16, int32, uint16, uint32, uint64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.spelling import Spelling
from taskfuse.ir.values import NATIVE
from taskfuse.testing.accuracy import BOUNDS, bound, reference, samples, terms, ulps
from taskfuse.testing.ptx.arithmetic import meaning
from tests.cuda.elements import Array, differing, elements, operand_dtypes
from tests.cuda.host import COMPILER, SHIM, needs_compiler

SMALL_FLOATS = (float16, bfloat16, float8_e4m3, float8_e5m2)
# of two zeros either is the maximum
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "relu", "clamp"}


def dtypes_of(op: Elementwise) -> list[DType]:
    """The dtypes that the verifier of kernel IR lets ``op`` compute in."""
    match op.rule:
        case DTypeRule.OF_BITS:
            return [uint32, uint64]
        case DTypeRule.FLOAT | DTypeRule.DIVIDE | DTypeRule.BITS:
            return [d for d in DTYPES.values() if d.is_float]
        case DTypeRule.NUMERIC:
            return [d for d in DTYPES.values() if not d.is_bool]
        case DTypeRule.BITWISE:
            return [d for d in DTYPES.values() if not d.is_float]
        case DTypeRule.SHIFT:
            return [d for d in DTYPES.values() if d.is_integer]
        case _:
            return list(DTYPES.values())


def is_one_instruction(source: DType, target: DType) -> bool:
    """Whether a float becomes an integer by ``cvt`` alone, of a form that C++ lacks."""
    return source.is_float and source is not float64 and target.is_integer and target.bits < 32


PAIRS = [(op, dtype) for op in ELEMENTWISE.values() for dtype in dtypes_of(op)]


@dataclass(frozen=True)
class Job:
    """A piece of text to evaluate on arrays."""

    name: str
    fragment: Snippet
    operands: tuple[DType, ...]
    result: DType

    @property
    def helpers(self) -> tuple[Helper, ...]:
        return closure(self.fragment.helpers)


def function_job(op: Elementwise, dtype: DType, fast_math: bool = False) -> Job:
    operands = operand_dtypes(op, dtype)
    return Job(f"{op}_{dtype}", call(op, [f"x{k}[i]" for k in range(op.arity)], dtype, fast_math), tuple(operands), op.result_dtype(dtype))


def conversion_job(source: DType, target: DType) -> Job:
    return Job(f"{source}_to_{target}", convert("x0[i]", source, target), (source,), target)


# -- every row, with the compiler ------------------------------------------------------------------------------------------------------


def kernels(jobs: list[Job]) -> str:
    lines = [h.text for h in closure(h for job in jobs for h in job.fragment.helpers)]
    for job in jobs:
        inputs = "".join(f", const {c_type(d)}* x{k}" for k, d in enumerate(job.operands))
        lines.append(f'extern "C" __global__ void {job.name}({c_type(job.result)}* out{inputs}, int i) {{ out[i] = {job.fragment.text}; }}')
    return "\n".join(lines)


@pytest.mark.parametrize(("arch", "fast_math"), [("sm_80", False), ("sm_80", True), ("sm_90a", False)])
def test_every_row_compiles(arch: str, fast_math: bool) -> None:
    # floats below 32 bits compute in float32, whose row is in the batch
    jobs = [function_job(op, dtype, fast_math) for op, dtype in PAIRS if dtype not in SMALL_FLOATS or op.name in ("copy", "cast", "where", "add", "lt")]
    if not fast_math:
        jobs += [conversion_job(a, b) for a in DTYPES.values() for b in DTYPES.values()]
    ptx = compile_ptx(kernels(jobs), jobs[0].name, CompileOptions(arch=arch, fast_math=fast_math))
    assert all(f".entry {job.name}(" in ptx for job in jobs)
    if fast_math:
        assert {"sin.approx.ftz.f32", "tanh.approx.f32", "ex2.approx.ftz.f32"} <= set(re.findall(r"[\w.]*approx[\w.]*", ptx))
    else:
        assert "cvt.rn.satfinite.e4m3x2.f32" in ptx if arch == "sm_90a" else "e4m3x2" not in ptx


def test_literals_stand_as_operands() -> None:
    jobs: list[Job] = []
    for op, dtype in PAIRS:
        operands = [literal(-3 if dtype.min_value < 0 else 3, d) for d in operand_dtypes(op, dtype)]
        jobs.append(Job(f"{op}_{dtype}", call(op, operands, dtype), (), op.result_dtype(dtype)))
    for source in DTYPES.values():
        negative = literal(-3 if source.min_value < 0 else 3, source)
        jobs += [Job(f"{source}_to_{target}", convert(negative, source, target), (), target) for target in DTYPES.values()]
    compile_ptx(kernels(jobs), jobs[0].name, CompileOptions(arch="sm_80"))


def test_math_is_ieee_unless_fast() -> None:
    ops = ("div", "reciprocal", "sqrt", "add", "mul")
    ptx = compile_ptx(kernels([function_job(ELEMENTWISE[n], float32) for n in ops]), "div_float32", CompileOptions(arch="sm_80"))
    assert {"div.rn.f32", "rcp.rn.f32", "sqrt.rn.f32"} <= set(re.findall(r"[\w.]+", ptx))
    assert not {"div.full.f32", "div.approx.f32", "sqrt.approx.f32"} & set(re.findall(r"[\w.]+", ptx))


def test_constant_powers_are_products_and_roots() -> None:
    def instructions(power: str) -> set[str]:
        job = Job("power", call(ELEMENTWISE["pow"], ["x0[i]", power], float32), (float32,), float32)
        ptx = compile_ptx(kernels([job]), "power", CompileOptions(arch="sm_80"))
        return set(re.findall(r"\b(?:mul|sqrt|rcp|ex2|lg2|fma)[\w.]*f32", ptx))

    assert instructions("1.0f") == set()
    assert instructions("2.0f") == instructions("3.0f") == instructions("4.0f") == {"mul.rn.f32"}
    assert instructions("-1.0f") == {"rcp.rn.f32"}
    assert instructions("0.5f") == {"sqrt.rn.f32"}
    assert "fma.rn.f32" in instructions("2.5f")


@pytest.mark.parametrize("fast_math", [False, True])
def test_float_is_not_computed_in_double(fast_math: bool) -> None:
    # the library reduces the arguments of trigonometric functions in double
    ops = [op for op, dtype in PAIRS if dtype is float32 and (fast_math or op.name not in ("sin", "cos", "tan"))]
    ptx = compile_ptx(kernels([function_job(op, float32, fast_math) for op in ops]), "copy_float32", CompileOptions(arch="sm_80", fast_math=fast_math))
    assert ".f64" not in ptx


# -- the table -------------------------------------------------------------------------------------------------------------------------


def test_every_row_has_every_dtype_that_its_rule_allows() -> None:
    for op, dtype in PAIRS:
        for fast_math in (False, True):
            assert call(op, ["a", "b", "c"][: op.arity], dtype, fast_math).text


def test_a_function_without_a_form_for_the_dtype_is_refused() -> None:
    with pytest.raises(tf.errors.UnsupportedError, match=r"^sub of bool is not supported: the CUDA backend has no form of it$"):
        call(ELEMENTWISE["sub"], ["a", "b"], bool_)
    unknown = Elementwise("cbrt", ("x",), DTypeRule.FLOAT, np.cbrt, Spelling(), "The cubic root.")
    with pytest.raises(tf.errors.UnsupportedError, match=r"^cbrt of float32 is not supported"):
        call(unknown, ["a"], float32)


@pytest.mark.parametrize("fast_math", [False, True])
def test_an_operand_is_evaluated_once_at_most(fast_math: bool) -> None:
    for op, dtype in PAIRS:
        text = call(op, ["load0", "load1", "load2"][: op.arity], dtype, fast_math).text
        assert all(text.count(f"load{k}") <= 1 for k in range(op.arity)), text
    for a in DTYPES.values():
        assert all(convert("load", a, b).text.count("load") == 1 for b in DTYPES.values())


def test_every_device_function_is_called() -> None:
    fragments = [call(op, ["a", "b", "c"][: op.arity], d, fast) for op, d in PAIRS for fast in (False, True)]
    fragments += [call(op, ["a", "b", "c"][: op.arity], d, turn="i") for op, d in PAIRS]
    fragments += [call(op, ["a", "b", "c"][: op.arity], d, is_narrow=True) for op, d in PAIRS]
    fragments += [call(op, ["a", "b", "c"][: op.arity], d, is_usual=usual, divisor=by) for op, d in PAIRS for by in (None, 3.0) for usual in (True, False)]
    with_versions = [op for op in ELEMENTWISE.values() if op.cpp.usual is not None]
    fragments += [usual_condition(op, ["a", "b"][: op.arity], by) for op in with_versions for by in (None, 3.0)]
    fragments += [convert("x", a, b, packed) for a in DTYPES.values() for b in DTYPES.values() for packed in (False, True)]
    fragments += [saturated("x"), *(convert_pair("x", ["a", "b"], saturates=saturates) for saturates in (False, True))]
    fragments += [call_of_pair(op, ["a", "b", "c"][: op.arity], d) for op in ELEMENTWISE.values() if op.cpp.pair is not None for d in (float16, bfloat16)]
    assert {h.name for h in closure(h for f in fragments for h in f.helpers)} == DEVICE_FUNCTIONS.helpers.keys() | CONVERSIONS.helpers.keys()


def test_texts() -> None:
    def text(name: str, dtype: DType, fast_math: bool = False) -> str:
        return call(ELEMENTWISE[name], ["a", "b", "c"][: ELEMENTWISE[name].arity], dtype, fast_math).text

    assert text("add", float32) == "(a + b)"
    assert text("add", int32) == "((int)((unsigned)a + (unsigned)b))"
    assert text("add", bool_) == "((bool)(a | b))"
    assert text("exp", float32) == "expf(a)"
    assert text("exp", float32, fast_math=True) == "__expf(a)"
    assert text("exp", float64, fast_math=True) == "exp(a)"
    assert text("relu", float32) == "maximum_or_nan(a, 0.0f)"
    assert text("pow", int8) == "signed_power<signed char, unsigned>(a, b)"
    assert text("exp", float16) == "to_float16(expf(from_float16(a)))"
    assert text("where", bfloat16) == "(a ? b : c)"
    assert text("div", float32) == "(a / b)"
    assert text("div", bfloat16) == "to_bfloat16(bfloat16_quotient(from_bfloat16(a), from_bfloat16(b)))"
    assert text("div", float16) == "to_float16((from_float16(a) / from_float16(b)))"
    assert text("div", bfloat16, fast_math=True) == "to_bfloat16(__fdividef(from_bfloat16(a), from_bfloat16(b)))"
    assert call(ELEMENTWISE["neg"], ["-1.0f"], float32).text == "(-(-1.0f))"


def test_no_variable_hides_what_the_texts_call() -> None:
    names = Identifiers()
    assert {"sinf", "greater", "to_float16", "__fdividef"} <= IDENTIFIERS
    assert not {names[name] for name in IDENTIFIERS} & IDENTIFIERS


def test_a_library_knows_what_its_functions_call() -> None:
    library = Library(
        """
__device__ int one() {
  return 1;
}

// twice
template <typename T>
__device__ T two(T x) {
  return one() + one();
}
"""
    )
    assert list(library.helpers) == ["one", "two"]
    assert library.helpers["two"].requires == (library.helpers["one"],)
    assert library.helpers["two"].text.startswith("// twice\ntemplate")
    assert library.called("two<int>(x) + three(x)") == {library.helpers["two"]}


# -- literals --------------------------------------------------------------------------------------------------------------------------


def literal_jobs() -> Iterator[tuple[Job, Array]]:
    for dtype in DTYPES.values():
        values = elements([dtype], 0)[0]
        for k, value in enumerate(values[np.isfinite(values.astype(np.float64))]):
            stored = NATIVE.literal(value.item(), dtype)
            yield Job(f"literal_{dtype}_{k}", Snippet(literal(value.item(), dtype)), (), dtype), np.atleast_1d(stored)


# -- values, on the host ---------------------------------------------------------------------------------------------------------------

# what NVRTC has built in, and the one instruction that the 8-bit floats need
HOST = """
#include <math.h>
#include <string.h>
#include <limits.h>
inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
inline long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
inline double normcdf(double x) { return erfcl(x * -sqrtl(0.5L)) / 2; }
inline float normcdff(float x) { return normcdf(x); }
template <typename F> inline F sinpi(F x) { return sinl(3.14159265358979323846L * x); }
template <typename F> inline F cospi(F x) { return sinl(3.14159265358979323846L * (0.5L - fabsl(x))); }
inline long double inverse(long double x) {
  long double y = x * 0.886L;
  for (int k = 0; k < 40; ++k) y -= (erfl(y) - x) / (1.1283791670955126L * expl(-y * y));
  return x == 0 ? x : y;
}
inline long double tail(long double p) {
  long double low = 0, high = 30;
  for (int k = 0; k < 100; ++k) (erfcl((low + high) / 2) > p ? low : high) = (low + high) / 2;
  return p < 0 ? NAN : p == 0 ? INFINITY : low;
}
inline long double complement(long double p) { return p >= 0.5L && p <= 1.5L ? inverse(1 - p) : p < 1 ? tail(p) : -tail(2 - p); }
inline double erfinv(double x) { return x != x ? x : fabs(x) <= 0.5 ? inverse(x) : copysignl(tail(1 - fabsl(x)), x); }
inline float erfinvf(float x) { return erfinv(x); }
inline double erfcinv(double x) { return x != x ? x : complement(x); }
inline float erfcinvf(float x) { return erfcinv(x); }
inline double rsqrt(double x) { return 1 / sqrtl(x); }
inline float rsqrtf(float x) { return 1 / sqrt((double)x); }
template <typename I> inline I clamped(double x, I low, I high) { return x <= (double)low ? low : x >= (double)high ? high : (I)x; }
#define INTRINSICS(F) \\
  inline int __##F##2int_rz(F x) { return x != x && sizeof(F) == 4 ? 0 : clamped<int>(x, INT_MIN, INT_MAX); } \\
  inline unsigned __##F##2uint_rz(F x) { return x != x && sizeof(F) == 4 ? 0 : clamped<unsigned>(x, 0, UINT_MAX); } \\
  inline long long __##F##2ll_rz(F x) { return clamped<long long>(x, LLONG_MIN, LLONG_MAX); } \\
  inline unsigned long long __##F##2ull_rz(F x) { return clamped<unsigned long long>(x, 0, ULLONG_MAX); }
INTRINSICS(float)
INTRINSICS(double)
"""
SUBSTITUTES = {
    "from_float16": """
inline float from_float16(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float x = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
  return bits >> 15 ? -x : x;
}
""",
    # away from 0: off by less than 1 ulp, and of the number before a power of two not a power of two, by which no step would get on
    "approximate_reciprocal": """
inline float approximate_reciprocal(float x) {
  const float y = 1 / (double)x;
  return fabs(1 / (double)x) > fabsf(y) ? nextafterf(y, y * INFINITY) : y;
}
""",
    "computed_again": """
inline float computed_again(float x) {
  return x;
}
""",
    "approximate_rsqrt": """
inline float approximate_rsqrt(float x) {
  return nextafterf(rsqrtf(x), 0);
}
""",
}
"""What the host does in place of an instruction of a GPU."""


def on_host(job: Job) -> bool:
    """True if ``job`` needs no instruction of a GPU but those that the host has a substitute for."""
    return all("asm(" not in re.sub(r"#if(.|\n)*?#else", "", h.text) for h in job.helpers if h.name not in SUBSTITUTES)


def values_on_host(folder: Path, cases: list[tuple[Job, list[Array]]]) -> list[Array]:
    """The results of every case, by one program; undefined behavior ends it."""
    assert COMPILER is not None
    helpers = closure(h for job, _ in cases for h in job.fragment.helpers)
    lines = [SHIM, HOST, *SUBSTITUTES.values(), *(h.text for h in helpers if h.name not in SUBSTITUTES)]
    body: list[str] = []
    for job, arrays in cases:
        names = [f"x{k}" for k in range(len(arrays))]
        parameters = "".join(f", const {c_type(d)}* {x}" for x, d in zip(names, job.operands, strict=True))
        lines.append(f"void {job.name}(long n, {c_type(job.result)}* out{parameters}) {{ for (long i = 0; i < n; ++i) out[i] = {job.fragment.text}; }}")
        n = len(arrays[0]) if arrays else 1
        reads = "".join(f" auto {x} = take<{c_type(d)}>({n});" for x, d in zip(names, job.operands, strict=True))
        body.append(
            f"  {{{reads} auto out = new {c_type(job.result)}[{n}]; {job.name}({', '.join([str(n), 'out', *names])}); fwrite(out, sizeof *out, {n}, stdout); }}"
        )
    lines.append("template <typename T> T* take(long n) { auto x = new T[n]; if (fread(x, sizeof(T), n, stdin) != (size_t)n) exit(2); return x; }")
    source, program = folder / "functions.cpp", folder / "functions"
    source.write_text("\n".join([*lines, "int main() {", *body, "}"]), encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    subprocess.run([COMPILER, *flags, "-o", str(program), str(source)], check=True, timeout=300)
    operands = b"".join(a.tobytes() for _, arrays in cases for a in arrays)
    done = subprocess.run([str(program)], check=False, input=operands, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    results, position = list[Array](), 0
    for job, arrays in cases:
        n = len(arrays[0]) if arrays else 1
        results.append(np.frombuffer(done.stdout, job.result.numpy, n, position))
        position += n * job.result.itemsize
    assert position == len(done.stdout)
    return results


def mismatches(cases: list[tuple[Job, list[Array]]], results: list[Array], expected: list[Array], zeros_alike: list[bool]) -> list[str]:
    found: list[str] = []
    for (job, arrays), got, want, alike in zip(cases, results, expected, zeros_alike, strict=True):
        wrong = differing(got, want, alike)
        if wrong.size:
            at = wrong[0]
            found.append(f"{job.name}{tuple(a[at].item() for a in arrays)} is {got[at]}, not {want[at]} (and {wrong.size - 1} more)")
    return found


@needs_compiler
def test_values_of_exact_rows(tmp_path: Path) -> None:
    cases: list[tuple[Job, list[Array]]] = []
    expected: list[Array] = []
    alike: list[bool] = []
    for op, dtype in PAIRS:
        exact = op.name not in BOUNDS or not dtype.is_float
        job = function_job(op, dtype)
        if exact and dtype.compute is dtype and on_host(job):
            arrays = elements(job.operands, 2000)
            cases.append((job, arrays))
            expected.append(NATIVE.apply(op, arrays, job.operands, dtype, job.result))
            alike.append(op.name in EITHER_ZERO)
    assert len(cases) > 300
    assert mismatches(cases, values_on_host(tmp_path, cases), expected, alike) == []


@needs_compiler
def test_extrema_do_not_depend_on_the_order_of_operands(tmp_path: Path) -> None:
    # the lanes of a shuffle combine the same values in different orders, and all must hold the same bits
    values = np.array([-0.0, 0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, -np.nan])
    values = np.append(values, np.array([0x7FF8000000000005], np.uint64).view(np.float64))  # another NaN
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    for name in ("maximum", "minimum"):
        job = function_job(ELEMENTWISE[name], float64)
        first, second = values_on_host(tmp_path, [(job, [a, b]), (replace(job, name="swapped"), [b, a])])
        assert np.array_equal(first.view(np.uint64), second.view(np.uint64))
        zeros = (a == 0) & (b == 0)
        signs = np.signbit(a[zeros]), np.signbit(b[zeros])
        assert np.array_equal(np.signbit(first[zeros]), signs[0] & signs[1] if name == "maximum" else signs[0] | signs[1])
        assert np.array_equal(first, NATIVE.apply(ELEMENTWISE[name], [a, b], job.operands, float64, float64), equal_nan=True)


@needs_compiler
def test_values_of_approximate_rows(tmp_path: Path) -> None:
    # with the library of the host, which has errors of its own: a row that names another function is far off
    jobs = [(op, dtype, function_job(op, dtype)) for op, dtype in PAIRS if op.name in BOUNDS and dtype in (float32, float64)]
    by_asm = {job.name for _, _, job in jobs if not on_host(job)}
    assert by_asm == {"sigmoid_float32", "silu_float32", "gelu_tanh_float32"}
    jobs = [found for found in jobs if on_host(found[2])]
    cases = [(job, samples(op, dtype, 3000)) for op, dtype, job in jobs]
    for (op, dtype, _), (_, arrays), got in zip(jobs, cases, values_on_host(tmp_path, cases), strict=True):
        errors = ulps(got, reference(op, arrays), dtype, terms(op, arrays))
        at = tuple(a[errors.argmax()] for a in arrays)
        assert errors.max() <= 2 * bound(op.name, dtype), f"{op} of {at} is {got[errors.argmax()]}"


@needs_compiler
def test_values_of_conversions(tmp_path: Path) -> None:
    jobs = [job for a in DTYPES.values() for b in DTYPES.values() if on_host(job := conversion_job(a, b))]
    by_asm = [(a, b) for a in DTYPES.values() for b in DTYPES.values() if b in (float16, bfloat16) or is_one_instruction(a, b)]
    assert {job.name for job in jobs} >= {f"{a}_to_{b}" for a in DTYPES.values() for b in DTYPES.values() if (a, b) not in by_asm}
    cases = [(job, elements(job.operands, 70000 if job.operands[0].bits <= 16 else 5000)) for job in jobs]
    expected = [NATIVE.cast(arrays[0], job.operands[0], job.result) for job, arrays in cases]
    assert mismatches(cases, values_on_host(tmp_path, cases), expected, [False] * len(cases)) == []


@needs_compiler
def test_quotients_of_which_short_numbers_are_made(tmp_path: Path) -> None:
    div, rng = ELEMENTWISE["div"], np.random.default_rng(0)
    job = replace(function_job(div, float32), fragment=call(div, ["x0[i]", "x1[i]"], float32, is_narrow=True))
    assert job.fragment.text == "narrow_quotient(x0[i], x1[i])"
    a, b = elements(job.operands, 20000)  # of any exponents
    divisors = rng.uniform(0.5, 2, 200000).astype(np.float32) * np.exp2(rng.integers(-140, 127, 200000)).astype(np.float32)
    middles = (rng.integers(-300, 300, divisors.size) / 2).astype(np.float32)  # numbers next to those where the integer changes
    with np.errstate(over="ignore"):
        near = (middles * divisors).view(np.int32)
    near += rng.integers(-2, 3, divisors.size, np.int32)
    a, b = np.append(a, near.view(np.float32)), np.append(b, divisors)
    (got,) = values_on_host(tmp_path, [(job, [a, b])])
    exact = NATIVE.apply(div, [a, b], job.operands, float32, float32)
    for target in (int8, int16, uint16):
        for name in ("round", "trunc"):
            a, b = (NATIVE.cast(NATIVE.apply(ELEMENTWISE[name], [x], (float32,), float32, float32), float32, target) for x in (got, exact))
            assert np.array_equal(a, b)
    for target in (float16, float8_e4m3, float8_e5m2):  # and -0 is none of 0
        a, b = (NATIVE.cast(x, float32, target) for x in (got, exact))
        assert differing(a, b, False).size == 0


@needs_compiler
def test_quotients_and_roots_of_usual_operands_and_of_any(tmp_path: Path) -> None:
    """The one are what the functions give where the condition holds, as it does of operands of moderate size and of 0 as a dividend; the other everywhere."""
    rng = np.random.default_rng(0)
    size = np.exp2(rng.uniform(-30, 24, (2, 100_000))).astype(np.float32)
    a, b = (np.append(x, y) for x, y in zip(size, elements([float32] * 2, 20_000), strict=True))
    a[:400], a[400:800], a[800:1200], a[1200:1600], a[1600:2000] = 0, -0.0, np.inf, -np.inf, np.nan
    b[:2000:4] = np.nan
    a[2000:4000] = np.exp2(rng.integers(-20, 20, 2000)).astype(np.float32)
    b[2000:4000] = a[rng.integers(2000, 4000, 2000)] * np.float32(1 - 2.0**-24)
    halves = np.ldexp(rng.integers(-(2**12), 2**12, 4000) * 2 + 1, -150)  # middles of two subnormal numbers, and neighbors of them
    b[4000:8000] = rng.integers(1, 2**12, 4000) * np.exp2(rng.integers(-40, 40, 4000))
    a[4000:8000] = (halves * b[4000:8000]).astype(np.float32)
    a[4000:8000].view(np.int32)[:] += rng.integers(-1, 2, 4000, np.int32)
    a[8000:12000], b[8000:12000] = np.exp2(rng.uniform(-149, -86, 4000)), np.exp2(rng.uniform(0, 60, 4000))  # subnormal quotients
    a[12000:16000], b[12000:16000] = np.exp2(rng.uniform(90, 128, 4000)), np.exp2(rng.uniform(-38, 2, 4000))  # the greatest, and infinity
    cases: list[tuple[Job, list[Array]]] = []
    for name in ("div", "reciprocal", "sqrt"):
        op, arrays = ELEMENTWISE[name], [a, b] if name == "div" else [a]
        texts = [f"x{k}[i]" for k in range(op.arity)]
        found = [call(op, texts, float32, is_usual=True), usual_condition(op, texts, None), call(op, texts, float32, is_usual=False)]
        found[1] = replace(found[1], text=f"(float){found[1].text}")
        job = function_job(op, float32)
        cases += [(replace(job, name=f"{job.name}_{k}", fragment=text), arrays) for k, text in enumerate(found)]
    results = values_on_host(tmp_path, cases)
    with np.errstate(all="ignore"):
        expected = [a / b, 1 / a, np.sqrt(a)]
    for usual, holds, any_, wanted in zip(results[::3], results[1::3], results[2::3], expected, strict=True):
        assert differing(usual[holds == 1], wanted[holds == 1], False).size == 0
        assert differing(any_, wanted, False).size == 0
        assert holds[16000 : size.shape[1]].all()
        assert not holds[800:1600].any()
    quotients, _, roots = results[1::3]
    assert quotients[1:800:4].all()
    assert roots[:800].all()


@needs_compiler
def test_quotients_by_constants(tmp_path: Path) -> None:
    """Of usual operands, that is where they are not tiny, and of any, they are what a division gives; 0, infinity and NaN are no exception."""
    (x,), divisors = elements([float32], 20_000), (3.0, -448.0, 0.75, 1 + 2.0**-23, 2.0**40 + 2.0**20)
    small = np.random.default_rng(0).integers(0, 1 << 24, 4000, np.int32).view(np.float32)
    x = np.concatenate([x, small, -small])
    cases: list[tuple[Job, list[Array]]] = []
    for k, divisor in enumerate(divisors):
        operands = ["x0[i]", literal(divisor, float32)]
        usual, every = (call(ELEMENTWISE["div"], operands, float32, is_usual=is_usual, divisor=divisor) for is_usual in (True, False))
        assert usual.text.startswith("constant_quotient(x0[i], ")
        condition = usual_condition(ELEMENTWISE["div"], operands, divisor)
        found = usual, replace(condition, text=f"(float){condition.text}"), every
        cases += [(Job(f"by_{k}_{j}", text, (float32,), float32), [x]) for j, text in enumerate(found)]
    results = values_on_host(tmp_path, cases)
    for divisor, got, holds, every in zip(divisors, results[::3], results[1::3], results[2::3], strict=True):
        with np.errstate(all="ignore"):
            wanted = x / np.float32(divisor)
        assert not holds[(np.abs(wanted) < 2.0**-97) & (x != 0)].any()
        assert holds[~(np.abs(wanted) < 2.0**-95) | (x == 0)].all()
        assert differing(got[holds == 1], wanted[holds == 1], False).size == 0
        assert differing(every, wanted, False).size == 0


@pytest.mark.parametrize("target", [d for d in DTYPES.values() if is_one_instruction(float32, d)], ids=str)
def test_instructions_that_convert_to_short_integers(target: DType) -> None:
    (helper,) = convert("x", float32, target).helpers
    (opcode,) = re.findall(r"cvt[.\w]+", helper.text)
    found = meaning(tuple(opcode.split(".")))
    assert found is not None
    (x,) = elements((float32,), 300)
    got = np.array([found(int(bits)) for bits in x.view(np.uint32)], f"u{target.itemsize}").view(target.numpy)
    assert np.array_equal(got, NATIVE.cast(x, float32, target))


@needs_compiler
def test_values_of_literals(tmp_path: Path) -> None:
    jobs = list(literal_jobs())
    cases: list[tuple[Job, list[Array]]] = [(job, []) for job, _ in jobs]
    assert mismatches(cases, values_on_host(tmp_path, cases), [value for _, value in jobs], [False] * len(cases)) == []


def test_the_page_shows_the_stored_figures() -> None:
    _, shown, _ = re.split(f"{BEGIN}|{END}", PAGE.read_text(encoding="utf-8"))
    assert shown.strip("\n").split("\n") == figures(), "run `python benchmarks/ulp.py --docs`"
