"""Traversal of kernel IR: what a statement holds (bodies, expressions, accesses) and how to rebuild it. Passes are written over these functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.ir.scalar import Expr
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import (
    Access,
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    AsyncCopy,
    Barrier,
    BarrierSlot,
    Bind,
    Branch,
    Case,
    Choose,
    Commit,
    Compute,
    CursorInit,
    Descriptor,
    Expect,
    FenceInit,
    FenceProxyAsync,
    For,
    Found,
    Gather,
    Holds,
    If,
    Immediate,
    IndexOf,
    InitBarrier,
    LdMatrix,
    Mma,
    Operand,
    Release,
    Retire,
    ScalarValue,
    SemaphoreSlot,
    SetMaxNReg,
    Shuffle,
    StMatrix,
    Stmt,
    TmaLoad,
    TmaStore,
    VectorCopy,
    Wait,
    Wgmma,
    WgmmaFence,
)
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Pick, Reduce, Rule, Whole
from taskfuse.location import Location

Body = tuple[Stmt, ...]
Accesses = tuple[Access, ...]
ExprMap = Callable[[Expr], Expr]
WRITERS = (Compute, Choose, Gather, VectorCopy, AsyncCopy, TmaLoad, TmaStore, Wgmma, Mma, LdMatrix, StMatrix, Shuffle)
"""The statements that write elements, and may say what these stand for."""


def bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The statement lists directly inside ``stmt``."""
    match stmt:
        case For() | Bind():
            return (stmt.body,)
        case If():
            return tuple(b.body for b in stmt.branches)
        case _:
            return ()


