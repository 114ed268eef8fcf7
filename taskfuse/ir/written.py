"""The original fusion: the first definition of every tensor, before scheduling calls replaced some.

A tensor's first definition reads tensors that existed then, so the first definitions are the user's math. Every call that rewrites math
goes through :meth:`taskfuse.ir.fusion.Fusion.define`, which keeps the first definition, so calls need not declare what they rewrite.
"""

from __future__ import annotations

from taskfuse.ir.expr import Leaf, Read, ScalarRead, Written, reads, rebuilt
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView


def rewritten(fusion: Fusion) -> dict[TensorView, Written]:
    """The first definitions that the outputs need; empty if all of them are still the tensors' definitions."""
    found: dict[TensorView, Written] = {}
    stack = list(fusion.outputs)
    is_changed = False
    while stack:
        tv = stack.pop()
        written = fusion.written(tv)
        if written is None or tv in found:
            continue
        found[tv] = written
        is_changed = is_changed or fusion.definition(tv) is not written.expr or tv.root != written.root or tv.dtype is not written.dtype
        stack += (r.tensor for r in reads(written.expr))
    return found if is_changed else {}


def as_written(fusion: Fusion) -> Fusion | None:
    """The fusion of the first definitions, without a schedule; ``None`` if no definition that the outputs need was replaced.

    Tensors keep their names, except removed ones whose name another tensor has now.
    """
    found = rewritten(fusion)
    if not found:
        return None
    new = Fusion(fusion.name)
    new.dims.update(fusion.dims)
    scalars = {s: new.add_scalar(s.name, s.dtype, s.promotes) for s in fusion.scalars}
    new.integers += fusion.integers
    copies: dict[TensorView, TensorView] = {}
    for tv in fusion.inputs:
        copies[tv] = new.add_input(new.new_tensor(tv.root, tv.dtype, logical=tv.logical, name=tv.name, location=tv.location))
        if tv in fusion.tables:
            new.tables[copies[tv]] = fusion.tables[tv]
    live = set(fusion.tensors())
    taken = {tv.name for tv in live}
    for tv in sorted(found, key=lambda tv: (tv not in live, tv.id)):
        name = tv.name
        while tv not in live and name in taken:
            name += "_"
        taken.add(name)
        w = found[tv]
        copies[tv] = new.new_tensor(w.root, w.dtype, logical=w.logical, name=name, location=tv.location)

    def read(r: Read) -> Read:
        return Read(copies[r.tensor], r.index, r.valid)

    def leaf(o: Leaf) -> Leaf:
        return ScalarRead(scalars[o.scalar]) if isinstance(o, ScalarRead) else o

    for tv, w in found.items():
        new.define(rebuilt(w.expr, read, leaf=leaf, output=copies[tv]))
    new.outputs += [copies[tv] for tv in fusion.outputs]
    return new
