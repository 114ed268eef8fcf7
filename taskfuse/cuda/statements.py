"""Statements of kernel IR in CUDA C++: one method per statement, one scope per body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from taskfuse.cuda import cluster_instructions as cluster
from taskfuse.cuda import instructions as ptx
from taskfuse.cuda import matrices, semaphores
from taskfuse.cuda.c_types import c_type, literal
from taskfuse.cuda.conversions import convert
from taskfuse.cuda.debug import WaitPoint
from taskfuse.cuda.dispatch import Cut, halved
from taskfuse.cuda.expressions import Indices, Level, Text
from taskfuse.cuda.factors import covered
from taskfuse.cuda.functions import call, result_dtype
from taskfuse.cuda.hoisting import Divisions
from taskfuse.cuda.names import Names
from taskfuse.cuda.ranges import INT32, Range, cursor_ranges
from taskfuse.cuda.storage import Place, constant_elements, declared_in, row_major
from taskfuse.cuda.text import Fragment, Helper
from taskfuse.cuda.variant import Form
from taskfuse.dtypes import DType, bool_, int64
from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import DTypeRule
from taskfuse.ir.scalar import ONE, TRUE, ZERO, And, Compare, CompareOp, Const, Expr, Facts, FloorDiv, and_, const, eq, is_multiple, not_, prove, sym
from taskfuse.ir.types import CLUSTER_TYPES, ParallelType
from taskfuse.kir import Kernel, expressions, walk
from taskfuse.kir.clusters import constant_shape, peers
from taskfuse.kir.limits import MAX_THREADS, WARP, launch_registers
from taskfuse.kir.nodes import (
    Access,
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    AsyncCopy,
    Barrier,
    BarrierScope,
    BarrierSlot,
    Bind,
    Branch,
    Buffer,
    Choose,
    Commit,
    Compute,
    CursorInit,
    Descriptor,
    Expect,
    FenceInit,
    FenceProxyAsync,
    For,
    Gather,
    If,
    Immediate,
    IndexOf,
    InitBarrier,
    LdMatrix,
    Mma,
    Operand,
    Queue,
    Release,
    Retire,
    ScalarParam,
    ScalarValue,
    SemaphoreSlot,
    SetMaxNReg,
    Shuffle,
    StMatrix,
    Stmt,
    TensorMapParam,
    TmaLoad,
    TmaStore,
    VectorCopy,
    Wait,
    Wgmma,
    WgmmaFence,
)

INDENT = "  "
_DELAYED = Wait | Arrive | ArriveAsync | AsyncCopy | Release | Acquire | Expect | Barrier | TmaLoad | TmaStore | Commit | Retire | FenceProxyAsync
"""Before and after these a chaos build delays."""
_COMMITS = {Queue.WGMMA: matrices.WGMMA_COMMIT, Queue.BULK: ptx.BULK_COMMIT, Queue.COPY: ptx.COPY_COMMIT}
_WAITS = {Queue.WGMMA: matrices.WGMMA_WAIT, Queue.BULK: ptx.BULK_WAIT, Queue.COPY: ptx.COPY_WAIT}
ELEMENT = "vector.element"  # the symbol of an element of a vector that is copied element by element


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds where a statement stands.

    Attributes:
        indices: prints the integers of this scope.
        path: labels of the branches around it.
        depth: nesting of the text.
        cursors: cursors that are declared here.
    """

    indices: Indices
    path: tuple[str, ...]
    depth: int
    cursors: set[str]


