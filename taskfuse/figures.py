"""Figures of the cost models: the costs of parts of kernels beyond their bytes and multiply-adds.

A :class:`~taskfuse.target.Target` has one object of each class; the defaults are figures of an H200 or an H100, as each attribute says. A figure in cycles is
in
clock cycles of a multiprocessor; a *share* is relative to a peak rate, and a *factor* multiplies a time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProductFigures:
    """Costs of matrix-product kernels beyond bytes and multiply-adds, for :mod:`taskfuse.schedulers.cost` and ``simt_gemm``.

    The figures of one role's loop are least-squares fits, on an H200, to 321 times of given tiles (:mod:`taskfuse.schedulers.cost`) and to 340 times of the
    first
    tiles of each of 44 sizes; the tile that the model chooses is within 0.3% of the fastest in the mean. ``step_cycles`` is older than these fits. Figures of
    ping-pong and clusters come from ``benchmarks/results/gemm_schedules.txt``, on an H200.

    Attributes:
        tensor_share: share of the tensor cores' rate that a long loop of wgmma reaches.
        in_step: factor of the L2 cache's bandwidth if no block has a second tile.
        outside_factor: further cost of the L2 cache per row past the end of the tensor, relative to a row inside it, if all tiles have equal parts of such
            rows.
        step_norm: exponent of the norm that combines the times of the tensor cores and of the L2 cache.
        start_us: time of the launch, barriers and first load with one block per multiprocessor; replaces ``launch_us``.
        warpgroup_us: time added for each multiplying warpgroup beyond the first.
        outside_cycles: cycles of the copy engine per row of 128 bytes past the end of the tensor; from 4096 x 4096 with 1, 8 and 16 rows, on an H100.
        straddle_factor: further cost of the L2 cache per row of the swizzle that is no line of it, relative to one that is. From 30 tiles of 512 and 2048 terms
            with n and with k contiguous, on an H200 (``benchmarks/results/contiguous_columns.txt``): the ratio of both times differs from that of the model by
            5% (root mean square), at most by 20%, without this by 8 and 28%. 0.7 fits them slightly better, and padded groups of 7168 columns worse.
        several_bytes: bytes of Shared memory per cycle that tensor cores and copies access together if a tile has several contractions; from
            ``benchmarks/fused_products.py`` on an H100, tiles of 64 columns beside tiles of 128 and 192.
        step_cycles: least cycles of a step: its barriers, and the latency between dependent products. 384 x 128 x 3584 takes 12 us with rings of 8 and of 22
            slots
            alike, so the cause is not the latency of loads.
        shared_step_cycles: the same where warpgroups share a tile: 128 x 64 and 128 x 80 take 389 to 411 cycles, with products of 260 and 330; 128 x 96, with
            products of 388, 384 to 410. From 1152 x 896 x 2176 with relu and gelu of a product and a bias, and ``benchmarks/results/matmul.txt``, on an H200.
        unfilled_tiles: rows, columns and warpgroups of tiles that may have columns which do not fill a slot, where n is contiguous: most others took as long as
            the next multiple of 64, or longer. 132 tiles of 64 x 160 and 2048 terms take 12.3 us, 64 x 192 10.7, 128 x 112 14.6 and 128 x 128 13.4, 128 x 144
            19.6, 128 x 160 16.7 and 128 x 192 19.0 on an H200 (``benchmarks/results/contiguous_columns.txt``).
        layered_rows: rows of tiles in a group of layers of padded groups. In tiles of 128 x 256, 6 groups of up to 1024 rows by 4096 x 7168 take 201, 191 and
            261 us in groups of 1, 2 and 4 rows of tiles where a fifth of the rows count, and 589, 570 and 561 where nine tenths do (H200).
        load_cycles: latency from the release of a slot to the arrival of its bytes from the L2 cache, besides what the cache takes for these. A slot is loaded
            while the others are multiplied, but for those of batches in flight.
        held_share: of the time of a step of several contractions, that for which its slot is held longer than that of one.
        slots_norm: exponent of the norm that combines the times of the tensor cores and of a slot. The three from 4096 x 2816 x 1024, one product and two with
            one factor in common, in 30 tiles with rings of 2 to 6 slots, on an H200 (``benchmarks/results/rings.txt``).
        span_cycles: cycles of a step for each further 128 bytes along k: about 28 for each of the four instructions that multiply them, in tiles of 64 x 16 to
            64 x 64 with steps of two and of four spans.
        slot_us: latency from the wait for an empty slot to the arrival of its bytes from DRAM.
        slots_used: slots of a ring that are full or being emptied during ``slot_us``; both figures from 1, 16 and 64 rows of 4096 x 14336 with rings of 73 to
            221 KB in 64 blocks.
        epilogue_cycles: cycles to drain the last wgmma and to begin the next tile.
        piece_cycles: cycles of a warpgroup to convert, stage and store 64 x 64 elements; warpgroups overlap.
        narrow_factor: factor of ``piece_cycles`` for pieces of at most 16 columns.
        pingpong_cycles: cycles to pass the turn from one warpgroup to the next; from 4096^3, 4096 x 7168 x 2048 and 4096 x 4096 x 1024 beside shared tiles.
        pingpong_work: share of the cycles of an epilogue's instructions that the products of another warpgroup do not hide; from gelu of a product and a
            bias at four sizes with 6 to 12 steps (``benchmarks/results/product_figures.txt``), 0.50 to 0.60, on an H200.
        rows_factor: time of staged rows stored by threads beyond that of bulk stores, relative to bulk stores; from 32768 rows in 8 groups by 7168 x 2048,
            beside
            one product of all rows, in tiles of 128 x 256 on an H100.
        elements_factor: the same for rows with an odd number of elements, which threads store one by one, 32 neighbors at a time. Assumed, not measured.
        columns_factor: cost of a byte of rows, of which 128 are contiguous, relative to a byte of contiguous columns, in the choice of groups of ragged tiles.
            Contiguous columns in groups of 16 tiles took up to 1.2 times as long as in groups of 8 in tiles of 128 x 128, and up to 1.05 times as long in tiles
                of
            128 x 256, on an H100.
        runs_per_us: contiguous runs of at least 128 bytes that all blocks together load per us if they do not keep step; from the same sizes and 4 groups by
            4096 x 7168, in tiles of 128 x 128 (43,000 and 46,000). Blocks that keep step reach 63,000.
        claim_cycles: cycles of a block to claim a tile: a round trip to the L2 cache, partly hidden by copies ahead. Assumed, not measured.
        promotion_cycles: cycles of a warpgroup to wait for the products of a scaled block and to begin the next, without the sums; half as much again for each
            64
            rows beyond the first. Warpgroups that share a tile were measured to add concurrently, not in turns.
        block_load_cycles: cycles of a warpgroup to load a scale of the columns of a piece of 64 rows. Both figures from ``benchmarks/results/fp8.txt``: the
            model
            differs from the 28 times of its tiles without clusters by 7% (root mean square), at most by 14%.
        direct_factor: time of stores from registers, relative to staged stores.
        scattered_factor: time of stores of single elements from registers, relative to staged stores; from 96 products of 197 x 197 x 64.
        side_latency_cycles: latency of the loads of an epilogue's further inputs.
        side_cycles: cycles of a warpgroup to load 64 x 64 elements of such an input. Both figures from 4096 x 2816 x 1024 with a residual and with a bias, on
            an H100.
        work_cycles: cycles per counted instruction of an epilogue; from the same size with x * sigmoid(x).
        shared_work: factor of ``work_cycles`` for each warpgroup that shares a tile, if that is more than 1: their warps share the units of special functions.
            From relu and gelu of a product and a bias at 24 sizes (``benchmarks/results/product_figures.txt``), on an H200.
        narrow_side_cycles: cycles to load an input of an epilogue that lacks rows or columns, once per tile; a third for each further piece or pair of
            elements if they are loaded one by one. From gelu of 3712 x 2176 x 512 and a bias in ping-pong, and from biases in pieces of 16 columns, on an H200.
        guarded_factor: factor of these latencies and instructions under conditions, which serialize them; from the same sizes.
        copy_latency_cycles: latency of a load by threads that copy factors; from 8 x 64 x 64 x 1500 and 96 x 197 x 64 x 197, on an H100.
        cluster_us: time to launch the blocks of a cluster together, and for them to wait for each other; from 2048^3 with and without clusters.
        row_part_cycles, column_part_cycles: cycles of a warpgroup to sum 64 x 64 elements along their rows, and along their columns, with a shuffle for each
            element.
            Assumed, not measured.
        finish_us: time of a grid barrier and of the sum of partial results after it. Assumed, not measured.
        access_cycles: cycles per access of each thread of a copying role; fitted to 4096 x 4096 x (4092, 4090, 4089) in bfloat16 on an H200, with accesses of
            8, 4 and 2 bytes (``benchmarks/results/product_figures.txt``).
        computing_warpgroups: the most that share a tile whose factor is computed of elements of other widths than are multiplied: with three, tiles of 192 x
            64, 96 and 112 took 1.5 to 2.5 times their estimate (``benchmarks/results/narrow_weights.txt``).
        fragment_cycles: cycles from the arrival of a slot to the first product of a factor that is computed in registers, without those of elements.
        fragment_part_cycles: further cycles for each part of a step, where the products of one part are in flight while the next is computed.
        fragment_element_cycles: cycles per element of a thread that passes through registers, beside the instructions that compute it.
        fragment_sharing: how much longer these three take for each further warpgroup that shares the tile.
        fragment_late: how much longer where blocks have several tiles, in steps that are not loaded while the tile before is stored.
        fragment_shares: of the time of the products of a step, what is not hidden behind them, without batches in flight and with some. The six from
            ``relu(a) @ b`` of seven sizes in seven tiles, with 0, 1 and 3 batches in flight, and of two sizes in steps of 128, on an H200
            (``benchmarks/results/computed_factor.txt``): with 36 cycles per part, before parts were loaded ahead, the model differed from 104 times by 5%
            (root mean square), at most by 11%.
        converted_instructions: instructions that convert such an element of 16 bits to float32 and back; two elements at a time are not converted. This and
            the saving of loads ahead from three tiles of two of these sizes.
        mixed_element_slots: issue slots for an element of a factor that ``mixed_gemm`` computes, in a tile of 8 columns.
        mixed_column_slots: for each further 8 columns.
        mixed_row_bytes, mixed_column_bytes: bytes per cycle at which tiles of the computed factor, and of the other, come to a multiprocessor.
        mixed_wait_us: waits of such a product with one warp on a multiprocessor; of several they overlap.
        mixed_together: factor of all but these if several blocks share a multiprocessor. The six from 16 kernels of 4 and 8 bits on an H200
            (``benchmarks/results/narrow_weights.txt``), from which the model differs by 1.2 us (root mean square).
        busy_share: share of a tile's cycles in which its block issues; other blocks of the multiprocessor can use the rest. Assumed, not measured.
        residents_factor: factor of the time of several resident blocks. Assumed, so that they are chosen only for a clear gain.
        simt_shares: rows and columns of the result per thread, and the share of the multiply-add rate that such threads reach with 32 of k in a tile: the rest
            are loads of factors. The number of blocks of a multiprocessor, from one to 62, makes little difference; with 16 of k the shares are 5 to 10% less.
            Those of 8 x 4 and 8 x 8 from 4096 x 4096 x 4096 on an H200 (``benchmarks/results/product_tiles.txt``), of smaller ones on an H100.
        simt_along_k: factor of these if no, one or both factors have k last; from the same products.
        double_share: share of the tensor cores' rate that float64 products reach.
        mma_gemm_share: share that other products by ``mma.sync`` reach on GPUs without ``wgmma``. Assumed, not measured.
        mma_step_cycles: cycles to wait for a tile of k of such a product, with one block on a multiprocessor: its barrier, and the first factors. This and
            ``double_share`` fit float64 products of five sizes in three tiles, on an H200 (``benchmarks/results/product_figures.txt``).
        simt_together: factor of ``simt_shares`` if several blocks share a multiprocessor; from 512 x 1024 x 4096 in two and in four chunks of k, on an H100.
    """

    tensor_share: float = 0.99
    in_step: float = 1.2
    outside_factor: float = 6.25
    step_norm: float = 7
    unfilled_tiles: frozenset[tuple[int, int, int]] = frozenset(
        (
            *((128, n, 2) for n in (240, 224, 208, 176, 160)),
            *((256, n, 2) for n in (176, 160, 144, 128, 112, 96, 80)),
            *((192, n, 3) for n in (176, 160, 144, 112, 96)),
        )
    )
    layered_rows: int = 2
    load_cycles: float = 700
    held_share: float = 0.45
    slots_norm: float = 6
    outside_cycles: float = 9.5
    straddle_factor: float = 0.5
    several_bytes: float = 152
    start_us: float = 1.7
    warpgroup_us: float = 0.55
    step_cycles: float = 270
    shared_step_cycles: float = 390
    span_cycles: float = 110
    slot_us: float = 1.4
    slots_used: float = 1.75
    epilogue_cycles: float = 320
    piece_cycles: float = 540
    narrow_factor: float = 1.4
    pingpong_cycles: float = 1000
    pingpong_work: float = 0.55
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
    shared_work: float = 0.75
    narrow_side_cycles: float = 600
    guarded_factor: float = 4
    copy_latency_cycles: float = 480
    cluster_us: float = 0.7
    row_part_cycles: float = 100
    column_part_cycles: float = 250
    finish_us: float = 5.0
    access_cycles: float = 40
    computing_warpgroups: int = 2
    fragment_cycles: float = 126
    fragment_part_cycles: float = 21
    fragment_element_cycles: float = 4.1
    fragment_sharing: float = 0.16
    fragment_late: float = 0.08
    fragment_shares: tuple[float, float] = (0.64, 0.32)
    converted_instructions: float = 0.8
    mixed_element_slots: float = 2.9
    mixed_column_slots: float = 1.3
    mixed_row_bytes: float = 23.6
    mixed_column_bytes: float = 47
    mixed_wait_us: float = 15
    mixed_together: float = 0.82
    busy_share: float = 0.35
    residents_factor: float = 1.15
    double_share: float = 0.9
    mma_gemm_share: float = 0.7
    mma_step_cycles: float = 200
    simt_together: float = 1.1
    simt_shares: tuple[tuple[tuple[int, int], float], ...] = (
        ((2, 2), 0.35),
        ((2, 4), 0.42),
        ((4, 2), 0.49),
        ((4, 4), 0.65),
        ((4, 8), 0.74),
        ((8, 4), 0.76),
        ((8, 8), 0.82),
    )
    simt_along_k: tuple[float, float, float] = (1.0, 0.97, 0.9)


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Costs of kernels of rows beyond their bytes, for :mod:`taskfuse.schedulers.row_cost`.

    Fitted to 90 schedules of softmax, layer norm and RMS norm in bfloat16 at three sizes, on an H200 (``benchmarks/norms.py --sweep`` repeats the
    measurement); figures of blocks that share a row are estimates.

    Attributes:
        load_cycles, store_cycles: latency of a load while the memory is busy, and of a store.
        shuffle_cycles, barrier_cycles, grid_cycles: cycles of a butterfly step, of a block barrier, and of a grid barrier.
        slot_cycles, block_slot_cycles: cycles to combine the partial result of one more warp, and of one more block.
        arrival_cycles: cycles per block that arrives at a grid barrier.
        issue_cycles, function_cycles: cycles from one instruction of a thread to its next, and further cycles of a special function.
        instructions, copy_instructions, function_instructions: instructions per element: of a phase; of a load from memory again; of a special function.
        overhead_instructions: instructions per thread and phase.
        block_cycles: cycles of a multiprocessor to begin a block: 73728 blocks of a warp each, sums of 8 x 2359296 float32, took 46 us, at 140 cycles a block.
        scattered_sectors: sectors of the L2 cache's bandwidth that the store of one element takes, where those beside it are stored by other blocks: 512 x 1024
            bfloat16 across rows took about 9 us.
        run_shares: share of the L2 cache's bandwidth where what lies side by side and a block loads or stores together are multiples of 128, 64 or fewer bytes
            that begin at such: scans of [8, 2048, 1024], [4, 4096, 256], [64, 360, 321], [32, 128, 768] in float32 and bfloat16, by 43 schedules
            (``benchmarks/scans.py --middle --sweep``, on an H200).
        others: share of the shorter times that does not overlap with the longest.
        warp_vectors: the most vectors of a row that one warp walks alone: longer rows were 3 to 10% slower by warps than by blocks
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
    block_cycles: float = 160
    scattered_sectors: float = 3
    run_shares: tuple[tuple[int, float], ...] = ((128, 1.0), (64, 0.73), (1, 0.58))
    others: float = 0.18
    warp_vectors: int = 1024


@dataclass(frozen=True, slots=True)
class ElementFigures:
    """Elements per thread of an elementwise kernel, for :mod:`taskfuse.schedulers.pointwise`.

    Attributes:
        flat: if all axes are merged into one: exp of 8192 x 4095 float32 takes 66.7 us with 4, 68.1 with 8, 68.8 with 16, on an H200.
        apart: along separate axes, if loads are not vectors; from counted times of stencils of 9 and 7 taps in bfloat16: 16 and 179 us; with vectors of 8, 55
            and 460, on an H100.
    """

    flat: int = 4
    apart: int = 2


@dataclass(frozen=True, slots=True)
class TorchFigures:
    """Rates that torch's own kernels reach, for :mod:`taskfuse.torch.worth` and :mod:`taskfuse.torch.padding`.

    Attributes:
        products: share of the tensor cores' rate that products reach: 0.77 to 0.89 for extents from 1024 to 8192, on an H200
            (``benchmarks/results/matmul.txt``).
        flash: share that FlashAttention-2 reaches: 355 TFLOP/s for 4 x 16 x 4096 x 128 on an H200; 292 for causal attention, counting half of the products.
        cudnn: share that cuDNN's attention reaches: 676 TFLOP/s; 574 for causal attention.
        flash_gradients, cudnn_gradients: shares that their gradients reach, counting five products: 266 and 545 TFLOP/s for 4 x 16 x 4096 x 128 on an H200; 240
            and 473 for causal attention (``benchmarks/results/attention_backward.txt``).
        unaligned_factor: factor of the time of a 16-bit product whose rows are not multiples of 16 bytes: 6.6 ms instead of 0.87 for
            [8192, 768] x [768, 50257], 4.4 and 4.2 instead of 1.3 for its gradients, on an H100.
        windows: share of the CUDA cores' rate of multiply-adds that depthwise convolutions reach at most: 0.17 with channels last, 0.05 with channels second,
            down to 0.03 for few channels (7 x 7 windows of ConvNeXt, 3 x 3 and 5 x 5 of EfficientNet on an H200, ``benchmarks/results/depthwise.txt``).
    """

    products: float = 0.85
    flash: float = 0.39
    cudnn: float = 0.74
    flash_gradients: float = 0.29
    cudnn_gradients: float = 0.59
    unaligned_factor: float = 5.0
    windows: float = 0.17


@dataclass(frozen=True, slots=True)
class AttentionFigures:
    """Costs of attention kernels, for :mod:`taskfuse.schedulers.attention_cost`.

    Fitted to ``benchmarks/attention.py`` with heads of 64 and 128, 512 to 16384 keys and chunks of 96 to 256, on an H200 (driver 580, CUDA 13.0).

    Attributes:
        exposed: share of the softmax of 128 keys that no product hides, with one, two and three warpgroups; in proportion for longer chunks.
        chunk_cycles: further cycles of a chunk of keys, with one, two and three warpgroups.
        block_cycles: further cycles of a block: the latency of its first keys, and the stores of its results.
        turn_cycles: further cycles of each tile of rows that a block takes in turn, with one and with two stages of queries.
        claimed_cycles: the same of each tile of rows that a block claims, as walks differ in length: the first fitted to one case, 4 x 16 heads of 128 and
            4096 causal keys, the second less by what two stages of queries saved there (18 us) and with a window of 1024 (15 us).
        masked_cycles: further cycles of a chunk of a walk that ends at a diagonal; with ``diagonal`` fitted to rank ten times of three causal cases as
            measured, with chunks of 128 to 208 keys.
        diagonal: further cost of the square of a block's rows on the diagonal, in units of its products' time: masks are evaluated, and warpgroups wait
            for each other.
        shared_chunk: share of the time of a chunk that it takes if two blocks share its copy: 4 x 8 heads of 256 and 4096 keys.
        piece_cycles: cycles saved per 64 columns of results that the copy engine stores; warpgroups overlap.
        staged_chunk_cycles: further cycles of a chunk of a kernel whose results the copy engine stores: its loop is slower, for reasons unknown; with
            ``piece_cycles`` fitted to three cases with heads of 128: 42.5 us without and 35.4 with such stores for 8 x 16 heads of 512 keys, 133.7 and 130.8
            for 1024 keys, 899 and 1012 for 4 x 16 heads of 4096 keys. For 1 x 16 heads of 16384 keys it gives 4377 with such stores, which took
            3691.
        ahead: share of the time of a chunk, without ``staged_chunk_cycles``, that it takes if products are issued ahead: from eight cases of
            ``benchmarks/results/attention_turns.txt``, of 0.89 to 1.03 by the other figures.
        ahead_gains: columns, and keys of a chunk, for which two warpgroups were faster so; turns besides gained nothing. With 64 columns 4 x 16 heads of 4096
            causal keys took 330 us so, and 366 and 382 with chunks of 192 keys, which the other figures prefer (``benchmarks/results/attention.txt``).
        byte_ahead_gains: the same of exponentials and values of 8 bits (``benchmarks/results/attention.txt``).
        byte_chunk_cycles: further cycles of a chunk with those: fitted to 4 x 16 heads of 128 and 4096 keys, 692 us with chunks of 128 keys and 662 with 192,
            and to 1 x 16 heads and 16384 keys, 2837 and 2636 (H200).
        byte_turns: warpgroups, columns, and keys of a chunk, for which such products ahead were faster if they were issued in turn: 4 x 16 heads of 64 and 4096
            keys took 450 us so, 513 ahead without turns, and 472 with chunks of 160 keys, not ahead. With 128 columns two warpgroups gained and lost by turns.
        byte_turn: share of the time of a chunk, without ``byte_chunk_cycles``, that it takes then, from that case.
        apart_cycles: further cycles of a chunk whose scores a warpgroup of its own computes, beside two of a part of the columns each: 64 x 128 queries and
            4096 keys of 576, with values of 512, took 140 us (``benchmarks/results/decode.txt``). If both compute the scores, the other figures hold: 161 us.
        one_walk_cycles: cycles of a chunk of :mod:`taskfuse.schedulers.one_walk` if each product has 128 terms or columns; they are assumed to grow with these.
    """

    exposed: tuple[float, float, float] = (0.6, 0.2, 0.1)
    chunk_cycles: tuple[float, float, float] = (590, 650, 960)
    block_cycles: float = 11200
    turn_cycles: tuple[float, float] = (7900, 4400)
    claimed_cycles: tuple[float, float] = (3150, 1450)
    masked_cycles: float = 320
    diagonal: float = 1.3
    shared_chunk: float = 0.95
    piece_cycles: float = 2680
    staged_chunk_cycles: float = 590
    ahead: float = 0.96
    ahead_gains: frozenset[tuple[int, int]] = frozenset({(64, 128), (128, 128), (256, 64)})
    byte_ahead_gains: frozenset[tuple[int, int]] = frozenset({(128, 128), (128, 192)})
    byte_chunk_cycles: float = 380
    byte_turns: frozenset[tuple[int, int, int]] = frozenset({(3, 64, 128)})
    byte_turn: float = 0.9
    apart_cycles: float = 620
    one_walk_cycles: float = 4300


@dataclass(frozen=True, slots=True)
class AssumedFigures:
    """Costs that were assumed, not measured: they rank the schedules of one fusion, and the schedulers.

    Attributes:
        load_shares: share of DRAM's bandwidth that loads of 16, 8, 4, 2 bytes and of one byte reach.
        serial_us: time of a step of a serial reduction or scan; schedulers without one are preferred. 512 steps of two loads each, a product of float32, took
            about 45 us (``whisper_fwd4_22`` of ``benchmarks/traces.py``, on an H200).
        grid_us: time of a grid barrier, and of a launch whose blocks are all resident: 131072 updates within rows of 256 took 8.3 us with one, 2.6 us with a
            barrier of each block (H200).
        update_us: time of each of several updates of one KB of memory, which are serialized: 2^20 updates of 64 sums took 310 us, of
            65536 x 128 in 64 rows, four by one instruction, 32.5 (H200).
        level_us: time of the barriers of one level of a scan's totals.
        division_instructions, trip_instructions, place_instructions: instructions of a division by a constant, of a loop's trip, and of the address and the
            load of one element.
        mma_share: rate of ``mma.sync`` relative to ``wgmma`` on a GPU with both.
        load_cycles: latency of a load from Global memory with no other load in flight: between the latencies of L2 and DRAM.
        chain_cycles: latency from an instruction of a thread to one that depends on it.
        barrier_cycles, grid_cycles: cycles of a block barrier, and of a grid barrier, in counted times.
        block_cycles: cycles from the end of a block to the first results of the one that follows it: its launch and its first loads. 9632 blocks of 512
            threads, two at once, of which most load 4 bytes in each thread, took 32.8 us (H200), at 1500 cycles a block.
        resources_norm: exponent of the norm that combines the counted times of a launch's resources. This one was measured: with it the counted times of 118
            kernels of ``benchmarks/traces.py`` without tensor cores differ from those on an H200 by 23% (root mean square of the logarithm), without a bias of
            3%; the longest alone is 19% too short where kernels take 4 us and more.
        half_tiles_gain: the most time with half the columns, relative to that with all, for which tiles of transposes are halved: their rows are half as many
            sectors. On an H200 those that are expected to gain more took 0.68 to 0.93 times as long, of five transposes to which this limit was fitted; those
            of 4096 x 4096, which are whole either way, 1.01 and 1.09 times.
    """

    load_shares: tuple[tuple[int, float], ...] = ((16, 1.0), (8, 0.97), (4, 0.9), (2, 0.6), (1, 0.35))
    serial_us: float = 0.09
    grid_us: float = 5.7
    update_us: float = 0.00025
    level_us: float = 0.5
    division_instructions: int = 5
    trip_instructions: int = 3
    place_instructions: int = 8
    mma_share: float = 0.6
    load_cycles: int = 500
    chain_cycles: int = 4
    barrier_cycles: int = 40
    grid_cycles: int = 2000
    block_cycles: int = 1000
    resources_norm: float = 3.0
    half_tiles_gain: float = 0.985

    def load_share(self, size: int) -> float:
        """Share of DRAM's bandwidth that loads of ``size`` bytes reach."""
        return dict(self.load_shares)[size]
