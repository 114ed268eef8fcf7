"""Nodes of scalar expressions."""

from __future__ import annotations

import copy
import pickle

import pytest

from taskfuse.ir.scalar import (
    Const,
    Sym,
    children,
    const,
    free_symbols,
    lt,
    minimum,
    select,
    sym,
    table,
    xor,
)
from tests.ir.scalar.nests import S, T, i0, tx, x


def test_nodes_survive_copying_and_pickling_as_themselves() -> None:
    e = select(lt(i0, S), table([1, 2, 3], x % 3), minimum(S, T.ceildiv(4)))
    assert copy.deepcopy(e) is e
    assert pickle.loads(pickle.dumps(e)) is e


@pytest.mark.parametrize("name", ["", "3x", "a b", "a.", "a-b", ".a"])
def test_symbol_names_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="is not a symbol name: letters, digits and _, in parts joined by dots"):
        sym(name)


def test_free_symbols_and_operands() -> None:
    e = select(lt(i0, S), 4 * i0 + tx, xor(tx, 3))
    assert free_symbols(e) == {"i0", "S", "threadIdx.x"}
    assert children(e) == (lt(i0, S), 4 * i0 + tx, xor(tx, 3))
    assert children(4 * i0 + tx) == (i0, tx), "without coefficients"
    assert children(table([1, 2], x)) == (x,)
    assert children(x) == children(const(3)) == ()


def test_leaves() -> None:
    assert isinstance(const(3), Const)
    assert isinstance(x, Sym)
    assert sym("i2").key < sym("i10").key < sym("S").key
