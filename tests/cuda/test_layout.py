"""Layouts against brute force over the addresses of all elements."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from taskfuse.cuda.layout import Layout, alignment_of, ranges_overlap, row_major, vector_bytes_of
from taskfuse.kir.variant import ArgumentLayout

AXES = st.lists(st.tuples(st.integers(0, 4), st.integers(-12, 12)), max_size=4)
ITEMSIZES = st.sampled_from([1, 2, 4, 8])


def layout(axes: list[tuple[int, int]], itemsize: int) -> Layout:
    return Layout.of([n for n, _ in axes], [s for _, s in axes], itemsize)


def offsets(axes: list[tuple[int, int]]) -> list[int]:
    """Of every element, in row-major order."""
    return [sum(i * s for i, (_, s) in zip(index, axes, strict=True)) for index in itertools.product(*(range(n) for n, _ in axes))]


def element_bytes(axes: list[tuple[int, int]], itemsize: int, base: int = 0) -> set[int]:
    return {base + o * itemsize + b for o in offsets(axes) for b in range(itemsize)}


@given(AXES, ITEMSIZES)
def test_reach(axes: list[tuple[int, int]], itemsize: int) -> None:
    low, high = layout(axes, itemsize).byte_range
    found = element_bytes(axes, itemsize)
    assert (low, high) == ((min(found), max(found) + 1) if found else (0, 0))


@given(AXES, ITEMSIZES)
def test_overlaps_itself(axes: list[tuple[int, int]], itemsize: int) -> None:
    found = offsets(axes)
    assert layout(axes, itemsize).overlaps_itself == (len(set(found)) < len(found))


@given(AXES, AXES, ITEMSIZES, st.integers(-40, 40))
def test_arrays_with_a_common_byte_have_overlapping_ranges(a: list[tuple[int, int]], b: list[tuple[int, int]], itemsize: int, base: int) -> None:
    low, high = layout(b, itemsize).byte_range
    overlap = ranges_overlap(layout(a, itemsize).byte_range, (base + low, base + high))
    first, second = element_bytes(a, itemsize), element_bytes(b, itemsize, base)
    assert overlap or not first & second
    between = bool(first and second) and max(min(first), min(second)) <= min(max(first), max(second))
    assert overlap == between


@given(AXES, ITEMSIZES, st.integers(0, 32), st.sampled_from([0, 2, 4, 8, 16]))
def test_what_a_form_promises_holds(axes: list[tuple[int, int]], itemsize: int, base: int, vector: int) -> None:
    shape, strides = [n for n, _ in axes], [s for _, s in axes]
    found = layout(axes, itemsize)
    form = found.form(alignment_of(base), vector)
    rows = [s for n, s in axes[:-1] if n > 1]
    contiguous = offsets(axes) == list(range(len(offsets(axes))))
    dense = found.is_empty or (contiguous and (not vector or base % 16 == 0))
    last = not axes or shape[-1] <= 1 or strides[-1] == 1
    aligned = not vector or (base % vector == 0 and all(s * itemsize % vector == 0 for s in rows))
    assert (form is ArgumentLayout.DENSE) == dense
    if form is ArgumentLayout.ROWS:
        assert last
        assert aligned
    if form is ArgumentLayout.STRIDED and axes:
        assert not (last and aligned)


def test_strides_that_do_not_matter_are_those_of_row_major_order() -> None:
    assert Layout.of((3, 1, 4), (4, 99, 1), 4).strides == (4, 4, 1)
    assert Layout.of((3, 0, 4), (7, 7, 7), 4).strides == row_major((3, 0, 4)) == (4, 4, 1)
    assert Layout.of((), (), 4).is_row_major


def test_the_span_decides_whether_32_bits_do() -> None:
    assert Layout.of((2, 4), (2**31 - 4, 1), 1).fits_int32
    assert not Layout.of((2, 4), (2**31 - 3, 1), 1).fits_int32
    assert not Layout.of((2, 3), (2**30, -(2**29)), 1).fits_int32


def test_alignment() -> None:
    assert [alignment_of(a) for a in (0, 1, 6, 8, 48, 100)] == [16, 1, 2, 8, 16, 4]
    assert vector_bytes_of([]) == 0
    assert vector_bytes_of([8, 16, 4]) == 16
