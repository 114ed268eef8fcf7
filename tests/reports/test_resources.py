"""What a kernel takes, as text."""

import pytest

from taskfuse.ir.scalar import Expr, const, sym
from taskfuse.reports.resources import KernelResources, LaunchShape, Resources


def test_the_shape_of_a_launch() -> None:
    shape = LaunchShape((4, 2, 1), (32, 2, 2), (1, 1, 1), 512)
    assert shape.threads == 128
    assert str(shape) == "grid (4, 2, 1)  block (32, 2, 2)  shared 512 bytes"
    assert str(shape._replace(cluster=(2, 1, 1))) == "grid (4, 2, 1)  block (32, 2, 2)  cluster (2, 1, 1)  shared 512 bytes"


@pytest.mark.parametrize(
    ("threads", "blocks", "said"),
    [(const(64), 1, "1 block per multiprocessor"), (const(64), 2, "2 blocks per multiprocessor"), (sym("N"), None, "depends on the extents")],
)
def test_resources(threads: Expr, blocks: int | None, said: str) -> None:
    lines = str(KernelResources("sm_90a", Resources(40, 0, 8, 4, 12, 1, local_arrays=4), threads, const(96), blocks)).splitlines()
    assert lines[0] == "sm_90a:"
    assert lines[1:3] == ["  registers  40 per thread", "  spills     4 bytes stored, 12 bytes loaded per thread"]
    assert lines[3] == "  stack      8 bytes per thread, 4 of them in arrays"
    assert lines[-1] == f"  occupancy  {said}"


def test_no_limits_are_known() -> None:
    assert str(KernelResources("sm_77", Resources(40, 0, 0, 0, 0, 1), const(64), const(0), None)).endswith("the limits of sm_77 are not known")
