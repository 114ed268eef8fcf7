"""The words of the text."""

from typing import get_args

from taskfuse.ir import atoms
from taskfuse.ir.atoms import ATOMS
from taskfuse.ir.axes import Merge, Rasterize, Resize, Split, Swizzle, Transform
from taskfuse.ir.expr import (
    Assemble,
    FirstValid,
    Fold,
    Gather,
    IndexValue,
    Literal,
    MathExpr,
    Operand,
    Pointwise,
    Read,
    Reduction,
    ScalarRead,
    Scan,
    Update,
    View,
)


def test_the_text_knows_every_atom_and_transform() -> None:
    assert set(ATOMS.values()) == {a for a in vars(atoms).values() if isinstance(a, atoms.Atom)}
    assert set(get_args(Transform)) == {Split, Merge, Swizzle, Resize, Rasterize}
    assert set(get_args(MathExpr)) == {Pointwise, FirstValid, Reduction, View, Assemble, Gather, Update, Scan, Fold}
    assert set(get_args(Operand)) == {Read, Literal, ScalarRead, IndexValue}
