"""The table of ops: one row for each public function that makes tensors, and for each op of other libraries that taskfuse lacks.

The row of a function is its decorator: the kind of op, the dtype of the result, its names in torch and NumPy. Rows of
elementwise functions are those of :mod:`taskfuse.ir.elementwise`. The page docs/ops.md and :func:`supports` read the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeVar, cast

from taskfuse.dtypes import DType, DTypeLike, as_dtype, float64, result_type, uint64
from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.signatures import checked
from taskfuse.location import caller
from taskfuse.ops.build import promoted_dtype, refusal, result_dtype, total_dtype

ResultRule = Callable[[Sequence[DType]], DType | None]
F = TypeVar("F", bound=Callable[..., object])


class OpKind(Enum):
    """The kind of an op: the sections of docs/ops.md."""

    ELEMENTWISE = "Elementwise functions"
    REDUCTION = "Reductions"
    SCAN = "Scans"
    PRODUCT = "Products"
    VIEW = "Views"
    ASSEMBLY = "Concatenation and padding"
    GATHER = "Reads at computed indices"
    SCATTER = "Writes at computed indices"
    COMPOSITE = "Compositions"
    CREATION = "Inputs and constants"
    MISSING = "Missing ops"


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One row.

    Attributes:
        function: the public function; the op has its name.
        kind: the section of the page.
        result: the dtype of the result for operands of some dtypes; ``None``: it does not take them.
        torch: its names in torch.
        numpy: its name in NumPy, after ``np.``; ``None``: NumPy lacks it.
        instead: for a missing op, the alternative.
    """

    function: Callable[..., object]
    kind: OpKind
    result: ResultRule
    torch: tuple[str, ...]
    numpy: str | None
    instead: str | None = None

    @property
    def name(self) -> str:
        """The public name."""
        return self.function.__name__

    @property
    def doc(self) -> str:
        """The first paragraph of its documentation, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def parameters(self) -> str:
        """Its parameters, without types."""
        found = inspect.signature(self.function).parameters.values()
        return ", ".join(str(p.replace(annotation=p.empty)) for p in found)


OPS: dict[str, Op] = {}
"""Every op by its public name."""


def op(kind: OpKind, result: ResultRule, torch: str | None = None, numpy: str | None = None) -> Callable[[F], F]:
    """A row for the function below.

    Args:
        torch: names, separated by blanks; ``None``: the name of the function, ``""``: no name.
        numpy: as ``torch``, one name.
    """

    def add(function: F) -> F:
        name = function.__name__
        called = (name if torch is None else torch).split()
        function = cast("F", checked(function))
        OPS[name] = Op(function, kind, result, tuple(called), (name if numpy is None else numpy) or None)
        return function

    return add


def elementwise(function: F) -> F:
    """The row of the elementwise function below, which has the same name."""
    row = ELEMENTWISE[function.__name__]

    def result(dtypes: Sequence[DType]) -> DType | None:
        values = dtypes[1:] if row.rule is DTypeRule.SELECT and len(dtypes) > 1 else dtypes
        promoted = promoted_dtype(row, values)
        return None if refusal(row, promoted) else result_dtype(row, promoted)

    return op(OpKind.ELEMENTWISE, result, row.torch, row.numpy_name)(function)


def missing(name: str, reason: str, instead: str) -> Callable[..., NoReturn]:
    """A row for a missing op: a call raises an error that names the alternative."""

    def call(*args: object, **kwargs: object) -> NoReturn:
        raise UnsupportedError(what=f"tf.{name}", reason=reason, help=instead, location=caller())

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Not supported: {reason}."
    OPS[name] = Op(call, OpKind.MISSING, refused, (name,), None, instead)
    return call


# -- dtypes of results ------------------------------------------------------------------------------------------------------------------


def same(dtypes: Sequence[DType]) -> DType | None:
    """The dtype of the first operand."""
    return dtypes[0]


def promoted(dtypes: Sequence[DType]) -> DType | None:
    """The promoted dtype."""
    return result_type(*dtypes)


def floating(dtypes: Sequence[DType]) -> DType | None:
    """The dtype of the first operand; float64 for bool and integers."""
    return dtypes[0] if dtypes[0].is_float else float64


def floating_only(dtypes: Sequence[DType]) -> DType | None:
    """The dtype of the first operand, which is a float."""
    return dtypes[0] if dtypes[0].is_float else None


def total(dtypes: Sequence[DType]) -> DType | None:
    """The dtype of the first operand; int64 or uint64 for bool and integers."""
    return total_dtype(dtypes[0])


def numeric(dtypes: Sequence[DType]) -> DType | None:
    """The promoted dtype, which is not bool."""
    found = result_type(*dtypes)
    return None if found.is_bool else found


def promoted_float(dtypes: Sequence[DType]) -> DType | None:
    """The promoted dtype; float64 for bool and integers."""
    found = result_type(*dtypes)
    return found if found.is_float else float64


def always(dtype: DType) -> ResultRule:
    """The same dtype for all operands."""
    return lambda dtypes: dtype


def indexed(dtypes: Sequence[DType]) -> DType | None:
    """The dtype of the first operand; the second has integers that int64 can hold."""
    return dtypes[0] if all(d.is_integer and d is not uint64 for d in dtypes[1:]) else None


def refused(dtypes: Sequence[DType]) -> DType | None:
    """No dtype: the op takes no operands."""
    return None


# -- questions --------------------------------------------------------------------------------------------------------------------------

_TORCH = {"torch", "aten", "prims"}
_TORCH_DTYPES = {"float8_e4m3fn": "float8_e4m3", "half": "float16", "float": "float32", "double": "float64", "int": "int32", "long": "int64"}


def supports(op: str | Callable[..., object], *dtypes: DTypeLike | object) -> bool:
    """Whether taskfuse has an op, on tensors of some dtypes.

    Args:
        op: a name of taskfuse (``"softmax"``) or of torch (``"torch.clip"``, ``"aten::_softmax"``, ``"clip"``), or one of their functions
            (``tf.exp``, ``torch.ops.aten.exp.default``). In-place torch functions (``exp_``) are not supported.
        dtypes: of the operands that are tensors, in order; of taskfuse, NumPy or torch. Without any: whether the op exists.

    Raises :class:`~taskfuse.errors.DTypeError` for an unknown dtype.
    """
    found = _find(op)
    if found is None or found.kind is OpKind.MISSING:
        return False
    return not dtypes or found.result([_dtype(d) for d in dtypes]) is not None


def _find(op: str | Callable[..., object]) -> Op | None:
    """The row of a name or a function."""
    if not isinstance(op, str):
        name = getattr(op, "__name__", "")
        own = OPS.get(name)
        return own if own is not None and own.function is op else by_torch(name.partition(".")[0]) or own
    first, *rest = op.replace("::", ".").split(".")
    if not rest:
        return OPS.get(op) or by_torch(op)
    if first not in _TORCH:
        return OPS.get(rest[-1]) if first in ("tf", "taskfuse") else None
    path = [part for part in rest if part not in _TORCH and part not in ("ops", "nn", "functional")]
    return by_torch(("special_" if path[0] == "special" else "") + path[path[0] == "special"]) if path else None


def by_torch(name: str) -> Op | None:
    """The row of the op with this name in torch; ``None`` if there is none."""
    return next((row for row in OPS.values() if name in row.torch), None)


_NAMES = {
    **{"mod": "remainder", "concatenate": "cat", "concat": "cat", "astype": "cast"},
    **dict.fromkeys(("array", "asarray", "tensor"), "define_tensor"),
}
"""Names of NumPy and torch that are not in the table, with the op to use."""


def elsewhere(name: str) -> str:
    """The op that NumPy or torch calls ``name``, as the end of a message: ``": write tf.pow"`` for NumPy's ``power``; empty if there is none."""
    row = by_torch(name) or next((row for row in OPS.values() if row.numpy == name), None)
    own = _NAMES.get(name) if row is None else row.name
    return "" if own is None else f": write tf.{own}"


def _dtype(x: object) -> DType:
    if isinstance(x, DType | str | type):
        return as_dtype(x)
    text = str(x).removeprefix("torch.")
    return as_dtype(_TORCH_DTYPES.get(text, text))
