"""Edits of values that make up value operators: another access, operand, expression or condition in one place.

Edits keep the witness, unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.scalar import And, Compare, Expr, and_, compare
from taskfuse.kir import Kernel, held, map_expressions, walk
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, ChoiceCase, Descriptor, GatherValue, Holds, Operand
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.testing.mutations import Edit, Mutants, at

Writer = Compute | Choose | GatherCopy | AtomicUpdate | VectorCopy | AsyncCopy | TmaLoad | TmaStore | Wgmma | Mma | LdMatrix | StMatrix | Shuffle


@dataclass(frozen=True, slots=True)
class EditSite:
    """A replaceable operand of a statement.

    Attributes:
        put: gives the statement with another operand there.
    """

    operand: Operand
    put: Callable[[Operand], Stmt]


def writers(kernel: Kernel) -> Iterator[Writer]:
    """The statements that write values."""
    for s in walk(kernel):
        if isinstance(s, Writer):
            yield s


def reads(s: Writer) -> Iterator[EditSite]:
    """The operands of a statement, with constants and scalars."""
    match s:
        case Compute():
            for k, o in enumerate(s.operands):
                yield EditSite(o, lambda new, k=k: replace(s, operands=(*s.operands[:k], new, *s.operands[k + 1 :])))
        case Choose():
            for k, c in enumerate(s.cases):
                yield EditSite(c.operand, lambda new, k=k, c=c: replace(s, cases=(*s.cases[:k], ChoiceCase(c.cond, new), *s.cases[k + 1 :])))
        case GatherCopy() | AtomicUpdate():
            yield EditSite(s.source, lambda new: replace(s, source=element(new)))
            for k, v in enumerate(s.values):
                yield EditSite(
                    v.source, lambda new, k=k, v=v: replace(s, values=(*s.values[:k], GatherValue(v.symbol, element(new), v.extent), *s.values[k + 1 :]))
                )
        case VectorCopy() | AsyncCopy() | LdMatrix() | StMatrix() | Shuffle() | TmaStore():
            yield EditSite(s.source, lambda new: replace(s, source=element(new)))
        case Wgmma():
            a, b = s.a, s.b
            if isinstance(a, Descriptor):
                yield EditSite(a.base, lambda new: replace(s, a=replace(a, base=element(new))))
            else:
                yield EditSite(a, lambda new: replace(s, a=element(new)))
            yield EditSite(b.base, lambda new: replace(s, b=replace(b, base=element(new))))
        case Mma():
            yield EditSite(s.a, lambda new: replace(s, a=element(new)))
            yield EditSite(s.b, lambda new: replace(s, b=element(new)))
        case TmaLoad():
            return


def writes(s: Writer) -> Iterator[EditSite]:
    """The accesses that a statement writes."""
    match s:
        case Wgmma() | Mma():
            yield EditSite(s.acc, lambda new: replace(s, acc=element(new)))
        case TmaStore():
            return
        case _:
            yield EditSite(s.out, lambda new: replace(s, out=element(new)))


def element(operand: Operand) -> Access:
    """The access of an operand that is an element."""
    assert isinstance(operand, Access)
    return operand


def with_holds(s: Stmt, holds: Holds | None) -> Stmt:
    """A statement with another claim."""
    return replace(s, holds=holds) if isinstance(s, Writer) else s


def rewritten(s: Stmt, f: Callable[[Expr], Expr], *, lies: bool) -> Stmt:
    """A statement with all expressions changed; with ``lies``, those of its witness, too."""
    new = map_expressions(s, f)
    return new if lies else with_holds(new, held(s))


def shapes(kernel: Kernel) -> dict[str, tuple[Expr, ...]]:
    """The shape of every tensor argument and buffer."""
    return {b.name: b.shape for b in (*kernel.buffers, *(p for p in kernel.params if isinstance(p, TensorParam)))}


def in_each(sites: Callable[[Writer], Iterator[EditSite]], change: Callable[[Kernel, Operand], Iterable[Operand]]) -> Edit:
    """Change the operand at one site of one statement."""

    def apply(kernel: Kernel) -> Mutants:
        for s in writers(kernel):
            for site in sites(s):
                for new in change(kernel, site.operand):
                    if new != site.operand:
                        yield at(kernel, s, site.put(new))

    return apply


def index_of(change: Callable[[Expr, Expr], Expr]) -> Callable[[Kernel, Operand], Iterator[Operand]]:
    """Change one index of an access; ``change`` takes the index and the extent of its axis."""

    def apply(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
        if isinstance(operand, Access):
            shape = shapes(kernel)[operand.buffer]
            for k, (e, n) in enumerate(zip(operand.index, shape, strict=True)):
                yield Access(operand.buffer, (*operand.index[:k], change(e, n), *operand.index[k + 1 :]))

    return apply


def in_writers(change: Callable[[Kernel, Writer], Iterable[Stmt | tuple[Stmt, ...]]]) -> Edit:
    """Replace one statement that writes values."""

    def apply(kernel: Kernel) -> Mutants:
        for s in writers(kernel):
            for new in change(kernel, s):
                if new is not s:
                    yield at(kernel, s, new)

    return apply


def moved_bounds(by: int) -> Callable[[Expr], Expr]:
    """A condition whose last comparison is wider by a number, or tighter."""

    def shifted(e: Expr) -> Expr:
        match e:
            case Compare():
                return compare(e.op, e.a - by, e.b)
            case And():
                return and_(*e.args[:-1], shifted(e.args[-1]))
            case _:
                return e

    return shifted


def similar(dtype: DType) -> Iterator[DType]:
    """The other dtypes of its kind."""
    return (d for d in DTYPES.values() if d is not dtype and d.kind is dtype.kind)
