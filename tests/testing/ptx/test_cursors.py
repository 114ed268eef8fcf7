"""Cursors: the slot, parity and phase that the PTX computes for every small ring, start and step, against floor division; and divisions around them."""

import re

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.testing.ptx.compare import compare
from tests.testing.ptx.compiled import ptx_of

MOVES = """\
KERNEL moves(x: float32[N]) -> (y: float32[64])
  DIM N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  MBARRIER b[{slots}]

c = CURSOR(slots {slots}, slot {slot}, parity {parity})
{moves}
WAIT b[c.slot] parity c.parity
y[c.phase + 32] = copy(1.0)
"""
STEPS = {
    "one": "c.advance(1)",
    "N": "c.advance(N)",
    "in a loop": "FOR i in 0..N:\n  c.advance(1)",
    "more and more": "FOR i in 0..N:\n  c.advance(i)",
    "by two, then by N": "FOR i in 0..2:\n  c.advance(2)\nc.advance(N)",
    "constant": "c.advance(11)",
    "back by one": "c.advance(-1)",
    "back by seven": "c.advance(-7)",
    "back by N": "c.advance(-N)",
    "there and back": "FOR i in 0..N:\n  c.advance(2*i - 5)",
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5])
def test_advances(steps: str, slots: int) -> None:
    """All starts in one kernel would be one cursor each: the first slot and the last, in one parity each, in turn."""
    for slot, parity in zip((0, slots - 1), ((0, 1), (1, 0))[(slots + [*STEPS].index(steps)) % 2], strict=True):
        kernel = tf.parse_kernel(MOVES.format(slots=slots, slot=slot, parity=parity, moves=STEPS[steps]))
        source = emit(kernel)
        report = compare(kernel, source, ptx_of(source), [{"N": n} for n in range(2 * slots + 3)])
        assert report.difference is None
        assert report.launches == 2 * slots + 3


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"c_slot / 3 & 1", "c_slot / 4 & 1"),  # a parity of another ring
        (r"c_slot %= 3", "c_slot = 0"),
        (r"c_parity \^= c_slot / 3 & 1", "c_parity ^= c_slot / 3"),
        (r"c_phase \+= c_slot / 3", "c_phase += c_slot > 2"),
    ],
)
def test_wrong_advances(pattern: str, replacement: str) -> None:
    kernel = tf.parse_kernel(MOVES.format(slots=3, slot=1, parity=0, moves="c.advance(N)"))
    source = emit(kernel)
    sizes = [{"N": n} for n in range(9)]
    assert compare(kernel, source, ptx_of(source), sizes).difference is None
    text = re.sub(pattern, replacement, source.text)
    assert text != source.text
    assert compare(kernel, source, ptx_of(source, text), sizes).difference is not None


@pytest.mark.parametrize(("slots", "floor", "truncated"), [(3, r"floor_divide\((.*), 3\)", r"(\1) / 3"), (4, r"(c_slot - N) >> 2", r"(\1) / 4")])
def test_an_advance_by_truncation_is_found(slots: int, floor: str, truncated: str) -> None:
    kernel = tf.parse_kernel(MOVES.format(slots=slots, slot=1, parity=0, moves="c.advance(-N)"))
    source = emit(kernel)
    text = re.sub(floor, truncated, source.text)
    assert text != source.text
    assert compare(kernel, source, ptx_of(source, text), [{"N": n} for n in range(9)]).difference is not None


BACK = """\
KERNEL back(x: float32[N]) -> (y: float32[256])
  DIM N
  GRID (1, 1, 1)  BLOCK (8, 1, 1)

y[({dividend})//({divisor}) + 100] = copy(1.0)
y[({dividend}) % ({divisor}) + 100] = copy(2.0)
"""
DIVISIONS = {
    "by a constant": ("threadIdx.x - N", "3"),
    "by a power of two": ("threadIdx.x - N", "4"),
    "by a symbol": ("threadIdx.x - 4", "N"),
    "by an index": ("N - 4", "threadIdx.x + 1"),
    "by a sum": ("threadIdx.x - 2*N", "N + 1"),
    "not negative, by a symbol": ("threadIdx.x + N", "N"),
}


@pytest.mark.parametrize("form", DIVISIONS)
def test_divisions_round_down(form: str) -> None:
    dividend, divisor = DIVISIONS[form]
    kernel = tf.parse_kernel(BACK.format(dividend=dividend, divisor=divisor))
    source = emit(kernel)
    assert compare(kernel, source, ptx_of(source), [{"N": n} for n in range(1, 12)]).difference is None


def test_a_division_by_truncation_is_found() -> None:
    kernel = tf.parse_kernel(BACK.format(dividend="threadIdx.x - N", divisor="3"))
    source = emit(kernel)
    text = re.sub(r"floor_divide\((.*?), 3\)", r"(\1) / 3", source.text)
    assert text != source.text
    found = compare(kernel, source, ptx_of(source, text), [{"N": n} for n in range(1, 12)]).difference
    assert found is not None
    assert "a tensor" in found


HOISTED = """\
KERNEL hoisted(x: float32[N]) -> (y: float32[N, 8])
  DIM N
  GRID (1, 1, 1)  BLOCK (8, 1, 1)

c = CURSOR(slots 2, slot 0, parity 0)
FOR i in 0..N:
  y[c.{part}//(threadIdx.x + 1), c.{part} % (threadIdx.x + 1)] = copy(1.0)
  y[c.{part}//(threadIdx.x + 1), c.{part} % (threadIdx.x + 1)] = copy(2.0)
  c.advance(1)
"""


@pytest.mark.parametrize("part", ["slot", "parity", "phase"])
def test_divisions_of_cursors_stay_where_they_are(part: str) -> None:
    kernel = tf.parse_kernel(HOISTED.format(part=part))
    source = emit(kernel)
    assert f"c_{part} / " in source.text or f"c_{part}, " in source.text
    assert compare(kernel, source, ptx_of(source), [{"N": n} for n in range(1, 9)]).difference is None
