"""Names at a place of a kernel: the declarations, and the symbols that expressions may use there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from taskfuse.dtypes import DType
from taskfuse.ir.dims import circular, facts_of
from taskfuse.ir.scalar import SYMBOL_NAME, Expr, Facts, eq, integers_of, lookups_of, prove
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, INDEX_TYPES, THREAD_TYPES, MemoryType
from taskfuse.kir.declarations import Buffer, IntegerParam, ScalarParam, Semaphore, TensorMapParam, TensorParam
from taskfuse.kir.forms import RESERVED
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Cursor, CursorInit
from taskfuse.kir.walk import walk
from taskfuse.kir.witness import Definition

INDEX_SYMBOLS = frozenset(p.index_name for p in INDEX_TYPES)
_INDEX_WORDS = frozenset(name.partition(".")[0] for name in INDEX_SYMBOLS)
NAMES = 1 << 12
"""The most names of which it is remembered whether they parse."""
_OF_TILE = re.compile(r"tile\.[0-9]+")
"""The symbols that number the elements of a tile in what a statement holds."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """The declared names of a kernel, by kind.

    Attributes:
        storage: buffers and tensors that an access may name.
        mbarriers: number of slots.
        extents: the symbols that are known at launch.
        cursors: slots of the ring of each cursor, as first initialized.
        facts: facts about the extents.
        definitions: definitions of tensors, by name.
        tables: tensors whose elements may occur in expressions: rows of integers that the kernel does not write, and offsets of lengths.
    """

    kernel: Kernel
    storage: Mapping[str, TensorParam | Buffer]
    scalars: Mapping[str, ScalarParam]
    maps: Mapping[str, TensorMapParam]
    mbarriers: Mapping[str, int]
    counters: frozenset[str]
    semaphores: Mapping[str, Semaphore]
    extents: frozenset[str]
    cursors: Mapping[str, int]
    facts: Facts
    definitions: Mapping[str, Definition]
    tables: Mapping[str, TensorParam]

    @staticmethod
    def of(kernel: Kernel) -> Declarations:
        """The declarations of ``kernel``."""
        storage: dict[str, TensorParam | Buffer] = {}
        scalars: dict[str, ScalarParam] = {}
        maps: dict[str, TensorMapParam] = {}
        for param in kernel.params:
            match param:
                case TensorParam():
                    storage[param.name] = param
                case ScalarParam():
                    scalars[param.name] = param
                case TensorMapParam():
                    maps[param.name] = param
                case IntegerParam():
                    pass
        storage |= {b.name: b for b in kernel.buffers}
        extents = frozenset(e.name for e in kernel.extents)
        dims = kernel.extents if circular(kernel.extents) is None else [replace(e, bound=None) for e in kernel.extents]  # which a rule refuses
        facts = facts_of(dims)
        slots = {m.name: m.slots for m in kernel.mbarriers}
        counters = frozenset(c.name for c in kernel.counters)
        semaphores = {s.name: s for s in kernel.semaphores}
        cursors: dict[str, int] = {}
        for s in walk(kernel):
            if isinstance(s, CursorInit):
                cursors.setdefault(s.name, s.slots)
        definitions = {d.tensor: d for d in kernel.definitions}
        tables = {p.name: p for p in kernel.tables}
        return Declarations(kernel, storage, scalars, maps, slots, counters, semaphores, extents, cursors, facts, definitions, tables)

    def misread(self, e: Expr) -> str | None:
        """The fault of an expression's elements of tensors, or of a tensor that it uses as an integer; ``None``: it has none."""
        lookups = lookups_of(e)
        if not lookups and e.free.isdisjoint(self.tables):
            return None
        for found in lookups:
            table = self.tables.get(found.tensor.name)
            if table is None:
                return f"'{found.tensor}' is not an input of one axis of integers that the kernel leaves as it is, whose elements may stand in expressions"
            if table.shape[0] is not found.size and not prove(eq(table.shape[0], found.size), self.facts):
                return f"'{table.name}' has {table.shape[0]} elements, not {found.size}"
        wrong = self.tables.keys() & integers_of(e) - self.extents
        return f"'{min(wrong)}' is a tensor, not an integer" if wrong else None

    def memory(self, name: str) -> MemoryType | None:
        """The memory of the named storage; ``None`` if no storage has this name."""
        match self.storage.get(name):
            case Buffer(memory=memory):
                return memory
            case TensorParam():
                return MemoryType.Global
            case None:
                return None

    def dtype(self, name: str) -> DType | None:
        """Element type of the named storage."""
        found = self.storage.get(name)
        return None if found is None else found.dtype

    def shape(self, name: str) -> tuple[Expr, ...]:
        """Extents of the named storage, which must be declared."""
        return self.storage[name].shape

    def is_name(self, name: str) -> bool:
        """True for a valid name in a kernel.

        A valid name parses back: it has the form of a symbol, is not a word of the grammar, does not begin like an index
        (``threadIdx.``), numbers no elements of a tile (``tile.0``), and is not a symbol of a cursor.
        """
        if not _parses(name):
            return False
        found = Cursor.of(name)
        return found is None or found[0].name not in self.cursors

    def is_declared(self, name: str) -> bool:
        """True for the name of a parameter, an extent, a buffer, an mbarrier array, a counter or a semaphore."""
        data = name in self.storage or name in self.scalars or name in self.maps or name in self.extents or name in self.tables
        return data or name in self.mbarriers or name in self.counters or name in self.semaphores


