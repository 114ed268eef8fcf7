"""Kernel IR compiled to a list of instructions, once per kernel.

An instruction is a Python function of the agent that executes it. Control flow is the program counter; an If or a loop at which threads
may diverge ends in a *join*. If a body neither waits nor advances cursors, an agent executes it for one part of its lanes after another (a detour);
otherwise the agent splits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.values import Values
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Acquire, Advance, Barrier, BarrierScope, Cursor, CursorInit, SetMaxNReg, Wait, WaitGroup
from taskfuse.kir.walk import all_accesses, phased, walk
from taskfuse.sim import collectives, computation, copies, matrices, queues, semaphores, synchronization, tma, wgmma
from taskfuse.sim.agent import Agent, Detour, Instruction, Signal
from taskfuse.sim.compiled_kernel import SimulatedKernel
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import CompiledExpr, groups
from taskfuse.sim.names import Meanings

_CACHED_KERNELS = 64
MEANINGS: Meanings = {
    kind: meaning for module in (computation, copies, matrices, queues, semaphores, synchronization, tma, wgmma) for kind, meaning in module.MEANINGS.items()
}
"""The statements that become one instruction. Those that wait, diverge or advance cursors take several, and are compiled here."""


class Label:
    """A place in the code, possibly not yet known."""

    __slots__ = ("pc",)

    def __init__(self) -> None:
        self.pc = -1


class _KernelCompiler:
    """One kernel in progress."""

    def __init__(self, compiled: SimulatedKernel) -> None:
        self.compiled = compiled
        self._phased = phased(tuple(walk(compiled.kernel)))
        self._stmt: Stmt | None = None
        self._label: str | None = None
        self._path: list[tuple[CompiledExpr, bool]] = []
        self._cursors: frozenset[str] = frozenset()

    def run(self) -> SimulatedKernel:
        """The compiled kernel."""
        for stmt in self.compiled.kernel.body:
            self._compile(stmt)
        self._emit(synchronization.leave, point=True)
        return self.compiled

    # -- building blocks --------------------------------------------------------------------------------------------------------------

    def _emit(self, instruction: Instruction, point: bool = False, guard: Callable[[Agent], bool] | None = None) -> int:
        return self.compiled.emit(instruction, self._stmt, self._label, point, guard)

    def _compile(self, stmt: Stmt) -> None:
        outer, self._stmt = self._stmt, stmt
        match stmt:
            case For(queue=str() as queue):
                self._claims(stmt, queue)
            case For():
                self._for(stmt)
            case Bind():
                for inner in stmt.body:
                    self._compile(inner)
            case If():
                self._if(stmt)
            case Barrier():
                self._barrier(stmt)
            case Wait():
                exprs = (stmt.barrier.slot, stmt.parity)
                self._agreeing(exprs, lambda: synchronization.wait(self.compiled, stmt), point=True, guard=synchronization.may_pass(self.compiled, stmt))
            case Acquire():
                exprs = (*stmt.semaphore.index, stmt.phases)
                self._agreeing(exprs, lambda: semaphores.acquire(self.compiled, stmt), point=True, guard=semaphores.may_acquire(self.compiled, stmt))
            case CursorInit():
                self._cursors = self._cursors.union(Cursor(stmt.name).symbols)
                self._emit(_cursor_init(stmt, stmt.name in self._phased))
            case Advance():
                phased = stmt.cursor in self._phased
                self._agreeing((stmt.count,), lambda: _advance(stmt, self.compiled.expr(stmt.count), self._slots(stmt.cursor), phased))
            case WaitGroup():
                self._emit(queues.wait_group(stmt), point=True, guard=queues.may_pass_wait_group(stmt))
            case Shuffle():
                self._shuffle(stmt)
            case SetMaxNReg():
                pass
            case _:
                meaning = MEANINGS[type(stmt)]
                self._emit(meaning.instruction(self.compiled, stmt), meaning.is_point or self.compiled.is_point(*all_accesses(stmt)))
        self._stmt = outer

    # -- control flow -----------------------------------------------------------------------------------------------------------------

    def _agreeing(self, exprs: tuple[Expr, ...], make: Callable[[], Instruction], point: bool = False, guard: Callable[[Agent], bool] | None = None) -> None:
        """An instruction before which threads part until they agree on the values of ``exprs``."""
        codes = tuple(c for c in map(self.compiled.expr, exprs) if c.per_lane)
        if not codes:
            self._emit(make(), point, guard)
            return
        join = Label()

        def part(agent: Agent) -> Signal | None:
            parts = groups(codes, agent.lanes, agent.env, agent.block.machine.table)
            return None if len(parts) == 1 else agent.host.split(agent, [(lanes, agent.pc) for lanes in parts], join.pc)

        self._emit(part)
        self._emit(make(), point, guard)
        self._join(join, frozenset())

    def _join(self, target: Label, dead: frozenset[str]) -> None:
        """Where threads that diverged reconverge. ``dead``: symbols that nobody needs any more, which must not keep agents apart."""

        def join(agent: Agent) -> Signal | None:
            here = agent.pc - 1
            while agent.detours and agent.detours[-1].join == here:
                detour = agent.detours[-1]
                if detour.rest:
                    agent.lanes, agent.pc = detour.rest.pop()
                    return None
                agent.detours.pop()
                agent.lanes = detour.everyone
            for name in dead:
                agent.env.pop(name, None)
            return agent.host.reconverge(agent, here) if agent.joins else None

        target.pc = self._emit(join)

    def _if(self, stmt: If) -> None:
        end = Label()
        inline = not any(_waits(s) for b in stmt.branches for s in walk(b.body))
        depth, around = len(self._path), self._cursors
        label = self._label
        for branch in stmt.branches:
            self._label = label if branch.label is None else branch.label
            self._branch(branch, end, inline)
        self._label = label
        del self._path[depth:]
        self._join(end, self._cursors - around)
        self._cursors = around

    def _branch(self, branch: Branch, end: Label, inline: bool) -> None:
        cond = self.compiled.expr(branch.cond)
        body, otherwise = Label(), Label()

        def test(agent: Agent) -> Signal | None:
            yes, no = cond.split(agent.lanes, agent.env, agent.block.machine.table)
            if no is None:
                return None
            if yes is None:
                agent.pc = otherwise.pc
                return None
            if inline:
                agent.detours.append(Detour(end.pc, agent.lanes, [(no, otherwise.pc)]))
                agent.lanes = yes
                return None
            return agent.host.split(agent, [(yes, body.pc), (no, otherwise.pc)], end.pc)

        def skip(agent: Agent) -> None:
            agent.pc = end.pc

        body.pc = self._emit(test) + 1
        self._path.append((cond, True))
        stmt = self._stmt
        for inner in branch.body:
            self._compile(inner)
        self._stmt = stmt
        self._path[-1] = (cond, False)
        self._emit(skip)
        otherwise.pc = len(self.compiled.code)

    def _for(self, stmt: For) -> None:
        start, stop, step = bounds = self.compiled.expr(stmt.start), self.compiled.expr(stmt.stop), self.compiled.expr(stmt.step)
        var, hidden = stmt.var, f"{stmt.var}.bounds"
        diverges = tuple(c for c in bounds if c.per_lane)
        inline = not any(_waits(s) for s in walk(stmt.body))
        enter, body, end = Label(), Label(), Label()

        def part(agent: Agent) -> Signal | None:
            parts = [(lanes, enter.pc) for lanes in groups(diverges, agent.lanes, agent.env, agent.block.machine.table)]
            if len(parts) == 1:
                return None
            if inline:
                agent.detours.append(Detour(end.pc, agent.lanes, parts[:0:-1]))
                agent.lanes = parts[0][0]
                return None
            return agent.host.split(agent, parts, end.pc)

        def begin(agent: Agent) -> None:
            lanes, env = agent.lanes, agent.env
            first, last, by = start.value(lanes, env), stop.value(lanes, env), step.value(lanes, env)
            if by <= 0:
                raise Fault(f"loop over '{var}' with step {by}")
            if first < last:
                env[var] = first
                env[hidden] = (last, by)
            else:
                agent.pc = end.pc

        def advance(agent: Agent) -> None:
            env = agent.env
            last, by = env[hidden]
            value = env[var] + by
            if value < last:
                env[var] = value
                agent.pc = body.pc

        if diverges:
            self._emit(part)
        enter.pc = self._emit(begin)
        body.pc = len(self.compiled.code)
        for inner in stmt.body:
            self._compile(inner)
        self._emit(advance)
        self._join(end, frozenset((var, hidden)))

    def _claims(self, stmt: For, queue: str) -> None:
        """A loop over the numbers that a block claims: which they are is decided when its first thread asks."""
        var, position, size = stmt.var, f"{stmt.var}.claims", self.compiled.expr(stmt.stop)
        claim, end = Label(), Label()

        def begin(agent: Agent) -> None:
            agent.env[position] = 0

        def ask(agent: Agent) -> Signal:
            env, block = agent.env, agent.block
            number = block.machine.claimed(queue, block.number, env[position])
            if number < size.value(agent.lanes, env):
                env[var] = number
            else:
                agent.pc = end.pc
            return Signal.POINT

        def again(agent: Agent) -> None:
            agent.env[position] += 1
            agent.pc = claim.pc

        self._emit(begin)
        claim.pc = self._emit(ask, point=True)
        for inner in stmt.body:
            self._compile(inner)
        self._emit(again)
        self._join(end, frozenset((var, position)))

    def _barrier(self, stmt: Barrier) -> None:
        match stmt.scope:
            case BarrierScope.BLOCK:
                self._emit(synchronization.block_barrier(self.compiled, stmt), point=True)
            case BarrierScope.WARP:
                self._emit(synchronization.warp_barrier(tuple(self._path)), point=True)
            case BarrierScope.NAMED:
                exprs = (const(0) if stmt.id is None else stmt.id, stmt.threads)
                self._agreeing(exprs, lambda: synchronization.named_barrier(self.compiled.expr(exprs[0]), self.compiled.expr(exprs[1])), point=True)
            case BarrierScope.CLUSTER:
                self._emit(synchronization.cluster_barrier(self.compiled, stmt), point=True)
            case BarrierScope.GRID:
                self._agreeing((stmt.threads,), lambda: synchronization.grid_barrier(str(stmt.counter), self.compiled.expr(stmt.threads)), point=True)

    def _shuffle(self, stmt: Shuffle) -> None:
        """Warps of which an agent has only a part wait for the rest apart from its other warps."""
        join = Label()

        def part(agent: Agent) -> Signal | None:
            parts = collectives.by_warps(agent.lanes, agent.block.machine.table)
            return None if len(parts) == 1 else agent.host.split(agent, [(lanes, agent.pc) for lanes in parts], join.pc)

        self._emit(part)
        self._emit(collectives.shuffle(self.compiled, stmt, tuple(self._path)), point=True)
        self._join(join, frozenset())

    def _slots(self, cursor: str) -> int:
        found = next((s.slots for s in walk(self.compiled.kernel) if isinstance(s, CursorInit) and s.name == cursor), None)
        assert found is not None, "the verifier refuses a cursor without an initialization"
        return found


def _waits(stmt: Stmt) -> bool:
    """True for statements before or after which threads of one agent may be at different places or in different states."""
    return isinstance(stmt, Barrier | Wait | Acquire | WaitGroup | CursorInit | Advance | Shuffle)


def _cursor_init(stmt: CursorInit, phased: bool) -> Instruction:
    """``phased``: some statement uses its phase."""
    (slot_name, parity_name, phase_name), slot, parity = Cursor(stmt.name).symbols, stmt.slot, stmt.parity

    def init(agent: Agent) -> None:
        agent.env[slot_name] = slot
        agent.env[parity_name] = parity
        if phased:
            agent.env[phase_name] = 0

    return init


def _advance(stmt: Advance, count: CompiledExpr, slots: int, phased: bool) -> Instruction:
    slot_name, parity_name, phase_name = Cursor(stmt.cursor).symbols

    def advance(agent: Agent) -> None:
        env = agent.env
        wraps, env[slot_name] = divmod(env[slot_name] + count.value(agent.lanes, env), slots)
        env[parity_name] ^= wraps & 1
        if phased:
            env[phase_name] += wraps

    return advance


kept_kernels: OrderedDict[tuple[int, str], SimulatedKernel] = OrderedDict()
"""The kernels that were compiled last, by identity and value mode."""


def compiled(kernel: Kernel, values: Values) -> SimulatedKernel:
    """The compiled kernel, from a cache of the last ones. Keys are object identities; the cache keeps the kernels alive."""
    key = (id(kernel), values.name)
    found = kept_kernels.get(key)
    if found is None:
        found = kept_kernels[key] = _KernelCompiler(SimulatedKernel(kernel, values)).run()
        if len(kept_kernels) > _CACHED_KERNELS:
            kept_kernels.popitem(last=False)
    else:
        kept_kernels.move_to_end(key)
    return found
