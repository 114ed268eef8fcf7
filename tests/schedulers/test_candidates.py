"""What follows a kernel that is far from its roofline: other parameters of its scheduler, those by which least is counted."""

import taskfuse as tf
from taskfuse.count import Count, count
from taskfuse.schedulers.auto import candidates
from taskfuse.schedulers.candidates import BETTER, Candidate, Candidates
from taskfuse.schedulers.simt_gemm import simt_gemm
from taskfuse.target import DEFAULT


def product(m: int, n: int, k: int) -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        fusion.add_output(tf.define_tensor([m, k], name="a") @ tf.define_tensor([k, n], name="b"))
    return fusion


def counted(candidate: Candidate) -> Count:
    return count(tf.lower(candidate.fusion), {}, DEFAULT)


def aside(found: Candidates, bound: float) -> Candidate:
    """The best, which is put aside with what is counted of it."""
    assert found.best is not None
    first = found.best
    found.put_aside(first.schedule.counted(counted(first), bound))
    return first


def test_other_parameters_follow_that_are_counted_for_less() -> None:
    found = candidates(product(3200, 80, 201))
    first = aside(found, 4.0)
    second = found.best
    assert second is not None
    assert second.scheduler is first.scheduler is simt_gemm
    assert second.schedule.config != first.schedule.config
    assert counted(second).us == second.schedule.us < BETTER * counted(first).us
    assert all(counted(second).us <= _us(first, option.config) for option in first.schedule.alternatives[1:4])
    assert not found.is_last


def _us(candidate: Candidate, config: object) -> float:
    fusion = product(3200, 80, 201)
    simt_gemm(fusion, config)
    return count(tf.lower(fusion), {}, DEFAULT).us


def test_those_that_gain_nothing_do_not() -> None:
    found = candidates(product(256, 256, 32))
    first = aside(found, 0.1)
    assert found.best is not None
    assert found.best.scheduler is not first.scheduler or found.is_last
