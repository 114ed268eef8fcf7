"""A fusion segmented into several that run one after another, and pass tensors through Global memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.errors import FusionError, shown
from taskfuse.ir.expr import Assemble
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.signatures import checked
from taskfuse.ir.storage import made_from, needed, producers, storage_uses, strided
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.call import is_list
from taskfuse.schedule.parts import Parts


@dataclass(frozen=True, slots=True)
class SegmentedFusion:
    """Fusions that together compute one fusion. Schedule each of ``segments``, or leave it to :func:`taskfuse.compile`.

    Attributes:
        fusion: the whole.
        segments: in an order in which they can run. Tensors and scalars have the names that they have in the whole.
    """

    fusion: Fusion
    segments: tuple[Fusion, ...]


@checked
def segment(fusion: Fusion, segments: Sequence[Sequence[TensorView | str]], views: Sequence[Sequence[TensorView | str]] | None = None) -> SegmentedFusion:
    """Segment an unscheduled fusion into several.

    Args:
        fusion: it is not changed.
        segments: the tensors that each segment computes, as tensors or by name. Views go with their readers, the result of a concatenation in scatter
            form with its parts; every other tensor that the outputs need belongs to one segment.
        views: for each segment, views that it takes as inputs in place of the tensors behind them: a call passes a strided array, without a copy. A
            slice, or a reshaped or permuted tensor, is then an ordinary input of a product.

    Raises:
        FusionError: the fusion has a schedule, a tensor is in no segment or in more than one, the parts of a concatenation are in several, the segments depend
            on each other in a cycle, or one of ``views`` is not a view with strides.
    """
    owner: dict[TensorView, int] = {}
    if fusion.has_schedule:
        raise _error(fusion, "it has a schedule already", "segment a fusion without scheduling calls; the segments are scheduled")
    if not is_list(segments):
        raise _error(fusion, f"segments is {shown(segments)}, not a list", "give a list with a list of tensors for each segment")
    for number, part in enumerate(segments):
        if isinstance(part, str):
            raise _error(fusion, f"'{part}' is one name, not a sequence", f"write ['{part}'] for a segment of one tensor")
        for given in part:
            tv = fusion.tensor(given) if isinstance(given, str) else given
            if not among(tv, fusion.tensors()):
                raise _error(fusion, f"{shown(tv)} is not a tensor of it", "name its tensors")
            if owner.setdefault(tv, number) != number:
                raise _error(fusion, f"{tv.name} is in segments {owner[tv]} and {number}", "name each tensor once")
    code = [e.output for e in needed(fusion)]
    for tv in code:
        if tv not in owner:
            raise _error(fusion, f"{tv.name} is in no segment", "name every tensor that the outputs need and that is neither an input nor a view")
    for tv in (e.output for e in fusion.exprs() if isinstance(e, Assemble) and _is_needed(fusion, e.output, code)):
        written = made_from(fusion, tv)
        if len(numbers := sorted({owner[part] for part in written})) > 1:
            reason = f"{', '.join(part.name for part in written)}, the parts of {tv.name}, are in segments {', '.join(map(str, numbers))}"
            raise _error(fusion, reason, "name them in one segment: one kernel writes all parts of a tensor")
    owned = [[tv for tv in code if owner[tv] == number] for number in range(len(segments))]
    passed = _passed(fusion, len(segments), views)
    order, parts = _order(fusion, owned, owner), Parts(fusion)
    return SegmentedFusion(fusion, tuple(parts.extract(owned[number], f"{fusion.name}_{k}", passed[number]) for k, number in enumerate(order)))


def _passed(fusion: Fusion, segments: int, views: Sequence[Sequence[TensorView | str]] | None) -> list[list[TensorView]]:
    """The views that each segment takes as inputs. Raises :class:`FusionError`."""
    if views is None:
        return [[] for _ in range(segments)]
    if len(views) != segments:
        raise _error(fusion, f"there are {segments} segments and views of {len(views)}", "give a list for each segment, empty if it takes no views")
    found = [[fusion.tensor(given) if isinstance(given, str) else given for given in part] for part in views]
    for tv in (tv for part in found for tv in part):
        if not among(tv, fusion.tensors()) or strided(fusion, tv) is None:
            raise _error(fusion, f"{tv.name} is not a view with strides", "name slices, and reshaped or permuted tensors")
    return found


def _order(fusion: Fusion, segments: Sequence[Sequence[TensorView]], owner: dict[TensorView, int]) -> list[int]:
    """The segments, those first that others need. Raises :class:`FusionError` if there is a cycle."""
    needs: dict[int, set[int]] = {k: set() for k, segment in enumerate(segments) if segment}
    for k in needs:
        for tv in segments[k]:
            for producer in producers(fusion, tv):
                needs[k] |= {owner[t] for t in made_from(fusion, producer) if not t.is_input} - {k}
    order: list[int] = []
    while needs:
        ready = [k for k, before in needs.items() if before <= set(order)]
        if not ready:
            names = " and ".join(f"[{', '.join(tv.name for tv in segments[k])}]" for k in needs)
            raise _error(fusion, f"the segments {names} depend on each other", "merge them, or segment the fusion elsewhere")
        order.append(ready[0])
        del needs[ready[0]]
    return order


def _is_needed(fusion: Fusion, tv: TensorView, code: Sequence[TensorView]) -> bool:
    """Whether a tensor is an output, or read by the code that outputs need."""
    return tv.is_output or any(among(use.output, code) for use in storage_uses(fusion, tv))


def _error(fusion: Fusion, reason: str, help: str) -> FusionError:
    return FusionError(fusion=fusion.name, reason=reason, help=help, location=caller())
