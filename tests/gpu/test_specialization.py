"""Fusions of unknown extents, specialized at the call, on the GPU: every size gives what NumPy gives, into poisoned outputs."""

from typing import Any

import pytest

from tests.calls import Math

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.runtime.specialization import Specialized
from taskfuse.testing.tolerance import accepted
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.rows import arguments

FUNCTIONS: dict[str, tuple[Math, int]] = {
    "pointwise": (lambda x, y: tf.relu(x) * 2 + y, 2),
    "softmax": (lambda x: tf.softmax(x, axis=1), 1),
    "sums": (lambda x: x.sum(1), 1),
    "columns": (lambda x: x.sum(0), 1),
    "transposed": (lambda x: tf.copy(x.T), 1),
    "two kernels": (lambda x: tf.relu(x).sum(1).reshape("M", 1) * tf.exp(-x.sum(0)), 1),
}
SHAPES = ((512, 512), (512, 511), (511, 514), (512, 512), (2, 100_000), (3, 100_001), (100_000, 4), (1, 1 << 18), (5, 7))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes(name: str, dtype: tf.DType) -> None:
    function, count = FUNCTIONS[name]
    with tf.Fusion(name.replace(" ", "_")) as fusion:
        fusion.add_output(function(*(tf.define_tensor(["M", "N"], dtype=dtype, name=f"x{k}") for k in range(count))))
    run = tf.compile(fusion, backend="cuda")
    assert isinstance(run, Specialized)
    for m, n in SHAPES:
        args = arguments(fusion, {"M": m, "N": n})
        wanted = accepted(fusion, args)
        out = poisoned(wanted[0].low.shape, dtype)
        for _ in range(2):
            run(*map(to_torch, args), out=out)
            assert not len(wanted[0].wrong(to_numpy(out)))
    assert run.specializations


def test_products() -> None:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor(["M", "K"], dtype=tf.bfloat16, name="a"), tf.define_tensor(["K", "N"], dtype=tf.bfloat16, name="b")
        fusion.add_output(a @ b)
    run = tf.compile(fusion, backend="cuda")
    for m, k, n in ((512, 512, 512), (512, 520, 512), (511, 512, 256), (512, 511, 510), (8, 4096, 4096)):
        x, y = (torch.randint(-4, 5, shape, device="cuda").to(torch.bfloat16) for shape in ((m, k), (k, n)))
        assert run(x, y)[0].equal((x.double() @ y.double()).to(torch.bfloat16))
    (whole,) = run.at({"M": 512, "K": 512, "N": 512}).kernels
    assert " TMA " in str(whole)
    assert str(whole) not in map(str, run.kernels)


def test_a_graph_of_shapes_that_were_called_before() -> None:
    with tf.Fusion("doubled") as fusion:
        fusion.add_output(tf.relu(tf.define_tensor(["M", "N"], name="x")) * 2)
    run: Any = tf.compile(fusion, backend="cuda")
    x, out = torch.randn(512, 512, device="cuda"), torch.empty(512, 512, device="cuda")
    run(x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, out=out)
    x.copy_(torch.randn(512, 512, device="cuda"))
    graph.replay()
    assert out.equal(torch.relu(x) * 2)
