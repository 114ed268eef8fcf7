"""Products of tensor cores whose reduced axis is spread over threads, blocks and clusters, on a GPU: small integers, so that sums are exact."""

from __future__ import annotations

import re

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
def test_what_ptxas_serializes_is_refused_and_what_it_does_not_is_right(name: str) -> None:
    """It depends on the version of ptxas which of the two a condition around an instruction leads to."""
    fusion = CASES[name].fusion()
    rng = np.random.default_rng(0)
    args = [rng.integers(-8, 8, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]
    (wanted,) = fusion.evaluate(*args)
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    refused = ""
    try:
        tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, args), out=out)
    except RegisterError as error:
        refused = str(error)
    assert re.search(r"serialized|injected", refused) if refused else same(to_numpy(out), wanted)
