"""Binding the arguments of a kernel: the values of its symbols from shapes and integers, and the kernel at given extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Integral
from typing import cast

from taskfuse.errors import InputError, LaunchError, shown
from taskfuse.ir.arguments import integer_argument, is_solvable, solve_extent
from taskfuse.ir.scalar import Expr, Sym, UpperBound, const, evaluate, substitute
from taskfuse.kir.declarations import Argument, Dim3, IntegerParam, ScalarParam, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.walk import map_definition, map_expressions, map_stmts


def wanted(kernel: Kernel) -> tuple[Argument, ...]:
    """The parameters that the caller passes, in order: inputs, run-time scalars and integers."""
    return tuple(p for p in kernel.params if isinstance(p, ScalarParam | IntegerParam) or (isinstance(p, TensorParam) and not p.is_output))


def check_count(kernel: Kernel, given: int) -> None:
    """Raises :class:`InputError` unless ``given`` is the number of arguments that the caller must pass."""
    params = wanted(kernel)
    if given != len(params):
        takes = ", ".join(p.name for p in params) or "none"
        reason = f"{given} arguments given, {len(params)} expected"
        raise InputError(index=min(given, len(params)), fusion=kernel.name, reason=reason, help=f"the arguments are: {takes}")


def check_extents(kernel: Kernel, extents: Mapping[str, int]) -> None:
    """Check the names and values of extents.

    Raises:
        LaunchError: the kernel has no such extent, or its declaration excludes the value.
    """
    check_names(kernel, extents)
    declared = {e.name: e for e in kernel.extents}
    for name, value in extents.items():
        if not declared[name].admits(value, extents):
            raise LaunchError(kernel=kernel.name, reason=f"{name} is {value}; it must be {declared[name].allowed}")


def check_names(kernel: Kernel, extents: Mapping[str, int]) -> None:
    """Check what stands for extents: their names, and that the values are integers.

    Raises:
        LaunchError: the kernel has no such extent, or a value is no integer.
    """
    declared = [e.name for e in kernel.extents]
    for name, value in extents.items():
        if name not in declared:
            near = get_close_matches(name, declared, n=1)
            help = f"did you mean {near[0]}?" if near else f"its extents are {', '.join(declared) or 'none'}"
            raise LaunchError(kernel=kernel.name, reason=f"it has no extent {name}", help=help)
        if isinstance(value, bool) or not isinstance(cast("object", value), Integral):
            raise LaunchError(kernel=kernel.name, reason=f"{name} is {shown(value)}, which is no integer")


def check_rank(kernel: Kernel, index: int, param: TensorParam, ndim: int) -> None:
    """Raises :class:`InputError` unless argument ``index`` has as many axes as ``param``."""
    if ndim != len(param.shape):
        raise InputError(index=index, fusion=kernel.name, reason=f"'{param.name}' has {ndim} axes, not {len(param.shape)}")


def bind_symbols(
    kernel: Kernel, shapes: Mapping[str, Sequence[int]], given: Mapping[str, int] | None = None, integers: Mapping[str, object] | None = None
) -> dict[str, int]:
    """Values of the extents.

    Args:
        shapes: shape of each input, by name, with the declared rank.
        given: values of extents that no input's shape determines; ``None``: the caller passes none.
        integers: the value of each integer argument, by name.

    Raises:
        InputError: an extent has two values, or none, or one that breaks its facts; an integer argument is not an integer.
        ZeroDivisionError, IndexError: an expression of a shape has no value.
    """
    symbols = dict(given or {})
    places = {p.name: index for index, p in enumerate(wanted(kernel)) if isinstance(p, IntegerParam)}
    for name, value in (integers or {}).items():
        number = integer_argument(kernel.name, places[name], name, value)
        if symbols.setdefault(name, number) != number:
            raise InputError(index=places[name], fusion=kernel.name, reason=f"{name} is {number}, but it is given as {symbols[name]}, too")
    inputs = [(index, p) for index, p in enumerate(wanted(kernel)) if isinstance(p, TensorParam)]
    for index, param in inputs:
        for axis, (extent, size) in enumerate(zip(param.shape, shapes[param.name], strict=True)):
            if isinstance(extent, Sym) and symbols.setdefault(extent.name, size) != size:
                reason = f"axis {axis} of '{param.name}' has extent {size}, but {extent} is {symbols[extent.name]}"
                raise InputError(index=index, fusion=kernel.name, reason=reason)
    _solve(kernel, inputs, shapes, symbols)
    for extent in kernel.extents:
        if extent.name not in symbols:
            reason = f"no input has the extent {extent.name}"
            alone = "a call takes extents from the shapes of its inputs: use the dimension in one of them"
            help = alone if given is None else f"give it as extents={{'{extent.name}': ...}}"
            raise InputError(index=len(inputs), fusion=kernel.name, reason=reason, help=help)
        size = symbols[extent.name]
        if not extent.admits(size, symbols):
            index = places.get(extent.name, next((k for k, p in inputs if any(extent.name in e.free for e in p.shape)), len(inputs)))
            known = {name: symbols[name] for name in sorted(extent.bound.free if extent.bound is not None else ()) if name in symbols}
            where = f" where {', '.join(f'{name} is {value}' for name, value in known.items())}" if known else ""
            raise InputError(index=index, fusion=kernel.name, reason=f"{extent.name} is {size}; it must be {extent.allowed}{where}")
    for index, param in inputs:
        for axis, (extent, size) in enumerate(zip(param.shape, shapes[param.name], strict=True)):
            expected = integer(extent, symbols)
            if size != expected:
                reason = f"axis {axis} of '{param.name}' has extent {size}, not {extent}" + (f" = {expected}" if extent.free else "")
                raise InputError(index=index, fusion=kernel.name, reason=reason)
    return symbols


def integer(expr: Expr, symbols: Mapping[str, int]) -> int:
    """The value of an expression whose symbols all have values. Raises ZeroDivisionError or IndexError if it has none."""
    return int(evaluate(expr, symbols))


def _solve(kernel: Kernel, inputs: list[tuple[int, TensorParam]], shapes: Mapping[str, Sequence[int]], symbols: dict[str, int]) -> None:
    """Values of the extents that stand only in expressions such as ``4*S``: those that are linear in their one unknown are solved for it."""
    names = {e.name for e in kernel.extents}
    waiting = [(index, p, axis) for index, p in inputs for axis, e in enumerate(p.shape) if not isinstance(e, Sym)]
    while ready := [w for w in waiting if names & w[1].shape[w[2]].free - symbols.keys() and is_solvable(w[1].shape[w[2]], symbols)]:
        index, param, axis = ready[0]
        extent, size = param.shape[axis], shapes[param.name][axis]
        (name,) = names & extent.free - symbols.keys()
        found = solve_extent(extent, name, symbols, size)
        if found is None:
            raise InputError(index=index, fusion=kernel.name, reason=f"axis {axis} of '{param.name}' has extent {size}, which {extent} cannot be")
        symbols[name] = found


def specialized(kernel: Kernel, extents: Mapping[str, int]) -> Kernel:
    """``kernel`` with its extents replaced by their values. An expression without a value at these extents (``8//0``) is kept.

    Args:
        extents: a value for every extent of the kernel; other names are ignored.

    Raises:
        InputError: an extent has no value, or one that breaks its declared facts.
    """
    values: dict[str, Expr] = {}
    for e in kernel.extents:
        size = extents.get(e.name)
        if size is None or not e.admits(size, extents):
            reason = f"extent {e.name} is not given" if size is None else f"{size} is not a value of extent {e.name}"
            raise InputError(index=0, fusion=kernel.name, reason=reason)
        values[e.name] = const(size)

    def at(e: Expr) -> Expr:
        return substitute(e, values) if e.free else e

    def shape(extents: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(at, extents))

    def tensor(p: TensorParam) -> TensorParam:
        rises = None if p.rises is None else (at(p.rises[0]), at(p.rises[1]))
        holds = None if p.holds is None else at(p.holds)
        lengths = None if p.lengths is None else at(p.lengths)
        return replace(
            p, shape=shape(p.shape), rises=rises, lengths=lengths, holds=holds if isinstance(holds, UpperBound) else None
        )  # one group: there is no search left

    return replace(
        kernel,
        extents=(),
        params=tuple(tensor(p) if isinstance(p, TensorParam) else p for p in kernel.params if not isinstance(p, IntegerParam)),
        grid=cast("Dim3", shape(kernel.grid)),
        block=cast("Dim3", shape(kernel.block)),
        cluster=cast("Dim3", shape(kernel.cluster)),
        buffers=tuple(replace(b, shape=shape(b.shape), offset=None if b.offset is None else at(b.offset)) for b in kernel.buffers),
        semaphores=tuple(replace(s, shape=shape(s.shape), count=at(s.count)) for s in kernel.semaphores),
        queues=tuple(replace(q, size=at(q.size)) for q in kernel.queues),
        body=map_stmts(kernel.body, lambda s: map_expressions(s, at)),
        definitions=tuple(map_definition(d, at) for d in kernel.definitions),
        written=tuple(map_definition(d, at) for d in kernel.written),
    )
