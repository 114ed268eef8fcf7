"""One thread per element, numbered over all axes of any number of outputs: proved for all extents, empty ones too; each bad twin is not."""

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from taskfuse.check.verify import verify
from taskfuse.kir import Kernel, parse_kernel, to_text
from taskfuse.schedulers.fallback import fallback


def copies(*shapes: tuple[int | str, ...]) -> Kernel:
    """Copies of arrays; a name is a size that may be 0."""
    with tf.Fusion("copied") as fusion:
        for k, shape in enumerate(shapes):
            fusion.add_output(tf.copy(tf.define_tensor([tf.dim(n, min=0) if isinstance(n, str) else n for n in shape], name=f"x{k}")))
    fallback(fusion)
    return tf.lower(fusion)


def gaps(kernel: Kernel, sizes: dict[str, int] | None = None) -> list[str]:
    return [o.reason for o in verify(kernel, sizes).argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


@pytest.mark.parametrize(
    "shapes", [(("A", "B"),), (("A", "B", "C"),), (("A", "B", "C", "D"),), (("A", "B"), ("C", "D")), (("A", "B", "C"), ("D", "E"))], ids=str
)
def test_sizes_that_may_be_zero_are_proved_for_all_extents(shapes: tuple[tuple[str, ...], ...]) -> None:
    copies(*shapes).verify().require()


@pytest.mark.parametrize("shapes", [((2048, 27, 128), (2048, 857)), ((96, 197, 64), (96, 64, 197)), ((64, 3, 5, 32),)], ids=str)
def test_axes_that_are_no_powers_of_two_are_proved(shapes: tuple[tuple[int, ...], ...]) -> None:
    copies(*shapes).verify().require()


TEXT = """\
KERNEL copied(x: float32[2048, 27, 128]) -> (y: float32[2048, 27, 128])
  GRID (27648, 1, 1)  BLOCK (256, 1, 1)
  DEFINE y: float32[2048, 27, 128] = copy(x[i0, i1, i2])

y[{plane}, {row}, {column}] = copy(x[{plane}, {row}, {column}])  ~ value y[{plane}, {row}, {column}]
"""
INDEX = {"plane": "(256*blockIdx.x + threadIdx.x)//3456", "row": "(threadIdx.x//128 + 2*blockIdx.x) % 27", "column": "threadIdx.x % 128"}


def test_an_axis_that_ends_inside_a_block_splits_its_threads() -> None:
    parse_kernel(TEXT.format(**INDEX)).verify().require()


@pytest.mark.parametrize(
    "change",
    [
        {"row": "(threadIdx.x//64 + 2*blockIdx.x) % 27"},
        {"row": "(threadIdx.x//128 + blockIdx.x) % 27"},
        {"row": "(threadIdx.x//128 + 2*blockIdx.x) % 26"},
        {"column": "threadIdx.x % 64"},
        {"column": "threadIdx.x//2"},
        {"plane": "(256*blockIdx.x + threadIdx.x)//6912"},
    ],
    ids=str,
)
def test_threads_split_in_another_way_do_not_store_each_element(change: dict[str, str]) -> None:
    certificate = parse_kernel(TEXT.format(**{**INDEX, **change})).verify()
    assert not certificate.is_proved
    open_ = [o for o in certificate.argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]
    assert [o.subject for o in open_] == ["output y"]


def test_a_guard_that_leaves_out_the_last_element_is_not_proved() -> None:
    text = to_text(copies(("A", "B")), witness=True)
    assert "< A*B" in text
    kernel = parse_kernel(text.replace("threadIdx.x < A*B", "threadIdx.x < A*B - 1"))
    assert gaps(kernel)
    assert gaps(kernel, {"A": 7, "B": 5})
