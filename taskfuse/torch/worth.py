"""Whether a fusion can be as fast as torch's own ops: expected times of both, before anything is compiled.

The least time of a fusion is its roofline: its bytes, or the instructions of its definition, whichever take longer; matrix products, which take as long
in both, are left out. torch's op moves the same bytes, and needs at most the instructions of a radix sort per element (:data:`DIGITS` passes).
If the definition needs more than that, as with a long row sorted by comparisons, torch has an algorithm that taskfuse lacks. A fusion sorts short rows, and few
rows, as fast.

For products and attention the schedulers' cost models give the time of a fusion, and the measured share of the tensor cores' rate that of torch's ops. No
fusion is expected to multiply faster than torch does: what it gains is what follows the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Final, ParamSpec, cast

from taskfuse.cuda.present import present
from taskfuse.errors import UnsupportedError
from taskfuse.ir.contraction import factors
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.runtime.memory_order import in_memory_order
from taskfuse.schedule.copy import narrowed
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.attention import offer as attention_offer
from taskfuse.schedulers.back_to_back import find as find_chain
from taskfuse.schedulers.back_to_back import offer as back_to_back_offer
from taskfuse.schedulers.canonical import canonical
from taskfuse.schedulers.long_cascades import chunks_of, walks_alone
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.matmul import offer as matmul_offer
from taskfuse.schedulers.product_cascades import chunk_product_cascades, tile_walks
from taskfuse.schedulers.roofline import bytes_of, instructions, products_us, roofline
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.schedulers.walks import walks_apart
from taskfuse.schedulers.windows import offer as windows_offer
from taskfuse.target import Target

DIGITS: Final = 8
"""Passes of a radix sort of 32-bit keys, 4 bits in each (Merrill and Grimshaw, "High Performance and Scalable Radix Sorting", 2011): a property of the
algorithm, the same on every machine."""
PASS: Final = 12
"""Instructions of a pass per element: assumed, not measured."""


def at_hints(fusion: Fusion, hints: Mapping[str, int]) -> Fusion:
    """A fusion for one value of each symbol that has a hint."""
    if not fusion.dims:
        return fusion
    return narrowed(fusion, [replace(d, min=hints[d.name], max=hints[d.name], multiple_of=1) if d.name in hints else d for d in fusion.dims.values()])


def times(fusion: Fusion) -> tuple[float, float]:
    """The least time of an op in a fusion that is launched anyway, and the expected time of torch's op, in microseconds on the GPU that is present.

    Args:
        fusion: the op alone.
    """
    target = present()
    extent = Sizes(fusion, None, target)
    elements = sum(extent.elements(tv) for tv in fusion.inputs)
    moved = target.dram_us(bytes_of(fusion, extent))
    return max(moved, target.issue_us(instructions(fusion, extent))), target.alone_us(moved, target.issue_us(DIGITS * PASS * elements))


Times = tuple[float, float]
P = ParamSpec("P")
MOST_KNOWN: Final = 4096
"""Expected times that are remembered at once, of each kind."""
FLASH: Final = frozenset({"_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"})
"""Attention ops with the rate of FlashAttention-2; the others have cuDNN's."""


def by_text(times: Callable[P, Times | None]) -> Callable[P, Times | None]:
    """Remember expected times by the texts of fusions, and the GPU: blocks of a model repeat, and a graph is planned more than once."""
    known: dict[tuple[str, ...], Times | None] = {}

    def text(value: object) -> str:
        return "\n".join(map(str, cast("Sequence[object]", value))) if isinstance(value, list | tuple) else str(value)

    @wraps(times)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> Times | None:
        key = (present().name, *map(text, (*args, *kwargs.values())))
        if key not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[key] = times(*args, **kwargs)
        return known[key]

    return remembered


@by_text
def attention_times(fusion: Fusion, op: str, is_causal: bool) -> tuple[float, float] | None:
    """The expected times of attention, in microseconds: as a fusion, in one walk over the keys or in chunks of them, and by an op of torch, which moves the
    same bytes; ``None`` if no schedule keeps scores in registers."""
    target = present()
    extent = Sizes(fusion, None, target)
    ways = next(walks_alone(fusion), None)
    if ways is None:
        return None
    found = list[float]()
    for one in (*ways, fusion):  # the walk alone has wide results
        try:
            found.append(attention_offer(one, target=target).us)
        except UnsupportedError:
            continue
    if not found:
        return None
    found += [chunks.us for walk in ways if (chunks := chunks_of(walk, extent)) is not None]
    reached = target.torch.flash if op in FLASH else target.torch.cudnn
    products = products_us(fusion, extent) * (0.5 if is_causal else 1.0) / reached
    return min(found), target.alone_us(products, target.dram_us(bytes_of(fusion, extent)))


