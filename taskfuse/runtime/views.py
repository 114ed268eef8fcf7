"""Views passed as arrays: another shape and other strides on the memory of an array of the caller or of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from taskfuse import ops
from taskfuse.cuda.layout import row_major
from taskfuse.errors import FusionError
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, evaluate
from taskfuse.ir.storage import Strided, strided
from taskfuse.runtime.arrays import has_views, is_row_major, part, strides_of
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import one_kernel
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.fallback import fallback

if TYPE_CHECKING:
    from taskfuse.options import Backend


class StridedView:
    """A view of a fusion, made from the array of the tensor behind it: without a copy for a row-major array of NumPy, torch or CuPy, otherwise by a kernel.

    Attributes:
        base: name of the tensor behind it.
        names: arguments of the kernel that copies it, if there is one.

    Args:
        name: of the view.

    Raises:
        FusionError: it has no strides.
    """

    def __init__(self, fusion: Fusion, name: str, backend: Backend) -> None:
        self._fusion = fusion
        self._name = name
        self._backend: Backend = backend
        found = strided(fusion, fusion.tensor(name))
        if found is None:
            raise FusionError(fusion=fusion.name, reason=f"a kernel reads {name}, which no other kernel makes and which is not a view with strides")
        self._place: Strided = found
        self._copy: Executable | None = None
        self.names: tuple[str, ...] = ()
        self.base = found.tensor.name

    def of(self, values: Mapping[str, Any], sizes: Mapping[str, int], stream: Any, seed: int) -> Any:
        """The view.

        Args:
            values: arrays by the names of tensors.
            sizes: values of the dimensions, as far as they are known.
        """
        place = self._place
        wanted = (*place.shape, *place.strides, place.start)
        made = None
        if all(name in sizes for e in wanted for name in e.free):
            numbers = [number(e, sizes) for e in wanted]
            rank = len(place.shape)
            made = _as_strided(values[self.base], numbers[:rank], numbers[rank:-1], numbers[-1])
        return self._copied(values, stream, seed) if made is None else made

    def _copied(self, values: Mapping[str, Any], stream: Any, seed: int) -> Any:
        if self._copy is None:
            whole, tensors = copy_fusion(self._fusion)
            copy = ops.copy(tensors[self._fusion.tensor(self._name)])
            whole.add_output(copy)
            part = Parts(whole).extract([copy], f"{self._fusion.name}_{self._name}")
            fallback(part)
            self.names = tuple(tv.name for tv in part.inputs)
            self._copy = one_kernel(part, self._backend)
        (made,) = self._copy(*[values[name] for name in self.names], stream=stream, seed=seed)
        return made


class Placed(NamedTuple):
    """The layout of a view in an array.

    Attributes:
        strides: in elements.
        start: offset of its first element, in elements.
        outside: its least and greatest indices into the array, if some are out of bounds.
    """

    strides: tuple[int, ...]
    start: int
    outside: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def placed(read: Read, place: Strided, array: Any, sizes: Mapping[str, int]) -> Placed | None:
    """The layout of a view in an array; ``None`` if the strides of the array do not allow the view.

    Args:
        read: the element of the array's tensor that the view reads at a point.
        place: the view of a row-major array.
        sizes: values of the dimensions.

    Raises:
        Unfit: the array is of another framework.
    """
    strides, shape = strides_of(array), [number(e, sizes) for e in place.shape]
    if 0 in shape:  # it has no first element, whose index may have no value
        return Placed(row_major(shape), 0)

    def at(point: Sequence[int]) -> list[int]:
        values = {**sizes, **{str(iteration_symbol(k)): i for k, i in enumerate(point)}}
        return [number(e, values) for e in read.index]

    first = at([0] * len(shape))
    moves = [[0] * len(first) for _ in shape]
    for k, n in enumerate(shape):
        if n > 1:
            moves[k] = [b - a for a, b in zip(first, at([int(j == k) for j in range(len(shape))]), strict=True)]
    reach = [[(n - 1) * move[d] for n, move in zip(shape, moves, strict=True)] for d in range(len(first))]
    if [a + sum(r) for a, r in zip(first, reach, strict=True)] != at([n - 1 for n in shape]):  # axes that a reshape splits or joins
        if list(strides) != list(row_major(array.shape)):
            return None
        return Placed(tuple(number(e, sizes) for e in place.strides), number(place.start, sizes))
    steps = tuple(sum(m * s for m, s in zip(move, strides, strict=True)) for move in moves)
    least = tuple(a + sum(min(m, 0) for m in r) for a, r in zip(first, reach, strict=True))
    greatest = tuple(a + sum(max(m, 0) for m in r) for a, r in zip(first, reach, strict=True))
    if any(low < 0 or high >= n for low, high, n in zip(least, greatest, array.shape, strict=True)):
        return Placed(steps, 0, (least, greatest))
    return Placed(steps, sum(i * s for i, s in zip(first, strides, strict=True)))


def number(e: Expr, sizes: Mapping[str, int]) -> int:
    """The value of an expression of dimensions."""
    return int(evaluate(e, {name: sizes[name] for name in e.free}))


def _as_strided(array: Any, shape: Sequence[int], strides: Sequence[int], start: int) -> Any | None:
    """A view of a row-major array, by strides in elements; ``None`` for other arrays."""
    return part(array, shape, strides, start) if has_views(array) and is_row_major(array) else None
