"""Methods of a kernel that need NVRTC and no GPU."""

from pathlib import Path

import pytest

import taskfuse as tf
from examples import founding, pipeline
from taskfuse.cuda import disassembly
from taskfuse.errors import CudaUnavailableError, LaunchError, UnsupportedError
from taskfuse.kir.variant import ArgumentLayout, Variant

KERNELS = Path(__file__).parents[1] / "kernels"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def cat() -> tf.Kernel:
    return tf.lower(founding.build())


@pytest.fixture(scope="module")
def gemm() -> tf.Kernel:
    return tf.parse_kernel((KERNELS / "gemm.kir").read_text(encoding="utf-8"))


def test_texts(cat: tf.Kernel) -> None:
    text = cat.cuda_source()
    assert 'extern "C" __global__' in text
    assert text != cat.cuda_source(variant=Variant((ArgumentLayout.STRIDED, ArgumentLayout.STRIDED)))
    assert text != cat.cuda_source(debug=True)
    ptx = cat.ptx("sm_80")
    assert ".target sm_80" in ptx
    assert ".entry cat(" in ptx


def test_machine_code(cat: tf.Kernel) -> None:
    code = cat.cubin("sm_80")
    assert code.startswith(b"\x7fELF")
    assert code != cat.cubin("sm_80", fast_math=True)
    assert "EXIT" in cat.sass("sm_80")


def test_resources(cat: tf.Kernel, gemm: tf.Kernel) -> None:
    open_ended = cat.resources()
    assert open_ended.blocks_per_multiprocessor is None
    assert str(open_ended.threads) == "8*S*T"
    assert "occupancy  depends on the extents" in str(open_ended)
    known = cat.resources(extents={"B": 1, "S": 4, "T": 8})
    assert (str(known.threads), str(known.shared_bytes)) == ("256", "528")
    assert known.blocks_per_multiprocessor == 8  # 64 warps / 8
    assert known.compiled.registers > 0
    lines = str(gemm.resources()).splitlines()
    assert [line.split(maxsplit=1) for line in lines[5:]] == [
        ["threads", "384 per block"],
        ["shared", "131120 bytes per block"],  # 3 * 2 * 16 KB + 2 * 2 * 8 KB + 6 mbarriers
        ["occupancy", "1 block per multiprocessor"],
    ]
    with pytest.raises(LaunchError, match="S is 0"):
        cat.resources(extents={"S": 0})


def test_the_limits_of_an_architecture_may_be_unknown() -> None:
    kernel = tf.lower(pipeline.build())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskfuse.target.LIMITS", {})
        assert "the limits of sm_90a are not known" in str(kernel.resources())


def test_launch_shape(cat: tf.Kernel, gemm: tf.Kernel) -> None:
    shape = cat.launch_shape(B=3, S=4, T=8)
    assert (shape.grid, shape.block, shape.cluster, shape.shared_bytes, shape.threads) == ((3, 1, 1), (8, 16, 2), (1, 1, 1), 528, 256)
    assert str(shape) == "grid (3, 1, 1)  block (8, 16, 2)  shared 528 bytes"
    assert gemm.launch_shape(M=256, N=128, K=64).grid == (2, 1, 1)  # by a parameter of the host
    assert tf.lower(pipeline.build()).launch_shape(M=5).grid == (5, 1, 1)  # N does not matter


@pytest.mark.parametrize(
    ("extents", "message", "help"),
    [
        ({"B": 1}, "its launch shape depends on S, T", "give the extents S=..., T=..."),
        ({"B": 0, "S": 1, "T": 1}, "B is 0; it must be at least 1", None),
        ({"BB": 1}, "it has no extent BB", "did you mean B?"),
        ({"Q": 1}, "it has no extent Q", "its extents are B, S, T"),
    ],
)
def test_extents_at_fault(cat: tf.Kernel, extents: dict[str, int], message: str, help: str | None) -> None:
    with pytest.raises(LaunchError) as caught:
        cat.launch_shape(**extents)
    assert caught.value.fields["reason"] == message
    assert caught.value.help == help


def test_facts_of_extents(gemm: tf.Kernel) -> None:
    with pytest.raises(LaunchError, match="N is 12; it must be at least 8, a multiple of 8"):
        gemm.launch_shape(M=1, N=12, K=8)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100a", "sm_120"])
def test_a_target_without_the_instructions(gemm: tf.Kernel, arch: str) -> None:
    with pytest.raises(UnsupportedError, match=f"kernel 'gemm' on {arch} is not supported: it has instructions of sm_90a alone"):
        gemm.ptx(arch)


def test_targets_older_than_all(cat: tf.Kernel) -> None:
    with pytest.raises(UnsupportedError, match="instructions of sm_80 and newer"):
        cat.cubin("sm_75")
    with pytest.raises(UnsupportedError, match="architecture 'hopper'"):
        cat.cubin("hopper")


def test_no_disassembler(cat: tf.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "disassembler", lambda: None)
    with pytest.raises(CudaUnavailableError, match="pip install nvidia-cuda-nvdisasm"):
        cat.sass("sm_80")
