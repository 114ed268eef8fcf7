"""Graphs in torch's caches: a second process compiles nothing, and other options are other graphs."""

import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters
from torch._inductor import codecache

from taskfuse.torch.cached import TaskfuseCode, shared_places
from taskfuse.torch.compilation import listeners
from taskfuse.torch.cuda_graphs import RecordedGraph
from tests.torch.graphs import check, compiled


def compilations(model: Any, train: bool, **options: Any) -> int:
    """How many graphs are compiled for a call, in a process that has compiled none."""
    torch._dynamo.reset()
    found: list[Any] = []
    listeners.append(found.append)
    x = torch.ones(3, 4, requires_grad=train)
    y = compiled(model, cache=True, **options)(x)
    if train:
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(model(x).sum(), x))
    torch.testing.assert_close(y, model(x))
    listeners.remove(found.append)
    return len(found)


def test_graphs_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In torch's cache on disk, by their options; training graphs, too."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def model(x: Any) -> Any:
        return (x.exp() + 1).sin() * x

    with torch.no_grad():
        counts = [compilations(model, False, least=least) for least in (1, 1, 2)]
    assert counts == [1, 0, 1]
    counted = counters["aot_autograd"]
    counted.clear()
    assert [compilations(model, True) for _ in range(2)] == [2, 0]
    assert (counted["autograd_cache_hit"], counted["autograd_cache_bypass"]) == (1, 0)


def test_keys_need_no_code_generators_of_inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they differ where these are there."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def imported() -> None:
        raise AssertionError

    def model(x: Any) -> Any:
        return x.exp() - 5

    monkeypatch.setattr(codecache, "init_backend_registration", imported)
    monkeypatch.setattr(codecache.CacheBase, "get_system", imported)  # it digests Triton
    monkeypatch.setattr(codecache, "custom_backend_passes", {})
    assert compilations(model, False) == 1
    monkeypatch.setattr(codecache, "custom_backend_passes", {"cpu": None})
    assert compilations(model, False) == 0
    assert codecache.init_backend_registration is imported
    assert codecache.CacheBase.get_system is imported


def test_inputs_that_begin_elsewhere_in_one_tensor_are_another_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of inputs that are written to has their places, which torch's key of a graph lacks."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def function(x: Any, y: Any) -> Any:
        x.mul_(2)
        y[1:].add_(x[:-1].sin())
        return x + y, y.t() * 2

    found: list[Any] = []
    listeners.append(found.append)
    for start in (0, 1, 30, 1):
        torch._dynamo.reset()
        theirs, ours = (torch.arange(200.0).sin() for _ in range(2))
        run = compiled(function, cache=True)
        want, got = (f(t[:100].view(10, 10), t[start : start + 100].view(10, 10)) for f, t in ((function, theirs), (run, ours)))
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(got, want)
    listeners.remove(found.append)
    assert len(found) == 3


def test_places_in_common_storages() -> None:
    whole = torch.zeros(8)
    assert shared_places([whole[:4], torch.zeros(3)[1:], whole[2:], torch.eye(2).to_sparse()]) == ", inputs at 0: 0 + 0, 2: 0 + 2"
    assert shared_places([torch.zeros(3)[1:], torch.zeros(3)]) == ""


def test_code_is_called_with_a_list() -> None:
    program = check(lambda x: x.exp() + 1, torch.randn(3)).program
    code = TaskfuseCode(program)
    x = torch.randn(3)
    given = [x]
    torch.testing.assert_close(code(given)[0], x.exp() + 1)
    assert given == []
    assert vars(code)["_boxed_call"]
    code.recorded = RecordedGraph(program, "backward", 0, (), None)  # its forward graph is recorded: it runs as it is
    torch.testing.assert_close(code([x])[0], x.exp() + 1)
    code.prepare_for_serialization()
    again = pickle.loads(pickle.dumps(code))
    again.post_compile(None)
    torch.testing.assert_close(again([x])[0], x.exp() + 1)
    assert again.recorded.run is again.program
    code.set_triton_bundle(None)
