"""Views of a graph: one step from the tensor whose memory they lie in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.calls import Of

torch = pytest.importorskip("torch")

from taskfuse.torch.aliases import Alias, aliases
from tests.torch.graphs import check, foreign, traced


def views(function: Of[Any, Any], *inputs: Any, symbols: tuple[str, ...] = (), symbolic: bool = False) -> dict[str, Alias]:
    return {node.name: alias for node, alias in aliases(traced(function, *inputs, symbolic=symbolic).graph, symbols).items()}


def heads(x: Any) -> list[Any]:
    q, k = foreign(x).split([4, 8], -1)
    return [q.view(3, 2, 2).permute(1, 0, 2), k.unflatten(1, (2, 4)).transpose(0, 1)]


def test_a_chain_of_views_is_one() -> None:
    found = views(heads, torch.randn(3, 12))
    last = [found[name] for name in found if name.startswith(("permute", "transpose"))]
    assert {alias.base.name for alias in last} == {"foreign"}
    assert [(a.shape, a.strides, a.offset) for a in last] == [((2, 3, 2), (2, 12, 1), 0), ((2, 3, 4), (4, 12, 1), 4)]
    program = check(heads, torch.randn(3, 12)).program
    assert program.source.count("viewed(") == 2
    assert "split" not in program.source


def test_what_is_no_view_is_none() -> None:
    def function(x: Any) -> list[Any]:
        y = foreign(x)
        return [y.clone(), y.to(torch.float64), y.view(torch.int32), y + 0, foreign(y), y.reshape(-1)]

    assert not any(name.startswith(("clone", "_to_copy", "add", "view_as", "foreign")) for name in views(function, torch.randn(3, 4)))
    check(function, torch.randn(3, 4))


def test_conjugates_are_none() -> None:
    assert not views(lambda z: torch.conj(z), torch.randn(3, dtype=torch.complex64))


def test_symbols_must_be_known() -> None:
    def function(x: Any) -> Any:
        return foreign(x).t()

    assert not views(function, torch.randn(3, 4), symbolic=True)
    assert views(function, torch.randn(3, 4), symbolic=True, symbols=tuple(f"s{k}" for k in range(200)))
    check(function, torch.randn(3, 4), symbolic=True)


def test_a_view_of_what_is_written_later_shows_it() -> None:
    def function(x: Any) -> list[Any]:
        y = foreign(x)
        z = y.t()[1:]
        y.mul_(2)
        return [z.exp() + 1, z]

    check(function, torch.randn(3, 4))
