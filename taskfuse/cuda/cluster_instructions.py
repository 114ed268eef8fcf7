"""The helpers behind statements that reach other blocks of a cluster (PTX ISA, the section of each)."""

from __future__ import annotations

from taskfuse.cuda.instructions import REPORT, SHARED_ADDRESS, TENSOR_MAP
from taskfuse.cuda.text import Helper


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
# "mapa", "mbarrier.arrive": one fence at cluster scope makes the arrivals at all blocks a release; the waits for them acquire at that scope
FENCE_CLUSTER = Helper(
    "fence_cluster",
    '__device__ __forceinline__ void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }',
    arch=90,
)
ARRIVE_AT = Helper(
    "mbarrier_arrive_at",
    """\
// at the barrier's place in the block of this rank in the cluster
__device__ __forceinline__ void mbarrier_arrive_at(unsigned long long* barrier, unsigned rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there]; }"
               ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}""",
    (SHARED_ADDRESS,),
    90,
)
TRY_WAIT_CLUSTER = Helper(
    "mbarrier_passed_cluster",
    """\
__device__ __forceinline__ bool mbarrier_passed_cluster(unsigned long long* barrier, unsigned parity) {
  unsigned passed;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
  return passed;
}""",
    (SHARED_ADDRESS,),
    90,
)
WAIT_CLUSTER = Helper(
    "mbarrier_wait_cluster",
    """\
__device__ __forceinline__ void mbarrier_wait_cluster(unsigned long long* barrier, unsigned parity) {
  while (!mbarrier_passed_cluster(barrier, parity)) {}
}""",
    (TRY_WAIT_CLUSTER,),
    90,
)
BOUNDED_WAIT_CLUSTER = Helper(
    "mbarrier_wait_cluster_bounded",
    """\
__device__ __forceinline__ void mbarrier_wait_cluster_bounded(unsigned long long* barrier, unsigned parity, Report* report, int point, int slot) {
  const unsigned long long start = nanoseconds();
  while (!mbarrier_passed_cluster(barrier, parity)) {
    if (nanoseconds() - start > report->limit) report_timeout(report, point, slot, parity);
  }
}""",
    (TRY_WAIT_CLUSTER, REPORT),
    90,
)


def tma_multicast(rank: int) -> Helper:
    """A box from Global to the same place of Shared in each block whose bit is set in ``mask`` ("cp.async.bulk.tensor"); coordinates innermost first."""
    coords = "".join(f", int c{i}" for i in range(rank))
    slots = ", ".join(f"%{i + 4}" for i in range(rank))
    values = "".join(f', "r"(c{i})' for i in range(rank))
    return Helper(
        f"tma_multicast_{rank}d",
        f"__device__ __forceinline__ void tma_multicast_{rank}d(void* out, const TensorMap* map, unsigned long long* barrier, unsigned short mask{coords}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "\n'
        f'               "[%0], [%1, {{{slots}}}], [%2], %3;"\n'
        f'               ::"r"(shared_address(out)), "l"(map), "r"(shared_address(barrier)), "h"(mask){values} : "memory");\n}}',
        (SHARED_ADDRESS, TENSOR_MAP),
        90,
    )