def walk(root: Kernel | Body | Stmt) -> Iterator[Stmt]:
    """Every statement, a statement before those inside it, in the order of the text."""
    if isinstance(root, Kernel):
        root = root.body
    stack: list[Stmt] = list(reversed(root)) if isinstance(root, tuple) else [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        for body in reversed(bodies(stmt)):
            stack.extend(reversed(body))


def with_bodies(stmt: Stmt, new: tuple[Body, ...]) -> Stmt:
    """``stmt`` with other statement lists, in the order of :func:`bodies`. The same object if nothing changes."""
    if all(a is b for a, b in zip(bodies(stmt), new, strict=True)):
        return stmt
    match stmt:
        case For() | Bind():
            return replace(stmt, body=new[0])
        case If():
            return replace(stmt, branches=tuple(replace(b, body=body) for b, body in zip(stmt.branches, new, strict=True)))
        case _:
            return stmt


def map_stmts(body: Body, f: Callable[[Stmt], Stmt | Body]) -> Body:
    """Replace every statement by ``f(statement)``, innermost first: ``f`` sees a statement whose own bodies are already rewritten and gives
    a statement or a list of statements (empty: delete it). New ones come from the line of the statement that they replace, unless they have
    a line. The same object if nothing changes."""
    out: list[Stmt] = []
    for stmt in body:
        inner = bodies(stmt)
        made = f(with_bodies(stmt, tuple(map_stmts(b, f) for b in inner)) if inner else stmt)
        if isinstance(made, tuple):
            out.extend(_placed(s, stmt.location) for s in made)
        else:
            out.append(_placed(made, stmt.location))
    return body if len(out) == len(body) and all(a is b for a, b in zip(out, body, strict=True)) else tuple(out)


def _placed(stmt: Stmt, location: Location | None) -> Stmt:
    """``stmt``; if it has no line, from one, and so those inside it that have none."""
    if location is None or stmt.location is not None:
        return stmt
    return with_bodies(replace(stmt, location=location), tuple(tuple(_placed(s, location) for s in b) for b in bodies(stmt)))


def accesses(stmt: Stmt) -> tuple[Accesses, Accesses]:
    """The elements that a statement itself (not the statements inside it) writes and reads.

    An access of an operation on many elements is its first element: ``width`` for a vector or asynchronous copy, the box for TMA, ``n/2``
    accumulators and the operand tiles for wgmma, the registers and the rows of a lane for ldmatrix and stmatrix. wgmma and mma read their
    accumulators too. What a gather reads from is at an index with the symbols of its values.
    """
    match stmt:
        case Compute():
            return (stmt.out,), tuple(o for o in stmt.operands if isinstance(o, Access))
        case Choose():
            return (stmt.out,), tuple(c.operand for c in stmt.cases if isinstance(c.operand, Access))
        case Gather():
            return (stmt.out,), (stmt.source, *(v.source for v in stmt.values))
        case VectorCopy() | AsyncCopy() | LdMatrix() | StMatrix() | Shuffle():
            return (stmt.out,), (stmt.source,)
        case TmaLoad():
            return (stmt.out,), ()
        case TmaStore():
            return (), (stmt.source,)
        case Wgmma():
            return (stmt.acc,), (stmt.a if isinstance(stmt.a, Access) else stmt.a.base, stmt.b.base, stmt.acc)
        case Mma():
            return (stmt.acc,), (stmt.a, stmt.b, stmt.acc)
        case _:
            return (), ()


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Every integer expression of a statement itself, the conditions of branches and cases included, in the order of the text.

    Those of a gather may have symbols that mean something in it alone: :func:`own_symbols`.
    """
    match stmt:
        case For(start=start, stop=stop, step=step):
            yield from (start, stop, step)
        case Bind(index=index, extent=extent):
            yield from (index, extent)
        case If(branches=branches):
            yield from (b.cond for b in branches)
        case Compute(out=out, operands=operands):
            yield from out.index
            for operand in operands:
                yield from _operand_expressions(operand)
        case Choose(out=out, cases=cases):
            yield from out.index
            for case in cases:
                yield from _operand_expressions(case.operand)
                yield case.cond
        case Gather(out=out, source=source, values=values):
            yield from out.index
            yield from source.index
            for v in values:
                yield from v.source.index
                yield v.extent
        case VectorCopy() | LdMatrix() | StMatrix() | Shuffle():
            yield from stmt.out.index
            yield from stmt.source.index
        case AsyncCopy(out=out, source=source, valid=valid):
            yield from out.index
            yield from source.index
            yield valid
        case Barrier(threads=threads, id=number):
            if number is not None:
                yield number
            yield threads
        case InitBarrier(barrier=barrier, count=count):
            yield from (barrier.slot, count)
        case Arrive(barrier=barrier) | ArriveAsync(barrier=barrier):
            yield barrier.slot
        case Expect(barrier=barrier, bytes=size):
            yield from (barrier.slot, size)
        case Wait(barrier=barrier, parity=parity):
            yield from (barrier.slot, parity)
        case Release(semaphore=semaphore):
            yield from semaphore.index
        case Acquire(semaphore=semaphore, phases=phases):
            yield from semaphore.index
            yield phases
        case Advance(count=count):
            yield count
        case TmaLoad(out=out, coords=coords, barrier=barrier):
            yield from out.index
            yield from coords
            yield barrier.slot
        case TmaStore(coords=coords, source=source):
            yield from coords
            yield from source.index
        case Wgmma(acc=acc, a=a, b=b, accumulate=accumulate):
            yield from acc.index
            yield from a.index if isinstance(a, Access) else (*a.base.index, a.offset)
            yield from (*b.base.index, b.offset)
            yield accumulate
        case Mma(acc=acc, a=a, b=b):
            yield from (*acc.index, *a.index, *b.index)
        case CursorInit() | FenceInit() | Commit() | Retire() | WgmmaFence() | FenceProxyAsync() | SetMaxNReg():
            return


def _operand_expressions(operand: Operand) -> tuple[Expr, ...]:
    match operand:
        case Access(index=index):
            return index
        case IndexOf(value=value):
            return (value,)
        case Immediate() | ScalarValue():
            return ()


def map_access(access: Access, f: ExprMap) -> Access:
    """``access`` with ``f`` applied to its indices."""
    return Access(access.buffer, tuple(f(e) for e in access.index)) if access.index else access


def map_operand(operand: Operand, f: ExprMap) -> Operand:
    """``operand`` with ``f`` applied to its expressions."""
    match operand:
        case Access():
            return map_access(operand, f)
        case IndexOf():
            return IndexOf(f(operand.value))
        case Immediate() | ScalarValue():
            return operand


def map_expressions(stmt: Stmt, f: ExprMap) -> Stmt:
    """``stmt`` with ``f`` applied to every expression of the statement itself; the statements inside it stay."""

    def access(a: Access) -> Access:
        return map_access(a, f)

    def slot(b: BarrierSlot) -> BarrierSlot:
        return BarrierSlot(b.name, f(b.slot))

    def semaphore(s: SemaphoreSlot) -> SemaphoreSlot:
        return SemaphoreSlot(s.name, tuple(f(e) for e in s.index))

    def descriptor(d: Descriptor) -> Descriptor:
        return replace(d, base=access(d.base), offset=f(d.offset))

    def coordinates(c: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(f(e) for e in c)

    def moved(h: Holds | None) -> Holds | None:
        return None if h is None else replace(h, index=coordinates(h.index))

    match stmt:
        case For():
            return replace(stmt, start=f(stmt.start), stop=f(stmt.stop), step=f(stmt.step))
        case Bind():
            return replace(stmt, index=f(stmt.index), extent=f(stmt.extent))
        case If():
            return replace(stmt, branches=tuple(Branch(f(b.cond), b.body, b.label) for b in stmt.branches))
        case Compute():
            return replace(stmt, out=access(stmt.out), operands=tuple(map_operand(o, f) for o in stmt.operands), holds=moved(stmt.holds))
        case Choose():
            cases = tuple(Case(f(c.cond), map_operand(c.operand, f)) for c in stmt.cases)
            return replace(stmt, out=access(stmt.out), cases=cases, holds=moved(stmt.holds))
        case Gather():
            values = tuple(Found(v.symbol, access(v.source), f(v.extent)) for v in stmt.values)
            return replace(stmt, out=access(stmt.out), source=access(stmt.source), values=values, holds=moved(stmt.holds))
        case VectorCopy() | LdMatrix() | StMatrix() | Shuffle():
            return replace(stmt, out=access(stmt.out), source=access(stmt.source), holds=moved(stmt.holds))
        case AsyncCopy():
            return replace(stmt, out=access(stmt.out), source=access(stmt.source), valid=f(stmt.valid), holds=moved(stmt.holds))
        case Barrier():
            return replace(stmt, threads=f(stmt.threads), id=None if stmt.id is None else f(stmt.id))
        case InitBarrier():
            return replace(stmt, barrier=slot(stmt.barrier), count=f(stmt.count))
        case Arrive() | ArriveAsync():
            return replace(stmt, barrier=slot(stmt.barrier))
        case Expect():
            return replace(stmt, barrier=slot(stmt.barrier), bytes=f(stmt.bytes))
        case Wait():
            return replace(stmt, barrier=slot(stmt.barrier), parity=f(stmt.parity))
        case Release():
            return replace(stmt, semaphore=semaphore(stmt.semaphore))
        case Acquire():
            return replace(stmt, semaphore=semaphore(stmt.semaphore), phases=f(stmt.phases))
        case Advance():
            return replace(stmt, count=f(stmt.count))
        case TmaLoad():
            return replace(stmt, out=access(stmt.out), coords=coordinates(stmt.coords), barrier=slot(stmt.barrier), holds=moved(stmt.holds))
        case TmaStore():
            return replace(stmt, coords=coordinates(stmt.coords), source=access(stmt.source), holds=moved(stmt.holds))
        case Wgmma():
            a = access(stmt.a) if isinstance(stmt.a, Access) else descriptor(stmt.a)
            return replace(stmt, acc=access(stmt.acc), a=a, b=descriptor(stmt.b), accumulate=f(stmt.accumulate), holds=moved(stmt.holds))
        case Mma():
            return replace(stmt, acc=access(stmt.acc), a=access(stmt.a), b=access(stmt.b), holds=moved(stmt.holds))
        case CursorInit() | FenceInit() | Commit() | Retire() | WgmmaFence() | FenceProxyAsync() | SetMaxNReg():
            return stmt


def map_definition(d: Definition, f: ExprMap) -> Definition:
    """``d`` with ``f`` applied to its expressions."""

    def each(expressions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(f, expressions))

    def operands(found: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(map_operand(o, f) for o in found)

    match d.rule:
        case Apply() | Reduce():
            rule: Rule = replace(d.rule, operands=operands(d.rule.operands))
        case Pick():
            rule = Pick(tuple(Case(f(c.cond), map_operand(c.operand, f)) for c in d.rule.cases))
        case Accumulate():
            rule = replace(d.rule, operand=map_operand(d.rule.operand, f))
        case Find():
            rule = Find(map_access(d.rule.source, f), tuple(map_access(a, f) for a in d.rule.values), each(d.rule.extents))
        case Whole():
            rule = replace(d.rule, places=tuple(map(each, d.rule.places)))
    return replace(d, shape=each(d.shape), space=each(d.space), place=each(d.place), rule=rule)


def held(stmt: Stmt) -> Holds | None:
    """What the results of a statement are said to stand for."""
    return stmt.holds if isinstance(stmt, WRITERS) else None


def own_symbols(stmt: Stmt) -> dict[str, Expr]:
    """The symbols that mean something in a statement itself alone, each in ``[0, extent)`` where it is used."""
    return {v.symbol: v.extent for v in stmt.values} if isinstance(stmt, Gather) else {}


def barrier_slots(stmt: Stmt) -> tuple[BarrierSlot, ...]:
    """The mbarriers that a statement itself names."""
    match stmt:
        case InitBarrier() | Arrive() | ArriveAsync() | Expect() | Wait() | TmaLoad():
            return (stmt.barrier,)
        case _:
            return ()
