"""Small kernels with several accumulators, or slots of their own: made again from their seeds, right and wrong."""

from collections import Counter

import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.kir import parse_kernel, to_text
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.maps import look
from taskfuse.testing.small.registers import registered
from taskfuse.testing.small.text import Small


def made(seed: int) -> Small | None:
    try:
        return registered(RandomChooser(seed))
    except TaskfuseError:
        return None


@pytest.mark.parametrize("seed", range(6))
def test_a_kernel_is_its_text_and_its_seed(seed: int) -> None:
    found = made(seed)
    assert made(seed) == found
    if found is not None:
        assert parse_kernel(to_text(found.kernel, witness=True)) == found.kernel


def test_kernels_of_both_kinds_are_right_and_wrong() -> None:
    rows = [row for n in range(4, 200, 7) for row in look(5, n)]
    found = Counter((row.kind, bool(row.fault)) for row in rows)
    assert min(found[kind, wrong] for kind in ("registers", "slots") for wrong in (False, True)) >= 2, found
    assert not any(row.false_accept for row in rows)
