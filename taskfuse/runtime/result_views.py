"""Results that are views: strided arrays on the memory of an argument or of a stored tensor, as in NumPy and torch. No kernel copies them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from taskfuse.cuda.arrays import Unfit, is_on_host
from taskfuse.cuda.layout import row_major
from taskfuse.errors import InputError
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.axes import iteration_point, iteration_symbol
from taskfuse.ir.expr import Pointwise, Read, View
from taskfuse.ir.fusion import Fusion, Result
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, ZERO, Expr, ge, prove, simplify, substitute
from taskfuse.ir.storage import Strided, resolve, storage_reads, strided
from taskfuse.ir.tensor import TensorView
from taskfuse.runtime.arrays import has_dtype, has_views, holds, is_row_major, part, strides_of
from taskfuse.runtime.coalesced_axes import coalesced
from taskfuse.runtime.executable import Executable, ResultAdapter
from taskfuse.runtime.result_groups import in_groups
from taskfuse.runtime.views import Placed, number, placed
from taskfuse.schedule.copy import copy_fusion

if TYPE_CHECKING:
    pass


MOST: Final = 256
"""The most signatures of arguments that are cached."""

_Step = tuple[bool, int, tuple[tuple[int, ...], tuple[int, ...], int] | None]
"""A result's source: argument or stored tensor, its position, and the extents, strides and first element there."""


class ResultSource(NamedTuple):
    """The source of a result.

    Attributes:
        is_argument: whether it is an argument, or a stored tensor.
        position: its position.
        view: the element read at a point, and the view; ``None``: all of it.
    """

    is_argument: bool
    position: int
    view: tuple[Read, Strided] | None


@dataclass(frozen=True, slots=True, eq=False)
class Bases:
    """A fusion without the results that are views, and their sources.

    Attributes:
        fusion: it stores the tensors behind the views, except inputs.
        sources: of each result of the original fusion.
    """

    fusion: Fusion
    sources: tuple[ResultSource, ...]


def bases(fusion: Fusion) -> Bases | None:
    """The fusion that stores the tensors behind views instead of copying them; ``None`` if no result is such a view.

    A view of an input is one if no result is written into that input. A view of another tensor is one if that tensor is a result, too, or has at most as many
    elements as all views of it together, so that storing it costs no more. Elementwise tensors between two permutations are stored in the order of their
    sources. Results that are computed in groups are views of what has the axes of the groups (:mod:`taskfuse.runtime.result_groups`).
    """
    grouped = in_groups(fusion)
    grouped = coalesced(grouped or fusion) or grouped
    fusion = grouped or fusion
    wanted = [r.tensor.name for r in fusion.results if r.is_plain and isinstance(fusion.definition(r.tensor), View)]
    if not wanted:
        return None
    whole = grouped or copy_fusion(fusion)[0]
    found: dict[TensorView, Strided] = {}
    for tv in sorted({whole.tensor(name) for name in wanted}, key=lambda tv: tv.id):
        outputs = list(whole.outputs)
        whole.outputs[:] = [o for o in outputs if o is not tv]
        place = strided(whole, tv, repeats=True)
        if place is None or not _may_share(whole, place.tensor) or _lies_as_its_sources(whole, tv, place.tensor):
            whole.outputs[:] = outputs
        else:
            found[tv] = place
    for base in dict.fromkeys(place.tensor for place in found.values()):
        views = [tv for tv, place in found.items() if place.tensor is base]
        if not base.is_input and not among(base, whole.outputs) and not prove(ge(sum(map(_size, views), ZERO), _size(base)), whole.facts()):
            whole.outputs += views
            for tv in views:
                del found[tv]
    if not found:
        return None
    reads = {tv: resolve(whole, Read(tv, tuple(iteration_symbol(k) for k in range(tv.ndim)))) for tv in found}
    asked, results = list(whole.results), dict[TensorView, Result]()
    for r in asked:
        base = found[r.tensor].tensor if r.tensor in found else r.tensor
        if not base.is_input:
            results[base] = Result(base) if r.tensor in found and base not in results else r if base is r.tensor else results[base]
    whole.outputs[:] = results
    whole.results[:] = results.values()
    order = {tv: k for k, tv in enumerate(results)}
    inputs = {tv: k for k, tv in enumerate(whole.inputs)}
    sources: list[ResultSource] = []
    for r in asked:
        view = (reads[r.tensor], found[r.tensor]) if r.tensor in found else None
        base = r.tensor if view is None else view[1].tensor
        sources.append(ResultSource(base.is_input, inputs[base] if base.is_input else order[base], view))
    return Bases(whole, tuple(sources))


