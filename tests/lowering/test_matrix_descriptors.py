"""Matrix descriptors: layouts of the instruction are found, whatever else is refused."""

import pytest

from taskfuse.ir.scalar import Expr, Facts, const, sym
from taskfuse.ir.shared_layouts import Major, swizzled_place
from taskfuse.lowering.matrix_descriptors import NoDescriptorError, OperandTile, derive

R, K = sym("r"), sym("k")


def flat(place: Expr, size: int, rows: int, depth: int, itemsize: int = 2, facts: Facts | None = None) -> OperandTile:
    """The descriptor of a tile whose element (r, k) is at ``place`` of a buffer of one axis."""
    return derive((place,), (const(size),), itemsize, ("r", rows), ("k", depth), facts or Facts())


def swizzle(place: Expr, span: int, itemsize: int = 2) -> Expr:
    """A place in elements under a swizzle of bytes."""
    return swizzled_place(place * itemsize, span) // itemsize


def ranges(rows: int, depth: int, **more: int) -> Facts:
    facts = Facts().with_range("r", 0, rows - 1).with_range("k", 0, depth - 1)
    for name, n in more.items():
        facts = facts.with_range(name, 0, n - 1)
    return facts


@pytest.mark.parametrize("span", [32, 64, 128])
def test_rows_of_a_span_under_its_swizzle(span: int) -> None:
    depth = span // 2
    place = swizzle(R * depth + K, span)
    found = flat(place, 64 * depth, 64, 16, facts=ranges(64, 16))
    assert (found.swizzle, found.lbo, found.sbo, found.major, found.align) == (span, 0, 8 * span, Major.K, 8 * span)
    assert [str(e) for e in found.start] == ["0"]


def test_core_matrices_without_a_swizzle() -> None:
    """8 rows of 16 bytes each follow one another; along k the next is 128 bytes on, along rows 256."""
    place = R // 8 * 128 + K // 8 * 64 + R % 8 * 8 + K % 8
    found = flat(place, 64 * 16, 64, 16, facts=ranges(64, 16))
    assert (found.swizzle, found.lbo, found.sbo, found.major, found.align) == (0, 128, 256, Major.K, 16)


def test_columns_of_a_span_are_contiguous() -> None:
    """MN-major: [k, 64 rows] under a swizzle of 128 bytes."""
    place = swizzle(K * 64 + R, 128)
    found = flat(place, 64 * 16, 64, 16, facts=ranges(64, 16))
    assert (found.swizzle, found.sbo, found.major) == (128, 1024, Major.MN)


def test_mn_major_is_for_16_bits() -> None:
    with pytest.raises(NoDescriptorError, match="no matrix descriptor finds its 128 x 32 tile"):
        flat(swizzle(K * 128 + R, 128, 1), 128 * 32, 128, 32, 1, ranges(128, 32))


def test_the_start_is_that_of_the_first_element_and_may_move_by_whole_periods() -> None:
    depth = 64
    place = swizzle((sym("slot") * 64 + R) * depth + K, 128)
    found = flat(place, 4 * 64 * depth, 64, 16, facts=ranges(64, 16, slot=4))
    assert str(found.start[0]) == "4096*slot"
    assert found.swizzle == 128


def test_a_start_inside_a_span_is_found_if_all_values_agree() -> None:
    """Steps of k of 32 bytes within rows of 128: the start moves within the period, and the swizzle is of the address."""
    place = swizzle(R * 64 + sym("step") * 16 + K, 128)
    found = flat(place, 64 * 64, 64, 16, facts=ranges(64, 16, step=4))
    assert found.swizzle == 128


@pytest.mark.parametrize(
    ("place", "facts"),
    [
        (R * 72 + K, ranges(64, 16)),  # padded rows
        (R * 64 + K, ranges(64, 16)),  # rows of a span without its swizzle
        (swizzle(R * 64 + K, 64), ranges(64, 16)),  # another swizzle than that of the span
        (swizzle(R * 64 + K + sym("free"), 128), ranges(64, 16)),  # who knows by how much
        (R * 64 + K * 2, ranges(64, 16)),  # elements apart
        (R // 8 * 128 + K // 8 * 64 + R % 8 * 8 + (K + sym("s")) % 8, ranges(64, 16, s=2)),  # core matrices for one value of s alone
    ],
)
def test_what_no_layout_fits(place: Expr, facts: Facts) -> None:
    with pytest.raises(NoDescriptorError) as caught:
        flat(place, 1 << 14, 64, 16, facts=facts)
    assert caught.value.reason.startswith("no matrix descriptor finds its 64 x 16 tile")
    assert "swizzled" in caught.value.help


def test_an_index_of_several_axes_is_row_major() -> None:
    depth = 32
    line = swizzle(R * depth + K, 64)
    found = derive((sym("slot"), line // depth, line % depth), (const(3), const(64), const(depth)), 2, ("r", 64), ("k", 16), ranges(64, 16, slot=3))
    assert (found.swizzle, found.major) == (64, Major.K)
    assert [str(e) for e in found.start] == ["slot", "0", "0"]
