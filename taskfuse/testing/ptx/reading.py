"""Kernel IR in one launch: values of expressions, addresses of elements, and the statements that others can observe."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.cuda.agreement import asked_of_a_lane
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, Sym, compile_expr
from taskfuse.kir import accesses
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, Stmt, VectorCopy
from taskfuse.kir.operands import Access, SemaphoreSlot
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Advance, Barrier, BarrierScope, CursorInit
from taskfuse.kir.walk import bodies
from taskfuse.testing.ptx.launch import PtxLaunch


class LaunchReader:
    """A kernel in one launch."""

    def __init__(self, launch: PtxLaunch) -> None:
        self.launch = launch
        self.kernel = launch.kernel
        self._dtypes = {p.name: p.dtype for p in self.kernel.params if isinstance(p, TensorParam)} | {b.name: b.dtype for b in self.kernel.buffers}
        self._tensors = {p.name for p in self.kernel.params if isinstance(p, TensorParam)}
        self._registers = {b.name for b in self.kernel.buffers if not MEDIA[b.memory].has_addresses}
        self._counts = {s.name: s.count for s in self.kernel.semaphores}
        self._places: dict[Access, tuple[int, tuple[tuple[Expr, int], ...]]] = {}
        self._matters: dict[tuple[int, bool], bool] = {}
        self._programs: dict[Expr, tuple[Callable[..., int], tuple[str, ...]]] = {}
        self._asked = asked_of_a_lane(self.kernel)

    def is_asked_of_a_lane(self, branch: If) -> bool:
        """True if the text reads the conditions of a branch from the first lane of each warp."""
        return id(branch) in self._asked

    def value(self, e: Expr, env: dict[str, int]) -> int:
        """The value of an integer expression, or of a condition."""
        if isinstance(e, Sym):
            return env[e.name]
        if isinstance(e, Const):
            return e.value
        found = self._programs.get(e)
        if found is None:
            names = tuple(sorted(e.free))
            found = self._programs[e] = compile_expr(e, names), names
        return int(found[0](*(env[n] for n in found[1])))

    def matters(self, stmt: Stmt, only_lanes: bool) -> bool:
        """Whether a statement, or one inside it, does more than compute in registers, or needs to know its lanes."""
        key = id(stmt), only_lanes
        found = self._matters.get(key)
        if found is None:
            match stmt:
                case For() | Bind() | If():
                    found = any(self.matters(s, only_lanes) for body in bodies(stmt) for s in body)
                case CursorInit() | Advance() | Shuffle():
                    found = True
                case _ if only_lanes:
                    found = isinstance(stmt, Barrier) and stmt.scope is BarrierScope.WARP
                case Compute() | Choose() | VectorCopy() | GatherCopy() | AtomicUpdate():
                    found = any(a.buffer not in self._registers for side in accesses(stmt) for a in side)
                case _:
                    found = True
            self._matters[key] = found
        return found

    def address(self, access: Access, env: dict[str, int]) -> int:
        """The address of an element."""
        found = self._places.get(access)
        if found is None:
            size = self._dtypes[access.buffer].itemsize
            base = self.launch.bases[access.buffer]
            moving: list[tuple[Expr, int]] = []
            for e, stride in zip(access.index, self.launch.strides[access.buffer], strict=True):
                if isinstance(e, Const):
                    base += size * stride * e.value
                else:
                    moving.append((e, size * stride))
            found = self._places[access] = base, tuple(moving)
        place, terms = found
        for e, stride in terms:
            place += self.value(e, env) * stride
        return place

    def size(self, access: Access, width: int = 1) -> int:
        """Bytes of ``width`` elements."""
        return self._dtypes[access.buffer].itemsize * width

    def is_register(self, access: Access) -> bool:
        """Whether an element is in a register."""
        return access.buffer in self._registers

    def is_tensor(self, access: Access) -> bool:
        """Whether an element is of a tensor argument."""
        return access.buffer in self._tensors

    def count(self, semaphore: str) -> Expr:
        """Releases per phase."""
        return self._counts[semaphore]

    def semaphore(self, slot: SemaphoreSlot, env: dict[str, int]) -> int:
        """The address of a counter."""
        strides = self.launch.strides[slot.name]
        return self.launch.bases[slot.name] + 8 * sum(self.value(e, env) * s for e, s in zip(slot.index, strides, strict=True))
