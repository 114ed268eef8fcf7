"""Ops of lists of tensors (``_foreach_add``), as steps of optimizers are written: each becomes one op for each tensor.

torch launches such an op for the whole list, and the next one after it: what stands between goes through memory. Op by op, each tensor has a chain of its own,
which one fusion computes; those that do not depend on each other share launches (:func:`taskfuse.torch.partition.planned`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, TypeGuard

import torch

aten: Final[Any] = torch.ops.aten

PLAIN: Final = (
    "abs acos add asin atan ceil clamp_max clamp_min clone cos cosh div erf erfc exp expm1 floor frac lerp lgamma log log10 log1p log2 maximum minimum",
    "mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc",
)
"""Ops of lists with the arguments that the op of one tensor has: in place of a tensor or a number there is a list of them, or one for all."""


def norm(x: Any, order: Any = 2, dtype: Any = None) -> Any:
    """The norm of all elements of a tensor."""
    return torch.linalg.vector_norm(x, order, dtype=dtype)


ANOTHER: Final[Mapping[str, Callable[..., Any]]] = {
    "copy": aten.copy,
    "norm": norm,
    "max": torch.amax,
    "zero": torch.zeros_like,
}
"""Those that are called otherwise for one tensor."""
WITH_NUMBERS: Final = {"maximum": "clamp_min", "minimum": "clamp_max"}
"""Ops of two tensors, and what they are with a number in place of the second."""
PRODUCTS: Final[Mapping[str, Callable[..., Any]]] = {"addcdiv": torch.div, "addcmul": torch.mul}
"""What is computed of two tensors, and added to a third after a multiplication by a number."""


def of_lists(device: str) -> dict[Any, Any]:
    """The decompositions of ops of lists.

    Args:
        device: the type of the devices whose lists are taken apart; torch computes others whole.
    """
    made: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # of tensors, and with a number in place of the second
    for name in (name for line in PLAIN for name in line.split()):
        own = getattr(torch, name)
        made[name] = partial(each, own), partial(each, getattr(torch, WITH_NUMBERS.get(name, name)))
    made |= {name: (partial(each, own), partial(each, own)) for name, own in ANOTHER.items()}
    made |= {name: (own := partial(_sums, getattr(torch, name), product), own) for name, product in PRODUCTS.items()}
    found: dict[Any, Any] = {aten._amp_foreach_non_finite_check_and_unscale.default: partial(_apart, device, unscale)}
    for name, functions in made.items():
        packet = getattr(aten, f"_foreach_{name}", None)
        for op in [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]:
            if not any(a.is_out for a in op._schema.arguments):
                has_numbers = any(a.name in ("scalar", "scalars") for a in op._schema.arguments)
                found[op] = partial(_apart, device, functions[has_numbers])
    return found


def _apart(device: str, function: Callable[..., Any], first: Any, *args: Any, **named: Any) -> Any:
    """The results of a function of lists; ``NotImplemented`` where no tensor of them is on such a device."""
    tensors = [x for a in (first, *args) if _is_list(a) for x in a if isinstance(x, torch.Tensor)]
    return function(first, *args, **named) if any(x.device.type == device for x in tensors) else NotImplemented


def each(function: Callable[..., Any], *args: Any, **named: Any) -> list[Any]:
    """The results of a function for the members of lists; what is no list is the same for all."""
    scalars = named.pop("scalars", named.pop("scalar", None))
    given = args if scalars is None else (*args, scalars)
    return [function(*own, **named) for own in _members(given)]


def _sums(whole: Callable[..., Any], product: Callable[..., Any], added: Any, first: Any, second: Any, *numbers: Any, **named: Any) -> list[Any]:
    """``added + number * product(first, second)`` for the members of lists, with numbers, or with elements of a tensor."""
    number: Any = next(iter((*numbers, *named.values(), 1)))
    if isinstance(number, torch.Tensor):
        values: Any = torch.unbind(number)
        return [a + x * product(b, c) for a, b, c, x in _members((added, first, second, values))]
    return [whole(a, b, c, value=x) for a, b, c, x in _members((added, first, second, number))]


def unscale(tensors: Sequence[Any], found: Any, scale: Any) -> tuple[list[Any], Any]:
    """Gradients times the inverse of the scale of their loss, and whether one of them is not finite, as 1 or what was found before."""
    wrong = reduce(torch.logical_or, (torch.logical_not(torch.isfinite(x)).any() for x in tensors))
    return [x * scale for x in tensors], torch.where(wrong, torch.ones_like(found), found)


def _members(args: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The arguments of each member."""
    for k in range(max(len(a) for a in args if _is_list(a))):
        yield tuple(a[k] if _is_list(a) else a for a in args)


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)
