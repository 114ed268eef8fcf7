"""The Python operators and methods of :class:`~taskfuse.ir.tensor.TensorView`, plugged in when ``taskfuse.ops`` is imported."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import IntLike
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops import indexing, views
from taskfuse.ops.build import pointwise
from taskfuse.ops.linalg import matmul
from taskfuse.ops.pointwise import cast
from taskfuse.ops.reduce import REDUCTIONS


class Operators:
    """The ops behind the operators: see :class:`~taskfuse.ir.calls.OperatorCalls`."""

    def unary(self, op: str, x: TensorView) -> TensorView:
        return pointwise(ELEMENTWISE[op], (x,))

    def binary(self, op: str, a: Value, b: Value) -> TensorView:
        return pointwise(ELEMENTWISE[op], (a, b))

    def matmul(self, a: TensorView, b: TensorView) -> TensorView:
        return matmul(a, b)

    def getitem(self, x: TensorView, key: object) -> TensorView:
        return indexing.getitem(x, key)

    def permute(self, x: TensorView, dims: Sequence[int]) -> TensorView:
        return views.permute(x, dims)

    def reshape(self, x: TensorView, shape: Sequence[IntLike | str]) -> TensorView:
        return views.reshape(x, shape)

    def cast(self, x: TensorView, dtype: DType) -> TensorView:
        return cast(x, dtype)

    def reduce(self, op: str, x: TensorView, axis: int | Sequence[int] | None, keepdims: bool) -> TensorView:
        return REDUCTIONS[op](x, axis, keepdims)
