"""A mistake in the CUDA text of a kernel is a difference between its PTX and kernel IR: the right text has none, the wrong one has."""

import re

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.testing.ptx.compare import compare
from tests.testing.ptx.compiled import TESTS, ptx_of, written

# kernel, what is replaced (a regular expression, its first match), by what, and a part of what is said
FAULTS = {
    "no wait for the stream": ("ring", r"  wait_for_stream\(\);\n", "", "in front of the wait"),
    "a wait for the stream twice": ("ring", r"(  wait_for_stream\(\);\n)", r"\1\1", "a second wait for the stream"),
    "a wait for the stream too late": (
        "ring",
        r"  wait_for_stream\(\);\n((?s:.*?)  fence_mbarrier_init\(\);\n)",
        r"\1  wait_for_stream();\n",
        "in front of the wait",
    ),
    "a wait that does not wait": ("ring", r"while (\(!mbarrier_passed\()", r"if \1", "ARRIVE"),
    "a wait left out": ("ring", r"mbarrier_wait\(&full.*\n", "", "not WAIT"),
    "a wait for the other parity": ("ring", r", c_parity\);", ", c_parity ^ 1);", "WAIT"),
    "a parity that does not flip": ("ring", r", c_parity \^= 1", "", "WAIT"),
    "a wait at the wrong mbarrier": ("ring", r"mbarrier_wait\(&empty\[p", "mbarrier_wait(&full[p", "WAIT"),
    "a wait for the slot before": ("ring", r"mbarrier_wait\(&full\[c_slot\]", "mbarrier_wait(&full[1 - c_slot]", "WAIT"),
    "a cursor that begins in the other slot": ("ring", r"c_slot = 0, c_parity = 0;", "c_slot = 1, c_parity = 0;", "WAIT"),
    "a cursor that wraps too late": ("ring", r"\+\+c_slot == 2", "++c_slot == 3", "WAIT"),
    "one arrival too few": ("ring", r"mbarrier_init\(&full\[i\], 32\)", "mbarrier_init(&full[i], 31)", "INIT"),
    "an arrival left out": ("ring", r"mbarrier_arrive\(&empty.*\n", "", "in front of ARRIVE"),
    "an arrival twice": ("ring", r"(mbarrier_arrive\(&empty.*\n)", r"\1\1", "ARRIVE"),
    "an arrival of two": ("ring", r"mbarrier.arrive.shared::cta.b64 %0, \[%1\];", "mbarrier.arrive.shared::cta.b64 %0, [%1], 2;", "ARRIVE"),
    "an arrival that releases nothing": ("ring", r"mbarrier.arrive.shared", "mbarrier.arrive.relaxed.cta.shared", "relaxed"),
    "mbarriers that overlap": ("ring", r"shared \+ 272", "shared + 264", "overlap"),
    "mbarriers in a buffer": ("ring", r"shared \+ 272", "shared + 128", "overlap"),
    "mbarriers behind the end": ("ring", r"shared \+ 272", "shared + 280", "not inside the 288 bytes"),
    "a buffer somewhere else": ("ring", r"shared \+ 0\)", "shared + 32)", "written"),
    "a store behind its arrival": ("ring", r"(      s\[p_slot.*\n)(.*arrive.*\n)", r"\2\1", "not written"),
    "a load of the wrong slot": ("ring", r"= s\[c_slot", "= s[(1 - c_slot)", "read"),
    "a store of the wrong row": ("ring", r"y\[k \*", "y[(k + 1) *", "a tensor"),
    "no fence behind initialization": ("ring", r"    fence_mbarrier_init\(\);\n", "", "not FENCE"),
    "no barrier behind initialization": ("ring", r"  __syncthreads\(\);\n", "", "not BARRIER"),
    "a wrong condition on threads": ("ring", r"if \(threadIdx_y == 0\) {  // producer", "if (threadIdx_y == 0 && threadIdx_x > 0) {", "WAIT"),
    "too few threads in the launch bounds": ("ring", r"__launch_bounds__\(64", "__launch_bounds__(32", "launch bounds"),
    "no proxy fence": ("gemm", r"fence_proxy_async\(\);\n", "\n", "not FENCE"),
    "a proxy fence of another space": ("gemm", r"fence.proxy.async.shared::cta", "fence.proxy.async.global", "FENCE"),
    "a fence of memory in its place": ("gemm", r"fence.proxy.async.shared::cta;", "fence.acq_rel.cta;", "FENCE"),
    "a wait for fewer wgmmas": ("gemm", r"wgmma_wait<1>\(", "wgmma_wait<2>(", "WGMMA_WAIT"),
    "no wgmma.fence": ("gemm", r"        wgmma_fence\(\);\n", "", "not WGMMA_FENCE"),
    "no commit of wgmmas": ("gemm", r"        wgmma_commit\(\);\n", "", "not WGMMA_COMMIT"),
    "a register budget": ("gemm", r"asm volatile\(\"setmaxnreg.inc.sync.aligned.u32 232", 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240', "REGISTERS"),
    "a register budget the other way": ("gemm", r"setmaxnreg.inc", "setmaxnreg.dec", "REGISTERS"),
    "a register budget left out": ("gemm", r"    set_registers_40\(\);\n", "", "not REGISTERS"),
    "a named barrier of another number": ("gemm", r"named_barrier\(threadIdx_y, 128", "named_barrier(threadIdx_y + 1, 128", "BARRIER"),
    "a named barrier of fewer threads": ("gemm", r"named_barrier\(threadIdx_y, 128", "named_barrier(threadIdx_y, 96", "BARRIER"),
    "a wait for fewer stores": ("gemm", r"bulk_wait_read<1>", "bulk_wait_read<2>", "BULK_WAIT_READ"),
    "a wait for reads alone at the end": ("gemm", r"cp.async.bulk.wait_group %0", "cp.async.bulk.wait_group.read %0", "BULK_WAIT_READ"),
    "too few bytes": ("gemm", r", 32768\);", ", 16384);", "EXPECT"),
    "a wrong coordinate": ("gemm", r"64 \* ko, 128", "64 * ko + 8, 128", "BULK_LOAD"),
    "coordinates in the wrong order": ("gemm", r"64 \* ko, (128 \* quotient)", r"\1, 64 * ko", "BULK_LOAD"),
    "a box to the wrong slot": ("gemm", r"tma_load_2d\(&b_s\[p_slot", "tma_load_2d(&b_s[(p_slot + 1) % 3", "BULK_LOAD"),
    "the wrong map": ("gemm", r"&map_b, &full", "&map_a, &full", "BULK_LOAD"),
    "a wrong descriptor": ("gemm", r"0x4000004000000000ull\), matrix", "0x4000008000000000ull), matrix", "WGMMA"),
    "a wrong step of a descriptor": ("gemm", r"2 \* kk, 0x", "4 * kk, 0x", "WGMMA"),
    "sums that are not begun anew": ("gemm", r"kk \+ ko > 0", "1", "WGMMA"),
    "rows of a stmatrix": ("gemm", r"threadIdx_x % 16\) \* 64", "threadIdx_x % 8) * 64", "STORE_MATRIX"),
    "a division that rounds the wrong way": ("gemm", r"256 \* \(t / by_0\)", "256 * ((t + 1) / by_0)", "BULK_LOAD"),
    "one warp barrier too few": ("gemm_tiles", r" +__syncwarp\(\);\n", "", "not WARP_BARRIER"),
    "a warp barrier of half a warp": ("gemm_tiles", r"__syncwarp\(\)", "__syncwarp(0xffff)", "WARP_BARRIER"),
    "a mask of blocks": ("share", r"0x3, 0,", "0x1, 0,", "MULTICAST"),
    "an arrival at the own block twice": ("share", r"&empty\[c_slot\], 1\)", "&empty[c_slot], 0)", "ARRIVE"),
    "no barrier of the cluster at the end": ("share", r"  cluster_barrier\(\);\n}", "}", "in front of CLUSTER_ARRIVE"),
    "a barrier of the cluster that releases nothing": ("share", r"cluster.arrive.release", "cluster.arrive.relaxed", "CLUSTER_ARRIVE"),
    "a release at the scope of the block": ("blocks", r"red.release.gpu", "red.release.cta", "RELEASE"),
    "a relaxed release": ("blocks", r"red.release.gpu", "red.relaxed.gpu", "RELEASE"),
    "an acquire one phase early": ("blocks", r"a_phase \+ 1\)", "a_phase)", "not ACQUIRE"),
    "an acquire of fewer releases": ("blocks", r", 2, p_phase", ", 1, p_phase", "not ACQUIRE"),
    "a phase that does not grow": ("blocks", r", \+\+a_phase", "", "not ACQUIRE"),
    "a counter of another ring": ("blocks", r"&full\[blockIdx_x \* 2", "&full[blockIdx_x", "RELEASE"),
    "workspace of another ring": ("blocks", r"w\[\(blockIdx_x \* 2", "w[(blockIdx_x", "written"),
    "an acquire that does not wait": ("blocks", r"while \(counter_value", "if (counter_value", "not ACQUIRE"),
    "a grid barrier of fewer blocks": ("rotate", r"gridDim.x \* gridDim.y", "(gridDim.x + 1) * gridDim.y", "ACQUIRE"),
    "a grid barrier without its fence": ("rotate", r"  __threadfence\(\);\n", "", "not FENCE"),
    "a grid barrier without the block": ("rotate", r"  __syncthreads\(\);\n", "", "not BARRIER"),
    "a copy of zeros": ("async_ring", r"valid \? 16 : 0", "valid ? 0 : 16", "COPY"),
    "a copy from elsewhere": ("async_ring", r"&x\[64 \* k", "&x[32 * k", "COPY"),
    "an arrival that does not wait for copies": ("async_ring", r"mbarrier_arrive_async\(&full\[p_slot\]\)", "mbarrier_init(&full[p_slot], 1)", "COPY_ARRIVE"),
    "a wait for fewer copies": ("ahead", r"copy_wait<1>", "copy_wait<2>", "COPY_WAIT"),
    "a batch left open": ("ahead", r"    copy_commit\(\);\n", "", "not COPY_COMMIT"),
    "a matrix read from elsewhere": ("gemm_sync", r"ldmatrix_x4\(&a_r\[8 \* i\], &a_s\[\(32", "ldmatrix_x4(&a_r[8 * i], &a_s[(16", "LOAD_MATRIX"),
    "an element of the own block": ("meet", r"cluster_address\(s, 1 - clusterIdx_x\)", "s", "read"),
    "an element of the own block by its rank": ("meet", r"cluster_address\(s, 1 - ", "cluster_address(s, ", "read"),
    "a store in the other block": ("meet", r"    s\[threadIdx_x\] =", "    cluster_address(s, 1 - clusterIdx_x)[threadIdx_x] =", "written"),
    "an arrival at the scope of the block": ("meet", r"arrive.release.cluster.shared", "arrive.release.cta.shared", "release cta"),
    "a wait at the scope of the block": ("meet", r"parity.acquire.cluster", "parity.acquire.cta", "acquire cta"),
    "a product less": ("gemm_sync", r"j < 4; \+\+j\) {\n(.*mma_)", r"j < 3; ++j) {\n\1", "MMA"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted(name: str) -> None:
    kernel, pattern, replacement, said = FAULTS[name]
    source = emit(written(kernel))
    text = re.sub(pattern, replacement, source.text, count=1)
    assert text != source.text
    found = compare(source.kernel, source, ptx_of(source, text)).difference
    assert found is not None
    assert said in found


def test_the_texts_themselves_have_no_difference() -> None:
    for name in sorted({kernel for kernel, *_ in FAULTS.values()}):
        source = emit(written(name))
        assert compare(source.kernel, source, ptx_of(source)).difference is None


def test_a_tensor_that_a_bulk_store_writes_is_no_constant() -> None:
    path = TESTS / "check" / "museum" / "proxy_tma_store_then_generic_read.fixed.kir"
    source = emit(tf.parse_kernel(path.read_text(encoding="utf-8")))
    assert compare(source.kernel, source, ptx_of(source)).difference is None
    text = source.text.replace("float* y", "float* __restrict__ y")
    found = compare(source.kernel, source, ptx_of(source, text)).difference
    assert found is not None
    assert "as if nothing wrote them" in found


@pytest.mark.parametrize(
    ("kernel", "old", "new", "said"),
    [
        ("update_slot_rewritten", "shared::cta.add.tile", "shared::cta.min.tile", "BULK_UPDATE"),
        ("update_slot_rewritten", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile", "cp.async.bulk.tensor.2d.global.shared::cta", "BULK_STORE"),
        ("update_slot_rewritten", "&t[0], 0, 0);", "&t[0], 0, 1);", "BULK_UPDATE"),
        ("update_vector_turned", "red.relaxed.gpu.global.add.v4", "red.relaxed.gpu.global.min.v4", "UPDATE"),
        ("update_vector_turned", "4 * threadIdx_x]", "4 * threadIdx_x + 4]", "UPDATE"),
    ],
)
def test_planted_in_updates(kernel: str, old: str, new: str, said: str) -> None:
    path = TESTS / "check" / "museum" / f"{kernel}.fixed.kir"
    source = emit(tf.parse_kernel(path.read_text(encoding="utf-8")))
    assert old in source.text
    found = compare(source.kernel, source, ptx_of(source, source.text.replace(old, new, 1))).difference
    assert found is not None
    assert said in found
