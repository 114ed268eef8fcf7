"""A scan carries its total along its axis in order, once; each bad twin skips, repeats or mixes steps."""

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from tests.executions import changed, finding

KERNEL = """\
KERNEL k(x: float32[4, N]) -> (y: float32[4, N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4, N] = scan add along 1 of x[i0, i1]

t = copy(0.0)  ~ start y
FOR o in 0..ceildiv(N, 2):
  FOR i in 0..2:
    IF 2*o + i < N:
      t = add(t, x[threadIdx.x, 2*o + i])  ~ term y[threadIdx.x, 2*o + i]
      y[threadIdx.x, 2*o + i] = copy(t)  ~ value y[threadIdx.x, 2*o + i]
"""


def gaps(text: str) -> list[str]:
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def inside(text: str, *heads: str) -> str:
    """The loops of a scan inside other statements."""
    head, body = text.split("FOR o", 1)
    lines = ("FOR o" + body).rstrip("\n").split("\n")
    made = [f"{'  ' * k}{h}" for k, h in enumerate(heads)] + ["  " * len(heads) + line for line in lines]
    return head + "\n".join(made) + "\n"


def test_it_holds() -> None:
    assert gaps(KERNEL) == []
    assert finding(KERNEL, N=5) == ""
    assert gaps(changed(KERNEL, "add(t, x[threadIdx.x, 2*o + i])  ~", "add(x[threadIdx.x, 2*o + i], t)  ~")) == []


def test_a_loop_around_it_takes_its_steps_again() -> None:
    """With its start inside, too, each iteration begins anew."""
    again = inside(KERNEL, "FOR m in 0..3:")
    assert gaps(again) == ["its steps are taken again in each iteration of m"]
    assert finding(again, N=2) != ""
    start = "t = copy(0.0)  ~ start y\n"
    anew = inside(changed(KERNEL, start, ""), "FOR m in 0..3:").replace("FOR m in 0..3:\n", "FOR m in 0..3:\n  " + start)
    assert gaps(anew) == []
    assert gaps(inside(KERNEL, "FOR m in 0..1:")) == []


BAD = {
    "another order": ("2*o + i", "o + ceildiv(N, 2)*i", "its loops do not run along its axis in order"),
    "a step further than its inner loop": ("FOR i in 0..2", "FOR i in 0..3", "its loops do not run along its axis in order"),
    "a first value": ("FOR o in 0..", "FOR o in 1..", "its loops do not run along its axis in order"),
    "backwards": (
        "x[threadIdx.x, 2*o + i])  ~ term y[threadIdx.x, 2*o + i]",
        "x[threadIdx.x, 2*o + 1 - i])  ~ term y[threadIdx.x, 2*o + 1 - i]",
        "is not stored after",
    ),
    "steps left out": ("IF 2*o + i < N:", "IF 2*o + i < N && i + o != 2:", "its steps are taken under"),
    "another start": ("t = copy(0.0)", "t = copy(1.0)", "does not start with the neutral element"),
    "stored elsewhere": ("y[threadIdx.x, 2*o + i] = copy(t)  ~", "y[3 - threadIdx.x, 2*o + i] = copy(t)  ~", "at index 3 - threadIdx.x of y on axis 0"),
    "started for some threads": ("t = copy(0.0)  ~ start y", "IF threadIdx.x < 3:\n  t = copy(0.0)  ~ start y", "is not known to be set before its first step"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_scan(name: str) -> None:
    old, new, reason = BAD[name]
    assert any(reason in gap for gap in gaps(changed(KERNEL, old, new)))


EXCLUSIVE = KERNEL.replace("scan add along 1 of", "scan add along 1 exclusive of").replace(
    """      t = add(t, x[threadIdx.x, 2*o + i])  ~ term y[threadIdx.x, 2*o + i]
      y[threadIdx.x, 2*o + i] = copy(t)  ~ value y[threadIdx.x, 2*o + i]
""",
    """      y[threadIdx.x, 2*o + i] = copy(t)  ~ value y[threadIdx.x, 2*o + i]
      t = add(t, x[threadIdx.x, 2*o + i])  ~ term y[threadIdx.x, 2*o + i]
""",
)


def test_an_exclusive_scan_stores_the_total_before_the_step() -> None:
    assert gaps(EXCLUSIVE) == []
    assert finding(EXCLUSIVE, N=5) == ""
    assert gaps(EXCLUSIVE.replace(" exclusive", "")) == ["it is stored before the step that adds its element"]
    assert finding(EXCLUSIVE.replace(" exclusive", ""), N=5) != ""
    assert gaps(KERNEL.replace("along 1 of", "along 1 exclusive of")) == ["it is stored behind the step that adds its element"]
    assert finding(KERNEL.replace("along 1 of", "along 1 exclusive of"), N=5) != ""


FOLD = """\
KERNEL k(x: float32[4, N], d: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL s: float32[]
  DEFINE y: float32[4] over (4, N) at (i0) = fold along 1 of fma(d[i0, i1], x[i0, i1]) from 0.5

s = copy(0.5)  ~ start y
FOR o in 0..ceildiv(N, 2):
  FOR i in 0..2:
    IF 2*o + i < N:
      s = fma(s, d[threadIdx.x, 2*o + i], x[threadIdx.x, 2*o + i])  ~ term y[threadIdx.x, 2*o + i]
y[threadIdx.x] = copy(s)  ~ value y[threadIdx.x]
"""


def test_a_fold_takes_its_steps_in_order() -> None:
    assert gaps(FOLD) == []
    assert finding(FOLD, N=5) == ""


def test_operands_of_a_step_may_have_a_narrower_type() -> None:
    narrow = changed(FOLD, "x: float32[4, N], d: float32[4, N]", "x: bfloat16[4, N], d: float16[4, N]")
    assert gaps(narrow) == []
    assert finding(narrow, N=5) == ""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("copy(0.5)  ~", "copy(0.0)  ~", "an accumulator starts with 0"),
        ("FOR i in 0..2:", "FOR i in 1..2:", ""),
        ("FOR o in 0..ceildiv(N, 2):", "FOR o in 1..ceildiv(N, 2):", ""),
        ("    IF 2*o + i < N:", "    IF 2*o + i < N && i < 1:", ""),
        ("    IF 2*o + i < N:", "    IF 2*o + i < N && o > 0:", ""),
        ("fma(s, d[threadIdx.x, 2*o + i],", "fma(d[threadIdx.x, 2*o + i], s,", "it takes a step from another state"),
        ("fma(s, d[threadIdx.x, 2*o + i], x", "fma(s, x[threadIdx.x, 2*o + i], x", "it reads x where d is wanted"),
        ("d[threadIdx.x, 2*o + i], x", "d[threadIdx.x, N - 1 - 2*o - i], x", "it reads index"),
        ("s = copy(0.5)  ~ start y\nFOR o in 0..ceildiv(N, 2):\n", "FOR o in 0..ceildiv(N, 2):\n  s = copy(0.5)  ~ start y\n", ""),
    ],
)
def test_a_step_that_is_missing_or_another(old: str, new: str, reason: str) -> None:
    wrong = changed(FOLD, old, new)
    found = gaps(wrong)
    assert found
    assert not reason or any(reason in g for g in found), found
    assert finding(wrong, N=5) != ""


