"""The fields of statements: the expressions and elements in them, and how to rebuild them. Derived once per class from the annotations.

A class of :data:`taskfuse.kir.nodes.Stmt` declares all of this by its annotations: ``out: Written`` is an element that it writes, ``valid: Expr`` an
expression. The bodies of loops and branches are handled by :func:`taskfuse.kir.walk.bodies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, cast, get_args, get_type_hints

from taskfuse.ir.scalar import Expr
from taskfuse.kir.nodes import Branch, Stmt
from taskfuse.kir.operands import (
    Access,
    BarrierSlot,
    ChoiceCase,
    Descriptor,
    FieldUse,
    GatherValue,
    Holds,
    Immediate,
    IndexOf,
    Operand,
    ScalarValue,
    SemaphoreSlot,
)

ExprMap = Callable[[Expr], Expr]


def map_all(expressions: tuple[Expr, ...], f: ExprMap) -> tuple[Expr, ...]:
    """``f`` applied to each."""
    return tuple(map(f, expressions))


def map_access(access: Access, f: ExprMap) -> Access:
    """``access`` with ``f`` applied to its indices."""
    return Access(access.buffer, map_all(access.index, f)) if access.index else access


def map_operand(operand: Operand, f: ExprMap) -> Operand:
    """``operand`` with ``f`` applied to its expressions."""
    match operand:
        case Access():
            return map_access(operand, f)
        case IndexOf():
            return IndexOf(f(operand.value))
        case Immediate() | ScalarValue():
            return operand


def _of_operand(operand: Operand) -> tuple[Expr, ...]:
    match operand:
        case Access(index=index):
            return index
        case IndexOf(value=value):
            return (value,)
        case Immediate() | ScalarValue():
            return ()


def _of_factor(x: Access | Descriptor) -> tuple[Expr, ...]:
    return x.index if isinstance(x, Access) else (*x.base.index, x.offset)


def _map_factor(x: Access | Descriptor, f: ExprMap) -> Access | Descriptor:
    return map_access(x, f) if isinstance(x, Access) else replace(x, base=map_access(x.base, f), offset=f(x.offset))


def _of_accesses(operands: Iterable[Operand]) -> tuple[Access, ...]:
    return tuple([o for o in operands if isinstance(o, Access)])


def _nothing(x: object) -> tuple[Access, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class FieldKind:
    """The content of values of a type.

    Attributes:
        expressions: their expressions, in the order of the text.
        rebuilt: the value with a function applied to these.
        reads: the elements that a statement with such a field reads.
    """

    expressions: Callable[[Any], Iterable[Expr]]
    rebuilt: Callable[[Any, ExprMap], Any]
    reads: Callable[[Any], tuple[Access, ...]] = _nothing


_ELEMENT = FieldKind(lambda a: a.index, map_access, lambda a: (a,))
_FACTOR = FieldKind(_of_factor, _map_factor, lambda x: (x if isinstance(x, Access) else x.base,))
KINDS: dict[object, FieldKind] = {
    Expr: FieldKind(lambda e: (e,), lambda e, f: f(e)),
    Expr | None: FieldKind(lambda e: () if e is None else (e,), lambda e, f: None if e is None else f(e)),
    tuple[Expr, ...]: FieldKind(lambda es: es, map_all),
    Access: _ELEMENT,
    Descriptor: _FACTOR,
    Descriptor | Access: _FACTOR,
    tuple[Operand, ...]: FieldKind(
        lambda found: [e for o in found for e in _of_operand(o)],
        lambda found, f: tuple(map_operand(o, f) for o in found),
        _of_accesses,
    ),
    tuple[ChoiceCase, ...]: FieldKind(
        lambda cases: [e for c in cases for e in (*_of_operand(c.operand), c.cond)],
        lambda cases, f: tuple(ChoiceCase(f(c.cond), map_operand(c.operand, f)) for c in cases),
        lambda cases: _of_accesses(c.operand for c in cases),
    ),
    tuple[GatherValue, ...]: FieldKind(
        lambda values: [e for v in values for e in (*v.source.index, v.extent)],
        lambda values, f: tuple(GatherValue(v.symbol, map_access(v.source, f), f(v.extent)) for v in values),
        lambda values: tuple(v.source for v in values),
    ),
    tuple[Branch, ...]: FieldKind(
        lambda branches: [b.cond for b in branches],
        lambda branches, f: tuple(Branch(f(b.cond), b.body, b.label) for b in branches),
    ),
    BarrierSlot: FieldKind(lambda b: (b.slot,), lambda b, f: BarrierSlot(b.name, f(b.slot))),
    SemaphoreSlot: FieldKind(lambda s: s.index, lambda s, f: SemaphoreSlot(s.name, map_all(s.index, f))),
    # the witness of a statement is rebuilt with it, and is not one of its expressions
    Holds | None: FieldKind(lambda h: (), lambda h, f: None if h is None else replace(h, index=map_all(h.index, f))),
}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a class of statements.

    Attributes:
        kinds: their names and kinds, in the order of the class.
        written: the fields that name the first element that the statement writes.
        read: the fields that name elements that it reads, accumulators last.
        slots, semaphores, maps: the fields that name mbarriers, semaphores, tensor maps.
    """

    kinds: tuple[tuple[str, FieldKind], ...]
    written: tuple[str, ...]
    read: tuple[tuple[str, FieldKind], ...]
    slots: tuple[str, ...]
    semaphores: tuple[str, ...]
    maps: tuple[str, ...]


