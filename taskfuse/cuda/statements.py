"""Statements of kernel IR in CUDA C++: the bodies of a kernel, control flow, computations; copies and synchronization have their own modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from taskfuse.cuda import copies, matrices
from taskfuse.cuda import instructions as ptx
from taskfuse.cuda.agreement import asked_of_a_lane
from taskfuse.cuda.c_types import c_type, saturated
from taskfuse.cuda.combined_updates import HeldUpdates
from taskfuse.cuda.dispatch import Decision, decision_tree
from taskfuse.cuda.expressions import Indices, Level, PrintedExpr, once
from taskfuse.cuda.functions import call, usual_condition
from taskfuse.cuda.hoisting import Divisions, guard_around
from taskfuse.cuda.loop_versions import divisor_of, has_usual_form, has_versions
from taskfuse.cuda.pairs import Narrowed, narrowed_of, pair_of, write_narrowed, write_pair
from taskfuse.cuda.ranges import steady
from taskfuse.cuda.rounded import ShorterForms
from taskfuse.cuda.saturated import SATURATED
from taskfuse.cuda.storage import constant_elements, declared_in, vector_bytes
from taskfuse.cuda.synchronization import Synchronization
from taskfuse.cuda.text import bare
from taskfuse.cuda.word_chains import WordChains
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import DType, bool_, float32
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import ONE, TRUE, And, Compare, CompareOp, Const, Element, Expr, FloorDiv, Mod, UpperBound, and_, free_symbols, lookups_of, not_
from taskfuse.kir import walk
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Branch, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Immediate, Operand, Queue, ScalarValue
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.synchronization import Acquire, Arrive, ArriveAsync, Barrier, Commit, Expect, FenceProxyAsync, Release, Wait, WaitGroup, WgmmaFence
from taskfuse.kir.walk import accesses
from taskfuse.location import Location

_NAMES: dict[type[Expr], str] = {FloorDiv: "quotient", Mod: "rest", Element: "element", UpperBound: "place"}
"""Variables of the expressions hoisted to the start of a body."""
_DELAYED = Wait | Arrive | ArriveAsync | AsyncCopy | Release | Acquire | Expect | Barrier | TmaLoad | TmaStore | Commit | WaitGroup | FenceProxyAsync
"""Statements before and after which a chaos build delays."""


class StatementPrinter:
    """Prints the bodies of one kernel.

    Args:
        fast_math: approximate functions.
        uniform: symbols with launch-uniform values.
        chaos: seed of random delays around synchronization; ``None``: no delays.
        locations: comments with the locations of statements.
    """

    def __init__(
        self, writer: Writer, synchronization: Synchronization, fast_math: bool, uniform: frozenset[str], chaos: int | None, locations: bool = False
    ) -> None:
        self._writer = writer
        self._synchronization = synchronization
        self._fast_math = fast_math
        self._chaos = chaos
        self._delays = 0
        self._locations = locations
        self._said: Location | None = None  # by the last comment
        self._divisions = Divisions(writer.kernel, uniform)
        self._declared = declared_in(writer.kernel)
        self._vectors = vector_bytes(writer.kernel)
        self._shorter = ShorterForms(writer.kernel)
        self._has_wgmma = any(isinstance(s, Wgmma) for s in walk(writer.kernel))
        self._has_versions = not fast_math and not self._has_wgmma
        self._agreed = asked_of_a_lane(writer.kernel)
        self._visible: set[str] = set()  # the Local buffers that are declared here
        self._in_flight: dict[str, float] = {}  # accumulators of wgmmas above that no text above has waited for, and the number of their batch
        self._batches = 0  # of wgmmas that are closed above
        self._held = HeldUpdates(writer)
        self._chains = WordChains(writer)

    def body(self, body: tuple[Stmt, ...], scope: TextScope) -> None:
        """The statements of a body, after the registers that it declares."""
        w = self._writer
        own = {buffer.name for buffer in self._declared.get(id(body), ())}
        for buffer in self._declared.get(id(body), ()):
            w.line(scope, self._local(buffer))
        self._visible |= own
        scope = self._named(body, scope)
        for k, stmt in enumerate(body):
            if isinstance(stmt, WgmmaFence):
                self._pack(body[k + 1 :], scope)
            self._statement(stmt, scope)
            match stmt:
                case Commit(queue=Queue.WGMMA):
                    self._batches += 1
                case WaitGroup(queue=Queue.WGMMA, pending=pending):
                    self._hold(pending, scope)
                case _:
                    pass
        self._visible -= own

    def _hold(self, pending: int, scope: TextScope) -> None:
        """Wgmmas are waited for, all but the last batches: reads of their accumulators stay after this point. A compiler may move it, and then runs them one
        by one."""
        w = self._writer
        done = [name for name, batch in self._in_flight.items() if pending == 0 or batch + 1 + pending <= self._batches]
        for name in done:
            if name in self._visible:
                w.call(scope, matrices.WGMMA_RETIRED, w.places[name].identifier)
            del self._in_flight[name]

    def _part(self, stmt: Stmt) -> None:
        """Threads begin or end what they do some number of times: how many batches it closes is not known."""
        if self._in_flight and any(isinstance(s, Commit | Wgmma) for s in walk(stmt)):
            self._in_flight = dict.fromkeys(self._in_flight, inf)

    def _named(self, body: tuple[Stmt, ...], scope: TextScope) -> TextScope:
        """Variables for the divisions that ``body`` begins with, and a scope that knows them."""
        w = self._writer
        for e in self._divisions.of(body, scope.indices.named):
            text = replace(scope.indices, speculated=True).print(e)
            name = w.names.reserve(_NAMES[type(e)])
            w.line(scope, f"const {'long long' if text.wide else 'int'} {name} = {text.text};")
            named = {**scope.indices.named, e: PrintedExpr(name, Level.ATOM, text.wide)}
            scope = replace(scope, indices=replace(scope.indices, named=named))
        return scope

    def _local(self, buffer: Buffer) -> str:
        place = self._writer.places[buffer.name]
        align = max(buffer.align, self._vectors.get(buffer.name, 1))
        aligned = f"alignas({align}) " if align > buffer.dtype.itemsize else ""
        extent = f"[{constant_elements(buffer)}]" if buffer.shape else ""
        return f"{aligned}{c_type(float32 if place.holds_floats else buffer.dtype)} {place.identifier}{extent};"

    # -- statements -----------------------------------------------------------------------------------------------------------------

    def _delay(self, scope: TextScope) -> None:
        self._writer.call(scope, ptx.CHAOS, f"{self._chaos}u", str(self._delays))
        self._delays += 1

    def _say(self, location: Location, scope: TextScope) -> None:
        """A comment with a line of the user's, unless the last one was the same."""
        if location != self._said:
            self._said = location
            self._writer.line(scope, f"// {location}  {location.source.strip()}".rstrip(" \\"))  # a \ at its end would go on in the next line

    def _statement(self, stmt: Stmt, scope: TextScope) -> None:
        if self._locations and stmt.location is not None:
            self._say(stmt.location, scope)
        if self._chaos is not None and isinstance(stmt, _DELAYED):
            self._delay(scope)
            self.print(stmt, scope)
            self._delay(scope)
        else:
            self.print(stmt, scope)

    def print(self, stmt: Stmt, scope: TextScope) -> None:
        """The text of a statement, without delays and locations."""
        w = self._writer
        match stmt:
            case For(unroll=True, body=body):
                guarded = None if any(id(s) in self._agreed for s in body) else guard_around(stmt)
                if guarded is None and self._has_versions and has_versions(stmt, self._shorter):
                    self._versions(stmt, scope)
                elif guarded is None:
                    self._for(stmt, scope)
                else:
                    self.print(guarded, scope)
            case For():
                self._part(stmt)
                with self._held.around(stmt, scope):
                    self._for(stmt, scope)
                self._part(stmt)
            case Bind():
                self.body(stmt.body, scope)
            case If():
                self._part(stmt)
                self._if(stmt, scope)
                self._part(stmt)
            case Compute():
                if (moved := self._moved(stmt)) is not None:
                    w.move(stmt.out, moved, scope)
                    return
                if stmt.op is SATURATED:
                    converted = saturated(w.operand(stmt.operands[0], float32, scope))
                    w.line(scope, f"{w.element(stmt.out, scope)} = {w.use(converted)};")
                    return
                if (number := w.float_of_index(stmt, scope)) is not None:
                    w.store(stmt.out, number, float32, scope)
                    return
                operands = [w.operand(o, dtype, scope) for o, dtype in zip(stmt.operands, operand_dtypes(stmt), strict=True)]
                short, is_rounded = self._shorter.is_bfloat16(stmt), self._shorter.is_rounded(stmt)
                narrow = stmt.out.buffer in self._shorter.narrow and _is_shared(stmt.operands[1:], scope.copied)
                divisor = divisor_of(stmt)
                if scope.asks is not None:
                    w.line(scope, f"{scope.asks} &= {bare(w.use(usual_condition(stmt.op, operands, divisor)))};")
                    return
                forms = {"is_bfloat16": short, "is_rounded": is_rounded, "is_narrow": narrow}
                is_usual = scope.is_usual if has_usual_form(stmt, self._shorter) else None
                text = w.use(call(stmt.op, operands, stmt.dtype, self._fast_math, **forms, turn=scope.turn, is_usual=is_usual, divisor=divisor))
                w.store(stmt.out, text, stmt.op.result_dtype(stmt.dtype), scope)
            case Choose():
                self._choose(stmt, scope)
            case Shuffle():
                self._shuffle(stmt, scope)
            case VectorCopy():
                copies.vector_copy(w, stmt, scope)
            case GatherCopy():
                copies.gather(w, stmt, scope)
            case AtomicUpdate():
                copies.update(w, stmt, scope, self._held.variable(stmt))
            case AsyncCopy():
                copies.async_copy(w, stmt, scope)
            case TmaLoad():
                copies.bulk_load(w, stmt, scope)
            case TmaStore():
                copies.bulk_store(w, stmt, scope)
            case Wgmma():
                a = w.address(stmt.a, scope) if isinstance(stmt.a, Access) else matrices.descriptor(w, stmt.a, scope)
                operands = a, matrices.descriptor(w, stmt.b, scope)
                self._in_flight[stmt.acc.buffer] = self._batches
                w.call(scope, matrices.wgmma(stmt), w.address(stmt.acc, scope), *operands, scope.indices.text(stmt.accumulate))
            case Mma(acc=acc, a=a, b=b):
                w.call(scope, matrices.mma(stmt), *(w.address(r, scope) for r in (acc, a, b)))
            case LdMatrix(out=out, source=source):
                w.call(scope, matrices.ldmatrix(stmt), w.address(out, scope), w.address(source, scope))
            case StMatrix(out=out, source=source):
                w.call(scope, matrices.stmatrix(stmt), w.address(out, scope), w.address(source, scope))
            case _:
                self._synchronization.print(stmt, scope)

    def _moved(self, stmt: Compute) -> Access | None:
        """The operand that a statement copies into an element of the same dtype, which needs no conversion to the compute dtype."""
        match stmt.operands:
            case (Access() as source,) if stmt.op.cpp.moves:
                dtype = self._writer.places[stmt.out.buffer].dtype
                same = self._writer.places[source.buffer].dtype is dtype
                return source if same and stmt.dtype in (dtype, dtype.compute) else None
            case _:
                return None

    def _for(self, stmt: For, scope: TextScope) -> None:
        w = self._writer
        indices = scope.indices
        ranges = indices.ranges.loop(stmt.var, stmt.start, stmt.stop)
        low, high = indices.ranges.of(stmt.start)[0], indices.ranges.of(stmt.stop)[1]
        wide = indices.wide and not (low >= -(2**31) and high + indices.ranges.of(stmt.step)[1] < 2**31)
        inner = replace(
            scope,
            indices=replace(
                indices,
                ranges=ranges,
                wide_symbols=indices.wide_symbols | {stmt.var} if wide else indices.wide_symbols,
                facts=once(lambda: indices.facts().with_range(stmt.var, stmt.start, stmt.stop - 1)),
            ),
            depth=scope.depth + 1,
            cursors=set(scope.cursors),
        )
        i = w.names[stmt.var]
        if _is_copied_evenly(stmt):
            inner = replace(inner, turn=i)
        if stmt.unroll:
            inner = replace(inner, copied=stmt)
        pair = pair_of(stmt, w.places, indices.facts) or narrowed_of(stmt, w.places, indices.facts)
        chain = self._chains.find(stmt, indices.facts) if pair is None and scope.asks is None else None
        step = f"{i} += {2 if pair or chain else indices.text(stmt.step)}" if pair or chain or stmt.step is not ONE else f"++{i}"
        if stmt.unroll:
            w.unroll()
        elif isinstance(stmt.start, Const) and isinstance(stmt.stop, Const) and _fills_slots(stmt):
            w.keep()  # a compiler would unroll it, and hold the addresses of all slots in the few registers of what only copies
        if stmt.queue is not None:
            self._claims(stmt, stmt.queue, inner)
            return
        start, stop = f"{i} = {indices.text(stmt.start)}", indices.text(stmt.stop, Level.SHIFT)
        if lookups_of(stmt.stop):  # the compiler would read the table again in each iteration
            start, stop = f"{start}, {i}_end = {indices.text(stmt.stop)}", f"{i}_end"
        w.line(scope, f"for ({'long long' if wide else 'int'} {start}; {i} < {stop}; {step}) {{")
        if pair is not None:
            if self._locations and pair.stmt.location is not None:
                self._say(pair.stmt.location, inner)
            if isinstance(pair, Narrowed):
                write_narrowed(w, pair, inner)
            else:
                write_pair(w, pair, inner)
        elif chain is not None:
            self._chains.print(chain, inner, self._statement)
        else:
            self.body(stmt.body, inner)
        w.line(scope, "}")

    def _versions(self, stmt: For, scope: TextScope) -> None:
        """A loop by the steps for usual operands, if all of its elements have such, or by those for any."""
        w = self._writer
        is_usual, inner = w.names.reserve("is_usual"), replace(scope, depth=scope.depth + 1)
        w.line(scope, f"bool {is_usual} = true;")
        self._for(replace(stmt, body=tuple(s for s in stmt.body if has_usual_form(s, self._shorter))), replace(scope, asks=is_usual))
        w.line(scope, f"if ({is_usual}) {{")
        self._for(stmt, replace(inner, is_usual=True))
        w.line(scope, "} else {")
        self._for(stmt, replace(inner, is_usual=False))
        w.line(scope, "}")

    def _claims(self, stmt: For, queue: str, scope: TextScope) -> None:
        """A loop over the numbers that the block claims; ``scope`` is that of its body."""
        w = self._writer
        (claims, counter), i = w.queues[queue], w.names[stmt.var]
        position = w.names.reserve(f"{i}_position")
        w.helpers.add(ptx.CLAIM)
        outside = replace(scope, depth=scope.depth - 1)
        claim = f"({i} = {ptx.CLAIM.name}({claims}, {counter}, {position}))"
        w.line(outside, f"for (int {position} = 0, {i}; {claim} < {scope.indices.text(stmt.stop, Level.SHIFT)}; ++{position}) {{")
        if self._chaos is not None:  # who claims what changes
            self._delay(scope)
        self.body(stmt.body, scope)
        w.line(outside, "}")

    def _if(self, stmt: If, scope: TextScope) -> None:
        w = self._writer
        if stmt.note:
            w.line(scope, f"// {stmt.note}")
        if self._has_wgmma and self._stores(stmt, scope):
            return
        agreed = id(stmt) in self._agreed
        decision = None if agreed else decision_tree(stmt, scope.indices.facts())
        if decision is not None:
            self._decision(decision, scope)
            return
        for n, branch in enumerate(stmt.branches):
            cond = self._condition(branch.cond, scope)
            if agreed and branch.cond is not TRUE:
                w.helpers.add(matrices.AGREED)
                cond = f"{matrices.AGREED.name}({cond})"
            lead = "if" if n == 0 else "} else if"
            w.line(scope, f"{lead} ({cond}) {{{_comment(branch)}" if branch.cond is not TRUE or n == 0 else f"}} else {{{_comment(branch)}")
            self.body(branch.body, self._inside(branch, scope))
        w.line(scope, "}")

    def _decision(self, node: Decision, scope: TextScope) -> None:
        """Both sides of a node; a side that is one member and asks nothing more is its body."""
        w = self._writer
        for cond, side, head in (
            (node.cond, node.below, f"if ({scope.indices.text(node.cond)}) {{"),
            (not_(node.cond), node.above, "} else {"),
        ):
            match side:
                case Branch(cond=Const()):
                    w.line(scope, head + _comment(side))
                    self.body(side.body, self._inside(replace(side, cond=cond), scope))
                case Branch():
                    w.line(scope, head)
                    self._if(If((side,)), self._inside(Branch(cond, ()), scope))
                case Decision():
                    w.line(scope, head)
                    self._decision(side, self._inside(Branch(cond, ()), scope))
        w.line(scope, "}")

    def _stores(self, stmt: If, scope: TextScope) -> bool:
        """Print a guarded vector store without a branch, if ``stmt`` is one.

        Into a branch ptxas moves the conversion of what is stored there. That reads accumulators of wgmmas in code that may not run, and then all wgmmas
        are serialized.
        """
        (branch, *others) = stmt.branches
        if others or len(branch.body) != 1 or not isinstance(copy := branch.body[0], VectorCopy):
            return False
        return copies.guarded_store(self._writer, self._condition(branch.cond, scope), copy, scope, self._inside(branch, scope))

    def _inside(self, branch: Branch, scope: TextScope) -> TextScope:
        path = (*scope.path, branch.label) if branch.label else scope.path
        outer = scope.indices.facts
        indices = replace(scope.indices, facts=once(lambda: outer().with_assumption(branch.cond)))
        return replace(scope, path=path, depth=scope.depth + 1, cursors=set(scope.cursors), indices=indices)

    def _condition(self, cond: Expr, scope: TextScope) -> str:
        """``cond`` without the conjuncts that hold for every thread."""
        if isinstance(cond, And):
            cond = and_(*(c for c in cond.args if not _always(c, scope.indices)))
        return "true" if cond is TRUE else scope.indices.text(steady(cond, self._writer.unrolled, scope.indices.ranges))

    def _choose(self, stmt: Choose, scope: TextScope) -> None:
        w = self._writer
        inner = replace(scope, depth=scope.depth + 1)
        place = w.places[stmt.out.buffer]
        chosen = w.names.reserve(f"{place.identifier}_chosen") if MEDIA[place.memory].has_addresses else None
        if chosen is not None:  # one store after the choice: NVRTC 13.0 then loads for neighboring choices before it stores any
            w.line(scope, f"{c_type(place.dtype)} {chosen};")
        for n, case in enumerate(stmt.cases):
            cond = "" if n == len(stmt.cases) - 1 else f"if ({scope.indices.text(steady(case.cond, w.unrolled, scope.indices.ranges))}) "  # one case holds
            w.line(scope, f"{'} else ' if n else ''}{cond}{{")
            if chosen is None:
                w.store(stmt.out, w.operand(case.operand, place.dtype, inner), place.dtype, inner)
            else:
                w.line(inner, f"{chosen} = {w.operand(case.operand, place.dtype, inner)};")
        w.line(scope, "}")
        if chosen is not None:
            w.store(stmt.out, chosen, place.dtype, scope)

    def _shuffle(self, stmt: Shuffle, scope: TextScope) -> None:
        w = self._writer
        dtype = w.places[stmt.out.buffer].dtype
        text = f"__shfl_xor_sync(0xffffffff, {w.element(stmt.source, scope)}, {stmt.mask})"
        if dtype.itemsize < 4:
            text = f"({c_type(dtype)}){text}"
        w.line(scope, f"{w.element(stmt.out, scope)} = {text};")

    # -- matrices -------------------------------------------------------------------------------------------------------------------

    def _pack(self, behind: tuple[Stmt, ...], scope: TextScope) -> None:
        """Registers of A are written before the fence that precedes ``behind``."""
        w = self._writer
        for fragment in matrices.covered(behind):
            if fragment.buffer in self._visible:
                w.call(scope, matrices.WGMMA_FACTOR, w.address(fragment, scope))


