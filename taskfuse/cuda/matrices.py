"""The helpers of tensor-core statements: wgmma, mma, ldmatrix, stmatrix (PTX ISA, the section of each).

The PTX ISA ("wgmma.fence") requires a fence between a write of a register and the wgmma that uses it. A fragment of 8- or 16-bit elements is packed into
32-bit registers, by default at its use, after the fence. The compiler then has to add another fence, or, if it cannot, serialize all wgmmas.
So the emitted text packs the fragments before the fence that covers them: :func:`covered`.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.cuda.c_types import c_type
from taskfuse.cuda.expressions import Level
from taskfuse.cuda.instructions import SHARED_ADDRESS
from taskfuse.cuda.text import Helper, HelperCall
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import DType, float32, float64, int32
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.matrix_instructions import PTX_TYPES
from taskfuse.ir.scalar import Const, Expr, const, is_multiple, simplify, substitute
from taskfuse.ir.shared_layouts import Major
from taskfuse.kir.nodes import For, Stmt
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.synchronization import Cursor, CursorInit, WgmmaFence
from taskfuse.kir.walk import bodies

_SUMS = {float32: "+f", float64: "+d"}
"""Constraints of accumulators; of all others ``+r``."""
_SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}

WORD = Helper(
    "word",
    """\
// the 32-bit register that holds the elements at x, the first in the lowest bits
template <typename T>
__device__ __forceinline__ unsigned word(const T* x) {
  if constexpr (sizeof(T) == 1) {  // as bytes that are joined where they are read, each would be in a register of its own
    unsigned found;
    memcpy(&found, x, 4);
    return found;
  } else if constexpr (sizeof(T) == 2) return (unsigned short)x[0] | (unsigned)(unsigned short)x[1] << 16;
  else return (unsigned)x[0];
}
__device__ __forceinline__ unsigned word(const float* x) { return __float_as_uint(x[0]); }""",
)
SET_WORD = Helper(
    "set_word",
    """\
// the elements at x are those in a 32-bit register
template <typename T>
__device__ __forceinline__ void set_word(T* x, unsigned word) {
  if constexpr (sizeof(T) == 1) {
    memcpy(x, &word, 4);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4 / (int)sizeof(T); ++i) x[i] = (T)(word >> 8 * sizeof(T) * i);
}
__device__ __forceinline__ void set_word(float* x, unsigned word) { x[0] = __uint_as_float(word); }""",
)

# -- wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions") ---------------------------------------------------------------

WGMMA_FENCE = Helper("wgmma_fence", '__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }', arch=90)
WGMMA_COMMIT = Helper(
    "wgmma_commit", '__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }', arch=90
)
WGMMA_WAIT = Helper(
    "wgmma_wait",
    'template <int pending>\n__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }',
    arch=90,
)
AGREED = Helper(
    "wgmma_agreed",
    """\
// a condition on which all threads of a warp agree, in a form in which ptxas knows that they do: it runs wgmmas of a divergent branch one by one
__device__ __forceinline__ bool wgmma_agreed(bool condition) { return __shfl_sync(0xffffffff, (int)condition, 0) != 0; }""",
    arch=90,
)
WGMMA_RETIRED = Helper(
    "wgmma_retired",
    """\
// nothing that reads these accumulators moves in front of the wgmma.wait_group before
template <int count>
__device__ __forceinline__ void wgmma_retired(float (&accumulators)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}
template <int count>
__device__ __forceinline__ void wgmma_retired(int (&accumulators)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(accumulators[i])::"memory");
}""",
    arch=90,
)
WGMMA_FACTOR = Helper(
    "wgmma_factor",
    """\
// the registers that hold a fragment of A are written here, and not behind the wgmma.fence that follows
template <typename T>
__device__ __forceinline__ void wgmma_factor(T* a) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned packed = word(a + 4 / sizeof(T) * i);
    asm volatile("" : "+r"(packed));
    set_word(a + 4 / sizeof(T) * i, packed);
  }
}""",
    (WORD, SET_WORD),
    90,
)
MATRIX = Helper(
    "matrix",
    """\
