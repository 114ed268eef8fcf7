"""Rules of statements in general: names, scopes, indices, dtypes, loops, barriers. Each returns a message, or ``None`` if the rule holds.

A rule applies to the statements that its first parameter's type admits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import FALSE, ONE, ZERO, Const, Expr, is_boolean, simplify
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.declarations import Buffer, TensorParam
from taskfuse.kir.fields import fields_of
from taskfuse.kir.nodes import AsyncCopy, Bind, Branch, Choose, Compute, For, If, Stmt, TmaStore
from taskfuse.kir.operands import BarrierSlot, Immediate, Operand, ScalarValue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.scope import Scope
from taskfuse.kir.synchronization import Advance, Barrier, Cursor, CursorInit
from taskfuse.kir.walk import all_accesses, expressions, own_symbols, walk

Subject = Stmt | Branch
StatementRule = Callable[[Any, Scope], str | None]


def _operands(subject: Stmt) -> tuple[Operand, ...]:
    match subject:
        case Compute(operands=operands):
            return operands
        case Choose(cases=cases):
            return tuple([c.operand for c in cases])
        case _:
            return ()


def names_are_declared(subject: Stmt, scope: Scope) -> str | None:
    """Scalars, mbarriers, tensor maps, counters, semaphores; a constant slot of an mbarrier exists."""
    d = scope.declarations
    for operand in _operands(subject):
        if isinstance(operand, ScalarValue) and operand.name not in d.scalars:
            return f"there is no scalar argument '{operand.name}'"
    found = fields_of(type(subject))
    for field in found.slots:
        barrier: BarrierSlot = getattr(subject, field)
        slots = d.mbarriers.get(barrier.name)
        if slots is None:
            return f"there is no mbarrier '{barrier.name}'"
        if isinstance(barrier.slot, Const) and not 0 <= barrier.slot.value < slots:
            return f"slot {barrier.slot} is outside the {slots} slots of mbarrier '{barrier.name}'"
    for field in found.semaphores:
        if (name := getattr(subject, field).name) not in d.semaphores:
            return f"there is no semaphore '{name}'"
    for field in found.maps:
        if (name := getattr(subject, field)) not in d.maps:
            return f"there is no tensor map '{name}'"
    if isinstance(subject, Barrier) and subject.counter is not None and subject.counter not in d.counters:
        return f"there is no counter '{subject.counter}'"
    return None


def symbols_are_in_scope(subject: Subject, scope: Scope) -> str | None:
    """Extents, block and thread indices, variables of enclosing loops, initialized cursors."""
    known = scope.symbols
    match subject:
        case Branch(cond=cond):
            used = [cond]
        case If():
            used = []
        case Advance(cursor=cursor) if cursor not in scope.cursors:
            return f"cursor '{cursor}' is not initialized here"
        case _:
            used = expressions(subject)
            known = known | own.keys() if (own := own_symbols(subject)) else known
    for e in used:
        if not e.free <= known:
            name = min(e.free - known)
            found = Cursor.of(name)
            return f"'{name}' is not in scope" if found is None else f"cursor '{found[0].name}' is not initialized here"
        if scope.declarations.tables and (wrong := scope.declarations.misread(e)) is not None:
            return wrong
    return None


def accesses_have_a_place(subject: Stmt, scope: Scope) -> str | None:
    """The storage of an access is declared, an access has one index per axis, and a constant index is in bounds, except in a source that is never read.

    Registers have no addresses: after unrolling, each of their indices is a constant.
    """
    d = scope.declarations
    unread = subject.source if isinstance(subject, AsyncCopy) and subject.valid is FALSE else None
    for access in all_accesses(subject):
        found = d.storage.get(access.buffer)
        if found is None:
            return f"there is no buffer or tensor '{access.buffer}'"
        shape = found.shape
        if len(access.index) != len(shape):
            return f"'{access.buffer}' has {len(shape)} axes, the access {len(access.index)} indices"
        for axis, i in enumerate(access.index):
            if isinstance(i, Const) and access is not unread:
                extent = shape[axis]
                outside = i.value < 0 or (isinstance(extent, Const) and i.value >= extent.value)
                if outside and simplify(extent, d.facts) is not ZERO:  # of no element nothing ever runs
                    return f"index {i} is outside axis {axis} of '{access.buffer}', whose extent is {extent}"
        if isinstance(found, Buffer) and not MEDIA[found.memory].has_addresses:
            for i in access.index:
                if not i.free <= scope.constants:
                    name = min(i.free - scope.constants)
                    return f"index {i} of Local '{access.buffer}' is not a constant after unrolling: '{name}' is not the variable of an unrolled loop"
    return None


def inputs_are_not_written(subject: Stmt, scope: Scope) -> str | None:
    """Inputs are read only, by TMA too."""
    d = scope.declarations
    written: list[str] = [getattr(subject, field).buffer for field in fields_of(type(subject)).written]
    if isinstance(subject, TmaStore):
        written.append(d.maps[subject.map].tensor)
    for name in written:
        param = d.storage[name]
        if isinstance(param, TensorParam) and not param.is_output:
            return f"input '{name}' is written"
    return None


def conditions_are_boolean(subject: Branch | Choose | Wgmma | AsyncCopy, scope: Scope) -> str | None:
    """Conditions are comparisons and logical combinations of comparisons."""
    match subject:
        case Branch(cond=cond):
            conditions: tuple[Expr, ...] = (cond,)
        case Choose(cases=cases):
            conditions = tuple(c.cond for c in cases)
        case Wgmma(accumulate=cond) | AsyncCopy(valid=cond):
            conditions = (cond,)
    return next((f"the condition {c} is not a boolean" for c in conditions if not is_boolean(c)), None)


def loops_have_fresh_variables(subject: For, scope: Scope) -> str | None:
    """A loop variable shadows no other symbol."""
    match subject:
        case For(var=var) if not scope.declarations.is_name(var):
            return NO_NAME.format(var)
        case For(var=var) if var in scope.symbols or var in scope.declarations.cursors or scope.declarations.is_declared(var):
            return f"the loop variable '{var}' is already defined here"
        case _:
            return None


def loops_advance(subject: For, scope: Scope) -> str | None:
    """A constant step is positive."""
    match subject:
        case For(step=Const(value=step)) if step < 1:
            return f"the step {step} is not positive"
        case _:
            return None


def claimed_numbers_are_those_of_a_queue(subject: For, scope: Scope) -> str | None:
    """A loop over a queue covers the queue's numbers, and is not unrolled."""
    if subject.queue is None:
        return None
    queue = next((q for q in scope.declarations.kernel.queues if q.name == subject.queue), None)
    if queue is None:
        return f"there is no queue '{subject.queue}'"
    if (subject.start, subject.stop, subject.step, subject.unroll) != (ZERO, queue.size, ONE, False):
        return f"a loop over queue '{queue.name}' is over 0..{queue.size}, one by one, and not unrolled"
    return None


