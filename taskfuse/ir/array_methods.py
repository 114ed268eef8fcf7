"""The Python operators of tensors and run-time scalars, and the methods that tensors have in common with NumPy's arrays and torch's tensors.

``==`` compares elements, as in NumPy and torch; ``is`` and ``hash`` compare objects. So tensors may be keys of dicts and
members of sets; in a list or a tuple, :mod:`taskfuse.ir.identity` looks for one, where ``in`` and ``index`` would compare elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from taskfuse.dtypes import DType
from taskfuse.errors import FusionError, ShapeError
from taskfuse.ir.calls import operators
from taskfuse.ir.scalar import IntLike
from taskfuse.ir.signatures import checks_calls
from taskfuse.location import caller

if TYPE_CHECKING:
    from taskfuse.ir.fusion import Fusion
    from taskfuse.ir.tensor import TensorView, Value

Axes = int | Sequence[int] | None


class Arithmetic:
    """The operators of tensors and run-time scalars. The result is a tensor, 0-d if no operand has axes."""

    __slots__ = ()
    fusion: Fusion

    def label(self) -> str:
        """Its name in errors."""
        raise NotImplementedError

    # NumPy would take a tensor for an object without axes, and apply functions and its operators element by element.
    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **kwargs: Any) -> Any:
        return operators().numpy(ufunc.__name__, method, operands, kwargs)

    # Parameters of NumPy's other functions stand in other orders than those of the ops: the error says which op to call.
    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        path = function.__module__.partition(".")[2]
        operators().no_function(f"{path}.{function.__name__}" if path else function.__name__)

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise FusionError(
            fusion=self.fusion.name,
            reason=f"{self.label()} has no truth value: its elements are not known yet",
            help="choose elements with tf.where, combine conditions with & and |; ask whether two are one tensor with `is`",
            location=caller(),
        )

    def __float__(self) -> NoReturn:
        self._no_number("float")

    def __int__(self) -> NoReturn:
        self._no_number("int")

    def _no_number(self, kind: str) -> NoReturn:
        raise FusionError(
            fusion=self.fusion.name,
            reason=f"{self.label()} cannot become a Python {kind}: its elements are not known yet",
            help="convert its elements with x.astype(dtype); an integer of a call, for extents and bounds of slices, is tf.define_integer",
            location=caller(),
        )

    def __eq__(self, other: object) -> Any:
        return operators().binary("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return operators().binary("ne", self, other)

    def __add__(self, other: Value) -> TensorView:
        return operators().binary("add", self, other)

    def __radd__(self, other: Value) -> TensorView:
        return operators().binary("add", other, self)

    def __sub__(self, other: Value) -> TensorView:
        return operators().binary("sub", self, other)

    def __rsub__(self, other: Value) -> TensorView:
        return operators().binary("sub", other, self)

    def __mul__(self, other: Value) -> TensorView:
        return operators().binary("mul", self, other)

    def __rmul__(self, other: Value) -> TensorView:
        return operators().binary("mul", other, self)

    def __truediv__(self, other: Value) -> TensorView:
        return operators().binary("div", self, other)

    def __rtruediv__(self, other: Value) -> TensorView:
        return operators().binary("div", other, self)

    def __floordiv__(self, other: Value) -> TensorView:
        return operators().binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Value) -> TensorView:
        return operators().binary("floor_divide", other, self)

    def __mod__(self, other: Value) -> TensorView:
        return operators().binary("remainder", self, other)

    def __rmod__(self, other: Value) -> TensorView:
        return operators().binary("remainder", other, self)

    def __pow__(self, other: Value) -> TensorView:
        return operators().binary("pow", self, other)

    def __rpow__(self, other: Value) -> TensorView:
        return operators().binary("pow", other, self)

    def __and__(self, other: Value) -> TensorView:
        return operators().binary("bitwise_and", self, other)

    def __rand__(self, other: Value) -> TensorView:
        return operators().binary("bitwise_and", other, self)

    def __or__(self, other: Value) -> TensorView:
        return operators().binary("bitwise_or", self, other)

    def __ror__(self, other: Value) -> TensorView:
        return operators().binary("bitwise_or", other, self)

    def __xor__(self, other: Value) -> TensorView:
        return operators().binary("bitwise_xor", self, other)

    def __rxor__(self, other: Value) -> TensorView:
        return operators().binary("bitwise_xor", other, self)

    def __lshift__(self, other: Value) -> TensorView:
        return operators().binary("left_shift", self, other)

    def __rlshift__(self, other: Value) -> TensorView:
        return operators().binary("left_shift", other, self)

    def __rshift__(self, other: Value) -> TensorView:
        return operators().binary("right_shift", self, other)

    def __rrshift__(self, other: Value) -> TensorView:
        return operators().binary("right_shift", other, self)

    def __lt__(self, other: Value) -> TensorView:
        return operators().binary("lt", self, other)

    def __le__(self, other: Value) -> TensorView:
        return operators().binary("le", self, other)

    def __gt__(self, other: Value) -> TensorView:
        return operators().binary("gt", self, other)

    def __ge__(self, other: Value) -> TensorView:
        return operators().binary("ge", self, other)

    def __neg__(self) -> TensorView:
        return operators().unary("neg", self)

    def __pos__(self) -> TensorView:
        return operators().unary("copy", self)

    def __round__(self, decimals: int | None = None) -> TensorView:
        return operators().call("round", self, decimals or 0)

    def __divmod__(self, other: Value) -> tuple[TensorView, TensorView]:
        return self // other, self % other

    def __rdivmod__(self, other: Value) -> tuple[TensorView, TensorView]:
        return other // self, other % self

    def __abs__(self) -> TensorView:
        return operators().unary("abs", self)

    def __invert__(self) -> TensorView:
        return operators().unary("bitwise_not", self)


@checks_calls
class ArrayMethods(Arithmetic):
    """The methods that NumPy's arrays and torch's tensors both have, with the keywords of either (``axis=``, ``dim=``)."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        raise NotImplementedError

    def __matmul__(self, other: TensorView) -> TensorView:
        return operators().call("matmul", self, other)

    def __rmatmul__(self, other: object) -> TensorView:
        return operators().call("matmul", other, self)  # no tensor, which the call refuses

    @property
    def T(self) -> TensorView:
        """All axes reversed: a view."""
        return operators().call("permute", self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> TensorView:
        """The last two axes exchanged: a view."""
        return operators().call("swapaxes", self, -2, -1)

    def permute(self, *dims: int | Sequence[int]) -> TensorView:
        """The axes in the given order, one by one or as one list: a view."""
        return operators().call("permute", self, _flat(dims))

    def reshape(self, *shape: IntLike | str | Sequence[IntLike | str]) -> TensorView:
        """The elements in row-major order in another shape (one extent may be -1), one by one or as one list: a view."""
        return operators().call("reshape", self, _flat(shape))

    def transpose(self, *axes: int | Sequence[int]) -> TensorView:
        """All axes reversed; or all axes in the order given, as in NumPy; or two axes exchanged, as in torch.

        A view. Raises :class:`ShapeError` where NumPy and torch disagree: for two axes of a matrix in their order.
        """
        return operators().transposed(self, _flat(axes))

    def astype(self, dtype: DType) -> TensorView:
        """The elements converted to ``dtype``."""
        return operators().call("cast", self, dtype)

    def sum(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """The sum over ``axis`` (all axes if ``None``)."""
        return operators().call("sum", self, **_spelled("sum", axis, dim, None, keepdims, keepdim))

    def prod(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """The product over ``axis``."""
        return operators().call("prod", self, **_spelled("prod", axis, dim, None, keepdims, keepdim))

    def max(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """The maximum over ``axis``."""
        return operators().call("max", self, **_spelled("max", axis, dim, None, keepdims, keepdim))

    def min(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """The minimum over ``axis``."""
        return operators().call("min", self, **_spelled("min", axis, dim, None, keepdims, keepdim))

    def mean(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """The arithmetic mean over ``axis``."""
        return operators().call("mean", self, **_spelled("mean", axis, dim, None, keepdims, keepdim))

    def all(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """Whether all elements over ``axis`` are not 0."""
        return operators().call("all", self, **_spelled("all", axis, dim, None, keepdims, keepdim))

    def any(self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool = False) -> TensorView:
        """Whether an element over ``axis`` is not 0."""
        return operators().call("any", self, **_spelled("any", axis, dim, None, keepdims, keepdim))

    def var(self, axis: Axes = None, keepdims: bool = False, correction: int = 0, *, dim: Axes = None, keepdim: bool = False, ddof: int = 0) -> TensorView:
        """The variance over ``axis``; ``correction``, or ``ddof``, is 0 by default, as in NumPy."""
        return operators().call("var", self, **_spelled("var", axis, dim, None, keepdims, keepdim), correction=correction or ddof)

    def std(self, axis: Axes = None, keepdims: bool = False, correction: int = 0, *, dim: Axes = None, keepdim: bool = False, ddof: int = 0) -> TensorView:
        """The square root of :meth:`var`."""
        return operators().call("std", self, **_spelled("std", axis, dim, None, keepdims, keepdim), correction=correction or ddof)

    def argmax(self, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool = False) -> TensorView:
        """The index of the first of the greatest elements."""
        return operators().call("argmax", self, **_spelled("argmax", axis, dim, None, keepdims, keepdim))

    def argmin(self, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool = False) -> TensorView:
        """The index of the first of the least elements."""
        return operators().call("argmin", self, **_spelled("argmin", axis, dim, None, keepdims, keepdim))

    def cumsum(self, axis: int | None = None, *, dim: int | None = None) -> TensorView:
        """The inclusive sum scan along ``axis``."""
        return operators().call("cumsum", self, **_spelled("cumsum", axis, dim, None))

    def cumprod(self, axis: int | None = None, *, dim: int | None = None) -> TensorView:
        """The inclusive product scan along ``axis``."""
        return operators().call("cumprod", self, **_spelled("cumprod", axis, dim, None))

    def squeeze(self, axis: Axes = None, *, dim: Axes = None) -> TensorView:
        """Without axes of extent 1: a view."""
        return operators().call("squeeze", self, **_spelled("squeeze", axis, dim, None))

    def clip(self, min: Value | None = None, max: Value | None = None) -> TensorView:
        """``minimum(maximum(x, min), max)``, without a bound that is ``None``."""
        return operators().call("clip", self, min, max)

    def round(self, decimals: int = 0) -> TensorView:
        """The nearest integers, halves to even; the nearest multiples of ``10 ** -decimals``."""
        return operators().call("round", self, decimals)

    def flatten(self) -> TensorView:
        """The elements in row-major order in one axis: a view."""
        return operators().call("flatten", self)

    def ravel(self) -> TensorView:
        """The elements in row-major order in one axis: a view."""
        return operators().call("ravel", self)

    def swapaxes(self, axis1: int, axis2: int) -> TensorView:
        """Two axes exchanged: a view."""
        return operators().call("swapaxes", self, axis1, axis2)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorView:
        """The elements on a diagonal of two axes, as the last axis: a view."""
        return operators().call("diagonal", self, offset, axis1, axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorView:
        """The sum of a diagonal."""
        return operators().call("trace", self, offset, axis1, axis2)

    def dot(self, other: TensorView) -> TensorView:
        """The product of vectors and matrices."""
        return operators().call("dot", self, other)


def _flat(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments passed one by one, or as one list."""
    alone: object = given[0] if len(given) == 1 else None
    return tuple(cast("Sequence[Any]", alone)) if isinstance(alone, Sequence) and not isinstance(alone, str) else given


def _spelled(call: str, axis: object, dim: object, default: object, keepdims: bool = False, keepdim: bool = False) -> dict[str, Any]:
    """The parameters of a call in NumPy's spelling. Raises :class:`ShapeError` if an axis is given in both."""
    if axis is not default and dim is not default:
        raise ShapeError(op=call, reason="axis= and dim= are both given", help="they are one parameter: give one of them", location=caller())
    return {"axis": axis if dim is default else dim, **({"keepdims": True} if keepdims or keepdim else {})}
