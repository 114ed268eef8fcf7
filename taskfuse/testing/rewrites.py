"""Random calls that move or repeat the computation of tensors: duplicates, recomputation in readers' loops, chunks, parts."""

from __future__ import annotations

from taskfuse.ir.expr import Assemble, FirstValid, Pointwise, Reduction, Scan
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import has_code, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.scatter import ragged_rows
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import Recorder


def rewrite(chooser: Chooser, recorder: Recorder, share: int) -> None:
    """Try ``duplicate``, ``recompute``, ``cache_fork``, ``through_view``, calls of reductions, ``chunk_scan``, ``scatter`` and ``unscatter``.

    Each is tried where it may be possible.

    Args:
        share: percentage of tensors on which each call is tried.
    """
    fusion = recorder.fusion
    for tv in fusion.tensors():
        if not among(tv, fusion.tensors()) or tv.is_input or not chooser.chance(share):
            continue
        if among(tv, ragged_rows(fusion)):
            recorder.attempt(tv, "scatter")
            continue
        for call, kind in (("scatter", FirstValid), ("unscatter", Assemble), ("chunk_scan", Scan)):
            if isinstance(tv.definition, kind):
                recorder.attempt(tv, call, *([chooser.pick((4, 2, 3, 5))] if kind is Scan else []))
                break
        else:
            made = tv.definition
            if isinstance(made, Reduction) and chooser.chance(25):
                _chunked(chooser, recorder, tv)
            elif isinstance(made, Pointwise | Reduction) and chooser.chance(25):
                recorder.attempt(tv, "through_view", chooser.integer(0, len(made.operands) - 1))
            else:
                _moved(chooser, recorder, tv)


def _chunked(chooser: Chooser, recorder: Recorder, tv: TensorView) -> None:
    """A reduction in chunks that divide the axis, or cut in two parts of any length."""
    k = chooser.pick([k for k, a in enumerate(tv.root) if a.is_reduction])
    extent = tv.root[k].extent
    if not chooser.chance(70):
        if not chooser.chance(50):
            recorder.attempt(tv, "unroll_reduction")
        elif not chooser.chance(70):
            recorder.attempt(tv, "drop_axes")
        else:
            recorder.attempt(tv, "pack_factors", k, chooser.integer(1, 4))
        return
    if isinstance(extent, Const) and extent.value > 1 and chooser.chance(25):
        recorder.attempt(tv, "cut_reduction", k, chooser.integer(1, extent.value - 1))
        return
    lengths = [n for n in range(1, extent.value + 1) if extent.value % n == 0] if isinstance(extent, Const) else [1]
    if lengths:
        recorder.attempt(tv, "chunk_reduction", k, chooser.pick(lengths))


def _moved(chooser: Chooser, recorder: Recorder, tv: TensorView) -> None:
    """Try a call that takes readers of a tensor, or that applies to an output that is read."""
    direct = list(dict.fromkeys(use.output for use in tv.uses))
    if isinstance(tv.definition, Assemble) or not direct:
        return
    if tv.is_output and chooser.chance(60):
        recorder.attempt(tv, "cache_fork")
    elif len(direct) > 1 and chooser.chance(50):
        recorder.attempt(tv, "duplicate", direct[: chooser.integer(1, len(direct) - 1)])
    else:
        readers = list(dict.fromkeys(use.output for use in storage_uses(recorder.fusion, tv) if has_code(recorder.fusion, use)))
        if readers:
            recorder.attempt(tv, "recompute", readers if chooser.chance(50) else [chooser.pick(readers)])
