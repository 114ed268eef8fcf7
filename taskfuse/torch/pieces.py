"""How large the regions of a level are: connected nodes are cut where they are too many, and regions that are launched for little are put together.

**Cuts.** What reads a number that is computed of all elements of a tensor, such as the norm by which gradients are clipped, waits for all of it, whatever is
fused. A region that is too large is cut there first: its parts have *steps*, which rise with each such number on a path. A part that is still too large is cut
where the fewest tensors cross.

**Bundles.** A launch has a price, and a small kernel leaves most of a GPU idle. Small parts of one level and step do not depend on one another (a path from
one to another would raise one of the two), so some of them are a convex region, too: kernels of its own, side by side in one launch
(:mod:`taskfuse.schedulers.beside`). Only parts are put together whose results are numbers, or are read by nothing in the graph, as new parameters are: others
would be in memory for longer than they need be. A bundle is full when a launch is little beside it: each part more takes time to prove and to compile, which
equal bundles take once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import getitem
from typing import Final

import torch
from torch.fx import Node

from taskfuse.cuda.present import present
from taskfuse.ir.connectivity import components
from taskfuse.schedulers.beside import SMALL
from taskfuse.torch.copies import COPY
from taskfuse.torch.fates import GraphPartition, NodeKind, elements, mutates

MOST_BESIDE, MOST_NODES = 32, 400
"""The most parts of a bundle, and the most nodes of several: each adds to what has to be proved and compiled, and the more there are, the less a launch
matters. Bundles are compiled side by side."""
FULL: Final = 4 * SMALL
"""In launches: the time of a bundle to which no part is added."""


def pieces(connected: Sequence[Sequence[Node]], plan: GraphPartition, most: int) -> list[list[Node]]:
    """The regions of connected nodes of one level each, which are in the order of the graph; no region has many more than ``most`` nodes of one such set."""
    found: list[list[Node]] = []
    small: dict[tuple[int, int], list[list[Node]]] = {}
    for members in connected:
        for step, part in _parts(members, plan) if len(members) > most else [(0, list(members))]:
            cut = cut_apart(part, most)
            if len(cut) == 1 and _is_light(cut[0], plan):
                small.setdefault((plan.levels[part[0]], step), []).extend(cut)
            else:
                found += cut
    for parts in small.values():
        found += _bundles(_with_what_they_overwrite(parts, plan), plan)
    return found


def _bundles(parts: Sequence[list[Node]], plan: GraphPartition) -> Iterator[list[Node]]:
    """Small parts put together: equal ones, which are scheduled once in a bundle, and if they are many, in equal bundles."""
    target = present()
    bundle: list[Node] = []
    count, us = 0, 0.0
    for _, group in groupby(sorted(parts, key=_form), key=_form):
        alike = list(group)
        each = target.dram_us(_moved(alike[0], plan))
        fill = max(min(MOST_BESIDE, MOST_NODES // len(alike[0]), int(FULL * target.launch_us / max(each, target.launch_us))), 1)
        if len(alike) > fill:
            share = -(-len(alike) // -(-len(alike) // fill))
            yield from ([n for part in alike[k : k + share] for n in part] for k in range(0, len(alike), share))
            continue
        for part in alike:
            if bundle and (count == MOST_BESIDE or len(bundle) + len(part) > MOST_NODES or us + each > FULL * target.launch_us):
                yield bundle
                bundle, count, us = [], 0, 0.0
            bundle, count, us = [*bundle, *part], count + 1, us + each
    if bundle:
        yield bundle


def _with_what_they_overwrite(parts: Sequence[list[Node]], plan: GraphPartition) -> list[list[Node]]:
    """Parts, those together of which one reads an argument of the graph that another one writes to: a kernel of both reads each element before it overwrites
    it; side by side, neither would come first."""
    writer = {id(user.args[0]): k for k, part in enumerate(parts) for n in part for user in n.users if user.target is COPY}
    edges = [(k, writer[id(a)]) for k, part in enumerate(parts) for a in _read_from_outside(part, plan) if id(a) in writer]
    return [[n for k in together for n in parts[k]] for together in components(range(len(parts)), edges)]


def _parts(members: Sequence[Node], plan: GraphPartition) -> list[tuple[int, list[Node]]]:
    """The nodes of each step that read one another, with the step."""
    own = set(members)
    sources = {node: [s for s in sources_of(node, plan) if s in own] for node in members}
    gathers: set[Node] = set()  # what is computed of tensors of several elements, and has one
    for node in members:
        if elements(node) == 1 and any(elements(a) > 1 or a in gathers for a in (*node.all_input_nodes, *sources[node])):
            gathers.add(node)
    steps: dict[Node, int] = {}
    for node in members:
        steps[node] = max((steps[s] + _waits(s, node, gathers) for s in sources[node]), default=0)
    readers: dict[Node, list[Node]] = {node: [] for node in members}
    for node in members:
        for s in sources[node]:
            readers[s].append(node)
    for node in reversed(members):  # what only later steps read is computed there, unless it is what they wait for, or less than what it is computed of
        if readers[node] and elements(node) >= max((elements(a) for a in node.all_input_nodes), default=0) and own.issuperset(_readers(node, plan)):
            steps[node] = max(steps[node], min(steps[r] - _waits(node, r, gathers) for r in readers[node]))
    for node in members:
        if node.target is getitem and node.args[0] in own:  # it is where what it is a part of is
            steps[node] = steps[node.args[0]]
    edges = [(s, node) for node in members for s in sources[node] if steps[s] == steps[node]]
    return [(steps[part[0]], part) for part in components(members, edges)]


def _waits(source: Node, reader: Node, gathers: set[Node]) -> bool:
    return source in gathers and elements(reader) > 1


def _is_light(part: Sequence[Node], plan: GraphPartition) -> bool:
    """Whether a launch matters to a part of constant extents whose results may be in memory whenever they are computed."""
    target, own = present(), set(part)
    if not all(isinstance(extent, int) for n in part for extent in getattr(n.meta.get("val"), "shape", ())):
        return False
    made = [n for n in part if any(user not in own for user in n.users)]
    if not all(elements(n) == 1 or all(user in own or user.op == "output" or mutates(user) for user in _readers(n, plan)) for n in made):
        return False
    return target.dram_us(_moved(part, plan)) <= SMALL * target.launch_us


def _moved(part: Sequence[Node], plan: GraphPartition) -> int:
    """The bytes that a part reads and writes."""
    own = set(part)
    made = (n for n in part if any(user not in own for user in n.users))
    return sum(_bytes(n) for n in (*made, *_read_from_outside(part, plan)))


def _form(part: Sequence[Node]) -> tuple[int, str]:
    """What equal parts have in common, by their sizes."""
    values = [(str(n.target), n.meta.get("val")) for n in part]
    return -max(map(elements, part)), str([(op, tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else op for op, v in values])


def _readers(node: Node, plan: GraphPartition) -> Iterator[Node]:
    """What reads a node, or a view of it."""
    for user in node.users:
        if plan.kinds[user] is NodeKind.GLUE:
            yield from _readers(user, plan)
        else:
            yield user


def _read_from_outside(part: Sequence[Node], plan: GraphPartition) -> set[Node]:
    """The tensors that nodes, or views and constants that they read, are made of."""
    own, found = set(part), set[Node]()
    stack = [a for n in part for a in n.all_input_nodes]
    while stack:
        arg = stack.pop()
        if plan.kinds[arg] is NodeKind.GLUE:
            stack += arg.all_input_nodes
        elif arg not in own:
            found.add(arg)
    return found


def _bytes(node: Node) -> int:
    value = node.meta.get("val")
    return elements(node) * value.element_size() if isinstance(value, torch.Tensor) else 0


def sources_of(node: Node, plan: GraphPartition) -> Iterator[Node]:
    """The nodes of regions that a node reads, through those that are computed again."""
    stack = list(node.all_input_nodes)
    seen: set[Node] = set()
    while stack:
        arg = stack.pop()
        if arg in seen:
            continue
        seen.add(arg)
        match plan.kinds[arg]:
            case NodeKind.MATH:
                yield arg
            case NodeKind.GLUE:
                stack += arg.all_input_nodes
            case _:
                pass


def cut_apart(members: Sequence[Node], most: int) -> list[list[Node]]:
    """A region in pieces of about ``most`` nodes, in the order of the graph, which keeps every piece convex; each cut where the fewest tensors cross.

    The results of a node with several are in its piece.
    """
    found: list[list[Node]] = []
    rest = _with_results(members)
    while len(rest) > most:
        place = {node: k for k, node in enumerate(rest)}
        end = next((k for k in range(most, len(rest)) if rest[k].target is not getitem), len(rest))
        last = {node: max((place[u] for u in node.users if u in place), default=-1) for node in rest[:end]}
        costs = [(sum(last[n] >= k for n in rest[:k]), -k) for k in range(max(most // 2, 1), most + 1) if rest[k].target is not getitem]
        at = -min(costs)[1] if costs else end
        found.append(rest[:at])
        rest = rest[at:]
    return [*found, rest] if rest else found


def _with_results(nodes: Sequence[Node]) -> list[Node]:
    """Nodes of a region, each followed by the results of it that are among them."""
    own = set(nodes)
    first = [n for n in nodes if n.target is not getitem or n.args[0] not in own]
    return [n for node in first for n in (node, *(u for u in node.users if u.target is getitem and u in own))]
