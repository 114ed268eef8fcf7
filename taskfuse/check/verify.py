"""``verify``: the four layers over one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from taskfuse.check.alignment import TENSORS, aligned, assumes_tensors
from taskfuse.check.argument import Argument, all_proved
from taskfuse.check.bounds import inside
from taskfuse.check.clusters import whole_clusters
from taskfuse.check.convergence import convergence
from taskfuse.check.counterexample import counterexample
from taskfuse.check.defined import DIVISORS, defined, without_value
from taskfuse.check.drawn_launches import drawn_extents
from taskfuse.check.known import unknown
from taskfuse.check.magnitudes import WIDE, too_large
from taskfuse.check.order import deadlocks, initialization
from taskfuse.check.places import searched
from taskfuse.check.queues import owned
from taskfuse.check.races import Races
from taskfuse.check.refuted import TooLarge, WorkBudget
from taskfuse.check.registers import budgets, in_flight, released
from taskfuse.check.remote import before_exit, while_they_run
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.structure import Structure
from taskfuse.check.tma_prefetch import TmaPrefetch
from taskfuse.check.values.verify import right, wrong_value
from taskfuse.collector import PAUSE
from taskfuse.errors import VerifyError
from taskfuse.kir import Kernel, specialized, walk
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Arrive, MbarrierScope, SetMaxNReg
from taskfuse.reports.certificate import Certificate, Layer, Obligation, Verdict

LAUNCHES = 9
"""The number of launches in the search for a counterexample."""


ASSUMPTIONS = (
    "extents and arguments are as declared, and arguments do not overlap",
    "integers fit 64 bits, which the launch checks, and no cursor passes the end of its ring 2**31 times",
    "forward progress: a thread that can continue does, whatever other threads of its warp do",
    "a generic read that is ordered before an asynchronous write needs no proxy fence",
)
ORDER_ONLY = "what it computes is right: the kernel has no definitions"
ARITHMETIC = "sums and products are associative and commutative; float32 products of tensor cores are those of tf32"
RESIDENT = "all blocks of the grid are resident at once"
CLAIMS = "the counters of queues are zero when the launch begins"
COUNTERS = "counters of semaphores and of barriers of the grid are zero when the launch begins"
WARPS = "a wgmma reads Shared memory after what its warps did and waited for before it"
SCOPE = "an arrival at the mbarrier of another block, in the scope of a block, orders reads of a slot before its next fill by an engine"


def verify(kernel: Kernel, extents: Mapping[str, int] | None = None) -> Certificate:
    """Prove a kernel for all extents, trip counts and interleavings, or report which obligations are open or refuted.

    Args:
        kernel: a kernel; it is not changed. One that breaks a rule of kernel IR (``kernel.check_ir()``) is outside the model.
        extents: prove it only for these values of its extents, at which every trip count is known.

    Raises:
        InputError: an extent has no value in ``extents``, or one that breaks its facts.
    """
    with PAUSE:  # one of all: ending a pause costs a collection of new objects
        try:
            return _verified(kernel, extents)
        except OverflowError:
            return Certificate(kernel.name, Argument([WIDE]))


def _verified(kernel: Kernel, extents: Mapping[str, int] | None) -> Certificate:
    broken = _broken(kernel)
    if broken is not None:
        return Certificate(kernel.name, (broken,))
    claims = bool(kernel.queues)
    kernel = owned(kernel)
    if extents is None:
        return _certificate(kernel, (), kernel.launch_registers, claims=claims)
    chosen = tuple((e.name, extents[e.name]) for e in kernel.extents if e.name in extents)
    try:
        chosen_kernel = specialized(kernel, extents)
        lost = without_value(kernel, extents)
        if lost is not None:
            return Certificate(kernel.name, Argument([lost]), extents=chosen)
        return _certificate(chosen_kernel, chosen, kernel.launch_registers, claims=claims)
    except (ZeroDivisionError, IndexError) as error:
        reason = f"an expression has no value at these extents: {error}"
        return Certificate(kernel.name, Argument([Obligation(Layer.ADDRESS, "extents", Verdict.OUTSIDE, reason)]), extents=chosen)


def _broken(kernel: Kernel) -> Obligation | None:
    """The rule of kernel IR that a kernel breaks, a statement that the proof does not know, or an expression of numbers that are too large for it. The argument
    takes all of them for granted, those of the witness too."""
    try:
        kernel.check_ir()
    except VerifyError as error:
        return Obligation(Layer.STRUCTURE, "rules of kernel IR", Verdict.OUTSIDE, error.message.partition("\n")[0])
    return unknown(kernel) or too_large(kernel)


def _certificate(kernel: Kernel, extents: tuple[tuple[str, int], ...], launched: int | None, *, claims: bool) -> Certificate:
    kinds = {type(s) for s in walk(kernel)}
    budget = f"a launch gives each thread {'all' if launched is None else launched} registers that its bounds allow"
    more = (
        (ORDER_ONLY, not kernel.definitions),
        (ARITHMETIC, bool(kernel.definitions)),
        (RESIDENT, kernel.is_cooperative),
        (COUNTERS, kernel.is_cooperative),
        (CLAIMS, claims),
        (SCOPE, Arrive in kinds and any(isinstance(s, Arrive) and s.across and s.scope is MbarrierScope.BLOCK for s in walk(kernel))),
        (WARPS, Wgmma in kinds),
        (TENSORS, assumes_tensors(kernel)),
        (budget, SetMaxNReg in kinds),
    )
    rising = [f"{p.name}, whose elements rise from {p.rises[0]} to {p.rises[1]}" for p in kernel.table_inputs if p.rises is not None]
    rising += [f"{p.name}, whose element i0 is {p.holds}" for p in kernel.table_inputs if p.holds is not None]
    more = (*more, (f"tables hold what callers promise: {', '.join(rising)}", bool(rising)))
    rewritten = rewritings(kernel)
    assumptions = (*ASSUMPTIONS, *(text for text, holds in more if holds), *rewritten.assumptions)
    argument = Argument(chain(rewritten.obligations, _argument(kernel, launched)))
    return Certificate(kernel.name, argument, assumptions, extents, lambda: _refuted(kernel, argument))


def _argument(kernel: Kernel, launched: int | None) -> Iterator[Obligation]:
    """The four layers, what is cheap first. ``launched``: registers of each thread at launch.

    Unrolled loops are loops like others; where that leaves something open, those that hold asynchronous operations are copied out.
    If an expression of the kernel may have no value, nothing else is checked: the rules are about expressions with values.
    """
    trees = [StatementTree.of(kernel)]
    try:
        meant = searched(kernel)
        if meant is not kernel:
            trees.append(StatementTree.of(meant))
        yield from _layers(trees[0], trees[-1], launched)
    except OverflowError:
        yield WIDE
    finally:
        for tree in trees:
            tree.release()


def _layers(tree: StatementTree, meant: StatementTree, launched: int | None) -> Iterator[Obligation]:
    """The same of a tree; ``meant`` is that of the kernel with its searches made places, the tree itself if it has none."""
    whole = tree
    demands = tuple(defined(tree))
    if tree.has_copies and all_proved(demands) is None:
        tree = tree.copied_out()
        demands = tuple(defined(tree))
    tree = tree if meant is whole else meant
    if any(o.subject == DIVISORS and o.verdict is not Verdict.PROVED for o in demands):
        yield from demands
        return
    structure = Structure.of(tree)
    ordered = _ordered(structure, launched)
    if tree.has_copies:
        proved = all_proved(ordered)
        structure = structure if proved is not None else structure.copied_out
        ordered = _ordered(structure, launched) if proved is None else iter(proved)
    yield from ordered
    yield from demands
    yield from right(structure)


def _ordered(structure: Structure, launched: int | None) -> Iterator[Obligation]:
    """The layers of structure, order and address over one tree."""
    tree, threads, paths, barriers, rings = structure.tree, structure.threads, structure.paths, structure.barriers, structure.rings
    prefetch = TmaPrefetch(rings, structure.multibuffers)
    yield from rings.obligations
    yield from prefetch.obligations
    yield from barriers.obligations
    yield from whole_clusters(tree)
    yield from convergence(tree, threads)
    yield from initialization(tree, rings, paths)
    yield from deadlocks(tree, paths, rings, [*prefetch.edges, *released(tree, launched)])
    yield from before_exit(tree, paths, barriers, (name for r in rings.rings if r.across for name in (r.full, r.empty)))
    yield from in_flight(tree, paths, threads)
    yield from budgets(tree, threads, launched)
    races = Races(tree, threads, barriers, rings, paths, structure.multibuffers, prefetch)
    yield from while_they_run(tree, paths, barriers, races.uses)
    yield from races.waited_for_at_exit()
    yield from races.check()
    yield from inside(tree)
    yield from aligned(tree)


def _refuted(kernel: Kernel, argument: Argument) -> tuple[Obligation, ...]:
    """A counterexample at small extents, if one is found. Where values alone are open, no interleaving is looked for: there is none that fails."""
    is_ordered = all(o.verdict is Verdict.PROVED or o.layer in (Layer.VALUES, Layer.REWRITINGS) for o in argument)
    held = "compute no wrong value that one run would show" if is_ordered else "hold in every interleaving"
    launches = 0
    budget = WorkBudget()
    for extents in drawn_extents(kernel):
        if budget.spent:
            break
        try:
            found = None if is_ordered else counterexample(kernel, extents, budget)
            wrong = wrong_value(kernel, extents, budget) if found is None else None
        except (TooLarge, ZeroDivisionError, IndexError, OverflowError):  # or the host finds no value for what it computes
            continue
        launches += 1
        if found is not None:
            return (Obligation(Layer.INSTANCE, found.subject, Verdict.REFUTED, found.reason, found.notes),)
        if wrong is not None:
            return (wrong,)
        if launches == LAUNCHES:
            break
    return (Obligation(Layer.INSTANCE, "launches", Verdict.PROVED, f"{launches} small launches {held}"),) if launches else ()
