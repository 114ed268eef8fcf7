"""What lies in the Shared memory of a block, and where."""

from __future__ import annotations

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.ir.scalar import const, evaluate
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.shared_memory import shared_layout, summed_up


def kernel(groups: int) -> Kernel:
    """Two buffers, of which the second has no offset, and a read at an offset of a group."""
    return parse_kernel(
        f"KERNEL k(n: int32[{groups}] lengths of 9) -> (y: int32[1])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
        "  SHARED a: int8[10]\n  SHARED b: float32[3]\n\ny[0] = copy(n[clamp(n.offsets[1 of "
        f"{groups + 1}], 0, 3)])\n"
    )


def test_offsets_follow_all_buffers() -> None:
    found = shared_layout(kernel(4))
    assert [int(evaluate(e, {})) for e in (found.buffers["a"], found.buffers["b"], found.offsets["n.offsets"])] == [0, 12, 24]
    assert found.bytes is const(24 + 5 * 8)
    assert [p.name for p in summed_up(kernel(4))] == ["n.offsets"]


def test_a_block_without_room_for_its_offsets_does_not_run() -> None:
    lengths = np.zeros(30_000, np.int32)
    with pytest.raises(SimulationError, match="240032 bytes of Shared memory; a block has at most 232448"):
        kernel(30_000).simulate(lengths)
    assert kernel(20_000).simulate(lengths[:20_000])[0][0] == 0
