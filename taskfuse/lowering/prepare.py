"""Preparation: a copy of the fusion without unused tensors, in which every boundary tensor is only a boundary.

A boundary tensor of a parallelized vertical group that is also an output, or is read in its own member or outside the group, gets a
copy in its own task; the copy is the boundary.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import Axis, AxisKind, axis
from taskfuse.ir.expr import Assemble, MathExpr, Read, Update, View, rebuilt
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import has_code, producers, resolve, storage_reads
from taskfuse.ir.tasks import Group
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.ir.types import MemoryType
from taskfuse.lowering.pingpong import check_pingpong
from taskfuse.schedule.caching import copy_of, join_task
from taskfuse.schedule.call import Call
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.order import Tree, complete, is_vertical
from taskfuse.schedule.replay import replay
from taskfuse.schedule.shared_loops import mismatch


def check_supported(fusion: Fusion) -> None:
    """Check the laws of tasks and groups, ping-pong turns, that clusters have no roles in their blocks, and updates of parts. Raises :class:`TaskfuseError`."""
    fusion.check()
    for expr in fusion.exprs():
        if isinstance(expr, Update):
            _check_update(fusion, expr)
    _check_views(fusion)
    for group in fusion.tasks.groups():
        check_pingpong(group)
        if group.ptype is not None and group.ptype.is_cluster and is_vertical(group):
            raise UnsupportedError(
                what=f"vertical group {group.name} on {group.ptype.value}",
                reason="rings between the blocks of a cluster are not supported yet",
                help="parallelize it on a thread or block index type",
                location=group.location,
            )


def _check_views(fusion: Fusion) -> None:
    """Check that a view with code shares the loops into which its operands are inlined: a task may have claimed it after inlining."""
    views = [e for e in fusion.exprs() if isinstance(e, View) and has_code(fusion, e)]
    keys = Keys(fusion) if views else None
    for view in views:
        for tv in dict.fromkeys(read.tensor for read in storage_reads(fusion, view)):
            depth = 0 if tv.is_input else tv.schedule.inline
            assert keys is not None
            different = next((d for k in range(depth) if (d := mismatch(keys, tv, view, k)) is not None), None)
            if different is not None:
                why = f"{view.output.name}, a view, got code of its own from a task, and {different}"
                raise Call("inline_at", tv).error(why, "inline after that, or leave the view out of tasks: its readers then read what is behind it")


def _check_update(fusion: Fusion, expr: Update) -> None:
    """Check that an update's target is the first part of the assembly that contains the update, and that nothing else reads either."""
    tv, first = expr.output, expr.target.tensor
    wholes = tv.uses
    whole = wholes[0] if len(wholes) == 1 and isinstance(wholes[0], Assemble) else None
    if whole is None or whole.parts[0].tensor is not first or tv.is_output or first.is_output:
        reason = f"it updates {first.name}, but the two are not parts of one tensor whose first part is {first.name}"
    elif any(use is not whole and not (isinstance(use, Update) and use.target.tensor is first) for use in first.uses):
        reason = f"it updates {first.name}, which others read"
    else:
        return
    help = "call unscatter() before other calls, and do not copy the updated tensor or the updates"
    raise UnsupportedError(what=f"the update {tv.name}", reason=reason, help=help, location=expr.location)


def prepare(fusion: Fusion) -> Fusion:
    """See the module."""
    fusion, _ = copy_fusion(fusion)
    _remove_unneeded(fusion)
    _own_parts(fusion)
    if not any(g.ptype is not None for g in fusion.tasks.groups()):
        return fusion
    groups = [g for g in fusion.tasks.groups() if is_vertical(g)]
    separated: set[TensorView] = set()
    for group in reversed(groups):
        tree = complete(fusion)
        separated.update(tv for tv in list(tree.place) if _separate(fusion, tree, group, tv))
    for tv in separated:
        tv.schedule.stages = 1  # the rings are those of the boundary copies
    return fusion


def _remove_unneeded(fusion: Fusion) -> None:
    """Take away what no output needs, unless a task claims it."""
    if fusion.outputs:
        fusion.remove_unread(fusion.tensors())


