"""Rules of statements in general: names, scopes, indices, dtypes, loops, barriers. Each gives a message, or ``None`` if the rule holds."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import DTypeRule, Elementwise
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import FALSE, ZERO, Const, Expr, is_boolean
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.fields import fields_of
from taskfuse.kir.nodes import AsyncCopy, Bind, Branch, Choose, Compute, For, If, Stmt, TmaStore
from taskfuse.kir.operands import Access, Immediate, Operand, ScalarValue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.scope import Scope
from taskfuse.kir.synchronization import Advance, Barrier, Cursor, CursorInit
from taskfuse.kir.walk import accesses, barrier_slots, expressions, own_symbols, walk

Subject = Stmt | Branch
StatementRule = Callable[[Subject, Scope], str | None]


def _subject_accesses(subject: Subject) -> tuple[Access, ...]:
    if isinstance(subject, Branch):
        return ()
    writes, reads = accesses(subject)
    return writes + reads


def _operands(subject: Subject) -> tuple[Operand, ...]:
    match subject:
        case Compute(operands=operands):
            return operands
        case Choose(cases=cases):
            return tuple(c.operand for c in cases)
        case _:
            return ()


def names_are_declared(subject: Subject, scope: Scope) -> str | None:
    """Buffers, scalars, mbarriers, tensor maps, counters, semaphores."""
    d = scope.declarations
    for access in _subject_accesses(subject):
        if access.buffer not in d.storage:
            return f"there is no buffer or tensor '{access.buffer}'"
    for operand in _operands(subject):
        if isinstance(operand, ScalarValue) and operand.name not in d.scalars:
            return f"there is no scalar argument '{operand.name}'"
    if isinstance(subject, Branch):
        return None
    found = fields_of(type(subject))
    kinds = ((found.slots, d.mbarriers, "mbarrier"), (found.semaphores, d.semaphores, "semaphore"))
    for names, declared, what in kinds:
        for slot in (getattr(subject, name) for name in names):
            if slot.name not in declared:
                return f"there is no {what} '{slot.name}'"
    for name in (getattr(subject, name) for name in found.maps):
        if name not in d.maps:
            return f"there is no tensor map '{name}'"
    if isinstance(subject, Barrier) and subject.counter is not None and subject.counter not in d.counters:
        return f"there is no counter '{subject.counter}'"
    return None


def symbols_are_in_scope(subject: Subject, scope: Scope) -> str | None:
    """Extents, host parameters, block and thread indices, variables of enclosing loops, initialized cursors."""
    known = scope.symbols
    match subject:
        case Branch(cond=cond):
            used = (cond,)
        case If():
            used = ()
        case Advance(cursor=cursor) if cursor not in scope.cursors:
            return f"cursor '{cursor}' is not initialized here"
        case _:
            used = tuple(expressions(subject))
            known = known | own_symbols(subject).keys()
    for e in used:
        if not e.free <= known:
            name = min(e.free - known)
            found = Cursor.of(name)
            return f"'{name}' is not in scope" if found is None else f"cursor '{found[0].name}' is not initialized here"
    return None


def index_ranks_match(subject: Subject, scope: Scope) -> str | None:
    """An access has one index per axis."""
    for access in _subject_accesses(subject):
        rank = len(scope.declarations.shape(access.buffer))
        if len(access.index) != rank:
            return f"'{access.buffer}' has {rank} axes, the access {len(access.index)} indices"
    return None


def constant_indices_are_inside(subject: Subject, scope: Scope) -> str | None:
    """A constant index, or slot of an mbarrier, exists; not that of a source which is never read."""
    for access in (subject.out,) if isinstance(subject, AsyncCopy) and subject.valid is FALSE else _subject_accesses(subject):
        for axis, (i, extent) in enumerate(zip(access.index, scope.declarations.shape(access.buffer), strict=True)):
            if extent is ZERO:  # of no element nothing ever runs
                continue
            if isinstance(i, Const) and (i.value < 0 or (isinstance(extent, Const) and i.value >= extent.value)):
                return f"index {i} is outside axis {axis} of '{access.buffer}', whose extent is {extent}"
    if isinstance(subject, Branch):
        return None
    for barrier in barrier_slots(subject):
        slots = scope.declarations.mbarriers[barrier.name]
        if isinstance(barrier.slot, Const) and not 0 <= barrier.slot.value < slots:
            return f"slot {barrier.slot} is outside the {slots} slots of mbarrier '{barrier.name}'"
    return None


def local_indices_are_constant(subject: Subject, scope: Scope) -> str | None:
    """Registers have no addresses: after unrolling every index is a constant."""
    for access in _subject_accesses(subject):
        memory = scope.declarations.memory(access.buffer)
        if memory is not None and not MEDIA[memory].has_addresses:
            for i in access.index:
                if not i.free <= scope.constants:
                    name = min(i.free - scope.constants)
                    return f"index {i} of Local '{access.buffer}' is not a constant after unrolling: '{name}' is not the variable of an unrolled loop"
    return None


def inputs_are_not_written(subject: Subject, scope: Scope) -> str | None:
    """Inputs are read only, by TMA too."""
    if isinstance(subject, Branch):
        return None
    d = scope.declarations
    written = [a.buffer for a in accesses(subject)[0]]
    match subject:
        case TmaStore(map=name):
            written.append(d.maps[name].tensor)
        case _:
            pass
    for name in written:
        match d.storage.get(name):
            case TensorParam(is_output=False):
                return f"input '{name}' is written"
            case _:
                pass
    return None


def conditions_are_boolean(subject: Subject, scope: Scope) -> str | None:
    """Conditions are comparisons and what is made of them."""
    match subject:
        case Branch(cond=cond):
            conditions: tuple[Expr, ...] = (cond,)
        case Choose(cases=cases):
            conditions = tuple(c.cond for c in cases)
        case Wgmma(accumulate=cond) | AsyncCopy(valid=cond):
            conditions = (cond,)
        case _:
            return None
    return next((f"the condition {c} is not a boolean" for c in conditions if not is_boolean(c)), None)


def loops_have_fresh_variables(subject: Subject, scope: Scope) -> str | None:
    """A loop variable hides nothing."""
    match subject:
        case For(var=var) if not scope.declarations.is_name(var):
            return NO_NAME.format(var)
        case For(var=var) if var in scope.symbols or var in scope.declarations.cursors or scope.declarations.is_declared(var):
            return f"the loop variable '{var}' already means something here"
        case _:
            return None


def loops_advance(subject: Subject, scope: Scope) -> str | None:
    """A constant step is positive."""
    match subject:
        case For(step=Const(value=step)) if step < 1:
            return f"the step {step} is not positive"
        case _:
            return None


def loops_keep_their_bounds(subject: Subject, scope: Scope) -> str | None:
    """What a loop runs over is known when it begins: its body moves no cursor that its bounds speak of."""
    match subject:
        case For(start=start, stop=stop, step=step, body=body):
            used = start.free | stop.free | step.free
            if not any(n in used for c in scope.cursors for n in Cursor(c).symbols):
                return None
            moved = {s.cursor if isinstance(s, Advance) else s.name for s in walk(body) if isinstance(s, Advance | CursorInit)}
            cursor = next((c for c in sorted(moved) if any(n in used for n in Cursor(c).symbols)), None)
            return None if cursor is None else f"the loop moves the cursor '{cursor}', of which its own bounds speak"
        case _:
            return None


def unrolled_loops_have_constant_bounds(subject: Subject, scope: Scope) -> str | None:
    """The bounds of an unrolled loop are constants, given those around it."""
    match subject:
        case For(unroll=True, start=start, stop=stop, step=step):
            e = next((e for e in (start, stop, step) if not e.free <= scope.constants), None)
            return None if e is None else f"the unrolled loop's bound {e} is not a constant"
        case _:
            return None


def bound_loops_have_index_types(subject: Subject, scope: Scope) -> str | None:
    """A loop without code is bound to a block or thread type."""
    match subject:
        case Bind(ptype=ptype) if not ptype.is_bound:
            return f"{ptype.value} is not a block or thread type"
        case _:
            return None


def branches_exist(subject: Subject, scope: Scope) -> str | None:
    """There is a branch to take and a case to choose."""
    match subject:
        case If(branches=()):
            return "an IF without branches"
        case Choose(cases=()):
            return "a choice without cases"
        case _:
            return None


def ops_have_their_operands(subject: Subject, scope: Scope) -> str | None:
    """The number of operands is the arity of the op."""
    match subject:
        case Compute(op=op, operands=operands) if len(operands) != op.arity:
            return f"{op.name} takes {op.arity} operands, not {len(operands)}"
        case _:
            return None


def ops_have_a_dtype(subject: Subject, scope: Scope) -> str | None:
    """The op is defined in the dtype of the computation."""
    match subject:
        case Compute(op=op, dtype=dtype) if not _computes_in(op, dtype):
            return f"{op.name} does not compute in {dtype}"
        case _:
            return None


def _computes_in(op: Elementwise, dtype: DType) -> bool:
    match op.rule:
        case DTypeRule.FLOAT | DTypeRule.DIVIDE:
            return dtype.is_float
        case DTypeRule.NUMERIC:
            return not dtype.is_bool
        case DTypeRule.BITWISE:
            return not dtype.is_float
        case DTypeRule.SHIFT:
            return dtype.is_integer
        case DTypeRule.SAME | DTypeRule.BOOL | DTypeRule.LOGICAL | DTypeRule.CAST | DTypeRule.SELECT:
            return True


def constants_fit(subject: Subject, scope: Scope) -> str | None:
    """A constant is a value of its dtype."""
    for operand in _operands(subject):
        if isinstance(operand, Immediate) and not operand.dtype.holds(operand.value):
            return f"{operand.value} is not a value of {operand.dtype}"
    return None


STATEMENT_RULES: tuple[StatementRule, ...] = (
    names_are_declared,
    branches_exist,
    symbols_are_in_scope,
    index_ranks_match,
    constant_indices_are_inside,
    local_indices_are_constant,
    inputs_are_not_written,
    conditions_are_boolean,
    loops_have_fresh_variables,
    loops_advance,
    loops_keep_their_bounds,
    unrolled_loops_have_constant_bounds,
    bound_loops_have_index_types,
    ops_have_their_operands,
    ops_have_a_dtype,
    constants_fit,
)
