"""Kernel IR to CUDA C++: declarations, signature, body.

The text is made for one variant (:class:`~taskfuse.kir.variant.Variant`); it includes no header and defines
only the helpers that it calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from taskfuse.cuda import copy_instructions
from taskfuse.cuda import instructions as ptx
from taskfuse.cuda.c_types import c_type
from taskfuse.cuda.exponents import with_fast_exponents
from taskfuse.cuda.expressions import LENGTHS, Divisors, Indices, once
from taskfuse.cuda.kernel_interface import accessed_by_threads
from taskfuse.cuda.loop_versions import parted
from taskfuse.cuda.peeling import peeled
from taskfuse.cuda.ranges import INT32, dense, kernel_ranges
from taskfuse.cuda.rounded import float_registers
from taskfuse.cuda.saturated import with_saturating_conversions
from taskfuse.cuda.signature import (
    Argument,
    DivisorArgument,
    IntegerArgument,
    PointerArgument,
    ReportArgument,
    ScalarArgument,
    Source,
    StrideArgument,
    TensorMapArgument,
    WorkspaceArgument,
)
from taskfuse.cuda.statements import StatementPrinter
from taskfuse.cuda.storage import NamedStorage, elements, packed_in
from taskfuse.cuda.synchronization import Synchronization
from taskfuse.cuda.text import Helper, closure
from taskfuse.cuda.writer import INDENT, Identifiers, TextScope, Writer
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.offsets import lengths_name
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, const, element, is_multiple, sym
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES, MemoryType, PlaceSearch
from taskfuse.kir import Kernel, accesses, walk
from taskfuse.kir.clusters import ranks
from taskfuse.kir.declarations import IntegerParam, ScalarParam, TensorMapParam, TensorParam
from taskfuse.kir.nodes import AtomicUpdate, TmaLoad, TmaStore
from taskfuse.kir.products import Wgmma
from taskfuse.kir.scope import kernel_facts
from taskfuse.kir.shared_memory import shared_layout, summed_up
from taskfuse.kir.synchronization import Acquire, Barrier, BarrierScope, SetMaxNReg
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.target import MAX_THREADS, WARP

COUNTER_BYTES = 8
_HARDWARE = {p.index_name: f"{p.index_name[:-5]}Idx.{p.index_name[-1]}" for p in (*BLOCK_TYPES, *THREAD_TYPES)}


class _Used(Mapping[str, str]):
    """Identifiers of symbols; remembers which were asked for."""

    def __init__(self, names: Identifiers) -> None:
        self._names = names
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def emit(
    kernel: Kernel, variant: Variant | None = None, fast_math: bool = False, debug: bool = False, chaos: int | None = None, locations: bool = False
) -> Source:
    """CUDA C++ of a verified kernel.

    Args:
        variant: the assumptions about the arguments; by default :func:`dense`.
        fast_math: approximate functions, fused multiplications and additions.
        debug: waits are bounded and report (``taskfuse.cuda.debug``).
        chaos: seed of random delays of every warp around its synchronization; ``None``: no delays.
        locations: comments with the user's line of each statement.

    Raises:
        UnsupportedError: a construct with no CUDA form.
    """
    found = _Emitter(kernel_parts(kernel, fast_math), dense(kernel) if variant is None else variant, fast_math, debug, chaos, locations).source()
    return replace(found, kernel=kernel)


def kernel_parts(kernel: Kernel, fast_math: bool) -> Kernel:
    """A kernel of the same meaning whose loops are printed as they stand."""
    kernel = with_saturating_conversions(kernel)
    return peeled(with_fast_exponents(kernel)) if fast_math else parted(peeled(kernel))


def restricted(kernel: Kernel) -> frozenset[str]:
    """The tensors whose pointers may be ``__restrict__``: inputs that the kernel does not write, and results that one statement stores and none reads.

    NVRTC takes the promise to be about all threads. Of an element that another thread stores, under this name or another one (an input's, a tensor map's), it
    moves a load in front of the barrier after which the element is there, or takes it for a load of a constant (``ld.global.nc``). Of an element that another
    thread stores or updates, too, it may move a store behind the barrier that orders the two.
    """
    maps = {p.name: p.tensor for p in kernel.params if isinstance(p, TensorMapParam)}
    stores: Counter[str] = Counter()
    others: set[str] = set(kernel.in_place) | set(kernel.in_place.values())
    results = {p.name for p in kernel.outputs}
    for stmt in walk(kernel):
        writes, reads = accesses(stmt)
        stores.update({a.buffer for a in writes})
        others |= {a.buffer for a in reads} & results
        match stmt:
            case TmaStore(map=name):
                others.add(maps[name])
            case TmaLoad(map=name):
                others |= {maps[name]} & results
            case AtomicUpdate(out=out):
                others.add(out.buffer)
            case _:
                pass
    return frozenset(p.name for p in kernel.params if isinstance(p, TensorParam) and p.name not in others and stores[p.name] <= 1)


class _Emitter:
    def __init__(self, kernel: Kernel, variant: Variant, fast_math: bool, debug: bool, chaos: int | None, locations: bool) -> None:
        self.kernel = kernel
        self.variant = variant
        self.fast_math = fast_math
        self.debug = debug
        self.chaos = chaos
        self.locations = locations
        self.names = Identifiers()
        self.function = self.names.function(kernel.name)
        self.used = _Used(self.names)
        self.helpers: set[Helper] = {ptx.STREAM_WAIT}
        self.ranges = kernel_ranges(kernel)
        self.places: dict[str, NamedStorage] = {}
        uniform = frozenset(e.name for e in kernel.extents)
        self.divisors = Divisors(uniform, self.names.reserve)
        wide = frozenset(n for n in uniform if not self._narrow(sym(n))) if variant.wide else frozenset[str]()
        ballots = frozenset(p.name for p in kernel.tables if p.search is PlaceSearch.BALLOT)
        facts = once(lambda: kernel_facts(kernel))
        self.indices = Indices(self.used, self.ranges, facts, variant.wide, wide, self.divisors, self.helpers, self.places, ballots)
        self.wide_symbols = wide
        self.cooperative = any(isinstance(s, Acquire) or (isinstance(s, Barrier) and s.scope is BarrierScope.GRID) for s in walk(kernel))

    def _narrow(self, e: Expr) -> bool:
        lo, hi = self.ranges.of(e)
        return INT32[0] <= lo and hi <= INT32[1]

    def source(self) -> Source:
        """The text and its signature."""
        kernel = self.kernel
        places = self.places
        arguments, parameters = self._tensors()
        layout = shared_layout(kernel)
        head: list[str] = []
        used = [b.name for b in kernel.buffers if MEDIA[b.memory].is_placed] + [m.name for m in kernel.mbarriers] + [q.name for q in kernel.queues]
        if used or layout.offsets:
            head.append("extern __shared__ __align__(1024) unsigned char shared[];")
        wide = float_registers(kernel) - packed_in(kernel)
        for b in kernel.buffers:
            identifier = self.names[b.name]
            own = ranks(kernel.cluster, ())[0] if MEDIA[b.memory].is_by_rank else None
            places[b.name] = NamedStorage(identifier, b.dtype, b.memory, b.shape, own_rank=own, holds_floats=b.name in wide)
            if MEDIA[b.memory].is_placed:
                head.append(self._pointer(identifier, c_type(b.dtype), layout.buffers[b.name], f"[{', '.join(map(str, b.extents_of_block))}]"))
            elif not MEDIA[b.memory].is_private:
                size = const(b.dtype.itemsize) * elements(b.shape)
                arguments.append(WorkspaceArgument(b.name, size, zero=False))
                parameters.append(f"{c_type(b.dtype)}* {identifier}")
        mbarriers = {m.name: self.names[m.name] for m in kernel.mbarriers}
        for m in kernel.mbarriers:
            head.append(self._pointer(mbarriers[m.name], "unsigned long long", layout.mbarriers[m.name], f"mbarriers[{m.slots}]"))
        counters: dict[str, str] = {}
        if kernel.counters:
            identifier = self.names.reserve("grid_counters")
            arguments.append(WorkspaceArgument(identifier, const(COUNTER_BYTES * len(kernel.counters)), zero=True))
            parameters.append(f"unsigned long long* {identifier}")
            counters = {c.name: f"&{identifier}[{i}]" for i, c in enumerate(kernel.counters)}
        queues: dict[str, tuple[str, str]] = {}
        for s in kernel.semaphores:
            arguments.append(WorkspaceArgument(s.name, const(COUNTER_BYTES) * elements(s.shape), zero=True))
            parameters.append(f"unsigned long long* {self.names[s.name]}")
        for q in kernel.queues:
            claims, counter = self.names[q.name], self.names.reserve(f"{q.name}_counter")
            queues[q.name] = claims, counter
            head.append(self._pointer(claims, "int", layout.queues[q.name], f"claims[{q.size} + 1]"))
            head += self._unclaimed(claims, q.size)
            arguments.append(WorkspaceArgument(counter, const(COUNTER_BYTES), zero=True))
            parameters.append(f"unsigned long long* {counter}")
        if kernel.queues:
            head.append("__syncthreads();  // nobody has claimed anything")
        sums = [line for p in summed_up(kernel) for line in self._sums(p, layout.offsets[p.name], head)]
        if self.debug:
            arguments.append(ReportArgument())
            parameters.append("Report* report")
            self.helpers.add(ptx.REPORT)

        writer = Writer(kernel, self.names, places, mbarriers, self.helpers, queues)
        synchronization = Synchronization(writer, counters, self.debug)
        statements = StatementPrinter(writer, synchronization, self.fast_math, self.divisors.uniform, self.chaos, self.locations)
        statements.body(kernel.body, TextScope(self.indices, (), 1, set()))
        integers, texts = self._integers()
        arguments += integers
        parameters += texts
        head = self._indices() + head
        helpers = closure(self.helpers)
        return Source(
            kernel=kernel,
            variant=self.variant,
            name=self.function,
            text=self._text(helpers, parameters, head, sums + writer.lines),
            arguments=tuple(arguments),
            shared_bytes=layout.bytes,
            cooperative=self.cooperative,
            arch=max([80, *(h.arch for h in helpers)] + [90] * (kernel.cluster != (ONE, ONE, ONE))),
            feature_arch=any(isinstance(s, Wgmma | SetMaxNReg) for s in walk(kernel)),
            debug=self.debug,
            waits=tuple(synchronization.waits),
        )

    def _tensors(self) -> tuple[list[Argument], list[str]]:
        """The parameters that stand for what users pass; tensors get their places.

        A tensor is ``__restrict__`` if a thread alone decides what it finds there (:func:`restricted`).
        """
        arguments: list[Argument] = []
        parameters: list[str] = []
        accessed = accessed_by_threads(self.kernel)
        forms = iter(self.variant.forms)
        apart = restricted(self.kernel)
        for p in self.kernel.params:
            match p:
                case TensorParam():
                    form = next(forms)
                    identifier = self.names[p.name]
                    strides: tuple[str, ...] | None = None
                    if form is not ArgumentLayout.DENSE:
                        last = len(p.shape) - 1
                        strides = tuple(
                            "" if form is ArgumentLayout.ROWS and d == last else self.names.reserve(f"{identifier}_stride{d}") for d in range(len(p.shape))
                        )
                    self.places[p.name] = NamedStorage(identifier, p.dtype, MemoryType.Global, p.shape, strides, form)
                    if p.name not in accessed:
                        continue
                    arguments.append(PointerArgument(p.name))
                    only = " __restrict__" if p.name in apart else ""
                    parameters.append(f"{'' if p.is_output else 'const '}{c_type(p.dtype)}*{only} {identifier}")
                    for d, stride in enumerate(strides or ()):
                        if stride:
                            arguments.append(StrideArgument(p.name, d, self.variant.wide))
                            parameters.append(f"{'long long' if self.variant.wide else 'int'} {stride}")
                case ScalarParam():
                    arguments.append(ScalarArgument(p.name, p.dtype))
                    parameters.append(f"{c_type(p.dtype)} {self.names[p.name]}")
                case TensorMapParam():
                    arguments.append(TensorMapArgument(p.name))
                    parameters.append(f"const __grid_constant__ TensorMap {self.names[p.name]}")
                    self.helpers.add(copy_instructions.TENSOR_MAP)
                case IntegerParam():  # one that the text uses is among the integers
                    pass
        return arguments, parameters

    def _integers(self) -> tuple[list[Argument], list[str]]:
        """Extents and divisors that the text uses."""
        arguments: list[Argument] = []
        parameters: list[str] = []
        for name in (e.name for e in self.kernel.extents):
            if name in self.used.names:
                wide = name in self.wide_symbols
                arguments.append(IntegerArgument(name, wide))
                parameters.append(f"{'long long' if wide else 'int'} {self.names[name]}")
        for value, identifier in self.divisors.names.items():
            arguments.append(DivisorArgument(identifier, value))
            parameters.append(f"Divisor {identifier}")
        return arguments, parameters

    def _pointer(self, identifier: str, ctype: str, offset: Expr, what: str) -> str:
        return f"{ctype}* const {identifier} = reinterpret_cast<{ctype}*>(shared + {self.indices.text(offset)});  // {what}"

    def _unclaimed(self, claims: str, size: Expr) -> list[str]:
        """The threads of a block say that nobody has claimed anything."""
        x, y, z = self.kernel.block
        thread = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
        return [f"for (int k = (int)({thread}); k <= {self.indices.text(size)}; k += {self.indices.text(x * y * z)}) {claims}[k] = -1;"]

    def _sums(self, offsets: TensorParam, offset: Expr, head: list[str]) -> list[str]:
        """The threads of a block make offsets of groups from their lengths; declares them at the end of ``head``."""
        of = lengths_name(offsets.name)
        assert offsets.rises is not None
        assert of is not None
        name = self.names[offsets.name]
        self.places[offsets.name] = NamedStorage(name, offsets.dtype, MemoryType.Shared, offsets.shape)
        head.append(self._pointer(name, c_type(offsets.dtype), offset, f"[{offsets.shape[0]}], the offsets of groups"))
        lengths, groups, total = sym(of), offsets.shape[0] - ONE, offsets.rises[1]
        length = self.indices.function(groups, lambda k: element(lengths, k, groups, ZERO, total))
        self.helpers.add(LENGTHS)
        return [f"{INDENT}{LENGTHS.name}({name}, {self.indices.text(groups)}, {length}, {self.indices.text(total)});", f"{INDENT}__syncthreads();"]

    def _indices(self) -> list[str]:
        """The hardware indices that the text uses, as signed integers: differences of them may be negative.

        NVVM knows no bound of them: it would guard each element of a row of which only the last ones may be past its end, and correct each quotient for
        negative dividends. It is told the bounds that made no kernel longer. Where it knows both, it makes unions of bits of sums, and no longer finds the
        constant part of an address.
        """
        lines: list[str] = []
        agreed = self._agreed_indices()
        extents = dict(zip((p.index_name for p in THREAD_TYPES), self.kernel.block, strict=True))
        for name, hardware in _HARDWARE.items():
            if name in self.used.names:
                is_agreed = name in agreed
                text = f"__shfl_sync(0xffffffff, (int){hardware}, 0)" if is_agreed else hardware
                lines.append(f"const int {self.names[name]} = {text};")
                if name not in extents:
                    lines.append(f"__builtin_assume({self.names[name]} >= 0);")
                elif not is_agreed and isinstance(extent := extents[name], Const):
                    lines.append(f"__builtin_assume({self.names[name]} < {extent});")
        for d in "xyz":
            if f"clusterIdx.{d}" in self.used.names:
                helper = ptx.cluster_index(d)
                self.helpers.add(helper)
                lines.append(f"const int {self.names[f'clusterIdx.{d}']} = {helper.name}();")
        return lines

    def _agreed_indices(self) -> list[str]:
        """The thread indices that a warp has in common, in a kernel whose matrix descriptors depend on them. Where one lane tells the others, ptxas knows, too,
        and computes descriptors in uniform registers, where ``wgmma`` needs them."""
        if not any(isinstance(s, Wgmma) for s in walk(self.kernel)):
            return []
        facts, (x, y, _) = kernel_facts(self.kernel), self.kernel.block
        return [p.index_name for p, inner in zip(THREAD_TYPES[1:], (x, x * y), strict=True) if is_multiple(inner, WARP, facts)]

    def _text(self, helpers: tuple[Helper, ...], parameters: list[str], head: list[str], body: list[str]) -> str:
        x, y, z = self.kernel.block
        threads = x * y * z
        most = threads.value if isinstance(threads, Const) else min(self.ranges.of(threads)[1], MAX_THREADS)
        bounds = f"{max(most, 1)}, {self.kernel.residents}"  # without a number ptxas may spill to let more blocks onto a multiprocessor
        grid, block = (f"({', '.join(map(str, d))})" for d in (self.kernel.grid, self.kernel.block))
        lines = [h.text for h in helpers]
        lines.append(f"// grid {grid}, block {block}")
        lines.append(f'extern "C" __global__ void __launch_bounds__({bounds})')
        lines.append(f"{self.function}({', '.join(parameters)}) {{")
        lines += [INDENT + line for line in head]
        lines.append(f"{INDENT}{ptx.STREAM_WAIT.name}();")
        lines += body
        lines.append("}")
        return "\n\n".join(lines[: len(helpers)]) + ("\n\n" if helpers else "") + "\n".join(lines[len(helpers) :]) + "\n"
