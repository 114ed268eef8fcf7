"""Random calls that state math in another form before it is scheduled, each where the fusion at hand takes it.

Tiles of shifted slices and windows, elements that are clamped instead of padded, factors in another order, products whose tiles blocks share, sums without
axes that they do not depend on, or by digits of their index, folds in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import taskfuse as tf
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.contraction import computes
from taskfuse.ir.expr import FirstValid, Fold, Literal, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import has_code, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedule.split_reduction import digits
from taskfuse.schedule.tile_shifts import Tiles, shift_of, tiles_of
from taskfuse.schedule.tile_windows import windows_of
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import Recorder, SpelledArgument

TILES = (2, 4, 3, 1, 20)
Form = Callable[[TensorView], None]


def reform(chooser: Chooser, recorder: Recorder, share: int) -> None:
    """Try calls that take each tensor.

    Args:
        share: percentage of tensors on which a call is tried.
    """
    _Forms(chooser, recorder, share).run()


class _Forms:
    def __init__(self, chooser: Chooser, recorder: Recorder, share: int) -> None:
        self.chooser = chooser
        self.recorder = recorder
        self.fusion: Fusion = recorder.fusion
        self.share = share

    def run(self) -> None:
        for tv in self.fusion.tensors():
            if among(tv, self.fusion.tensors()) and self._is_padded(tv) and self.chooser.chance(self.share):
                self._by_readers(tv)
        for tv in self.fusion.tensors():
            if not among(tv, self.fusion.tensors()) or tv.is_input or self.fusion.is_view(tv) or not self.chooser.chance(self.share):
                continue
            forms = self._forms(tv)
            if forms:
                self.chooser.pick(forms)(tv)

    def _forms(self, tv: TensorView) -> list[Form]:
        """The calls that take a tensor."""
        expr, found = self.fusion.definition(tv), list[Form]()
        if free_axes(self.fusion, expr) if isinstance(expr, Reduction | Pointwise | FirstValid) else ():
            found += [self._drop] * 3
        match expr:
            case Fold():
                found.append(self._split_fold)
            case Reduction():
                if computes(expr, SUM_OF_PRODUCTS):
                    found += [self._pack, self._chunk_product, self._chunk_product]
                found += [self._split_reduction, self._unroll]
            case FirstValid(operands=(Read(), Literal())) if not tv.is_output:
                found += [self._clamp, self._shift, self._window]
            case FirstValid(operands=(Read(), Literal())):
                found.append(self._clamp)
            case Pointwise(operands=(Read(),)) if not tv.is_output:
                found += [form for form, takes in ((self._shift, self._axes_of_shifts(tv)), (self._window, windows_of(self.fusion, tv))) if takes]
            case _:
                pass
        return found

    # -- neighbors ------------------------------------------------------------------------------------------------------------------

    def _is_padded(self, tv: TensorView) -> bool:
        """True for tensors that readers may read at several places: padded ones, and inputs."""
        expr = self.fusion.definition(tv)
        return tv.is_input or (isinstance(expr, FirstValid) and isinstance(expr.operands[-1], Literal) and not tv.is_output)

    def _by_readers(self, tv: TensorView) -> None:
        """What readers read of a tensor, as tensors of their own; of these, some in tiles."""
        readers = [u.output for u in storage_uses(self.fusion, tv) if has_code(self.fusion, u) and not (isinstance(u, Fold) or computes(u, SUM_OF_PRODUCTS))]
        readers = [r for k, r in enumerate(readers) if not among(r, readers[:k])]
        made: list[TensorView] = []
        for reader in readers:
            given = self.recorder.attempt(tv, "recompute", [reader]) if among(tv, self.fusion.tensors()) else None
            made += () if given is None else given
        for one in made:
            if not among(one, self.fusion.tensors()) or self.fusion.is_view(one):
                continue
            if windows_of(self.fusion, one):
                self._window(one)
            elif self.chooser.chance(80):
                self._shift(one, [x for x in made if x is not one])

    def _axes_of_shifts(self, tv: TensorView) -> list[int]:
        return [k for k in range(len(tv.root)) if not tv.root[k].is_reduction and shift_of(self.fusion, tv, k) is not None]

    def _shift(self, tv: TensorView, others: Sequence[TensorView] = ()) -> None:
        axes, tile = self._axes_of_shifts(tv), self.chooser.pick(TILES)
        if not axes:
            return
        k = self.chooser.pick(axes)
        own = [x for x in others if among(x, self.fusion.tensors()) and not self.fusion.is_view(x) and not x.is_output]
        alike = [x for x in own if isinstance(tiles_of(self.fusion, [tv, x], k, tile), Tiles)]
        made = self.recorder.attempt(tv, "tile_shifts", alike, k, tile)
        if made is not None and self.chooser.chance(40) and isinstance(self.fusion.definition(made), FirstValid):
            self._clamp(made)

    def _window(self, tv: TensorView) -> None:
        windows = windows_of(self.fusion, tv)
        if windows:
            made = self.recorder.attempt(tv, "tile_windows", self.chooser.pick(windows).windows, self.chooser.pick(TILES))
            if made is not None and self.chooser.chance(30) and isinstance(self.fusion.definition(made), FirstValid):
                self._clamp(made)

    def _clamp(self, tv: TensorView) -> None:
        self.recorder.attempt(tv, "clamp_read")

    # -- sums -----------------------------------------------------------------------------------------------------------------------

    def _drop(self, tv: TensorView) -> None:
        self.recorder.attempt(tv, "drop_axes")

    def _unroll(self, tv: TensorView) -> None:
        self.recorder.attempt(tv, "unroll_reduction")

    def _split_fold(self, tv: TensorView) -> None:
        self.recorder.attempt(tv, "split_fold", self.chooser.pick((2, 3, 4, 1)))

    def _split_reduction(self, tv: TensorView) -> None:
        """At the digits of an index that operands are read at, or at others that divide the axis."""
        expr = self.fusion.definition(tv)
        assert isinstance(expr, Reduction)
        found = digits(self.fusion, expr)
        if found is None:
            places = [(k, a.extent.value) for k, a in enumerate(tv.root) if a.is_reduction and isinstance(a.extent, Const) and a.extent.value > 1]
            if not places:
                return
            k, n = self.chooser.pick(places)
            found = k, self.chooser.pick([d for d in range(1, n + 1) if n % d == 0])
        self.recorder.attempt(tv, "split_reduction", *found)

    def _pack(self, tv: TensorView) -> None:
        expr = self.fusion.definition(tv)
        assert isinstance(expr, Reduction)
        k = self.chooser.pick([k for k, a in enumerate(tv.root) if a.is_reduction])
        operands = [[self.chooser.integer(0, len(expr.operands) - 1)]] if self.chooser.chance(30) else []
        self.recorder.attempt(tv, "pack_factors", k, 1 if operands else self.chooser.pick((4, 8, 1, 5)), *operands)

    def _chunk_product(self, tv: TensorView) -> None:
        if [a.is_reduction for a in tv.root] == [False, False, True] and all(isinstance(a.extent, Const) for a in tv.root):
            tile = tuple(self.chooser.pick(sizes) for sizes in ((2, 4, 3, 8), (4, 2, 3, 8), (2, 3, 4, 1)))
            self.recorder.attempt(tv, "chunk_product", order_of_shares(self.chooser), tile)


def order_of_shares(chooser: Chooser) -> SpelledArgument:
    """Which blocks compute which parts of the tiles of a product."""
    name, count = chooser.pick(("stream_k", "split_k")), chooser.pick((3, 2, 5, 1, 4, 7))
    return SpelledArgument(f"tf.tiles.{name}({count})", getattr(tf.tiles, name)(count))
