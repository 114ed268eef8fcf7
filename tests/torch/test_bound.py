"""Bound calls: what they launch is what the long way launches, with the addresses of their own arguments."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tests.calls import Of

torch = pytest.importorskip("torch")

import taskfuse as tf
from taskfuse.runtime.results import Arranged
from taskfuse.torch import bound as bound_module
from taskfuse.torch.bound import CallSite, bound
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.settings import Settings
from tests.torch.graphs import report
from tests.torch.launches import HostTorch, Watched, launches, pattern

__all__ = ["launches"]
KERNELS = Settings(strict=True, run="kernels", cache=False)


def two_sums(x: Any) -> list[Any]:
    """Columns and their sums, and a result whose strides are not row-major."""
    y = x.exp() + 1
    return [(y / (y.sum(0) + 1)).t()]


def compiled(function: Of[Any, Any], *inputs: Any, **more: Any) -> tuple[Any, Compiled]:
    found = report(function, *inputs, settings=KERNELS, **more)
    (run,) = found.program.fusions
    return found.program, run


def test_a_bound_call_launches_what_the_long_way_launches(launches: Watched) -> None:
    x = torch.randn(48, 64)
    program, run = compiled(two_sums, x)
    run(x)
    long = pattern(launches.seen)
    for _ in range(3):
        launches.seen.clear()
        x = torch.randn(48, 64)
        (y,) = program([x])
        assert pattern(launches.seen) == long
        flat = [a for _, _, addresses in launches.seen for a in addresses]
        assert x.data_ptr() in flat
        assert y.data_ptr() in flat
        assert y.stride() == (1, 64)
        assert not any(a % 16 for a in flat)
    assert "call" in program._run.__globals__["fusion_0"].__name__


def test_results_of_several_kernels_are_not_copied_where_tensors_have_strides(launches: Watched) -> None:
    def function(x: Any) -> list[Any]:
        y = x.exp() + 1
        total = y.sum(0)
        return [y / (total + 1), total, y.sum(1)]

    program, run = compiled(function, x := torch.randn(64, 48).t())
    assert isinstance(run.executable, Arranged)
    made = program([x])
    assert len(launches.seen) == len(run.executable.kernels) > 1
    assert {y.data_ptr() for y in made} <= {a for _, _, addresses in launches.seen for a in addresses}


def test_what_kernels_exchange_is_one_allocation(launches: Watched) -> None:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([24, 40], name="x")
        a, b = tf.exp(x), tf.sum(x, 1)
        c = tf.sin(a)
        fusion.add_output(c * tf.expand_dims(b, 1), name="y")
    run = tf.compile(tf.segment(fusion, [[a], [b], [c, *fusion.outputs]]), backend="cuda", specialize=False)
    site = CallSite(run, 1, None)
    site.fixed(torch.randn(24, 40))
    for _ in range(2):
        launches.seen.clear()
        x = torch.randn(24, 40)
        (y,) = site.fixed(x)
        (first, second, third) = (addresses for _, _, addresses in launches.seen)
        assert (first[0], second[0], third[2]) == (x.data_ptr(), x.data_ptr(), y.data_ptr())
        assert set(third[:2]) == {first[1], second[1]}
        assert first[1] % 16 == second[1] % 16 == 0
        assert abs(second[1] - first[1]) >= min(24 * 40, 24) * 4


def test_streams_and_odd_addresses(launches: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    program, run = compiled(two_sums, torch.randn(48, 64))
    memory = torch.randn(2, 48 * 64 + 1)
    odd, usual = (m[k:][: 48 * 64].view(48, 64) for m, k in zip(memory.unbind(), (0, 0), strict=True))
    assert odd.data_ptr() % 16 != usual.data_ptr() % 16
    for x in (usual, odd, usual, odd):
        launches.seen.clear()
        monkeypatch.setattr(HostTorch, "stream", HostTorch.stream + 1)
        program([x])
        mine = pattern(launches.seen)
        launches.seen.clear()
        run(x)
        assert mine == pattern(launches.seen)
        assert {stream for _, stream, _ in mine} == {HostTorch.stream}


def test_many_addresses_are_filled_in_where_one_is_another(launches: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with the addresses of the last one, with others, at odd ones, and again with those of the last one that was filled in."""
    monkeypatch.setattr(bound_module, "MANY", 2)
    program, run = compiled(lambda x, y: [(x * y).exp() + y.sum(0)], *(torch.randn(8, 32) for _ in range(2)))
    memory, kept = torch.randn(4, 300), list[Any]()
    one, other, odd, last = (m[k : k + 256].view(8, 32) for m, k in zip(memory.unbind(), (0, 0, 1, 0), strict=True))
    for x, y in ((one, other), (one, other), (one, last), (odd, last), (one, last), (last, one), (one, one), (last, one)):
        launches.seen.clear()
        (made,) = program([x, y])
        kept.append(made)
        mine = launches.seen.copy()
        launches.seen.clear()
        run(x, y)
        assert pattern(mine) == pattern(launches.seen)
        assert {x.data_ptr(), y.data_ptr(), made.data_ptr()} <= {a for _, _, addresses in mine for a in addresses}
    bound_call = program._run.__globals__["fusion_0"]
    assert "last" in bound_call.__code__.co_varnames


