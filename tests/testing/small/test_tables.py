"""Small kernels with tables: made again from their seeds, of every form, right and wrong."""

import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.kir import parse_kernel, to_text
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.tables import OF_TYPES, THROUGH, tabled
from taskfuse.testing.small.text import Small


def made(seed: int) -> Small | None:
    try:
        return tabled(RandomChooser(seed))
    except TaskfuseError:
        return None


@pytest.mark.parametrize("seed", range(6))
def test_a_kernel_is_its_text_and_its_seed(seed: int) -> None:
    found = made(seed)
    assert made(seed) == found
    if found is not None:
        assert parse_kernel(to_text(found.kernel, witness=True)) == found.kernel


def test_rows_of_every_form_with_and_without_an_end_that_is_kept() -> None:
    found = [s for seed in range(60) if (s := made(seed)) is not None]
    heads = [s.kernel.text().partition("\n")[0] for s in found]
    assert any("o: int32[G + 1]" in h for h in heads), "offsets"
    assert any("q: int32[" in h for h in heads), "first and end"
    assert any("o: int32[G]" in h and "q: " not in h for h in heads), "lengths"
    texts = [s.kernel.text(witness=True) for s in found]
    assert any("reduce " in t for t in texts)
    assert any("reduce " not in t for t in texts)
    for s in found:
        assert s.extents
        assert all(set(sizes) == {e.name for e in s.kernel.extents} for sizes in s.extents)


def test_terms_pass_through_types_and_sums_begin_with_constants_of_them() -> None:
    texts = "\n".join(s.kernel.text(witness=True) for seed in range(120) if (s := made(seed)) is not None)
    for part in (*(f"copy.{dtype}(" for dtype in THROUGH), *OF_TYPES[2:]):
        assert part in texts
