"""Definitions that mean nothing somewhere prove nothing: each bad one is refused with its reason, its right twin is proved, for all extents and at some."""

import pytest

from taskfuse.check import Verdict
from taskfuse.check.verify import verify
from taskfuse.kir import Kernel, parse_kernel

SIZES = {"M": 3, "K": 4}
PARTS = """\
KERNEL k(a: int32[M], b: int32[K]) -> (y: int32[{size}])
  DIM M min {least}, K min {least}
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE u: int32[M] = mul(a[i0], 2)
  DEFINE v: int32[K] = mul(b[i0], 3)
  DEFINE y: int32[{size}] = whole u at ({first}), v at ({second})

FOR i in 0..M:
  y[{stored}] = mul(a[i], 2)  ~ value u[i]
FOR i in 0..K:
  y[{also}] = mul(b[i], 3)  ~ value v[i]
"""
RIGHT = {"size": "M + K", "least": "1", "first": "i0", "second": "i0 + M", "stored": "i", "also": "i + M"}


def parts(**changes: str) -> Kernel:
    return parse_kernel(PARTS.format(**{**RIGHT, **changes}))


def reasons(kernel: Kernel, sizes: dict[str, int] | None = None) -> list[str]:
    return [o.reason for o in verify(kernel, sizes).argument if o.subject.startswith("definition of") and o.verdict is not Verdict.PROVED]


@pytest.mark.parametrize(
    "changes",
    [{}, {"least": "0"}, {"first": "i0 + K", "second": "i0", "stored": "i + K", "also": "i"}],
    ids=["one behind the other", "parts that may be empty", "in the other order"],
)
def test_parts_that_follow_each_other_are_proved(changes: dict[str, str]) -> None:
    parts(**changes).verify().require()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"size": "M + K + 1"}, "element [7] belongs to 0 parts"),
        ({"size": "M + K + 1", "second": "i0 + M + 1", "also": "i + M + 1"}, "element [3] belongs to 0 parts"),
        ({"second": "i0", "also": "i"}, "element [0] belongs to 2 parts"),
        ({"first": "0", "stored": "0"}, "element [0] belongs to 3 parts"),
        ({"second": "i0 + M + 1", "also": "i + M + 1"}, "a part lies outside"),
    ],
    ids=["hole at the end", "hole between", "overlap", "all at one place", "outside"],
)
def test_each_element_belongs_to_one_part(changes: dict[str, str], reason: str) -> None:
    assert reasons(parts(**changes)) == ["it is not known that each element belongs to one part"]
    assert reasons(parts(**changes), SIZES) == [reason]


def test_parts_that_alternate_are_counted_at_constant_extents() -> None:
    text = """\
KERNEL k(a: int32[4], b: int32[4]) -> (y: int32[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE u: int32[4] = mul(a[i0], 2)
  DEFINE v: int32[4] = mul(b[i0], 3)
  DEFINE y: int32[8] = whole u at (2*i0), v at ({second})

FOR i in 0..4:
  y[2*i] = mul(a[i], 2)  ~ value u[i]
  y[{also}] = mul(b[i], 3)  ~ value v[i]
"""
    parse_kernel(text.format(second="2*i0 + 1", also="2*i + 1")).verify().require()
    assert reasons(parse_kernel(text.format(second="2*i0", also="2*i"))) == ["element [0] belongs to 2 parts"]


def test_a_part_may_have_fewer_axes() -> None:
    text = """\
KERNEL k(a: int32[M], b: int32[M]) -> (y: int32[M, 2])
  DIM M min 0
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE u: int32[M] = mul(a[i0], 2)
  DEFINE v: int32[M] = mul(b[i0], 3)
  DEFINE y: int32[M, 2] = whole u at (i0, 0), v at (i0, {column})

FOR i in 0..M:
  y[i, 0] = mul(a[i], 2)  ~ value u[i]
  y[i, {column}] = mul(b[i], 3)  ~ value v[i]
"""
    parse_kernel(text.format(column="1")).verify().require()
    assert reasons(parse_kernel(text.format(column="0")))


READS = """\
KERNEL k(x: int32[N]) -> (y: int32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  GLOBAL v: int32[N]
  DEFINE v: int32[{size}] = copy(x[i0])
  DEFINE y: int32[N] = {value}

FOR i in 0..{size}:
  v[i] = copy(x[i])  ~ value v[i]
FOR i in 0..N:
  y[i] = {stored}  ~ value y[i]
"""


@pytest.mark.parametrize(
    ("size", "value", "stored"),
    [("N - 1", "copy(v[i0])", "copy(v[i])"), ("N//2", "copy(v[i0])", "copy(v[i])"), ("N", "copy(v[i0 - 1])", "copy(v[i - 1])")],
)
def test_what_is_read_exists(size: str, value: str, stored: str) -> None:
    bad = parse_kernel(READS.format(size=size, value=value, stored=stored))
    assert reasons(bad)
    assert reasons(bad, {"N": 5})
    parse_kernel(READS.format(size="N", value="copy(v[i0])", stored="copy(v[i])")).verify().require()


@pytest.mark.parametrize(("condition", "right"), [("{i} >= 1", True), ("{i} >= 0", False)])
def test_what_a_case_reads_exists_where_it_is_taken(condition: str, right: bool) -> None:
    text = """\
KERNEL k(x: int32[N]) -> (y: int32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: int32[N] = pick(x[i0 - 1] if {a}, otherwise 0)

FOR i in 0..N:
  y[i] = pad(x[i - 1] if {b}, otherwise 0)  ~ value y[i]
"""
    kernel = parse_kernel(text.format(a=condition.format(i="i0"), b=condition.format(i="i")))
    assert (reasons(kernel) == []) is right


@pytest.mark.parametrize(("condition", "right"), [("0", True), ("1", False)])
def test_a_case_that_is_never_taken_reads_nothing(condition: str, right: bool) -> None:
    text = """\
KERNEL k(x: int32[N]) -> (y: int32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: int32[N] = pick(x[-1] if {condition}, otherwise 0)

FOR i in 0..N:
  y[i] = copy(0)  ~ value y[i]
"""
    kernel = parse_kernel(text.format(condition=condition))
    assert (reasons(kernel) == []) is right


def test_a_definition_is_counted_at_constant_extents() -> None:
    text = """\
KERNEL k(x: int32[7]) -> (y: int32[{n}])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: int32[{n}] = copy(x[i0*i0 % 8])

FOR i in 0..{n}:
  y[i] = copy(x[i*i % 8])  ~ value y[i]
"""
    parse_kernel(text.format(n=9)).verify().require()
    bad = parse_kernel(text.format(n=9).replace("% 8", "% 16"))
    assert reasons(bad)
