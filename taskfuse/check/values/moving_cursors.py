"""Cursors that name the place of a write: a read that names one by the same symbol means the same place only if the cursor has not moved in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, StatementBlock, cursor_of
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import Expr, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Advance, CursorInit


def cursors_of(expressions: Iterable[Expr]) -> frozenset[str]:
    """The names of the cursors in some expressions."""
    return frozenset(name for e in expressions for n in e.free if (name := cursor_of(n)) is not None)


def moves_of(node: Node, cursors: frozenset[str]) -> tuple[Node, ...]:
    """The statements of a kernel, of which ``node`` is one, that start or advance some cursors; none if these never move."""
    found = [n for n in _leaves(node.path[0].block) if _cursor(n) in cursors]
    return tuple(found) if any(isinstance(n.stmt, Advance) for n in found) or len(found) > len(cursors) else ()


def stays(write: Node, read: Node, same: Mapping[str, Expr], moves: tuple[Node, ...], memory: MemoryType) -> bool:
    """True only if the cursors that ``moves`` move are for a read where they were at a write.

    Args:
        same: what the loop variables of the write are at the read.
        memory: of what is written: threads that share it have cursors of their own, which must have moved alike.
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


def _is_alike(move: Node, write: Node, read: Node, own: frozenset[str]) -> bool:
    """True only if all threads that write and read make a move: nothing of it depends on what is their own."""
    around = {c for c in move.conditions if c not in write.conditions or c not in read.conditions}
    said = [e for n in move.loops if isinstance(n.stmt, For) for e in (n.stmt.start, n.stmt.stop, n.stmt.step)]
    if isinstance(move.stmt, Advance):
        said.append(move.stmt.count)
    return all(e.free.isdisjoint(own) and not cursors_of((e,)) for e in (*around, *said))


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
