"""Symbolic shapes: one compilation serves all; large Shared memory; tensors beyond 32-bit indices."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.cuda import cache
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from tests.gpu.device import same, to_numpy, to_torch
from tests.gpu.programs import floats, scale
from tests.gpu.tiled import tiled


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of what NVRTC compiles from here on; the disk cache is a fresh one."""
    names: list[str] = []
    original = cache.compile_cubin

    def counted(text: str, name: str, options: CompileOptions) -> Binary:
        names.append(name)
        return original(text, name, options)

    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "compile_cubin", counted)
    return names


def test_shapes_do_not_recompile(compilations: list[str]) -> None:
    run = tf.compile(scale(factor=12345), backend="cuda")
    for m in range(1, 30):
        for n in (1, 2, 31, 32, 33, 500):
            x = torch.randn(m, n, device="cuda")
            assert run(x)[0].equal(x * 12345 + 1)
    assert len(compilations) == 1


def test_layouts_compile_once_each(compilations: list[str]) -> None:
    run = tf.compile(scale(factor=54321), backend="cuda")
    for n in (8, 9, 10):
        dense = torch.randn(n, n, device="cuda")
        for x in (dense, dense.T, dense[:, ::2], dense[::2, : n - 1], dense[1:2].expand(n, n)):
            assert run(x)[0].equal(x * 54321 + 1)
    assert len(compilations) <= 3  # DENSE, ROWS, STRIDED


@pytest.mark.parametrize("kib", [32, 48, 64, 160, 224])
def test_large_shared_memory(kib: int) -> None:
    n = kib * 256
    x = floats(n)
    (out,) = tf.compile(tiled(n), backend="cuda")(to_torch(x))
    assert same(to_numpy(out), x[::-1] * 2 + 1)


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**31 + 12_345, 5 * 2**30 + 7])
def test_more_elements_than_32_bits_count(n: int) -> None:
    if torch.cuda.mem_get_info()[0] < 6 * n:
        pytest.skip("needs more GPU memory")
    x = torch.randint(-50, 50, (n,), dtype=torch.int8, device="cuda")
    out = torch.full_like(x, 127)
    tf.compile(scale(tf.int8, rank=1), backend="cuda")(x, out=out)
    assert out.equal(x * 2 + 1)


def test_strides_beyond_32_bits() -> None:
    if torch.cuda.mem_get_info()[0] < 8 * 2**30:
        pytest.skip("needs more GPU memory")
    memory = torch.zeros(3 * 2**31 + 64, dtype=torch.int8, device="cuda")
    x = torch.as_strided(memory, (4, 50), (2**31 - 5, 1))
    x.copy_(torch.randint(-50, 50, (4, 50), dtype=torch.int8, device="cuda"))
    (out,) = tf.compile(scale(tf.int8), backend="cuda")(x)
    assert out.equal(x * 2 + 1)
