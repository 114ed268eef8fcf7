"""Named layouts."""

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule import layouts
from tests.schedule.points import pair, places, refused, size


def typed(dtype: str, *shape: int | str) -> TensorView:
    with Fusion("f") as fusion:
        a = tf.copy(tf.define_tensor(list(shape), dtype=as_dtype(dtype)))
        fusion.add_output(tf.copy(a))
    return a


def addresses(a: TensorView) -> np.ndarray:
    """Byte address of each logical element, allocation axes in row-major order."""
    assert a.schedule.allocation is not None
    linear = np.zeros([size(x) for x in a.logical], np.int64)
    for x, index in zip(a.schedule.allocation, places(a), strict=True):
        linear = linear * size(x) + index
    return linear * a.dtype.bits // 8


def test_rowmajor_and_padded() -> None:
    _, a, _ = pair(4, 6)
    a.set_allocation_domain(layouts.rowmajor())
    assert a.schedule.allocation == a.logical
    a.set_allocation_domain(layouts.padded(2))
    assert (addresses(a) == 4 * (np.arange(4)[:, None] * 8 + np.arange(6))).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "uint8"])
@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("panels", [1, 2])
def test_swizzled_is_the_hardware_pattern(dtype: str, span: int, panels: int) -> None:
    """Bits 4.. of the address are XORed with bits 7.. (PTX ISA, swizzling modes): 1, 2, 3 bits for spans of 32, 64, 128 bytes."""
    itemsize = as_dtype(dtype).bits // 8
    columns = span // itemsize
    a = typed(dtype, 16, panels * columns)
    a.set_allocation_domain(layouts.swizzled(span))
    rows, cols = np.indices([16, panels * columns])
    plain = (cols // columns) * 16 * span + rows * span + (cols % columns) * itemsize
    mask = span // 16 - 1
    assert (addresses(a) == plain ^ ((plain >> 7 & mask) << 4)).all()


def test_turned_puts_one_axis_last() -> None:
    a = typed("float32", 4, 6, 8)
    a.set_allocation_domain(layouts.turned(-2))
    x, y, z = np.indices([4, 6, 8])
    assert (addresses(a) == 4 * ((x * 8 + z) * 6 + y)).all()


def test_by_threads_puts_neighbors_side_by_side() -> None:
    """[column of threads, trip, row of threads, vector]: the threads of a warp, x first, have consecutive vectors."""
    a = typed("float32", 4, 6, 8, 4)
    for axis, index in ((0, ParallelType.TIDx), (2, ParallelType.TIDy)):
        a.axis(axis).parallelize(index)
    a.set_allocation_domain(layouts.by_threads())
    x, trip, y, v = np.indices([4, 6, 8, 4])
    assert (addresses(a) == 4 * (((trip * 8 + y) * 4 + x) * 4 + v)).all()
    b = typed("float32", 8, 4)
    b.axis(1).parallelize(ParallelType.TIDx)
    b.set_allocation_domain(layouts.by_threads())  # without a vector
    assert (addresses(b) == 4 * np.arange(32).reshape(8, 4)).all()


def test_swizzled_tiles() -> None:
    a = typed("bfloat16", "M", "K")
    a.split(0, 128).split(2, 64).reorder([0, 2, 1, 3])
    a.set_allocation_domain(layouts.swizzled(128))
    assert [str(x.extent) for x in a.schedule.allocation or ()] == ["ceildiv(M, 128)", "ceildiv(K, 64)", "16", "8", "8", "8"]
    assert [str(x.extent) for x in a.loop] == ["ceildiv(M, 128)", "ceildiv(K, 64)", "128", "64"]


@pytest.mark.parametrize(
    ("shape", "span", "text"),
    [
        ((16, 64), 48, "there is no swizzle with a span of 48 bytes\nhelp: use 32, 64 or 128"),
        ((64,), 128, "it needs two axes, rows and columns, but there are 1"),
        (("M", 64), 128, "axis 0 (extent M) is not a constant multiple of 8 rows\nhelp: split the loop axes into tiles first"),
        ((12, 64), 128, "axis 0 (extent 12) is not a constant multiple of 8 rows\nhelp: split the loop axes into tiles first"),
        ((16, 32), 128, "axis 1 (extent 32) is not a constant multiple of 64 elements\nhelp: split the loop axes into tiles first"),
    ],
)
def test_refused(shape: tuple[int | str, ...], span: int, text: str) -> None:
    a = typed("bfloat16", *shape)
    assert refused(lambda: a.set_allocation_domain(layouts.swizzled(span)), a.fusion) == f"layouts.swizzled(tv1): {text}"
