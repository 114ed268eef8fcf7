"""The Python operators of tensors and run-time scalars.

``==`` compares elements, as in NumPy and torch: which object one is, ``is`` says, and ``hash`` is that of the object. So tensors are keys of dicts and
members of sets; in a list or a tuple, ``among`` and ``place_of`` look for one, where ``in`` and ``index`` would compare elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from taskfuse.errors import FusionError
from taskfuse.ir.calls import operators
from taskfuse.location import caller

if TYPE_CHECKING:
    from taskfuse.ir.fusion import Fusion
    from taskfuse.ir.tensor import TensorView, Value

T = TypeVar("T")


def among(one: T, several: Iterable[T]) -> bool:
    """True if ``several`` has the very object ``one``."""
    return True in map(is_, repeat(one), several)


def place_of(one: T, several: Iterable[T]) -> int:
    """The position of the very object ``one`` in ``several``. Raises :class:`ValueError` if it is not there."""
    for k, other in enumerate(several):
        if other is one:
            return k
    raise ValueError(f"{one!r} is not there")


def alike(some: Sequence[object], others: Sequence[object]) -> bool:
    """True if both hold the very same objects in the same order."""
    return len(some) == len(others) and all(map(is_, some, others))


class Arithmetic:
    """What operators make of a tensor or a run-time scalar: a tensor of results, 0-d where no operand has axes."""

    __slots__ = ()
    fusion: Fusion

    def label(self) -> str:
        """What errors call it."""
        raise NotImplementedError

    # NumPy would take a tensor for an object without axes and apply its operators element by element; so it leaves them to the tensor.
    __array_ufunc__: ClassVar[None] = None
    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise FusionError(
            fusion=self.fusion.name,
            reason=f"{self.label()} has no truth value: its elements are not known yet",
            help="choose elements with tf.where, combine conditions with & and |; ask whether two are one tensor with `is`",
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

    def __abs__(self) -> TensorView:
        return operators().unary("abs", self)

    def __invert__(self) -> TensorView:
        return operators().unary("bitwise_not", self)
