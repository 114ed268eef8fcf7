"""Calls at extents of 0, and at those that kernels are not proved for: results are those of the reference; what is proved for all is left alone."""

import pickle
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import InputError, ProofError, UnsupportedError
from taskfuse.runtime import admission
from taskfuse.runtime.admission import Admitted
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import CompiledKernel
from tests.thinning import in_turn

RNG = np.random.default_rng(0)


def of_matrix(math: Callable[[tf.TensorView], tf.TensorView], **facts: int) -> tf.Fusion:
    with tf.Fusion("emptied") as fusion:
        fusion.add_output(math(tf.define_tensor([tf.dim("N", min=0, **facts), tf.dim("M", min=0, **facts)], name="x")))
    return fusion


MATH: dict[str, Callable[[tf.TensorView], tf.TensorView]] = {
    "mean": tf.mean,
    "rows": lambda x: tf.mean(x, 1),
    "variance": lambda x: tf.var(x, 1),
    "softmax": lambda x: tf.softmax(x, 1),
    "scan": lambda x: tf.cumsum(x, 1),
    "views": lambda x: tf.exp(x).T.reshape(-1),
}


def array(*shape: int) -> Any:
    return RNG.uniform(0.5, 1.0, shape).astype(np.float32)


def compiled(fusion: tf.Fusion) -> Admitted:
    run = tf.compile(fusion, "sim", specialize=False)
    assert isinstance(run, Admitted)
    return run


def agrees(run: Callable[[Any], tuple[Any, ...]], fusion: tf.Fusion, n: int, m: int) -> None:
    x = array(n, m)
    with np.errstate(all="ignore"):
        (found,), (wanted,) = run(x), fusion.evaluate(x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(("name", "specialize"), in_turn(tuple(MATH), (False, True)))
def test_extents_of_0_and_1(name: str, specialize: bool) -> None:
    fusion = of_matrix(MATH[name])
    run = tf.compile(fusion, "sim", specialize=specialize)
    for n, m in product((0, 1, 3), repeat=2):
        agrees(run, fusion, n, m)


def test_extents_of_at_least_1_need_no_proof_at_a_call() -> None:
    fusion = of_matrix(MATH["softmax"])
    run = compiled(fusion)
    assert not run.is_open
    assert all(c.is_proved for c in run.certificates)
    agrees(run, fusion, 4, 5)
    assert run.specializations == ()
    agrees(run, fusion, 4, 0)
    agrees(run, fusion, 7, 0)
    assert [", ".join(map(str, s.facts)) for s in run.specializations] == ["tf.dim('N'), tf.dim('M', min=0, max=0)"]


def test_extents_of_at_least_1_are_scheduled_as_if_none_could_be_0() -> None:
    run = compiled(of_matrix(MATH["rows"]))
    assert run.schedule is not None
    assert run.schedule.scheduler == "reduction"
    assert len(run.kernels) == 1


def test_what_has_no_extent_of_0_and_is_proved_is_left_alone() -> None:
    with tf.Fusion("rows") as fusion:
        fusion.add_output(tf.mean(tf.define_tensor(["N", "M"], name="x"), 1))
    assert isinstance(tf.compile(fusion, "sim", specialize=False), CompiledKernel)


def test_an_extent_that_is_0_or_1() -> None:
    fusion = of_matrix(MATH["softmax"], max=1)
    run = tf.compile(fusion, "sim")
    for n, m in product((0, 1), repeat=2):
        agrees(run, fusion, n, m)


def test_arguments_by_name_that_do_not_fit_and_pickles() -> None:
    fusion = of_matrix(MATH["softmax"])
    run = pickle.loads(pickle.dumps(compiled(fusion)))
    agrees(lambda given: run(x=given), fusion, 2, 0)
    with pytest.raises(InputError, match="has 1 axes, not 2"):
        run(array(3))
    assert repr(run) == "Admitted('emptied', 1 others, backend='sim')"


def test_the_oldest_kernels_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST", 1)
    fusion = of_matrix(MATH["softmax"])
    run = compiled(fusion)
    for n, m in ((2, 0), (0, 2), (0, 0)):
        agrees(run, fusion, n, m)
        assert len(run.specializations) == 1


@pytest.fixture
def gapped(monkeypatch: pytest.MonkeyPatch) -> Admitted:
    """Its first kernels are not proved for rows of 3."""
    run = compiled(of_matrix(MATH["softmax"]))

    def check(_: Executable, extents: Mapping[str, int]) -> None:
        if extents.get("M") == 3:
            raise ProofError(kernel="emptied", verdict="outside the model", reason="a gap")

    monkeypatch.setattr(type(run.inner), "check_open", check)
    return run


def test_what_is_not_proved_is_scheduled_with_constants(gapped: Admitted) -> None:
    fusion = of_matrix(MATH["softmax"])
    for m in (2, 3):
        agrees(gapped, fusion, 4, m)
    (only,) = gapped.specializations
    assert str(only) == "tf.dim('N', min=4, max=4), tf.dim('M', min=3, max=3); chosen for "


def test_the_call_says_why_there_are_no_kernels(gapped: Admitted, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise UnsupportedError(what="this", reason="there is no machine")

    monkeypatch.setattr(admission, "auto_scheduled", never)
    with pytest.raises(ProofError, match=r"emptied: outside the model: tf.dim\('N', min=4, max=4\), tf.dim\('M', min=3, max=3\): .*there is no machine"):
        gapped(array(4, 3))


def test_integers_are_arguments_and_no_constants() -> None:
    """What no other facts are left for is refused."""
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0)], name="x")
        n = tf.define_integer("n", min=0, max="N")
        fusion.add_output(tf.mean(tf.narrow(x, 0, 0, n)))
    run = tf.compile(fusion, "sim", specialize=False)
    for size, part in ((0, 0), (3, 0), (3, 1), (3, 3)):
        a = array(size)
        with np.errstate(all="ignore"):
            (found,), (wanted,) = run(a, part), fusion.evaluate(a, part)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
