"""A function of what is found stands for what is found of the function."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check.rewrites.gathers import choice_of
from taskfuse.check.rewrites.sides import At, Definitions, Different, condition_of
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.ir.scalar import TRUE, and_, const, ge, lt, sym
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.witness import Apply
from tests.check.rewrites.rewritten import changed, is_proved, is_refuted


@pytest.fixture(scope="module")
def loss() -> Kernel:
    """A cross-entropy: the logarithm at a class is computed of the element at the class alone."""
    with tf.Fusion("loss") as f:
        x, classes = tf.define_tensor([6, 10], name="x"), tf.define_tensor([6], dtype=tf.int64, name="classes")
        logs = tf.log_softmax(x, axis=1)
        f.add_output(tf.take_along_axis(logs, tf.expand_dims(classes, 1), axis=1))
    (kernel,) = tf.compile(f, backend="sim", unsafe=True).kernels
    return kernel


def selected(kernel: Kernel) -> At:
    """The element that is chosen."""
    side = Definitions.of(kernel, kernel.definitions)
    name = next(d.tensor for d in kernel.definitions if isinstance(d.rule, Apply) and d.rule.op.name == "where")
    return At(side, Access(name, (sym("p"), const(0))))


def test_the_function_of_a_found_element_is_proved(loss: Kernel) -> None:
    assert is_proved(rewritings(loss))
    x, classes = np.zeros((6, 10), np.float32), np.array([0, 9, -1, -10, 10, -11])
    assert (loss.simulate(x, classes)[0][:, 0] == 0).tolist() == [False, False, False, False, True, True]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("index(-10)", "index(-9)"),
        ("index(10)", "index(9)"),
        ("find x[i0, v0]", "find x[i0, 9 - v0]"),
        ("logical_and(", "logical_or("),
    ],
)
def test_other_choices_and_elements_are_refuted(loss: Kernel, old: str, new: str) -> None:
    assert not is_proved(rewritings(changed(loss, old, new)))


def test_another_value_outside_is_refuted(loss: Kernel) -> None:
    at = selected(loss)
    assert isinstance(at.operand, Access)
    assert is_refuted(changed(loss, ", 0)", ", 1)"))


def test_a_choice_and_its_condition(loss: Kernel) -> None:
    chosen = choice_of(selected(loss))
    assert chosen is not None
    assert isinstance(chosen.other.operand, Immediate)
    assert choice_of(chosen.cond) is None
    w = sym("w")
    assert condition_of(chosen.cond, lambda _: w) is and_(ge(w, -10), lt(w, 10))
    assert condition_of(At(chosen.cond.side, Immediate(True, tf.bool_)), lambda _: w) is TRUE
    with pytest.raises(Different, match="another integer"):
        condition_of(chosen.cond, lambda _: None)
    with pytest.raises(Different, match="no comparison"):
        condition_of(chosen.value, lambda _: w)
