"""Rules of a kernel's declarations: names, parameters, launch shape, storage. Each gives the offending name and a message, or ``None``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from taskfuse.ir.dims import circular
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, UpperBound, const, is_multiple, le, prove
from taskfuse.ir.shared_layouts import SWIZZLES
from taskfuse.ir.tables import KEY
from taskfuse.ir.types import PlaceSearch
from taskfuse.kir.clusters import constant_shape
from taskfuse.kir.declarations import Buffer, IntegerParam, ScalarParam, TensorMapParam, TensorParam
from taskfuse.kir.kernel import ONE
from taskfuse.kir.printer import block_threads
from taskfuse.kir.scope import Declarations
from taskfuse.target import MAX_BLOCK, MAX_RESIDENT, MAX_THREADS, TMA_AXES, TMA_BOX, TMA_BYTES, TMA_STEP

Problem = tuple[str, str]
DeclarationRule = Callable[[Declarations], Problem | None]

LAUNCH = "GRID"
NO_NAME = (
    "'{0}' is not a name: a name is letters, digits and _, in parts joined by dots, "
    "no word of the grammar, no index, no number in a tile and no symbol of a cursor"
)


def declared_names(d: Declarations) -> Iterator[str]:
    """Every name that the kernel declares, in the order of the text."""
    kernel = d.kernel
    own = (p for p in kernel.params if not isinstance(p, IntegerParam))  # which an extent declares
    offsets = (o for p in kernel.params if isinstance(p, TensorParam) and (o := p.offsets) is not None)
    for declared in (*own, *offsets, *kernel.extents, *kernel.buffers, *kernel.mbarriers, *kernel.counters, *kernel.semaphores, *kernel.queues):
        yield declared.name


def names_are_names(d: Declarations) -> Problem | None:
    """A name parses, and is not a reserved word or symbol."""
    for name in (d.kernel.name, *declared_names(d)):
        if not d.is_name(name):
            return name, NO_NAME.format(name)
    return None


def names_are_declared_once(d: Declarations) -> Problem | None:
    """All declarations share one namespace."""
    seen: set[str] = set()
    for name in declared_names(d):
        if name in seen:
            return name, f"'{name}' is declared twice"
        seen.add(name)
    return None


def extents_are_possible(d: Declarations) -> Problem | None:
    """Some value satisfies the facts about an extent."""
    for e in d.kernel.extents:
        if not e.is_possible:
            return e.name, f"no value of '{e.name}' is {e.allowed}"
    return None


def bounds_are_of_extents(d: Declarations) -> Problem | None:
    """The bound of an extent depends on others only, not on itself through their bounds."""
    for e in d.kernel.extents:
        name = None if e.bound is None else _foreign((e.bound,), d.extents)
        if name is not None:
            return e.name, f"the bound of '{e.name}' uses '{name}', which is not an extent"
    name = circular(d.kernel.extents)
    return None if name is None else (name, f"the bound of '{name}' depends on '{name}'")


def integers_are_extents(d: Declarations) -> Problem | None:
    """An integer argument determines an extent, and each extent has at most one."""
    seen: set[str] = set()
    for param in d.kernel.params:
        if isinstance(param, IntegerParam):
            if param.name not in d.extents:
                return param.name, f"integer '{param.name}' is not an extent: declare it with DIM"
            if param.name in seen:
                return param.name, f"integer '{param.name}' is given twice"
            seen.add(param.name)
    return None


def params_are_in_order(d: Declarations) -> Problem | None:
    """Arguments in the order of a call, then tensor maps."""
    last = 0
    for param in d.kernel.params:
        match param:
            case ScalarParam() | IntegerParam():
                rank = 0
            case TensorParam():
                rank = int(param.is_output)
            case TensorMapParam():
                rank = 2
        if rank < last:
            return param.name, f"'{param.name}' is out of order: inputs and scalars come first, then outputs, then tensor maps"
        last = rank
    return None


def _foreign(expressions: Iterable[Expr], allowed: frozenset[str]) -> str | None:
    """A symbol that is not allowed."""
    return next((min(e.free - allowed) for e in expressions if not e.free <= allowed), None)


def tensors_have_extents(d: Declarations) -> Problem | None:
    """Shapes of tensor arguments depend on extents only."""
    for param in d.kernel.params:
        if isinstance(param, TensorParam):
            name = _foreign(param.shape, d.extents)
            if name is not None:
                return param.name, f"the shape of '{param.name}' uses '{name}', which is not an extent"
    return None


def lengths_are_of_groups(d: Declarations) -> Problem | None:
    """A table of lengths has at least one group, and is not a table of offsets."""
    for param in d.kernel.params:
        if not isinstance(param, TensorParam) or param.lengths is None:
            continue
        if param.name not in d.tables or param.rises is not None:
            return param.name, f"'{param.name}' has no lengths: it is offsets, or no input of one axis of integers that the kernel leaves as it is"
        if not prove(le(1, param.shape[0]), d.facts):
            return param.name, f"'{param.name}' has {param.shape[0]} lengths: their number may be 0"
        name = _foreign((param.lengths,), d.extents)
        if name is not None:
            return param.name, f"the sum of '{param.name}' uses '{name}', which is not an extent"
    return None


def tables_hold_places(d: Declarations) -> Problem | None:
    """The elements of a table of places are results of a search in another table, whose key is the element's index."""
    for param in d.kernel.params:
        if not isinstance(param, TensorParam) or (param.holds is None and param.search is PlaceSearch.BISECTION):
            continue
        if param.name not in d.tables:
            return param.name, f"'{param.name}' is not searched and holds no places: it is not an input of one axis of integers that the kernel leaves as it is"
        if param.holds is None:
            continue
        if not isinstance(param.holds, UpperBound) or param.holds.sought is not KEY:
            return param.name, f"'{param.name}' is to hold {param.holds}, which is not the place of {KEY} in a table"
        wrong = d.misread(param.holds)
        name = _foreign((param.holds,), d.extents | {KEY.name, param.holds.tensor.name})
        if wrong is not None or name is not None or param.holds.tensor.name == param.name:
            return param.name, f"'{param.name}' is to hold {param.holds}: {wrong or f'{name or param.name!r} is neither an extent nor another table'}"
    return None