def _may_share(fusion: Fusion, base: TensorView) -> bool:
    """Whether the array of a tensor lies as views expect it, and holds what they are views of after a call."""
    if not base.is_input:
        return all(r.is_plain for r in fusion.results if r.tensor is base)
    changed = [r.into for r in fusion.results if r.into is not None]
    return all(tv is not base and getattr(strided(fusion, tv), "tensor", None) is not base for tv in changed)


def _lies_as_its_sources(fusion: Fusion, tv: TensorView, base: TensorView) -> bool:
    """Whether a view has elements in the order of what its elementwise base is computed of, which that reads in another one: channels last again, after math
    on channels first, whether groups of channels are one axis there or two."""
    if not isinstance(fusion.definition(base), Pointwise) or among(base, fusion.outputs):
        return False
    seen = resolve(fusion, Read(tv, iteration_point(tv.ndim)))
    at = {str(iteration_symbol(k)): e for k, e in enumerate(seen.index)}
    own, whole = iteration_point(base.ndim), {str(iteration_symbol(k)) for k, e in enumerate(base.shape) if e is not ONE}
    sources = [r for r in _sources(fusion, base) if whole <= frozenset[str]().union(*(e.free for e in r.index))]
    facts = fusion.facts().with_ranges({str(iteration_symbol(k)): (0, e - 1) for k, e in enumerate(tv.shape)})
    here = simplify(_offset(iteration_point(tv.ndim), tv.shape), facts)
    is_turned = any(r.index != own and simplify(_offset(r.index, r.tensor.shape) - _offset(own, base.shape), facts) is not ZERO for r in sources)
    return is_turned and all(simplify(_offset([substitute(e, at) for e in r.index], r.tensor.shape), facts) is here for r in sources)


