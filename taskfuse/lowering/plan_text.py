"""The text of the state of a lowering: the results of each step, the plan, and the changes of a step."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.dump import dump_step
from taskfuse.errors import OptionError, TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, and_, const
from taskfuse.ir.types import INDEX_TYPES
from taskfuse.kir.forms import FROM
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.printer import body_lines, tensor_map_text
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.index_maps import IndexMaps
from taskfuse.lowering.locations import Locations
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop, PNode, PScope, PStmt, PSync
from taskfuse.lowering.rings import RoleRings
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.steps import DEFAULT, STEPS, Step
from taskfuse.options import Options
from taskfuse.schedule.order import Item, TensorItem
from taskfuse.schedule.shared_loops import Loop

INDENT = "  "
ONE = const(1)

EMPTY = Kernel("", extents=(), params=(), grid=(ONE, ONE, ONE), block=(ONE, ONE, ONE), buffers=(), mbarriers=(), counters=(), body=())
"""A kernel that declares nothing: the printer of statements needs one."""


def state_text(state: State, locations: bool = False) -> str:
    """The state after a step: what the steps have found and declared, then the plan, the nest, or the fusion.

    Args:
        locations: add the user's line of each node of the plan, or statement of the kernel.
    """
    if state.has("kernel"):
        return state.kernel.text(locations=locations)
    lines = [f"FUSION {state.fusion.name}"]
    if state.has("ranges"):
        lines += _ranges(state)
    if state.has("index_maps"):
        lines += _memory_and_trips(state.index_maps)
    if state.has("channels"):
        lines += _channels(state.channels)
    if state.has("rings"):
        lines += _rings(state.rings)
    lines += _declarations(state)
    lines.append("")
    if state.plan:
        lines += _PlanPrinter(state, locations).block(state.plan, 0)
    elif state.has("order"):
        lines += _nest(state.order, 0)
    else:
        lines += str(state.fusion).splitlines()
    return "\n".join(lines)


def _loop(loop: Loop) -> str:
    return f"axis {loop.depth} of {', '.join(tv.name for tv in loop.axes)}"


def _memory_and_trips(index_maps: IndexMaps) -> Iterator[str]:
    """The memory types; the loops whose trips are not the extent of an axis: grid-stride loops, and those that end with their last term."""
    yield from (f"MEMORY {tv.name}: {memory.value}" for tv, memory in index_maps.memory.items() if tv in index_maps.tree.place)
    for loop, trips in index_maps.grid_stride.bounds.items():
        yield f"TRIPS of {_loop(loop)}: {trips}"
    for loop, walk in index_maps.grid_stride.walks.items():
        yield f"ITEMS of {_loop(loop)}: {walk.item} in {walk.start}..{walk.stop} step {walk.step}{' CLAIMED' if walk.claimed is not None else ''}"
    for loop, start in index_maps.starts.items():
        yield f"START of {_loop(loop)}: {start}"
    for loop, end in index_maps.ends.items():
        yield f"END of {_loop(loop)}: {end}"


def _channels(channels: Channels) -> Iterator[str]:
    for ch in channels.channels:
        names, ends = ", ".join(tv.name for tv in ch.tensors), ", ".join(end.node.name for end in ch.consumers)
        loop = "once" if ch.loop is None else f"in each iteration of axis {ch.loop.depth}"
        yield f"CHANNEL {ch.name}: {names} from {ch.producer.node.name} to {ends}, {ch.stages} slots, filled {loop}"


def _rings(rings: RoleRings) -> Iterator[str]:
    """The rings inside roles, and how many trips ahead their role fills them."""
    ahead = {tv: made for made in rings.prefetches for tv in made.tensors}
    for tv, loop in rings.rings.items():
        filled = f", filled {ahead[tv].stages - 1} trips ahead" if tv in ahead else ""
        shared = f", in the storage of {rings.shared[tv.name]}" if tv.name in rings.shared else ""
        yield f"RING {tv.name}: {rings.slots(tv)} slots, the next in each iteration of axis {loop.depth}{filled}{shared}"


def _declarations(state: State) -> Iterator[str]:
    """The tensor maps and the alignments that statements need, and the storage that later steps declare."""
    yield from (tensor_map_text(m) for m in state.needs.maps.values())
    yield from (f"ALIGN {name}: {size}" for name, size in state.needs.alignments.items())
    for b in state.buffers:
        yield f"BUFFER {b.name}: {b.dtype}[{', '.join(map(str, b.shape))}] {b.memory.value}{'' if b.offset is None else f' @ {b.offset}'}"
    yield from (f"MBARRIER {name}[{slots}] count {count}" for name, slots, count in state.mbarriers)
    yield from (f"COUNTER {name}" for name in state.counters)
    yield from body_lines(tuple(state.cursors), EMPTY)


def _ranges(state: State) -> Iterator[str]:
    ranges = state.ranges
    yield "LAUNCH " + ", ".join(f"{p.value} {e}" for p, e in ranges.launch.items() if e is not ONE)
    for node in (*state.fusion.tasks.nodes, *(t for t in state.tree.tensors if t not in state.fusion.tasks.nodes)):
        spans = [(p, ranges.range(node, p)) for p in INDEX_TYPES if node in state.tree.parent]
        where = ", ".join(f"{p.value} {s.start}..{s.start + s.extent}" for p, s in spans if ranges.launch[p] is not ONE)
        yield f"RANGE {node.name}: {where or 'one thread'}"


def _nest(items: tuple[Item, ...], depth: int) -> Iterator[str]:
    for item in items:
        if isinstance(item, TensorItem):
            yield f"{INDENT * depth}{item.tv.name}"
        else:
            axes = ", ".join(f"{tv.name} {tv.schedule.ptype(a).value}" for tv, a in item.loop.axes.items())
            yield f"{INDENT * depth}LOOP axis {item.loop.depth} of {axes}:"
            yield from _nest(item.body, depth + 1)


class _PlanPrinter:
    """Prints the nodes of a plan; statements as in kernel IR, in the local indices of their task."""

    def __init__(self, state: State, locations: bool) -> None:
        self._from = Locations(state.fusion) if locations else None
        self._kernel = replace(EMPTY, buffers=tuple(state.buffers))

    def block(self, nodes: list[PNode], depth: int) -> Iterator[str]:
        for n in nodes:
            at = self._place(n)
            match n:
                case PLoop():
                    yield from self._nested(f"FOR {n.var} in 0..{n.extent}{' UNROLL' if n.unroll else ''}", n.body, depth, at)
                case PBind():
                    yield from self._nested(f"FOR {n.index} in {n.ptype.value}{{{n.extent}}}", n.body, depth, at)
                case PScope():
                    yield from self._nested(f"SCOPE {n.node.name}{_where(n.conds)}", n.body, depth, at)
                case PGuard():
                    yield from self._nested(f"IF {n.cond}", n.body, depth, at)
                case PDispatch():
                    yield f"{INDENT * depth}DISPATCH {n.group.name}:{at}{f'  # {n.note}' if n.note else ''}"
                    for m in n.members:
                        yield from self._nested(f"ARM {m.node.name}{_where(m.conds)}", m.body, depth + 1, self._place(m))
                case PStmt():
                    yield from self._lines((n.stmt,), depth, _where(n.guards) + at)
                case PSync(stmts=(), is_barrier=True):
                    yield f"{INDENT * depth}SYNC of {'all' if n.node is None else n.node.name}{at}{f'  # {n.note}' if n.note else ''}"
                case PSync():
                    yield from self._lines(n.stmts, depth, at)

    def _place(self, n: PNode) -> str:
        """Where a node comes from."""
        location = None if self._from is None else self._from.of_node(n)
        return "" if location is None else f"  {FROM} {location}"

    def _nested(self, head: str, body: list[PNode], depth: int, at: str) -> Iterator[str]:
        yield f"{INDENT * depth}{head}:{at}"
        yield from self.block(body, depth + 1)

    def _lines(self, stmts: tuple[Stmt, ...], depth: int, behind: str) -> Iterator[str]:
        for line in body_lines(stmts, self._kernel):
            yield f"{INDENT * depth}{line}{behind}"


def _where(conds: tuple[Expr, ...]) -> str:
    return f" where {and_(*conds)}" if conds else ""


NAMES = tuple(step.name for step in STEPS)


def plan_texts(fusion: Fusion, name: str, options: LoweringOptions = DEFAULT, locations: bool = False) -> tuple[str, str]:
    """The text of the state before and after a step.

    Args:
        locations: with the user's lines.

    Raises:
        TaskfuseError: the step does not exist; or a step up to this one rejects the fusion (as :func:`taskfuse.lower`).
    """
    if name not in NAMES:
        raise TaskfuseError(message=f"lowering has no step '{name}'", help=f"use one of {', '.join(NAMES)}")
    before, state = str(fusion), State(fusion, options)
    for step in STEPS:
        step.run(state)
        text = state_text(state, locations) if step.name == name or NAMES.index(step.name) + 1 == NAMES.index(name) else ""
        if step.name == name:
            return before, text
        before = text
    raise AssertionError("the name is that of a step")


def changes(before: str, after: str) -> str:
    """The lines that differ, with three lines of context, as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return "\n".join(lines) or "nothing changed"


def dumper(options: Options) -> Callable[[Step, State], None]:
    """The function that prints the steps that ``options`` request. Raises :class:`OptionError` if a step does not exist."""
    for name in sorted(options.dump_steps - set(NAMES)):
        raise OptionError(name="TASKFUSE_DUMP", reason=f"'plan:{name}': lowering has no step {name}", help=f"use one of {', '.join(NAMES)}")

    def after(step: Step, state: State) -> None:
        dump_step(step.name, state.fusion.name, lambda: state_text(state), options)

    return after
