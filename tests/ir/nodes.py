"""Small graphs for the laws of tasks and groups."""

from collections.abc import Callable
from pathlib import Path

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import bfloat16
from taskfuse.errors import TaskError
from taskfuse.ir.assignment import assign
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import leaves
from taskfuse.ir.tensor import TensorView


class Chain:
    """a = sin(x), b = cos(a), c = exp(b), and apart from these d = tan(x), e = neg(d)."""

    def __init__(self) -> None:
        with Fusion("chain") as self.fusion:
            self.x = tf.define_tensor([8], name="x")
            self.a = tf.sin(self.x)
            self.b = tf.cos(self.a)
            self.c = tf.exp(self.b)
            self.d = tf.tan(self.x)
            self.e = tf.neg(self.d)


def refused(call: Callable[[], object], message: str, *, notes: tuple[str, ...] = (), help: str | None = None) -> None:
    """``call`` raises a :class:`TaskError` with exactly these texts, located in this folder's tests."""
    with pytest.raises(TaskError) as caught:
        call()
    error = caught.value
    assert (error.message, error.notes, error.help) == (message, notes, help)
    assert error.location is not None
    assert Path(error.location.file).parent == Path(__file__).parent


def state(fusion: Fusion) -> object:
    """All that a refused call must leave as it was."""
    tree = fusion.tasks
    groups = [(g.name, g.ptype, [m.name for m in g.members], [m.parent is g for m in g.members]) for g in tree.groups()]
    tasks = [(t.name, [tv.name for tv in t.tensors]) for t in leaves(tree.root)]
    return groups, tasks, [n.name for n in tree.nodes], [str(tv.task) for tv in fusion.tensors()]


def placed(fusion: Fusion) -> dict[str, str]:
    return {tv.name: task.name for tv, task in assign(fusion).items()}


CYCLE = "put the nodes on the cycle into one member, or split a member in two"


def composite() -> tuple[Fusion, TensorView, TensorView]:
    """``total`` is made inside the call that makes ``out``."""
    with Fusion() as fusion:
        out = tf.sum(tf.define_tensor(["B", 16], dtype=bfloat16), 0)
    (total,) = (tv for tv in fusion.tensors() if fusion.owner(tv) is out)
    return fusion, total, out
