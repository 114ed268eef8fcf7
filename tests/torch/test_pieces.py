"""What is put together for one launch, and where regions that are too large are cut."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.partition import PartitionLimits, planned
from taskfuse.torch.pieces import MOST_BESIDE
from tests.calls import Of
from tests.torch.graphs import check, foreign, report, traced


def test_small_results_share_a_fusion() -> None:
    """What torch reads in between would be in memory for longer, and large tensors fill a GPU alone."""

    def results(*tensors: Any) -> list[Any]:
        return [x.exp() * 2 for x in tensors]

    def read_by_torch(*tensors: Any) -> list[Any]:
        return [foreign(x) for x in results(*tensors)]

    def regions(function: Of[Any, Any], *inputs: Any) -> int:
        return len(planned(traced(function, *inputs).graph, PartitionLimits("cpu")).regions)

    small = [torch.empty(n) for n in range(1, 5)]
    assert regions(results, *small) == 1
    assert regions(read_by_torch, *small) == 4
    assert regions(results, *small, torch.empty(1 << 25)) == 2
    assert regions(results, *[torch.empty(3)] * (MOST_BESIDE + 1)) == 2


def test_equal_parts_are_neighbors() -> None:
    def results(*tensors: Any) -> list[Any]:
        return [x.exp() for x in tensors]

    inputs = [torch.empty(shape) for shape in [(2,), (3, 4)] * MOST_BESIDE]
    found = planned(traced(results, *inputs).graph, PartitionLimits("cpu")).regions
    assert [{tuple(n.meta["val"].shape) for n in nodes} for nodes in found] == [{(3, 4)}, {(2,)}]


def test_many_equal_parts_are_equal_bundles() -> None:
    """A launch is little beside ten of them, and equal bundles are compiled once."""

    def results(*tensors: Any) -> list[Any]:
        return [x.exp() for x in tensors]

    inputs = [torch.empty(shape) for shape in [(1 << 22,)] * 12 + [(5,)]]
    found = planned(traced(results, *inputs).graph, PartitionLimits("cpu")).regions
    assert sorted(len(nodes) for nodes in found) == [1, 6, 6]


def test_what_waits_for_a_norm_is_cut_from_it() -> None:
    """Sums of squares together, then their norm, then what is scaled by it, with the decay that nothing waits for."""

    def clipped(*grads: Any) -> list[Any]:
        norm = torch.stack([torch.linalg.vector_norm(g) for g in grads]).norm()
        scale = (1 / (norm + 1e-6)).clamp(max=1.0)
        return [(g * 0.9).sin() + g * scale for g in grads]

    found = report(clipped, *(torch.randn(3, n) for n in range(4, 20)))
    assert len(found.fusions) == 3
    where: dict[str, set[str]] = {}
    for _, op, region, _ in found.ops:
        where.setdefault(op.split(".")[1], set()).add(region)
    (last,) = where["sin"]
    assert last in where["mul"]
    assert not where["sin"] & (where["clamp"] | where["reciprocal"])
    check(clipped, *(torch.randn(3, n) for n in range(4, 20)), fusions=3)


def test_what_reads_an_argument_is_with_what_overwrites_it() -> None:
    """As in a step with a moment, from which both the update and the next moment are computed: neither has to run first."""

    def step(p: Any, m: Any, g: Any) -> None:
        update = (m * 0.9 + g * 0.1).sign()
        m.mul_(0.99).add_(g)
        p.sub_(update)

    def steps(*tensors: Any) -> Any:
        for k in range(0, len(tensors), 3):
            step(*tensors[k : k + 3])
        return tensors[0] * 1.0

    inputs = [torch.randn(n) for n in (3, 5) for _ in range(3)]
    found = report(steps, *inputs)
    assert [len(compiled.stored) for _, compiled in found.fusions.values()] == [4]
    ours, theirs = ([x.clone() for x in inputs] for _ in range(2))
    found.program(list(ours))
    steps(*theirs)
    torch.testing.assert_close(ours, theirs)
