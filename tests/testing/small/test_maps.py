"""Kernels whose index maps nobody lowered: made again from their seeds, and of every form."""

import re

import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.kir import parse_kernel, to_text
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.maps import COMBINES, mapped


@pytest.mark.parametrize("seed", range(20))
def test_a_kernel_is_its_text_and_its_seed(seed: int) -> None:
    try:
        kernel = mapped(RandomChooser(seed)).kernel
    except TaskfuseError:
        return
    assert mapped(RandomChooser(seed)).kernel == kernel
    assert parse_kernel(to_text(kernel, witness=True)) == kernel


def test_sums_start_anywhere_and_tables_may_be_long() -> None:
    texts = list[str]()
    for seed in range(150):
        try:
            texts.append(to_text(mapped(RandomChooser(seed)).kernel, witness=True))
        except TaskfuseError:
            continue
    for combine, nothing in COMBINES.items():
        assert {nothing, "2.0"} <= {m[1] for t in texts if (m := re.search(rf"reduce {combine} of .* from (\S+)", t))}
    assert max(int(m[1]) for t in texts if (m := re.search(r"= find .* of (\d+)", t))) > 64
