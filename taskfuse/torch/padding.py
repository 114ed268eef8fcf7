"""Matrix products whose rows are not multiples of 16 bytes, padded so that they are.

torch's kernels for products of 16-bit floats load and store 16 bytes at once if the contiguous axes of factors and result are multiples of 16 bytes; otherwise,
as for a vocabulary of 50257 words, it has kernels that take several times as long (:class:`taskfuse.figures.TorchFigures`). A product of padded factors
costs at most copies of the factors: a fusion that makes a factor writes it padded, and a fusion that reads the result reads a part of
each row. Expected times decide whether that pays.

In training, products are padded before the graph is divided into a forward and a backward one: what the forward graph keeps is then a part of each row, too,
while a result of that graph alone would have to lie as torch says.
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
OWN: Final = "val", "tensor_meta"
"""torch's metadata that is of the result of a node."""
aten: Any = torch.ops.aten


def pad_products(graph: Graph, plan: GraphPartition, device: str) -> bool:
    """Pad the products that gain from it on devices of a type, with torch's metadata for new nodes. True if anything is padded."""
    made: dict[tuple[Node, tuple[int, ...]], Node] = {}
    found = False
    for node in list(graph.nodes):
        if has_odd_rows(node) and plan.kinds[node] is NodeKind.TORCH and node.meta["val"].device.type == device:
            found = _padded(graph, node, plan, made) or found
    return found


def has_odd_rows(node: Node) -> bool:
    """Whether a node is a product of 16-bit floats, of constant extents, with rows that are not multiples of 16 bytes."""
    if node.target is not aten.mm.default:
        return False
    values = [n.meta.get("val") for n in (*node.args, node)]
    if not all(isinstance(v, torch.Tensor) and v.element_size() == 2 and all(isinstance(e, int) for e in (*v.shape, *v.stride())) for v in values):
        return False
    return any(_missing(node).values()) and min(*values[0].shape, *values[1].shape) >= ROW // values[0].element_size()


def _missing(node: Node) -> dict[str, int]:
    """The elements that the extents ``m``, ``n``, ``k`` of a product lack, where these are those of rows in memory."""
    x, y = (n.meta["val"] for n in node.args)
    extents = {"m": x.shape[0], "n": y.shape[1], "k": y.shape[0]}
    inner = "n", ("k" if x.stride(1) == 1 else "m"), ("n" if y.stride(1) == 1 else "k")
    return {name: -extents[name] % (ROW // x.element_size()) if name in inner else 0 for name in extents}


def _padded(graph: Graph, node: Node, plan: GraphPartition, made: dict[tuple[Node, tuple[int, ...]], Node]) -> bool:
    x, y, z = (n.meta["val"] for n in (*node.args, node))
    (m, k), n, more = x.shape, y.shape[1], _missing(node)
    widths = (more["m"], more["k"]), (more["k"], more["n"])
    exact = bool(more["n"]) and not all(plan.kinds[r] is NodeKind.MATH for r in readers(node, plan))
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
        factors = [_pad(graph, node, f, width, made) for f, width in zip(node.args, widths, strict=True)]
        part = _call(graph, node, aten.mm.default, *factors)
        part = _call(graph, node, aten.slice.Tensor, part, 0, 0, m) if more["m"] else part
        part = _call(graph, node, aten.slice.Tensor, part, 1, 0, n) if more["n"] else part
        if exact:
            part = _call(graph, node, aten.clone.default, part, memory_format=torch.contiguous_format)
    for view, value in (_through_views(node, part.meta["val"], plan) or {}).items():
        view.meta["val"] = value
    node.replace_all_uses_with(part)
    graph.erase_node(node)
    return True


def _call(graph: Graph, place: Node, op: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node, for what torch's partitioner asks in the place of another one: whether it is to be computed again, and in which direction it belongs."""
    node = graph.call_function(op, args, kwargs)
    node.meta |= {key: value for key, value in place.meta.items() if key not in OWN}
    first = args[0].meta["val"]
    values = map_arg(args, lambda n: n.meta["val"])
    with first.fake_mode, torch.no_grad():
        node.meta["val"] = op(*values, **kwargs)
    return node


def _pad(graph: Graph, product: Node, factor: Node, width: tuple[int, int], made: dict[tuple[Node, tuple[int, ...]], Node]) -> Node:
    """A factor with zeros below and to the right; the factor behind a transposition, so that it lies as before."""
    if not any(width):
        return factor
    turned = factor.target in (aten.permute.default, aten.t.default) and not factor.meta["val"].is_contiguous()
    base: Any = factor.args[0] if turned else factor
    below, right = width[::-1] if turned else width
    key = base, (below, right)
    if key not in made:
        made[key] = _call(graph, product, aten.constant_pad_nd.default, base, [0, right, 0, below], 0.0)
    return _call(graph, product, aten.permute.default, made[key], [1, 0]) if turned else made[key]


def readers(node: Node, plan: GraphPartition) -> Iterator[Node]:
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
