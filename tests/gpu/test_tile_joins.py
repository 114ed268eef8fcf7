"""Products of tensor cores whose reduced axis is spread over threads, blocks and clusters, on a GPU: small integers, so that sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import RegisterError
from tests.gpu.device import poisoned, same, to_numpy, to_torch
from tests.lowering.joined import CASES, INDICES, Product

CONDITIONAL = tuple(name for name, case in CASES.items() if case.atom == "wgmma" and (case.tiles or case.parts) % case.parts)
"""Some parts have a step less, so that a condition stands around an instruction: ptxas takes it for a divergent one and serializes, or adds fences."""

PRODUCTS = {
    **{f"{atom} {parts} parts on {p.value}": Product(atom, p, parts) for atom in ("mma", "wgmma") for parts in (2, 3) for p in (*INDICES, P.BIDy)},
    **{name: case for name, case in CASES.items() if name not in CONDITIONAL},
}


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", PRODUCTS)
def test_parts_of_k_are_joined(name: str) -> None:
    fusion = PRODUCTS[name].fusion()
    rng = np.random.default_rng(0)
    args = [rng.integers(-8, 8, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]
    (wanted,) = fusion.evaluate(*args)
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, args), out=out)
    assert same(to_numpy(out), wanted)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", CONDITIONAL)
def test_serialized_instructions_are_refused(name: str) -> None:
    fusion = CASES[name].fusion()
    args = [to_torch(np.zeros([int(str(e)) for e in tv.shape], tv.dtype.numpy)) for tv in fusion.inputs]
    with pytest.raises(RegisterError, match=r"serialized|injected"):
        tf.compile(tf.lower(fusion), backend="cuda")(*args)
