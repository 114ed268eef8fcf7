"""Modules that stand in: they have the functions alone, and import what else is asked; a training step imports none of Inductor's."""

import sys
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx import Graph

from taskfuse.torch.stand_ins import (
    GRAPHS,
    MATCHER,
    WRAPPER,
    annotations_without_networkx,
    are_in_one_region,
    asking,
    number_regions,
    standing_in,
    system,
)
from tests.torch.graphs import compiled

MODULE = "colorsys"
ANNOTATED = "torch._functorch._activation_checkpointing.graph_info_provider"
"""A module of torch with annotations of networkx."""


def test_a_module_that_is_not_imported_has_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with standing_in(MODULE, {"rgb_to_hsv": max}):
        from colorsys import rgb_to_hsv

        assert rgb_to_hsv is max
    assert MODULE not in sys.modules
    with standing_in(MODULE, {"rgb_to_hsv": asking(f"{MODULE}:rgb_to_hsv")}):
        from colorsys import rgb_to_hsv

        assert rgb_to_hsv(0, 0, 0) == (0, 0, 0)
        assert sys.modules[MODULE].__file__
    with standing_in(MODULE, {"rgb_to_hsv": max}):  # it is imported
        from colorsys import rgb_to_hsv

        assert rgb_to_hsv is not max


def test_what_else_is_asked_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with standing_in(MODULE, {}):
        from colorsys import hsv_to_rgb

        assert hsv_to_rgb(0, 0, 1) == (1, 1, 1)
    assert sys.modules[MODULE].__file__


def test_a_module_that_is_imported_stays() -> None:
    import colorsys

    assert asking(f"{MODULE}:rgb_to_hsv")(0, 0, 0) == (0, 0, 0)
    assert sys.modules[MODULE] is colorsys


def test_annotations_of_aotautograd_import_no_networkx(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            assert not name.startswith(GRAPHS)

    for module in (GRAPHS, ANNOTATED):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with monkeypatch.context() as patch, annotations_without_networkx():
        patch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])
        module = resolve_name(ANNOTATED)
    assert GRAPHS not in sys.modules
    assert module.nx.DiGraph().number_of_nodes() == 0  # who computes with it imports it


def test_keys_have_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def properties(device: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"GPU {device}")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert system()["device"] == {"name": "GPU 1"}

    def missing() -> int:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "current_device", missing)
    assert system() == {}


def test_regions_end_where_memory_may_be_written() -> None:
    graph = Graph()
    aten: Any = torch.ops.aten
    x = graph.placeholder("x")
    a = graph.call_function(aten.exp.default, (x,))
    b = graph.call_function(max, (a, a))
    c = graph.call_function(aten.add_.Tensor, (x, a))
    d = graph.call_function(torch.sym_max, (1, 2))
    number_regions(graph)
    assert are_in_one_region(x, a)
    assert not are_in_one_region(a, b)  # a function that nothing is known of
    assert not are_in_one_region(b, c)
    assert are_in_one_region(c, d)


def test_a_training_step_imports_none_of_inductor_and_no_networkx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            assert name not in (MATCHER, WRAPPER, GRAPHS)

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for module in (MATCHER, WRAPPER, GRAPHS):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])

    def model(x: Any) -> Any:
        return x.exp() * x.exp().sin() + 11

    x = torch.ones(3, requires_grad=True)
    ours, theirs = (torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled(model, cache=True), model))
    torch.testing.assert_close(ours, theirs)