@by_text
def gradient_times(fusion: Fusion, op: str, is_causal: bool) -> tuple[float, float] | None:
    """The expected times of the gradients of attention, in microseconds: as walks of ``tf.schedulers.back_to_back`` and the kernels before them, and by an op
    of torch; ``None`` if there are no such walks, so that functions of scores would be stored."""
    target = present()
    extent = Sizes(fusion, None, target)
    form = walks_apart(fusion, target)
    walks = [walk for walk, *_ in walks_alone(fusion if form is None else form.fusion)]
    try:
        offers = [back_to_back_offer(walk, target=target).us for walk in walks]
    except UnsupportedError:
        return None
    if not walks or sum(len(find_chain(walk).last) for walk in walks) < len(fusion.outputs):
        return None
    moved = target.dram_us(bytes_of(fusion, extent))
    reached = target.torch.flash_gradients if op.removesuffix("_backward") in FLASH else target.torch.cudnn_gradients
    theirs = products_us(fusion, extent) * (0.5 if is_causal else 1.0) / reached
    return sum(offers) + target.kernel_us(moved), target.alone_us(theirs, moved)


@by_text
def product_times(fusion: Fusion, products: Sequence[Fusion], rest: Fusion | None, joins: bool, *, has_views: bool = False) -> tuple[float, float] | None:
    """The expected time of a fusion of products and their epilogue, and a lower bound of torch's, in microseconds; ``None`` without a scheduler for it, and
    where it takes several kernels that cannot be faster than torch's, which are then not searched for.

    Args:
        fusion: all of it.
        products: each product alone.
        rest: the epilogue, which is one kernel; ``None`` if there is none.
        joins: readers of the result would be in the kernel of the rest as well: they then read what the rest reads in place of the result.
        has_views: factors may be views that only a separate kernel takes as arrays, such as weights of a 1 x 1 convolution: segments are searched for.
    """
    target = present()
    ordered = in_memory_order(fusion).fusion
    ours = _product_us(ordered, target)
    if ours is None and not has_views:
        return None
    after = passed_us(fusion, fusion.outputs) if joins and rest is not None else 0.0
    theirs = rate = 0.0
    for f in products:
        own = Sizes(f, None, target)
        reached = target.kernel_us(products_us(f, own) / _reached(f, target))
        theirs += target.overlap_us + max(roofline(f, own), reached)
        rate += reached
    if rest is not None:
        theirs += passed_us(rest, rest.inputs) if joins else target.overlap_us + roofline(rest, Sizes(rest, None, target))
    if ours is None:
        least = roofline(ordered, Sizes(ordered, None, target)) + target.launch_us + after
        ours = None if least > theirs else _segments_us(ordered, target)
    return None if ours is None else (max(ours, rate) + after, theirs)


@by_text
def row_times(fusion: Fusion, products: Sequence[Fusion], rest: Fusion) -> tuple[float, float] | None:
    """The expected times of a product and reductions of its rows that store no element of it, and of torch's product with one kernel of all the rest, in
    microseconds; ``None`` where the product is stored.

    Args:
        fusion, products, rest: as those of :func:`product_times`.
    """
    target = present()
    ordered = in_memory_order(fusion).fusion
    extent = Sizes(ordered, None, target)
    form = chunk_product_cascades(ordered, extent)
    made = ordered if form is None else form.fusion
    walks = [Parts(made).extract(walk, made.name, ()) for walk in tile_walks(made)]
    if len(walks) != len(products):
        return None
    try:
        ours = sum(matmul_offer(walk, target=target).us for walk in walks)
    except UnsupportedError:
        return None
    ours += target.kernel_us(sum(passed_us(walk, walk.outputs) for walk in walks))
    theirs = sum(max(roofline(f, own := Sizes(f, None, target)), target.kernel_us(products_us(f, own) / _reached(f, target))) for f in products)
    return ours, theirs + target.overlap_us + roofline(rest, Sizes(rest, None, target))


def passed_us(fusion: Fusion, tensors: Sequence[TensorView]) -> float:
    """The time that tensors of a fusion take to pass through memory, in microseconds."""
    target = present()
    extent = Sizes(fusion, None, target)
    return target.dram_us(float(sum(tv.dtype.itemsize * extent.elements(tv) for tv in tensors)))


def _reached(fusion: Fusion, target: Target) -> float:
    """The share of the rate of tensor cores, or of CUDA cores for sums that are no matrix products, that torch reaches."""
    found = [two for e in needed(fusion) if (two := factors(fusion, e)) is not None]
    return target.torch.products if all(two.make_a_matrix for two in found) else target.torch.windows


def _product_us(fusion: Fusion, target: Target) -> float | None:
    """The expected time of one kernel of products or of windows, in microseconds; ``None`` if there is none."""
    form = canonical(fusion, Sizes(fusion, None, target))
    found: list[float] = []
    for given in (fusion, *([] if form is None else [form.fusion])):
        with suppress(UnsupportedError):
            found.append(matmul_offer(given, target=target).us)
        with suppress(UnsupportedError):
            found.append(windows_offer(given, target=target).us)
    return min(found, default=None)


def _segments_us(fusion: Fusion, target: Target) -> float | None:
    """The expected time of several kernels of which one has products, in microseconds; ``None`` if there are none."""
    with suppress(UnsupportedError):
        segments = choose_segments(fusion, target=target)
        if any(step.schedule.scheduler == matmul.__name__ for step in segments.steps):
            return segments.us
    return None
