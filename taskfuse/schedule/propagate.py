"""Propagation: applying one tensor's transforms, or parallel types, to others."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.errors import shown
from taskfuse.ir.axes import Axis, AxisKind, Transform, axis, iteration_position
from taskfuse.ir.scalar import ge, prove
from taskfuse.ir.signatures import checked
from taskfuse.ir.storage import reads_of
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.parallelize import parallelize
from taskfuse.schedule.replay import ancestors, expand, replay


def propagate(tv: TensorView, targets: Sequence[TensorView], upto: int | None = None) -> None:
    """See :meth:`TensorView.propagate`.

    An axis of ``tv`` becomes the axis of the target that op maps identify with it, preferably by a direct read; otherwise a
    foreign one. After the rebuilt axes stand the target's others. With ``upto=None`` axes that are purely foreign are left out. Parallel
    types are not copied; ``tv`` itself among the targets is skipped.

    Raises:
        ScheduleError: if a target has a schedule already, belongs to another fusion, or a merge would mix its reduction and iteration axes.
    """
    propagate_with(Keys(tv.fusion), tv, targets, upto)


def propagate_with(known: Keys, tv: TensorView, targets: Sequence[TensorView], upto: int | None = None) -> None:
    """:func:`propagate` where the keys of the fusion are known; they then include the new axes."""
    call = Call("propagate", tv)
    n = len(tv.schedule.loop)
    if upto is not None and not 0 <= upto <= n:
        raise call.error(f"upto={upto} is out of range: the loop domain has {n} axes", f"use a number in [0, {n}]")
    others = [t for t in dict.fromkeys(call.several(targets, "tensors")) if t is not tv]
    for target in others:
        if not isinstance(target, TensorView):
            raise call.error(f"{shown(target)} is not a tensor", "give a list of tensors")
        _check_pristine(call, target)
    results = [(target, *_rebuild(call, known, target, upto)) for target in others]
    for target, loop, transforms in results:
        target.schedule.loop, target.schedule.transforms = loop, transforms
        known.add_loops(target)


@checked
def parallelize_like(ref: TensorView, targets: Sequence[TensorView], keys: Keys | None = None) -> None:
    """Bind the loop axes of ``targets`` as the axes of ``ref`` with equal keys are; atoms are not copied, axes that are bound already stay.

    Args:
        keys: those of the fusion, if they are known.

    Raises:
        ScheduleError: if a target belongs to another fusion.
    """
    call = Call("parallelize_like", ref)
    for target in targets:
        if target.fusion is not ref.fusion:
            raise call.error(f"{target.name} belongs to fusion '{target.fusion.name}'")
    known = Keys(ref.fusion) if keys is None else keys
    for target in targets:
        free = [a for a in target.schedule.loop if target.schedule.ptype(a) is ParallelType.Serial]
        for a in ref.schedule.loop:
            ptype = ref.schedule.ptype(a)
            found = next((b for b in free if known.equal(a, b)), None)
            if found is not None:
                free.remove(found)
                if not ptype.is_atom:
                    parallelize(target, found, ptype)


def _check_pristine(call: Call, target: TensorView) -> None:
    if target.fusion is not call.tv.fusion:
        raise call.error(f"{target.name} belongs to fusion '{target.fusion.name}'")
    schedule = target.schedule
    help = f"propagate before {target.name} is scheduled on its own"
    if schedule.transforms or schedule.loop != list(target.root):
        raise call.error(f"the loop domain of {target.name} is transformed already", help)
    if any(a in schedule.ptypes for a in schedule.loop):
        raise call.error(f"an axis of {target.name} is bound already", help)
    for x in (target, *inlined_producers(target)):
        if x.schedule.inline:
            raise call.error(f"{target.name} shares loops: {x.name} is inlined at {x.schedule.inline}", help)


def _rebuild(call: Call, keys: Keys, target: TensorView, upto: int | None) -> tuple[list[Axis], list[Transform]]:
    """The new loop domain of ``target`` and the transforms that make it."""
    ref = call.tv
    wanted = ref.schedule.loop if upto is None else ref.schedule.loop[:upto]
    needed, starts = ancestors(ref.schedule.transforms, wanted)
    mapping = _correspondence(keys, ref, target, [*(a for a in ref.root if a in starts), *(a for a in starts if a not in ref.root)])
    foreign = [a for a in mapping.values() if a.is_foreign]
    made: list[Transform] = []
    for t in needed:
        kinds = {mapping[a].kind for a in t.inputs}
        if kinds >= {AxisKind.REDUCTION, AxisKind.ITERATION}:
            extents = " and ".join(str(a.extent) for a in t.inputs)
            raise call.error(
                f"it merges axes (extents {extents}) of which {target.name} reduces only some", f"leave out {target.name}, or propagate fewer axes (upto)"
            )
        made += replay([t], mapping)
    rebuilt = [mapping[a] for a in wanted if upto is not None or not mapping[a].is_foreign]
    rest = [a for a in expand([*target.root, *foreign], made) if a not in rebuilt and not a.is_foreign]
    loop = rebuilt + rest
    return loop, ancestors(made, loop)[0]


def _correspondence(keys: Keys, ref: TensorView, target: TensorView, starts: Sequence[Axis]) -> dict[Axis, Axis]:
    """Each of ``starts`` (untransformed axes of ``ref``) to an axis of ``target`` of equal key, each used once, or to a fresh foreign one."""
    free = dict.fromkeys(target.root)
    mapping: dict[Axis, Axis] = {}
    for candidates in (_direct(ref, target), None):
        for a in starts:
            if a in mapping:
                continue
            found = next((b for b in (free if candidates is None else candidates.get(a, ())) if b in free and keys.equal(a, b)), None)
            if found is not None:
                mapping[a] = found
                free.pop(found)
    for a in starts:
        if a not in mapping:
            if not prove(ge(a.extent, 1), ref.fusion.facts()):
                raise Call("propagate", ref).error(
                    f"{target.name} would share a loop over an axis that it lacks and whose extent {a.extent} may be 0: it would not be computed at all",
                    "declare the extent with tf.dim(..., min=1), or leave the target out",
                )
            mapping[a] = axis(a.extent, AxisKind.FOREIGN, a)
    return mapping


def _direct(ref: TensorView, target: TensorView) -> dict[Axis, list[Axis]]:
    """Pairs of axes of ``ref`` and ``target`` that a read of one by the other identifies."""
    found: dict[Axis, list[Axis]] = {}
    for reader, read in ((ref, target), (target, ref)):
        for r in (r for r in reads_of(reader.fusion, reader) if r.tensor is read):
            for own, index in zip(read.logical, r.index, strict=True):
                position = iteration_position(index)
                if position is not None:
                    a, b = (reader.root[position], own) if reader is ref else (own, reader.root[position])
                    found.setdefault(a, []).append(b)
    return found
