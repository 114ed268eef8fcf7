"""Arrays: strides, alignment, kinds, dtypes, ``out=``, and what is refused about them."""

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.dtypes import DTYPES
from taskfuse.errors import TaskfuseError
from tests.gpu.device import InterfaceArray, gaps, poisoned, same, to_device, to_numpy, to_torch
from tests.gpu.programs import floats, in_blocks, scale, vectorized

X = floats(37, 44)
LAYOUTS = {
    "dense": X,
    "columns first": np.asfortranarray(X),
    "rows apart": np.concatenate([X, X], axis=1)[:, :44],
    "columns apart": np.repeat(X, 3, axis=1)[:, ::3],
    "broadcast rows": np.broadcast_to(X[0], X.shape),
    "broadcast element": np.broadcast_to(X[:1, :1], X.shape),
    "rows backwards": X[::-1],
    "columns backwards": X[:, ::-1],
    "all backwards": X[::-2, ::-3],
    "one row": X[5:6],
    "one column": X[:, 5:6],
    "one element": X[5:6, 5:6],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str) -> None:
    x = LAYOUTS[layout]
    (out,) = tf.compile(scale(), backend="cuda")(to_device(x))
    assert same(to_numpy(out), x * 2 + 1)


@pytest.mark.parametrize("layout", [name for name, x in LAYOUTS.items() if x.shape[1] % 4 == 0])
def test_strides_where_vectors_are_copied(layout: str) -> None:
    x = LAYOUTS[layout]
    (out,) = tf.compile(vectorized(), backend="cuda")(to_device(x))
    assert same(to_numpy(out), x * 2)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8], ids=str)
@pytest.mark.parametrize("offset", range(1, 9))
def test_misaligned_bases_where_vectors_are_copied(dtype: tf.DType, offset: int) -> None:
    width = 16 // dtype.itemsize if dtype.itemsize < 8 else 2
    x = to_torch(np.random.default_rng(0).integers(-9, 9, (5 * 16 * width + offset,)).astype(dtype.numpy))[offset:].view(5, 16 * width)
    out = poisoned((5 * 16 * width + offset,), dtype)
    (found,) = tf.compile(vectorized(dtype, width), backend="cuda")(x)
    assert found.equal(x * 2)
    tf.compile(vectorized(dtype, width), backend="cuda")(x, out=out[offset:].view(5, 16 * width))
    assert out[offset:].view(5, 16 * width).equal(x * 2)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d is not tf.bool_], ids=str)
def test_dtypes(dtype: tf.DType) -> None:
    fusion = scale(dtype)
    x = np.random.default_rng(0).integers(0, 6, (33, 9)).astype(dtype.numpy)
    (out,) = tf.compile(fusion, backend="cuda")(to_torch(x))
    assert same(to_numpy(out), fusion.evaluate(x)[0])


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_ranks(rank: int) -> None:
    x = floats(*(3, 5, 7, 2, 4)[:rank])
    (out,) = tf.compile(scale(rank=rank), backend="cuda")(to_torch(x))
    assert same(to_numpy(out), x * 2 + 1)


def test_empty_extents() -> None:
    for shape in ((0, 5), (5, 0), (0, 0)):
        (out,) = tf.compile(scale(least=0), backend="cuda")(torch.empty(shape, device="cuda"))
        assert tuple(out.shape) == shape
        assert out.dtype == torch.float32
    with tf.Fusion("total") as fusion:
        x = tf.define_tensor([3, tf.dim("N", min=0)], dtype=tf.float32, name="x")
        fusion.add_output(tf.sum(x, axis=1))
    (out,) = tf.compile(fusion, backend="cuda")(torch.empty((3, 0), device="cuda"))
    assert out.tolist() == [0, 0, 0]


# -- kinds --------------------------------------------------------------------------------------------------------------------------


def test_cupy() -> None:
    cp = pytest.importorskip("cupy", reason="needs CuPy")
    run = tf.compile(scale(), backend="cuda")
    for x in (cp.asarray(X), cp.asarray(X)[::-1, ::2], cp.asarray(X).T):
        (out,) = run(x)
        assert isinstance(out, cp.ndarray)
        assert same(cp.asnumpy(out), cp.asnumpy(x) * 2 + 1)
    out = cp.full(X.shape, cp.nan, cp.float32)
    run(cp.asarray(X), out=out)
    assert same(cp.asnumpy(out), X * 2 + 1)


def test_cupy_on_its_current_stream() -> None:
    cp = pytest.importorskip("cupy", reason="needs CuPy")
    run = tf.compile(scale(), backend="cuda")
    run(cp.asarray(X))
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x = cp.asarray(X)
        for _ in range(50):
            x = x * 1  # keeps the stream busy
        (out,) = run(x)
        found = cp.asnumpy(out, stream=stream)
    stream.synchronize()
    assert same(found, X * 2 + 1)


def test_cuda_array_interface() -> None:
    (out,) = tf.compile(scale(), backend="cuda")(InterfaceArray(X))
    assert same(to_numpy(out), X * 2 + 1)
    assert hasattr(out, "__cuda_array_interface__")
    assert hasattr(out, "__dlpack__")


