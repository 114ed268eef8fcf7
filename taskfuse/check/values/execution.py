"""Values by execution: one legal run of a launch, with terms in place of numbers.

At given extents every thread's statements are known, and a kernel whose order is proved reads the same in every run. So one run decides, for
these extents, whether every element of every output is what the kernel's definitions give, whatever the inputs hold. Each cell holds a
term (:mod:`taskfuse.check.values.terms`): an element of a tensor, a constant, a partial result with its points, or the reason why it is wrong. A
claim is never trusted: it only names the definition with which a statement is compared. An output must be stored
whole, each element once, and each with its own term.

Not covered: rounding (sums are taken to be associative and commutative; products of float32 by tensor cores are tf32), and values of a gather's index
beyond those that :mod:`taskfuse.check.values.copies` samples, unless all are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from taskfuse.check.flags import all_of
from taskfuse.check.refuted import Refuted, TooLarge, WorkBudget
from taskfuse.check.values import computing, copies, sending, tiles
from taskfuse.check.values.barriers import LaunchBarriers
from taskfuse.check.values.elements import Elements
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch
from taskfuse.check.values.machine import LaunchExecution
from taskfuse.check.values.state import RunState
from taskfuse.check.values.terms import NOTHING, WRONG, Terms
from taskfuse.ir.scalar import TableIndexError, evaluate
from taskfuse.kir import Kernel, accesses
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma


class Witness(Enum):
    """A part of the witness that a kernel lacks."""

    MISSING = "the kernel has no definitions: only its order can be checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """An error of a kernel at some extents.

    Attributes:
        subject: an element of an output, or a buffer.
        notes: the thread, the statement and the extents, one line each.
    """

    subject: str
    reason: str
    notes: tuple[str, ...] = ()


def execute(kernel: Kernel, extents: Mapping[str, int], budget: WorkBudget | None = None, entirely: frozenset[str] = frozenset()) -> Finding | Witness | None:
    """Follow one run of a kernel, and compare the contents of its outputs with its definitions.

    Args:
        extents: values of the kernel's extents.
        budget: a limit on the work.
        entirely: tensors whose gathers are checked for every value of their indices.

    Returns:
        the error; ``Witness.MISSING`` if the kernel has no definitions; ``None`` if all values are right at these extents.

    Raises:
        TooLarge: the launch is too large, or an index has no value at these extents.
    """
    if not kernel.definitions:
        return Witness.MISSING
    try:
        _Execution(kernel, extents, budget or WorkBudget(), entirely).run()
    except (ZeroDivisionError, TableIndexError):  # no other IndexError: that is a fault of this code
        raise TooLarge from None
    except Refuted as e:
        at = (f"extents {', '.join(f'{n} = {v}' for n, v in extents.items())}",) if extents else ()
        return Finding(e.subject, e.reason, (*e.notes, *at))
    return None


class _Execution:
    """One run."""

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], budget: WorkBudget, entirely: frozenset[str]) -> None:
        self.kernel = kernel
        stored = sum(prod(int(evaluate(e, symbols)) for e in p.shape) for p in kernel.outputs)
        if stored // 8 > budget.events + budget.statements:  # what its writes cost at least: a statement's cost is rounded down by less than an event
            raise TooLarge
        launch = ExecutedLaunch(kernel, symbols)
        self.barriers = LaunchBarriers(kernel, launch, symbols)
        self.state = RunState(kernel, launch, Elements(kernel, launch.symbols), symbols, budget, entirely)
        self.machine = LaunchExecution(kernel, launch, self.barriers, budget, self._execute, self._apart)

    def run(self) -> None:
        """Run the launch to its end. Raises :class:`Refuted`."""
        self.machine.run()
        for p in self.kernel.outputs:
            self._compare(p.name)

    def _execute(self, stmt: Stmt, lanes: ExecutedLanes) -> None:
        state = self.state
        match stmt:
            case Compute():
                computing.compute(state, stmt, lanes)
            case Choose():
                copies.choose(state, stmt, lanes)
            case VectorCopy() | AsyncCopy():
                copies.copy(state, stmt, lanes)
            case GatherCopy():
                copies.gather(state, stmt, lanes)
            case AtomicUpdate():
                sending.update(state, stmt, lanes)
            case Shuffle():
                copies.shuffle(state, stmt, lanes)
            case TmaLoad():
                tiles.tma_load(state, self.barriers, stmt, lanes)
            case TmaStore():
                tiles.tma_store(state, stmt, lanes)
            case LdMatrix():
                tiles.ldmatrix(state, stmt, lanes)
            case StMatrix():
                tiles.stmatrix(state, stmt, lanes)
            case Mma():
                tiles.mma(state, stmt, lanes)
            case Wgmma():
                tiles.wgmma(state, stmt, lanes)
            case _:
                pass  # commits, waits for and fences order what has already happened

    def _apart(self, stmt: Stmt) -> bool:
        """True if a statement reads no storage that it writes."""
        if not isinstance(stmt, Compute | Choose | VectorCopy | AsyncCopy):
            return False
        writes, reads = ({id(self.state.cells.stores[a.buffer].region) for a in side} for side in accesses(stmt))
        return reads.isdisjoint(writes)

    # -- outputs ------------------------------------------------------------------------------------------------------------------------

    def _compare(self, name: str) -> None:
        """Raises :class:`Refuted` at the first element of an output that is not what it should be."""
        state = self.state
        tensor, store = state.elements.tensors[name], state.cells.stores[name]
        assert store.region is not None
        held, expected = store.region.terms, state.elements.everything(tensor)
        sent = state.sent.get(name)
        if sent is not None:
            held, _ = sent.seen(held, np.arange(tensor.size), state.same(held, sent.base, tensor.dtype), name)
        good = state.same(held, expected, tensor.dtype)
        if all_of(good):
            return
        for order in (held.tag == NOTHING, np.ones(len(good), np.bool_)):
            bad = np.flatnonzero(~good & order)
            if len(bad):
                self._say(name, int(bad[0]), held[bad[0] : bad[0] + 1], expected[bad[0] : bad[0] + 1], tensor.extents)

    def _say(self, name: str, place: int, held: Terms, expected: Terms, extents: tuple[int, ...]) -> None:
        state = self.state
        subject = f"{name}{state.index(place, extents)}"
        writers = state.writers[name]
        number = int(writers.which[place])
        if not number:
            if self._is_passed(name, place, expected):
                raise TooLarge  # what the caller passed is right, but the proof asks that it is stored
            raise Refuted(subject, "is never stored")
        if name in state.sent and (found := state.sent[name].difference(place))[0]:
            raise Refuted(subject, found[0], *(line for thread, stmt, role in found[1] for line in state.who(thread, stmt, role)))
        stmt, role = writers.stmts[number - 1]
        who = state.who(int(writers.threads[place]), stmt, role)
        if int(held.tag[0]) == WRONG:
            reason, notes = state.reason(int(held.data[0]))
            raise Refuted(subject, reason, *notes, *("stored by " + line if k == 0 else line for k, line in enumerate(who) if line not in notes))
        if int(held.tag[0]) == NOTHING:
            raise Refuted(subject, "the stored value was never computed", *who)
        said, notes = state.difference(held, expected)
        raise Refuted(subject, said, *notes, *("stored by " + line if k == 0 and notes else line for k, line in enumerate(who)))

    def _is_passed(self, name: str, place: int, expected: Terms) -> bool:
        """True if the array of an output that is written in place begins with the element that is to be stored there."""
        source, state = self.kernel.in_place.get(name), self.state
        if source is None:
            return False
        stored = state.sent[name].base[place : place + 1] if name in state.sent else expected
        passed = state.elements.at(state.elements.tensors[source], np.array([place]))
        return bool(state.same(passed, stored, state.elements.tensors[name].dtype)[0])
