"""Figures of the cost models: what parts of kernels cost besides their bytes and multiply-adds.

A :class:`~taskfuse.target.Target` has one object of each class; the defaults are figures of an H200 or an H100, as the attributes say.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProductFigures:
    """Costs of kernels of matrix products besides their bytes and multiply-adds: figures of :mod:`taskfuse.schedulers.cost` and of ``simt_gemm``.

    Those of one role's loop are the least squares of 321 times of given tiles (:mod:`taskfuse.schedulers.cost`), and of 340 more: 44 sizes, the first tiles
    of each, of which the model takes the fastest but for 0.3% in the mean, but for ``step_cycles``, which is older; those of ping-pong and clusters are of
    ``benchmarks/results/gemm_schedules.txt``. All of an H200.

    Attributes:
        tensor_share: of the rate of the tensor cores, what a long loop of wgmma gets.
        in_step: times the bandwidth of the second-level cache, where no block has a second tile.
        outside_factor: what rows outside cost of that bandwidth besides, relative to others, if all tiles have as large a part of them.
        step_norm: of the norm by which the times of the tensor cores and of the cache add up.
        start_us: replaces ``launch_us`` for one block per multiprocessor, barriers and first load included.
        warpgroup_us: added for each warpgroup that multiplies beyond the first.
        outside_cycles: of the copy engine for a row of 128 bytes beyond the end of the tensor: 4096 x 4096 with 1, 8 and 16 rows, on an H100.
        several_bytes: per cycle, of Shared memory, that the tensor cores read and copies write together, where a tile has several contractions:
            ``benchmarks/fused_products.py`` on an H100, tiles of 64 columns beside those of 128 and 192.
        step_cycles: the least time of a step: its barriers, and products that follow each other. 384 x 128 x 3584 takes 12 us with rings of 8 and of 22
            slots alike, so that it is not the latency of loads.
        span_cycles: of a step for each further 128 bytes along k: some 28 of each of the four instructions that multiply them, in tiles of 64 x 16 to
            64 x 64 with steps of two and of four spans.
        slot_us: from the wait for an empty slot to its bytes from DRAM.
        slots_used: slots of a ring that are full or being emptied meanwhile: both of 1, 16 and 64 rows of 4096 x 14336 with rings of 73 to 221 KB in 64 blocks.
        epilogue_cycles: to drain the last wgmma, and to begin the next tile.
        piece_cycles: for a warpgroup to convert, stage and store 64 x 64 elements; those of several warpgroups overlap.
        narrow_factor: times that, of pieces of 16 columns and fewer.
        pingpong_cycles: for a turn to pass from one warpgroup to the next: from 4096^3, 4096 x 7168 x 2048 and 4096 x 4096 x 1024 beside shared tiles.
        rows_factor: time of stores of staged rows by threads beyond that of bulk stores, relative to these: 32768 rows in 8 groups by 7168 x 2048, beside one
            product of all rows, in tiles of 128 x 256 on an H100.
        elements_factor: the same of rows of an odd number of elements, which threads store one by one, 32 neighbors at a time; assumed, not measured.
        columns_factor: bytes of rows, of which 128 are contiguous at a time, relative to bytes of columns that are contiguous themselves, where groups of tiles
            of ragged rows are chosen: these in groups of 16 took up to 1.2 times as long as in groups of 8 in tiles of 128 x 128, and as long to 5% longer
            in tiles of 128 x 256, on an H100.
        runs_per_us: runs of contiguous bytes, 128 or more, that all blocks together load where they do not keep step: the same, and 4 groups by 4096 x 7168, in
            tiles of 128 x 128 (43,000 and 46,000). Blocks that keep step got 63,000.
        claim_cycles: for a block to claim a tile: a round trip to the second-level cache, which copies ahead hide in part. Assumed, not measured.
        promotion_cycles: for a warpgroup to wait for the products of a block and to begin the next, besides its sums; half of it again for each 64 rows
            beyond the first. Warpgroups that share a tile were
            measured to add at the same time, not in turns.
        block_load_cycles: for a warpgroup to load a scale that belongs to the columns of a piece of 64 rows. Both from ``benchmarks/results/fp8.txt``: the
            model differs from the 28 times of its tiles without clusters by 7% (root mean square), at most by 14%.
        direct_factor: time of stores from registers, relative to staged ones.
        scattered_factor: time of stores of single elements from registers, relative to staged ones: 96 products of 197 x 197 x 64.
        side_latency_cycles: from the loads of an epilogue's further inputs to their values.
        side_cycles: for a warpgroup to load 64 x 64 elements of it. Both from 4096 x 2816 x 1024 with a residual and with a bias, on an H100.
        work_cycles: for one instruction of an epilogue, as it is counted: the same with x * sigmoid(x).
        guarded_factor: times these waits and instructions where conditions stand around them, so that one waits for the other: the same in turns.
        copy_latency_cycles: from a load of the threads that copy factors to its value: 8 x 64 x 64 x 1500 and 96 x 197 x 64 x 197, on an H100.
        cluster_us: for the blocks of a cluster to be launched together, and to wait for each other: 2048^3 with and without.
        row_part_cycles, column_part_cycles: for a warpgroup to add up 64 x 64 elements along their rows, or along their columns, which takes a shuffle for
            each; assumed, not measured.
        finish_us: a grid barrier, and the sums of the partial results after it; assumed, not measured.
        access_cycles: of the load and store units for one access of each warp of a role that copies; assumed, not measured.
        fragment_cycles: from the arrival of a slot to the first product of a factor that is computed in registers, besides the instructions for its elements;
            assumed, not measured.
        converted_instructions: for an element of 16 bits on its way through registers: to float32 and back, and its part of a load.
        busy_share: of the cycles of a tile, those in which its block issues; in the rest other blocks of the multiprocessor do. Assumed, not measured.
        residents_factor: times the time of several such blocks; assumed, so that they are chosen for a clear gain only.
        simt_shares: rows and columns of the result that a thread has, and the share of the multiply-adds that it issues then, at 32 of k in a tile: the rest
            are loads of factors. With one to 62 blocks on a multiprocessor, which makes little difference; with 16 of k it is 5 to 10% less. 8 x 8 spill
            where two blocks share a multiprocessor (0.83), and have 0.77 where one is alone.
        double_share: of the rate of the tensor cores, what products of float64 get; assumed, not measured.
        mma_gemm_share: the same for all others by ``mma.sync``, where there is no ``wgmma``; assumed, not measured.
        mma_step_cycles: to wait for a tile of such a product, where one block alone is on a multiprocessor; assumed, not measured.
        simt_together: times these where several blocks share a multiprocessor, on an H100: 512 x 1024 x 4096 in two and in four chunks of k.
    """

    tensor_share: float = 0.99
    in_step: float = 1.2
    outside_factor: float = 6.25
    step_norm: float = 7
    outside_cycles: float = 9.5
    several_bytes: float = 152
    start_us: float = 1.7
    warpgroup_us: float = 0.55
    step_cycles: float = 270
    span_cycles: float = 110
    slot_us: float = 1.4
    slots_used: float = 1.75
    epilogue_cycles: float = 320
    piece_cycles: float = 540
    narrow_factor: float = 1.4
    pingpong_cycles: float = 1000
    rows_factor: float = 1.8
    elements_factor: float = 3
    columns_factor: int = 3
    runs_per_us: float = 43_000
    claim_cycles: float = 700
    promotion_cycles: float = 240
    block_load_cycles: float = 25
    direct_factor: float = 2.5
    scattered_factor: float = 8
    side_latency_cycles: float = 1000
    side_cycles: float = 350
    work_cycles: float = 1.2
    guarded_factor: float = 4
    copy_latency_cycles: float = 480
    cluster_us: float = 0.7
    row_part_cycles: float = 100
    column_part_cycles: float = 250
    finish_us: float = 5.0
    access_cycles: float = 8
    fragment_cycles: float = 150
    converted_instructions: float = 2.5
    busy_share: float = 0.35
    residents_factor: float = 1.15
    double_share: float = 0.85
    mma_gemm_share: float = 0.7
    mma_step_cycles: float = 200
    simt_together: float = 1.1
    simt_shares: tuple[tuple[tuple[int, int], float], ...] = (
        ((2, 2), 0.34),
        ((2, 4), 0.41),
        ((4, 2), 0.48),
        ((4, 4), 0.63),
        ((4, 8), 0.72),
        ((8, 4), 0.76),
    )


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Costs of kernels of rows besides their bytes: figures of :mod:`taskfuse.schedulers.row_cost`.

    They fit 90 schedules of softmax, layer and RMS norms, measured on an H200 in bfloat16 at three sizes (``benchmarks/norms.py --sweep`` measures them
    again); those of blocks that share a row are estimates.

    Attributes:
        load_cycles, store_cycles: waits for a load while the memory is busy, and for stores to leave.
        shuffle_cycles, barrier_cycles, grid_cycles: of a step of a butterfly, at a barrier of a block, and at one of the grid.
        slot_cycles, block_slot_cycles: to combine the partial result of one more warp, and of one more block.
        arrival_cycles: of one more block at a barrier of the grid.
        issue_cycles, function_cycles: from one instruction of a thread to its next, and further cycles of a function of an element.
        instructions, copy_instructions, function_instructions: per element: of a phase; to have it from memory again; of a function.
        overhead_instructions: per thread and phase.
        others: the share of the other times that does not overlap with the greatest.
        warp_vectors: the most vectors of a row that one warp walks by itself: longer rows were 3 to 10 % slower by warps than by blocks
            (``benchmarks/online.py``, on an H100).
    """

    load_cycles: float = 600
    store_cycles: float = 100
    shuffle_cycles: float = 20
    barrier_cycles: float = 30
    grid_cycles: float = 4000
    slot_cycles: float = 30
    block_slot_cycles: float = 80
    arrival_cycles: float = 4
    issue_cycles: float = 2
    function_cycles: float = 30
    instructions: float = 3
    copy_instructions: float = 3
    function_instructions: float = 4
    overhead_instructions: float = 20
    others: float = 0.18
    warp_vectors: int = 1024


