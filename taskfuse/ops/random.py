"""Random numbers as functions of a seed: bits, uniform and normal numbers, dropout.

Philox 4x32 of ten rounds (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011) maps a counter of 128 bits and a key of 64 bits
to four words: an elementwise function of integers, so a kernel keeps no state, and numbers are computed where they are used. The key is the seed. The
counter is, as in cuRAND, an offset in its lower half and the number of a sequence in its upper half.

Four elements after another take the four words of one counter. Given the number of threads of a grid, elements take the words that they take in eager torch
on CUDA, where each thread draws four words at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from taskfuse.dtypes import DType, DTypeLike, as_dtype, float32, float64, int64, uint32, uint64
from taskfuse.errors import shown
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ZERO, Expr, IntLike, wrap
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ops.build import (
    Shape,
    cast_tensor,
    check_tensor,
    common_fusion,
    define_pointwise,
    described,
    dtype_error,
    elementwise,
    listed,
    shape_error,
    typed,
)
from taskfuse.ops.create import extent
from taskfuse.ops.registry import OpKind, floating_only, op, same

__all__ = ["bernoulli", "dropout", "rand", "randn", "random_bits"]

Seed = TensorView | Scalar | int


def _integers(fusion: Fusion, shape: Shape, value: Seed | Expr, dtype: DType = uint64) -> TensorView:
    """A seed, an offset or an index as 64 bits of each element."""
    match value:
        case TensorView():
            return cast_tensor(value, dtype)
        case Scalar():
            return cast_tensor(elementwise("copy", value), dtype)
        case int():
            return cast_tensor(define_pointwise(fusion, ELEMENTWISE["copy"], (), (IndexValue(wrap(value)),), int64), dtype)
        case _:
            return define_pointwise(fusion, ELEMENTWISE["cast"], shape, (IndexValue(value),), dtype)


def _position(shape: Shape) -> Expr:
    """The number of an element in row-major order."""
    found: Expr = ZERO
    for d, e in enumerate(shape):
        found = found * e + iteration_symbol(d)
    return found


def _words(
    fusion: Fusion, shape: Shape, seed: Seed, offset: Seed, threads: int | None, at_once: int, taken: Sequence[Callable[[Expr], Expr]]
) -> list[TensorView]:
    """Words of the counter that the thread of each element draws for ``at_once`` elements: their numbers, from that of the element among these."""
    place = _position(shape)
    sequence, trip = (place // at_once, place % at_once) if threads is None else (place % threads, place // threads)
    key = _integers(fusion, shape, seed)
    counter = elementwise("floor_divide", _integers(fusion, shape, offset), 4)
    counter = counter if threads is None else elementwise("add", counter, _integers(fusion, shape, trip // at_once))
    return [cast_tensor(elementwise("philox", key, counter, _integers(fusion, shape, sequence * 4 + word(trip % at_once))), uint32) for word in taken]


def _own(trip: Expr) -> Expr:
    return trip


def _word(fusion: Fusion, shape: Shape, seed: Seed, offset: Seed, threads: int | None) -> TensorView:
    """The word of each element, if there are four at once."""
    return _words(fusion, shape, seed, offset, threads, 4, (_own,))[0]


def _uniform(word: TensorView) -> TensorView:
    """A word as a float32 in (0, 1], as in cuRAND."""
    return elementwise("add", elementwise("mul", cast_tensor(word, float32), 2.0**-32), 2.0**-33)


def _uniform_double(low: TensorView, high: TensorView) -> TensorView:
    """Two words as a float64 in (0, 1], as in cuRAND."""
    bits = elementwise("bitwise_xor", cast_tensor(low, uint64), elementwise("left_shift", cast_tensor(high, uint64), 21))
    return elementwise("add", elementwise("mul", cast_tensor(bits, float64), 2.0**-53), 2.0**-54)


def _checked(op: str, fusion: Fusion, shape: Sequence[IntLike | str], seed: object, offset: object, threads: int | None) -> Shape:
    for value in (seed, offset):
        if isinstance(value, TensorView | Scalar):
            common_fusion(op, (value,))
            if not value.dtype.is_integer:
                raise dtype_error(op, f"{typed(value)} is not a seed", "use integers")
            if isinstance(value, TensorView) and value.ndim:
                raise shape_error(op, f"{described(value)} is not 0-d", "use a 0-d tensor or a run-time scalar")
        elif isinstance(value, bool) or not isinstance(value, int):
            raise dtype_error(op, f"{shown(value)} is not a seed", "use an integer, a run-time scalar or a 0-d tensor of integers")
    if threads is not None and threads < 1:
        raise shape_error(op, f"{threads} threads", "use the number of threads of the grid that is followed")
    return tuple(extent(op, fusion, e) for e in listed(op, shape, "extents"))


def _random(op: str, shape: Sequence[IntLike | str], seed: Seed, offset: Seed, threads: int | None, wanted: DType, is_normal: bool) -> TensorView:
    fusion = Fusion.current()
    extents = _checked(op, fusion, shape, seed, offset, threads)
    if not wanted.is_float:
        raise dtype_error(op, f"{wanted.name} is not a float", "use tf.random_bits for integers")
    with fusion.call():
        if wanted is float64:
            pairs = _words(fusion, extents, seed, offset, threads, 2, [lambda trip: trip * 2, lambda trip: trip * 2 + 1])
            others = _words(fusion, extents, seed, offset, threads, 2, [lambda trip: 2 - trip * 2, lambda trip: 3 - trip * 2]) if is_normal else pairs
            own, other = _uniform_double(*pairs), _uniform_double(*others)
        else:
            words = _words(fusion, extents, seed, offset, threads, 4, [_own, lambda trip: trip + 1 - trip % 2 * 2] if is_normal else [_own])
            own, other = _uniform(words[0]), _uniform(words[-1])
        if not is_normal:
            found = cast_tensor(own, wanted)
            return elementwise("where", elementwise("ge", found, 1.0), 0.0, found)
        place = _position(extents)
        trip = place % (2 if wanted is float64 else 4) if threads is None else place // threads
        is_first = elementwise("eq", _integers(fusion, extents, trip % 2, int64), 0)
        return cast_tensor(_normal(elementwise("where", is_first, own, other), elementwise("where", is_first, other, own), is_first), wanted)


def _normal(u: TensorView, v: TensorView, is_first: TensorView) -> TensorView:
    """The first or the second of the normal numbers that two uniform ones give (Box and Muller, 1958)."""
    radius = elementwise("sqrt", elementwise("mul", elementwise("log", u), -2.0))
    angle = elementwise("mul", v, 2 * math.pi)
    return elementwise("mul", elementwise("where", is_first, elementwise("sin", angle), elementwise("cos", angle)), radius)


@op(OpKind.CREATION, same, torch="", numpy="")
def random_bits(shape: Sequence[IntLike | str], seed: Seed, offset: Seed = 0, threads: int | None = None) -> TensorView:
    """Random words of 32 bits (uint32), by Philox 4x32: element i takes word ``i % 4`` of the counter whose halves are ``offset // 4`` and ``i // 4``.

    Args:
        shape: of the result.
        seed: the key: an integer, a run-time scalar, or a 0-d tensor of integers.
        offset: the lower half of the counter, times 4: a multiple of 4, as torch counts what a generator has drawn.
        threads: the number of threads of the grid to follow, as torch's generators on CUDA do: element i then takes word ``i // threads % 4`` of the counter
            ``offset // 4 + i // (4 * threads)`` of sequence ``i % threads``.

    Raises:
        ShapeError: for a seed that is not 0-d, or ``threads`` below 1.
        DTypeError: for a seed that is not an integer.
    """
    fusion = Fusion.current()
    extents = _checked("random_bits", fusion, shape, seed, offset, threads)
    with fusion.call():
        return _word(fusion, extents, seed, offset, threads)


@op(OpKind.CREATION, same, torch="", numpy="")
def rand(shape: Sequence[IntLike | str], seed: Seed, offset: Seed = 0, dtype: DTypeLike = float32, threads: int | None = None) -> TensorView:
    """Uniform numbers in [0, 1): those of :func:`random_bits`, converted to floats as in cuRAND. With ``threads``, the numbers of ``torch.rand`` on CUDA.

    For the grid of torch, ``threads = 256 * min(ceil(n / 256), multiprocessors * (threads of one // 256))`` for n elements; float64 takes two words. Raises as
    :func:`random_bits`, and :class:`DTypeError` for a dtype that is not a float.
    """
    return _random("rand", shape, seed, offset, threads, as_dtype(dtype), is_normal=False)


@op(OpKind.CREATION, same, torch="", numpy="")
def randn(shape: Sequence[IntLike | str], seed: Seed, offset: Seed = 0, dtype: DTypeLike = float32, threads: int | None = None) -> TensorView:
    """Normal numbers of mean 0 and variance 1, by the transform of Box and Muller (1958), from the words of cuRAND, whose sine is less exact.

    Otherwise as :func:`rand`.
    """
    return _random("randn", shape, seed, offset, threads, as_dtype(dtype), is_normal=True)


@op(OpKind.COMPOSITE, floating_only, torch="", numpy="")
def bernoulli(p: TensorView, seed: Seed, offset: Seed = 0) -> TensorView:
    """1 with the probability of each element of ``p``, else 0, in the dtype of ``p``, a float: numbers of :func:`rand` are compared with ``p``."""
    check_tensor("bernoulli", p)
    if not p.dtype.is_float:
        raise dtype_error("bernoulli", f"{typed(p)} is not a float", "cast to a float first")
    _checked("bernoulli", p.fusion, p.shape, seed, offset, None)
    with p.fusion.call():
        number = elementwise("mul", cast_tensor(_word(p.fusion, p.shape, seed, offset, None), float64), 2.0**-32)
        return cast_tensor(elementwise("lt", number, cast_tensor(p, float64)), p.dtype)


@op(OpKind.COMPOSITE, floating_only, torch="", numpy="")
def dropout(x: TensorView, p: float, seed: Seed, offset: Seed = 0) -> TensorView:
    """``x / (1 - p)``, or 0 with probability ``p``, a float: the same elements for the same seed and offset, so that a gradient can repeat it.

    Raises:
        ShapeError: unless ``0 <= p <= 1``, or as :func:`random_bits`.
        DTypeError: unless ``x`` is a float.
    """
    check_tensor("dropout", x)
    if not x.dtype.is_float:
        raise dtype_error("dropout", f"{typed(x)} is not a float", "cast to a float first")
    if not 0 <= p <= 1:
        raise shape_error("dropout", f"the probability is {p}", "use a number from 0 to 1")
    _checked("dropout", x.fusion, x.shape, seed, offset, None)
    with x.fusion.call():
        is_kept = elementwise("ge", _word(x.fusion, x.shape, seed, offset, None), min(round(p * 2**32), 2**32 - 1))
        scaled = elementwise("mul", cast_tensor(x, x.dtype.compute), 1 / (1 - p) if p < 1 else 0.0)
        return cast_tensor(elementwise("where", is_kept, scaled, 0.0), x.dtype)
