"""Ops whose rule is a row of the table of ops: their arguments are bound to the function's by kind and name.

An op of this kind has a name of torch in its row and computes the same. Operands are converted to the dtype that torch computes in; what the function does
not take must have its default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from taskfuse.dtypes import bool_
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.scalar import Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops import full, where
from taskfuse.ops.registry import Op, OpKind, by_torch
from taskfuse.torch.metadata import Quotient, Refused, members
from taskfuse.torch.rules import pointwise, reductions, shapes, windows
from taskfuse.torch.rules.call import RULES, AtenCall, Made, Rule, computed_in, converted, filled, promoted

MODULES = (pointwise, reductions, shapes, windows)
"""The modules whose rules are in the table when this one is imported."""

SAME: dict[str, tuple[str, ...]] = {
    "dim": ("axis",),
    "dimension": ("axis",),
    "dims": ("axis", "axes"),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "keepdim": ("keepdims",),
    "index": ("indices",),
    "diagonal": ("k",),
    "shifts": ("shift",),
    "src": ("y",),
    "other": ("y", "b"),
    "self": ("values",),
    "test_elements": ("values",),
    "upscale_factor": ("factor",),
    "downscale_factor": ("factor",),
}
"""What taskfuse may call an argument of torch."""

FREE = {"sorted", "stable"}
"""Arguments with which one result is right for all values: torch leaves the order of ties, or of elements, open for one of them."""

INTO = {"out", "layout", "device", "pin_memory", "memory_format", "non_blocking"}
"""Arguments that say where a result lies; the metadata of the result has it."""


def rule_of(name: str, overload: str) -> Rule | None:
    """The rule of an op, ``None`` if it has none: that of its overload, of its name, or of its row in the table of ops."""
    found = RULES.get(f"{name}.{overload}") or RULES.get(name)
    if found is not None:
        return found
    row = _row(name)
    if row is None:
        return None
    return {OpKind.ELEMENTWISE: elementwise}.get(row.kind) or (lambda call: by_name(call, row))


@cache
def _row(name: str) -> Op | None:
    found = by_torch(name)
    return None if found is None or found.kind in (OpKind.MISSING, OpKind.CREATION) else found


def elementwise(call: AtenCall) -> Made:
    """An elementwise function: the operands are the schema's tensors and numbers, in its order."""
    row = _row(call.name)
    assert row is not None
    function = cast("Callable[..., TensorView]", row.function)
    wanted = len([p for p in inspect.signature(function).parameters.values() if p.default is p.empty])
    names = [name for name, value in call.given.items() if isinstance(value, TensorView | Expr | Quotient | bool | int | float) and name not in INTO][:wanted]
    operands = [call[name] for name in names]
    if len(operands) != wanted:
        raise Refused(f"it has {len(operands)} operands")
    return applied(row.name, function, operands, call)


def applied(name: str, function: Callable[..., TensorView], operands: list[Any], call: AtenCall) -> TensorView:
    """An elementwise function of operands in the dtype that torch computes in."""
    row = ELEMENTWISE[name]
    values = operands[1:] if row.rule is DTypeRule.SELECT else operands
    dtype = computed_in(promoted(values) if call.out.dtype is bool_ else call.out.dtype, values)
    if row.rule is DTypeRule.SELECT:
        condition = operands[0]
        made = where(condition, *(_operand(v, dtype) for v in values))
    else:
        made = function(*(_operand(v, dtype) for v in values))
    return made


def _operand(value: Any, dtype: Any) -> Any:
    """A tensor in a dtype; a number of a kind that the dtype has."""
    if isinstance(value, TensorView):
        return converted(value, dtype)
    if isinstance(value, bool | int) and dtype.is_float:
        return float(value)
    if isinstance(value, bool) and dtype.is_integer:
        return int(value)
    if isinstance(value, Expr | Quotient):
        return filled(value, dtype)
    return value if dtype.holds(value) else full([], value, dtype)


def by_name(call: AtenCall, row: Op) -> Made:
    """A function whose arguments have the names of torch's, or those of :data:`SAME`; the first takes the first tensor."""
    function = cast("Callable[..., Made]", row.function)
    parameters = list(inspect.signature(function).parameters)
    given: dict[str, Any] = {}
    for place, name in enumerate(call.given):
        own = next((own for own in (name, *SAME.get(name, ())) if own in parameters), None)
        if place == 0:
            given[parameters[0]] = call[name]
        elif own is not None:
            given[own] = call[name]
        elif name in FREE:
            call.get(name)
    if any(isinstance(v, list) and any(not isinstance(x, TensorView | int) for x in members(v)) for v in given.values()):
        raise Refused("an extent of it is symbolic")
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise Refused(f"its arguments are not those of tf.{row.name}: {error}") from None
    return function(**given)
