"""A write with its own symbols, distinct from those of a read; the layout of storage; cursors that determine the place of a write.

A cursor symbol in a read means the same place only if the cursor has not moved in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from taskfuse.check.normalize import CLUSTER_NAMES
from taskfuse.check.ranges import EQ
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, THREAD_NAMES, THREADS, Node, StatementBlock, cursor_of
from taskfuse.check.values.claims import Place
from taskfuse.check.values.solve import Equation
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import ZERO, Compare, Const, Expr, Facts, Substitution, Sym, conjuncts, const, eq, private, simplify, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Advance, CursorInit

W = private("written.").name
"""Prefix of the names of symbols of the write: no text has such names."""


def written_symbol(name: str) -> Sym:
    """The symbol of the write in the place of a symbol of the kernel."""
    return private(f"written.{name}")


@dataclass(frozen=True, slots=True)
class BufferStorage:
    """The layout of a buffer. ``size``: bytes of an element."""

    memory: MemoryType
    shape: tuple[Expr, ...]
    size: int


class Writing:
    """A claim in symbols of its own: those of its threads, loops and points have other names than those of a read, unless they have its values.

    Attributes:
        element, index: as those of the claim.
        named: puts an expression of the claim in these symbols.
        conditions: those around it as they stand, ``None`` for steps of loops, and in these symbols.
        spans: first values of the symbols, and ends (exclusive).
        who: the conditions on its symbols only.

    Args:
        memory: of the buffer that is written.
        same: the values of symbols of the write at the read: loops that both share, threads and blocks with memory of their own.
    """

    def __init__(self, claim: Place, memory: MemoryType, same: Mapping[str, Expr]) -> None:
        self.claim = claim
        self._memory = memory
        self._same = same
        self._moves: dict[frozenset[str], tuple[Node, ...]] = {}
        kernel = claim.node.context.kernel
        loops = [n.stmt for n in claim.node.loops if isinstance(n.stmt, For) and n.stmt.var not in same]
        names = [*(loop.var for loop in loops), *(name for name, _ in claim.points)]
        hardware: dict[str, Expr] = {}
        if not MEDIA[memory].is_private:
            hardware |= dict(zip(THREAD_NAMES, kernel.block, strict=True))
        peers: dict[str, Expr] = {}
        if MEDIA[memory].reach is Reach.GRID:
            hardware |= dict(zip(BLOCK_NAMES, kernel.grid, strict=True))
        elif MEDIA[memory].reach is Reach.CLUSTER:  # the blocks of the reader's cluster, by their places in it
            for block, place, extent in zip(BLOCK_NAMES, CLUSTER_NAMES, kernel.cluster, strict=True):
                if extent is not const(1) and block not in same:
                    hardware[place] = extent
                    peers[block] = sym(block) // extent * extent + written_symbol(place)
        hardware = {name: extent for name, extent in hardware.items() if name not in same}
        self.named = Substitution({**same, **{n: written_symbol(n) for n in (*names, *hardware)}, **peers})
        named: Callable[[Expr], Expr] = self.named
        if peers:
            root = claim.node.path[0].block.context  # what holds at the write says nothing of the reader's block
            facts = root.facts.with_ranges({W + name: (0, extent - 1) for name, extent in hardware.items()})
            named = partial(self._of_peers, peers, facts)

        self.element = tuple(map(named, claim.element))
        self.index = tuple(map(named, claim.index))
        self.conditions: list[tuple[Expr | None, Expr]] = [(part, self.named(part)) for c in (*claim.node.conditions, *claim.given) for part in conjuncts(c)]
        self.spans: dict[str, tuple[Expr, Expr]] = {W + name: (const(0), extent) for name, extent in hardware.items()}
        for loop in loops:
            start, stop = self.named(loop.start), self.named(loop.stop)
            self.spans[W + loop.var] = start, stop
            if loop.step is not const(1):
                step = eq((written_symbol(loop.var) - start) % self.named(loop.step), 0)
                self.conditions.append((None, step))
        for name, n in claim.points:
            self.spans[W + name] = const(0), const(n)
        forms = [c.a - c.b for _, c in self.conditions if isinstance(c, Compare) and c.op is EQ]
        self.who: list[Equation] = [(form, ZERO) for form in forms if not form.free.isdisjoint(self.spans) and form.free <= self.spans.keys()]

    def _of_peers(self, peers: Mapping[str, Expr], facts: Facts, e: Expr) -> Expr:
        """An expression in these symbols, simplified where it has indices of blocks of a cluster."""
        return self.named(e) if e.free.isdisjoint(peers) else simplify(self.named(e), facts)

    def is_at(self, read: Node, skip: int | None) -> bool:
        """True only if the cursors in its place, its element or its conditions, except the slot on an axis, have the same values at the read.

        Args:
            skip: the axis of a slot that is known to be the same.
        """
        place = (e for k, e in enumerate(self.claim.index) if k != skip)
        offset = () if self.claim.offset is None else (self.claim.offset,)
        cursors = cursors_of((*place, *offset, *self.claim.element, *(c for _, c in self.conditions), *(e for span in self.spans.values() for e in span)))
        if not cursors:
            return True
        if cursors not in self._moves:
            self._moves[cursors] = moves_of(self.claim.node, cursors)
        moves = self._moves[cursors]
        return not moves or stays(self.claim.node, read, self._same, moves, self._memory)


def bytes_behind(storage: BufferStorage, axes: int) -> int:
    """Bytes from one index on the first axes to the next."""
    total = storage.size
    for e in storage.shape[axes:]:
        assert isinstance(e, Const)
        total *= e.value
    return total


def cursors_of(expressions: Iterable[Expr]) -> frozenset[str]:
    """The names of the cursors in some expressions."""
    return frozenset(name for e in expressions for n in e.free if (name := cursor_of(n)) is not None)


def moves_of(node: Node, cursors: frozenset[str]) -> tuple[Node, ...]:
    """The statements of a kernel, including ``node``, that start or advance some cursors; empty if these never move."""
    found = [n for n in _leaves(node.path[0].block) if _cursor(n) in cursors]
    return tuple(found) if any(isinstance(n.stmt, Advance) for n in found) or len(found) > len(cursors) else ()


def stays(write: Node, read: Node, same: Mapping[str, Expr], moves: tuple[Node, ...], memory: MemoryType) -> bool:
    """True only if the cursors that ``moves`` advance have the same values at a read as at a write.

    Args:
        same: the values of the write's loop variables at the read.
        memory: of the written buffer: threads that share it have separate cursors, which must have moved alike.
    """
    inner: set[Node] = {*write.loops, *read.loops}
    for a, b in zip(write.loops, read.loops, strict=False):
        if a is not b:
            break
        assert isinstance(a.stmt, For)
        if same.get(a.stmt.var) is not sym(a.stmt.var):
            return not any(a in m.loops for m in moves)
        inner.discard(a)
    between = range(write.number, read.number)
    if write.number > read.number or any(m.number in between or not inner.isdisjoint(m.loops) for m in moves):
        return False
    return MEDIA[memory].is_private or all(_is_alike(m, write, read, THREADS | BLOCKS if MEDIA[memory].reach is Reach.GRID else THREADS) for m in moves)


def is_said_alike(node: Node, reader: Node, expressions: Iterable[Expr], memory: MemoryType) -> bool:
    """True only if cursors say the same at a reader as they did at a statement before it, in whichever iteration of its own loops.

    Args:
        expressions: what the statement does, besides the conditions around it and the bounds of its own loops.
        memory: of the buffer that it changes.
    """
    own = [n.stmt for n in node.loops if n not in reader.loops and isinstance(n.stmt, For)]
    cursors = cursors_of((*expressions, *node.conditions, *(e for s in own for e in (s.start, s.stop, s.step))))
    moves = moves_of(node, cursors) if cursors else ()
    same = {n.stmt.var: sym(n.stmt.var) for n in node.loops if n in reader.loops and isinstance(n.stmt, For)}
    return not moves or stays(node, reader, same, moves, memory)


def _is_alike(move: Node, write: Node, read: Node, own: frozenset[str]) -> bool:
    """True only if all threads that write and read make a move: nothing of it depends on what is their own."""
    around = {c for c in move.conditions if not all(c in n.conditions and is_about_common_loops(c, move, n) for n in (write, read))}
    said = [e for n in move.loops if isinstance(n.stmt, For) for e in (n.stmt.start, n.stmt.stop, n.stmt.step)]
    if isinstance(move.stmt, Advance):
        said.append(move.stmt.count)
    return all(e.free.isdisjoint(own) and not cursors_of((e,)) for e in (*around, *said))


def is_about_common_loops(condition: Expr, one: Node, two: Node) -> bool:
    """True only if the loops of which a condition around two statements speaks are loops around both, not others of the same name."""
    return not any(isinstance(n.stmt, For) and n.stmt.var in condition.free for a, b in ((one, two), (two, one)) for n in a.loops if n not in b.loops)


def _cursor(n: Node) -> str:
    match n.stmt:
        case Advance(cursor=name) | CursorInit(name=name):
            return name
        case _:
            return ""


def _leaves(block: StatementBlock) -> Iterator[Node]:
    for n in block.nodes:
        if n.blocks:
            for inner in n.blocks:
                yield from _leaves(inner)
        else:
            yield n
