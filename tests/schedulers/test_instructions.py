"""Instructions of elementwise code: what each function takes, and what is computed in vain."""

import pytest

import taskfuse as tf
from taskfuse.ir.expr import MathExpr
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed
from taskfuse.schedulers.elementwise import align
from taskfuse.schedulers.instructions import cost, issued, slots
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT
from tests.schedulers.fusions import Build, tensor
from tests.schedulers.tried import built


def last(make: Build) -> MathExpr:
    return needed(built(make))[-1]


def test_the_length_of_a_text_knows_functions_from_arithmetic() -> None:
    fusion = built(lambda: [tf.sum(tf.exp(tensor("x", 8)), 0)])
    function, total = needed(fusion)
    assert (cost(function), cost(total)) == (16, 2)


SLOTS: dict[str, tuple[Build, int]] = {
    "arithmetic": (lambda: [tensor("x", 8) + 1], 1),
    "of 16 bits it is rounded": (lambda: [tensor("x", 8, dtype=tf.bfloat16) + 1], 2),
    "an exponential": (lambda: [tf.exp(tensor("x", 8))], 9),
    "a shorter form for 16 bits": (lambda: [tf.sigmoid(tensor("x", 8, dtype=tf.bfloat16))], 10),
    "that of float32": (lambda: [tf.sigmoid(tensor("x", 8))], 16),
    "a power": (lambda: [tf.pow(2.5, tensor("x", 8))], 70),
    "a power by a number": (lambda: [tf.pow(tensor("x", 8), 3)], 5),
    "a quotient": (lambda: [tensor("x", 8) / tensor("y", 8)], 12),
    "a quotient by a number": (lambda: [tensor("x", 8) / 3.0], 5),
    "a float of 8 bits": (lambda: [tf.cast(tensor("x", 8), tf.float8_e4m3)], 4),
    "a factor of 1": (lambda: [tensor("x", 8) * 1], 0),
    "an integer plus 0": (lambda: [tensor("x", 8, dtype=tf.int32) + 0], 0),
    "-0 plus 0 is 0": (lambda: [tensor("x", 8) + 0.0], 1),
    "float64": (lambda: [tf.exp(tensor("x", 8, dtype=tf.float64))], 32),
}


@pytest.mark.parametrize("name", SLOTS)
def test_issue_slots_of_a_point(name: str) -> None:
    make, expected = SLOTS[name]
    assert slots(last(make)) == expected


def joined() -> Fusion:
    fusion = built(lambda: [tf.cat([tf.sin(tensor("x", 64, 96)), tf.cos(tensor("y", 64, 32))], 1) + 1])
    align(Script(fusion), fusion)
    return fusion


def test_parts_are_computed_where_they_are_read() -> None:
    fusion = joined()
    extent = Sizes(fusion, {}, DEFAULT)
    everywhere, sunk = (issued(fusion, 1, extent, is_sunk=is_sunk) for is_sunk in (False, True))
    points = 64 * 128
    assert everywhere >= 2 * 32 * points
    assert 32 * points < sunk < 1.2 * 32 * points + 8 * points


def test_what_a_vector_has_in_common_is_computed_once() -> None:
    with tf.Fusion("rows") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([64, 1], name="x")) + tf.define_tensor([64, 128], name="y"))
    align(Script(fusion), fusion)
    one, four = (issued(fusion, vector, Sizes(fusion, {}, DEFAULT), is_sunk=True) for vector in (1, 4))
    assert one > 9 * 64 * 128
    assert four < one / 2
