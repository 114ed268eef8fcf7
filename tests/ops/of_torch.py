"""Ops against torch on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from taskfuse.dtypes import as_dtype
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ops import copy as copied
from taskfuse.ops import define_tensor
from tests.calls import Of

torch: Any = pytest.importorskip("torch")

Array = Any
Build = Of[TensorView, TensorView | Sequence[TensorView]]
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(0, 3, 60), [0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 3, -3, 6, 1]]).astype(np.float32)
"""Numbers and special values."""


def results(build: Build, *arrays: Array) -> list[Array]:
    """What ``build`` makes of inputs like ``arrays``, evaluated on them."""
    with Fusion("test") as fusion:
        made: Any = build(*(define_tensor(a.shape, as_dtype(a.dtype)) for a in arrays))
        several: list[Any] = [*made] if isinstance(made, tuple | list) else [made]
        for tv in several:
            fusion.add_output(copied(tv) if tv.is_input else tv)
    return list(evaluate(fusion, arrays))


def check(build: Build, reference: Of[Any, Any], *arrays: Array, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    """Check that ``build`` gives what ``reference`` gives of the same tensors of torch: dtypes, shapes, elements; NaN where it has NaN."""
    wanted: Any = reference(*(torch.from_numpy(a) for a in arrays))
    found = results(build, *arrays)
    all_wanted: list[Any] = [*wanted] if isinstance(wanted, tuple | list) else [wanted]
    assert len(found) == len(all_wanted)
    for got, want in zip(found, (w.numpy() if isinstance(w, torch.Tensor) else w for w in all_wanted), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)
