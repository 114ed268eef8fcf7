"""Traversal of kernel IR: the bodies, expressions and accesses of a statement, and how to rebuild it. Passes use these functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from taskfuse.ir.combine import Combine, depends_on_order
from taskfuse.ir.offsets import lengths_name
from taskfuse.ir.scalar import Expr, elements_of
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.fields import ExprMap, fields_of, map_access, map_operand
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import AtomicUpdate, Bind, For, GatherCopy, If, Stmt, TmaStore
from taskfuse.kir.operands import Access, BarrierSlot, ChoiceCase, Holds, Operand, WritingStmt
from taskfuse.kir.synchronization import Cursor, CursorPart
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Rule, Send, Whole
from taskfuse.location import Location

Body = tuple[Stmt, ...]
Accesses = tuple[Access, ...]
HOLDERS = (For, If, Bind)
"""Statements that hold others."""


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
    """Every statement, a statement before those inside it, in the order of the text; a kernel, which does not change, keeps them for those who ask again."""
    if not isinstance(root, Kernel):
        return _walk(root)
    if root.walked is None:
        object.__setattr__(root, "walked", tuple(_walk(root.body)))
    return iter(root.walked or ())


def _walk(root: Body | Stmt) -> Iterator[Stmt]:
    stack: list[Stmt] = list(reversed(root)) if isinstance(root, tuple) else [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        if type(stmt) in HOLDERS:
            for body in reversed(bodies(stmt)):
                stack.extend(reversed(body))


def with_bodies(stmt: Stmt, new: tuple[Body, ...]) -> Stmt:
    """``stmt`` with other statement lists, in the order of :func:`bodies`; the same object if they are unchanged."""
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
    """Replace every statement by ``f(statement)``, innermost first: ``f`` receives a statement whose bodies are already rewritten and returns
    a statement or a list of statements (empty: delete it). New statements inherit the location of the statement that they replace, unless they have one.
    Returns the same object if nothing changes.
    """
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

    The access of a multi-element operation is its first element: ``width`` elements for a vector or asynchronous copy, the box for TMA, ``n/2``
    accumulators and the operand tiles for wgmma, the registers and the rows of a lane for ldmatrix and stmatrix. wgmma and mma read their
    accumulators too. The source of a gather and the target of an update have indices with the symbols of their values.
    """
    found = fields_of(type(stmt))
    if not found.read:
        return tuple([getattr(stmt, name) for name in found.written]), ()
    return tuple([getattr(stmt, name) for name in found.written]), tuple([a for name, kind in found.read for a in kind.reads(getattr(stmt, name))])


def all_accesses(stmt: Stmt) -> Accesses:
    """The elements that a statement itself writes, and those that it reads, as :func:`accesses` gives them."""
    writes, reads = accesses(stmt)
    return writes + reads


def expressions(stmt: Stmt) -> list[Expr]:
    """Every integer expression of a statement itself, the conditions of branches and cases included, in the order of its fields.

    Those of a gather or an update may contain symbols that are defined only in that statement: :func:`own_symbols`.
    """
    found: list[Expr] = []
    for name, kind in fields_of(type(stmt)).kinds:
        found += kind.expressions(getattr(stmt, name))
    return found


def map_expressions(stmt: Stmt, f: ExprMap) -> Stmt:
    """``stmt`` with ``f`` applied to every expression of the statement itself; the statements inside it stay."""
    changed = {name: kind.rebuilt(getattr(stmt, name), f) for name, kind in fields_of(type(stmt)).kinds}
    return replace(stmt, **changed) if changed else stmt


def looked_up(kernel: Kernel) -> frozenset[str]:
    """The tables of a kernel whose elements occur in its expressions, or in the promises about such a table."""
    names = {p.name for p in kernel.tables}
    if not names:
        return frozenset()
    found: set[str] = set()
    for e in chain((e for s in walk(kernel) for e in expressions(s)), (e for d in (*kernel.definitions, *kernel.written) for e in definition_expressions(d))):
        found |= names & e.free
    for p in kernel.tables:
        if p.name in found and p.holds is not None:
            found |= names & p.holds.free
    found |= {name for offsets in found if (name := lengths_name(offsets)) in names}
    return frozenset(found)


