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
