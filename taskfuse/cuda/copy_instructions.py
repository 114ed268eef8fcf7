"""The helpers of statements that copy elements: vectors, ``cp.async``, TMA (PTX ISA, the section of each)."""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.cuda.c_types import c_type
from taskfuse.cuda.instructions import SHARED_ADDRESS
from taskfuse.cuda.text import Helper, HelperCall
from taskfuse.dtypes import DType, int64
from taskfuse.ir.combine import Combine
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.synchronization import ArriveAsync

# -- vectors ------------------------------------------------------------------------------------------------------------------------


def copy_vector(size: int) -> Helper:
    """Copies ``size`` (2, 4, 8 or 16) bytes by one load and one store; both addresses are multiples of it."""
    ctype = {2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}[size]
    name = f"copy{size}"
    return Helper(
        name,
        f"__device__ __forceinline__ void {name}(void* out, const void* source) {{\n"
        f"  *reinterpret_cast<{ctype}*>(out) = *reinterpret_cast<const {ctype}*>(source);\n}}",
    )


STORED = {2: ("b16", "h", "unsigned short"), 4: ("b32", "r", "unsigned"), 8: ("b64", "l", "unsigned long long")}
"""Bytes of a store: its PTX type, the constraint of its register, the C type of that."""


def store_vector_if(size: int) -> Helper:
    """Stores ``size`` (2, 4 or 8) bytes to Global memory under a condition, by a predicated instruction without a branch."""
    ptype, constraint, ctype = STORED[size]
    name = f"store{size}_if"
    return Helper(
        name,
        f"""\
__device__ __forceinline__ void {name}(bool condition, void* out, const void* source) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.{ptype} [%1], %2; }}"
               :: "r"((int)condition), "l"(out), "{constraint}"(*reinterpret_cast<const {ctype}*>(source)) : "memory");
}}""",
    )


# -- updates (PTX ISA, "red") -----------------------------------------------------------------------------------------------------------

