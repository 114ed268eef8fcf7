"""The helpers behind kernel-IR statements: vectors, mbarriers, barriers across blocks, TMA, register budgets (PTX ISA, the section of each)."""

from __future__ import annotations

from taskfuse.cuda.text import Helper

SHARED_ADDRESS = Helper(
    "shared_address",
    "__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }",
)

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
    """Stores ``size`` (2, 4 or 8) bytes to Global memory where a condition holds, by a predicated instruction: there is no branch."""
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


# -- asynchronous copies (PTX ISA, "cp.async", "cp.async.mbarrier.arrive", "cp.async.wait_group") -----------------------------------------


LEAST_ASYNC_COPY = 4
"""Bytes of the smallest asynchronous copy."""


def async_copy(size: int, *, fills: bool) -> Helper:
    """Copies ``size`` (4, 8 or 16) bytes from Global to Shared memory. ``fills``: a last argument says whether they are there; else zeros are written.

    16 bytes go past the first-level cache; smaller copies have no such form.
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

# -- mbarriers (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier") -----------------------------------------

INIT = Helper(
    "mbarrier_init",
    """\
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}""",
    (SHARED_ADDRESS,),
)
FENCE_INIT = Helper(
    "fence_mbarrier_init",
    """\
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }""",
    arch=90,
)
ARRIVE = Helper(
    "mbarrier_arrive",
    """\
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(barrier)) : "memory");
}""",
    (SHARED_ADDRESS,),
)
EXPECT = Helper(
    "mbarrier_expect",
    """\
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, unsigned bytes) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(shared_address(barrier)), "r"(bytes) : "memory");
}""",
    (SHARED_ADDRESS,),
    90,
)
TRY_WAIT = Helper(
    "mbarrier_passed",
    """\
__device__ __forceinline__ bool mbarrier_passed(unsigned long long* barrier, unsigned parity) {
  unsigned passed;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#endif
  return passed;
}""",
    (SHARED_ADDRESS,),
)
WAIT = Helper(
    "mbarrier_wait",
    """\
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
  while (!mbarrier_passed(barrier, parity)) {}
}""",
    (TRY_WAIT,),
)

# -- bounded waits of a debug build (taskfuse/cuda/debug.py) --------------------------------------------------------------------------

REPORT = Helper(
    "report_timeout",
    """\
struct Report {
  int claimed, point, slot, parity, block[3], thread[3];
  unsigned long long limit;  // nanoseconds
};
__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__device__ __forceinline__ void report_timeout(Report* report, int point, int slot, int parity) {
  if (atomicCAS_system(&report->claimed, 0, 1) == 0) {
    report->point = point, report->slot = slot, report->parity = parity;
    report->block[0] = blockIdx.x, report->block[1] = blockIdx.y, report->block[2] = blockIdx.z;
    report->thread[0] = threadIdx.x, report->thread[1] = threadIdx.y, report->thread[2] = threadIdx.z;
    __threadfence_system();
    report->claimed = 2;
    __threadfence_system();
  } else {
    // the first to report must get its report out before the launch ends
    for (const unsigned long long start = nanoseconds(); *(volatile int*)&report->claimed != 2 && nanoseconds() - start < 100000000;) {}
  }
  asm volatile("trap;");
}""",
)
BOUNDED_WAIT = Helper(
    "mbarrier_wait_bounded",
    """\
__device__ __forceinline__ void mbarrier_wait_bounded(unsigned long long* barrier, unsigned parity, Report* report, int point, int slot) {
  const unsigned long long start = nanoseconds();
  while (!mbarrier_passed(barrier, parity)) {
    if (nanoseconds() - start > report->limit) report_timeout(report, point, slot, parity);
  }
}""",
    (TRY_WAIT, REPORT),
)

CHAOS = Helper(
    "delay_at_random",
    """\
