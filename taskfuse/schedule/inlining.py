"""Inline positions: which outer loops a tensor shares with its readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from taskfuse.errors import FusionError, shown
from taskfuse.ir.expr import MathExpr
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import has_code, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule import order
from taskfuse.schedule.call import Call, described
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.shared_loops import mismatch


def inline_at(tv: TensorView, at: object) -> None:
    """See :meth:`TensorView.inline_at`; :func:`inline_together` of one tensor."""
    inline_together(tv.fusion, [tv], at)


def inline_together(fusion: Fusion, tensors: Sequence[TensorView], at: object) -> None:
    """See :meth:`Fusion.inline_at`. Negative positions count from the end: -1 shares all loops.

    Nothing happens for an input, a view and a tensor that no code reads. The order of the code is looked for once, with all of the tensors inlined.

    Raises:
        ScheduleError: if a loop cannot be shared with a reader, or no order of the code is left.
        TaskError: if a law of tasks and groups is broken.
    """
    for tv in tensors:
        _check_tensor("inline_at", fusion, tv)
    keys = Keys(fusion)
    positions = {tv: position for tv in tensors if (position := _position(keys, tv, at)) is not None}
    if not positions:
        return
    before = {tv: tv.schedule.inline for tv in positions}
    done = False
    try:
        for tv, position in positions.items():
            tv.schedule.inline = position
        order.check(fusion)
        done = True
    finally:
        if not done:
            for tv, position in before.items():
                tv.schedule.inline = position


def _position(keys: Keys, tv: TensorView, at: object) -> int | None:
    """The position ``at`` of a tensor whose readers can share so many loops; ``None`` without readers. Raises :class:`ScheduleError`."""
    call = Call("inline_at", tv)
    n = len(tv.schedule.loop)
    if not isinstance(at, SupportsIndex):
        raise call.error(f"{shown(at)} is not a position of an axis", f"use a position in [{-n - 1}, {n}]")
    position = at.__index__()
    if not -n - 1 <= position <= n:
        raise call.error(f"position {position} is out of range: the loop domain has {n} axes", f"use a position in [{-n - 1}, {n}]")
    position %= n + 1
    readers = _readers(tv)
    for reader in readers:
        for depth in range(position):
            reason = _obstacle(keys, tv, reader, depth)
            if reason is not None:
                raise call.error(reason, f"inline at {depth} or less")
    return position if readers else None


def inline_most(fusion: Fusion, tensors: Sequence[TensorView] | None = None) -> None:
    """See :meth:`Fusion.inline_most`.

    Each tensor starts as deep as its readers allow. While the code has no order, tensors of the loop at fault go up, those with several
    readers first; then each that went up goes down again as far as it can. So none can go deeper alone, and the result is always the same.

    Raises:
        ScheduleError: if the code has no order for a reason that the given tensors cannot take away.
        TaskError: if a law of tasks and groups is broken.
    """
    for tv in () if tensors is None else tensors:
        _check_tensor("inline_most", fusion, tv)
    keys = Keys(fusion)
    chosen = {tv: _deepest(keys, tv) for tv in (fusion.tensors() if tensors is None else tensors) if _readers(tv)}
    before = {tv: tv.schedule.inline for tv in chosen}
    done = False
    try:
        for tv, depth in chosen.items():
            tv.schedule.inline = depth
        raised = _raise_until_ordered(fusion, chosen)
        # A tensor that goes down may make room for one before it, so until none moves; positions only grow.
        while any([_lower_again(tv, chosen[tv]) for tv in raised]):
            pass
        done = True
    finally:
        if not done:
            for tv, depth in before.items():
                tv.schedule.inline = depth


def _check_tensor(call: str, fusion: Fusion, x: object) -> None:
    if not isinstance(x, TensorView):
        help = "give tensors, or omit them for all" if call == "inline_most" else "give a list of tensors"
        raise FusionError(fusion=fusion.name, reason=f"{call}: {shown(x)} is not a tensor", help=help, location=caller())


def _readers(tv: TensorView) -> list[MathExpr]:
    """The code that reads the storage of ``tv``; none for an input or a view."""
    expr = tv.fusion.definition(tv)
    if expr is None or not has_code(tv.fusion, expr):
        return []
    return [use for use in storage_uses(tv.fusion, tv) if has_code(tv.fusion, use)]


def _obstacle(keys: Keys, tv: TensorView, reader: MathExpr, depth: int) -> str | None:
    """Why ``tv`` and ``reader`` cannot share the loop at ``depth``."""
    a = tv.schedule.loop[depth]
    if a.is_reduction:
        return f"{described(depth, a)} is a reduction axis: {tv.name} is complete only after the loop"
    different = mismatch(keys, tv, reader, depth)
    if different is not None:
        return different
    for x in (tv, reader.output):
        ptype = x.schedule.ptype(x.schedule.loop[depth])
        if ptype.is_atom:
            return f"axis {depth} of {x.name} is not a loop: it is bound to {ptype.value}"
    return None


def _bound_alike(tv: TensorView, reader: MathExpr, depth: int) -> bool:
    """True if the same thing executes the loop for both: another binding is for ``inline_at`` across roles only."""
    p, q = (x.schedule.ptype(x.schedule.loop[depth]) for x in (tv, reader.output))
    return p is q or (p.is_loop and q.is_loop)


def _deepest(keys: Keys, tv: TensorView) -> int:
    readers = _readers(tv)
    depth = 0
    while depth < len(tv.schedule.loop) and all(_obstacle(keys, tv, reader, depth) is None and _bound_alike(tv, reader, depth) for reader in readers):
        depth += 1
    return depth


def _raise_until_ordered(fusion: Fusion, chosen: dict[TensorView, int]) -> dict[TensorView, None]:
    raised: dict[TensorView, None] = {}
    while True:
        try:
            order.check(fusion)
        except order.OrderError as error:
            at_fault = [tv for tv in error.tensors if tv in chosen and tv.schedule.inline > error.depth]
            if not at_fault:
                raise
            for tv in [tv for tv in at_fault if len(_readers(tv)) > 1] or at_fault:
                tv.schedule.inline = error.depth
                raised[tv] = None
        else:
            return raised


def _lower_again(tv: TensorView, deepest: int) -> bool:
    """Inline ``tv`` as deep as an order allows; true if that is deeper than before."""
    floor = tv.schedule.inline
    depth = deepest
    while depth > floor:
        tv.schedule.inline = depth
        try:
            order.check(tv.fusion)
        except order.OrderError as error:
            depth = min(depth - 1, error.depth) if among(tv, error.tensors) else depth - 1  # any deeper there is the same obstacle
            continue
        return True
    tv.schedule.inline = floor
    return False