def with_buffers(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """``stmt`` with the buffers in ``names`` replaced in its accesses; claims, and the statements inside it, are unchanged."""
    changed = {name: _with_buffers(getattr(stmt, name), names) for name, _ in fields_of(type(stmt)).kinds}
    return replace(stmt, **changed) if changed else stmt


def _with_buffers(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case Access(buffer=buffer):
            return replace(value, buffer=names.get(buffer, buffer))
        case Descriptor(base=base):
            return replace(value, base=_with_buffers(base, names))
        case ChoiceCase(operand=operand):
            return replace(value, operand=_with_buffers(operand, names))
        case GatherValue(source=source):
            return replace(value, source=_with_buffers(source, names))
        case tuple():
            return tuple(_with_buffers(v, names) for v in cast("tuple[object, ...]", value))
        case _:
            return value


@cache
def types_of(statement: type[Stmt]) -> dict[str, tuple[object, frozenset[object]]]:
    """The type of each field of a class of statements, with its annotation: ``Annotated[type, ...]``."""
    hints = get_type_hints(statement, include_extras=True)
    found: dict[str, tuple[object, frozenset[object]]] = {}
    for f in fields(statement):
        said: tuple[object, ...] = getattr(hints[f.name], "__metadata__", ())
        found[f.name] = (get_args(hints[f.name])[0] if said else hints[f.name], frozenset(said))
    return found


@cache
def fields_of(statement: type[Stmt]) -> Fields:
    """The fields of a class of statements."""
    types = types_of(statement)
    kinds = tuple((name, KINDS[kind]) for name, (kind, _) in types.items() if kind in KINDS)
    uses = {name: next((u for u in said if isinstance(u, FieldUse)), FieldUse.READ) for name, (_, said) in types.items()}
    written = tuple(name for name, use in uses.items() if use is not FieldUse.READ)
    read = [(name, kind) for name, kind in kinds if kind.reads is not _nothing and uses[name] is not FieldUse.WRITTEN]
    read.sort(key=lambda found: uses[found[0]] is FieldUse.UPDATED)
    slots, semaphores = (tuple(name for name, (kind, _) in types.items() if kind is wanted) for wanted in (BarrierSlot, SemaphoreSlot))
    return Fields(kinds, written, tuple(read), slots, semaphores, tuple(name for name, (_, said) in types.items() if "map" in said))
