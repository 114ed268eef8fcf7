"""Heads of kernels in JSON: what parsing the text finds."""

import json
from typing import Any

import pytest

from taskfuse.cuda.packed import packed_head, unpacked_head
from taskfuse.errors import ParseError
from taskfuse.kir import parse_head

TEXT = """KERNEL k(x: bfloat16[M, 2*N], n: float32, g: integer, t: int64[g + 1] rising 0..M by ballot, u: int64[4] = i0*2) -> (y: float32[M] into x, z: int32[])
  DIM M min 1 max 2*N, N min 0 multiple_of 8, g max 7
  TENSORMAP a.map = x box (1, 64) step (2, 1) swizzle 128
  GRID (ceildiv(M, 32), 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)  RESIDENT 2
"""


def stored(form: object) -> Any:
    return json.loads(json.dumps(form))


def test_a_head_is_that_of_its_text() -> None:
    head = parse_head(TEXT)
    assert unpacked_head(stored(packed_head(head))) == head


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extents": [["Kernel"]]}, "Kernel"),
        ({"params": [["ScalarParam", "x", {"dtype": "float7"}]]}, "float7"),
        ({"launch": [[1, 1, 1]]}, "unpack"),
        ({"launch": [[{"expr": "M +"}] * 3] * 3}, "expected an expression"),
        ({"residents": None}, "int"),
    ],
)
def test_what_is_no_head_is_an_error(change: dict[str, object], reason: str) -> None:
    form = stored(packed_head(parse_head(TEXT))) | change
    with pytest.raises((KeyError, TypeError, ValueError, ParseError), match=reason):
        unpacked_head(form)
