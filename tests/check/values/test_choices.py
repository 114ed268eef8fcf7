"""Choices: the case of a definition that holds where a case of a statement does."""

import pytest

from tests.check.values.written import unproved

PICK = """\
KERNEL k(x: float32[3], z: float32[5]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  DEFINE y: float32[8] = pick(x[i0] if i0 < 3, z[i0 - 3] if i0 < 8)

y[threadIdx.x] = choose(x[threadIdx.x] if threadIdx.x < 3, z[threadIdx.x - 3] if threadIdx.x < 8)  ~ value y[threadIdx.x]
"""


@pytest.mark.parametrize(
    "cases",
    [
        "x[threadIdx.x] if threadIdx.x < 3, z[threadIdx.x - 3] if threadIdx.x >= 3",
        "z[threadIdx.x - 3] if threadIdx.x > 2, x[threadIdx.x] if threadIdx.x < 3",
        "x[threadIdx.x] if threadIdx.x < 2, x[threadIdx.x] if threadIdx.x < 3, z[threadIdx.x - 3] if threadIdx.x < 9",
    ],
)
def test_other_words_of_the_same_choice(cases: str) -> None:
    assert unproved(PICK.replace(PICK[PICK.index("choose(") + 7 : PICK.index(")  ~")], cases)) == []


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ("x[threadIdx.x] if threadIdx.x < 2, z[max(threadIdx.x - 3, 0)] if threadIdx.x < 8", "the case of its definition that holds is unknown"),
        ("x[threadIdx.x] if threadIdx.x < 3, z[threadIdx.x - 3] if threadIdx.x > 3", "in some place no case of its choice may hold"),
        ("x[min(threadIdx.x, 2)] if threadIdx.x < 4, z[threadIdx.x - 3] if threadIdx.x < 8", "the case of its definition that holds is unknown"),
    ],
)
def test_other_choices(cases: str, reason: str) -> None:
    assert reason in unproved(PICK.replace(PICK[PICK.index("choose(") + 7 : PICK.index(")  ~")], cases))


PADDED = """\
KERNEL k(x: float32[4, 4]) -> (y: float32[5, 5])
  GRID (5, 1, 1)  BLOCK (5, 1, 1)
  DEFINE y: float32[5, 5] = pick(x[i0 - 1, i1 - 1] if 2*i0 >= 1 && 2*i0 < 13 && 2*i1 >= 1 && 2*i1 < 13, 0.0 if 1)

y[blockIdx.x, threadIdx.x] = choose(x[blockIdx.x - 1, threadIdx.x - 1] if 2*blockIdx.x >= 1 && 2*threadIdx.x >= 1, 0.0 if 1)  ~ value y[blockIdx.x, threadIdx.x]
"""


def test_not_all_of_several_conditions_hold() -> None:
    """The otherwise of two conditions is that of four, two of which always hold."""
    assert unproved(PADDED) == []
    narrower = PADDED.replace("2*threadIdx.x >= 1, 0.0", "2*threadIdx.x >= 3, 0.0")
    assert "the case of its definition that holds is unknown" in unproved(narrower)
    fewer = PADDED.replace("i0 - 1, i1 - 1] if 2*i0 >= 1 &&", "max(i0 - 1, 0), i1 - 1] if")
    assert "the case of its definition that holds is unknown" in unproved(fewer)
