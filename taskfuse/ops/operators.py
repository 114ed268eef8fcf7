"""The Python operators and methods of :class:`~taskfuse.ir.tensor.TensorView`, plugged in when ``taskfuse.ops`` is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from taskfuse.errors import CallError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.signatures import parameters
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.location import caller
from taskfuse.ops import indexing, views
from taskfuse.ops.build import check_tensor, described, normalize_axis, pointwise, shape_error
from taskfuse.ops.rearrange import swapaxes
from taskfuse.ops.registry import OPS, by_torch


class Operators:
    """The ops behind the operators: see :class:`~taskfuse.ir.calls.OperatorCalls`."""

    def unary(self, op: str, x: object) -> TensorView:
        return pointwise(ELEMENTWISE[op], (cast("Value", x),))

    def binary(self, op: str, a: object, b: object) -> TensorView:
        return pointwise(ELEMENTWISE[op], (cast("Value", a), cast("Value", b)))

    def getitem(self, x: TensorView, key: object) -> TensorView:
        return indexing.getitem(x, key)

    def transposed(self, x: object, axes: Sequence[int]) -> TensorView:
        x = check_tensor("transpose", x)
        if not axes:
            return views.transpose(x)
        if len(axes) != 2:
            return views.permute(x, axes)
        a, b = (normalize_axis("transpose", axis, x.ndim, described(x)) for axis in axes)
        if x.ndim == 2 and a < b:
            reason = f"axes {tuple(axes)} of {described(x)} are an order in NumPy and a swap in torch"
            raise shape_error("transpose", reason, "use x.T or x.swapaxes(0, 1), or x.permute(0, 1)")
        return swapaxes(x, a, b)

    def call(self, op: str, *args: Any, **kwargs: Any) -> TensorView:
        return cast("TensorView", OPS[op].function(*args, **kwargs))

    def numpy(self, name: str, method: str, operands: Sequence[object], kwargs: Mapping[str, object]) -> TensorView:
        """What a universal function of NumPy is of tensors: the op of that name in NumPy. Raises :class:`CallError` if there is none, or with keywords."""
        row = next((row for row in OPS.values() if row.numpy == name), None)
        if row is None or method != "__call__":
            self.no_function(name if method == "__call__" else f"{name}.{method}")
        return cast("TensorView", row.function(*operands, **kwargs))

    def no_function(self, name: str) -> NoReturn:
        """Raise :class:`CallError`: a function of NumPy takes no tensors, but perhaps an op does what it does."""
        last = name.rpartition(".")[2]
        row = next((row for row in OPS.values() if row.numpy == name), None) or OPS.get(last)
        if last in _INSTEAD_OF_NUMPY and (row is None or row.numpy != name):
            help = _INSTEAD_OF_NUMPY[last]
        elif row is None:
            help = "tensors have no such op"
        else:
            help = row.instead or f"call tf.{row.name}; {parameters(row.function)}"
        raise CallError(call=f"np.{name}", reason="it takes no tensors of taskfuse", help=help, location=caller())

    def instead(self, name: str) -> str:
        row = OPS.get(name) or by_torch(name)
        if row is None or name in _ELSEWHERE:
            return _ELSEWHERE.get(name, "")
        return f": {row.instead}" if row.instead else f": write tf.{row.name}(x)"


_INSTEAD_OF_NUMPY = {
    **dict.fromkeys(("shape", "ndim", "size"), "ask x.shape and x.ndim"),
    "reduce": "use tf.sum, tf.max or another reduction",
    "accumulate": "use tf.cumsum, tf.cummax or another scan",
    "outer": "add axes: x[:, None] and y[None, :]",
    "at": "use tf.scatter_add, or scatter with another reduction",
}
_UNKNOWN = ": its elements are not known before a call; evaluate the fusion, or compile and call it"
_ELSEWHERE = {
    **dict.fromkeys(("item", "tolist", "numpy", "cpu", "cuda", "detach", "data"), _UNKNOWN),
    "size": ": ask x.shape",
    "view": ": write x.reshape(...)",
    "to": ": write x.astype(dtype)",
    "float": ": write x.astype(tf.float32)",
    "half": ": write x.astype(tf.float16)",
    "bfloat16": ": write x.astype(tf.bfloat16)",
}
"""Names of other libraries that are not ops here, with the op to use."""
