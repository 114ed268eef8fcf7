"""Basic blocks, and where the ways from a branch meet again."""

import pytest

from taskfuse.testing.ptx.blocks import between, blocks, joins, target
from taskfuse.testing.ptx.nodes import Integer, PtxError, PtxInstruction
from tests.testing.ptx.entry import function

IF = "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra $A;\nmov.u32 %r3, 1;\n$A:\nmov.u32 %r4, 1;\n"
IF_ELSE = "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra $A;\nmov.u32 %r3, 1;\nbra.uni $B;\n$A:\nmov.u32 %r3, 2;\n$B:\nmov.u32 %r4, 1;\n"
LOOP = "$B:\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 bra $B;\n"


def test_a_block_ends_at_a_branch_and_before_a_label() -> None:
    found = blocks(function(IF + LOOP))
    assert [b.after for b in found] == [(2, 1), (2,), (3,), (3, 4), (5,)]
    assert [(b.first, b.last) for b in found] == [(0, 4), (4, 5), (5, 6), (6, 8), (8, 9)]
    assert joins(found) == (2, 2, 3, 4, 5)


def test_both_ways_meet_behind_the_else() -> None:
    found = blocks(function(IF_ELSE))
    assert [b.after for b in found] == [(2, 1), (3,), (3,), (4,)]
    assert joins(found) == (3, 3, 3, 4)
    assert between(found, 0, 3) == {1, 2}


def test_a_way_that_leaves_meets_at_the_end() -> None:
    found = blocks(function("setp.eq.s32 %p1, %r1, 0;\n@%p1 ret;\nmov.u32 %r3, 1;\n"))
    assert found[0].after == (2, 1)
    assert joins(found)[0] == 2
    assert between(found, 0, 2) == {1}


def test_a_loop_is_behind_its_own_branch() -> None:
    found = blocks(function(LOOP))
    assert found[1].after == (1, 2)
    assert between(found, 1, joins(found)[1]) == {1}


def test_a_branch_jumps_to_a_label() -> None:
    with pytest.raises(PtxError, match="PTX line 4: the target of a branch is not a label"):
        target(PtxInstruction(4, ("bra",), (Integer(3),)))
