"""Copy of a fusion with its schedule, tasks and groups."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.expr import Assemble, MathExpr, Operand, Read, ScalarRead, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import Scalar, TensorSchedule, TensorView


def copy_fusion(fusion: Fusion) -> tuple[Fusion, dict[TensorView, TensorView]]:
    """A fusion equal to ``fusion`` that shares no mutable state with it, and the map from its tensors to theirs in the copy.

    Axes and transforms are shared: they never change. Names, locations and the order of everything are kept.
    """
    new = Fusion(fusion.name)
    new.dims.update(fusion.dims)
    new.residents = fusion.residents
    scalars: dict[Scalar, Scalar] = {}
    for scalar in fusion.scalars:
        scalars[scalar] = new.add_scalar(scalar.name, scalar.dtype)
        scalars[scalar].location = scalar.location
    tensors: dict[TensorView, TensorView] = {}
    for tv in fusion.tensors():
        origin = None if tv.origin is None else tensors[tv.origin]
        copy = new.new_tensor(tv.root, tv.dtype, logical=tv.logical, name=tv.name, location=tv.location, origin=origin)
        copy.id = tv.id
        copy.schedule = copy_schedule(tv.schedule)
        tensors[tv] = copy
    for tv in fusion.tensors():
        expr = fusion.definition(tv)
        if expr is not None:
            new.define(_copy_expr(expr, tensors, scalars))
    for tv in fusion.tensors():
        owner = fusion.owner(tv)
        if owner is not None:
            new.set_owner(tensors[tv], tensors[owner])
    for tv in fusion.inputs:
        new.add_input(tensors[tv])
    for tv in fusion.outputs:
        new.add_output(tensors[tv])
    new.tasks.adopt(fusion.tasks, tensors)
    return new, tensors


def copy_schedule(schedule: TensorSchedule) -> TensorSchedule:
    """A schedule that shares no list or dict with ``schedule``."""
    return replace(schedule, loop=list(schedule.loop), transforms=list(schedule.transforms), ptypes=dict(schedule.ptypes))


def _copy_expr(expr: MathExpr, tensors: dict[TensorView, TensorView], scalars: dict[Scalar, Scalar]) -> MathExpr:
    def read(r: Read) -> Read:
        return Read(tensors[r.tensor], r.index, r.valid)

    def operand(o: Operand) -> Operand:
        match o:
            case Read():
                return read(o)
            case ScalarRead():
                return ScalarRead(scalars[o.scalar])
            case _:
                return o

    output = tensors[expr.output]
    match expr:
        case View():
            return replace(expr, output=output, operand=read(expr.operand))
        case Assemble():
            return replace(expr, output=output, parts=tuple(read(p) for p in expr.parts))
        case _:
            return replace(expr, output=output, operands=tuple(operand(o) for o in expr.operands))
