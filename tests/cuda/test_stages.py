"""Methods of a kernel that need NVRTC and no GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest

import taskfuse as tf
from examples import founding, pipeline
from taskfuse.cuda import disassembly
from taskfuse.errors import CudaUnavailableError, LaunchError, UnsupportedError
from taskfuse.kir.variant import ArgumentLayout, Variant
from tests.cuda.calls import COPY, OVERLAPPING
from tests.cuda.fakes import GPU, FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor

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
    assert gemm.launch_shape(M=256, N=128, K=64).grid == (2, 1, 1)
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
    with pytest.raises(UnsupportedError, match=f"kernel 'gemm' on {arch} is not supported: it has instructions of sm_90a only"):
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


def test_clusters(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 32]) -> (y: float32[M, 32])
  DIM M
  GRID (M, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (4, 1, 1)

y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])
"""
    case = Case(text, driver)
    case.run((tensor(8, 32),))
    assert driver.launches[0].attributes == (OVERLAPPING, (4, 4, 1, 1))
    assert case.error(tensor(6, 32)) == "kernel 'k' cannot be launched: 6 blocks in x are not whole clusters of 4"
    driver.clusters = 0
    assert case.error(tensor(12, 32)) == (
        "kernel 'k' cannot be launched: fake GPU holds no cluster of 4 such blocks\nhelp: use smaller clusters, or blocks with less Shared memory"
    )
    large = Case(text.replace("(4, 1, 1)", "(16, 1, 1)"), FakeDriver())
    large.driver.parameter_sizes = driver.parameter_sizes
    large.run((tensor(16, 32),))
    assert large.driver.log[0] == ("allow_large_clusters",)


def test_empty_arrays(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    for shape in ((0, 32), (3, 0), (0, 0)):
        (y,) = case.run((tensor(*shape),))
        assert y.shape == shape
    assert driver.launches == []
    with open("tests/kernels/double.kir", encoding="utf-8") as file:
        assert Case(file.read(), driver).error(tensor(0, 32)) == "input 0 of fusion 'double': M is 0; it must be at least 1"
    total = """
KERNEL k(x: float32[N]) -> (y: float32[32])
  DIM N
  GRID (GRIDSIZE, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(0.0)
"""
    written = Case(total.replace("GRIDSIZE", "1"), driver)
    written.run((tensor(0),))
    assert len(driver.launches) == 1
    assert Case(total.replace("GRIDSIZE", "N"), driver).error(tensor(0)) == (
        "kernel 'k' cannot be launched: it has no thread to write 'y': grid (0, 1, 1)  block (32, 1, 1)  shared 0 bytes"
    )


LIMITS: list[tuple[Callable[[FakeDriver], object], tuple[int, int], str]] = [
    (lambda d: None, (3, 1025), "1025 threads per block; a block of fake GPU has at most 1024"),
    (lambda d: setattr(d, "devices", (GPU._replace(max_block=(512, 1, 1)),)), (3, 513), "513 threads per block in x; fake GPU has at most 512"),
    (
        lambda d: setattr(d, "devices", (GPU._replace(max_grid=(65535, 1, 1)),)),
        (65536, 1),
        "65536 blocks in x; fake GPU has at most 65535",
    ),
    (
        lambda d: setattr(d, "function_threads", 64),
        (3, 65),
        "65 threads per block; its registers allow 64\nhelp: give it fewer threads, or fewer values in registers",
    ),
    (lambda d: setattr(d, "devices", (GPU._replace(arch=75),)), (3, 32), "it has instructions of sm_80 and newer; fake GPU is sm_75"),
]


@pytest.mark.parametrize(("change", "shape", "reason"), LIMITS)
def test_limits(driver: FakeDriver, torch: FakeTorch, change: Callable[[FakeDriver], object], shape: tuple[int, int], reason: str) -> None:
    change(driver)
    assert Case(COPY, driver).error(tensor(*shape)) == f"kernel 'k' cannot be launched: {reason}"
    assert driver.log == []


def test_shared_memory(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[N] align 4 @ 0

FOR i in 0..ceildiv(N, 32):
  IF threadIdx.x + 32*i < N:
    s[threadIdx.x + 32*i] = copy(x[threadIdx.x + 32*i])
    y[threadIdx.x + 32*i] = copy(s[threadIdx.x + 32*i])
"""
    case = Case(text, driver)
    case.run((tensor(1000),))
    assert driver.log == [("launch", 11)]
    case.run((tensor(20_000),))
    assert driver.log[1:] == [("allow_shared", 80_000), ("launch", 11)]
    assert driver.launches[-1].shared == 80_000
    assert case.error(tensor(60_000)) == (
        "kernel 'k' cannot be launched: 240000 bytes of Shared memory per block; fake GPU has 232448\nhelp: use smaller tiles or fewer stages"
    )