@pytest.mark.parametrize(("first", "second"), [("2*o + i", "2*o + 1 - i"), ("2*o + i", "N - 1 - 2*o - i")])
def test_steps_in_another_order(first: str, second: str) -> None:
    """Each step is taken once, and with its own operands."""
    lines = FOLD.split("\n")
    wrong = "\n".join(line.replace(first, second) if "~ term" in line or "IF" in line else line for line in lines)
    assert gaps(wrong) != []
    assert finding(wrong, N=6) != ""


LIMITED = changed(FOLD, "FOR i in 0..2:\n    IF 2*o + i < N:", "FOR i in 0..8:\n    IF 2*o + i < N && i < 2:")


def test_conditions_may_end_an_inner_loop_of_a_fold() -> None:
    assert gaps(LIMITED) == []
    assert finding(LIMITED, N=5) == ""


@pytest.mark.parametrize("more", ["i < 3", "i < 1", "i > 0", "i < 2 && o > 0"])
def test_an_inner_loop_that_takes_other_steps(more: str) -> None:
    wrong = changed(LIMITED, "i < 2", more)
    assert gaps(wrong) != []
    assert finding(wrong, N=5) != ""


def test_states_are_not_joined() -> None:
    wrong = changed(FOLD, "y[threadIdx.x] = copy(s)", "s = add(s, s)  ~ part y\ny[threadIdx.x] = copy(s)")
    assert any("states of a fold are joined" in g or "its states are not joined" in g for g in gaps(wrong))
    assert finding(wrong, N=2) != ""


def test_conditions_may_end_a_scan() -> None:
    """Steps that are taken up to an iteration are all that come before those; others are not."""
    kernel = changed(KERNEL, "IF 2*o + i < N:", "IF 2*o + i < N && o < 3:")
    assert [r for r in gaps(kernel) if "steps are taken under" in r] == []  # what is not stored is missing elsewhere
    for condition in ("o > 3", "i < 1", "o + i < 3"):
        assert any("steps are taken under" in r for r in gaps(changed(KERNEL, "IF 2*o + i < N:", f"IF 2*o + i < N && {condition}:")))
