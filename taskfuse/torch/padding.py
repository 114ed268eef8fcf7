"""Matrix products whose rows are not multiples of 16 bytes, padded so that they are.

torch's kernels for products of 16-bit floats load and store 16 bytes at once if the contiguous axes of factors and result are multiples of 16 bytes; otherwise,
as for a vocabulary of 50257 words, it has kernels that take several times as long (:class:`taskfuse.figures.TorchFigures`). A product of padded factors
costs at most copies of the factors: a fusion that makes a factor writes it padded, and a fusion that reads the result reads a part of
each row. Expected times decide whether that pays; where other extents are symbols, those of the call for which torch traces.

In training, products are padded before the graph is divided into a forward and a backward one: what the forward graph keeps is then a part of each row, too,
while a result of that graph alone would have to lie as torch says.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from taskfuse.cuda.present import present
from taskfuse.torch.fates import GraphPartition, NodeKind
from taskfuse.torch.metadata import results, size_hint

ROW: Final = 16
"""Bytes of the vectors of torch's kernels."""
OWN: Final = "val", "tensor_meta"
"""torch's metadata that is of the result of a node."""
aten: Any = torch.ops.aten
SHAPE_READERS: Final = frozenset({aten.sym_size.int, aten.sym_numel.default})
"""Ops that read the size of a tensor, which is the same however its rows lie."""

Place = tuple[list[Any], Any]
"""The strides of a view, and its offset in the memory that it is in."""


def pad_products(graph: Graph, plan: GraphPartition, device: str) -> bool:
    """Pad the products that gain from it on devices of a type, with torch's metadata for new nodes. True if anything is padded."""
    made: dict[tuple[Node, tuple[int, ...]], Node] = {}
    found = False
    for node in list(graph.nodes):
        if has_odd_rows(node) and plan.kinds[node] is NodeKind.TORCH and node.meta["val"].device.type == device:
            found = _padded(graph, node, plan, made) or found
    return found


def has_odd_rows(node: Node) -> bool:
    """Whether a node is a product of 16-bit floats with rows of constant length that are not multiples of 16 bytes."""
    if node.target is not aten.mm.default:
        return False
    values = [n.meta.get("val") for n in (*node.args, node)]
    if not all(isinstance(v, torch.Tensor) and v.element_size() == 2 for v in values):
        return False
    return any(_missing(node).values()) and min(map(size_hint, (*values[0].shape, *values[1].shape))) >= ROW // values[0].element_size()


