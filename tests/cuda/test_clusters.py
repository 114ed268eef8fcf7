"""CUDA of what reaches other blocks of a cluster: ranks, masks, scopes; NVRTC compiles it for sm_90a."""

from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin
from taskfuse.cuda.source import emit
from tests.lowering.clustered import grid, shared
from tests.lowering.over_clusters import exchange, meet

TEXT = (Path(__file__).parents[1] / "kernels" / "share.kir").read_text(encoding="utf-8")
WIDE = TEXT.replace("GRID (4, 1, 1)", "GRID (4, 6, 1)").replace("CLUSTER (2, 1, 1)", "CLUSTER (2, 3, 1)")


def body(text: str) -> str:
    """What stands in the kernel itself."""
    return text.split('extern "C"')[1]


def test_a_row_of_blocks() -> None:
    text = tf.parse_kernel(TEXT).cuda_source()
    lines = [line.strip() for line in body(text).splitlines()]
    assert "const int clusterIdx_x = cluster_index_x();" in lines
    assert lines.count("cluster_barrier();") == 2
    assert "__syncthreads();" not in lines
    assert any(line.startswith("tma_multicast_3d(") and "&full[p_slot], 0x3, 0, 2 * clusterIdx_x, blockIdx_x / 2 + 2 * i);" in line for line in lines)
    at = lines.index("mbarrier_arrive_at(&empty[c_slot], 0);")
    assert lines[at + 1] == "mbarrier_arrive_at(&empty[c_slot], 1);"
    assert sum(line.startswith("mbarrier_wait(") for line in lines) == 2
    for instruction in (
        "barrier.cluster.arrive.release;",
        "barrier.cluster.wait.acquire;",
        "mapa.shared::cluster.u32",
        "mbarrier.arrive.shared::cluster.b64",
        ".mbarrier::complete_tx::bytes.multicast::cluster",
    ):
        assert instruction in text


def test_blocks_of_a_cluster_that_a_copy_leaves_alone() -> None:
    """Ranks are x + 2*y: a copy across x reaches two neighbors, one across y every other block."""
    across_x = body(tf.parse_kernel(WIDE).cuda_source())
    assert "0x3 << 2 * clusterIdx_y, " in across_x
    assert "mbarrier_arrive_at(&empty[c_slot], 2 * clusterIdx_y + 1);" in across_x
    across_y = body(tf.parse_kernel(WIDE.replace("across CIDx", "across CIDy")).cuda_source())
    assert "0x15 << clusterIdx_x, " in across_y
    assert [f"mbarrier_arrive_at(&empty[c_slot], clusterIdx_x{k});" in across_y for k in ("", " + 2", " + 4")] == [True] * 3
    everywhere = body(tf.parse_kernel(WIDE.replace("across CIDx", "across CIDx, CIDy")).cuda_source())
    assert "&full[p_slot], 0x3f, " in everywhere


def test_a_ring_of_one_block_beside_one_across_blocks() -> None:
    own = body(tf.lower(shared(store=True)).cuda_source())
    assert "mbarrier_arrive_at(&ch0_empty" in own
    assert "mbarrier_arrive(&ch1_empty" in own


@pytest.mark.parametrize("debug", [False, True])
def test_it_compiles(debug: bool) -> None:
    kernels = [tf.parse_kernel(TEXT), tf.parse_kernel(WIDE), tf.lower(shared(4, 4, store=True)), tf.lower(grid(True, True))]
    for kernel in kernels:
        assert kernel.cubin(debug=debug)


def test_a_chaos_build_compiles() -> None:
    source = emit(tf.parse_kernel(TEXT), chaos=7)
    assert compile_cubin(source.text, source.name, CompileOptions(arch="sm_90a"))
    assert "delay_at_random" in source.text


def test_the_launch_has_the_cluster() -> None:
    assert tf.lower(shared(4, 4)).launch_shape(N=5).cluster == (4, 1, 1)
    assert tf.parse_kernel(WIDE).launch_shape(N=5).cluster == (2, 3, 1)


def test_elements_of_other_blocks() -> None:
    text = exchange().cuda_source()
    lines = [line.strip() for line in body(text).splitlines()]
    assert "float* const s = reinterpret_cast<float*>(shared + 0);  // [32]" in lines
    assert "s[threadIdx_x] = x[blockIdx_x * 32 + threadIdx_x];" in lines  # in the own block
    assert "y[blockIdx_x * 32 + threadIdx_x] = cluster_address(s, 1 - clusterIdx_x)[threadIdx_x];" in lines
    assert "mapa.u64" in text
    assert lines.count("cluster_barrier();") == 2


def test_arrivals_and_waits_at_the_scope_of_the_cluster() -> None:
    text = meet().cuda_source()
    lines = [line.strip() for line in body(text).splitlines()]
    at = lines.index("mbarrier_publish_at(&m[m_c_slot], 0);")
    assert lines[at + 1] == "mbarrier_publish_at(&m[m_c_slot], 1);"
    assert lines[at + 2] == "mbarrier_wait_in_cluster(&m[m_c_slot], m_c_parity);"
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64" in text
    assert "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64" in text


@pytest.mark.parametrize("kernel", [exchange(), exchange(symbolic=True), meet()])
@pytest.mark.parametrize("debug", [False, True])
def test_memory_of_other_blocks_compiles(kernel: tf.Kernel, debug: bool) -> None:
    source = emit(kernel, debug=debug)
    assert source.arch == 90
    assert compile_cubin(source.text, source.name, CompileOptions(arch="sm_90a"))