_FUNCTIONS = {"add": "add", "maximum": "max", "minimum": "min", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_REGISTERS = {"f32": "f", "f64": "d", "s32": "r", "u32": "r", "b32": "r", "s64": "l", "u64": "l", "b64": "l"}


def update(combine: Combine, dtype: DType, width: int = 1) -> Helper:
    """Combines an element in Global memory with a value atomically; or ``width`` neighboring ones, each atomically. Orders no other access."""
    function, ptype = update_words(combine, dtype)
    name = f"update_{function}_{ptype}"
    if width > 1:
        values = ", ".join(f"%{k + 1}" for k in range(width))
        given = ", ".join(f'"{_REGISTERS[ptype]}"(v{k})' for k in range(width))
        parameters = ", ".join(f"{c_type(dtype)} v{k}" for k in range(width))
        return Helper(
            f"{name}_v{width}",
            f"""\
__device__ __forceinline__ void {name}_v{width}({c_type(dtype)}* out, {parameters}) {{
  asm volatile("red.relaxed.gpu.global.{function}.v{width}.{ptype} [%0], {{{values}}};"
               ::"l"(__cvta_generic_to_global(out)), {given} : "memory");
}}""",
            arch=90,
        )
    return Helper(
        name,
        f"""\
__device__ __forceinline__ void {name}({c_type(dtype)}* out, {c_type(dtype)} value) {{
  asm volatile("red.relaxed.gpu.global.{function}.{ptype} [%0], %1;" ::"l"(__cvta_generic_to_global(out)), "{_REGISTERS[ptype]}"(value) : "memory");
}}""",
    )


def update_words(combine: Combine, dtype: DType) -> tuple[str, str]:
    """The function and the type of an update in PTX."""
    function = _FUNCTIONS[combine.name]
    kind = "b" if function in ("and", "or", "xor") else "f" if dtype.is_float else "u" if dtype.min_value == 0 else "s"
    if function == "add" and dtype is int64:  # two's complement: there is one sum of 64 bits
        kind = "u"
    return function, f"{kind}{dtype.bits}"


# -- asynchronous copies (PTX ISA, "cp.async", "cp.async.mbarrier.arrive", "cp.async.wait_group") -----------------------------------------


LEAST_ASYNC_COPY = 4
"""Bytes of the smallest asynchronous copy."""


def async_copy(size: int, *, fills: bool) -> Helper:
    """Copies ``size`` (4, 8 or 16) bytes from Global to Shared memory. ``fills``: a last argument tells whether the bytes exist; otherwise zeros are written.

    Copies of 16 bytes bypass the L1 cache; smaller copies have no such form.
    """
    name = f"async_copy{size}{'_or_zero' if fills else ''}"
    cache = "cg" if size == 16 else "ca"
    parameter, operand, value = (", bool valid", ", %2", f', "r"(valid ? {size} : 0)') if fills else ("", "", "")
    return Helper(
        name,
        f"__device__ __forceinline__ void {name}(void* out, const void* source{parameter}) {{\n"
        f'  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}{operand};"\n'
        f'               ::"r"(shared_address(out)), "l"(__cvta_generic_to_global(source)){value} : "memory");\n}}',
        (SHARED_ADDRESS,),
    )


ARRIVE_ASYNC = Helper(
    "mbarrier_arrive_async",
    """\
// counted once this thread's asynchronous copies so far are done
__device__ __forceinline__ void mbarrier_arrive_async(unsigned long long* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}""",
    (SHARED_ADDRESS,),
)
COPY_COMMIT = Helper("copy_commit", '__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }')
COPY_WAIT = Helper(
    "copy_wait",
    'template <int pending>\n__device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }',
)


# -- TMA (PTX ISA, "cp.async.bulk.tensor") --------------------------------------------------------------------------------------------

TENSOR_MAP = Helper(
    "TensorMap",
    "struct alignas(64) TensorMap {\n  unsigned long long words[16];\n};",
    arch=90,
)


def coordinates(rank: int, before: int) -> tuple[str, str, str]:
    """The coordinates of a bulk copy: as parameters of its function, as operands of its instruction after ``before`` others, as values of these."""
    each = range(rank)
    return "".join(f", int c{i}" for i in each), ", ".join(f"%{i + before}" for i in each), "".join(f', "r"(c{i})' for i in each)


def tma_load(rank: int) -> Helper:
    """A box from Global to Shared; coordinates innermost first."""
    coords, slots, values = coordinates(rank, 3)
    return Helper(
        f"tma_load_{rank}d",
        f"__device__ __forceinline__ void tma_load_{rank}d(void* out, const TensorMap* map, unsigned long long* barrier{coords}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{{slots}}}], [%2];"\n'
        f'               ::"r"(shared_address(out)), "l"(map), "r"(shared_address(barrier)){values} : "memory");\n}}',
        (SHARED_ADDRESS, TENSOR_MAP),
        90,
    )


def tma_store(rank: int) -> Helper:
    """A box from Shared to Global, clipped; coordinates innermost first."""
    coords, slots, values = coordinates(rank, 2)
    return Helper(
        f"tma_store_{rank}d",
        f"__device__ __forceinline__ void tma_store_{rank}d(const TensorMap* map, const void* source{coords}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{slots}}}], [%1];"\n'
        f'               ::"l"(map), "r"(shared_address(source)){values} : "memory");\n}}',
        (SHARED_ADDRESS, TENSOR_MAP),
        90,
    )


def tma_update(combine: Combine, rank: int) -> Helper:
    """Combines each element of a box in Global memory, clipped, with the one in Shared memory; coordinates innermost first ("cp.reduce.async.bulk.tensor")."""
    coords, slots, values = coordinates(rank, 2)
    function = _FUNCTIONS[combine.name]
    name = f"tma_update_{function}_{rank}d"
    return Helper(
        name,
        f"__device__ __forceinline__ void {name}(const TensorMap* map, const void* source{coords}) {{\n"
        f'  asm volatile("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{function}.tile.bulk_group [%0, {{{slots}}}], [%1];"\n'
        f'               ::"l"(map), "r"(shared_address(source)){values} : "memory");\n}}',
        (SHARED_ADDRESS, TENSOR_MAP),
        90,
    )


BULK_COMMIT = Helper("bulk_commit", '__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }', arch=90)
BULK_WAIT = Helper(
    "bulk_wait",
    'template <int pending>\n__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory"); }',
    arch=90,
)
BULK_WAIT_READ = Helper(
    "bulk_wait_read",
    'template <int pending>\n__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }',
    arch=90,
)


def tma_multicast(rank: int) -> Helper:
    """A box from Global memory to the same offset of Shared memory in each block whose bit is set in ``mask`` ("cp.async.bulk.tensor"); coordinates innermost
    first.
    """
    coords, slots, values = coordinates(rank, 4)
    return Helper(
        f"tma_multicast_{rank}d",
        f"__device__ __forceinline__ void tma_multicast_{rank}d(void* out, const TensorMap* map, unsigned long long* barrier, unsigned short mask{coords}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "\n'
        f'               "[%0], [%1, {{{slots}}}], [%2], %3;"\n'
        f'               ::"r"(shared_address(out)), "l"(map), "r"(shared_address(barrier)), "h"(mask){values} : "memory");\n}}',
        (SHARED_ADDRESS, TENSOR_MAP),
        90,
    )


CALLS: Mapping[type[Stmt], HelperCall] = {ArriveAsync: HelperCall(ARRIVE_ASYNC, ("barrier",))}
