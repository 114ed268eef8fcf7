"""Pieces of one fusion that do not wait for one another share a launch."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.count import Count, count
from taskfuse.errors import ProofError
from taskfuse.runtime.chain import Chain
from taskfuse.schedulers import PointwiseConfig
from taskfuse.schedulers.beside import fit_together, levels
from taskfuse.schedulers.schedule import Chosen, Option
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT, WARP
from tests.schedulers.fusions import tensor
from tests.schedulers.oracle import checked
from tests.schedulers.tried import arguments, built


def alike(kinds: str) -> Callable[[int, int], bool]:
    return lambda j, k: kinds[j] == kinds[k]


def test_levels_follow_what_is_needed() -> None:
    assert levels([set(), {0}, {0}, {1, 2}], alike("aaaa")) == [0, 1, 1, 2]


def test_a_piece_that_nothing_hurries_goes_where_its_kind_is() -> None:
    assert levels([set(), {0}, {1}, set()], alike("xyzx")) == [0, 1, 2, 0]
    assert levels([set(), {0}, {1}, set()], alike("xyzz")) == [0, 1, 2, 2]
    assert levels([set(), {0}, {1}, set(), {3}], alike("xyzzz")) == [0, 1, 2, 0, 2]


def test_no_piece_stands_beside_what_it_needs() -> None:
    needs: list[set[int]] = [set(), set(), {0}, {0, 1}, {2}, {1}]
    found = levels(needs, alike("kkkkkk"))
    assert all(found[j] < found[k] for k, own in enumerate(needs) for j in own)
    assert max(found) == 2


def counted(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
    kernel = tf.lower(fusion)
    kernel.verify().require()
    return count(kernel, {}, DEFAULT)


def sums() -> list[tf.TensorView]:
    """Columns of three tensors of several shapes, and what is made of one of them."""
    x, y, z = tensor("x", 64, 48), tensor("y", 96, 48), tensor("z", 32, 80)
    return [tf.sum(x * x, 0), tf.sum(y, 0), tf.exp(z), tf.sum(z, 0)]


def test_small_kernels_share_a_launch() -> None:
    fusion = built(sums)
    found = checked(fusion, arguments(fusion), trial=counted)
    assert len(found.steps) == 1
    assert len(found.steps[0].members) > 1
    assert found.steps[0].schedule.scheduler == "horizontal"
    assert "side by side on blocks" in found.explain()
    assert found.us < 2 * DEFAULT.launch_us


def test_names_and_order_of_what_goes_in_and_out_stay() -> None:
    fusion = built(sums)
    run = tf.compile(fusion, backend="sim")
    given = arguments(fusion)
    for made, wanted in zip(run(*given), fusion.evaluate(*given), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5)
    assert isinstance(run, Chain)
    assert len(run.kernels) == 1


def chain() -> list[tf.TensorView]:
    """Rows, then columns of what they give: one after another."""
    x = tensor("x", 64, 48)
    y = tf.softmax(x, 1)
    return [tf.sum(tf.softmax(y, 0), 1)]


def test_what_waits_for_another_stays_behind_it() -> None:
    found = choose_segments(built(chain), trial=counted)
    assert len(found.steps) > 1
    assert not any(step.members for step in found.steps)


def of_two_shapes() -> list[tf.TensorView]:
    """A mask, and angles of positions: blocks of 64 x 4 threads, and of 16 x 16."""
    return [tf.exp(tensor("mask", 512, 512, dtype=tf.bfloat16)), tf.exp(tensor("angles", 512, 64))]


def test_threads_are_arranged_for_a_common_block() -> None:
    found = choose_segments(built(of_two_shapes), trial=counted)
    (step,) = found.steps
    assert len({part.schedule.option.block for part in step.members}) == 1
    assert any(part.schedule.config.lanes for part in step.members)


def some(block: tuple[int, int, int], blocks: int, config: Any = None, instructions: float = 0.0) -> Chosen[Any]:
    """A schedule of which only the blocks are known."""
    count: Any = SimpleNamespace(launch=SimpleNamespace(blocks=blocks), us=2.0, instructions=instructions, lookups=0.0, products=0.0)
    option: Option[Any] = Option(config, 2.0, block=block)
    return Chosen("any", "of it", option, (option,), False, "", count=count)


def test_blocks_of_few_threads_stand_beside_larger_ones_only_if_all_run_at_once() -> None:
    large = some((32, 16, 1), 1000)
    assert not fit_together(some((32, 1, 1), 4096), large, DEFAULT)
    assert fit_together(some((32, 1, 1), 100), large, DEFAULT)
    assert fit_together(some((32, 8, 1), 4096), large, DEFAULT)
    config = PointwiseConfig(vector=4, columns=16, rows=16, unroll=1)
    assert fit_together(some((32, 4, 1), 4096), some((16, 16, 1), 4096, config), DEFAULT)
    assert not fit_together(some((32, 4, 1), 4096), some((16, 16, 1), 4096), DEFAULT)


def test_kernels_that_keep_the_multiprocessors_busy_one_after_another_stand_alone() -> None:
    """Each of 2 us: of 1.5 us of instructions, after a launch; both together take 4.1."""
    busy = 1.5 * DEFAULT.cycles_per_us * DEFAULT.lanes / WARP
    one, idle = some((256, 1, 1), 100, instructions=busy), some((256, 1, 1), 100)
    assert not fit_together(one, one, DEFAULT)
    assert fit_together(one, idle, DEFAULT)


def refused_beside(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
    if schedule.scheduler == "horizontal":
        raise ProofError(kernel=fusion.name, verdict="outside the model", reason="a gap")
    return counted(fusion, schedule)


def slow_beside(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
    from dataclasses import replace

    found = counted(fusion, schedule)
    return replace(found, chain=1e6) if schedule.scheduler == "horizontal" else found


@pytest.mark.parametrize("trial", [refused_beside, slow_beside])
def test_a_joint_kernel_that_is_refused_or_slower_is_not_taken(trial: Any) -> None:
    found: Segmentation = choose_segments(built(sums), trial=trial)
    assert len(found.steps) > 1
    assert "not side by side: " in found.explain()


def totals() -> list[tf.TensorView]:
    """Sums over all elements, a prime number that has no chunks, by blocks that wait for one another: each needs all of its own at once."""
    return [tf.sum(tensor(name, (1 << 20) + 7), 0) for name in "xy"]


def test_kernels_whose_blocks_wait_for_one_another_stand_alone() -> None:
    found = choose_segments(built(totals), trial=counted)
    assert [step.members for step in found.steps] == [(), ()]
