"""The kernels of tests/kernels, written by hand: rings, named barriers, a grid barrier, TMA, wgmma."""

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from tests.gpu.device import Array, poisoned, same, to_numpy, to_torch
from tests.gpu.programs import floats, gemm_arguments, load

ARGUMENTS: dict[str, list[list[Array]]] = {
    "double": [[floats(m, 32)] for m in (8, 1, 61, 4097)],
    "exchange": [[floats(n, 4, 32)] for n in (0, 1, 5, 500)],
    "ring": [[floats(n, 32)] for n in (0, 1, 2, 3, 100, 2001)],
    "rotate": [[floats(b, 32)] for b in (1, 2, 7, 64)],
    "blocks": [[floats(2, n, 4)] for n in (0, 1, 2, 3, 100, 2001)],
}
SIMULATED = 200_000  # bytes: larger arguments are not simulated
hopper = pytest.mark.usefixtures("hopper")
GEMMS = [(1, 8, 8), (64, 64, 64), (130, 136, 72), (300, 264, 200), (520, 136, 264), (128, 1160, 40), (2048, 1536, 1000), (4096, 4096, 512)]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_kernel_gives_the_bits_of_the_simulator(name: str) -> None:
    kernel = load(name)
    run = tf.compile(kernel, backend="cuda")
    for args in ARGUMENTS[name]:
        given = [to_torch(a) for a in args]
        first = poisoned(args[0].shape, tf.float32)
        run(*given, out=first)
        if args[0].nbytes < SIMULATED:
            (simulated,) = kernel.simulate(*args)
            assert same(to_numpy(first), simulated)
        for _ in range(20):
            out = poisoned(args[0].shape, tf.float32)
            run(*given, out=out)
            assert out.equal(first)


@pytest.mark.parametrize("name", ["ring", "exchange", "rotate", "double", "blocks"])
def test_debug_builds(name: str) -> None:
    kernel = load(name)
    args = ARGUMENTS[name][1]
    (out,) = tf.compile(kernel, backend="cuda", debug=True)(*map(to_torch, args))
    assert same(to_numpy(out), kernel.simulate(*args)[0])


@hopper
@pytest.mark.parametrize("shape", GEMMS)
def test_gemm_is_exact_on_small_integers(shape: tuple[int, int, int]) -> None:
    args, expected = gemm_arguments(*shape)
    run = tf.compile(load("gemm"), backend="cuda")
    given = [to_torch(a) for a in args]
    for _ in range(5):
        out = poisoned(expected.shape, tf.bfloat16)
        run(*given, out=out)
        assert same(to_numpy(out), expected)


@hopper
@pytest.mark.parametrize("shape", GEMMS[:6])
def test_gemm_with_bias(shape: tuple[int, int, int]) -> None:
    args, _ = gemm_arguments(*shape)
    bias = np.arange(shape[1], dtype=np.float32) % 17
    (out,) = tf.compile(load("gemm_bias"), backend="cuda")(*map(to_torch, [*args, bias]))
    product = args[0].astype(np.float32) @ args[1].astype(np.float32).T
    assert same(to_numpy(out), (product + bias).astype(ml_dtypes.bfloat16))


@hopper
def test_gemm_of_random_numbers_is_torch_in_float64() -> None:
    a, b = (torch.randn(n, 777 // 8 * 8, device="cuda").bfloat16() for n in (1000, 512))
    (out,) = tf.compile(load("gemm"), backend="cuda")(a, b)
    exact = a.double() @ b.double().T
    size = a.double().abs() @ b.double().abs().T
    assert bool(((out.double() - exact).abs() <= exact.abs() * 2**-8 + size * 2**-20).all())


@hopper
def test_tensor_maps_follow_row_strides() -> None:
    args, expected = gemm_arguments(300, 264, 200)
    wide = [torch.full((t.shape[0], t.shape[1] + 56), float("nan"), dtype=t.dtype, device="cuda") for t in map(to_torch, args)]
    views = [w[:, 8 : 8 + a.shape[1]] for w, a in zip(wide, args, strict=True)]
    for view, a in zip(views, args, strict=True):
        view.copy_(to_torch(a))
    (out,) = tf.compile(load("gemm"), backend="cuda")(*views)
    assert same(to_numpy(out), expected)


@hopper
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("base", "address is not a multiple of 16"), ("rows", "has a stride of 130 bytes"), ("columns", "last axis has stride 64")],
)
def test_tensor_maps_refuse_what_the_engine_cannot_read(fault: str, reason: str) -> None:
    (a, b), _ = gemm_arguments(64, 64, 64)
    b = to_torch(b)
    wide = torch.zeros(65, 136, dtype=torch.bfloat16, device="cuda")
    given = {"base": wide[:64, 1:65], "rows": wide.flatten()[: 64 * 65].view(64, 65)[:, :64], "columns": to_torch(a).T}[fault]
    with pytest.raises(TaskfuseError, match=reason):
        tf.compile(load("gemm"), backend="cuda")(given, b)
