"""Building an allocation domain by hand: transforms of a list of axes that leave the loop domain alone."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import Axis, Rasterize, Resize, Transform, resize_axis
from taskfuse.ir.scalar import IntLike
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule import domain
from taskfuse.schedule.call import Call, described
from taskfuse.schedule.parallelize import bind_allocation
from taskfuse.schedule.replay import ancestors


class AllocationBuilder:
    """A list of axes to be split, merged, reordered, swizzled, padded; then given to ``set_allocation_domain`` of its tensor.

    Nothing changes in the tensor until then. It starts with the loop axes that are neither reduction nor foreign, or with the logical axes
    if some loop axis is partly foreign or rasterized. Positions are those of the list; negative ones count from its end.
    """

    __slots__ = ("_axes", "_ptypes", "_transforms", "_tv")

    def __init__(self, tv: TensorView) -> None:
        self._tv = tv
        self._axes = _start(tv)
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
        """Leave ``elements`` places unused at the end of each run of ``axis``."""
        call, position = self._at("pad", axis)
        if elements < 0:
            raise call.error(f"{elements} places are less than none")
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


def _start(tv: TensorView) -> list[Axis]:
    own = [a for a in tv.schedule.loop if not a.is_reduction and not a.is_foreign]
    for a in own:
        made, starts = ancestors(tv.schedule.transforms, [a])
        if any(s.is_foreign for s in starts) or any(isinstance(t, Rasterize) for t in made):
            return list(tv.logical)
    return own
