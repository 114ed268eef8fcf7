"""How the source of a graph calls an op that is left to torch.

torch binds most ops twice: as ``torch.ops.aten.add.Tensor``, which parses its arguments by a schema at run time, and as ``torch.add``, whose parsing is
generated; the first takes the host twice as long. The second is used if it reaches the same overload with the same arguments; a trial call, which is
caught before the op runs, shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

from taskfuse.cuda.arrays import quick_empty
from taskfuse.torch.metadata import members

HOMES: dict[str, Any] = {"torch": torch._C._VariableFunctions, "torch.nn": torch._C._nn, "torch.Tensor": torch._C.TensorBase}
"""Where torch has functions of ops."""


@dataclass(frozen=True, slots=True)
class OpName:
    """An op of torch by name: its object cannot be pickled."""

    namespace: str
    name: str
    overload: str

    def found(self) -> Any:
        """What calls the op."""
        op = getattr(getattr(getattr(torch.ops, self.namespace), self.name), self.overload)
        return getattr(op, "_op", op)  # without a frame of Python around it


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function of torch by name."""

    home: str
    name: str

    def found(self) -> Any:
        """The function."""
        return getattr(HOMES[self.home], self.name)


GUARDS: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
"""Torch's fastest functions that make tensors and views."""


def allocator(device: Any) -> Callable[[tuple[int, ...], tuple[int, ...], Any], Any]:
    """What makes tensors of a shape, strides and dtype on a device."""

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return quick_empty(torch, device.type) or empty


def viewer() -> Callable[[Any, tuple[int, ...], tuple[int, ...], int], Any]:
    """What makes a view: of a tensor, with a shape and strides, from an element of it on."""

    def view(x: Any, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Any:
        return torch.as_strided(x, shape, strides, x.storage_offset() + start)

    return getattr(GUARDS, "_reinterpret_tensor", view)


class _Reached(Exception):
    """Carries the op that a call reaches."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op


class _Catch(TorchDispatchMode):
    """Lets no op run."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Reached(func)


def function_of(node: Node, known: dict[Any, FunctionName | None]) -> FunctionName | None:
    """The function that does what a node's op does, given its arguments; ``None``: there is none.

    Args:
        known: the answers so far, by op and kinds of arguments.
    """
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return None
    key = op, tuple(map(_kind, node.args)), tuple((k, _kind(v)) for k, v in node.kwargs.items())
    if key not in known:
        known[key] = _found(node, op)
    return known[key]


def _found(node: Node, op: Any) -> FunctionName | None:
    name = op._schema.name.split("::")[1]
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    for home, module in HOMES.items():
        function = getattr(module, name, None)
        if function is not None and reached(function, args, kwargs) is op:
            return FunctionName(home, name)
    return None


def reached(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The first op that a call reaches; ``None`` if it fails before, or reaches none."""
    try:
        with torch.no_grad(), _Catch():
            function(*args, **kwargs)
    except _Reached as found:
        return found.op
    except Exception:  # whatever torch says of arguments that are not for this function
        return None
    return None


def _kind(value: Any) -> Any:
    """What the choice among a function's signatures depends on."""
    if isinstance(value, Node):
        return _kind(value.meta.get("val"))
    name = type(value).__name__
    if isinstance(value, list | tuple):
        return name, tuple(map(_kind, members(value)))
    return ("Tensor", value.dim() == 0) if isinstance(value, torch.Tensor) else name
