"""The points of updates that go to an element, where no data says their places."""

import taskfuse as tf
from taskfuse.check.rewrites.sides import Definitions
from taskfuse.check.rewrites.updates import sent, sent_terms
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.scalar import Facts, const, prove, sym
from taskfuse.kir import Kernel
from taskfuse.kir.witness import Whole
from taskfuse.testing.updates import added


def updated() -> tuple[Kernel, Definitions, Whole]:
    kernel = tf.lower(added()[0])
    side = Definitions.of(kernel, kernel.definitions)
    rule = side.definitions[kernel.outputs[0].name].rule
    assert isinstance(rule, Whole)
    return kernel, side, rule


def test_tiles_leave_their_number_open() -> None:
    _, side, rule = updated()
    updates = sent(rule, side, COMBINES["add"], tf.float32)
    assert updates is not None
    (found,) = sent_terms(side, updates, (sym("m"), sym("n")), lambda: sym("v"), Facts())
    assert [(str(v), str(n)) for v, n in found.variables] == [("v", "3")]
    inside = Facts().with_range("m", 0, const(1)).with_range("n", 0, const(31)).with_range("v", 0, const(2))
    assert all(prove(c, inside) for c in found.conditions)


def test_another_function_or_dtype_is_not_taken() -> None:
    _, side, rule = updated()
    assert sent(rule, side, COMBINES["maximum"], tf.float32) is None
    assert sent(rule, side, COMBINES["add"], tf.float64) is None


def test_digits_have_one_value_each() -> None:
    _, side, rule = updated()
    updates = sent(rule, side, COMBINES["add"], tf.float32)
    assert updates is not None
    ((d, _, condition),) = updates
    at = {"i0": sym("i0"), "i1": sym("i1"), "i2": sym("i2")}
    row = (2 * at["i0"] + at["i1"], at["i2"])  # tiles below one another
    (found,) = sent_terms(side, [(d, row, condition)], (sym("m"), sym("n")), lambda: sym("v"), Facts())
    assert not found.variables
    assert "m//2" in str(found.term.operand)
    (found,) = sent_terms(side, [(d, (3 * at["i0"] + at["i1"], at["i2"]), condition)], (sym("m"), sym("n")), lambda: sym("v"), Facts())
    assert len(found.variables) == 2, "3 is no number of values"
