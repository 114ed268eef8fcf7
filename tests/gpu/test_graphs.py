"""CUDA graphs: a call captured after a warm-up, replayed 1,000 times into poisoned outputs, gives the same bits every time."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.examples.cases import CASES
from tests.gpu.device import to_torch
from tests.gpu.larger import LARGER
from tests.gpu.programs import exchanged, floats, gemm_arguments, load, scale

REPLAYS = 1000

Program = Callable[[], tuple[tf.Executable, Sequence[Any]]]


def example(name: str) -> Program:
    def make() -> tuple[tf.Executable, Sequence[Any]]:
        case = next(case for case in CASES if case.name == name)
        return tf.compile(case.build(), backend="cuda"), [to_torch(a) for a in case.arguments(LARGER[name][0])]

    return make


def kernel(name: str, *shape: int) -> Program:
    def make() -> tuple[tf.Executable, Sequence[Any]]:
        arguments = gemm_arguments(*shape)[0] if name == "gemm" else [floats(*shape)]
        return tf.compile(load(name), backend="cuda"), [to_torch(a) for a in arguments]

    return make


def with_workspace() -> tuple[tf.Executable, Sequence[Any]]:
    return tf.compile(exchanged(), backend="cuda"), [to_torch(floats(64, 64))]


PROGRAMS: dict[str, Program] = {case.name: example(case.name) for case in CASES} | {
    "ring": kernel("ring", 200, 32),
    "exchange": kernel("exchange", 100, 4, 32),
    "double": kernel("double", 4097, 32),
    "rotate": kernel("rotate", 64, 32),
    "blocks": kernel("blocks", 2, 200, 4),
    "gemm": kernel("gemm", 520, 136, 264),
    "workspace": with_workspace,
}


def bits(tensor: Any) -> Any:
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


@pytest.mark.parametrize("name", PROGRAMS)
def test_replays_give_the_same_bits(name: str, request: pytest.FixtureRequest) -> None:
    if name == "gemm":
        request.getfixturevalue("hopper")
    run, args = PROGRAMS[name]()
    expected = [bits(out).clone() for out in run(*args)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [bits(out) for out in run(*args)]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPLAYS):
        for out in outs:
            out.fill_(-1 if out.dtype is not torch.uint8 else 255)
        graph.replay()
        for out, reference in zip(outs, expected, strict=True):
            wrong += (out != reference).sum()
    assert wrong.item() == 0


def test_replays_read_the_inputs_of_the_day() -> None:
    run = tf.compile(scale(), backend="cuda")
    x = torch.zeros(50, 60, device="cuda")
    out = torch.empty_like(x)
    run(x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, out=out)
        run(out, out=x)
    for k in range(5):
        x.fill_(k)
        graph.replay()
        assert bool((x == 4 * k + 3).all())


def test_a_first_call_inside_a_capture_leaves_no_wrong_result() -> None:
    """Loading a kernel while a stream is captured may be refused by the driver; then the call says so, and works after a warm-up."""
    run = tf.compile(scale(rank=1), backend="cuda")
    x = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            (out,) = run(x)
    except (tf.errors.TaskfuseError, RuntimeError):
        torch.cuda.synchronize()
        (out,) = run(x)
    else:
        graph.replay()
    assert bool((out == 3).all())
