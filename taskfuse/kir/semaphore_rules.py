"""Rules of semaphores: counters in Global memory on which blocks wait for each other."""

from __future__ import annotations

from taskfuse.ir.scalar import Const
from taskfuse.kir.nodes import Acquire, Release
from taskfuse.kir.scope import Scope
from taskfuse.kir.statement_rules import StatementRule, Subject


def semaphore_slots_exist(subject: Subject, scope: Scope) -> str | None:
    """A semaphore has one index per axis, and a constant index is inside."""
    match subject:
        case Release(semaphore=slot) | Acquire(semaphore=slot):
            shape = scope.declarations.semaphores[slot.name].shape
            if len(slot.index) != len(shape):
                return f"semaphore '{slot.name}' has {len(shape)} axes, the slot {len(slot.index)} indices"
            for axis, (i, extent) in enumerate(zip(slot.index, shape, strict=True)):
                if isinstance(i, Const) and (i.value < 0 or (isinstance(extent, Const) and i.value >= extent.value)):
                    return f"index {i} is outside axis {axis} of semaphore '{slot.name}', whose extent is {extent}"
            return None
        case _:
            return None


def semaphore_phases_are_possible(subject: Subject, scope: Scope) -> str | None:
    """The number of phases to wait for is not negative."""
    match subject:
        case Acquire(phases=Const(value=n)) if n < 0:
            return f"a wait for {n} phases: their number is not negative"
        case _:
            return None


SEMAPHORE_RULES: tuple[StatementRule, ...] = (semaphore_slots_exist, semaphore_phases_are_possible)
