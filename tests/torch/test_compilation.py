"""Graphs to programs: equal fusions once, fusions that do not compile left to torch."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from taskfuse.errors import UnsupportedError
from taskfuse.torch import compilation
from tests.torch.graphs import REFERENCE, check, foreign, report


def test_equal_fusions_are_one() -> None:
    found = report(lambda x, y: (foreign(x.exp() + 1), foreign(y.exp() + 1)), torch.randn(4), torch.randn(4))
    assert len(found.fusions) == 2
    assert len({id(c) for _, c in found.fusions.values()}) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_fusion_that_does_not_compile(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    error = UnsupportedError(what="it", reason="of the test")

    def failed(fusions: Sequence[object], settings: object) -> list[UnsupportedError]:
        return [error] * len(fusions)

    monkeypatch.setattr(compilation, "_made", failed)
    settings = replace(REFERENCE, strict=strict, budget=1.0 + strict)
    if strict:
        with pytest.raises(UnsupportedError, match="of the test"):
            check(lambda x: x.tan() + 7, torch.randn(3), settings=settings)
    else:
        found = check(lambda x: x.tan() + 7, torch.randn(3), settings=settings, fusions=0)
        assert "does not compile" in found.ops[0][3]
