"""Small kernels of every kind are drawn."""

from taskfuse.errors import TaskfuseError
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small import KINDS, small_kernel


def test_every_kind_is_drawn() -> None:
    found: set[str] = set()
    for seed in range(150):
        try:
            found.add(small_kernel(RandomChooser(seed)).kind)
        except TaskfuseError:
            continue
    assert len(found) >= len(KINDS)
