"""A call of an ATen op whose tensors are those of a fusion under construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import torch

from taskfuse.dtypes import DType, float32, float64
from taskfuse.errors import shown
from taskfuse.ir.scalar import Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops import broadcast_to, cast, div, full
from taskfuse.torch.metadata import Meta, Quotient, Refused, dtype_of, members, torch_dtype

Value = Any
"""A tensor, an expression, a quotient of expressions, a Python number, a dtype of torch, a list of these, or ``None``."""

Made = TensorView | tuple[TensorView | None, ...]


@dataclass(slots=True)
class AtenCall:
    """A call in progress.

    Attributes:
        name: of the op, without its overload.
        overload: the overload.
        given: every argument of the schema by its name; those not passed have their defaults.
        passed: the names of arguments that differ from their defaults and that no rule has read yet.
        outs: what torch says of the results.
        read: the places of those that are read.
    """

    name: str
    overload: str
    given: Mapping[str, Value]
    passed: set[str]
    outs: Sequence[Meta | None]
    read: AbstractSet[int] = frozenset()

    @property
    def out(self) -> Meta:
        """The first result."""
        found = self.outs[0]
        if found is None:
            raise Refused("it has no result")
        return found

    def __getitem__(self, name: str) -> Value:
        self.passed.discard(name)
        return self.given[name]

    def get(self, name: str, default: Value = None) -> Value:
        """An argument, or ``default`` where the schema has no such name."""
        return self[name] if name in self.given else default

    def tensor(self, name: str, dtype: DType | None = None) -> TensorView:
        """An argument that is a tensor, converted to a dtype."""
        return self.as_tensor(self[name], dtype)

    def as_tensor(self, value: Value, dtype: DType | None = None) -> TensorView:
        """A tensor, converted to a dtype. Raises :class:`Refused` for other values."""
        if not isinstance(value, TensorView):
            raise Refused(f"an operand is {shown(value)}")
        return value if dtype is None else converted(value, dtype)

    def axes(self, name: str, x: TensorView) -> tuple[int, ...]:
        """A dimension, several or none as a tuple, each counted from the front; none are all."""
        return axes_of(self.get(name), len(x.shape))

    def axis(self, name: str, rank: int) -> int:
        """One dimension, counted from the front."""
        return number(self[name]) % max(rank, 1)

    def integer(self, name: str) -> int:
        """An argument that is a constant integer."""
        return number(self[name])

    def check_read(self) -> None:
        """Raises :class:`Refused` if an argument was given that no rule has read."""
        if self.passed:
            raise Refused(f"{', '.join(sorted(self.passed))}= is not taken")


Rule = Callable[[AtenCall], Made]
RULES: dict[str, Rule] = {}
"""The rule of an op that the table of ops does not have, by name, or by name and overload."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """The rule of ops of some names."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def number(value: Value) -> int:
    """A constant integer. Raises :class:`Refused` for an expression."""
    if isinstance(value, Expr):
        if not value.free:
            return int(value)
        raise Refused(f"{value} is not constant")
    if not isinstance(value, int):
        raise Refused(f"{shown(value)} is not an integer")
    return int(value)


def axes_of(given: Value, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front; none are all."""
    if given is None or given == () or given == []:
        return tuple(range(rank))
    return tuple(number(d) % max(rank, 1) for d in members(given)) if rank else ()


def converted(x: TensorView, dtype: DType) -> TensorView:
    """``x`` in a dtype."""
    return x if x.dtype is dtype else cast(x, dtype)


def filled(value: Expr | Quotient, dtype: DType) -> TensorView:
    """A number of extents as a tensor without dimensions; a quotient is rounded as Python's floats are, and then to the dtype."""
    if isinstance(value, Expr):
        return full([], value, dtype)
    return converted(div(full([], value.numerator, float64), full([], value.denominator, float64)), dtype)


def widened(x: TensorView) -> TensorView:
    """``x`` in the dtype that torch computes in: one rounding follows, at the end of an op."""
    return converted(x, x.dtype.compute)


def fitted(x: TensorView, shape: Sequence[Expr]) -> TensorView:
    """``x`` broadcast to a shape, where it has another."""
    return x if len(x.shape) == len(shape) and all(a is b for a, b in zip(x.shape, shape, strict=True)) else broadcast_to(x, list(shape))


def promoted(values: Sequence[Value]) -> DType:
    """torch's result type of tensors and numbers: tensors with dimensions before those without, both before numbers."""
    kinds: list[Any] = []
    for v in values:
        if isinstance(v, TensorView):
            kinds.append(torch.empty((1,) * min(len(v.shape), 1), dtype=torch_dtype(v.dtype), device="meta"))
        elif isinstance(v, Expr):
            kinds.append(0)
        elif isinstance(v, Quotient):
            kinds.append(1.0)
        elif isinstance(v, bool | int | float):
            kinds.append(v)
    found = kinds[0]
    for other in kinds[1:]:
        kind = torch.result_type(found, other)
        has_axes = any(isinstance(k, torch.Tensor) and k.dim() for k in (found, other))
        found = torch.empty((1,) if has_axes else (), dtype=kind, device="meta")
    return dtype_of(found.dtype if isinstance(found, torch.Tensor) else torch.result_type(found, found))


def computed_in(dtype: DType, values: Sequence[Value]) -> DType:
    """The dtype of an elementwise op's operands: numbers beside 16-bit floats are not rounded to these, as torch computes in float32."""
    has_numbers = any(isinstance(v, float | Quotient) for v in values)
    return float32 if dtype.is_float and dtype.bits < 32 and has_numbers else dtype
