"""The helpers behind statements that reach other blocks of a cluster (PTX ISA, the section of each)."""

from __future__ import annotations

from taskfuse.cuda.instructions import SHARED_ADDRESS, TENSOR_MAP, coordinates
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
# "mapa", "mbarrier.arrive": with the default scope, that of the block: an arrival elsewhere only says that something has been read, and publishes nothing
# (docs/memory-model.md, assumption 6); a fence at cluster scope in its place more than doubles the time of a matrix product
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


def tma_multicast(rank: int) -> Helper:
    """A box from Global to the same place of Shared in each block whose bit is set in ``mask`` ("cp.async.bulk.tensor"); coordinates innermost first."""
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
