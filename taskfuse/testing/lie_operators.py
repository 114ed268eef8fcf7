"""Fault operators that change the witness, with or without the statements: no witness may make a wrong kernel proved.

The definitions stay, because they specify the right values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.ir.scalar import Expr, const, maximum, minimum, substitute, sym, xor
from taskfuse.kir import Kernel, held, map_stmts, walk
from taskfuse.kir.nodes import Compute, For, Stmt
from taskfuse.kir.operands import Access, Content, Holds
from taskfuse.testing.mutations import Mutants, Operator, at
from taskfuse.testing.value_edits import Writer, in_writers, reads, rewritten, shapes, with_holds, writers


def _moved(lies: bool) -> Callable[[Kernel, Writer], Iterator[Stmt]]:
    """A statement as another thread, or another trip of a loop, would execute it."""

    def apply(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
        loops = {t.var: t for t in walk(kernel) if isinstance(t, For)}
        holds = held(s)
        named = {n for e in holds.index for n in e.free} if holds is not None else set[str]()
        for name in sorted(named):
            old = sym(name)
            loop = loops.get(name)
            if loop is not None:
                others = [minimum(old + loop.step, loop.stop - 1), maximum(old - loop.step, loop.start), loop.start]
            elif name.startswith(("threadIdx", "blockIdx")):
                others = [xor(old, 1), const(0), old - old % 2]
            else:
                continue
            for other in others:

                def put(e: Expr, name: str = name, other: Expr = other) -> Expr:
                    return substitute(e, {name: other}) if name in e.free else e

                yield rewritten(s, put, lies=lies)

    return apply


def _holds(change: Callable[[Kernel, Holds], Iterator[Holds | None]]) -> Callable[[Kernel, Writer], Iterator[Stmt]]:
    def apply(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
        holds = held(s)
        if holds is not None:
            yield from (with_holds(s, new) for new in change(kernel, holds))

    return apply


def _indices(kernel: Kernel, holds: Holds) -> Iterator[Holds]:
    for k, e in enumerate(holds.index):
        for new in (e + 1, const(0)):
            yield replace(holds, index=(*holds.index[:k], new, *holds.index[k + 1 :]))


def _contents(kernel: Kernel, holds: Holds) -> Iterator[Holds]:
    for content in Content:
        if content is not holds.content:
            yield replace(holds, content=content)


def _tensors(kernel: Kernel, holds: Holds) -> Iterator[Holds]:
    for d in kernel.definitions:
        if d.tensor != holds.tensor and len(d.shape) == len(next(c.shape for c in kernel.definitions if c.tensor == holds.tensor)):
            yield replace(holds, tensor=d.tensor)


def _silent(kernel: Kernel, holds: Holds) -> Iterator[None]:
    yield None


def _tensors_and_reads(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """A statement that reads another element and claims the corresponding value."""
    holds = held(s)
    if holds is None or not isinstance(s, Compute):
        return
    for site in reads(s):
        if isinstance(site.operand, Access):
            shape = shapes(kernel)[site.operand.buffer]
            for k, (e, n) in enumerate(zip(site.operand.index, shape, strict=True)):
                new = site.put(Access(site.operand.buffer, (*site.operand.index[:k], (e + 1) % n, *site.operand.index[k + 1 :])))
                for j, h in enumerate(holds.index):
                    if h.free & e.free:
                        yield with_holds(new, replace(holds, index=(*holds.index[:j], (h + 1) % n, *holds.index[j + 1 :])))


def _claimed(content: Content, drops: bool) -> Callable[[Kernel], Mutants]:
    """A statement dropped or duplicated, and another claim in place of an equal one."""

    def apply(kernel: Kernel) -> Mutants:
        for s in writers(kernel):
            holds = held(s)
            if holds is None or holds.content is not content:
                continue
            if drops:
                others = [t for t in writers(kernel) if t is not s and (h := held(t)) is not None and h.tensor == holds.tensor]
                for other in others[:2]:
                    dropped = replace(kernel, body=map_stmts(kernel.body, lambda t, s=s: () if t is s else t))
                    yield at(dropped, other, with_holds(other, holds))
            else:
                for new in Content:
                    if new is not content:
                        yield at(kernel, s, (s, with_holds(replace(s), replace(holds, content=new))))

    return apply


LIE_OPERATORS: tuple[Operator, ...] = (
    Operator("as another thread, honest", in_writers(_moved(lies=False))),
    Operator("as another thread, lying", in_writers(_moved(lies=True))),
    Operator("other index read and said", in_writers(_tensors_and_reads)),
    Operator("another index said", in_writers(_holds(_indices))),
    Operator("another content said", in_writers(_holds(_contents))),
    Operator("another tensor said", in_writers(_holds(_tensors))),
    Operator("nothing said", in_writers(_holds(_silent))),
    Operator("value dropped, another says it", _claimed(Content.VALUE, drops=True)),
    Operator("start dropped, another says it", _claimed(Content.START, drops=True)),
    Operator("term dropped, another says it", _claimed(Content.TERM, drops=True)),
    Operator("part dropped, another says it", _claimed(Content.PART, drops=True)),
    Operator("term twice, once as another", _claimed(Content.TERM, drops=False)),
    Operator("part twice, once as another", _claimed(Content.PART, drops=False)),
)
"""Every operator, with the name that reports use."""
