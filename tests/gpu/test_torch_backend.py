"""``torch.compile(backend="taskfuse")`` on a GPU: kernels, training, CUDA graphs, streams, odd addresses, symbolic extents, ops of fusions."""

from __future__ import annotations

import copy
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.calls import Of

pytest.importorskip("torch")

import torch

import taskfuse as tf
from taskfuse.torch import backend, explain, library
from taskfuse.torch.compilation import listeners

pytestmark = [  # what torch itself raises: where it is first compiled, and where it reserves memory for graphs
    pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(model: Of[Any, Any], **options: Any) -> Any:
    return torch.compile(model, backend=backend, options={"strict": True, **options})


def mlp(dtype: Any) -> Any:
    parts = torch.nn.LayerNorm(256), torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256), torch.nn.LayerNorm(256), torch.nn.SiLU()
    return torch.nn.Sequential(*parts).cuda().to(dtype)


@pytest.mark.parametrize("cudagraphs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_and_inference(dtype: Any, cudagraphs: bool) -> None:
    model = mlp(dtype)
    run = compiled(model, cudagraphs=cudagraphs, least=1)
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if dtype is torch.bfloat16 else {"atol": 1e-4, "rtol": 1e-4}
    for _ in range(3):
        x = torch.randn(64, 256, device="cuda", dtype=dtype, requires_grad=True)
        torch.compiler.cudagraph_mark_step_begin()
        got = torch.autograd.grad(run(x).float().square().mean(), [x, *model.parameters()])
        want = torch.autograd.grad(model(x).float().square().mean(), [x, *model.parameters()])
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, **tolerance)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(64, 256, device="cuda", dtype=dtype)
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(run(x), model(x), **tolerance)


def test_inputs_of_any_strides_and_addresses() -> None:
    def function(x: Any) -> Any:
        return (x.exp() + 1) * x.sum(-1, keepdim=True)

    run, whole = compiled(function), torch.randn(65, 129, device="cuda")
    for x in (whole, whole.t(), whole[1:, 1:], whole[::2, ::3], whole.flatten()[1:8193].view(64, 128)):
        # sums of floats depend on the order of their terms, and cancel: both are compared with float64
        exact, terms = function(x.double()), (x.exp() + 1).double() * x.double().abs().sum(-1, keepdim=True)
        for got in (run(x), function(x)):
            assert ((got - exact).abs() <= 1e-6 * terms).all()
        assert run(x).stride() == function(x).stride()


def test_calls_after_the_first_are_bound() -> None:
    """By the addresses of their arguments alone, also for odd ones, and for kernels that exchange tensors."""

    def function(x: Any, w: Any) -> Any:
        y = torch.softmax(x * w, -1)
        return y - y.sum(0), (y.exp() + 1).t()

    run, w = compiled(function), torch.randn(192, device="cuda")
    for k in range(6):
        whole = torch.randn(64 * 192 + 1, device="cuda")
        x = whole[k % 2 : 64 * 192 + k % 2].view(64, 192)
        torch.testing.assert_close(run(x, w), function(x, w))
        assert [y.stride() for y in run(x, w)] == [y.stride() for y in function(x, w)]