class Statements:
    """Prints the body of one kernel.

    Args:
        places: every buffer and tensor argument.
        mbarriers: identifiers of the mbarrier arrays.
        counters: texts of the addresses of counters.
        fast_math: approximate functions.
        debug: bounded waits.
        uniform: symbols whose values are the launch's.
        chaos: seed of random delays around synchronization; ``None``: none.

    Attributes:
        lines: the text.
        helpers: what it calls.
        waits: the waits of a debug build.
    """

    def __init__(
        self,
        kernel: Kernel,
        names: Names,
        places: dict[str, Place],
        mbarriers: dict[str, str],
        counters: dict[str, str],
        helpers: set[Helper],
        fast_math: bool,
        debug: bool,
        uniform: frozenset[str],
        chaos: int | None = None,
    ) -> None:
        self.kernel = kernel
        self._divisions = Divisions(kernel, uniform)
        self.names = names
        self.places = places
        self.mbarriers = mbarriers
        self.counters = counters
        self.helpers = helpers
        self.fast_math = fast_math
        self.debug = debug
        self.chaos = chaos
        self._places = 0
        self.lines: list[str] = []
        self.waits: list[WaitPoint] = []
        self._slots: dict[str, int] = {}
        self._declared = declared_in(kernel)
        self._semaphores = {s.name: s for s in kernel.semaphores}
        self._phased = {n.removesuffix(".phase") for s in walk(kernel) for e in expressions(s) for n in e.free if n.endswith(".phase")}
        self._defined: set[str] = set()  # the Local buffers whose declarations stand in the text
        self._ranks = {p.name: len(p.box) for p in kernel.params if isinstance(p, TensorMapParam)}
        self._scalars: dict[str, DType] = {p.name: p.dtype for p in kernel.params if isinstance(p, ScalarParam)}

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def _line(self, scope: Scope, text: str) -> None:
        self.lines.append(INDENT * scope.depth + text)

    def _use(self, fragment: Fragment) -> str:
        self.helpers |= fragment.helpers
        return fragment.text

    def _call(self, scope: Scope, helper: Helper, *arguments: str, template: str = "") -> None:
        self.helpers.add(helper)
        self._line(scope, f"{helper.name}{template}({', '.join(arguments)});")

    def body(self, body: tuple[Stmt, ...], scope: Scope) -> None:
        """The statements of a body, the registers that live in it first."""
        for buffer in self._declared.get(id(body), ()):
            self._line(scope, self._local(buffer))
            self._defined.add(buffer.name)
        scope = self._named(body, scope)
        for k, stmt in enumerate(body):
            if isinstance(stmt, WgmmaFence):
                self._pack(body[k + 1 :], scope)
            self._statement(stmt, scope)

    def _named(self, body: tuple[Stmt, ...], scope: Scope) -> Scope:
        """Variables for the divisions that ``body`` begins with, and a scope that knows them."""
        for e in self._divisions.of(body, scope.indices.named):
            text = scope.indices.print(e)
            name = self.names.reserve("quotient" if isinstance(e, FloorDiv) else "rest")
            self._line(scope, f"const {'long long' if text.wide else 'int'} {name} = {text.text};")
            named = {**scope.indices.named, e: Text(name, Level.ATOM, text.wide)}
            scope = replace(scope, indices=replace(scope.indices, named=named))
        return scope

    def _local(self, buffer: Buffer) -> str:
        place = self.places[buffer.name]
        aligned = f"alignas({buffer.align}) " if buffer.align > buffer.dtype.itemsize else ""
        extent = f"[{constant_elements(buffer)}]" if buffer.shape else ""
        return f"{aligned}{c_type(buffer.dtype)} {place.identifier}{extent};"

    # -- operands -------------------------------------------------------------------------------------------------------------------

    def _element(self, access: Access, scope: Scope) -> str:
        return self.places[access.buffer].element(access.index, scope.indices)

    def _address(self, access: Access, scope: Scope) -> str:
        text = self._element(access, scope)
        return f"&{text}"

    def _slot(self, slot: BarrierSlot, scope: Scope) -> str:
        return f"&{self.mbarriers[slot.name]}[{scope.indices.text(slot.slot)}]"

    def _operand(self, operand: Operand, dtype: DType, scope: Scope) -> str:
        """The text of an operand converted to ``dtype``."""
        match operand:
            case Access():
                return self._use(convert(self._element(operand, scope), self.places[operand.buffer].dtype, dtype))
            case Immediate():
                if operand.dtype is dtype:
                    return literal(operand.value, dtype)
                return self._use(convert(literal(operand.value, operand.dtype), operand.dtype, dtype))
            case ScalarValue(name=name):
                return self._use(convert(self.names[name], self._scalars[name], dtype))
            case IndexOf(value=value):
                return self._use(convert(scope.indices.wide_text(value, Level.UNARY), int64, dtype))

    def _store(self, out: Access, text: str, dtype: DType, scope: Scope) -> None:
        place = self.places[out.buffer]
        self._line(scope, f"{self._element(out, scope)} = {_bare(self._use(convert(text, dtype, place.dtype)))};")

    # -- statements -----------------------------------------------------------------------------------------------------------------

    def _delay(self, scope: Scope) -> None:
        self._call(scope, ptx.CHAOS, f"{self.chaos}u", str(self._places))
        self._places += 1

    def _statement(self, stmt: Stmt, scope: Scope) -> None:
        if self.chaos is not None and isinstance(stmt, _DELAYED):
            self._delay(scope)
            self._print(stmt, scope)
            self._delay(scope)
        else:
            self._print(stmt, scope)

    def _print(self, stmt: Stmt, scope: Scope) -> None:
        match stmt:
            case For():
                self._for(stmt, scope)
            case Bind():
                self.body(stmt.body, scope)
            case If():
                self._if(stmt, scope)
            case Compute():
                operands = [self._operand(o, dtype, scope) for o, dtype in zip(stmt.operands, operand_dtypes(stmt), strict=True)]
                text = self._use(call(stmt.op, operands, stmt.dtype, self.fast_math))
                self._store(stmt.out, text, result_dtype(stmt.op, stmt.dtype), scope)
            case Choose():
                self._choose(stmt, scope)
            case Gather():
                self._gather(stmt, scope)
            case VectorCopy():
                self._vector(stmt, scope)
            case AsyncCopy():
                self._async_copy(stmt, scope)
            case Shuffle():
                self._shuffle(stmt, scope)
            case Barrier():
                self._barrier(stmt, scope)
            case InitBarrier(barrier=slot, count=count):
                self._call(scope, ptx.INIT, self._slot(slot, scope), scope.indices.text(count))
            case FenceInit():
                self._call(scope, ptx.FENCE_INIT)
            case Arrive(barrier=slot, across=()):
                self._call(scope, ptx.ARRIVE, self._slot(slot, scope))
            case Arrive(barrier=slot, across=across):
                first, others = self._reached(across)
                for other in others:
                    self._call(scope, cluster.ARRIVE_AT, self._slot(slot, scope), scope.indices.text(first + other))
            case ArriveAsync(barrier=slot):
                self._call(scope, ptx.ARRIVE_ASYNC, self._slot(slot, scope))
            case Expect(barrier=slot, bytes=size):
                self._call(scope, ptx.EXPECT, self._slot(slot, scope), scope.indices.text(size))
            case Wait():
                self._wait(stmt, scope)
            case Release(semaphore=slot):
                self._call(scope, semaphores.RELEASE, self._counter(slot, scope))
            case Acquire():
                self._acquire(stmt, scope)
            case CursorInit():
                self._cursor(stmt, scope)
            case Advance():
                self._advance(stmt, scope)
            case TmaLoad(out=out, map=name, coords=coords, barrier=slot):
                inner = [scope.indices.text(c) for c in reversed(coords)]
                operands = [self._address(out, scope), f"&{self.names[name]}", self._slot(slot, scope)]
                if stmt.across:
                    self._call(scope, cluster.tma_multicast(len(coords)), *operands, self._mask(stmt.across, scope), *inner)
                else:
                    self._call(scope, ptx.tma_load(len(coords)), *operands, *inner)
            case TmaStore(map=name, coords=coords, source=source):
                inner = [scope.indices.text(c) for c in reversed(coords)]
                self._call(scope, ptx.tma_store(len(coords)), f"&{self.names[name]}", self._address(source, scope), *inner)
            case Commit(queue=queue):
                self._call(scope, _COMMITS[queue])
            case Retire(queue=queue, pending=pending, read_only=read_only):
                self._call(scope, ptx.BULK_WAIT_READ if read_only else _WAITS[queue], template=f"<{pending}>")
            case WgmmaFence():
                self._call(scope, matrices.WGMMA_FENCE)
            case Wgmma():
                a = self._address(stmt.a, scope) if isinstance(stmt.a, Access) else self._matrix(stmt.a, scope)
                operands = a, self._matrix(stmt.b, scope)
                self._call(scope, matrices.wgmma(stmt), self._address(stmt.acc, scope), *operands, scope.indices.text(stmt.accumulate))
            case Mma(acc=acc, a=a, b=b):
                self._call(scope, matrices.mma(stmt), *(self._address(r, scope) for r in (acc, a, b)))
            case LdMatrix(out=out, source=source):
                self._call(scope, matrices.ldmatrix(stmt), self._address(out, scope), self._address(source, scope))
            case StMatrix(out=out, source=source):
                self._call(scope, matrices.stmatrix(stmt), self._address(out, scope), self._address(source, scope))
            case FenceProxyAsync():
                self._call(scope, ptx.FENCE_PROXY)
            case SetMaxNReg(registers=count):
                self._call(scope, ptx.set_registers(count, self._launch_registers()))

    def _for(self, stmt: For, scope: Scope) -> None:
        indices = scope.indices
        ranges = indices.ranges.loop(stmt.var, stmt.start, stmt.stop)
        low, high = indices.ranges.of(stmt.start)[0], indices.ranges.of(stmt.stop)[1]
        wide = indices.wide and not (low >= -(2**31) and high + self._step(stmt, indices) < 2**31)
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
        i = self.names[stmt.var]
        step = f"++{i}" if stmt.step is ONE else f"{i} += {indices.text(stmt.step)}"
        if stmt.unroll:
            self.lines.append("#pragma unroll")
        head = f"for ({'long long' if wide else 'int'} {i} = {indices.text(stmt.start)}; {i} < {indices.text(stmt.stop, Level.SHIFT)}; {step}) {{"
        self._line(scope, head)
        self.body(stmt.body, inner)
        self._line(scope, "}")

    def _step(self, stmt: For, indices: Indices) -> int:
        return indices.ranges.of(stmt.step)[1]

    def _if(self, stmt: If, scope: Scope) -> None:
        if stmt.note:
            self._line(scope, f"// {stmt.note}")
        cut = halved(stmt, scope.indices.facts())
        if cut is not None:
            self._cut(cut, scope)
            return
        for n, branch in enumerate(stmt.branches):
            cond = self._condition(branch.cond, scope)
            lead = "if" if n == 0 else "} else if"
            self._line(scope, f"{lead} ({cond}) {{{_comment(branch)}" if branch.cond is not TRUE or n == 0 else f"}} else {{{_comment(branch)}")
            self.body(branch.body, self._inside(branch, scope))
        self._line(scope, "}")

    def _cut(self, cut: Cut, scope: Scope) -> None:
        """Both sides of a cut; a side that is one member and asks nothing more is its body."""
        for cond, side, head in ((cut.cond, cut.below, f"if ({scope.indices.text(cut.cond)}) {{"), (not_(cut.cond), cut.above, "} else {")):
            match side:
                case Branch(cond=Const()):
                    self._line(scope, head + _comment(side))
                    self.body(side.body, self._inside(replace(side, cond=cond), scope))
                case Branch():
                    self._line(scope, head)
                    self._if(If((side,)), self._inside(Branch(cond, ()), scope))
                case Cut():
                    self._line(scope, head)
                    self._cut(side, self._inside(Branch(cond, ()), scope))
        self._line(scope, "}")

    def _inside(self, branch: Branch, scope: Scope) -> Scope:
        path = (*scope.path, branch.label) if branch.label else scope.path
        outer = scope.indices.facts
        indices = replace(scope.indices, facts=once(lambda: outer().with_assumption(branch.cond)))
        return replace(scope, path=path, depth=scope.depth + 1, cursors=set(scope.cursors), indices=indices)

    def _condition(self, cond: Expr, scope: Scope) -> str:
        """``cond`` without the conjuncts that hold for every thread."""
        if isinstance(cond, And):
            cond = and_(*(c for c in cond.args if not _always(c, scope.indices)))
        return "true" if cond is TRUE else scope.indices.text(cond)

    def _choose(self, stmt: Choose, scope: Scope) -> None:
        inner = replace(scope, depth=scope.depth + 1)
        place = self.places[stmt.out.buffer]
        for n, case in enumerate(stmt.cases):
            last = n == len(stmt.cases) - 1  # one case holds
            cond = "" if last else f"if ({scope.indices.text(case.cond)}) "
            self._line(scope, f"{'} else ' if n else ''}{cond}{{")
            self._store(stmt.out, self._operand(case.operand, place.dtype, inner), place.dtype, inner)
        self._line(scope, "}")

    def _vector(self, stmt: VectorCopy, scope: Scope) -> None:
        dtype = self.places[stmt.out.buffer].dtype
        if all(self._whole_vectors(a, stmt.width, scope) for a in (stmt.out, stmt.source)):
            self._call(scope, ptx.copy_vector(stmt.width * dtype.itemsize), self._address(stmt.out, scope), self._address(stmt.source, scope))
            return
        self._elements(stmt, scope, lambda out, source, inner: f"{self._element(out, inner)} = {self._element(source, inner)};")

    def _gather(self, stmt: Gather, scope: Scope) -> None:
        """The values, then, if all are inside of their extents, the elements there; else zeros."""
        inner = replace(scope, depth=scope.depth + 1)
        deep = replace(scope, depth=scope.depth + 2)
        self._line(scope, "{")
        conditions: list[str] = []
        for v in stmt.values:
            at, end = self.names.alias(f"{v.symbol} value", f"{v.symbol}_value"), scope.indices.wide_text(v.extent, Level.SHIFT)
            self._line(inner, f"long long {at} = {_bare(self._operand(v.source, int64, inner))};")
            self._line(inner, f"if ({at} < 0) {at} += {end};")
            conditions.append(f"{at} >= 0 && {at} < {end}")
        self._line(inner, f"if ({' && '.join(conditions)}) {{")
        found = self._found(stmt, deep)
        dtype = self.places[stmt.out.buffer].dtype
        if stmt.width == 1:
            self._line(deep, f"{self._element(stmt.out, deep)} = {self._element(stmt.source, found)};")
        elif all(self._whole_vectors(a, stmt.width, found) for a in (stmt.out, stmt.source)):
            self._call(deep, ptx.copy_vector(stmt.width * dtype.itemsize), self._address(stmt.out, deep), self._address(stmt.source, found))
        else:
            self._elements(stmt, found, lambda out, source, each: f"{self._element(out, each)} = {self._element(source, each)};")
        self._line(inner, "} else {")
        zero = literal(False if dtype.is_bool else 0, dtype)
        if stmt.width == 1:
            self._line(deep, f"{self._element(stmt.out, deep)} = {zero};")
        else:
            self._elements(stmt, deep, lambda out, source, each: f"{self._element(out, each)} = {zero};")
        self._line(inner, "}")
        self._line(scope, "}")

    def _found(self, stmt: Gather, scope: Scope) -> Scope:
        """The scope in which the symbols of a gather have their values."""
        indices = scope.indices
        wide = {v.symbol for v in stmt.values if indices.wide and indices.ranges.of(v.extent)[1] > INT32[1]}
        for v in stmt.values:
            ctype = "long long" if v.symbol in wide else "int"
            at = self.names.alias(f"{v.symbol} value", f"{v.symbol}_value")
            self._line(scope, f"const {ctype} {self.names[v.symbol]} = {at if v.symbol in wide else f'(int){at}'};")
        outer = indices.facts

        def facts() -> Facts:
            known = outer()
            for v in stmt.values:
                known = known.with_range(v.symbol, 0, v.extent - 1)
            return known

        ranges = indices.ranges.child({v.symbol: indices.ranges.below(v.extent) for v in stmt.values})
        return replace(scope, indices=replace(indices, ranges=ranges, wide_symbols=indices.wide_symbols | wide, facts=once(facts)))

    def _elements(self, stmt: VectorCopy | AsyncCopy | Gather, scope: Scope, line: Callable[[Access, Access, Scope], str]) -> None:
        """A copy element by element: ``line`` gives the text of one."""
        var = self.names.alias(ELEMENT, "e")
        each: dict[str, Range] = {ELEMENT: (0, stmt.width - 1)}
        inner = replace(scope, indices=replace(scope.indices, ranges=scope.indices.ranges.child(each)), depth=scope.depth + 1)
        out, source = (Access(a.buffer, (*a.index[:-1], a.index[-1] + sym(ELEMENT))) for a in (stmt.out, stmt.source))
        self.lines.append("#pragma unroll")
        self._line(scope, f"for (int {var} = 0; {var} < {stmt.width}; ++{var}) {{")
        self._line(inner, line(out, source, inner))
        self._line(scope, "}")

    def _async_copy(self, stmt: AsyncCopy, scope: Scope) -> None:
        """One instruction; where the variant's tensors have no whole vectors, one per element, or plain stores of elements too small for one."""
        dtype = self.places[stmt.out.buffer].dtype
        whole = stmt.width == 1 or all(self._whole_vectors(a, stmt.width, scope) for a in (stmt.out, stmt.source))
        size = dtype.itemsize * (stmt.width if whole else 1)
        valid = () if stmt.valid is TRUE else (scope.indices.text(stmt.valid),)
        if size < ptx.LEAST_ASYNC_COPY:
            zero = literal(0, dtype)

            def store(out: Access, source: Access, inner: Scope) -> str:
                text = self._element(source, inner)
                return f"{self._element(out, inner)} = {f'{scope.indices.text(stmt.valid, Level.OR)} ? {text} : {zero}' if valid else text};"

            self._elements(stmt, scope, store)
            self._line(scope, "__threadfence_block();  // the thread's next asynchronous arrival publishes these, too")
            return
        helper = ptx.async_copy(size, fills=bool(valid))
        if whole:
            self._call(scope, helper, self._address(stmt.out, scope), self._address(stmt.source, scope), *valid)
            return
        self.helpers.add(helper)
        self._elements(
            stmt, scope, lambda out, source, inner: f"{helper.name}({', '.join((self._address(out, inner), self._address(source, inner), *valid))});"
        )

    def _whole_vectors(self, access: Access, width: int, scope: Scope) -> bool:
        """True if the vector at ``access`` is contiguous and aligned in this variant."""
        match self.places[access.buffer].form:
            case Form.DENSE:
                return True
            case Form.ROWS:
                return is_multiple(access.index[-1], width, scope.indices.facts())
            case Form.STRIDED:
                return False

    def _shuffle(self, stmt: Shuffle, scope: Scope) -> None:
        dtype = self.places[stmt.out.buffer].dtype
        text = f"__shfl_xor_sync(0xffffffff, {self._element(stmt.source, scope)}, {stmt.mask})"
        if dtype.itemsize < 4:
            text = f"({c_type(dtype)}){text}"
        self._line(scope, f"{self._element(stmt.out, scope)} = {text};")

    # -- synchronization ------------------------------------------------------------------------------------------------------------

    def _barrier(self, stmt: Barrier, scope: Scope) -> None:
        if stmt.note:
            self._line(scope, f"// {stmt.note}")
        match stmt.scope:
            case BarrierScope.BLOCK:
                self._line(scope, "__syncthreads();")
            case BarrierScope.WARP:
                whole = stmt.threads is const(WARP) or stmt.threads is self._threads()
                if not whole:
                    raise UnsupportedError(
                        what=f"a warp barrier of {stmt.threads} threads", reason="its lanes are not known", help="let whole warps meet, or use an mbarrier"
                    )
                self._line(scope, "__syncwarp();")
            case BarrierScope.NAMED:
                assert stmt.id is not None
                self._call(scope, ptx.NAMED, scope.indices.text(stmt.id), scope.indices.text(stmt.threads))
            case BarrierScope.CLUSTER:
                self._call(scope, cluster.CLUSTER_BARRIER)
            case BarrierScope.GRID:
                self._grid_barrier(stmt, scope)

    def _reached(self, across: tuple[ParallelType, ...]) -> tuple[Expr, tuple[int, ...]]:
        """The ranks of the blocks that an arrival or a copy reaches: the first, and the distances of all from it."""
        shape = constant_shape(self.kernel.cluster)
        assert shape is not None, "the verifier refuses other shapes"
        others = peers((0, 0, 0), shape, across)
        x, y, z = (const(0) if p in across or n == 1 else sym(p.index_name) for p, n in zip(CLUSTER_TYPES, shape, strict=True))
        return x + shape[0] * (y + shape[1] * z), others

    def _mask(self, across: tuple[ParallelType, ...], scope: Scope) -> str:
        """A bit for each of these blocks."""
        first, others = self._reached(across)
        bits = sum(1 << other for other in others)
        return f"{bits:#x}" if first is ZERO else f"{bits:#x} << {scope.indices.text(first, Level.SHIFT)}"

    def _threads(self) -> Expr:
        x, y, z = self.kernel.block
        return x * y * z

    def _launch_registers(self) -> int:
        threads = self._threads()
        return launch_registers((threads.value if isinstance(threads, Const) else MAX_THREADS) * self.kernel.residents)

    def _grid_barrier(self, stmt: Barrier, scope: Scope) -> None:
        assert stmt.counter is not None
        x, y, z = self.kernel.grid
        counter = self.counters[stmt.counter]
        report = ("report", str(self._point(stmt.counter, scope))) if self.debug else ()
        if prove(eq(stmt.threads, x * y * z * self._threads()), scope.indices.facts()):
            self._call(scope, ptx.GRID_BLOCKS_BOUNDED if self.debug else ptx.GRID_BLOCKS, counter, *report)
        else:
            threads = scope.indices.text(stmt.threads)
            self._call(scope, ptx.GRID_THREADS_BOUNDED if self.debug else ptx.GRID_THREADS, counter, threads, *report)

    def _point(self, barrier: str, scope: Scope) -> int:
        self.waits.append(WaitPoint(scope.path, barrier))
        return len(self.waits) - 1

    def _wait(self, stmt: Wait, scope: Scope) -> None:
        arguments = [self._slot(stmt.barrier, scope), scope.indices.text(stmt.parity)]
        if self.debug:
            point = self._point(stmt.barrier.name, scope)
            self._call(scope, ptx.BOUNDED_WAIT, *arguments, "report", str(point), scope.indices.text(stmt.barrier.slot))
        else:
            self._call(scope, ptx.WAIT, *arguments)

    def _counter(self, slot: SemaphoreSlot, scope: Scope) -> str:
        return f"&{self.names[slot.name]}[{row_major(slot.index, self._semaphores[slot.name].shape, scope.indices)}]"

    def _acquire(self, stmt: Acquire, scope: Scope) -> None:
        slot, indices = stmt.semaphore, scope.indices
        arguments = [self._counter(slot, scope), indices.text(self._semaphores[slot.name].count), indices.text(stmt.phases)]
        if self.debug:
            self.waits.append(WaitPoint(scope.path, slot.name, "phase"))
            self._call(scope, semaphores.BOUNDED_ACQUIRE, *arguments, "report", str(len(self.waits) - 1), indices.text(slot.index[-1]))
        else:
            self._call(scope, semaphores.ACQUIRE, *arguments)

    def _cursor(self, stmt: CursorInit, scope: Scope) -> None:
        slot, parity = self.names[f"{stmt.name}.slot"], self.names[f"{stmt.name}.parity"]
        kind = "" if stmt.name in scope.cursors else "int "
        scope.cursors.add(stmt.name)
        self._slots[stmt.name] = stmt.slots
        phase = f", {self.names[f'{stmt.name}.phase']} = 0" if stmt.name in self._phased else ""
        self._line(scope, f"{kind}{slot} = {stmt.slot}, {parity} = {stmt.parity}{phase};")
        scope.indices.ranges = scope.indices.ranges.child(cursor_ranges(stmt))

    def _advance(self, stmt: Advance, scope: Scope) -> None:
        slot, parity = self.names[f"{stmt.cursor}.slot"], self.names[f"{stmt.cursor}.parity"]
        slots = self._slots[stmt.cursor]
        phase = self.names[f"{stmt.cursor}.phase"] if stmt.cursor in self._phased else ""
        if slots == 1:
            moved = f", {phase} += {scope.indices.text(stmt.count)}" if phase else ""
            self._line(scope, f"{parity} ^= {scope.indices.text(stmt.count, Level.BIT_AND)}{'' if stmt.count is ONE else ' & 1'}{moved};")
        elif stmt.count is ONE:
            self._line(scope, f"if (++{slot} == {slots}) {slot} = 0, {parity} ^= 1{f', ++{phase}' if phase else ''};")
        else:
            self._line(scope, f"{slot} += {scope.indices.text(stmt.count)};")
            self._line(scope, f"{parity} ^= {slot} / {slots} & 1, {f'{phase} += {slot} / {slots}, ' if phase else ''}{slot} %= {slots};")

    # -- matrices -------------------------------------------------------------------------------------------------------------------

    def _pack(self, behind: tuple[Stmt, ...], scope: Scope) -> None:
        """Registers of A are written before the fence in front of ``behind``."""
        for fragment in covered(behind):
            if fragment.buffer in self._defined:
                self._call(scope, matrices.WGMMA_FACTOR, self._address(fragment, scope))

    def _matrix(self, d: Descriptor, scope: Scope) -> str:
        self.helpers.add(matrices.MATRIX)
        return f"matrix({self._address(d.base, scope)}, {scope.indices.text(d.offset)}, {matrices.layout_bits(d):#x}ull)"


def operand_dtypes(stmt: Compute) -> tuple[DType, ...]:
    """The dtypes that operands are converted to: a selection's first is bool."""
    if stmt.op.rule is DTypeRule.SELECT:
        return (bool_, *(stmt.dtype for _ in stmt.operands[1:]))
    return tuple(stmt.dtype for _ in stmt.operands)


def _bare(text: str) -> str:
    """``text`` without the parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text


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


def once(make: Callable[[], Facts]) -> Callable[[], Facts]:
    """``make``, called when its result is first needed and never again."""
    known: list[Facts] = []

    def get() -> Facts:
        if not known:
            known.append(make())
        return known[0]

    return get