def _is_shared(operands: Sequence[Operand], loop: For | None) -> bool:
    """Whether operands are the same for all values of a loop."""
    if loop is None:
        return False
    written = {access.buffer for stmt in walk(loop) for access in accesses(stmt)[0]}
    for operand in operands:
        match operand:
            case Access(buffer=buffer, index=index):
                if buffer in written or any(loop.var in free_symbols(i) for i in index):
                    return False
            case Immediate() | ScalarValue():
                pass
            case _:
                return False
    return True


def operand_dtypes(stmt: Compute) -> tuple[DType, ...]:
    """The dtypes that operands are converted to: a selection's first is bool."""
    if stmt.op.rule is DTypeRule.SELECT:
        return (bool_, *(stmt.dtype for _ in stmt.operands[1:]))
    return tuple(stmt.dtype for _ in stmt.operands)


def _is_copied_evenly(loop: For) -> bool:
    """True for a loop that is copied for each of an even number of consecutive values."""
    match loop:
        case For(unroll=True, start=Const(start), stop=Const(stop), step=Const(1)):
            return (stop - start) % 2 == 0
        case _:
            return False


def _fills_slots(loop: For) -> bool:
    """True for a loop that fills a slot of a ring by bulk copies in each trip."""
    return {type(s) for s in walk(loop.body)} >= {Wait, TmaLoad}


def _comment(branch: Branch) -> str:
    return f"  // {branch.label}" if branch.label else ""


def _always(cond: Expr, indices: Indices) -> bool:
    """True if a comparison holds by the ranges of its sides."""
    match cond:
        case Compare(CompareOp.LE, a, b):
            return indices.ranges.of(a)[1] <= indices.ranges.of(b)[0]
        case Compare(CompareOp.LT, a, b):
            return indices.ranges.of(a)[1] < indices.ranges.of(b)[0]
        case _:
            return False