def _own_parts(fusion: Fusion) -> None:
    """Give each part of an assembly a tensor of its own: a copy, if the part is an output too or is a part elsewhere."""
    taken: set[TensorView] = set()
    for expr in fusion.exprs():
        if not isinstance(expr, Assemble):
            continue
        parts: list[Read] = []
        for part in expr.parts:
            tv = part.tensor
            if tv.is_output or tv in taken:
                tv = _copy(fusion, tv)
                join_task(tv, part.tensor)
            taken.add(tv)
            parts.append(Read(tv, part.index, part.valid))
        fusion.define(replace(expr, parts=tuple(parts)))
        for part in parts:
            if isinstance(update := fusion.definition(part.tensor), Update):  # of the element where it lies, which may be a copy
                fusion.define(replace(update, operands=(replace(update.target, tensor=parts[0].tensor), *update.operands[1:])))


def _separate(fusion: Fusion, tree: Tree, group: Group, tv: TensorView) -> bool:
    """Give the readers of ``tv`` in other members a copy, if it is not only a boundary. True if it did."""
    path = tree.path(tv)
    if group not in path:
        return False
    mine = path[path.index(group) + 1]
    outside: list[TensorView] = []
    elsewhere = tv.is_output
    for expr in fusion.exprs():
        direct = isinstance(expr, Assemble) and any(p.tensor is tv for p in expr.parts)
        elsewhere = elsewhere or direct
        if not has_code(fusion, expr) or not among(tv, producers(fusion, expr.output)):
            continue
        other = tree.path(expr.output)
        if group in other and mine not in other:
            outside.append(expr.output)
        else:
            elsewhere = True
    if not outside or not elsewhere:
        return False
    copy = _copy(fusion, tv)
    for reader in outside:
        expr = fusion.definition(reader)
        assert expr is not None
        fusion.define(_reading(fusion, expr, tv, copy))
    join_task(copy, tv)
    return True


def _free_name(fusion: Fusion, tv: TensorView) -> str:
    """``tv1.b``, ``tv1.b2``, ...: a tensor can be a boundary of several nested groups."""
    names = {t.name for t in fusion.tensors()}
    count = 1
    while (name := f"{tv.name}.b{count if count > 1 else ''}") in names:
        count += 1
    return name


def _copy(fusion: Fusion, tv: TensorView) -> TensorView:
    """A copy with the loop domain, inline position and ring of ``tv``."""
    old = tv.schedule
    mapping: dict[Axis, Axis] = {a: axis(a.extent) for a in tv.logical}
    copy = fusion.new_tensor([mapping[a] for a in tv.logical], tv.dtype, name=_free_name(fusion, tv), location=tv.location, origin=tv)
    starts = {a for t in old.transforms for a in t.inputs} | set(old.loop)
    for a in starts:
        if a.kind is AxisKind.FOREIGN and a.source is not None:
            mapping[a] = axis(a.extent, AxisKind.FOREIGN, a.source)
    transforms = replay(old.transforms, mapping)
    loop = [mapping[a] for a in old.loop if a in mapping]
    memory = old.memory if old.memory is MemoryType.Shared and not tv.is_output else None
    copy.schedule = TensorSchedule(
        loop,
        transforms,
        {mapping[a]: p for a, p in old.ptypes.items() if a in mapping and not p.is_atom},
        inline=old.inline,
        memory=memory,
        allocation=None if old.allocation is None or tv.is_output else tuple(mapping[a] for a in old.allocation),
        stages=old.stages,
        ring=old.ring,
    )
    if memory is not None:
        tv.schedule.memory = None
        tv.schedule.allocation = None
    fusion.define(copy_of(tv, copy))
    return copy


def _reading(fusion: Fusion, expr: MathExpr, old: TensorView, new: TensorView) -> MathExpr:
    """``expr``, no assembly, with its storage reads of ``old`` replaced by reads of ``new``."""
    assert not isinstance(expr, Assemble)

    def swap(operand: Read) -> Read:
        read = resolve(fusion, operand)
        return replace(read, tensor=new) if read.tensor is old else read

    return rebuilt(expr, swap)
