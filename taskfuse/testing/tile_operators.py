"""Fault operators on instructions that copy or multiply tiles: boxes, descriptors, fragments, swizzles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.ir.scalar import FALSE, TRUE, Expr, not_, substitute, sym
from taskfuse.ir.shared_layouts import SWIZZLES, Major
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Access, Descriptor, Operand
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.testing.mutations import Mutants, Operator
from taskfuse.testing.value_edits import Writer, in_each, in_writers, reads, shapes, writes


def _coordinates(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """A box moved along an axis by one element or by its size; a box at the origin; a box with two coordinates exchanged."""
    if isinstance(s, TmaLoad | TmaStore):
        box = next(p.box for p in kernel.params if isinstance(p, TensorMapParam) and p.name == s.map)
        for k, (e, n) in enumerate(zip(s.coords, box, strict=True)):
            for new in (e + 1, e + n, e - n, e - e):
                yield replace(s, coords=(*s.coords[:k], new, *s.coords[k + 1 :]))
        for k in range(len(s.coords) - 1):
            coords = [*s.coords]
            coords[k], coords[k + 1] = coords[k + 1], coords[k]
            yield replace(s, coords=tuple(coords))


def _maps(change: Callable[[TensorMapParam], Iterator[TensorMapParam]]) -> Callable[[Kernel], Mutants]:
    def apply(kernel: Kernel) -> Mutants:
        for p in kernel.params:
            if isinstance(p, TensorMapParam):
                for new in change(p):
                    yield replace(kernel, params=tuple(new if q is p else q for q in kernel.params))

    return apply


def _swizzled(p: TensorMapParam) -> Iterator[TensorMapParam]:
    return (replace(p, swizzle=s) for s in SWIZZLES if s != p.swizzle)


def _turned(p: TensorMapParam) -> Iterator[TensorMapParam]:
    if len(p.box) > 1:
        yield replace(p, box=(*p.box[:-2], p.box[-1], p.box[-2]))


def _stepped(p: TensorMapParam) -> Iterator[TensorMapParam]:
    """Other steps along one axis: of every element of a box, or of every second."""
    for k in range(len(p.box) - 1):
        step = 2 if p.step[k] == 1 else 1
        yield replace(p, steps=(*p.step[:k], step, *p.step[k + 1 :]))


def _other_map(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, TmaLoad | TmaStore):
        for p in kernel.params:
            if isinstance(p, TensorMapParam) and p.name != s.map and len(p.box) == len(s.coords):
                yield replace(s, map=p.name)


def _descriptors(change: Callable[[Descriptor], Iterator[Descriptor]]) -> Callable[[Kernel, Writer], Iterator[Stmt]]:
    def apply(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
        if isinstance(s, Wgmma):
            a = s.a
            if isinstance(a, Descriptor):
                yield from (replace(s, a=d) for d in change(a))
            yield from (replace(s, b=d) for d in change(s.b))

    return apply


def _offsets(d: Descriptor) -> Iterator[Descriptor]:
    return (replace(d, offset=d.offset + by) for by in (16, 32, 128, 1024))


def _strides(d: Descriptor) -> Iterator[Descriptor]:
    yield replace(d, lbo=d.sbo, sbo=d.lbo)
    yield from (replace(d, sbo=d.sbo * 2), replace(d, sbo=d.sbo // 2), replace(d, lbo=d.lbo + 128), replace(d, lbo=d.lbo * 2))


def _spans(d: Descriptor) -> Iterator[Descriptor]:
    return (replace(d, swizzle=s) for s in SWIZZLES if s != d.swizzle)


def _majors(d: Descriptor) -> Iterator[Descriptor]:
    yield replace(d, major=Major.MN if d.major is Major.K else Major.K)


def _exchanged(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Wgmma | Mma):
        yield replace(s, a=s.b) if not isinstance(s, Mma) else replace(s, a=s.b, b=s.a)
        if isinstance(s, Wgmma) and isinstance(s.a, Descriptor):
            yield replace(s, a=s.b, b=s.a)
            yield replace(s, b=s.a)


def _fragments(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    """Neighboring registers of a fragment, for every fragment size."""
    if isinstance(operand, Access) and operand.index:
        n = shapes(kernel)[operand.buffer][-1]
        for by in (2, 4, 8, 16, 32):
            yield Access(operand.buffer, (*operand.index[:-1], (operand.index[-1] + by) % n))


def _turned_matrix(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, LdMatrix | StMatrix):
        yield replace(s, transpose=not s.transpose)


def _fewer(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, LdMatrix | StMatrix) and s.matrices > 1:
        yield replace(s, matrices=s.matrices // 2)


def _lanes(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """The rows of other lanes: of the next lane, of the lane 8 further, and of the lane in the other half."""
    if isinstance(s, LdMatrix | StMatrix):
        lane = sym("threadIdx.x")
        for other in ((lane + 1) % 32, (lane + 8) % 32, (lane + 16) % 32):

            def put(e: Expr, other: Expr = other) -> Expr:
                return substitute(e, {"threadIdx.x": lane - lane % 32 + other})

            if isinstance(s, LdMatrix):
                yield replace(s, source=Access(s.source.buffer, tuple(map(put, s.source.index))))
            else:
                yield replace(s, out=Access(s.out.buffer, tuple(map(put, s.out.index))))


def _accumulates(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Wgmma):
        yield from (replace(s, accumulate=c) for c in (not_(s.accumulate), TRUE, FALSE) if c is not s.accumulate)


TILE_OPERATORS: tuple[Operator, ...] = (
    Operator("box elsewhere", in_writers(_coordinates)),
    Operator("another map", in_writers(_other_map)),
    Operator("another swizzle of a map", _maps(_swizzled)),
    Operator("box of a map turned", _maps(_turned)),
    Operator("other steps of a map", _maps(_stepped)),
    Operator("descriptor elsewhere", in_writers(_descriptors(_offsets))),
    Operator("descriptor's strides", in_writers(_descriptors(_strides))),
    Operator("descriptor's swizzle", in_writers(_descriptors(_spans))),
    Operator("descriptor's major", in_writers(_descriptors(_majors))),
    Operator("matrices exchanged", in_writers(_exchanged)),
    Operator("fragment of other registers", in_each(lambda s: reads(s) if isinstance(s, Wgmma | Mma | StMatrix) else iter(()), _fragments)),
    Operator("result in other registers", in_each(lambda s: writes(s) if isinstance(s, Wgmma | Mma | LdMatrix) else iter(()), _fragments)),
    Operator("matrix transposed", in_writers(_turned_matrix)),
    Operator("half of the matrices", in_writers(_fewer)),
    Operator("rows of other lanes", in_writers(_lanes)),
    Operator("accumulate flag", in_writers(_accumulates)),
)
"""Every operator, with the name that reports use."""
