"""Options of random cases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from taskfuse.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64, uint8


@dataclass(frozen=True, slots=True)
class CaseOptions:
    """The distribution of random cases. Percentages say how often the generator tries a feature; 0: never.

    Attributes:
        ops: most calls of ops in a fusion.
        rank: most dimensions of an input.
        sizes: extents to choose from; repeat an extent to make it more likely.
        elements: most elements of a tensor, and of the iteration space of an expression.
        dtypes: dtypes of inputs and casts; the first is the usual one.
        symbolic: share of dimensions that are symbols.
        empty: share of fusions that have a dimension of extent 0.
        may_be_empty: share of symbols that may be 0 though they are not.
        jagged: share of calls that pad ragged rows.
        scatters: share of calls that write at computed indices.
        views, selects, reductions, matmuls, composites, scalars, gathers, scans, positions, einsums: share of calls that are views; pads, cats and
            stacks; reductions; matmuls; softmax-like compositions; pointwise with a run-time scalar; reads at computed indices; running totals;
            argmax and argmin; einsum.
        depth: most levels of groups below the root.
        groups: share of groups that are parallelized.
        unclaimed: share of tasks that are left to task 0.
        block_types: share of parallelized horizontal groups, and of bound axes, on block types.
        clusters: share of fusions in which axes that would be on a block type may be on the cluster type of that dimension, where their extents
            are small constants; of streams, share in which the blocks of a cluster take neighboring tiles.
        block_roles: share of parallelized vertical groups that are on block types.
        tensor_threads: most threads that the axes of one tensor are bound to; each fusion draws one of these values.
        bound_threads: most threads that axes of all tensors are bound to, before groups.
        threads: most threads per block.
        blocks: most blocks.
        transforms: share of tensors (or of propagated references) that are split, merged, reordered, swizzled.
        caches: share of fusions with cache_before and cache_after.
        warps: share of fusions whose tensors are all split by the factors of one block of threads, mostly of whole warps.
        copies: share of fusions whose inputs are copied, and of such copies that are asynchronous (cp.async).
        streams: share of fusions whose tiles are loaded and stored by bulk copies.
        persistent: share of fusions in which every block loops over its share of the work.
        rfactors: share of reductions on which ``rfactor`` is tried.
        memory: share of tensors that get a memory type, and of these, share that get an allocation domain.
        distributed: share of fusions with vertical groups in which one task binds an outer axis to threads that others leave Serial.
        stages: share of tensors that cross tasks that get a circular buffer.
        prefetch: share of tensors within one task that get a circular buffer, which the task itself fills ahead if possible.
        rows: share of inputs that get a copy in Shared memory; most tensors in Shared memory then get an allocation domain.
        nests: share of fusions whose axes are split more than once, mostly by non-divisors.
        rewrites: share of tensors on which ``duplicate``, ``recompute``, chunking and ``scatter`` are tried.
        schedulers: share of fusions scheduled by one of ``tf.schedulers``.
        drawn: share of calls of product schedulers (``tf.schedulers.matmul``, ``products``) that give drawn parameters.
        grouped: share of fusions whose math is a product of groups, whose lengths tables say.
        uneven: share of fusions whose tiles have unequal work: triangles of products, and products of unlike extents side by side.
        tiles: share of products of groups with extents of tensor-core tiles.
        products: share of fusions whose math is a matrix product with prologues and epilogues, at extents of tensor-core tiles.
        tensor_cores: share of fusions with such products that use tensor cores where possible.
        batches, prologues, chains: share of products with a batch axis; of factors that are computed or views; of products that feed another product.
        orders: share of products whose output tiles are enumerated by one work axis.
        pingpong: share of products with ping-pong warpgroups.
        ragged: share of operands whose copies leave elements past the end of the tensor unwritten, or overhang their tiles.
        split_sums: share of products that spread the summed axis over threads or blocks.
        behind, turns: share of cases that lower in which code of a shared loop then runs one trip behind the rest; in which instances of a role take turns.
        claims: share of persistent loops whose items blocks claim.
        stencils: share of fusions whose math reads neighbors: shifted slices, windows, short sums.
        cascades: share of fusions whose math is reductions that read one another.
        problems: share of fusions that one scheduler of the library is for, such as attention.
        shared_tiles: share of fusions whose math is a product of constant extents, and of such products whose tiles blocks share.
        forms: share of tensors on which calls are tried that state the math in another form (``tile_shifts``, ``chunk_product``, ``split_fold``).
        varied: share of places where a rarer call does what a usual one does: layouts by threads, ``Fusion.inline_at``, ``Task.add``, other orders of an axis.
        exact: only ops whose results on small integers are exact in every float dtype used, so that ordinary numbers compare equal.
        functions: every function of the tables of ops, instead of the usual few.
    """

    ops: int = 9
    rank: int = 3
    sizes: tuple[int, ...] = (1, 2, 3, 4, 4, 5, 7, 8, 8, 9, 13)
    elements: int = 400
    dtypes: tuple[DType, ...] = (float32, float32, float32, float64, float16, bfloat16, int32, int64, int8, uint8, bool_)
    symbolic: int = 40
    empty: int = 6
    may_be_empty: int = 25
    views: int = 14
    selects: int = 10
    reductions: int = 14
    matmuls: int = 5
    composites: int = 4
    scalars: int = 4
    gathers: int = 5
    scans: int = 4
    positions: int = 2
    einsums: int = 2
    jagged: int = 0
    scatters: int = 0
    depth: int = 4
    groups: int = 80
    unclaimed: int = 6
    block_types: int = 30
    clusters: int = 20
    block_roles: int = 0
    tensor_threads: tuple[int, ...] = (8, 4, 16)
    bound_threads: int = 128
    threads: int = 512
    blocks: int = 64
    transforms: int = 50
    caches: int = 25
    warps: int = 6
    copies: int = 0
    streams: int = 0
    persistent: int = 0
    rfactors: int = 30
    memory: int = 12
    distributed: int = 50
    stages: int = 85
    prefetch: int = 7
    rows: int = 0
    nests: int = 0
    rewrites: int = 0
    schedulers: int = 0
    drawn: int = 0
    grouped: int = 0
    uneven: int = 0
    tiles: int = 6
    products: int = 0
    tensor_cores: int = 0
    batches: int = 0
    prologues: int = 0
    chains: int = 0
    orders: int = 0
    pingpong: int = 0
    ragged: int = 0
    split_sums: int = 0
    behind: int = 0
    turns: int = 0
    claims: int = 0
    varied: int = 0
    stencils: int = 0
    cascades: int = 0
    problems: int = 0
    shared_tiles: int = 0
    forms: int = 0
    exact: bool = False
    functions: bool = False


USUAL = CaseOptions()

# Sums and products of small integers stay below 2**24, so that float32 and float64 represent them exactly.
EXACT = CaseOptions(ops=6, sizes=(1, 2, 3, 4, 5, 7, 8, 9), dtypes=(float32, float32, float64, int32, int64), composites=0, exact=True)

# Mostly chains whose loops can be shared, so that rings carry tensors between tasks.
PIPELINES = CaseOptions(
    ops=8,
    views=3,
    selects=2,
    reductions=6,
    matmuls=1,
    composites=0,
    unclaimed=2,
    block_types=8,
    transforms=25,
    caches=15,
    memory=4,
    distributed=60,
    stages=100,
    prefetch=20,
    copies=70,
)

# Mostly one role that fills its own rings ahead.
PREFETCH = replace(PIPELINES, prefetch=85, groups=15, caches=60, memory=0, distributed=10)

# Mostly persistent pipelines: a few blocks share the tiles or rows.
PERSISTENT = replace(PIPELINES, persistent=75, transforms=10, empty=10)

# Mostly pipelines whose roles are blocks (vertical groups on block types).
BLOCKS = replace(PIPELINES, block_roles=70, block_types=25, blocks=32)

# Mostly loops in stages: code that runs a trip behind, instances that take turns, items that blocks claim.
STAGED = replace(
    PIPELINES,
    sizes=(4, 2, 3, 32, 8, 2, 5, 1, 4),
    elements=1200,
    matmuls=4,
    persistent=50,
    transforms=15,
    empty=10,
    gathers=2,
    varied=45,
    behind=75,
    turns=75,
    claims=85,
)

# Math in other forms: tiles of neighbors, products whose tiles blocks share, folds in parts.
FORMS = replace(USUAL, stencils=85, forms=75, varied=45, memory=20, transforms=35, schedulers=15)

# Reductions that read one another, mostly in one walk.
CASCADES = replace(
    USUAL,
    cascades=100,
    transforms=8,
    groups=45,
    depth=2,
    memory=3,
    caches=8,
    rfactors=0,
    clusters=4,
    block_types=12,
    distributed=20,
    prefetch=3,
    warps=0,
    schedulers=15,
)

# Bulk copies (TMA) around pointwise math.
STREAMS = CaseOptions(
    ops=5,
    sizes=(16, 8, 32, 40, 5, 17, 3, 64, 9),
    elements=3000,
    dtypes=(float32, float32, float32, bfloat16, float16, int32, int8, float64),
    symbolic=50,
    views=5,
    selects=0,
    reductions=0,
    matmuls=0,
    composites=0,
    streams=100,
    clusters=60,
    gathers=0,
    scans=0,
    positions=0,
    einsums=0,
)

# Mostly reductions across threads, in blocks of whole warps.
WARPS = CaseOptions(
    ops=6,
    sizes=(32, 2, 4, 8, 16, 64, 3, 33),
    elements=4096,
    symbolic=8,
    empty=2,
    views=6,
    selects=3,
    reductions=50,
    matmuls=2,
    block_types=15,
    tensor_threads=(64, 128, 32, 256),
    bound_threads=256,
    transforms=30,
    warps=75,
    memory=6,
)

# Mostly softmax and other reductions of rows of awkward lengths, from copies in Shared memory.
ROWS = CaseOptions(
    ops=4,
    rank=2,
    sizes=(12, 7, 12, 1, 13, 5, 8, 40),
    reductions=25,
    composites=40,
    matmuls=4,
    views=6,
    selects=3,
    clusters=5,
    rows=80,
    nests=75,
)

# Mostly calls that move or repeat the computation of tensors.
REWRITES = replace(USUAL, ops=8, scans=12, selects=20, rewrites=35, transforms=30)

# Matrix products on tensor cores.
PRODUCTS = CaseOptions(
    ops=4,
    elements=128 * 128,
    symbolic=25,
    empty=3,
    block_types=15,
    clusters=12,
    products=100,
    tensor_cores=100,
    batches=15,
    prologues=35,
    chains=10,
    orders=25,
    pingpong=25,
    ragged=20,
    split_sums=8,
    persistent=30,
    threads=1024,
    groups=70,
)

# Problems of special schedulers, with drawn parameters.
PROBLEMS = replace(PRODUCTS, products=0, problems=100, schedulers=100, drawn=75, symbolic=30, blocks=512)

# Products on tensor cores whose tiles blocks share.
SHARED = replace(PRODUCTS, products=0, shared_tiles=100)

# Schedules of the library's schedulers, at extents that need several blocks and tiles.
AUTOMATIC = CaseOptions(
    ops=2,
    sizes=(32, 64, 16, 48, 33, 128),
    elements=20000,
    empty=2,
    gathers=4,
    selects=16,
    scans=12,
    views=24,
    positions=0,
    schedulers=100,
    products=15,
    threads=1024,
    blocks=256,
)

# Products whose work tables, triangles or lists say, in small extents: any schedule. At the extents of the next, a few threads run for most of a campaign.
GROUPED = replace(USUAL, grouped=100, tiles=0, rewrites=40, schedulers=35, exact=True)
# The same in tiles of tensor cores, mostly by schedulers with drawn parameters.
TILES = replace(PRODUCTS, ops=2, elements=160 * 160, grouped=60, uneven=100, tiles=100, schedulers=85, drawn=85, exact=True, empty=0)
# More of everything.
LARGE = CaseOptions(ops=22, depth=6)

# The smallest cases with tasks and groups.
POINTWISE = CaseOptions(
    dtypes=(float32,),
    symbolic=0,
    empty=0,
    views=0,
    selects=0,
    reductions=0,
    matmuls=0,
    composites=0,
    scalars=0,
    transforms=0,
    caches=0,
    warps=0,
    rfactors=0,
    memory=0,
    gathers=0,
    scans=0,
    positions=0,
    einsums=0,
)


class Mix(Enum):
    """The options of the cases of consecutive seeds.

    MIXED: of six, two the usual, one each PIPELINES, PERSISTENT, EXACT and WARPS. WORK: those whose work data decides: GROUPED and TILES in turn.
    CALLS: STAGED, FORMS, CASCADES, PROBLEMS and SHARED in turn.
    EVERYTHING: all others but FUNCTIONS, JAGGED, SCATTER, GROUPED, TILES and those of CALLS in turn. SMALL: all of these whose kernels can be
    small, in turn, with few ops, threads and elements.
    """

    MIXED = "mixed"
    USUAL = "usual"
    PIPELINES = "pipelines"
    PREFETCH = "prefetch"
    PERSISTENT = "persistent"
    BLOCKS = "blocks"
    STREAMS = "streams"
    EXACT = "exact"
    WARPS = "warps"
    PRODUCTS = "products"
    ROWS = "rows"
    REWRITES = "rewrites"
    LARGE = "large"
    POINTWISE = "pointwise"
    AUTOMATIC = "automatic"
    SMALL = "small"
    EVERYTHING = "everything"
    FUNCTIONS = "functions"
    JAGGED = "jagged"
    SCATTER = "scatter"
    GROUPED = "grouped"
    TILES = "tiles"
    WORK = "work"
    STAGED = "staged"
    FORMS = "forms"
    CASCADES = "cascades"
    PROBLEMS = "problems"
    SHARED = "shared"
    CALLS = "calls"

    def options(self, seed: int) -> CaseOptions:
        """The options of a seed."""
        found = OPTIONS[self.kind(seed)]
        return found if self is not Mix.SMALL else replace(found, ops=min(found.ops, 4), elements=min(found.elements, 128), threads=64, blocks=12)

    def kind(self, seed: int) -> Mix:
        """The component mix to which a seed belongs."""
        kinds = TURNS.get(self, (self,))
        return kinds[seed % len(kinds)]


OPTIONS = {
    Mix.USUAL: USUAL,
    Mix.PIPELINES: PIPELINES,
    Mix.PREFETCH: PREFETCH,
    Mix.PERSISTENT: PERSISTENT,
    Mix.BLOCKS: BLOCKS,
    Mix.STREAMS: STREAMS,
    Mix.EXACT: EXACT,
    Mix.WARPS: WARPS,
    Mix.PRODUCTS: PRODUCTS,
    Mix.ROWS: ROWS,
    Mix.REWRITES: REWRITES,
    Mix.LARGE: LARGE,
    Mix.POINTWISE: POINTWISE,
    Mix.AUTOMATIC: AUTOMATIC,
    Mix.FUNCTIONS: replace(USUAL, functions=True),
    Mix.JAGGED: replace(USUAL, jagged=25, reductions=25),
    Mix.SCATTER: replace(USUAL, scatters=25, gathers=10),
    Mix.GROUPED: GROUPED,
    Mix.TILES: TILES,
    Mix.STAGED: STAGED,
    Mix.FORMS: FORMS,
    Mix.CASCADES: CASCADES,
    Mix.PROBLEMS: PROBLEMS,
    Mix.SHARED: SHARED,
}
CALLS = (Mix.STAGED, Mix.FORMS, Mix.CASCADES, Mix.PROBLEMS, Mix.SHARED)
TURNS = {
    Mix.MIXED: (Mix.USUAL, Mix.PIPELINES, Mix.PERSISTENT, Mix.USUAL, Mix.EXACT, Mix.WARPS),
    Mix.SMALL: (Mix.USUAL, Mix.PIPELINES, Mix.PREFETCH, Mix.PERSISTENT, Mix.BLOCKS, Mix.ROWS, Mix.REWRITES, Mix.EXACT),
    Mix.EVERYTHING: tuple(mix for mix in OPTIONS if mix not in (Mix.FUNCTIONS, Mix.JAGGED, Mix.SCATTER, Mix.GROUPED, Mix.TILES, *CALLS)),
    Mix.WORK: (Mix.GROUPED, Mix.TILES),
    Mix.CALLS: CALLS,
}
