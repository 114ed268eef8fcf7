"""The table of decompositions keeps what rules take whole."""

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.decompositions import decompositions


def test_what_is_kept() -> None:
    table = decompositions()
    aten = torch.ops.aten
    assert aten.addmm.default not in table
    assert aten._softmax_backward_data.default not in table
    assert aten.native_layer_norm_backward.default in table
    assert len(table) > 200
    assert decompositions() is table