def _missing(node: Node) -> dict[str, int]:
    """The elements that the extents ``m``, ``n``, ``k`` of a product lack, where these are those of rows in memory.

    Symbols lack none: how much that were would change. Where rows of such a length are expected to be odd, nothing is gained by other rows.
    """
    x, y = (n.meta["val"] for n in node.args)
    extents = {"m": x.shape[0], "n": y.shape[1], "k": y.shape[0]}
    inner = "n", ("k" if _is_one(x.stride(1)) else "m"), ("n" if _is_one(y.stride(1)) else "k")
    lack = {name: -size_hint(extents[name]) % (ROW // x.element_size()) for name in inner}
    symbols = {name for name in lack if isinstance(extents[name], torch.SymInt)}
    is_odd = any(lack[name] for name in symbols)
    return {name: 0 if is_odd or name in symbols else lack.get(name, 0) for name in extents}


def _is_one(number: Any) -> bool:
    """Whether a number is 1, and no symbol."""
    return isinstance(number, int) and number == 1


def _padded(graph: Graph, node: Node, plan: GraphPartition, made: dict[tuple[Node, tuple[int, ...]], Node]) -> bool:
    x, y, z = (n.meta["val"] for n in (*node.args, node))
    (m, k), n, more = x.shape, y.shape[1], _missing(node)
    widths = (more["m"], more["k"]), (more["k"], more["n"])
    exact = bool(more["n"]) and not all(plan.kinds[r] is NodeKind.MATH for r in readers(node, plan))
    target = present()
    copies = [_bytes(v) for v, width in zip((x, y), widths, strict=True) if any(width)] + [_bytes(z)] * exact
    product = target.tensor_us(float(size_hint(m)) * size_hint(n) * size_hint(k), x.element_size())
    if (target.torch.unaligned_factor - 1) * product < sum(target.alone_us(target.dram_us(2 * size)) for size in copies):
        return False
    views = {} if exact or not isinstance(n, int) else _views(node, plan, n, n + more["n"])
    if views is None and more["n"]:
        return False
    with graph.inserting_before(node), z.fake_mode, torch.no_grad():
        factors = [_pad(graph, node, f, width, made) for f, width in zip(node.args, widths, strict=True)]
        part = _call(graph, node, aten.mm.default, *factors, value=z.new_empty((m + more["m"], n + more["n"])))
        part = _call(graph, node, aten.slice.Tensor, part, 0, 0, m, value=part.meta["val"][:m]) if more["m"] else part
        part = _call(graph, node, aten.slice.Tensor, part, 1, 0, n, value=part.meta["val"][:, :n]) if more["n"] else part
        if exact:  # what is made of z is a view of this
            part = _call(graph, node, aten.clone.default, part, memory_format=torch.contiguous_format, value=z)
    for view, places in (views or {}).items():
        found = [_viewed(part.meta["val"], old, at) for old, at in zip(results(view), places, strict=True)]
        view.meta["val"] = found if isinstance(view.meta["val"], list) else tuple(found) if isinstance(view.meta["val"], tuple) else found[0]
    node.replace_all_uses_with(part)
    graph.erase_node(node)
    return True


def _call(graph: Graph, place: Node, op: Any, *args: Any, value: Any, **kwargs: Any) -> Node:
    """A new node, for what torch's partitioner asks in the place of another one: whether it is to be computed again, and in which direction it belongs.

    Args:
        value: the result, as a fake tensor: torch's own functions for these may compare extents, which adds guards.
    """
    node = graph.call_function(op, args, kwargs)
    node.meta |= {key: value for key, value in place.meta.items() if key not in OWN}
    node.meta["val"] = value
    return node


def _bytes(value: Any) -> int:
    """The bytes of a tensor, in the call for which torch traces."""
    return value.element_size() * prod(map(size_hint, value.shape))


def _pad(graph: Graph, product: Node, factor: Node, width: tuple[int, int], made: dict[tuple[Node, tuple[int, ...]], Node]) -> Node:
    """A factor with zeros below and to the right; the factor behind a transposition, so that it lies as before."""
    if not any(width):
        return factor
    turned = factor.target in (aten.permute.default, aten.t.default) and not factor.meta["val"].is_contiguous()
    base: Any = factor.args[0] if turned else factor
    below, right = width[::-1] if turned else width
    key = base, (below, right)
    if key not in made:
        rows, columns = base.meta["val"].shape
        value = base.meta["val"].new_empty((rows + below, columns + right))
        made[key] = _call(graph, product, aten.constant_pad_nd.default, base, [0, right, 0, below], 0.0, value=value)
    return _call(graph, product, aten.permute.default, made[key], [1, 0], value=made[key].meta["val"].t()) if turned else made[key]


def readers(node: Node, plan: GraphPartition) -> Iterator[Node]:
    """Who reads the elements of a tensor, also through views: not its size alone."""
    stack, seen = list(node.users), set[Node]()
    while stack:
        user = stack.pop()
        if user in seen:
            continue
        seen.add(user)
        if plan.kinds.get(user) is NodeKind.GLUE:
            stack += list(user.users)
        elif user.target not in SHAPE_READERS:
            yield user


def _views(node: Node, plan: GraphPartition, row: int, padded: int) -> dict[Node, list[Place | None]] | None:
    """Where the elements of each view of a product are if its rows are ``padded`` elements apart, and not ``row``; ``None`` if one is no view then.

    A view may have several results. A result in other memory, of an op that reads the shape alone, has no place.
    """
    found: dict[Node, list[Place | None]] = {}
    memory = node.meta["val"].untyped_storage()._cdata
    stack = [node]
    while stack:
        for user in stack.pop().users:
            if plan.kinds.get(user) is not NodeKind.GLUE or user in found:
                continue
            if user.target is aten.as_strided.default:  # its arguments are strides
                return None
            found[user] = []
            for value in results(user):
                is_view = isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == memory
                place = _place(value, row, padded) if is_view and value.dtype == node.meta["val"].dtype else None
                if is_view and place is None:
                    return None
                found[user].append(place)
            if any(found[user]):
                stack.append(user)
    return found


def _place(view: Any, row: int, padded: int) -> Place | None:
    """The strides of a view, and its offset, if rows are ``padded`` elements apart, and not ``row``; ``None`` if it is no view then, or not for all extents.

    Along an axis that goes from row to row, the stride is a multiple of ``row``; all others stay within one.
    """
    strides: list[Any] = []
    offset = view.storage_offset()
    if not isinstance(offset, int) and not statically_known_true(offset % row == 0):
        return None
    end = offset % row if isinstance(offset, int) else 0
    for extent, stride in zip(view.shape, view.stride(), strict=True):
        if statically_known_true(stride % row == 0):
            strides.append(stride // row * padded)
        elif isinstance(extent, int) and isinstance(stride, int):
            end += (extent - 1) * stride
            strides.append(stride)
        else:
            return None
    return (strides, offset // row * padded + (offset % row if isinstance(offset, int) else 0)) if end < row else None


def _viewed(part: Any, old: Any, place: Place | None) -> Any:
    """What torch says of a view at a place in the memory of ``part``, which was ``old`` elsewhere."""
    if place is None:
        return old
    with part.fake_mode, torch.no_grad():
        return part.as_strided(old.shape, *place)