def test_the_current_stream() -> None:
    run, x = compiled(lambda x: (x.exp() + 1).sin()), torch.randn(1 << 20, device="cuda")
    run(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = torch.zeros_like(x)
        for _ in range(20):
            y = y + run(x + y * 0)
    stream.synchronize()
    torch.testing.assert_close(y, 20 * (x.exp() + 1).sin(), rtol=1e-4, atol=1e-4)


def test_symbolic_extents_and_numbers() -> None:
    run = torch.compile(lambda x, f: torch.softmax(x * f, -1) + x.shape[0], backend=backend, dynamic=True, options={"strict": True})
    for rows, f in ((3, 0.5), (17, 1.5), (256, 2.5)):
        x = torch.randn(rows, 96, device="cuda")
        torch.testing.assert_close(run(x, f), torch.softmax(x * f, -1) + rows)


def test_one_symbolic_extent() -> None:
    """``mark_dynamic``: one compilation for all batches, with gradients."""
    model = mlp(torch.bfloat16)
    torch._dynamo.config.error_on_recompile, before = True, torch._dynamo.config.error_on_recompile
    try:
        run = compiled(model, least=1)
        for rows in (64, 7, 130):
            x = torch.randn(rows, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            torch._dynamo.mark_dynamic(x, 0)
            got = torch.autograd.grad(run(x).float().square().mean(), [x, *model.parameters()])
            want = torch.autograd.grad(model(x).float().square().mean(), [x, *model.parameters()])
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)
    finally:
        torch._dynamo.config.error_on_recompile = before


def test_a_loss_over_odd_rows_of_symbolic_extents() -> None:
    """A vocabulary whose rows are not multiples of 16 bytes: padded for all batches and lengths, with gradients, and slices of the logits written back."""
    table = torch.nn.Parameter(torch.randn(5003, 256, device="cuda", dtype=torch.bfloat16) / 16)

    def loss(tokens: Any) -> Any:
        scores = torch.nn.functional.embedding(tokens, table) @ table.t()
        return torch.nn.functional.cross_entropy(scores[:, :-1].reshape(-1, 5003).float(), tokens[:, 1:].reshape(-1))

    reports: list[Any] = []
    listeners.append(reports.append)
    try:
        run = torch.compile(loss, backend=backend, dynamic=True, options={"strict": True, "cache": False})
        for shape in ((8, 512), (3, 77), (5, 600)):
            tokens = torch.randint(5003, shape, device="cuda")
            (got,), (want,) = (torch.autograd.grad(f(tokens), [table]) for f in (run, loss))
            torch.testing.assert_close(got, want, atol=1e-3, rtol=5e-2)
    finally:
        listeners.remove(reports.append)
    assert len(reports) == 2
    assert all(any(op.startswith("aten.constant_pad_nd") for _, op, _, _ in report.ops) for report in reports)


def test_recorded_graphs_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that finds its graphs records them; here the process is the same one, without what Dynamo knows."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, found = mlp(torch.float32), list[Any]()
    listeners.append(found.append)
    try:
        for graphs in (2, 2):
            torch._dynamo.reset()
            run = compiled(model, cudagraphs=True, least=1)
            for _ in range(4):
                x = torch.randn(64, 256, device="cuda", requires_grad=True)
                torch.compiler.cudagraph_mark_step_begin()
                got = torch.autograd.grad(run(x).square().mean(), [x, *model.parameters()])
                want = torch.autograd.grad(model(x).square().mean(), [x, *model.parameters()])
                for a, b in zip(got, want, strict=True):
                    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
            assert len(found) == graphs
    finally:
        listeners.remove(found.append)


@pytest.mark.parametrize("train", [False, True])
def test_each_size_has_a_recording_of_its_own(train: bool) -> None:
    """In a training step, its forward and its backward graph."""
    model = mlp(torch.float32)
    run = compiled(model, cudagraphs=True, least=1)
    for rows in (64, 64, 64, 33, 33, 64, 33):
        x = torch.randn(rows, 256, device="cuda", requires_grad=train)
        torch._dynamo.mark_dynamic(x, 0)
        torch.compiler.cudagraph_mark_step_begin()
        with nullcontext() if train else torch.no_grad():
            got, want = run(x), model(x)
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
        if train:
            got, want = (torch.autograd.grad(y.square().mean(), x)[0] for y in (got, want))
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


def test_updates_in_place() -> None:
    """A step of an optimizer: parameters at odd addresses, of equal shapes and others."""

    def step(parameters: list[Any], moments: list[Any], gradients: list[Any]) -> None:
        for p, m, g in zip(parameters, moments, gradients, strict=True):
            m.mul_(0.9).add_(g)
            p.sub_(m * 0.1)

    run = compiled(step)
    for start in (0, 1, 4, 1, 0):
        whole = torch.randn(3, 2 * 4096 + 8, device="cuda")
        other = whole.clone()
        for f, memory in ((run, whole), (step, other)):
            rows = [[x[start : start + 4096].view(64, 64), x[start + 4096 :][:96]] for x in memory]
            for _ in range(3):
                f(*rows)
        torch.testing.assert_close(whole, other)


def test_running_statistics_of_a_recording() -> None:
    """A recorded graph writes to buffers, which are at the same addresses in each call; its parameters are not copied."""
    model, other = (torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.BatchNorm1d(48)).cuda() for _ in range(2))
    other.load_state_dict(model.state_dict())
    run = compiled(model, cudagraphs=True, least=1)
    for _ in range(5):
        x = torch.randn(32, 64, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        got, want = (torch.autograd.grad(f(x).square().mean(), list(m.parameters())) for f, m in ((run, model), (other, other)))
        for a, b in zip([*got, *model.buffers()], [*want, *other.buffers()], strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        with torch.no_grad():
            for m in (model, other):
                m[0].weight.mul_(0.9)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode: str) -> None:
    model = mlp(torch.bfloat16)
    run = torch.compile(model, backend=backend, mode=mode)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(128, 256, device="cuda", dtype=torch.bfloat16)
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(run(x).clone(), model(x), atol=3e-2, rtol=3e-2)


def test_products_of_matrices() -> None:
    model = mlp(torch.bfloat16)
    x = torch.randn(128, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, products=True)(x), model(x), atol=3e-2, rtol=3e-2)