def test_sizes_have_bound_calls_of_their_own(launches: Watched) -> None:
    program, run = compiled(two_sums, torch.randn(48, 64), symbolic=True)
    for rows in (48, 16, 48, 80, 16):
        x = torch.randn(rows, 64)
        launches.seen.clear()
        (y,) = program([rows, 64, x] if program.source.splitlines()[1].count(",") > 2 else [x])
        mine = pattern(launches.seen)
        assert y.shape == (64, rows)
        launches.seen.clear()
        run(x)
        assert mine == pattern(launches.seen)


def test_what_the_first_call_of_new_sizes_searches_keeps_no_tensor_alive(launches: Watched) -> None:
    """Errors of a search that hold frames would: memory of a GPU, until Python collects, which torch takes for a leak where it records a CUDA graph."""

    def function(x: Any) -> list[Any]:
        return list(torch.native_layer_norm(x, [256], None, None, 1e-5))

    program, _ = compiled(function, torch.randn(64, 256), symbolic=True)
    gc.collect()
    gc.disable()
    try:
        for rows in (64, 33):
            x = torch.randn(rows, 256)
            made = program([x])
            there = [weakref.ref(t) for t in (x, *made)]
            del x, made
            assert not any(t() is not None for t in there)
    finally:
        gc.enable()


def test_a_launch_that_fails_is_told(launches: Watched) -> None:
    from taskfuse.errors import CudaError

    program, _ = compiled(two_sums, torch.randn(48, 64))
    program([torch.randn(48, 64)])
    launches.status = 700
    with pytest.raises(CudaError, match="CUDA_ERROR_700"):
        program([torch.randn(48, 64)])
    launches.status = 0
    program([torch.randn(48, 64)])


def test_results_that_are_arguments(launches: Watched) -> None:
    """What a fusion writes in place: no tensor is made, and a bound call launches with the address of the argument."""

    def step(p: Any, m: Any, g: Any) -> Any:
        m.mul_(0.9).add_(g)
        p.sub_(m)
        return g + m * 2

    program, run = compiled(step, *(torch.randn(32, 64) for _ in range(3)))
    assert len(run.stored) == 2
    assert run.executable is not None
    assert all(kernel.in_place for kernel in run.executable.kernels)
    for _ in range(3):
        launches.seen.clear()
        p, m, g = (torch.randn(32, 64) for _ in range(3))
        (y,) = program([p, m, g])
        ((_, _, addresses),) = launches.seen
        assert set(addresses) == {x.data_ptr() for x in (p, m, g, y)}
    assert "call" in program._run.__globals__["fusion_0"].__name__


def test_arguments_that_overlap_are_bound_at_their_distances(launches: Watched) -> None:
    """Slices of one tensor: a kernel may read any of their bytes through either of them."""
    calls: list[Any] = []

    def long(*args: Any) -> tuple[Any, ...]:
        calls.append(args)
        return run(*args)

    _, run = compiled(lambda x, y: [x * y + 1], torch.randn(32), torch.randn(32))
    site = CallSite(long, 2, None)
    for own, distance in ((1, 16), (1, 16), (2, 20), (3, 0), (3, 16)):
        memory = torch.randn(64)
        x, y = memory[:32], memory[distance : distance + 32]
        launches.seen.clear()
        site.fixed(x, y)
        ((_, _, addresses),) = launches.seen
        assert (addresses[0], addresses[1]) == (x.data_ptr(), y.data_ptr())
        assert len(calls) == own
    site = CallSite(long, 2, None)
    for _ in range(3):
        site.fixed(torch.randn(32), torch.randn(32))
    assert len(calls) == 4
    assert bound([], [], [], run, None) is None


def test_what_is_read_before_it_is_written_belongs_to_the_call(launches: Watched) -> None:
    """A kernel that reads memory which the call neither gives nor makes: a function cannot know where it is next time."""
    from taskfuse.cuda.recording import recording

    _, run = compiled(lambda x, y: [x * y + 1], torch.randn(32), torch.randn(32))
    x, y = torch.randn(32), torch.randn(32)
    with recording() as seen:
        made = run(x, y)
    assert bound(seen, [x, y], made, run, None) is not None
    assert bound(seen, [x], made, run, None) is None
    assert bound(seen, [x, y], [made[0][1:]], run, None) is None