// none, or up to four microseconds: another time for each warp, place and launch
__device__ __forceinline__ void delay_at_random(unsigned seed, unsigned place) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned x = seed ^ place * 0x9e3779b9u ^ thread / 32 * 0x85ebca6bu ^ blockIdx.x * 0xc2b2ae35u ^ (unsigned)clock64();
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  if (x & 0x10000) __nanosleep(x >> 20);
}""",
)

# -- barriers across blocks -----------------------------------------------------------------------------------------------------------
# The counter only grows: the arrivals of round r end at (r + 1) * count. It is 0 when a launch begins.

ARRIVE_AT_COUNTER = Helper(
    "counter_arrive",
    """\
// the value at which the round of this arrival is complete
__device__ __forceinline__ unsigned long long counter_arrive(unsigned long long* counter, unsigned long long count) {
  __threadfence();
  return (atomicAdd(counter, 1ull) / count + 1) * count;
}""",
)
COUNTER_VALUE = Helper(
    "counter_value",
    """\
__device__ __forceinline__ unsigned long long counter_value(unsigned long long* counter) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
}""",
)
GRID_THREADS = Helper(
    "grid_barrier_of_threads",
    """\
__device__ __forceinline__ void grid_barrier_of_threads(unsigned long long* counter, unsigned long long threads) {
  const unsigned long long target = counter_arrive(counter, threads);
  while (counter_value(counter) < target) {}
}""",
    (ARRIVE_AT_COUNTER, COUNTER_VALUE),
)
GRID_BLOCKS = Helper(
    "grid_barrier_of_blocks",
    """\
__device__ __forceinline__ void grid_barrier_of_blocks(unsigned long long* counter) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    const unsigned long long target = counter_arrive(counter, (unsigned long long)gridDim.x * gridDim.y * gridDim.z);
    while (counter_value(counter) < target) {}
  }
  __syncthreads();
}""",
    (ARRIVE_AT_COUNTER, COUNTER_VALUE),
)
GRID_THREADS_BOUNDED = Helper(
    "grid_barrier_of_threads_bounded",
    """\
__device__ __forceinline__ void grid_barrier_of_threads_bounded(unsigned long long* counter, unsigned long long threads, Report* report, int point) {
  const unsigned long long target = counter_arrive(counter, threads), start = nanoseconds();
  while (counter_value(counter) < target) {
    if (nanoseconds() - start > report->limit) report_timeout(report, point, 0, 0);
  }
}""",
    (ARRIVE_AT_COUNTER, COUNTER_VALUE, REPORT),
)
GRID_BLOCKS_BOUNDED = Helper(
    "grid_barrier_of_blocks_bounded",
    """\
__device__ __forceinline__ void grid_barrier_of_blocks_bounded(unsigned long long* counter, Report* report, int point) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    grid_barrier_of_threads_bounded(counter, (unsigned long long)gridDim.x * gridDim.y * gridDim.z, report, point);
  }
  __syncthreads();
}""",
    (GRID_THREADS_BOUNDED,),
)
NAMED = Helper(
    "named_barrier",
    """\
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}""",
)


# -- TMA (PTX ISA, "cp.async.bulk.tensor") --------------------------------------------------------------------------------------------

TENSOR_MAP = Helper(
    "TensorMap",
    "struct alignas(64) TensorMap {\n  unsigned long long words[16];\n};",
    arch=90,
)


def coordinates(rank: int, before: int) -> tuple[str, str, str]:
    """The coordinates of a bulk copy: as parameters of its function, as operands of its instruction behind ``before`` others, as values of these."""
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
FENCE_PROXY = Helper(
    "fence_proxy_async",
    '__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }',
    arch=90,
)
FENCE_PROXY_GLOBAL = Helper(
    "fence_proxy_async_global",
    '__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }',
    arch=90,
)

# -- register budgets (PTX ISA, "setmaxnreg") ------------------------------------------------------------------------------------------


def set_registers(count: int, at_launch: int) -> Helper:
    """``setmaxnreg``: up or down, by what the launch gives."""
    way = "inc" if count > at_launch else "dec"
    name = f"set_registers_{count}"
    return Helper(name, f'__device__ __forceinline__ void {name}() {{ asm volatile("setmaxnreg.{way}.sync.aligned.u32 {count};"); }}', arch=90)
