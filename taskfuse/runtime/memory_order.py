"""A fusion without strides and in-place results: the form that is scheduled or lowered, with axes in memory order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse import ops
from taskfuse.ir.fusion import Fusion, Result
from taskfuse.ir.strides import order_of
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import Renaming, copy_fusion, embed

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """A fusion without requirements for its results, and how to convert arguments and results.

    Attributes:
        orders: inputs and outputs whose axes are permuted, by name, with the permutation.
        into: outputs that are written into the whole array of an input, with that input.
    """

    fusion: Fusion
    orders: Mapping[str, Order]
    into: Mapping[str, str]


def is_plain(fusion: Fusion) -> bool:
    """True if a call returns every output once, row-major, in its own array, and inputs may have any layout."""
    return not fusion.strides and all(r.is_plain for r in fusion.results) and len(fusion.results) == len(fusion.outputs)


def in_memory_order(fusion: Fusion) -> Plain:
    """The fusion for automatic schedules, with the axes of inputs and outputs in memory order."""
    facts, orders = fusion.facts(), dict[str, Order]()
    wanted = {tv.name: (tv.shape, strides) for tv, strides in fusion.strides.items()}
    wanted |= {r.tensor.name: (r.tensor.shape, r.strides) for r in fusion.results if r.strides is not None}
    for name, (shape, strides) in wanted.items():
        order = order_of(shape, strides, facts)
        if order is not None and order != tuple(range(len(shape))):
            orders[name] = order
    into: dict[str, str] = {}
    for r in fusion.results:
        if r.into is not None and r.into.is_input:
            into[r.tensor.name] = r.into.name
            if r.into.name in orders:
                orders[r.tensor.name] = orders[r.into.name]
    new = Fusion(fusion.name)
    new.dims.update(fusion.dims)
    given: dict[str, TensorView] = {}
    with new:
        for tv in fusion.inputs:
            order = orders.get(tv.name, tuple(range(tv.ndim)))
            lying = ops.define_tensor([tv.shape[k] for k in order], tv.dtype, tv.name)
            given[tv.name] = ops.permute(lying, [order.index(k) for k in range(tv.ndim)]).named(f"{tv.name}.logical") if tv.name in orders else lying
        stored = {name: f"{name}.logical" for name in orders if name not in given}
        tensors = embed(fusion, new, Renaming(values=stored, inputs=given)).tensors
        new.outputs.clear()
        new.results.clear()
        new.strides.clear()
        for tv in fusion.outputs:
            made = tensors[tv]
            new.add_output(ops.permute(made, orders[tv.name]).named(tv.name) if tv.name in orders else made)
    return Plain(new, orders, into)


def in_given_order(fusion: Fusion) -> Plain:
    """The fusion for its own schedule; outputs that are written into inputs are kept."""
    new, tensors = copy_fusion(fusion)
    into = {r.tensor.name: r.into.name for r in fusion.results if r.into is not None and r.into.is_input}
    new.strides.clear()
    whole = {r.tensor: r.into for r in fusion.results if r.tensor.name in into}
    places = {tensors[tv]: None if place is None else tensors[place] for tv, place in whole.items()}
    new.results[:] = [Result(tv, None, places.get(tv)) for tv in new.outputs]
    return Plain(new, {}, into)
