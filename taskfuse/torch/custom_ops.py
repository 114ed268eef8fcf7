"""A fusion as an op of torch: with a fake kernel, gradients, and a rule for ``vmap``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import torch

from taskfuse.dtypes import DType
from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, Sym
from taskfuse.location import caller
from taskfuse.runtime.compile import compile
from taskfuse.runtime.executable import Executable
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.metadata import members, torch_dtype

_libraries: list[Any] = []  # an op lives as long as its library


def library(fusion: Fusion, name: str | None = None, *, backward: Fusion | None = None, namespace: str = "taskfuse", **options: Any) -> Callable[..., Any]:
    """Make a fusion an op of torch, ``torch.ops.<namespace>.<name>``, that compiled models, autograd and ``vmap`` can call.

    On GPUs its kernels run, with the fusion's schedule if it has one; on the host, the reference. ``vmap`` calls it once for each element of the batch.

    Args:
        fusion: its inputs, run-time scalars and integers are the arguments, in this order; its results are those of the op: one tensor, or several.
        name: of the op; by default that of the fusion.
        backward: its gradients. An input is named like an input or output of ``fusion``, or ``grad_`` and an output's name: the gradient that comes in. An
            output is named ``grad_`` and an input's name: inputs without one get no gradient. Run-time scalars and integers have the names of those of
            ``fusion``.
        namespace: of the op.
        options: of :func:`taskfuse.compile`.

    Returns the op: a function of tensors.

    Raises:
        UnsupportedError: a result is written into an input; an extent of a result does not follow from an extent of an input that is a name; an
            input or output of ``backward`` has none of those names.
    """
    own = name or fusion.name
    _check(fusion)
    forward = _Runner(fusion, options)
    made = torch.library.Library(namespace, "FRAGMENT")
    _libraries.append(made)
    results = len(fusion.results)
    returns = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    tags = (torch.Tag.pt2_compliant_tag,)
    made.define(f"{own}({_parameters(fusion)}) -> {returns}", tags=tags)
    qualified = f"{namespace}::{own}"

    def run(*args: Any) -> Any:
        found = forward(args)
        return found[0] if results == 1 else found

    def fake(*args: Any) -> Any:
        found = _fakes(fusion, args)
        return found[0] if results == 1 else tuple(found)

    for key in ("CPU", "CUDA"):
        made.impl(own, run, key)
    torch.library.register_fake(qualified, fake, lib=made)
    op: Any = getattr(getattr(torch.ops, namespace), own)
    if backward is not None:
        _register_gradients(qualified, fusion, backward, library(backward, f"{own}_backward", namespace=namespace, **options), made)

    def batched(info: Any, in_dims: Any, *args: Any) -> Any:
        if not info.batch_size:
            one = (a if d is None else a.new_empty([n for k, n in enumerate(a.shape) if k != d]) for a, d in zip(args, in_dims, strict=True))
            empty = [y.new_empty([0, *y.shape]) for y in _fakes(fusion, [*one])]
            return (empty[0], 0) if results == 1 else (tuple(empty), (0,) * results)
        rows = [op(*(a if d is None else a.select(d, k) for a, d in zip(args, in_dims, strict=True))) for k in range(info.batch_size)]
        if results == 1:
            return torch.stack(rows), 0
        return tuple(torch.stack([row[k] for row in rows]) for k in range(results)), (0,) * results

    torch.library.register_vmap(qualified, batched, lib=made)
    return op


class _Runner:
    """A fusion as a function of tensors on GPUs, or on the host; compiled at the first call for GPUs."""

    def __init__(self, fusion: Fusion, options: dict[str, Any]) -> None:
        self.fusion = fusion
        self.options = options
        self.kernels: Executable | None = None
        self.reference = Compiled(str(fusion), "reference", len(fusion.inputs), 0)

    def __call__(self, args: Sequence[Any]) -> tuple[Any, ...]:
        tensors = args[: len(self.fusion.inputs)]
        if tensors and tensors[0].is_cuda:
            if self.kernels is None:
                self.kernels = compile(self.fusion, **self.options)
            found = self.kernels(*args)
        else:
            found = self.reference(*args)
        given = {t.untyped_storage().data_ptr() for t in tensors}
        fresh: list[Any] = []
        for y in found:  # results of an op of torch share no memory with its arguments, nor with each other
            place = y.untyped_storage().data_ptr()
            fresh.append(y.clone() if place in given and y.numel() else y)
            given.add(place)
        return tuple(fresh)


def _check(fusion: Fusion) -> None:
    reason = ""
    if any(r.into is not None for r in fusion.results):
        reason = "a result is written into an input"
    known = {str(e) for tv in fusion.inputs for e in tv.shape if isinstance(e, Sym)} | set(fusion.integers)
    for r in fusion.results:
        for e in (*r.tensor.shape, *(r.strides or ())):
            reason = reason or next((f"no extent of an input is {name}" for name in sorted(e.free) if name not in known), "")
    if not fusion.inputs:
        reason = "it has no input that is a tensor"
    if reason:
        raise UnsupportedError(what=f"fusion '{fusion.name}' as an op of torch", reason=reason, help="return new tensors of named extents", location=caller())


def _parameters(fusion: Fusion) -> str:
    parts = [f"Tensor {tv.name}" for tv in fusion.inputs]
    parts += [f"{_scalar_type(s.dtype)} {s.name}" for s in fusion.scalars]
    parts += [f"SymInt {name}" for name in fusion.integers]
    return ", ".join(parts)


def _scalar_type(dtype: DType) -> str:
    return "bool" if dtype.is_bool else "float" if dtype.is_float else "int"


def _fakes(fusion: Fusion, args: Sequence[Any]) -> list[Any]:
    """Results without elements for arguments without elements."""
    extents: dict[str, Any] = {}
    for tv, x in zip(fusion.inputs, args, strict=False):
        for e, n in zip(tv.shape, x.shape, strict=True):
            if isinstance(e, Sym):
                extents.setdefault(str(e), n)
    extents |= dict(zip(fusion.integers, args[len(fusion.inputs) + len(fusion.scalars) :], strict=True))
    found: list[Any] = []
    for r in fusion.results:
        shape = [_value(e, extents) for e in r.tensor.shape]
        dtype = torch_dtype(r.tensor.dtype)
        if r.strides is None:
            found.append(args[0].new_empty(shape, dtype=dtype))
        else:
            found.append(args[0].new_empty_strided(shape, [_value(e, extents) for e in r.strides], dtype=dtype))
    return found


def _least(*given: Any) -> Any:
    return reduce(torch.sym_min, given)


def _greatest(*given: Any) -> Any:
    return reduce(torch.sym_max, given)


def _ceildiv(a: Any, b: int) -> Any:
    return -(-a // b)


FUNCTIONS: Final[dict[str, Any]] = {"min": _least, "max": _greatest, "ceildiv": _ceildiv, "select": torch.sym_ite}
"""The functions in texts of expressions, of integers that may be symbols of torch."""


def _value(e: Expr, extents: dict[str, Any]) -> Any:
    """An expression at extents that may be symbols of torch."""
    if not e.free:
        return int(e)
    return eval(str(e), {**FUNCTIONS}, extents)


def _register_gradients(name: str, fusion: Fusion, backward: Fusion, op: Callable[..., Any], made: Any) -> None:
    """Gradients by a fusion whose arguments and results are found by their names."""
    arguments = list(fusion.arguments)
    outputs = [r.tensor.name for r in fusion.results]
    incoming = {f"grad_{o}": k for k, o in enumerate(outputs)}
    for known in backward.arguments:
        if known not in arguments and known not in outputs and known not in incoming:
            _unknown(backward, known, [*arguments, *outputs, *incoming])
    produced = [r.tensor.name for r in backward.results]
    for known in produced:
        if known.removeprefix("grad_") not in arguments or not known.startswith("grad_"):
            _unknown(backward, known, [f"grad_{a}" for a in arguments])
    saved = [n for n in backward.arguments if n in arguments or n in outputs]
    tensors = {tv.name for tv in fusion.inputs} | set(outputs)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        values = dict(zip(arguments, inputs, strict=True))
        each = members(output)
        values |= dict(zip(outputs, each, strict=True))
        ctx.save_for_backward(*(values[n] for n in saved if n in tensors))
        ctx.numbers = {n: values[n] for n in saved if n not in tensors}
        ctx.shapes = [(y.shape, y.dtype, y.device) for y in each]

    def gradients(ctx: Any, *given: Any) -> Any:
        values: dict[str, Any] = dict(zip([n for n in saved if n in tensors], ctx.saved_tensors, strict=True)) | ctx.numbers
        for known, k in incoming.items():
            shape, dtype, device = ctx.shapes[k]
            values[known] = given[k] if given[k] is not None else torch.zeros(shape, dtype=dtype, device=device)
        found = op(*(values[n] for n in backward.arguments))
        by_name = dict(zip(produced, members(found), strict=True))
        return tuple(by_name.get(f"grad_{a}") for a in arguments)

    torch.library.register_autograd(name, gradients, setup_context=setup, lib=made)


def _unknown(backward: Fusion, name: str, known: list[str]) -> None:
    reason = f"'{name}' is not a name that it can have"
    raise UnsupportedError(what=f"backward fusion '{backward.name}'", reason=reason, help=f"use one of {', '.join(known)}", location=caller())
