"""What a kernel knows of itself."""

import pickle

import pytest

from taskfuse.kir import Kernel, parse_kernel

TEXT = """\
KERNEL k(x: float32[N], alpha: float32) -> (y: float32[N])
  DIM N
  GRID (N, 1, 1)  BLOCK ({}, 1, 1){}
"""


def kernel(block: str = "128", more: str = "") -> Kernel:
    return parse_kernel(TEXT.format(block, more))


def test_tensors_that_are_read_and_written() -> None:
    assert [p.name for p in kernel().inputs] == ["x"]
    assert [p.name for p in kernel().outputs] == ["y"]


@pytest.mark.parametrize(("more", "meets"), [("", False), ("\n  COUNTER done", True), ("\n  SEMAPHORE s[2] count 1", True), ("\n  MBARRIER full[2]", False)])
def test_blocks_meet_by_counters_and_semaphores_alone(more: str, meets: bool) -> None:
    assert kernel(more=more).is_cooperative is meets


@pytest.mark.parametrize(
    ("block", "more", "registers"),
    [("128", "", 255), ("384", "", 168), ("1024", "", 64), ("384", "  RESIDENT 2", 80), ("N", "", None)],
)
def test_registers_of_a_launch(block: str, more: str, registers: int | None) -> None:
    assert kernel(block, more).launch_registers == registers


def test_equality_leaves_out_notes_and_a_copy_keeps_no_promise() -> None:
    body = TEXT.format("32", "") + "\ny[0] = copy(x[0])"
    plain, noted = parse_kernel(body), parse_kernel(body + "  # why")
    assert plain == noted
    plain.check_ir()
    assert plain.keeps_rules
    assert not noted.keeps_rules
    assert pickle.loads(pickle.dumps(plain)) == plain
    assert plain != parse_kernel(body.replace("y[0]", "y[1]"))