def outputs_go_into_inputs(d: Declarations) -> Problem | None:
    """An output without an array is written into an input of its shape and dtype, and no other output is written into this input."""
    taken: set[str] = set()
    for param in d.kernel.outputs:
        if param.into is None:
            continue
        found = d.storage.get(param.into)
        if not isinstance(found, TensorParam) or found.is_output:
            return param.name, f"'{param.name}' is written into '{param.into}', which is not an input"
        if (found.dtype, found.shape) != (param.dtype, param.shape):
            return param.name, f"'{param.name}' is written into '{param.into}', which has another shape or dtype"
        if param.into in taken:
            return param.name, f"'{param.name}' is written into '{param.into}', and so is another output"
        taken.add(param.into)
    return None


def launch_is_known(d: Declarations) -> Problem | None:
    """Grid, block and cluster depend on extents only."""
    name = _foreign((*d.kernel.grid, *d.kernel.block, *d.kernel.cluster), d.extents)
    return None if name is None else (LAUNCH, f"the launch shape uses '{name}', which is not an extent")


def launch_is_possible(d: Declarations) -> Problem | None:
    """No negative extent, at most 1024 threads per block, 64 along z, whole clusters, and 1 to 32 blocks of a multiprocessor."""
    for e in (*d.kernel.grid, *d.kernel.block, *d.kernel.cluster):
        if isinstance(e, Const) and e.value < 0:
            return LAUNCH, f"the launch shape has the extent {e}"
    if not 1 <= d.kernel.residents <= MAX_RESIDENT:
        return LAUNCH, f"{d.kernel.residents} resident blocks of a multiprocessor; 1 to {MAX_RESIDENT} are possible"
    for axis, e, limit in zip("xyz", d.kernel.block, MAX_BLOCK, strict=True):
        if isinstance(e, Const) and e.value > limit:
            return LAUNCH, f"a block has {e} threads along {axis}; at most {limit} are possible"
    threads = block_threads(d.kernel.block)
    if isinstance(threads, Const) and threads.value > MAX_THREADS:
        return LAUNCH, f"a block has {threads} threads; at most {MAX_THREADS} are possible"
    for axis, blocks, size in zip("xyz", d.kernel.grid, d.kernel.cluster, strict=True):
        if isinstance(blocks, Const) and isinstance(size, Const) and size.value > 0 and blocks.value % size.value:
            return LAUNCH, f"{blocks} blocks along {axis} are not a multiple of the {size} of a cluster"
    return None


