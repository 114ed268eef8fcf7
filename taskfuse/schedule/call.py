"""A scheduling call in progress: the names in its errors, and the checks that calls share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, cast

from taskfuse.errors import ScheduleError, shown
from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Assemble, Reduction, Update
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import behind, has_code, producers
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.location import caller


def is_list(value: object) -> bool:
    """True for a sequence other than text."""
    return isinstance(value, Sequence) and not isinstance(value, str)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """The call ``name`` on the tensor ``tv``."""

    name: str
    tv: TensorView

    def error(self, reason: str, help: str | None = None, notes: tuple[str, ...] = ()) -> ScheduleError:
        """A :class:`ScheduleError` at the user's line; its notes end with the tensor's task if it has one."""
        task = self.tv.fusion.tasks.home(self.tv)
        lies = () if task is None else (f"{self.tv.name} lies in task {task.name}",)
        return ScheduleError(call=self.name, tensor=self.tv.name, reason=reason, help=help, notes=(*notes, *lies), location=caller())

    def reduction(self) -> Reduction:
        """The tensor's definition: a reduction whose terms may be taken in any order.

        Raises:
            ScheduleError: it is not a reduction, or it is a sum that :func:`taskfuse.cascade` rescales along an axis.
        """
        definition = self.tv.fusion.definition(self.tv)
        if not isinstance(definition, Reduction):
            raise self.error(f"{self.tv.name} is not a reduction")
        if definition.rescaled is not None:
            raise self.error(f"{self.tv.name} is rescaled between its terms, which are therefore in an order", f"call {self.name} before tf.cascade")
        return definition

    def position(self, axis: object, domain: list[Axis], kind: str = "loop") -> int:
        """``axis`` as a nonnegative position in a domain."""
        n = len(domain)
        help = f"use an axis in [{-n}, {n - 1}]" if n else None
        if not isinstance(axis, int | SupportsIndex):  # the second alone looks at methods by name
            raise self.error(f"{shown(axis)} is not a position of an axis", help)
        found = axis.__index__()
        if not -n <= found < n:
            raise self.error(f"axis {found} is out of range: the {kind} domain has {n} axes", help)
        return found % n

    def several(self, given: object, what: str) -> tuple[Any, ...]:
        """``given`` as a list; an integer is a list of one."""
        if isinstance(given, list | tuple):
            return tuple(cast("Iterable[Any]", given))
        if isinstance(given, SupportsIndex):
            return (given,)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise self.error(f"{shown(given)} is not a list of {what}", f"give a list of {what}")
        return tuple(cast("Iterable[Any]", given))

    def positions(self, axes: object) -> list[int]:
        """Positions of loop axes as nonnegative ones."""
        return [self.position(a, self.tv.schedule.loop) for a in self.several(axes, "axes")]

    def operand(self, given: object, number: int) -> int:
        """``given`` as the number of an operand."""
        if isinstance(given, bool) or not isinstance(given, SupportsIndex) or not 0 <= given.__index__() < number:
            raise self.error(f"it has no operand {shown(given)}", f"it has {number}")
        return given.__index__()

    def readers(self, given: object, known: Sequence[TensorView]) -> tuple[TensorView, ...]:
        """``given``, at least one, without duplicates, all among ``known``, the readers of the tensor."""
        help = f"its readers are {', '.join(tv.name for tv in dict.fromkeys(known)) or 'none'}"
        found: dict[TensorView, None] = {}
        for reader in self.several(given, "tensors"):
            if not isinstance(reader, TensorView):
                raise self.error(f"{shown(reader)} is not a tensor", help)
            if not among(reader, known):
                raise self.error(f"{reader.name} does not read it", help)
            found[reader] = None
        if not found:
            raise self.error("no reader is given", help)
        return tuple(found)

    def check_free(self, position: int) -> None:
        """Check that the loop axis at ``position`` may be transformed: Serial, and no loop that inlining shares."""
        schedule = self.tv.schedule
        axis = described(position, schedule.loop[position])
        ptype = schedule.ptype(schedule.loop[position])
        if ptype is not ParallelType.Serial:
            raise self.error(f"{axis} is bound to {ptype.value}", "transform axes before they are parallelized, or bind this one to Serial again")
        if position < schedule.inline:
            raise self.error(
                f"{axis} is shared with the readers: {self.tv.name} is inlined at {schedule.inline}",
                f"transform before inlining, or {self.tv.name}.inline_at(0)",
            )
        for producer in inlined_producers(self.tv):
            if position < producer.schedule.inline:
                raise self.error(
                    f"{axis} is shared with {producer.name}, which is inlined at {producer.schedule.inline}",
                    f"transform before inlining, or {producer.name}.inline_at(0)",
                )

    def check_not_part(self) -> None:
        """Raise :class:`ScheduleError` if another tensor is assembled from this one, which then has storage of its own there."""
        whole = next((use.output for use in self.tv.uses if isinstance(use, Assemble)), None)
        if whole is not None:
            raise self.error(
                f"it is a part of {whole.name}, in which its elements are stored", f"make {whole.name} a concatenation first: {whole.name}.unscatter()"
            )

    def check_no_update(self) -> None:
        """Check that the tensor's elements are its own, and not sent to elements of another tensor."""
        definition = self.tv.fusion.definition(self.tv)
        if isinstance(definition, Update):
            target = definition.target.tensor.name
            raise self.error(f"its values are combined with elements of {target} in place: nobody stores them", "call it on what is sent, or on the whole")

    def check_not_updated(self, readers: Iterable[TensorView]) -> None:
        """Check that none of some readers of the tensor updates it in place: its elements are in one place."""
        definitions = (self.tv.fusion.definition(reader) for reader in readers)
        updating = next((d.output for d in definitions if isinstance(d, Update) and d.target.tensor is self.tv), None)
        if updating is not None:
            raise self.error(f"{updating.name} updates it in place", "leave this reader out")

    def check_not_inlined(self) -> None:
        """Check that no loop of the tensor's storage is shared with a reader."""
        storage = storage_of(self.tv)
        if storage.schedule.inline:
            raise self.error(f"{storage.name} is inlined at {storage.schedule.inline}", f"call {self.name} before inlining, or {storage.name}.inline_at(0)")

    def check_internal(self, reason: str, instead: str) -> None:
        """Check that the tensor is neither an input nor an output."""
        if self.tv.is_input:
            raise self.error(f"an input: {reason}", f"{instead}: {self.tv.name}.cache_after()")
        if self.tv.is_output:
            raise self.error(f"an output: {reason}", f"{instead}: {self.tv.name}.cache_before()")

    def check_storage(self) -> None:
        """Check that the tensor has storage of its own."""
        if self.tv.fusion.is_view(self.tv):
            raise self.error("a view has no storage of its own", f"{self.tv.name}.set_memory_type(...) makes it a copy")


def described(position: int, axis: Axis) -> str:
    """How errors show an axis: ``axis 1 (extent 4*S)``."""
    return f"axis {position} (extent {axis.extent})"


def constant(axis: Axis) -> int | None:
    """The extent of an axis if it is a constant."""
    return axis.extent.value if isinstance(axis.extent, Const) else None


def is_power_of_two(n: int) -> bool:
    """True for 1, 2, 4, ..."""
    return n > 0 and n & (n - 1) == 0


def inlined_producers(tv: TensorView) -> tuple[TensorView, ...]:
    """The tensors that share loops with the code of ``tv`` because ``tv`` reads them."""
    expr = tv.fusion.definition(tv)
    if expr is None or not has_code(tv.fusion, expr):
        return ()
    return tuple(p for p in producers(tv.fusion, tv) if p.schedule.inline)


def storage_of(tv: TensorView) -> TensorView:
    """The tensor whose storage holds the elements of ``tv``: itself unless it is a view."""
    return behind(tv.fusion, tv)