// a wgmma matrix descriptor: the address in bits 0-13, in units of 16 bytes, and what is known of the layout above. In a cluster, an address has the
// block's rank above its 18 bits
__device__ __forceinline__ unsigned long long matrix(const void* base, unsigned units, unsigned long long layout) {
  return layout & 0xffffffff00000000ull | (unsigned)layout + ((shared_address(base) & 0x3ffff) >> 4) + units;
}""",
    (SHARED_ADDRESS,),
    90,
)
UNIT = 16
"""Bytes of a unit of the addresses in matrix descriptors."""


def layout_bits(d: Descriptor) -> int:
    """A descriptor without its address: leading offset in bits 16-29, stride offset in 32-45, swizzle mode in 62-63."""
    return _SWIZZLES[d.swizzle] << 62 | (d.sbo >> 4 & 0x3FFF) << 32 | (d.lbo >> 4 & 0x3FFF) << 16


def descriptor(w: Writer, d: Descriptor, scope: TextScope) -> str:
    """The text of a descriptor: of a buffer's address and a distance from there, so that descriptors which differ by a constant are one addition apart."""
    w.helpers.add(MATRIX)
    place, facts, layout = w.places[d.base.buffer], scope.indices.facts(), f"{layout_bits(d):#x}ull"
    elements: Expr = const(0)
    for i, extent in zip(d.base.index, place.shape, strict=True):
        elements = elements * extent + i
    distance = simplify(elements * place.dtype.itemsize + d.offset, facts)
    if place.own_rank is None and is_multiple(distance, UNIT, facts):
        return f"matrix({place.identifier}, {scope.indices.text(simplify(distance // UNIT, facts))}, {layout})"
    base, offset = w.address(d.base, scope), scope.indices.text(d.offset, Level.SUM)
    return f"matrix({base if offset == '0' else f'(const unsigned char*){base} + {offset}'}, 0, {layout})"


def _slots(first: int, count: int) -> str:
    """Operands of an assembler statement: ``{%4, %5}``."""
    return f"{{{', '.join(f'%{first + i}' for i in range(count))}}}"


def _constraints(kind: str, values: list[str]) -> str:
    return ", ".join(f'"{kind}"({value})' for value in values)