@dataclass(frozen=True, slots=True)
class ElementFigures:
    """Elements that a thread of an elementwise kernel takes: figures of :mod:`taskfuse.schedulers.pointwise`.

    Attributes:
        flat: where all axes are one: exp of 8192 x 4095 float32 takes 66.7 us with 4, 68.1 with 8, 68.8 with 16, on an H200.
        apart: side by side, where loads are not vectors: by counted times of stencils of 9 and 7 taps in bfloat16, 16 and 179 us; with vectors of 8, 55 and
            460, on an H100.
    """

    flat: int = 4
    apart: int = 2


@dataclass(frozen=True, slots=True)
class TorchFigures:
    """Rates that torch's own kernels reach: figures of :mod:`taskfuse.torch.worth` and :mod:`taskfuse.torch.padding`.

    Attributes:
        products: of the rate of the tensor cores, what products reach: 0.77 to 0.89 for extents from 1024 to 8192, on an H200
            (``benchmarks/results/matmul.txt``).
        flash: the same for attention by FlashAttention-2: 355 TFLOP/s of 4 x 16 x 4096 x 128 on an H200; of causal attention 292, where half of the products
            count.
        cudnn: the same for cuDNN's attention: 676 TFLOP/s, of causal attention 574.
        flash_gradients, cudnn_gradients: the same for the gradients, with five products: 300 and 530 TFLOP/s, which others report of an H100 (Shah et al.,
            "FlashAttention-3", arXiv:2407.08608, figure 6); ``benchmarks/attention_backward.py`` measures them.
        unaligned_factor: times the time of a product of 16-bit floats whose rows are not multiples of 16 bytes: 6.6 ms against 0.87 for
            [8192, 768] x [768, 50257], 4.4 and 4.2 against 1.3 for its gradients, on an H100.
    """

    products: float = 0.85
    flash: float = 0.39
    cudnn: float = 0.74
    flash_gradients: float = 0.33
    cudnn_gradients: float = 0.58
    unaligned_factor: float = 5.0