def tensor_maps_are_possible(d: Declarations) -> Problem | None:
    """cuTensorMapEncodeTiled: rank at most 5, box 1 to 256 per axis, inner bytes a multiple of 16 and at most the swizzle span; steps 1 to 8, none inside."""
    for m in d.maps.values():
        tensor = d.storage.get(m.tensor)
        if not isinstance(tensor, TensorParam):
            return m.name, f"tensor map '{m.name}' is of '{m.tensor}', which is not a tensor argument"
        if len(m.box) != len(tensor.shape):
            return m.name, f"the box of '{m.name}' has {len(m.box)} axes, '{m.tensor}' has {len(tensor.shape)}"
        if not 1 <= len(m.box) <= TMA_AXES:
            return m.name, f"the box of '{m.name}' has {len(m.box)} axes; 1 to {TMA_AXES} are possible"
        if len(m.step) != len(m.box) or not all(1 <= s <= TMA_STEP for s in m.step) or m.step[-1] != 1:
            return m.name, f"the steps of '{m.name}' are {m.steps}: one for each axis, 1 to {TMA_STEP} and 1 along the innermost, are possible"
        wrong = next((n * s for n, s in zip(m.box, m.step, strict=True) if not 1 <= n * s <= TMA_BOX), None)
        if wrong is not None:
            return m.name, f"the box of '{m.name}' has an axis of {wrong} elements; 1 to {TMA_BOX} are possible"
        inner = m.box[-1] * tensor.dtype.itemsize
        if inner % TMA_BYTES:
            return m.name, f"the innermost axis of the box of '{m.name}' has {inner} bytes, not a multiple of {TMA_BYTES}"
        if m.swizzle not in SWIZZLES:
            return m.name, f"a swizzle of {m.swizzle} bytes: 0, 32, 64 and 128 are possible"
        if m.swizzle and inner > m.swizzle:
            return m.name, f"the innermost axis of the box of '{m.name}' has {inner} bytes, more than the swizzle span of {m.swizzle}"
    return None


def buffers_have_known_shapes(d: Declarations) -> Problem | None:
    """Local arrays are registers, of a constant number; other shapes are known at launch."""
    for b in d.kernel.buffers:
        if not MEDIA[b.memory].has_addresses:
            variable = next((e for e in b.shape if not isinstance(e, Const)), None)
            if variable is not None:
                return b.name, f"Local '{b.name}' has the extent {variable}, which is not a constant"
        name = _foreign(b.shape, d.extents)
        if name is not None:
            return b.name, f"the shape of '{b.name}' uses '{name}', which is not an extent"
    return None


def buffers_are_aligned(d: Declarations) -> Problem | None:
    """An alignment is a power of two that the element needs at least."""
    for b in d.kernel.buffers:
        if b.align < b.dtype.itemsize or b.align & (b.align - 1):
            return b.name, f"'{b.name}' has the alignment {b.align}; it must be a power of two, at least the element's {b.dtype.itemsize} bytes"
    return None


