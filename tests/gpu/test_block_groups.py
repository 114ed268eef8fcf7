"""Vertical groups on block types: roles that are blocks, joined by rings in Global memory, launch after launch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import LaunchError
from tests.gpu.device import Array, poisoned, same, to_numpy, to_torch
from tests.gpu.programs import floats, load

LAUNCHES = 300


def founding(stages: int = 2) -> tf.Fusion:
    """The founding example with producer blocks and consumer blocks, and a loop over rows R in each; functions that give the simulator's bits."""
    with tf.Fusion("cat") as fusion:
        x = tf.define_tensor(["B", "R", "S", "T"], name="x")
        parts = [tf.neg(x), tf.abs(x), x + 1.0, x * 2.0]
        ends = [tf.relu(p) for p in parts]
        y = tf.cat(ends, dim=2)
        z = tf.neg(y)
        fusion.add_output(z)
    producers = fusion.group([fusion.task([p, e]) for p, e in zip(parts, ends, strict=True)], "producers")
    group = fusion.group([producers, fusion.task([y, z], "cat")], "g")
    for tv in fusion.tensors():
        if not tv.is_input:
            for axis, p in ((0, P.BIDx), (2, P.TIDy), (3, P.TIDx)):
                tv.axis(axis).parallelize(p)
    for e in ends:
        e.circular_buffer(stages)
    fusion.inline_most()
    producers.parallelize(P.TIDy)
    group.parallelize(P.BIDx)
    return fusion


def exchange(stages: int = 2) -> tf.Fusion:
    """Every consuming block reads what all producing ones make: one ring for the group."""
    with tf.Fusion("exchange") as fusion:
        x = tf.define_tensor(["N", 6, 8, 128], name="x")
        a = x * 3.0
        y = a + 1.0
        fusion.add_output(y)
    a.axis(1).parallelize(P.BIDx)
    y.axis(2).parallelize(P.BIDx)
    for tv in (a, y):
        tv.axis(3).parallelize(P.TIDx)
    a.inline_at(1)
    a.circular_buffer(stages)
    fusion.group([fusion.task([a], "make"), fusion.task([y], "read")], "g").parallelize(P.BIDx)
    return fusion


PROGRAMS: dict[str, tuple[tf.Fusion, Array]] = {
    "founding": (founding(), floats(3, 50, 5, 8)),
    "founding, one slot": (founding(1), floats(2, 20, 16, 8)),
    "founding, many blocks": (founding(3), floats(30, 40, 4, 16)),
    "exchange": (exchange(), floats(300, 6, 8, 128)),
    "exchange, many slots": (exchange(7), floats(100, 6, 8, 128)),
}
BY_NAME = pytest.mark.parametrize("name", PROGRAMS)


@BY_NAME
def test_launch_after_launch_gives_the_bits_of_numpy(name: str) -> None:
    fusion, x = PROGRAMS[name]
    run = tf.compile(fusion, backend="cuda")
    (expected,) = fusion.evaluate(x)
    given = to_torch(x)
    reference = to_torch(np.ascontiguousarray(expected))
    out = poisoned(expected.shape, tf.float32)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(LAUNCHES):
        out.fill_(float("nan"))
        run(given, out=out)
        wrong += (out != reference).sum()
    assert wrong.item() == 0


@BY_NAME
def test_debug_builds(name: str) -> None:
    fusion, x = PROGRAMS[name]
    (out,) = tf.compile(fusion, backend="cuda", debug=True)(to_torch(x))
    assert same(to_numpy(out), fusion.evaluate(x)[0])


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
def test_few_trips(trips: int) -> None:
    x = floats(2, trips, 4)
    (out,) = tf.compile(load("blocks"), backend="cuda")(to_torch(x))
    assert same(to_numpy(out), load("blocks").simulate(x)[0])


@BY_NAME
def test_a_graph_replays(name: str) -> None:
    fusion, x = PROGRAMS[name]
    run = tf.compile(fusion, backend="cuda")
    given = to_torch(x)
    expected = run(given)[0].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (out,) = run(given)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(LAUNCHES):
        out.fill_(float("nan"))
        graph.replay()
        wrong += (out != expected).sum()
    assert wrong.item() == 0


def test_launches_on_two_streams_have_their_own_semaphores() -> None:
    fusion = exchange()
    run = tf.compile(fusion, backend="cuda")
    inputs = [to_torch(floats(200, 6, 8, 128) + k) for k in range(2)]
    expected = [run(x)[0].clone() for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    wrong = torch.zeros(2, dtype=torch.int64, device="cuda")
    for _ in range(50):
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                wrong[k] += (run(inputs[k])[0] != expected[k]).sum()
    torch.cuda.synchronize()
    assert wrong.tolist() == [0, 0]


def test_more_blocks_than_the_device_holds() -> None:
    run = tf.compile(founding(), backend="cuda")
    with pytest.raises(LaunchError, match=r"blocks wait for each other, and .* holds"):
        run(torch.zeros(20_000, 1, 4, 8, device="cuda"))
    x = floats(2, 3, 4, 8)
    assert same(to_numpy(run(to_torch(x))[0]), founding().evaluate(x)[0])  # the next call works


def test_chaos_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random delays around every synchronization change nothing."""
    fusion, x = PROGRAMS["exchange"]
    (expected,) = fusion.evaluate(x)
    for seed in range(5):
        monkeypatch.setenv("TASKFUSE_CHAOS", str(seed))
        run = tf.compile(fusion, backend="cuda", debug=True)
        for _ in range(20):
            assert same(to_numpy(run(to_torch(x))[0]), expected)