@lru_cache(NAMES)
def _parses(name: str) -> bool:
    """True for the form of a symbol that is no word of the grammar, no index, and numbers no elements of a tile."""
    is_symbol = SYMBOL_NAME.fullmatch(name) is not None and _OF_TILE.fullmatch(name) is None
    return is_symbol and name not in RESERVED and name.partition(".")[0] not in _INDEX_WORDS


@dataclass(frozen=True, slots=True)
class Scope:
    """The symbols at a place in the body.

    Attributes:
        symbols: all symbols that an expression may use here.
        constants: variables of the enclosing unrolled loops.
        cursors: the initialized ring cursors.
    """

    declarations: Declarations
    symbols: frozenset[str]
    constants: frozenset[str] = frozenset()
    cursors: frozenset[str] = frozenset()

    @staticmethod
    def outermost(declarations: Declarations) -> Scope:
        """The scope of the first statement."""
        return Scope(declarations, declarations.extents | INDEX_SYMBOLS | declarations.tables.keys())

    def with_loop(self, var: str, *, unroll: bool) -> Scope:
        """The scope inside a loop over ``var``."""
        return Scope(self.declarations, self.symbols | {var}, self.constants | {var} if unroll else self.constants, self.cursors)

    def with_cursor(self, name: str) -> Scope:
        """The scope after a cursor is initialized."""
        return Scope(self.declarations, self.symbols | frozenset(Cursor(name).symbols), self.constants, self.cursors | {name})


def kernel_facts(kernel: Kernel) -> Facts:
    """Facts that hold everywhere in a kernel: ranges of its extents and of block and thread indices."""
    facts = facts_of(kernel.extents)
    for types, shape in ((BLOCK_TYPES, kernel.grid), (CLUSTER_TYPES, kernel.cluster), (THREAD_TYPES, kernel.block)):
        for ptype, extent in zip(types, shape, strict=True):
            facts = facts.with_range(ptype.index_name, 0, extent - 1)
    return facts


def loop_facts(kernel: Kernel) -> Facts:
    """Facts that hold wherever a variable has a value: ranges of extents, hardware indices, and loop variables, if only one loop has the name."""
    facts = kernel_facts(kernel)
    loops: dict[str, list[For]] = {}
    for s in walk(kernel):
        if isinstance(s, For):
            loops.setdefault(s.var, []).append(s)
    for name, found in loops.items():
        ranges = {(s.start, s.stop) for s in found}
        if len(ranges) == 1:
            facts = facts.with_range(name, found[0].start, found[0].stop - 1)
    return facts