def offsets_are_shared_and_aligned(d: Declarations) -> Problem | None:
    """Shared offsets are known at launch and provably multiples of the alignment."""
    for b in d.kernel.buffers:
        if b.offset is None:
            continue
        if not MEDIA[b.memory].is_placed:
            return b.name, f"'{b.name}' has an offset, which only a Shared buffer can have"
        name = _foreign((b.offset,), d.extents)
        if name is not None:
            return b.name, f"the offset of '{b.name}' uses '{name}', which is not an extent"
        if isinstance(b.offset, Const) and b.offset.value < 0:
            return b.name, f"the offset {b.offset} of '{b.name}' is negative"
        if not is_multiple(b.offset, b.align, d.facts):
            return b.name, f"the offset {b.offset} of '{b.name}' is not a multiple of its alignment {b.align}"
    return None


def buffers_by_rank_are_of_the_cluster(d: Declarations) -> Problem | None:
    """The first axis of a buffer by rank has the cluster's number of blocks as extent; the cluster is constant, and no other buffer overlaps the buffer."""
    placed = [b for b in d.kernel.buffers if MEDIA[b.memory].is_placed]
    for b in (b for b in placed if MEDIA[b.memory].is_by_rank):
        shape = constant_shape(d.kernel.cluster)
        if shape is None:
            return b.name, f"'{b.name}' lies in the blocks of a cluster, whose shape is not constant"
        blocks = shape[0] * shape[1] * shape[2]
        if not b.shape or b.shape[0] is not const(blocks):
            found = "no axis" if not b.shape else f"{b.shape[0]} on its first axis"
            return b.name, f"'{b.name}' has {found}, which says the block of a cluster of {blocks}"
        other = next((o for o in placed if o is not b and not _are_apart(d, b, o)), None)
        if other is not None:
            return b.name, f"'{b.name}', which other blocks of the cluster access, may share bytes with '{other.name}'"
    return None


def _are_apart(d: Declarations, a: Buffer, b: Buffer) -> bool:
    """True only if two buffers have no byte in common. One without an offset lies behind those before it."""
    if a.offset is None and b.offset is None:
        return True
    if a.offset is None or b.offset is None:
        return False
    ends = (a.offset + a.bytes_of_block, b.offset), (b.offset + b.bytes_of_block, a.offset)
    return any(prove(le(end, offset), d.facts) for end, offset in ends)


def mbarriers_have_slots(d: Declarations) -> Problem | None:
    """An array of mbarriers is not empty."""
    for m in d.kernel.mbarriers:
        if m.slots < 1:
            return m.name, f"mbarrier '{m.name}' has {m.slots} slots; it needs at least 1"
    return None


def semaphores_are_known(d: Declarations) -> Problem | None:
    """Shape and count of a semaphore are known at launch, and a phase takes at least one release."""
    for s in d.kernel.semaphores:
        name = _foreign((*s.shape, s.count), d.extents)
        if name is not None:
            return s.name, f"semaphore '{s.name}' uses '{name}', which is not an extent"
        if isinstance(s.count, Const) and s.count.value < 1:
            return s.name, f"a phase of semaphore '{s.name}' takes {s.count} releases; it needs at least 1"
    return None


def queues_are_known(d: Declarations) -> Problem | None:
    """The size of a queue is known at launch; the blocks that claim from it are those of a grid along x, without clusters."""
    for q in d.kernel.queues:
        name = _foreign((q.size,), d.extents)
        if name is not None:
            return q.name, f"queue '{q.name}' uses '{name}', which is not an extent"
        if d.kernel.grid[1:] != ONE[1:] or d.kernel.cluster != ONE:
            return q.name, f"queue '{q.name}' is for a grid of blocks along x, without clusters"
    return None


DECLARATION_RULES: tuple[DeclarationRule, ...] = (
    names_are_names,
    names_are_declared_once,
    extents_are_possible,
    bounds_are_of_extents,
    integers_are_extents,
    params_are_in_order,
    tensors_have_extents,
    lengths_are_of_groups,
    tables_hold_places,
    outputs_go_into_inputs,
    launch_is_known,
    launch_is_possible,
    tensor_maps_are_possible,
    buffers_have_known_shapes,
    buffers_are_aligned,
    offsets_are_shared_and_aligned,
    buffers_by_rank_are_of_the_cluster,
    mbarriers_have_slots,
    semaphores_are_known,
    queues_are_known,
)