def _words(name: str, dtype: DType, fragment: Fragment | None) -> list[str]:
    """The registers of a fragment, of 32 bits or of float64; none of an operand that is in no registers."""
    if fragment is not None and dtype is float64:
        return [f"{name}[{i}]" for i in range(fragment.count)]
    packed = 4 // dtype.itemsize
    return [] if fragment is None else [f"word({name} + {packed * i})" for i in range(fragment.count // packed)]


def _kinds(a: DType, b: DType) -> str:
    return PTX_TYPES[a] if a is b else f"{PTX_TYPES[a]}_{PTX_TYPES[b]}"


def wgmma(stmt: Wgmma) -> Helper:
    """``d (+)= A @ B^T``, m64 x n x k; A is a descriptor or the registers of its fragment, B a descriptor."""
    n, row = stmt.n, stmt.row
    a, acc = row.a, row.sums
    majors = [d.major for d in (stmt.a, stmt.b) if isinstance(d, Descriptor)]
    in_registers = len(majors) == 1
    words = _words("a", a, row.a_registers if in_registers else None)
    count = stmt.accumulators.count
    layout = "".join("t" if m is Major.MN else "n" for m in majors)
    name = f"wgmma_m{row.m}n{n}k{row.k}_{_kinds(a, row.b)}" + ("_rs" if in_registers else "") + (f"_{layout}" if "t" in layout else "")

    at = count + max(len(words), 1)  # of B's descriptor
    operand = _slots(count, len(words)) if in_registers else f"%{count}"
    tail = "p" if acc is int32 else "p, 1, 1"
    if row.transposes:
        tail += "".join(f", {int(m is Major.MN)}" for m in majors)
    outputs = _constraints("+r" if acc is int32 else "+f", [f"d[{i}]" for i in range(count)])
    inputs = _constraints("r", words) if in_registers else '"l"(a)'
    parameter = f"const {c_type(a)}* a" if in_registers else "unsigned long long a"
    return Helper(
        name,
        f"__device__ __forceinline__ void {name}({c_type(acc)}* d, {parameter}, unsigned long long b, int accumulate) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{at + 1}, 0; "\n'
        f'               "{row.ptx(n)} {_slots(0, count)}, {operand}, %{at}, {tail}; }}"\n'
        f'               : {outputs}\n               : {inputs}, "l"(b), "r"(accumulate) : "memory");\n}}',
        (WORD,) if in_registers else (),
        row.arch,
    )


# -- mma (PTX ISA, "Warp Level Matrix Instructions") -----------------------------------------------------------------------------------


def mma(stmt: Mma) -> Helper:
    """``d += A @ B``, m16 x n8 x k, m8 x n8 x k or four times that, all in registers."""
    n, row = stmt.n, stmt.row
    a, b, acc = row.a, row.b, row.sums
    count = stmt.accumulators.count
    left, right = _words("a", a, row.a_registers), _words("b", b, row.b_registers)
    more = [*(layout.value for layout in stmt.layouts or ()), *([PTX_TYPES[acc]] if stmt.sums else [])]
    name = "_".join((f"mma_m{row.m}n{n}k{row.k}", _kinds(a, b), *more))
    packed = max(1, 4 // acc.itemsize)
    count //= packed
    held = "d" if a is float64 else "r"
    sums = [f"d[{i}]" if packed == 1 else f"words[{i}]" for i in range(count)]
    before = "" if packed == 1 else f"  unsigned words[{count}] = {{{', '.join(f'word(d + {packed * i})' for i in range(count))}}};\n"
    after = "" if packed == 1 else f"#pragma unroll\n  for (int i = 0; i < {count}; ++i) set_word(d + {packed} * i, words[i]);\n"
    slots = f"{_slots(0, count)}, {_slots(count, len(left))}, {_slots(count + len(left), len(right))}, {_slots(0, count)}"
    return Helper(
        name,
        f"__device__ __forceinline__ void {name}({c_type(acc)}* d, const {c_type(a)}* a, const {c_type(b)}* b) {{\n{before}"
        f'  asm volatile("{row.ptx(n)} {slots};"\n'
        f"               : {_constraints(_SUMS.get(acc, '+r'), sums)}\n"
        f"               : {_constraints(held, left)}, {_constraints(held, right)});\n{after}}}",
        () if a is float64 else (WORD,) if packed == 1 else (WORD, SET_WORD),
        row.arch,
    )


# -- ldmatrix, stmatrix ------------------------------------------------------------------------------------------------------------------


def ldmatrix(stmt: LdMatrix) -> Helper:
    """Matrices of 8 rows of 16 bytes from Shared memory; every lane gets 32 bits of each."""
    count, kind = stmt.matrices, f"x{stmt.matrices}{'.trans' if stmt.transpose else ''}"
    name = f"ldmatrix_{kind.replace('.', '_')}"
    outputs = _constraints("=r", [f"words[{i}]" for i in range(count)])
    return Helper(
        name,
        f"template <typename T>\n__device__ __forceinline__ void {name}(T* out, const T* source) {{\n"
        f"  unsigned words[{count}];\n"
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.{kind}.shared.b16 {_slots(0, count)}, [%{count}];"\n'
        f'               : {outputs} : "r"(shared_address(source)) : "memory");\n'
        f"#pragma unroll\n  for (int i = 0; i < {count}; ++i) set_word(out + 4 / sizeof(T) * i, words[i]);\n}}",
        (SHARED_ADDRESS, SET_WORD),
    )


def stmatrix(stmt: StMatrix) -> Helper:
    """Matrices of 8 rows of 16 bytes to Shared memory, of which every lane holds 32 bits."""
    count, kind = stmt.matrices, f"x{stmt.matrices}{'.trans' if stmt.transpose else ''}"
    name = f"stmatrix_{kind.replace('.', '_')}"
    values = [f"word(source + {'4 / sizeof(T)' if i == 1 else f'{4 * i} / sizeof(T)'})" if i else "word(source)" for i in range(count)]
    return Helper(
        name,
        f"template <typename T>\n__device__ __forceinline__ void {name}(T* out, const T* source) {{\n"
        f'  asm volatile("stmatrix.sync.aligned.m8n8.{kind}.shared.b16 [%0], {_slots(1, count)};"\n'
        f'               ::"r"(shared_address(out)), {_constraints("r", values)} : "memory");\n}}',
        (SHARED_ADDRESS, WORD),
        90,
    )


def covered(behind: tuple[Stmt, ...]) -> tuple[Access, ...]:
    """The fragments of A that the wgmmas of ``behind``, the statements after a fence, read up to the next fence, each once, in their order.

    Unrolled loops are expanded, so that indices have values before the fence. Fragments whose index has no value there are left out.
    """
    found: dict[Access, None] = {}
    _collect(behind, {}, set(), found)
    return tuple(found)


def _collect(body: tuple[Stmt, ...], values: Mapping[str, Expr], unset: set[str], found: dict[Access, None]) -> bool:
    """Collect the fragments of one body; true if the next fence is in it.

    Args:
        values: loop variables.
        unset: symbols without a value in front of the first fence.
    """
    for stmt in body:
        match stmt:
            case WgmmaFence():
                return True
            case Wgmma(a=Access(buffer=buffer, index=index)):
                index = tuple(simplify(substitute(e, values)) for e in index)
                if not any(e.free & unset for e in index):
                    found[Access(buffer, index)] = None
            case CursorInit(name=name):
                unset |= {*Cursor(name).symbols}
            case For(var=var, start=Const(start), stop=Const(stop), step=Const(step), unroll=True):
                if any(_collect(stmt.body, {**values, var: const(i)}, unset, found) for i in range(start, stop, step)):
                    return True
            case _:
                if isinstance(stmt, For):
                    unset.add(stmt.var)
                if any([_collect(inner, values, unset, found) for inner in bodies(stmt)]):
                    return True
    return False


CALLS: Mapping[type[Stmt], HelperCall] = {WgmmaFence: HelperCall(WGMMA_FENCE)}