def table_range(kernel: Kernel, name: str) -> tuple[Expr, Expr] | None:
    """The least and the greatest element of a table, as far as statements read it; ``None``: none reads it."""
    found = (e for s in walk(kernel) for e in expressions(s) if name in e.free)
    return next(((read.low, read.high) for e in found for read in elements_of(e) if read.tensor.name == name), None)


def definition_expressions(d: Definition) -> list[Expr]:
    """The expressions of a definition."""
    found: list[Expr] = []

    def seen(e: Expr) -> Expr:
        found.append(e)
        return e

    map_definition(d, seen)
    return found


def map_definition(d: Definition, f: ExprMap) -> Definition:
    """``d`` with ``f`` applied to its expressions."""

    def each(expressions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(f, expressions))

    def operands(found: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(map_operand(o, f) for o in found)

    match d.rule:
        case Reduce():
            starts, ends = (tuple((k, f(e)) for k, e in bounds) for bounds in (d.rule.starts, d.rule.ends))
            rule: Rule = replace(d.rule, operands=operands(d.rule.operands), starts=starts, ends=ends)
        case Apply() | Iterate():
            rule = replace(d.rule, operands=operands(d.rule.operands))
        case Pick():
            rule = Pick(tuple(ChoiceCase(f(c.cond), map_operand(c.operand, f)) for c in d.rule.cases))
        case Accumulate():
            rule = replace(d.rule, operand=map_operand(d.rule.operand, f), start=f(d.rule.start))
        case Find():
            rule = Find(map_access(d.rule.source, f), tuple(map_access(a, f) for a in d.rule.values), each(d.rule.extents))
        case Send():
            sent = map_operand(d.rule.operand, f)
            rule = replace(d.rule, operand=sent, values=tuple(map_access(a, f) for a in d.rule.values), extents=each(d.rule.extents))
        case Whole():
            rule = replace(d.rule, places=tuple(map(each, d.rule.places)), conditions=each(d.rule.conditions))
    return replace(d, shape=each(d.shape), space=each(d.space), place=each(d.place), rule=rule)


def held(stmt: Stmt) -> Holds | None:
    """The claim of a statement."""
    return stmt.holds if isinstance(stmt, WritingStmt) else None


def own_symbols(stmt: Stmt) -> dict[str, Expr]:
    """The symbols that are defined only in a statement itself, each in ``[0, extent)`` where it is used."""
    return {v.symbol: v.extent for v in stmt.values} if isinstance(stmt, (GatherCopy, AtomicUpdate)) else {}


def is_deterministic(kernel: Kernel) -> bool:
    """True if the results depend only on the arguments: no update uses a function whose rounding depends on the order of its terms."""
    dtypes = {d.name: d.dtype for d in (*kernel.inputs, *kernel.outputs, *kernel.buffers)}
    dtypes |= {m.name: dtypes[m.tensor] for m in kernel.params if isinstance(m, TensorMapParam)}
    found = ((combine, dtypes[s.map if isinstance(s, TmaStore) else all_accesses(s)[0].buffer]) for s in walk(kernel) if (combine := updating(s)) is not None)
    return not any(depends_on_order(combine, dtype) for combine, dtype in found)


def updating(stmt: Stmt) -> Combine | None:
    """The function by which a statement combines what it writes with what is there, each element atomically; ``None``: it is no such statement."""
    return stmt.combine if isinstance(stmt, (AtomicUpdate, TmaStore)) else None


def barrier_slots(stmt: Stmt) -> tuple[BarrierSlot, ...]:
    """The mbarriers that a statement itself names."""
    return tuple(getattr(stmt, name) for name in fields_of(type(stmt)).slots)


def phased(stmts: Iterable[Stmt]) -> frozenset[str]:
    """The cursors whose phase some statement uses: the others need not count their wraps."""
    used = (Cursor.of(name) for stmt in stmts for e in expressions(stmt) for name in e.free)
    return frozenset(found[0].name for found in used if found is not None and found[1] is CursorPart.PHASE)
