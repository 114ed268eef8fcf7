"""Random calls of any public op, with arguments that follow from its signature.

The annotation and name of a parameter determine its values; valid combinations of shapes are found by trial: each of a few patterns of shapes is
tried in a new fusion, and those that the op accepts are drawn. So a new op is drawn as soon as it is in the table of ops.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from inspect import Parameter
from itertools import islice
from typing import Any, Final

import taskfuse as tf
from taskfuse.dtypes import DType
from taskfuse.ops.registry import OPS, OpKind
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.program import Recorder

Pattern = tuple[str, ...]
"""The shapes of the tensors of a call: a letter for each axis, equal ones for equal extents; a digit is the extent itself."""
PATTERNS: Final[tuple[Pattern, ...]] = (
    *((shape,) for shape in ("n", "nm", "bnm", "b4nm", "bc44", "nn")),
    *(("n", "n"), ("nm", "nm"), ("bnm", "bnm"), ("n", "m"), ("nk", "km"), ("bnk", "bkm"), ("n3", "n3"), ("nk", "mk"), ("nm", "m"), ("nm", "n")),
    *(("bcn", "c"), ("bcn", "bn"), ("bcnm", "c"), ("bcnm", "bij2"), ("nm", "p")),
    *(("nm", "nm", "nm"), ("nm", "nk", "km"), ("bnm", "bnk", "bkm"), ("nk", "mk", "m"), ("n", "k", "k"), ("nm", "m", "m"), ("bcn", "c", "c")),
    *(("nm", "k", "km"), ("nm", "pm", "pm"), ("bcnm", "c", "c"), ("n", "n", "n")),
    *(("mk", "kn", "m1", "1n"), ("bcn", "c", "c", "c", "c"), ("bcnm", "c", "c", "c", "c")),
)
INTEGERS: Final = frozenset(("index", "indices", "target"))
"""Tensors of integers, by the name of the parameter."""
FLAGS: Final = frozenset(("starts",))
"""Tensors of booleans, by the name of the parameter."""
WORDS: Final[Mapping[str, Sequence[str]]] = {
    "reduction": ("none", "mean", "sum"),
    "reduce": ("sum", "prod", "amax", "amin", "mean"),
    "mode": ("bilinear", "nearest"),
    "padding_mode": ("zeros", "border"),
    "indexing": ("xy", "ij"),
}
PROBABILITIES: Final = frozenset(("p", "q"))
RANGE: Final[Mapping[str, float]] = {"min": 0.0, "max": 2.0}
NOT_DRAWN: Final[Mapping[str, str]] = {
    "dim": "declares an extent",
    "table": "declares an input, drawn for ragged rows",
    "define_tensor": "declares an input, drawn by all",
    "define_scalar": "declares an input, drawn on its own",
    "define_integer": "declares an input",
    "jagged_to_padded_dense": "takes a table, drawn for ragged rows",
    "segment_sum": "needs a count where its segments are not a table; drawn with one",
    "float_of_bits": "takes unsigned integers of 32 and 64 bits alone; random numbers are made with it",
    "associative_scan": "takes a function; linear_recurrence and segmented_cumsum are scans by one",
    "grouped_matmul": "takes a table of promised values: taskfuse.testing.grouped",
    "grouped_matmul_masked": "takes a table of promised values: taskfuse.testing.grouped",
    "grouped_matmul_tiled": "takes a table of promised values: taskfuse.testing.grouped",
    "grouped_matmul_aligned": "takes a table of promised values: taskfuse.testing.grouped",
    "varlen_attention": "takes tables of promised values",
    "scaled_dot_product_attention_backward": "takes a result and the logarithms of its sums, which random tensors are not",
    "conv2d": "a convolution, as conv1d is, of images",
    "conv3d": "a convolution, as conv1d is, of volumes",
    "paged_attention": "takes a table of pages, and one of lengths",
}
"""Ops that cannot be called this way, with the reason."""
MOST: Final = 4
"""Patterns of one op that are drawn."""
OPTIONAL: Final = 30
"""Percentage of calls that pass a parameter with a default."""


@cache
def drawn() -> tuple[str, ...]:
    """All ops that can be drawn."""
    return tuple(name for name, row in OPS.items() if row.kind is not OpKind.MISSING and name not in NOT_DRAWN and hasattr(tf, name))


def _parameters(op: str) -> list[Parameter]:
    return list(inspect.signature(getattr(tf, op)).parameters.values())


def _is_tensor(p: Parameter) -> bool:
    return str(p.annotation).startswith(("TensorView", "Value", "Source")) and p.kind is not Parameter.VAR_POSITIONAL


def _is_list(p: Parameter) -> bool:
    return str(p.annotation) == "Sequence[TensorView]" or (p.kind is Parameter.VAR_POSITIONAL and str(p.annotation) == "TensorView")


@cache
def patterns(op: str) -> tuple[Pattern, ...]:
    """The patterns that an op takes: for the tensors that it needs, or for those that it may take as well. Those without tensors take the empty one."""
    tensors = [p for p in _parameters(op) if _is_tensor(p)]
    needed = sum(p.default is Parameter.empty for p in tensors)
    counts = sorted({needed, len(tensors)} | ({1} if any(map(_is_list, _parameters(op))) else set[int]()))
    return tuple(pattern for count in counts for pattern in islice(_accepted(op, count), MOST))


def _accepted(op: str, count: int) -> Iterator[Pattern]:
    for pattern in ((), *PATTERNS):
        if len(pattern) == count and any(_accepts(op, pattern, seed) for seed in range(2)):
            yield pattern


def _accepts(op: str, pattern: Pattern, seed: int) -> bool:
    chooser, recorder = RandomChooser(seed), Recorder()
    extents = {letter: 2 + 2 * k for k, letter in enumerate(sorted(set("".join(pattern)) - set("0123456789")))}
    dtype = (tf.float32, tf.int32)[seed]
    given = [recorder.call(tf, "define_tensor", _shape(shape, extents), dtype=own) for own, shape in zip(dtypes(op, len(pattern), dtype), pattern, strict=True)]
    return attempt(op, given, chooser, recorder, optional=0) is not None


def _shape(pattern: str, extents: Mapping[str, int]) -> list[int]:
    return [int(c) if c.isdigit() else extents[c] for c in pattern]


def shapes(pattern: Pattern, first: Sequence[int] | None, chooser: Chooser, sizes: Sequence[int]) -> list[list[int]] | None:
    """Shapes of a pattern.

    Args:
        first: the shape of the first tensor; ``None``: any.
        sizes: extents to pick from.

    Returns:
        ``None`` if ``first`` does not have that pattern.
    """
    if not pattern:
        return []
    extents: dict[str, int] = {}
    for c, n in zip(pattern[0], first or (), strict=False):
        if (int(c) if c.isdigit() else extents.setdefault(c, n)) != n:
            return None
    if first is not None and len(first) != len(pattern[0]):
        return None
    for c in "".join(pattern):
        if not c.isdigit() and c not in extents:
            extents[c] = chooser.pick(sizes)
    return [_shape(shape, extents) for shape in pattern]


def dtypes(op: str, count: int, dtype: DType) -> list[DType]:
    """The dtypes of the tensors of a call: all alike, except integers for indices."""
    names = [p.name for p in _parameters(op) if _is_tensor(p)][:count]
    return [tf.int32 if name in INTEGERS else tf.bool_ if name in FLAGS else dtype for name in names] or [dtype] * count


def attempt(op: str, tensors: Sequence[tf.TensorView], chooser: Chooser, recorder: Recorder, optional: int = OPTIONAL) -> Any:
    """A call with these tensors, in the order of the parameters, and random other arguments; ``None`` if it is refused."""
    left = list(tensors)
    ndim = max(tensors[0].ndim, 1) if tensors else 1
    places: list[Any] = []
    keywords: dict[str, Any] = {}
    for p in _parameters(op):
        is_needed = p.default is Parameter.empty
        if _is_list(p) and not tensors:
            return None
        if _is_list(p):
            given = [tensors[0]] * chooser.integer(1, 3)
            places += given if p.kind is Parameter.VAR_POSITIONAL else [given]
        elif _is_tensor(p):
            if left:
                keywords[p.name] = left.pop(0)
        elif is_needed or chooser.chance(optional):
            value = _value(p, ndim, chooser)
            if value is None and is_needed:
                return None
            if value is not None:
                keywords[p.name] = value
    return recorder.attempt(tf, op, *places, **keywords)


def _value(p: Parameter, ndim: int, chooser: Chooser) -> Any:
    """An argument that is not a tensor; ``None`` if nothing is known of its kind."""
    kind = str(p.annotation).removesuffix(" | None")
    if p.name in WORDS:
        return chooser.pick(WORDS[p.name])
    if p.name in ("axis", "dim"):
        return chooser.integer(-ndim, ndim - 1)
    if p.name in RANGE:
        return RANGE[p.name]
    if p.name == "shape":
        return [chooser.integer(1, 4) for _ in range(chooser.integer(1, 2))]
    if kind.startswith(("Sequence[int", "Sequence[IntLike")):
        return [chooser.integer(1, 3)] * chooser.integer(1, 2)
    match kind:
        case "bool":
            return chooser.chance(50)
        case "float" | "Number" | "bool | int | float" if p.name in PROBABILITIES:
            return chooser.pick((0.25, 0.5))
        case "float" | "Number" | "bool | int | float":
            return chooser.pick((0.5, 1.0, 2.0))
        case "int" | "IntLike" | "Extent" | "Seed" | "IntLike | str":
            return chooser.integer(1, 3)
        case "int | Sequence[int]":
            return chooser.integer(-ndim, ndim - 1)
        case "DTypeLike":
            return chooser.pick((tf.float32, tf.bfloat16, tf.int32))
        case _:
            return None
