"""The helpers of statements that synchronize: mbarriers, barriers, semaphores, proxy fences, register budgets (PTX ISA, the section of each)."""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.cuda.abi import OVERLAP_ARCH
from taskfuse.cuda.text import Helper, HelperCall
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.synchronization import Expect, FenceInit, InitBarrier

SHARED_ADDRESS = Helper(
    "shared_address",
    "__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }",
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
CLUSTER_TRY_WAIT = Helper(
    "mbarrier_passed_in_cluster",
    """\
__device__ __forceinline__ bool mbarrier_passed_in_cluster(unsigned long long* barrier, unsigned parity) {
  unsigned passed;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
  return passed;
}""",
    (SHARED_ADDRESS,),
    90,
)
CLUSTER_WAIT = Helper(
    "mbarrier_wait_in_cluster",
    """\
__device__ __forceinline__ void mbarrier_wait_in_cluster(unsigned long long* barrier, unsigned parity) {
  while (!mbarrier_passed_in_cluster(barrier, parity)) {}
}""",
    (CLUSTER_TRY_WAIT,),
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
CLUSTER_BOUNDED_WAIT = Helper(
    "mbarrier_wait_in_cluster_bounded",
    """\
__device__ __forceinline__ void mbarrier_wait_in_cluster_bounded(unsigned long long* barrier, unsigned parity, Report* report, int point, int slot) {
  const unsigned long long start = nanoseconds();
  while (!mbarrier_passed_in_cluster(barrier, parity)) {
    if (nanoseconds() - start > report->limit) report_timeout(report, point, slot, parity);
  }
}""",
    (CLUSTER_TRY_WAIT, REPORT),
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

# -- launches (PTX ISA, "griddepcontrol") ----------------------------------------------------------------------------------------------

STREAM_WAIT = Helper(
    "wait_for_stream",
    f"""\
__device__ __forceinline__ void wait_for_stream() {{
#if __CUDA_ARCH__ >= {10 * OVERLAP_ARCH}
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}}""",
)
"""Waits until all earlier launches in the stream are complete and their writes visible; needed because a launch may overlap with the end of its predecessor.
Does nothing without an overlap, and below sm_90, where launches never overlap.
"""

# -- register budgets (PTX ISA, "setmaxnreg") ------------------------------------------------------------------------------------------


def set_registers(count: int, at_launch: int) -> Helper:
    """``setmaxnreg``: increase or decrease, depending on what the launch gives."""
    way = "inc" if count > at_launch else "dec"
    name = f"set_registers_{count}"
    return Helper(name, f'__device__ __forceinline__ void {name}() {{ asm volatile("setmaxnreg.{way}.sync.aligned.u32 {count};"); }}', arch=90)


# -- clusters (PTX ISA, "Cluster of Cooperative Thread Arrays") ------------------------------------------------------------------------


def cluster_index(d: str) -> Helper:
    """The index of the block in its cluster along ``d``."""
    return Helper(
        f"cluster_index_{d}",
        f'__device__ __forceinline__ int cluster_index_{d}() {{\n  int index;\n  asm("mov.u32 %0, %%cluster_ctaid.{d};" : "=r"(index));\n  return index;\n}}',
        arch=90,
    )


# "barrier.cluster": not .aligned, since the roles of a warp's threads may have left it divergent
CLUSTER_BARRIER = Helper(
    "cluster_barrier",
    """\
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}""",
    arch=90,
)
OF_RANK = Helper(
    "cluster_address",
    """\
// the same place in Shared memory of the block of this rank in the cluster
template <class T> __device__ __forceinline__ T* cluster_address(T* here, unsigned rank) {
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
  return there;
}""",
    arch=90,
)
# "mapa", "mbarrier.arrive" with the default scope, the block: the arrival orders reads only and publishes no writes (docs/memory-model.md, assumption 6)
ARRIVE_AT = Helper(
    "mbarrier_arrive_at",
    """\
// at the barrier's place in the block of this rank in the cluster
__device__ __forceinline__ void mbarrier_arrive_at(unsigned long long* barrier, unsigned rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }"
               ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}""",
    (SHARED_ADDRESS,),
    90,
)

# ".release.cluster", ".acquire.cluster": what a thread has stored in Shared memory of any block of the cluster, threads of other blocks see
PUBLISH_AT = Helper(
    "mbarrier_publish_at",
    """\
// at the barrier's place in the block of this rank in the cluster
__device__ __forceinline__ void mbarrier_publish_at(unsigned long long* barrier, unsigned rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
               ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}""",
    (SHARED_ADDRESS,),
    90,
)

# -- semaphores -----------------------------------------------------------------------------------------------------------------------
# Counters in Global memory that a launch finds at zero (PTX ISA, "red" and "ld", with .release and .acquire at .gpu scope; "Memory Consistency Model",
# causality order): what the releasing thread has seen of its block (barrier.sync) is released too, and what the acquiring one passes on to its block
# is acquired by all. Counts are of 64 bits: they never wrap.

RELEASE = Helper(
    "semaphore_release",
    """\
__device__ __forceinline__ void semaphore_release(unsigned long long* semaphore) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(semaphore), "l"(1ull) : "memory");
}""",
)
ACQUIRE = Helper(
    "semaphore_acquire",
    """\
// wait until so many phases of count releases are complete
__device__ __forceinline__ void semaphore_acquire(unsigned long long* semaphore, unsigned long long count, unsigned long long phases) {
  while (counter_value(semaphore) < count * phases) {}
}""",
    (COUNTER_VALUE,),
)
BOUNDED_ACQUIRE = Helper(
    "semaphore_acquire_bounded",
    """\
__device__ __forceinline__ void semaphore_acquire_bounded(unsigned long long* semaphore, unsigned long long count, unsigned long long phases, Report* report,
                                                          int point, int slot) {
  const unsigned long long start = nanoseconds();
  while (counter_value(semaphore) < count * phases) {
    if (nanoseconds() - start > report->limit) report_timeout(report, point, slot, (int)phases - 1);
  }
}""",
    (COUNTER_VALUE, REPORT),
)

# -- queues ---------------------------------------------------------------------------------------------------------------------------
# The numbers that a block claims stand in its Shared memory, in the order of its claims: -1 where nobody has asked yet, -2 while the thread that asked first
# takes the next number from the counter in Global memory. A number is taken after the one before it is known (.release, .acquire), so a block's numbers rise.

CLAIM = Helper(
    "queue_claim",
    """\
// the number at a position of the block's claims; one lane asks for those that come together to one position: lanes of several iterations may meet here
__device__ __forceinline__ int queue_claim(int* claims, unsigned long long* counter, int position) {
  const unsigned mask = __match_any_sync(__activemask(), position);
  const int first = __ffs(mask) - 1;
  int number = -1, lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));  // volatile: no register holds it in between
  if (lane == first) {
    const unsigned claim = shared_address(claims + position);
    asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(number) : "r"(claim) : "memory");
    if (number == -1) {
      asm volatile("atom.acq_rel.cta.shared::cta.cas.b32 %0, [%1], %2, %3;" : "=r"(number) : "r"(claim), "r"(-1), "r"(-2) : "memory");
      if (number == -1) {
        number = (int)atomicAdd(counter, 1ull);
        asm volatile("st.release.cta.shared::cta.s32 [%0], %1;" ::"r"(claim), "r"(number) : "memory");
      }
    }
    while (number == -2) asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(number) : "r"(claim) : "memory");
  }
  return __shfl_sync(mask, number, first);
}""",
    (SHARED_ADDRESS,),
)

CALLS: Mapping[type[Stmt], HelperCall] = {
    InitBarrier: HelperCall(INIT, ("barrier", "count")),
    FenceInit: HelperCall(FENCE_INIT),
    Expect: HelperCall(EXPECT, ("barrier", "bytes")),
}
