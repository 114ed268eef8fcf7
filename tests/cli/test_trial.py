"""Simulations on random inputs."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cli.load import Loaded
from taskfuse.cli.trial import complete, difference, exploration, random_arguments, recorded, trial
from taskfuse.errors import LaunchError
from taskfuse.ir.dims import Dim


def sums() -> tf.Fusion:
    with tf.Fusion("sums") as fusion:
        x = tf.define_tensor(["M", 4], dtype=tf.int32, name="x")
        fusion.add_output(tf.sum(x, axis=1) + tf.define_scalar(tf.int32, name="c"))
    fusion.inline_most()
    return fusion


FUSION = Loaded(sums(), None)
KERNEL = Loaded(None, tf.lower(sums()))


def test_usual_extents_obey_their_facts() -> None:
    extents = (Dim("A", 0), Dim("B", min=30), Dim("C", 0, max=4), Dim("D", min=1, multiple_of=8), Dim("E", 0, max=6, multiple_of=4))
    assert complete(extents, {"A": 2, "Z": 1}) == {"A": 2, "B": 30, "C": 4, "D": 8, "E": 4}


def test_differences() -> None:
    wanted = np.array([1, 2, np.nan, np.inf, 0, 5], np.float32)
    same = difference(wanted, wanted)
    assert (same.absolute, same.relative, same.wrong) == (0, 0, 0)
    found = difference(np.array([1, 1, 3, -np.inf, 0, np.nan], np.float32), wanted)
    assert (found.absolute, found.relative, found.wrong) == (1, 0.5, 3)
    assert str(found) == "largest difference from NumPy 1 (relative 0.5); 3 elements are NaN or infinite in one of the two"
    assert difference(np.zeros((0, 2)), np.zeros((0, 2))).absolute == 0


def test_a_difference_from_zero_is_infinitely_large() -> None:
    found = difference(np.array([1.0]), np.array([0.0]))
    assert (found.absolute, found.relative) == (1, np.inf)
    assert str(difference(np.array([0.0]), np.array([-0.0]))) == "largest difference from NumPy 0 (relative 0)"


def test_arguments_are_inputs_and_scalars_of_their_dtypes() -> None:
    with tf.Fusion("all") as fusion:
        for dtype in (tf.float16, tf.int8, tf.uint8, tf.bool_):
            fusion.add_output(tf.copy(tf.define_tensor(["N", 64], dtype=dtype, name=f"x_{dtype}")))
        fusion.add_output(tf.define_tensor(["N"], name="y") * tf.define_scalar(tf.float64, name="c"))
    fusion.inline_most()
    kernel = tf.lower(fusion)
    found = [np.asarray(a) for a in random_arguments(kernel, {"N": 3}, seed=1)]
    assert [(a.shape, a.dtype.name) for a in found] == [
        ((3, 64), "float16"),
        ((3, 64), "int8"),
        ((3, 64), "uint8"),
        ((3, 64), "bool"),
        ((3,), "float32"),
        ((), "float64"),
    ]
    assert found[1].min() < 0
    assert set(np.unique(found[3])) == {False, True}
    again, other = random_arguments(kernel, {"N": 3}, seed=1), random_arguments(kernel, {"N": 3}, seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    assert not np.array_equal(found[0], other[0])


def test_a_fusion_is_compared_with_what_it_means_and_a_kernel_with_nothing() -> None:
    lines = trial(FUSION, {"M": 3}, 5, None).split("\n")
    assert lines[0] == "sums: M=3, seed 5"
    assert lines[1].endswith(": int64[3]  largest difference from NumPy 0 (relative 0)")
    assert trial(KERNEL, {}, 0, None).split("\n")[1].endswith(": int64[7]  no fusion to compare with")


def test_a_wrong_kernel_differs() -> None:
    wrong = tf.parse_kernel(str(KERNEL.kernel()).replace("copy.int64(0)", "copy.int64(3)").replace("copy(0)", "copy(3)"))
    assert str(wrong) != str(KERNEL.kernel())
    found = trial(Loaded(sums(), wrong), {"M": 2}, 0, None)
    assert "largest difference from NumPy 3" in found


def test_one_run_as_a_timeline_and_all_of_them() -> None:
    assert recorded(FUSION, {"M": 2}, 0, None).kernel == "sums"
    assert exploration(FUSION, {"M": 2}, 0).holds


@pytest.mark.parametrize("call", [lambda: trial(FUSION, {"Q": 0}, 0, None), lambda: exploration(FUSION, {"Q": 0}, 0)])
def test_extents_that_it_does_not_have(call: object) -> None:
    assert callable(call)
    with pytest.raises(LaunchError, match="it has no extent Q"):
        call()