def test_a_report_counts_kernels() -> None:
    found = explain(mlp(torch.bfloat16), torch.randn(64, 256, device="cuda", dtype=torch.bfloat16), options={"least": 1})
    assert found.kernels >= found.fusions > 0
    assert "expected" in str(found)
    assert all(us > 0 for g in found.graphs for us in g.measured.values())
    assert str(found).count("measured") == found.fusions


def test_an_op_of_a_fusion() -> None:
    with tf.Fusion("gpu_op") as fusion:
        x, w = tf.define_tensor(["N", "M"], name="x"), tf.define_tensor(["M"], name="w")
        fusion.add_output(tf.exp(x) * w, name="y")
    op: Any = library(fusion, namespace="taskfuse_gpu_test")
    x, w = torch.randn(33, 64, device="cuda"), torch.randn(64, device="cuda")
    torch.testing.assert_close(op(x, w), x.exp() * w)
    torch.library.opcheck(op.default, (x, w))
    torch.testing.assert_close(compiled(lambda x, w: op(x + 1, w) * 2 + 1)(x, w), (x + 1).exp() * w * 2 + 1)


def dense(t: Any) -> Any:
    return t.clone(memory_format=torch.contiguous_format)


def turned(t: Any) -> Any:
    return t.t().contiguous().t() if t.dim() == 2 else t


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # torch's own, of the first product in autograd's thread
def test_saved_tensors_in_other_strides() -> None:
    """Hooks choose where and how tensors are saved; a bound call takes only their addresses."""

    def function(x: Any, w: Any) -> Any:
        return (((x @ w).t().exp() * 2).relu() * x.sum()).sum()

    run = compiled(function)
    for unpack in (None, None, torch.Tensor.detach, dense, turned):
        hooks: Any = nullcontext() if unpack is None else torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, unpack)
        x = (torch.randn(64, 48, device="cuda") / 16).t().requires_grad_()
        w = (torch.randn(64, 96, device="cuda") / 16).requires_grad_()
        with hooks:
            y = run(x, w)
        got, want = (torch.autograd.grad(z, (x, w)) for z in (y, function(x, w)))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_inputs_that_are_written_to_and_overlap() -> None:
    """Where they begin is in the graph, and Dynamo does not ask for it: each start is a compilation of its own. Nor can views of such inputs be results:
    torch's ``aot_eager`` raises there, and gives other numbers at another start than that of the first call (torch 2.13 and 2.14)."""

    def function(x: Any, y: Any) -> Any:
        x.mul_(2)
        y[1:].add_(x[:-1].sin())
        return x + y, x.sum(0), y.t() * 2

    for start in (0, 1, 4, 64):  # how far apart the two begin in one tensor
        torch._dynamo.reset()
        run = compiled(function)
        for _ in range(3):
            theirs, ours = (torch.arange(200.0, device="cuda").sin() for _ in range(2))
            want, got = (f(t[:100].view(10, 10), t[start : start + 100].view(10, 10)) for f, t in ((function, theirs), (run, ours)))
            torch.testing.assert_close(ours, theirs)
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()