@dataclass(frozen=True, slots=True)
class AttentionFigures:
    """Costs of kernels of attention: figures of :mod:`taskfuse.schedulers.attention_cost`.

    Fitted to ``benchmarks/attention.py`` with heads of 64 and 128, 512 to 16384 keys and chunks of 96 to 256, on an H200 (driver 580, CUDA 13.0).

    Attributes:
        exposed: the part of the softmax of 128 keys that no product hides, with one warpgroup, two, and three; of longer chunks more in proportion.
        chunk_cycles: of a chunk of keys besides, with as many.
        block_cycles: of a block, besides its chunks: until it has keys, and to store its results.
        turn_cycles: of rows that a block takes in turn, with one stage of queries, and with two.
        claimed_cycles: of rows that a block claims, as walks are unequally long: fitted to one case, 4 x 16 heads of 128 and 4096 causal keys.
        masked_cycles: of a chunk of a walk that ends at a diagonal: with ``diagonal`` such that ten times of three causal cases are ranked as measured,
            chunks of 128 to 208 keys.
        diagonal: what the square of a block's rows on a diagonal costs besides, where masks are evaluated and warpgroups wait for one another, in the time of
            its products.
        shared_chunk: the part of the time of a chunk that it takes where two blocks load it once for both: of 4 x 8 heads of 256 and 4096 keys.
        piece_cycles: fewer for 64 rows and columns of results that the copy engine stores. Not measured: instead of 64 stores of warps, each of 16 bytes of 8
            rows, there are 16 ``stmatrix`` and two barriers.
    """

    exposed: tuple[float, float, float] = (0.6, 0.2, 0.1)
    chunk_cycles: tuple[float, float, float] = (590, 650, 960)
    block_cycles: float = 11200
    turn_cycles: tuple[float, float] = (7900, 4400)
    claimed_cycles: float = 3150
    masked_cycles: float = 320
    diagonal: float = 1.3
    shared_chunk: float = 0.95
    piece_cycles: float = 300