def _offset(index: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The place of an element in the order of memory."""
    return reduce(lambda found, axis: found * axis[1] + axis[0], zip(index, shape, strict=True), ZERO)


def _sources(fusion: Fusion, tv: TensorView) -> list[Read]:
    """What elementwise math before a tensor reads at its points: other tensors, and those read in another order."""
    found: list[Read] = []
    seen, stack = {tv}, [tv]
    while stack:
        definition = fusion.definition(stack.pop())
        assert definition is not None
        for read in storage_reads(fusion, definition):
            if read.index != iteration_point(tv.ndim) or not isinstance(fusion.definition(read.tensor), Pointwise):
                found.append(read)
            elif read.tensor not in seen:
                seen.add(read.tensor)
                stack.append(read.tensor)
    return found


def _is_whole(source: ResultSource) -> bool:
    """Whether a result has all elements of one stored tensor in their order: it has another shape at most."""
    if source.is_argument or source.view is None:
        return not source.is_argument
    place = source.view[1]
    steps, step = list[Expr](), ONE
    for extent in reversed(place.shape):
        steps.append(ZERO if extent is ONE else step)
        step = step * extent
    return (
        place.start is ZERO
        and all(simplify(a - b) is ZERO for a, b in zip(place.strides, reversed(steps), strict=True))
        and simplify(step - _size(place.tensor)) is ZERO
    )


def _size(tv: TensorView) -> Expr:
    return reduce(mul, tv.shape, ONE)


class Viewed(ResultAdapter):
    """An executable some of whose results are views of arguments, or of stored tensors.

    Arrays of ``out=`` are filled directly where each is all of a stored tensor, in another shape. All other calls with ``out=``, and those whose arguments do
    not allow a view (a framework without strides, or strides that a reshape cannot keep), use kernels that store all results: those of an executable that the
    first such call compiles.

    Args:
        fusion: its computation.
        run: stores the bases.
        sources: of the results.
        storing: makes an executable of a fusion that stores all results.
    """

    __slots__ = ("_are_whole", "_inputs", "_is_fixed", "_known", "_sources", "_stored", "_storing")

    def __init__(self, fusion: Fusion, run: Executable, sources: Sequence[ResultSource], storing: Callable[[Fusion], Executable]) -> None:
        super().__init__(fusion, run)
        self._sources = tuple(sources)
        self._storing = storing
        self._stored: Executable | None = None
        self._inputs = len(fusion.inputs)
        self._are_whole = [s.position for s in self._sources] == [*range(len(self._sources))] and all(map(_is_whole, self._sources))
        self._is_fixed = not fusion.dims and not any(s.is_argument for s in sources)
        self._known: dict[Hashable, tuple[_Step, ...] | None] = {}  # replaced, not emptied: others may read it

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """See :meth:`Executable.__call__`. ``out`` has an array for each result: kernels store all of them there."""
        if named:
            args = self.in_order(args, named)
        if out is not None and (given := self._given(args, out)) is not None:
            self.inner(*args, out=tuple(array for _, array in given), stream=stream, seed=seed)
            return tuple(array for array, _ in given)
        steps = None if out is not None else self._steps(args)
        if steps is None:
            if self._stored is None:
                self._stored = self._storing(self._fusion)
            return self._stored(*args, out=out, stream=stream, seed=seed)
        made = self.inner(*args, stream=stream, seed=seed)
        results: list[Any] = []
        for is_argument, position, place in steps:
            array = args[position] if is_argument else made[position]
            results.append(array if place is None else part(array if hasattr(array, "shape") else np.asarray(array), *place))
        return tuple(results)

    def _given(self, args: tuple[Any, ...], out: Any) -> list[tuple[Any, Any]] | None:
        """Arrays for results, each with a view of it in the shape of the stored tensor, in the order of these; ``None``: the arrays do not allow that, as where
        a result is only a part of what is stored."""
        given = tuple(cast(Sequence[Any], out)) if isinstance(out, tuple | list) else (out,)
        if not self._are_whole or len(given) != len(self._sources) or len(args) != len(self.arguments):
            return None
        try:
            if not all(map(has_views, (*args[: self._inputs], *given))):
                return None
            sizes = bind_shapes(self._fusion, [tuple(a.shape) for a in args[: self._inputs]], args[len(args) - len(self._fusion.integers) :])
            found: list[tuple[Any, Any]] = []
            for array, (_, _, view) in zip(given, self._sources, strict=True):
                if view is None:
                    found.append((array, array))
                    continue
                place = view[1]
                if not is_row_major(array) or not holds(array, [number(e, sizes) for e in place.shape], place.tensor.dtype):
                    return None
                shape = [number(e, sizes) for e in place.tensor.shape]
                found.append((array, array.reshape(shape)))
        except (TypeError, AttributeError, ValueError, Unfit, InputError):  # the call says what does not fit
            return None
        return found

    def _steps(self, args: tuple[Any, ...]) -> tuple[_Step, ...] | None:
        """How the results of a call are made; ``None``: by kernels that store them."""
        form: Hashable
        try:
            if self._is_fixed:
                form = tuple([a.__class__ for a in args])
            else:
                own = [(a.__class__, tuple(a.shape), a.dtype, strides_of(a)) for a in args[: self._inputs]]
                form = len(args), tuple(own), args[len(args) - len(self._fusion.integers) :]
            known = form in self._known
        except (TypeError, AttributeError, Unfit):  # where arrays are looked at one by one, it is said which one does not fit
            return self._worked_out(args)
        if known:
            return self._known[form]
        steps = self._worked_out(args)
        self._known = {**(self._known if len(self._known) < MOST else {}), form: steps}
        return steps

    def _worked_out(self, args: tuple[Any, ...]) -> tuple[_Step, ...] | None:
        """:meth:`_steps` of a call of another form than all before. Raises :class:`InputError` for arguments that do not fit."""
        fusion = self._fusion
        self.check_count(len(args))
        arrays = [np.asarray(a) if is_on_host(a) else a for a in args[: self._inputs]]
        if not all(map(has_views, arrays)):
            return None
        sizes = bind_shapes(fusion, [tuple(a.shape) for a in arrays], args[len(args) - len(fusion.integers) :])
        steps: list[_Step] = []
        for source in self._sources:
            found: Placed | None = None
            if source.view is None:
                steps.append((source.is_argument, source.position, None))
                continue
            read, place = source.view
            shape = tuple(number(e, sizes) for e in place.shape)
            if source.is_argument:
                array, tv = arrays[source.position], fusion.inputs[source.position]
                if not has_dtype(array, tv.dtype):
                    reason = f"'{tv.name}' has dtype {array.dtype}, not {tv.dtype}"
                    raise InputError(index=source.position, fusion=fusion.name, reason=reason, help=f"pass it converted to {tv.dtype}")
                found = placed(read, place, array, sizes)
                if found is None or found.outside is not None or any(s < 0 for s in strides_of(array)):
                    return None
            elif 0 in shape:
                found = Placed(row_major(shape), 0)
            else:
                found = Placed(tuple(number(e, sizes) for e in place.strides), number(place.start, sizes))
            steps.append((source.is_argument, source.position, (shape, found.strides, found.start)))
        return tuple(steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return Viewed, (self._fusion, self.inner, self._sources, self._storing)

    def __repr__(self) -> str:
        return f"Viewed({self.inner!r})"
