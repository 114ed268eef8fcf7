"""``tf.compile`` of fusions that nobody scheduled: whatever stands next to what, kernels are made, proved, and right."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import LoweringError, ProofError, UnsupportedError
from taskfuse.ir.expr import Reduction
from taskfuse.runtime.chain import Chain
from taskfuse.runtime.result_views import Viewed
from taskfuse.schedulers import candidates
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.candidates import INTERNAL
from taskfuse.schedulers.schedule import Chosen
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.testing.anything import SYMBOLIC, case, check, check_extents
from tests.schedulers.fusions import FUSIONS, halves_of_a_product, mlp_of_a_block, tensor
from tests.schedulers.oracle import checked
from tests.schedulers.tried import arguments, built, made


@pytest.mark.parametrize("name", FUSIONS)
def test_fusions_of_all_kinds(name: str) -> None:
    fusion = built(FUSIONS[name], name.replace("-", "_"))
    found = checked(fusion, arguments(fusion), trial=made)
    assert INTERNAL not in found.explain()


def test_what_it_computes_itself_no_kernel_takes_as_a_view() -> None:
    """A piece with a product and what makes its factor has no array of that factor to be told."""
    fusion = built(partial(halves_of_a_product, tf.float32), "halves")
    run = tf.compile(fusion, backend="sim")
    given = arguments(fusion)
    (found,), (wanted,) = run(*given), fusion.evaluate(*given)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def product() -> list[tf.TensorView]:
    return [tf.relu(tensor("x", 64, 64, dtype=tf.bfloat16) @ tensor("w", 64, 64, dtype=tf.bfloat16))]


def test_a_candidate_that_is_not_proved_is_dropped_and_the_search_goes_on() -> None:
    tried: list[str] = []

    def trial(fusion: tf.Fusion, schedule: Chosen[Any]) -> None:
        tried.append(schedule.scheduler)
        if schedule.scheduler == "matmul":
            raise ProofError(kernel=fusion.name, verdict="outside the model", reason="a gap")

    found = choose_segments(built(product), trial=trial)
    assert tried == ["matmul"] * (1 + candidates.MOST_PARAMETERS) + ["mma_gemm"]
    assert found.scheduler == "mma_gemm"
    assert "not matmul: with " in found.explain()
    assert "outside the model: a gap" in found.explain()


def two_steps() -> list[tf.TensorView]:
    return [tf.exp(tf.softmax(tensor("x", 16, 32), 1).reshape(32, 16) @ tensor("w", 16, 32))]


def test_a_piece_that_no_scheduler_makes_is_taken_apart() -> None:
    def alone(fusion: tf.Fusion, schedule: Chosen[Any]) -> None:
        if sum(isinstance(e, Reduction) for e in fusion.exprs()) > 1:
            raise LoweringError(what="a kernel of several reductions", reason="this machine is small")

    fusion = built(two_steps)
    found = checked(fusion, arguments(fusion), trial=alone)
    assert len(found.steps) > 2
    assert "this machine is small" in found.explain()


def test_an_op_that_nothing_can_make_says_why() -> None:
    def never(fusion: tf.Fusion, schedule: Chosen[Any]) -> None:
        raise LoweringError(what="this", reason="there is no machine")

    with pytest.raises(UnsupportedError, match="no scheduler takes it") as error:
        choose_segments(built(two_steps), trial=never)
    assert any(note.startswith("fallback: with ") and "there is no machine" in note for note in error.value.notes)


def test_a_budget_ends_the_search_with_what_there_is() -> None:
    fusion = built(partial(mlp_of_a_block, tf.float32), "hurried")
    found = choose_segments(fusion, trial=made, budget=Budget(0.0))
    assert found.is_hurried
    assert "ended at its budget" in found.explain()
    run = tf.compile(fusion, backend="sim", budget=0.0)
    assert isinstance(run.inner if isinstance(run, Viewed) else run, Chain)
    given = arguments(fusion)
    (value,), (wanted,) = run(*given), fusion.evaluate(*given)
    np.testing.assert_allclose(value, wanted, rtol=1e-3)


def test_a_plan_that_is_not_cut_is_not_hurried() -> None:
    """A kernel at its roofline: no cut is looked for, and no time missed."""
    found = choose_segments(built(lambda: [tf.exp(tensor("x", 4096, 4096))]), budget=Budget(0.0))
    assert isinstance(found, Segmentation)
    assert not found.is_hurried


def test_heads_of_one_tile_of_k() -> None:
    """One step of k: its loop has the trip that the guard of a tile leaves, and products begin anew in each tile."""
    with tf.Fusion("heads") as fusion:
        q, k = (tensor(name, 16, 1024, 64, dtype=tf.bfloat16) for name in "qk")
        fusion.add_output(q @ k.permute(0, 2, 1))
    assert tf.schedulers.matmul(fusion).config.is_pingpong
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    wrong = kernel.text(witness=True).replace("accumulate i18 >= 1", "accumulate i18 >= 2")
    assert "accumulate i18 >= 2" in wrong
    assert not tf.parse_kernel(wrong).verify().is_proved


@pytest.mark.parametrize("seed", range(8))
def test_any_graph_at_all(seed: int) -> None:
    """All ops and dtypes, extents of 0, 1, primes and powers of two: kernels are made and proved, and are right over the ring."""
    found = case(seed)
    check(found.fusion, found.arguments(), seed)


@pytest.mark.parametrize("seed", range(3))
def test_any_graph_of_symbolic_extents_at_0_and_1(seed: int) -> None:
    check_extents(case(seed, SYMBOLIC))