@dataclass(frozen=True, slots=True)
class AssumedFigures:
    """Costs that were assumed, not measured: they rank the schedules of one fusion, and schedulers.

    Attributes:
        load_shares: the share of the bandwidth of DRAM that loads of 16, 8, 4, 2 bytes and of one reach.
        serial_us: of a step of a serial reduction or scan, so that schedulers without one are preferred.
        grid_us: of a barrier of the grid.
        update_us: for one update of an element after another.
        level_us: of the barriers of one level of totals of a scan.
        division_instructions, trip_instructions: of a division by a constant, and of a trip of a loop.
        mma_share: of the rate of ``wgmma``, what ``mma.sync`` gets where there is both.
        load_cycles: from a load of Global memory to its value, if no other load is in flight: between the latencies of L2 and DRAM.
        chain_cycles: from an instruction of a thread to one that needs its result.
        barrier_cycles, grid_cycles: of a barrier of a block, and of one of the grid, as counted times have them.
    """

    load_shares: tuple[tuple[int, float], ...] = ((16, 1.0), (8, 0.97), (4, 0.9), (2, 0.6), (1, 0.35))
    serial_us: float = 0.02
    grid_us: float = 2.0
    update_us: float = 0.002
    level_us: float = 0.5
    division_instructions: int = 5
    trip_instructions: int = 3
    mma_share: float = 0.6
    load_cycles: int = 500
    chain_cycles: int = 4
    barrier_cycles: int = 40
    grid_cycles: int = 2000

    def load_share(self, size: int) -> float:
        """That of loads of ``size`` bytes."""
        return dict(self.load_shares)[size]
