"""Random calls by signature: which shapes an op takes, what its parameters take."""

import pytest

import taskfuse as tf
from taskfuse.ops.registry import OPS
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.program import Recorder
from taskfuse.testing.signatures import NOT_DRAWN, Pattern, attempt, drawn, dtypes, patterns, shapes


@pytest.mark.parametrize(
    ("op", "pattern"),
    [
        ("rand", ()),
        ("mish", ("n",)),
        ("cross", ("n3", "n3")),
        ("bmm", ("bnk", "bkm")),
        ("linear", ("nk", "mk", "m")),
        ("grid_sample", ("bcnm", "bij2")),
        ("batch_norm", ("bcn", "c", "c")),
        ("scaled_matmul", ("mk", "kn", "m1", "1n")),
        ("lcm", ("n", "n")),  # of integers alone
        ("vstack", ("n",)),
    ],
)
def test_an_op_says_which_shapes_it_takes(op: str, pattern: Pattern) -> None:
    assert pattern in patterns(op)


def test_shapes_that_it_refuses_are_not_drawn() -> None:
    assert ("n", "m") not in patterns("bmm")
    assert ("nm",) not in patterns("dot")
    assert not patterns("einsum")


def test_shapes_of_a_pattern() -> None:
    chooser = RandomChooser(0)
    assert shapes(("nk", "mk", "m"), (4, 7), chooser, (5,)) == [[4, 7], [5, 7], [5]]
    assert shapes(("nn",), (4, 7), chooser, (5,)) is None
    assert shapes(("n3",), (4, 5), chooser, (5,)) is None
    assert shapes(("n",), (4, 5), chooser, (5,)) is None
    assert shapes((), None, chooser, (5,)) == []


def test_places_are_integers_and_all_else_is_alike() -> None:
    assert dtypes("index_add", 3, tf.float16) == [tf.float16, tf.int32, tf.float16]
    assert dtypes("segmented_cumsum", 2, tf.float32) == [tf.float32, tf.bool_]
    assert dtypes("vstack", 1, tf.int8) == [tf.int8]


def test_a_call_that_is_refused_leaves_no_trace() -> None:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [3, 4])
    lines = list(recorder.lines)
    assert attempt("bmm", [x, x], RandomChooser(0), recorder) is None
    assert attempt("einsum", [x, x], RandomChooser(0), recorder) is None
    assert recorder.lines == lines
    made = attempt("hstack", [x], RandomChooser(1), recorder)
    assert isinstance(made, tf.TensorView)
    assert recorder.program().run().tensor(made.name).ndim == 2


def test_what_is_not_drawn_exists_and_has_a_reason() -> None:
    assert NOT_DRAWN.keys() <= OPS.keys()
    assert all(NOT_DRAWN.values())
    assert not NOT_DRAWN.keys() & set(drawn())
