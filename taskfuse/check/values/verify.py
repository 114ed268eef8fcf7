"""The value layer over one kernel: its obligations, statement by statement and output by output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from taskfuse.check.refuted import TooLarge, WorkBudget
from taskfuse.check.statement_tree import Node
from taskfuse.check.structure import Structure
from taskfuse.check.values.claims import ClaimedWrite, Instructions
from taskfuse.check.values.copies import is_sampled
from taskfuse.check.values.definitions import meaningless
from taskfuse.check.values.execution import Finding, execute
from taskfuse.check.values.in_place import read_before_written
from taskfuse.check.values.outputs import Outputs
from taskfuse.check.values.partial_storage import PartialStorage
from taskfuse.check.values.reaching_writes import ReachingWrites
from taskfuse.check.values.reductions import Reductions
from taskfuse.check.values.scans import Scans
from taskfuse.check.values.solve import Open
from taskfuse.check.values.statements import CheckedStatements
from taskfuse.check.values.updates import Updates
from taskfuse.check.values.writes import Writes
from taskfuse.kir import Kernel, held
from taskfuse.kir.nodes import AtomicUpdate, GatherCopy
from taskfuse.kir.operands import Content, WritingStmt
from taskfuse.kir.walk import looked_up
from taskfuse.kir.witness import Accumulate
from taskfuse.reports.certificate import Layer, Obligation, Verdict

Checked = tuple[Obligation, Node | None]
PARTIAL = frozenset((Content.START, Content.TERM, Content.PART, Content.RESCALED))
"""What accumulators hold."""


def right(structure: Structure) -> Iterator[Obligation]:
    """Every write is right, every read finds the right write, reductions and outputs are covered. Empty for a kernel without definitions.

    Obligations that are open at constant extents are decided by one run of the launch, if it is small enough: a kernel whose order is proved computes the same
    in
    all runs.
    """
    kernel = structure.tree.kernel
    if not kernel.definitions:
        return
    unknown = list(meaningless(structure.tree))
    if unknown:
        yield from unknown
        return
    checked = _everywhere(structure)
    if kernel.extents:
        yield from (o for o, _ in checked)
        return
    found: list[Obligation] = []
    left: list[Node | None] = []
    gathers = any(isinstance(n.stmt, GatherCopy) for n in structure.tree.leaves())  # which of them is open decides whether a run would do
    runs = not looked_up(kernel) and not any(isinstance(n.stmt, AtomicUpdate) and n.stmt.values for n in structure.tree.leaves())
    for o, node in checked:
        found.append(o)
        if o.verdict is not Verdict.PROVED:
            left.append(node)
            if runs and not gathers:
                break
    if not left or not runs:
        yield from found
        return
    try:
        outcome = execute(kernel, {}, WorkBudget(), _gathered(structure, left))
    except TooLarge:
        yield from found
        yield from (o for o, _ in checked)
        return
    match outcome:
        case Finding(subject=subject, reason=reason, notes=notes):
            yield Obligation(Layer.VALUES, subject, Verdict.REFUTED, reason, notes)
        case _:
            reason = f"every element of {', '.join(sorted(p.name for p in kernel.outputs))} equals its definition, in the one run of its values"
            yield Obligation(Layer.VALUES, "launch", Verdict.PROVED, reason)


def _gathered(structure: Structure, left: Iterable[Node | None]) -> frozenset[str]:
    """The tensors of the gathers that one run of the launch decides only if it looks at every value of their indices, which are data.

    What a proved statement gathers from an input that nothing overwrites is right for all of them. What the kernel itself makes may be wrong at some.
    """
    kernel = structure.tree.kernel
    kept = {p.name for p in kernel.inputs} - {p.into for p in kernel.outputs}
    gathers = [n.stmt for n in left if n is not None and isinstance(n.stmt, GatherCopy)]
    gathers += [n.stmt for n in structure.tree.leaves() if isinstance(n.stmt, GatherCopy) and n.stmt.source.buffer not in kept]
    return frozenset(g.holds.tensor for g in gathers if g.holds is not None and is_sampled(kernel, g))


def wrong_value(kernel: Kernel, extents: Mapping[str, int], budget: WorkBudget) -> Obligation | None:
    """A counterexample at some extents, if one run shows one."""
    try:
        match execute(kernel, extents, budget):
            case Finding(subject=subject, reason=reason, notes=notes):
                return Obligation(Layer.INSTANCE, subject, Verdict.REFUTED, reason, notes)
            case _:
                return None
    except TooLarge:
        return None


def _everywhere(structure: Structure) -> Iterator[Checked]:
    """All of it for all extents, with unrolled loops as the loops that they are if that proves it: iterations that differ in an index are one question."""
    if not structure.tree.has_copies:
        yield from _symbolic(structure)
        return
    checked: list[Checked] = []
    for o, node in _symbolic(structure):
        if o.verdict is not Verdict.PROVED:
            yield from _everywhere(structure.copied_out)
            return
        checked.append((o, node))
    yield from checked


def _symbolic(structure: Structure) -> Iterator[Checked]:
    """All of it, for all extents at once."""
    tree, rings, multibuffers = structure.tree, structure.rings, structure.multibuffers
    kernel = tree.kernel
    instructions = Instructions(kernel)
    writes = Writes(tree, instructions)
    reductions, scans, storage = Reductions(writes, instructions), Scans(writes, instructions), PartialStorage(writes)
    outputs, updates = Outputs(tree, writes, instructions), Updates(writes, instructions, structure.threads)
    statements = CheckedStatements(kernel, writes, ReachingWrites(writes, rings, multibuffers, updates), instructions, reductions, scans)
    names = {p.name for p in kernel.outputs}
    failed = False
    written: list[ClaimedWrite] = []
    for node in tree.leaves():
        if not isinstance(node.stmt, WritingStmt):
            continue
        try:
            written.append(_entered(node, writes, reductions, scans, statements, storage))
        except Open as error:
            failed = True
            yield _open(node, error), node
    try:
        storage.check()
    except Open as error:
        failed = True
        yield Obligation(Layer.VALUES, "accumulators", Verdict.OUTSIDE, error.reason, _notes(error)), error.nodes[0]
    for w in written:
        try:
            if w.place.buffer in updates.tensors:
                updates.enter(w.node, w.holds)
        except Open as error:
            failed = True
            yield _open(w.node, error), w.node
    for w in written:
        try:
            if w.place.buffer in names - updates.tensors:
                outputs.enter(w.place, w.holds)
                outputs.identity(w.place)
            statements.check(w)
        except Open as error:
            failed = True
            yield _open(w.node, error), w.node
    for obligation, node in read_before_written(structure):
        failed = True
        yield obligation, node
    for node in sorted(reductions.coverage.overhangs, key=lambda n: n.number):
        try:
            statements.terms.neutral(statements.written[node])
        except Open as error:
            failed = True
            yield _open(node, error), node
    for name in sorted(names):
        try:
            if name in updates.tensors:
                updates.check(name)
            else:
                outputs.check(name)
        except Open as error:
            failed = True
            yield Obligation(Layer.VALUES, f"output {name}", Verdict.OUTSIDE, error.reason, _notes(error)), None
    if not failed:
        reason = f"{len(written)} statements compute their tensors' definitions, from the operands that these name"
        yield Obligation(Layer.VALUES, "writes", Verdict.PROVED, reason), None
        for output, source in kernel.in_place.items():
            yield Obligation(Layer.VALUES, f"{source}, in place", Verdict.PROVED, f"every read of an element comes before {output} is written there"), None
        yield Obligation(Layer.VALUES, "outputs", Verdict.PROVED, f"every element of {', '.join(sorted(names))} is stored where it belongs"), None


def _entered(node: Node, writes: Writes, reductions: Reductions, scans: Scans, statements: CheckedStatements, storage: PartialStorage) -> ClaimedWrite:
    holds = held(node.stmt)
    if holds is None:
        raise Open("it has no claim", node)
    if holds.tensor not in writes.definitions:
        raise Open(f"it writes {holds.tensor}, which has no definition", node)
    place = writes.claim(node, holds)
    w = ClaimedWrite(node, holds, place)
    statements.written[node] = w
    if holds.content in PARTIAL:
        target = scans if isinstance(writes.definitions[holds.tensor].rule, Accumulate) else reductions
        target.enter(node, holds)
        storage.enter(node, holds)
    return w


def _open(node: Node, error: Open) -> Obligation:
    return Obligation(Layer.VALUES, node.text, Verdict.OUTSIDE, error.reason, _notes(error))


def _notes(error: Open) -> tuple[str, ...]:
    return tuple(n.text + (f" in {n.role}" if n.role else "") for n in error.nodes)
