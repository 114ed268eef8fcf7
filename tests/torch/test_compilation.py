"""Graphs to programs: equal fusions once, those of the graph that follows side by side, fusions that do not compile left to torch."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.errors import UnsupportedError
from taskfuse.runtime.progress import Progress
from taskfuse.torch import compilation
from taskfuse.torch.compilation import program_of
from taskfuse.torch.settings import Settings
from tests.torch.graphs import REFERENCE, check, foreign, report, traced


def test_equal_fusions_are_one() -> None:
    found = report(lambda x, y: (foreign(x.exp() + 1), foreign(y.exp() + 1)), torch.randn(4), torch.randn(4))
    assert len(found.fusions) == 2
    assert len({id(c) for _, c in found.fusions.values()}) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_fusion_that_does_not_compile(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    error = UnsupportedError(what="it", reason="of the test")

    def failed(fusion: object, own: object, settings: object, report: object) -> UnsupportedError:
        return error

    monkeypatch.setattr(compilation, "_made", failed)
    settings = replace(REFERENCE, strict=strict, budget=1.0 + strict)
    if strict:
        with pytest.raises(UnsupportedError, match="of the test"):
            check(lambda x: x.tan() + 7, torch.randn(3), settings=settings)
    else:
        found = check(lambda x: x.tan() + 7, torch.randn(3), settings=settings, fusions=0)
        assert "does not compile" in found.ops[0][3]


def test_the_fusions_of_the_graph_that_follows_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for first, before anything is waited for, each once."""
    happened: list[str] = []
    asked: list[str] = []

    class Answer(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            happened.append("waited")
            return "an executable"

    def elsewhere(fusions: Sequence[object], arguments: object, processes: int, *, fewest: int, sizes: object) -> list[Any]:
        happened.extend("asked" for _ in fusions)
        asked.extend(map(str, fusions))
        return [Answer() for _ in fusions]

    monkeypatch.setattr(compilation, "compiled_elsewhere", elsewhere)
    monkeypatch.setattr(Settings, "device", "cpu")
    settings = Settings(budget=3.0)
    first = traced(lambda x: (foreign(x.exp() + 1), x.sin() - 2), torch.randn(5))
    following = traced(lambda x: (foreign(x.exp() + 1), x.cos() * 3, foreign(x.tan())), torch.randn(5))
    program_of(first, "forward", settings, following)
    assert happened == ["asked"] * 4 + ["waited"] * 2
    assert [" = sin(" in text for text in asked].index(True) > [" = cos(" in text for text in asked].index(True)
    happened.clear()
    program_of(following, "backward", settings)
    assert happened == ["waited"] * 2
    happened.clear()
    program_of(following, "backward", settings)
    assert happened == []


def test_a_line_says_how_far_other_processes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Answer(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            if len(lines) < 2:
                raise TimeoutError
            self.set_result("an executable")
            return "an executable"

    class Line(Progress):
        __slots__ = ()

        def __call__(self, text: str) -> None:
            lines.append(text)

    def elsewhere(fusions: Sequence[object], arguments: object, processes: int, *, fewest: int, sizes: object) -> list[Any]:
        return [Answer() for _ in fusions]

    monkeypatch.setattr(compilation, "compiled_elsewhere", elsewhere)
    monkeypatch.setattr(compilation, "Progress", Line)
    monkeypatch.setattr(Settings, "device", "cpu")
    program_of(traced(lambda x: (foreign(x.exp() - 7), x.sin() - 7), torch.randn(5)), "inference", Settings(budget=5.0))
    assert lines == ["0 of 2 fusions of a graph compiled"] * 2 + ["1 of 2 fusions of a graph compiled"]


@pytest.mark.parametrize("changed", [False, True])
def test_the_graph_that_follows_is_planned_once_unless_it_changes(changed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    of = compilation.planned_regions

    def counted(gm: Any, settings: Settings) -> Any:
        planned.append(gm)
        return of(gm, settings)

    def elsewhere(fusions: Sequence[object], arguments: object, processes: int, *, fewest: int, sizes: object) -> list[Any]:
        return [Future[Any]() for _ in fusions]

    def made(fusion: object, own: object, settings: object, report: object) -> None:
        return None

    for name, value in (("planned_regions", counted), ("compiled_elsewhere", elsewhere), ("_made", made)):
        monkeypatch.setattr(compilation, name, value)
    monkeypatch.setattr(Settings, "device", "cpu")
    settings = Settings(budget=4.0 + changed)
    first, following = traced(lambda x: x.exp() + 1, torch.randn(5)), traced(lambda x: (x.cos() * 3).sum(), torch.randn(5))
    program_of(first, "forward", settings, following)
    if changed:
        node = next(n for n in following.graph.nodes if n.op == "call_function")
        node.target = torch.ops.aten.sin.default
    source = program_of(following, "backward", settings).source
    assert (planned[2:] == [following]) is changed
    assert len(planned) == 2 + changed
    assert "fusion" in source


def test_a_graph_that_follows_is_planned_in_a_copy() -> None:
    graph = traced(lambda x: x.exp() + 1, torch.randn(5))
    copy = compilation.copied(graph)
    assert [n.name for n in copy.graph.nodes] == [n.name for n in graph.graph.nodes]
    for node in copy.graph.nodes:
        node.meta["val"] = None
    assert all(n.meta["val"] is not None for n in graph.graph.nodes if n.op == "call_function")