def test_reads_of_overlapping_inputs() -> None:
    """Calls in which arguments begin elsewhere in one tensor than in the recorded one."""
    run, whole = compiled(lambda x, y: (x.exp() + y, x * y.sum(0))), torch.randn(4096, device="cuda")
    for start in (0, 0, 16, 16, 3, 100, 2048, 16):
        x, y = whole[:1024].view(32, 32), whole[start : start + 1024].view(32, 32)
        torch.testing.assert_close(run(x, y), (x.exp() + y, x * y.sum(0)))


def test_threads_and_streams() -> None:
    """Threads that call one model, each on a stream of its own, the first calls included."""
    model = mlp(torch.float32)
    run, failed = compiled(model), list[str]()

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        try:
            with torch.cuda.stream(stream), torch.no_grad():
                for k in range(5):
                    x = torch.randn(64, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(10 * seed + k))
                    if not torch.allclose(run(x), model(x), atol=1e-4):
                        failed.append(f"{seed}: {k}")
                stream.synchronize()
        except Exception as error:
            failed.append(repr(error))

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_a_graph_that_the_caller_captures() -> None:
    """By ``torch.cuda.graph``, around a compiled model: replays read what is in the same tensors then."""
    model = mlp(torch.bfloat16)
    run, x = compiled(model), torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(2):
            run(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            graph.replay()
            torch.testing.assert_close(y, model(x), atol=2e-2, rtol=2e-2)


def test_results_that_must_not_depend_on_an_order() -> None:
    def function(x: Any, i: Any) -> Any:
        return torch.zeros(16, device="cuda").index_add(0, i, x) * 2, x.new_zeros(16).scatter_add(0, i, x)

    x, i = torch.randn(1 << 16, device="cuda"), torch.randint(0, 16, (1 << 16,), device="cuda")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        run = compiled(function)
        first = run(x, i)
        assert all(torch.equal(a, b) for _ in range(5) for a, b in zip(run(x, i), first, strict=True))
    finally:
        torch.use_deterministic_algorithms(False)


def test_small_floats_of_what_is_too_great() -> None:
    def function(x: Any) -> Any:
        return x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).float()

    values = [448.0, 449.0, 464.0, 465.0, 1e9, -1e9, float("inf"), -float("inf"), float("nan"), 57344.0, 61440.0, 1e-9, -0.0]
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.tensor(values, device="cuda", dtype=dtype)
        torch.testing.assert_close(compiled(function)(x), function(x), equal_nan=True, rtol=0, atol=0)


def test_empty_tensors_and_tensors_without_dimensions() -> None:
    def function(x: Any, y: Any) -> Any:
        return x * y + 1, x.sum(), x.reshape(-1)[:0] * 2, torch.cat([x.reshape(-1), y.reshape(-1)])

    for shape in ((0,), (0, 3), (3, 0), (), (2, 3)):
        torch._dynamo.reset()
        run = compiled(function)
        for _ in range(2):
            x, y = torch.randn(shape, device="cuda"), torch.randn((), device="cuda")
            for a, b in zip(run(x, y), function(x, y), strict=True):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()


def test_copies_of_a_compiled_model() -> None:
    model = mlp(torch.float32)
    run, x = compiled(model), torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        run(x)
        other = copy.deepcopy(run)
        torch.testing.assert_close(other(x), model(x), atol=1e-4, rtol=1e-4)
        for p in other.parameters():
            p.mul_(0.5)
        torch.testing.assert_close(run(x), model(x), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(other(x), copy.deepcopy(other._orig_mod)(x), atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_models_on_several_devices() -> None:
    """One on another device than the current one, and one that moves values between devices."""

    def function(x: Any) -> Any:
        return ((x.exp() + 1).to("cuda:1") * 2).relu().to("cuda:0") + x

    run, x = compiled(function), torch.randn(32, 32, device="cuda:0")
    for _ in range(3):
        torch.testing.assert_close(run(x), function(x))
    plain = compiled(lambda x: torch.softmax(x * 2, -1))
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        y = x.to(device)
        torch.testing.assert_close(plain(y), torch.softmax(y * 2, -1))
