"""Explicit allocation domains: transforms of a list of axes that do not change the loop domain, and axes bound to index types."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import Axis, Rasterize, Resize, Transform, resize_axis
from taskfuse.ir.scalar import IntLike
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule import domain
from taskfuse.schedule.call import Call, described
from taskfuse.schedule.replay import ancestors


def bind_allocation(call: Call, axis: Axis, ptype: ParallelType) -> None:
    """Bind an axis of the allocation domain alone: its elements are distributed over the indices, which needs Local memory."""
    tv = call.tv
    if ptype is ParallelType.Serial:
        tv.schedule.ptypes.pop(axis, None)
        return
    if not ptype.is_bound:
        raise call.error(f"the allocation axis of extent {axis.extent} cannot be bound to {ptype.value}", "use a block or thread index")
    if tv.schedule.memory not in (None, MemoryType.Local):
        raise call.error(f"an allocation axis is bound in Local memory only, but {tv.name} lives in {tv.schedule.memory.value}")
    tv.schedule.ptypes[axis] = ptype


class AllocationBuilder:
    """A list of axes to be split, merged, reordered, swizzled, padded; then given to ``set_allocation_domain`` of its tensor.

    The tensor does not change until then. The list starts with the loop axes that are the tensor's own (:func:`default_allocation`).
    Positions are those of the list; negative ones count from its end.
    """

    __slots__ = ("_axes", "_ptypes", "_transforms", "_tv")

    def __init__(self, tv: TensorView) -> None:
        self._tv = tv
        self._axes = list(default_allocation(tv))
        self._transforms: list[Transform] = []
        self._ptypes: dict[Axis, ParallelType] = {}

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes so far, outermost first."""
        return tuple(self._axes)

    def split(self, axis: int, factor: IntLike, inner: bool = True) -> AllocationBuilder:
        """As :meth:`TensorView.split`."""
        call, position = self._at("split", axis)
        self._transforms.append(domain.split(call, self._axes, position, factor, inner))
        return self

    def merge(self, outer: int, inner: int | None = None) -> AllocationBuilder:
        """As :meth:`TensorView.merge`."""
        call, a = self._at("merge", outer)
        b = call.position(a + 1 if inner is None else inner, self._axes, "allocation")
        self._transforms.append(domain.merge(call, self._axes, a, b))
        return self

    def reorder(self, order: dict[int, int] | Sequence[int]) -> AllocationBuilder:
        """As :meth:`TensorView.reorder`."""
        new = domain.permutation(Call("allocation.reorder", self._tv), self._axes, order, "allocation")
        self._axes = [self._axes[k] for k in new]
        return self

    def swizzle(self, x: int, y: int) -> AllocationBuilder:
        """As :meth:`TensorView.swizzle`."""
        call, a = self._at("swizzle", x)
        b = call.position(y, self._axes, "allocation")
        self._transforms.append(domain.swizzle(call, self._axes, a, b))
        return self

    def pad(self, axis: int, elements: int) -> AllocationBuilder:
        """Pad each run of ``axis`` with ``elements`` unused elements."""
        call, position = self._at("pad", axis)
        if elements < 0:
            raise call.error(f"{elements} places are fewer than 0")
        made: Resize = resize_axis(self._axes[position], 0, elements)
        self._transforms.append(made)
        self._axes[position] = made.result
        return self

    def parallelize(self, axis: int, ptype: ParallelType) -> AllocationBuilder:
        """Spread the elements over the indices of ``ptype``: each holds those of its own value of the axis (Local memory only)."""
        call, position = self._at("parallelize", axis)
        a = self._axes[position]
        if a in self._tv.schedule.loop:
            raise call.error(f"{described(position, a)} is a loop axis", "bind it as a loop axis: tensor.axis(k).parallelize(ptype)")
        self._ptypes[a] = ptype
        return self

    def __call__(self, tensor: TensorView) -> tuple[Axis, ...]:
        """Adds the transforms to ``tensor``. Called by ``set_allocation_domain``."""
        call = Call("allocation", self._tv)
        if tensor is not self._tv:
            raise call.error(f"it was built for {self._tv.name}, not for {tensor.name}", f"tf.allocation({tensor.name}) starts one for it")
        made = {a for t in self._transforms for a in t.outputs}
        known = {*tensor.logical, *tensor.schedule.loop, *(a for t in tensor.schedule.transforms for a in t.outputs), *made}
        tensor.schedule.transforms += [t for t in self._transforms if t not in tensor.schedule.transforms and all(a in known for a in t.inputs)]
        for a, ptype in self._ptypes.items():
            bind_allocation(call, a, ptype)
        return tuple(self._axes)

    def _at(self, name: str, axis: int) -> tuple[Call, int]:
        call = Call(f"allocation.{name}", self._tv)
        return call, call.position(axis, self._axes, "allocation")


def allocation(tv: TensorView) -> AllocationBuilder:
    """Start an allocation domain for ``tv``; :class:`AllocationBuilder` has the calls."""
    return AllocationBuilder(tv)


def default_allocation(tv: TensorView) -> tuple[Axis, ...]:
    """The loop axes as far as they are derived from the tensor's own axes alone, in the order of the loops; no reduction axes.

    Where a loop axis mixes own and foreign axes or has a backward map only, the axes before that transform take its place.
    """
    transforms = tv.schedule.transforms
    below = {x: {x, *(a for t in made for a in t.inputs)} for x in tv.schedule.loop for made, _ in [ancestors(transforms, [x])]}
    needed = {a for above in below.values() for a in above}
    cover = list(tv.logical)
    for t in transforms:
        if isinstance(t, Rasterize) or not any(o in needed for o in t.outputs) or not all(i in cover for i in t.inputs):
            continue
        at = cover.index(t.inputs[0])
        cover = [a for a in cover if a not in t.inputs]
        cover[at:at] = list(t.outputs)
    place = {x: k for k, x in enumerate(tv.schedule.loop)}

    def rank(a: Axis) -> int:
        return place.get(a, min((place[x] for x in tv.schedule.loop if a in below[x]), default=-1))

    return tuple(sorted(cover, key=rank))