def loops_keep_their_bounds(subject: For, scope: Scope) -> str | None:
    """The bounds of a loop are fixed when it begins: its body advances no cursor that they mention."""
    used = {found[0].name for n in subject.start.free | subject.stop.free | subject.step.free if (found := Cursor.of(n)) is not None}
    if used.isdisjoint(scope.cursors):
        return None
    moved = {s.cursor if isinstance(s, Advance) else s.name for s in walk(subject.body) if isinstance(s, Advance | CursorInit)}
    cursor = min(moved & used, default=None)
    return None if cursor is None else f"the loop moves the cursor '{cursor}', on which its own bounds depend"


def unrolled_loops_have_constant_bounds(subject: For, scope: Scope) -> str | None:
    """The bounds of an unrolled loop are constants, given those around it."""
    e = next((e for e in (subject.start, subject.stop, subject.step) if not e.free <= scope.constants), None)
    return None if e is None or not subject.unroll else f"the unrolled loop's bound {e} is not a constant"


def bound_loops_have_index_types(subject: Bind, scope: Scope) -> str | None:
    """A loop without code is bound to a block or thread type."""
    return None if subject.ptype.is_bound else f"{subject.ptype.value} is not a block or thread type"


def branches_exist(subject: If | Choose, scope: Scope) -> str | None:
    """An If has a branch, and a choice a case."""
    match subject:
        case If(branches=()):
            return "an IF without branches"
        case Choose(cases=()):
            return "a choice without cases"
        case _:
            return None


def ops_have_their_operands(subject: Compute, scope: Scope) -> str | None:
    """The number of operands is the arity of the op."""
    op, count = subject.op, len(subject.operands)
    return None if count == op.arity else f"{op.name} takes {op.arity} operands, not {count}"


def ops_have_a_dtype(subject: Compute, scope: Scope) -> str | None:
    """The op is defined in the dtype of the computation."""
    return None if subject.op.computes_in(subject.dtype) else f"{subject.op.name} does not compute in {subject.dtype}"


def constants_fit(subject: Compute | Choose, scope: Scope) -> str | None:
    """A constant is a value of its dtype."""
    for operand in _operands(subject):
        if isinstance(operand, Immediate) and not operand.dtype.holds(operand.value):
            return f"{operand.value} is not a value of {operand.dtype}"
    return None


STATEMENT_RULES: tuple[StatementRule, ...] = (
    names_are_declared,
    branches_exist,
    symbols_are_in_scope,
    accesses_have_a_place,
    inputs_are_not_written,
    conditions_are_boolean,
    loops_have_fresh_variables,
    loops_advance,
    loops_keep_their_bounds,
    claimed_numbers_are_those_of_a_queue,
    unrolled_loops_have_constant_bounds,
    bound_loops_have_index_types,
    ops_have_their_operands,
    ops_have_a_dtype,
    constants_fit,
)
