"""``tf.schedulers.cat``: concatenations and stacks of computed parts, and elementwise functions of them.

    gather   the loops of the result find the part of each element; every part's functions are evaluated for it
    shared   parts of one shape in one loop: shared operands are loaded once, and each part stores its slice
    blocks   a horizontal group on BIDx: parts of any shapes side by side, each on blocks of its own
    warps    the same on warps of a block, TIDy
    threads  the same on threads of a warp

The last four store slices (:meth:`~taskfuse.ir.tensor.TensorView.scatter`); the result itself is not code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from taskfuse.ir.expr import FirstValid, is_copy
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import const, is_multiple
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.scatter import is_concatenation
from taskfuse.schedulers.elementwise import align, ancestors, at_readers, recompute_all, stored, work
from taskfuse.schedulers.fallback import separate
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.pointwise import PointwiseConfig, check, choose, schedule
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, VECTOR_BYTES, WARP, Target


class Form(Enum):
    """The forms of a concatenation: see the module."""

    GATHER = "gather"
    SHARED = "shared"
    BLOCKS = "blocks"
    WARPS = "warps"
    THREADS = "threads"


GROUPED = {Form.BLOCKS: P.BIDx, Form.WARPS: P.TIDy, Form.THREADS: P.TIDy}
CROWDED = {Form.BLOCKS: 1.0, Form.WARPS: 1.05, Form.THREADS: 2.0}
"""Time relative to parts on separate blocks: parts of unequal cost share a block or a warp, whose threads wait for the slowest. Assumed."""


@dataclass(frozen=True, slots=True)
class CatConfig(Parameters):
    """The parameters of a schedule of concatenations.

    Attributes:
        form: of the concatenation.
        loops: of a part, or of the result in gather form; ``None``: by extents and dtypes.
    """

    form: Form
    loops: PointwiseConfig | None = None

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"{self.form.value}, {self.loops.words}" if self.loops else self.form.value


@tries_parameters
def cat(fusion: Fusion, config: CatConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[CatConfig]:
    """Schedule elementwise functions with a concatenation, or several of the same parts, in the fastest form by the cost model.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: the fastest.
        sizes: values of the fusion's dimensions for the cost model.

    Raises:
        UnsupportedError: the fusion is not elementwise with outputs of one shape, it has no concatenation up to its outputs, or parts are to share a
            loop that differ in shape.
    """
    check_call(fusion, "cat", config, CatConfig)
    extent = Sizes(fusion, sizes, target)
    check(fusion, "cat")
    whole = _concatenation(fusion)
    if whole is None:
        raise refuse(fusion, "cat", "no concatenation is read only elementwise, up to all outputs", "tf.schedulers.pointwise")
    options = tuple(sorted(_options(fusion, whole, extent), key=lambda option: option.us))
    found = options[0].config if config is None else config
    like = next((o for o in options if o.config.form is found.form), None)
    if like is None:
        raise refuse(fusion, "cat", f"the parts of {whole.name} differ in shape, so they share no loop", "CatConfig(Form.BLOCKS) gives each its own")
    script = Script(fusion)
    if found.form is Form.GATHER:
        script.comment("each part at the points of the result")
        leaves = align(script, fusion)
        schedule(script, fusion.outputs, leaves, found.loops or choose(fusion, fusion.outputs[0], leaves, extent))
    else:
        _scattered(script, whole, found, extent)
    return Chosen("cat", whole.name, replace(like, config=found), options, config is not None, script.text)


def _concatenation(fusion: Fusion) -> TensorView | None:
    """The first concatenation that every output is, or is an elementwise function of."""
    for expr in needed(fusion):
        if isinstance(expr, FirstValid) and is_concatenation(expr.output):
            trial, tensors = copy_fusion(fusion)
            tensors[expr.output].scatter()
            if all(out not in {e.output for e in needed(trial)} for out in trial.outputs):
                return expr.output
    return None


def _options(fusion: Fusion, whole: TensorView, extent: Sizes) -> list[Option[CatConfig]]:
    """Of each form, that of the result's loops last: among equal times others are faster, since it loads parts one element at a time."""
    trial = at_readers(fusion)
    gather = Option(CatConfig(Form.GATHER), work(trial, extent).us(_vector_bytes(trial)))
    found: list[Option[CatConfig]] = []
    trial, tensors = copy_fusion(fusion)
    parts = tensors[whole].scatter()
    recompute_all(Script(trial), trial)
    vector_bytes = _vector_bytes(trial)
    if all(p.shape == parts[0].shape for p in parts):
        found.append(Option(CatConfig(Form.SHARED), work(trial, extent).us(vector_bytes)))
    us = work(trial, extent, apart=True).us(vector_bytes)
    return [*found, *(Option(CatConfig(form), us * more) for form, more in CROWDED.items()), gather]


def _vector_bytes(fusion: Fusion) -> int:
    """Bytes that a thread stores together."""
    facts, width = fusion.facts(), VECTOR_BYTES
    for tv in stored(fusion):
        row = tv.shape[-1] * tv.dtype.itemsize if tv.ndim else const(tv.dtype.itemsize)
        while width > tv.dtype.itemsize and not is_multiple(row, width, facts):
            width //= 2
    return max(width, 1)


def _scattered(script: Script, whole: TensorView, config: CatConfig, extent: Sizes) -> None:
    fusion = script.fusion
    script.comment("each part separately, up to its slice of the outputs")
    script.scatter(whole)
    if config.form is Form.SHARED:
        leaves = align(script, fusion)
        parts = stored(fusion)
        schedule(script, parts, leaves, config.loops or choose(fusion, parts[0], leaves, extent))
        return
    recompute_all(script, fusion)
    leaves = align(script, fusion, separate(script))
    script.comment("a task for each part, side by side")
    parts = stored(fusion)
    tasks = [script.task([*reversed(ancestors(fusion, part)), part], f"part{k}") for k, part in enumerate(parts)]
    mine = {part: [leaf for leaf in leaves if among(leaf.tensor, ancestors(fusion, part))] for part in parts}
    loops = {part: choose(fusion, part, mine[part], extent) for part in parts}
    most = loops[max(parts, key=extent.elements)]
    same = config.loops or _narrow(replace(most, vector=min(c.vector for c in loops.values())), config.form)
    if config.loops is None and all(is_copy(e) for part in parts for tv in (part, *ancestors(fusion, part)) if (e := fusion.definition(tv)) is not None):
        same = replace(same, unroll_rows=1)  # 32 x 2112 x 1024 of bfloat16: 67.8 us on an H200; with two vectors of each thread 69.7, with four 71.3
    for part in parts:
        schedule(script, [part], mine[part], same)
    group = script.group(tasks, "parts")
    group.parallelize(GROUPED[config.form])


def _narrow(loops: PointwiseConfig, form: Form) -> PointwiseConfig:
    """Loops that leave room for other parts in a block."""
    match form:
        case Form.WARPS:
            return replace(loops, columns=WARP, rows=1)
        case Form.THREADS:
            return replace(loops, columns=WARP // 4, rows=1)
        case _:
            return loops
