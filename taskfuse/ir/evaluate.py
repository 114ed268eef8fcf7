"""The NumPy reference: the meaning of a fusion, computed without a schedule.

Every expression is evaluated from its op map. Reads whose index expressions each depend on one iteration symbol of their own become slices,
transpositions and broadcasts; any other read is a gather at a grid of indices. Sums of products become matrix products, so that the
iteration space of a matmul is never stored. Sums and products of floats are accumulated in float64 and rounded once to the dtype that the
reduction computes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, int64
from taskfuse.ir.arguments import Argument, bind_symbols, check_count, scalar_argument
from taskfuse.ir.axes import Axis, Rasterize, iteration_position, iteration_symbol, value_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import (
    Assemble,
    Finder,
    FirstValid,
    Fold,
    Gather,
    IndexValue,
    Literal,
    MathExpr,
    Operand,
    Pointwise,
    Read,
    Reduction,
    ScalarRead,
    Scan,
    Update,
    View,
    operand_dtype,
)
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.offsets import offsets, offsets_name
from taskfuse.ir.scalar import ZERO, Expr
from taskfuse.ir.scalar import evaluate as evaluate_expr
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.values import NATIVE, Values

Array = npt.NDArray[Any]
_RANKS = 256  # terms of one element that are combined at once


def evaluate(fusion: Fusion, arguments: Sequence[Argument], values: Values = NATIVE) -> tuple[Array, ...]:
    """The results of a call of ``fusion``, as new arrays; the arguments are not changed.

    Args:
        fusion: the fusion.
        arguments: one array per input, then one number per run-time scalar, then the run-time integers.
        values: the value mode; with ``MODULAR``, floats may be passed as floats or as uint64 words, and results are words.

    Raises:
        FusionError: for a wrong number of arguments, or a dimension that no input determines.
        InputError: for an argument that does not fit.
    """
    tensors = evaluate_tensors(fusion, arguments, values)
    return tuple(np.array(tensors[r.tensor]) for r in fusion.results)


def evaluate_tensors(fusion: Fusion, arguments: Sequence[Argument], values: Values = NATIVE) -> dict[TensorView, Array]:
    """Every tensor of ``fusion``; see :func:`evaluate`. The arrays may share memory with each other and with the arguments."""
    check_count(fusion, len(arguments))
    count = len(fusion.inputs)
    arrays = [np.asarray(a) for a in arguments[:count]]
    last = count + len(fusion.scalars)
    tables = {tv: array.astype(np.int64) for tv, array in zip(fusion.inputs, arrays, strict=False) if tv in fusion.tables}
    symbols: dict[str, Any] = {**bind_symbols(fusion, arrays, arguments[last:], values), **{tv.name: array for tv, array in tables.items()}}
    for tv, array in tables.items():
        if fusion.tables[tv].lengths:
            symbols[offsets_name(tv.name)] = offsets(array, int(evaluate_expr(fusion.tables[tv].high, symbols)))
    given = enumerate(zip(fusion.scalars, arguments[count:last], strict=True), start=count)
    scalars = {s: scalar_argument(fusion.name, position, s.name, s.dtype, a, values) for position, (s, a) in given}
    tensors = {tv: values.encode(array, tv.dtype) for tv, array in zip(fusion.inputs, arrays, strict=True)}
    reference = _Reference(values, symbols, scalars, tensors)
    for expr in fusion.exprs():
        tensors[expr.output] = reference.compute(expr)
    return tensors


class _Reference:
    """Evaluates expressions one by one into ``tensors``."""

    def __init__(self, values: Values, symbols: Mapping[str, int], scalars: Mapping[Scalar, Array], tensors: Mapping[TensorView, Array]) -> None:
        self.values = values
        self.symbols = symbols
        self.scalars = scalars
        self.tensors = tensors

    def compute(self, expr: MathExpr) -> Array:
        space = tuple(self.integer(a.extent) for a in expr.output.root)
        match expr:
            case Pointwise():
                return self.pointwise(expr, space)
            case FirstValid():
                return self.select(expr, space)
            case Reduction():
                return self.reduction(expr, space)
            case View():
                return np.broadcast_to(self.operand(expr.operand, space), space)
            case Assemble():
                return self.assemble(expr, space)
            case Gather():
                return self.gather(expr, space)
            case Update():
                return np.broadcast_to(self.operand(expr.operands[1], space), space)
            case Scan():
                return self.scan(expr, space)
            case Fold():
                return self.fold(expr, space)

    def integer(self, e: Expr) -> int:
        return int(evaluate_expr(e, self.symbols))

    # -- expressions ----------------------------------------------------------------------------------------------------------------

    def pointwise(self, expr: Pointwise, space: tuple[int, ...]) -> Array:
        dtypes = [operand_dtype(o) for o in expr.operands]
        out = expr.output.dtype
        args = [self.operand(o, space) for o in expr.operands]
        return np.broadcast_to(self.values.apply(expr.op, args, dtypes, expr.op.compute_dtype(dtypes, out), out), space)

    def select(self, expr: FirstValid, space: tuple[int, ...]) -> Array:
        # a 0-d space is taken for one of a single point: NumPy finds no positions in a 0-d array
        result = np.zeros(space or (1,), self.values.storage(expr.output.dtype))
        free = np.ones(space or (1,), np.bool_)
        grid = self.grid(space)
        for operand in expr.operands:
            valid = evaluate_expr(operand.valid, grid) if isinstance(operand, Read) else True
            points = np.nonzero(free & np.asarray(valid, np.bool_))
            here = {**self.symbols, **{f"i{k}": p for k, p in enumerate(points)}}
            match operand:
                case Read():
                    array = self.tensors[operand.tensor]
                    if not points[0].size:
                        continue
                    index = tuple(_checked(evaluate_expr(e, here), n) for e, n in zip(operand.index, array.shape, strict=True))
                    result[points] = array[index]
                case IndexValue():
                    result[points] = self.values.cast(np.asarray(evaluate_expr(operand.index, here), np.int64), int64, expr.output.dtype)
                case Literal() | ScalarRead():
                    result[points] = self.values.cast(self.operand(operand, ()), operand_dtype(operand), expr.output.dtype)
            free[points] = False
        return result.reshape(space)

    def assemble(self, expr: Assemble, space: tuple[int, ...]) -> Array:
        result = np.zeros(space, self.values.storage(expr.output.dtype))
        for part, place in zip(expr.parts, expr.places, strict=True):
            array = self.tensors[part.tensor]
            update = part.tensor.definition
            if array.size and isinstance(update, Update):
                result = self.updated(result, update, part.valid, place)
            elif array.size:
                shape = array.shape or (1,)  # as in a selection
                valid = np.broadcast_to(np.asarray(evaluate_expr(part.valid, self.grid(array.shape)), np.bool_), shape)
                points = np.nonzero(valid)
                here = {**self.symbols, **{f"i{k}": p for k, p in enumerate(points)}}
                index = (_checked(evaluate_expr(e, here), n) for e, n in zip(place, space, strict=True))
                result[tuple(np.broadcast_to(e, points[0].shape) for e in index)] = array.reshape(shape)[points]
        return result

    def updated(self, whole: Array, update: Update, valid: Expr, place: Sequence[Expr]) -> Array:
        """``whole`` combined with all valid points of an update; points of one element are combined with each other first."""
        array, dtype = self.tensors[update.output], update.output.dtype
        grid, inside = self.found(update, array.shape)
        here = np.broadcast_to(inside & np.asarray(evaluate_expr(valid, grid), np.bool_), array.shape)
        if not here.any():
            return whole
        index = (np.broadcast_to(np.asarray(evaluate_expr(e, grid)), array.shape)[here] for e in place)
        chosen: tuple[npt.NDArray[np.int64], ...] = tuple(_checked(e, n) for e, n in zip(index, whole.shape, strict=True))
        cells = np.ravel_multi_index(chosen, whole.shape) if chosen else np.zeros(int(here.sum()), np.int64)
        order = np.argsort(cells, kind="stable")
        cells, terms = cells[order], array[here][order]
        rank = np.arange(len(cells)) - np.searchsorted(cells, cells)
        flat = whole.reshape(-1).copy()
        for first in range(0, int(rank.max()) + 1, _RANKS):
            some = (rank >= first) & (rank < first + _RANKS)
            touched, row = np.unique(cells[some], return_inverse=True)
            table = np.full((len(touched), _RANKS), self.values.literal(update.combine.neutral(dtype), dtype))
            table[row, rank[some] - first] = terms[some]
            flat[touched] = self.values.combine(update.combine, flat[touched], self.values.reduce(update.combine, table, (1,), dtype), dtype)
        return flat.reshape(whole.shape)

    def found(self, expr: Finder, space: tuple[int, ...]) -> tuple[dict[str, Any], Array]:
        """The symbols of an op map with their values, and a mask of the points at which all values are inside their extents; elsewhere they are 0."""
        grid = self.grid(space)
        inside = np.ones((1,) * len(space), np.bool_)
        for k, (value, extent) in enumerate(zip(expr.operands[2:] if isinstance(expr, Update) else expr.operands[1:], expr.extents, strict=True)):
            size = self.integer(extent)
            found = self.operand(value, space).astype(np.int64)
            found = found + size * (found < 0)
            inside = inside & (found >= 0) & (found < size)
            grid[str(value_symbol(k))] = np.where((found >= 0) & (found < size), found, 0)
        return grid, inside

    def gather(self, expr: Gather, space: tuple[int, ...]) -> Array:
        table = expr.operands[0]
        assert isinstance(table, Read)
        grid, inside = self.found(expr, space)
        array = self.tensors[table.tensor]
        if not inside.any():
            return np.zeros(space, array.dtype)
        index = tuple(_checked(evaluate_expr(e, grid), n) for e, n in zip(table.index, array.shape, strict=True))
        return np.broadcast_to(np.where(inside, array[index], np.zeros((), array.dtype)), space)

    def reduction(self, expr: Reduction, space: tuple[int, ...]) -> Array:
        out = expr.output
        wide = out.dtype.compute
        dtypes = [operand_dtype(o) for o in expr.terms]
        args = [self.operand(o, space) for o in expr.terms]
        axes = tuple(k for k, a in enumerate(out.root) if a.is_reduction)
        plain = out.logical == tuple(a for a in out.root if not a.is_reduction)
        if expr.rescaled is not None:
            return self.values.cast(self._rescaled(expr, args, space, axes), wide, out.dtype)
        result: Array | None = None
        if expr.is_whole and plain and expr.body is ELEMENTWISE["mul"] and expr.combine is COMBINES["add"]:
            factors = [self.values.cast(a, d, wide) for a, d in zip(args, dtypes, strict=True)]
            result = self.product(factors[0], factors[1], space, axes, wide)
        if result is None:
            body = self.values.apply(expr.body, args, dtypes, expr.body.compute_dtype(dtypes, wide), wide)
            body = np.broadcast_to(body, space)
            body = self._bounded(expr, body, wide)
            if not plain:
                body, axes = self.regrouped(expr, body)
            result = self.values.reduce(expr.combine, body, axes, wide)
        if expr.init.value != expr.combine.neutral(wide):  # what is neutral for the dtype may be a number to a wider one
            init = self.values.cast(self.values.literal(expr.init.value, expr.init.dtype), expr.init.dtype, wide)
            result = self.values.combine(expr.combine, init, result, wide)
        return self.values.cast(result, wide, out.dtype)

    def _bounded(self, expr: Reduction, body: Array, wide: DType) -> Array:
        """The terms of a reduction, and neutral ones before they start and from their ends on."""
        for k in range(body.ndim):
            inside = self._is_inside(expr, k, body.shape)
            if inside is not None:
                body = np.where(inside, body, self.values.literal(expr.combine.neutral(wide), wide))
        return body

    def _is_inside(self, expr: Reduction, axis: int, space: tuple[int, ...]) -> Array | None:
        """Where points of a space lie between the start and the end of the terms along an axis; ``None``: everywhere."""
        grid = self.grid(space)
        here = grid[f"i{axis}"]
        found = [here >= evaluate_expr(e, grid) for k, e in expr.starts if k == axis]
        found += [here < evaluate_expr(e, grid) for k, e in expr.ends if k == axis]
        return np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*found)), space) if found else None

    def _rescaled(self, expr: Reduction, args: list[Array], space: tuple[int, ...], axes: tuple[int, ...]) -> Array:
        """A sum that is multiplied by a factor before the terms at each index of one axis are added."""
        k, wide = expr.rescaled, expr.output.dtype.compute
        assert k is not None
        dtypes = [operand_dtype(o) for o in expr.operands]
        args = [np.broadcast_to(a, space) for a in (*args, self.operand(expr.operands[-1], space))]
        *terms, factor = args
        kept = [n for j, n in enumerate(space) if j not in axes]
        state = np.broadcast_to(self.values.cast(self.values.literal(0, wide), wide, wide), kept)
        body = self.values.apply(expr.body, terms, dtypes[:-1], expr.body.compute_dtype(dtypes[:-1], wide), wide)
        body = self._bounded(expr, np.broadcast_to(body, space), wide)
        is_inside = self._is_inside(expr, k, space)
        for i in range(space[k]):
            here = tuple(slice(i, i + 1) if j == k else slice(0, 1) if j in axes else slice(None) for j in range(len(space)))
            scale = self.values.cast(factor[here], dtypes[-1], wide).reshape(kept)
            if is_inside is not None:
                scale = np.where(is_inside[here].reshape(kept), scale, self.values.literal(1, wide))
            state = self.values.apply(ELEMENTWISE["mul"], [state, scale], [wide, wide], wide, wide)
            added = self.values.reduce(expr.combine, np.take(body, [i], k), axes, wide)
            state = self.values.combine(expr.combine, state, added, wide)
        return state

    def scan(self, expr: Scan, space: tuple[int, ...]) -> Array:
        (operand,) = expr.operands
        wide = expr.output.dtype.compute
        terms = np.broadcast_to(self.values.cast(self.operand(operand, space), operand_dtype(operand), wide), space)
        if expr.start is not ZERO:
            grid = self.grid(space)
            inside = grid[f"i{expr.axis}"] >= evaluate_expr(expr.start, grid)
            terms = np.where(inside, terms, self.values.literal(expr.combine.neutral(wide), wide))
        totals = self.values.accumulate(expr.combine, terms, expr.axis, wide)
        if expr.is_exclusive and space[expr.axis]:
            first = np.broadcast_to(self.values.literal(expr.combine.neutral(wide), wide), [1 if k == expr.axis else n for k, n in enumerate(space)])
            totals = np.concatenate([first, np.delete(totals, -1, expr.axis)], expr.axis)
        return self.values.cast(totals, wide, expr.output.dtype)

    def fold(self, expr: Fold, space: tuple[int, ...]) -> Array:
        wide, k = expr.output.dtype.compute, expr.axis
        dtypes = [wide, *(operand_dtype(o) for o in expr.operands)]
        terms = [np.broadcast_to(self.operand(o, space), space) for o in expr.operands]
        init = self.values.cast(self.values.literal(expr.init.value, expr.init.dtype), expr.init.dtype, wide)
        state = np.broadcast_to(init, [*space[:k], *space[k + 1 :]])
        for i in range(space[k]):
            state = self.values.apply(expr.step, [state, *(np.take(t, i, k) for t in terms)], dtypes, wide, wide)
        return self.values.cast(state, wide, expr.output.dtype)

    def product(self, a: Array, b: Array, space: tuple[int, ...], axes: tuple[int, ...], dtype: DType) -> Array | None:
        """The sum over ``axes`` of ``a * b`` as a batched matrix product; ``None`` if an operand does not vary over all of ``axes``."""
        if any(a.shape[k] != space[k] or b.shape[k] != space[k] for k in axes):
            return None
        kept = [k for k in range(len(space)) if k not in axes]
        rows = [k for k in kept if a.shape[k] != 1 and b.shape[k] == 1]
        columns = [k for k in kept if b.shape[k] != 1 and a.shape[k] == 1]
        batch = [k for k in kept if k not in rows and k not in columns]
        inner = list(axes)
        left = a.transpose(batch + rows + inner + columns)
        right = b.transpose(batch + inner + columns + rows)
        m, n, k = (_size(space, part) for part in (rows, columns, inner))
        found = self.values.matmul(left.reshape(*left.shape[: len(batch)], m, k), right.reshape(*right.shape[: len(batch)], k, n), dtype)
        found = found.reshape([*found.shape[: len(batch)], *(space[d] for d in rows + columns)])
        order = batch + rows + columns
        return np.broadcast_to(found.transpose([order.index(d) for d in kept]), [space[d] for d in kept])

    def regrouped(self, expr: Reduction, body: Array) -> tuple[Array, tuple[int, ...]]:
        """The body of a reduction whose logical axes come from its root by transforms, as [logical axes..., the rest], and the rest's axis.

        Logical points with fewer root points are padded with the neutral element.
        """
        out = expr.output
        at: dict[Axis, Expr] = {a: iteration_symbol(k) for k, a in enumerate(out.root)}
        for transform in out.schedule.transforms:
            if not isinstance(transform, Rasterize) and all(a in at for a in transform.inputs):
                at.update(zip(transform.outputs, transform.forward(tuple(at[a] for a in transform.inputs)), strict=True))
        shape = tuple(self.integer(a.extent) for a in out.logical)
        grid = self.grid(body.shape)
        index = np.broadcast_arrays(*(evaluate_expr(at[a], grid) for a in out.logical), np.empty(body.shape, np.bool_))[:-1]
        cells = np.ravel_multi_index(index, shape).ravel() if shape else np.zeros(body.size, np.int64)
        order = np.argsort(cells, kind="stable")
        cells = cells[order]
        rank = np.arange(len(cells)) - np.searchsorted(cells, cells)
        neutral = self.values.literal(expr.combine.neutral(out.dtype.compute), out.dtype.compute)
        table = np.full((_size(shape, range(len(shape))), int(rank.max(initial=-1)) + 1), neutral)
        table[cells, rank] = body.ravel()[order]
        return table.reshape(*shape, -1 if table.size else 0), (len(shape),)

    # -- operands -------------------------------------------------------------------------------------------------------------------

    def operand(self, operand: Operand, space: tuple[int, ...]) -> Array:
        """The values of an operand over the iteration space: one dimension per root axis, of extent 1 where it does not vary."""
        ones = (1,) * len(space)
        match operand:
            case Read():
                if 0 in space:
                    return np.zeros(space, self.tensors[operand.tensor].dtype)
                return self.read(self.tensors[operand.tensor], operand.index, space)
            case Literal():
                return self.values.literal(operand.value, operand.dtype).reshape(ones)
            case ScalarRead():
                return self.scalars[operand.scalar].reshape(ones)
            case IndexValue():
                found = np.asarray(evaluate_expr(operand.index, self.grid(space)), np.int64)
                return found if found.ndim else found.reshape(ones)

    def grid(self, space: tuple[int, ...]) -> dict[str, Any]:
        """The symbols, and the iteration symbols as index arrays that broadcast to the space."""
        found: dict[str, Any] = dict(self.symbols)
        for k, n in enumerate(space):
            found[f"i{k}"] = np.arange(n).reshape([-1 if d == k else 1 for d in range(len(space))])
        return found

    def read(self, array: Array, index: Sequence[Expr], space: tuple[int, ...]) -> Array:
        varying = [sorted(e.free - self.symbols.keys()) for e in index]
        used = [names[0] for names in varying if names]
        if any(len(names) > 1 for names in varying) or len(set(used)) < len(used):
            grid = self.grid(space)
            found = array[tuple(_checked(evaluate_expr(e, grid), n) for e, n in zip(index, array.shape, strict=True))]
            return np.asarray(found)
        keys: list[int | slice] = []
        takes: list[tuple[int, npt.NDArray[np.int64]]] = []
        for e, names, n in zip(index, varying, array.shape, strict=True):
            if not names:
                keys.append(int(_checked(self.integer(e), n)))
                continue
            k = int(names[0][1:])
            if iteration_position(e) is not None and space[k] == n:
                keys.append(slice(None))
                continue
            places = _checked(np.broadcast_to(evaluate_expr(e, {**self.symbols, names[0]: np.arange(space[k])}), space[k]), n)
            line = _as_slice(places)
            if line is None:
                takes.append((sum(isinstance(key, slice) for key in keys), places))
            keys.append(slice(None) if line is None else line)
        found = array[tuple(keys)]
        for d, places in takes:
            found = np.take(found, places, axis=d)
        order = [int(name[1:]) for name in used]
        shape = [1] * len(space)
        for k in order:
            shape[k] = space[k]
        return np.asarray(found).transpose(np.argsort(order)).reshape(shape)


def _checked(places: Any, size: int) -> Any:
    """``places``, after a check that they are in ``[0, size)``: NumPy would wrap negative ones."""
    found = np.asarray(places)
    assert found.size == 0 or (found.min() >= 0 and found.max() < size), "an op map leaves its tensor"
    return places


def _as_slice(places: npt.NDArray[np.int64]) -> slice | None:
    """``places`` as a slice, if they are evenly spaced and not all equal."""
    if len(places) == 1:
        return slice(int(places[0]), int(places[0]) + 1)
    step = int(places[1] - places[0])
    if step == 0 or not (np.diff(places) == step).all():
        return None
    end = int(places[-1]) + step
    return slice(int(places[0]), end if end >= 0 else None, step)


def _size(space: Sequence[int], dims: Sequence[int]) -> int:
    total = 1
    for d in dims:
        total *= space[d]
    return total
