"""Matrix products whose rows are not multiples of 16 bytes, padded so that they are.

torch's kernels for products of 16-bit floats load and store 16 bytes at once if the contiguous axes of factors and result are multiples of 16 bytes; otherwise,
as for a vocabulary of 50257 words, it has kernels that take several times as long (:class:`taskfuse.figures.TorchFigures`). A product of padded factors
costs at most copies of the factors: a fusion that makes a factor writes it padded, and a fusion that reads the result reads a part of
each row. Expected times decide whether that pays.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from taskfuse.cuda.present import present
from taskfuse.torch.fates import GraphPartition, NodeKind

ROW: Final = 16
"""Bytes of the vectors of torch's kernels."""
aten: Any = torch.ops.aten


def pad_products(graph: Graph, plan: GraphPartition, device: str) -> bool:
    """Pad the products that gain from it on devices of a type, with torch's metadata for new nodes. True if anything is padded."""
    made: dict[tuple[Node, tuple[int, ...]], Node] = {}
    found = False
    for node in list(graph.nodes):
        if node.target is aten.mm.default and plan.kinds[node] is NodeKind.TORCH and node.meta["val"].device.type == device:
            found = _padded(graph, node, plan, made) or found
    return found


def _padded(graph: Graph, node: Node, plan: GraphPartition, made: dict[tuple[Node, tuple[int, ...]], Node]) -> bool:
    a, b = node.args
    values = [n.meta.get("val") for n in (a, b, node)]
    if not all(isinstance(v, torch.Tensor) and v.element_size() == 2 and all(isinstance(e, int) for e in (*v.shape, *v.stride())) for v in values):
        return False
    x, y, z = values
    (m, k), n, unit = x.shape, y.shape[1], ROW // x.element_size()
    more = {"m": 0, "n": -n % unit, "k": 0}
    for v, (rows, columns) in ((x, "mk"), (y, "kn")):
        inner = columns if v.stride(1) == 1 else rows
        more[inner] = -dict(m=m, n=n, k=k)[inner] % unit
    widths = (more["m"], more["k"]), (more["k"], more["n"])
    if not any(more.values()) or min(m, n, k) < unit:
        return False
    exact = bool(more["n"]) and not all(plan.kinds[r] is NodeKind.MATH for r in _readers(node, plan))
    target = present()
    copies = [v.nbytes for v, width in zip((x, y), widths, strict=True) if any(width)] + [z.nbytes] * exact
    product = target.tensor_us(float(m) * n * k, x.element_size())
    if (target.torch.unaligned_factor - 1) * product < sum(target.alone_us(target.dram_us(2 * size)) for size in copies):
        return False
    with z.fake_mode, torch.no_grad():
        strides = (n + (0 if exact else more["n"]), 1)
        if _through_views(node, torch.empty_strided((m, n), strides, dtype=z.dtype, device=z.device), plan) is None:
            return False
    with graph.inserting_before(node):
        factors = [_pad(graph, f, width, made) for f, width in zip((a, b), widths, strict=True)]
        part = _call(graph, aten.mm.default, *factors)
        part = _call(graph, aten.slice.Tensor, part, 0, 0, m) if more["m"] else part
        part = _call(graph, aten.slice.Tensor, part, 1, 0, n) if more["n"] else part
        if exact:
            part = _call(graph, aten.clone.default, part, memory_format=torch.contiguous_format)
    for view, value in (_through_views(node, part.meta["val"], plan) or {}).items():
        view.meta["val"] = value
    node.replace_all_uses_with(part)
    graph.erase_node(node)
    return True


def _call(graph: Graph, op: Any, *args: Any, **kwargs: Any) -> Node:
    node = graph.call_function(op, args, kwargs)
    first = args[0].meta["val"]
    values = map_arg(args, lambda n: n.meta["val"])
    with first.fake_mode, torch.no_grad():
        node.meta["val"] = op(*values, **kwargs)
    return node


def _pad(graph: Graph, factor: Node, width: tuple[int, int], made: dict[tuple[Node, tuple[int, ...]], Node]) -> Node:
    """A factor with zeros below and to the right; the factor behind a transposition, so that it lies as before."""
    if not any(width):
        return factor
    turned = factor.target in (aten.permute.default, aten.t.default) and not factor.meta["val"].is_contiguous()
    base: Any = factor.args[0] if turned else factor
    below, right = width[::-1] if turned else width
    key = base, (below, right)
    if key not in made:
        made[key] = _call(graph, aten.constant_pad_nd.default, base, [0, right, 0, below], 0.0)
    return _call(graph, aten.permute.default, made[key], [1, 0]) if turned else made[key]


def _readers(node: Node, plan: GraphPartition) -> Iterator[Node]:
    """Who reads a tensor, also through views."""
    stack, seen = list(node.users), set[Node]()
    while stack:
        user = stack.pop()
        if user in seen:
            continue
        seen.add(user)
        if plan.kinds.get(user) is NodeKind.GLUE:
            stack += list(user.users)
        else:
            yield user


def _through_views(node: Node, part: Any, plan: GraphPartition) -> dict[Node, Any] | None:
    """What torch says of the views of ``node`` if that is the fake tensor ``part``; ``None`` if one of them is not a view then."""
    new: dict[Node, Any] = {node: part}

    def value_of(n: Any) -> Any:
        return new[n] if n in new else n.meta.get("val")

    try:
        with part.fake_mode, torch.no_grad():
            stack = [node]
            while stack:
                for user in stack.pop().users:
                    if plan.kinds.get(user) is NodeKind.GLUE and user not in new:
                        args, kwargs = map_arg((user.args, user.kwargs), value_of)
                        new[user] = args[0][args[1]] if user.target is getitem else user.target(*args, **kwargs)
                        stack.append(user)
    except Exception:  # torch's, whatever it is: a view that there is not
        return None
    del new[node]
    return new