class Capsule:
    """An array that has nothing but DLPack."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, *, stream: int | None = None, **more: object) -> object:
        return self.tensor.__dlpack__(stream=stream, **more)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def test_dlpack() -> None:
    for x in (to_torch(X), to_torch(X).T, to_torch(X)[3:, ::2]):
        (out,) = tf.compile(scale(), backend="cuda")(Capsule(x))
        assert torch.from_dlpack(out).equal(x * 2 + 1)


def test_numpy_strides_through_the_gpu() -> None:
    for x in LAYOUTS.values():
        (out,) = tf.compile(scale(), backend="cuda")(x)
        assert type(out) is np.ndarray
        assert same(out, x * 2 + 1)


def test_auto_runs_torch_on_the_gpu_and_numpy_in_the_simulator() -> None:
    run = tf.compile(scale())
    (out,) = run(to_torch(X))
    assert out.is_cuda
    assert same(to_numpy(out), run(X)[0])


def test_outputs_need_no_gradient() -> None:
    x = to_torch(X).requires_grad_()
    with torch.no_grad():
        (out,) = tf.compile(scale(), backend="cuda")(x)
    assert out.equal(x.detach() * 2 + 1)


def test_run_time_scalars() -> None:
    with tf.Fusion("scaled") as fusion:
        x = tf.define_tensor(["N"], dtype=tf.float32, name="x")
        s = tf.define_scalar(tf.float32, name="s")
        n = tf.define_scalar(tf.int64, name="n")
        fusion.add_output(x * s + n)
    run = tf.compile(in_blocks(fusion), backend="cuda")
    for scalar, count in ((2.5, 3), (-0.5, -4), (1e30, 2)):
        (out,) = run(to_torch(X[0]), scalar, count)
        (simulated,) = tf.lower(fusion).simulate(X[0], scalar, count)
        assert same(to_numpy(out), simulated)


# -- out= ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3])
def test_out_is_written_and_returned(step: int) -> None:
    run = tf.compile(scale(), backend="cuda")
    out = poisoned(X.shape, tf.float32, step)
    (found,) = run(to_torch(X), out=out)
    assert found is out
    assert same(to_numpy(out), X * 2 + 1)
    assert bool((gaps(out, step) == -1).all())


def test_out_of_any_strides() -> None:
    run = tf.compile(scale(), backend="cuda")
    out = torch.full((44, 37), float("nan"), device="cuda").T
    run(to_torch(X), out=(out,))
    assert same(to_numpy(out), X * 2 + 1)


def test_out_of_several_outputs() -> None:
    with tf.Fusion("two") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        fusion.add_output(x * 2)
        fusion.add_output(x > 0)
    outs = poisoned(X.shape, tf.float32, 2), poisoned(X.shape, tf.bool_)
    tf.compile(fusion, backend="cuda")(to_torch(X), out=outs)
    assert same(to_numpy(outs[0]), X * 2)
    assert same(to_numpy(outs[1]), X > 0)


def test_refused_outputs() -> None:
    run = tf.compile(scale(), backend="cuda")
    x = to_torch(X)
    memory = torch.zeros(2 * X.size, device="cuda")
    inside = memory[: X.size].view(X.shape)
    faults = [
        (x, torch.empty(X.shape, dtype=torch.float64, device="cuda"), "dtype float32, the array float64"),
        (x, torch.empty((37, 45), device="cuda"), "shape [37, 44], the array [37, 45]"),
        (x, torch.empty(37 * 44, device="cuda"), "shape [37, 44], the array [1628]"),
        (x, torch.empty(X.shape), "on cpu, not on a GPU"),
        (x, (torch.empty_like(x), torch.empty_like(x)), "out= has 2 arrays"),
        (x, torch.empty(1, 44, device="cuda").expand(X.shape), "two of its elements have one address"),
        (x, x, "overlaps input"),
        (inside, memory[44 : 44 + X.size].view(X.shape), "overlaps input"),
        (memory.view(37, 88)[:, ::2], memory.view(37, 88)[:, 1::2], "overlaps input"),
    ]
    for given, out, reason in faults:
        before = given.clone()
        with pytest.raises(TaskfuseError, match=re.escape(reason)):
            run(given, out=out)
        assert given.equal(before), reason
    (found,) = run(inside, out=memory[X.size :].view(X.shape))  # neighbors do not overlap
    assert found.equal(inside * 2 + 1)


def test_outputs_may_not_overlap_each_other() -> None:
    with tf.Fusion("two") as fusion:
        x = tf.define_tensor(["N"], dtype=tf.float32, name="x")
        fusion.add_output(x * 2)
        fusion.add_output(x * 3)
    memory = torch.zeros(15, device="cuda")
    with pytest.raises(TaskfuseError, match="overlap"):
        tf.compile(fusion, backend="cuda")(torch.zeros(10, device="cuda"), out=(memory[:10], memory[5:]))
