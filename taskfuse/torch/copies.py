"""Copies into arguments of a graph, such as running statistics: consecutive copies are one call of torch, and so one launch per dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import torch
from torch.fx import Node

COPY: Final[Any] = torch.ops.aten.copy_.default
COPIES: Final[Any] = torch.ops.aten._foreach_copy_.default


def joined(order: Sequence[Node | int]) -> Iterator[Node | int | list[Node]]:
    """The steps of a graph, where copies that may run in any order are lists of two or more."""
    run: list[Node] = []
    for step in order:
        if isinstance(step, Node) and _is_plain(step):
            if not _is_apart([*run, step]):
                yield from _lists(run)
                run = []
            run.append(step)
        else:
            yield from _lists(run)
            run = []
            yield step
    yield from _lists(run)


def _is_plain(node: Node) -> bool:
    """Whether a node copies all elements of one tensor to another of the same form on the same device, and nobody reads what it gives."""
    if node.target is not COPY or node.users or node.kwargs or len(node.args) != 2:
        return False
    values: list[Any] = [a.meta.get("val") if isinstance(a, Node) else None for a in node.args]
    out, source = values
    if not isinstance(out, torch.Tensor) or not isinstance(source, torch.Tensor):
        return False
    is_constant = all(isinstance(n, int) for n in (*out.shape, *source.shape))
    return is_constant and out.shape == source.shape and out.dtype is source.dtype and out.device == source.device


def _is_apart(copies: Sequence[Node]) -> bool:
    """Whether nothing that one of some copies writes is written or read by another: by the memory that torch's metadata lies in."""
    written, read = ([_memory(node.args[side]) for node in copies] for side in (0, 1))
    return len(set(written)) == len(written) and not set(written) & set(read)


def _memory(node: Any) -> int:
    return node.meta["val"].untyped_storage()._cdata


def _lists(run: Sequence[Node]) -> Iterator[Node | list[Node]]:
    """Copies of one dtype on one device together."""

    def kind(node: Node) -> tuple[str, str]:
        out: Any = node.args[0]
        value = out.meta["val"]
        return str(value.dtype), str(value.device)

    for _, group in groupby(sorted(run, key=kind), kind):
        nodes = list(group)
        yield nodes if len(nodes) > 1 else nodes[0]
