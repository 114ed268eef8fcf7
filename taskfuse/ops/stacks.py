"""Tensors side by side, and in other arrangements: stacks of rows and columns, grids of coordinates, quarter turns, pixels and channels exchanged."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.errors import shown
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import check_tensor, common_fusion, described, listed, normalize_axis, shape_error
from taskfuse.ops.keywords import axial
from taskfuse.ops.rearrange import count, swapaxes
from taskfuse.ops.registry import OpKind, op, promoted, same
from taskfuse.ops.select import cat
from taskfuse.ops.views import broadcast_to, expand_dims, flip, permute, reshape

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "channel_shuffle",
    "column_stack",
    "dstack",
    "fliplr",
    "flipud",
    "hstack",
    "meshgrid",
    "pixel_shuffle",
    "pixel_unshuffle",
    "rot90",
    "unbind",
    "vstack",
]


def _checked(op: str, tensors: Sequence[TensorView]) -> list[TensorView]:
    given = [check_tensor(op, tv) for tv in listed(op, tensors, "tensors")]
    if not given:
        raise shape_error(op, "needs at least one tensor")
    common_fusion(op, given)
    return given


@op(OpKind.VIEW, same)
def atleast_1d(x: TensorView) -> TensorView:
    """``x``, with a dimension of extent 1 if it has none: a view."""
    check_tensor("atleast_1d", x)
    return x if x.ndim else expand_dims(x, 0)


@op(OpKind.VIEW, same)
def atleast_2d(x: TensorView) -> TensorView:
    """``x``, with leading dimensions of extent 1 up to two: a view."""
    check_tensor("atleast_2d", x)
    return x if x.ndim > 1 else expand_dims(atleast_1d(x), 0)


@op(OpKind.ASSEMBLY, promoted)
def hstack(tensors: Sequence[TensorView]) -> TensorView:
    """``tensors`` one after another along dimension 1; vectors and numbers along dimension 0."""
    given = [atleast_1d(tv) for tv in _checked("hstack", tensors)]
    return cat(given, 0 if given[0].ndim == 1 else 1)


@op(OpKind.ASSEMBLY, promoted, torch="vstack row_stack")
def vstack(tensors: Sequence[TensorView]) -> TensorView:
    """``tensors`` one after another along dimension 0; vectors and numbers are rows."""
    return cat([atleast_2d(tv) for tv in _checked("vstack", tensors)], 0)


@op(OpKind.ASSEMBLY, promoted)
def dstack(tensors: Sequence[TensorView]) -> TensorView:
    """``tensors`` one after another along dimension 2; vectors and matrices have extent 1 there."""
    given = [atleast_2d(tv) for tv in _checked("dstack", tensors)]
    return cat([tv if tv.ndim > 2 else expand_dims(tv, 2) for tv in given], 2)


@op(OpKind.ASSEMBLY, promoted)
def column_stack(tensors: Sequence[TensorView]) -> TensorView:
    """``tensors`` one after another along dimension 1; vectors and numbers are columns."""
    given = [atleast_1d(tv) for tv in _checked("column_stack", tensors)]
    return cat([expand_dims(tv, 1) if tv.ndim == 1 else tv for tv in given], 1)


@op(OpKind.VIEW, same)
def meshgrid(*tensors: TensorView, indexing: str = "xy") -> tuple[TensorView, ...]:
    """Vectors as the coordinates of a grid, each broadcast to all of its dimensions: views. With "xy", the first two dimensions are exchanged.

    The default is NumPy's; in torch it is "ij".

    Raises :class:`ShapeError` for another word, or a tensor that is not a vector.
    """
    given = [atleast_1d(tv) for tv in _checked("meshgrid", tensors)]
    if indexing not in ("xy", "ij") or any(tv.ndim > 1 for tv in given):
        raise shape_error("meshgrid", f"indexing={shown(indexing)} of {', '.join(map(described, given))}", 'give vectors, and "xy" or "ij"')
    with given[0].fusion.call():
        shape = [tv.shape[0] for tv in given]
        found: list[TensorView] = []
        for k, tv in enumerate(given):
            whole = broadcast_to(expand_dims(tv, tuple(d for d in range(len(given)) if d != k)), shape)
            found.append(swapaxes(whole, 0, 1) if indexing == "xy" and len(given) > 1 else whole)
        return tuple(found)


@op(OpKind.VIEW, same, numpy="unstack")
@axial
def unbind(x: TensorView, axis: int = 0) -> tuple[TensorView, ...]:
    """The slices of ``x`` along ``axis``, without that dimension: views. Raises :class:`ShapeError` unless its extent is constant."""
    check_tensor("unbind", x)
    place = normalize_axis("unbind", axis, x.ndim, described(x))
    size = x.shape[place]
    if size.free:
        raise shape_error("unbind", f"dimension {place} of {described(x)} is symbolic", "give a constant extent")
    return tuple(x[tuple(k if d == place else slice(None) for d in range(x.ndim))] for k in range(int(size)))


@op(OpKind.VIEW, same)
def fliplr(x: TensorView) -> TensorView:
    """``x`` with the order of its elements reversed along dimension 1: a view."""
    check_tensor("fliplr", x)
    normalize_axis("fliplr", 1, x.ndim, described(x))
    return flip(x, 1)


@op(OpKind.VIEW, same)
def flipud(x: TensorView) -> TensorView:
    """``x`` with the order of its elements reversed along dimension 0: a view."""
    check_tensor("flipud", x)
    normalize_axis("flipud", 0, x.ndim, described(x))
    return flip(x, 0)


@op(OpKind.VIEW, same)
def rot90(x: TensorView, k: int = 1, axes: tuple[int, int] = (0, 1)) -> TensorView:
    """``x`` turned ``k`` times by 90 degrees, from the first of ``axes`` towards the second: a view. Raises :class:`ShapeError` if the axes are equal."""
    check_tensor("rot90", x)
    a, b = (normalize_axis("rot90", d, x.ndim, described(x)) for d in axes)
    if a == b:
        raise shape_error("rot90", f"axes {axes} of {described(x)} are the same axis", "give two dimensions")
    match k % 4:
        case 0:
            return flip(x, ())
        case 1:
            return swapaxes(flip(x, b), a, b)
        case 2:
            return flip(x, (a, b))
        case _:
            return flip(swapaxes(x, a, b), b)


@op(OpKind.VIEW, same, numpy="")
def pixel_shuffle(x: TensorView, factor: int) -> TensorView:
    """``x [..., C r r, H, W]`` as ``[..., C, H r, W r]`` for ``factor`` r: a view (Shi et al., "Real-Time Single Image Super-Resolution", 2016).

    Raises :class:`ShapeError` unless the square of ``factor`` provably divides the channels.
    """
    check_tensor("pixel_shuffle", x)
    r = count("pixel_shuffle", "factor", factor, 1)
    if x.ndim < 3:
        raise shape_error("pixel_shuffle", f"{described(x)} has fewer than three dimensions", "give at least three dimensions")
    *lead, c, h, w = x.shape
    with x.fusion.call():
        parts = reshape(x, [*lead, c // (r * r), r, r, h, w])
        n = len(lead)
        return reshape(permute(parts, [*range(n), n, n + 3, n + 1, n + 4, n + 2]), [*lead, c // (r * r), h * r, w * r])


@op(OpKind.VIEW, same, numpy="")
def pixel_unshuffle(x: TensorView, factor: int) -> TensorView:
    """The inverse of :func:`pixel_shuffle`. Raises :class:`ShapeError` unless ``factor`` provably divides rows and columns."""
    check_tensor("pixel_unshuffle", x)
    r = count("pixel_unshuffle", "factor", factor, 1)
    if x.ndim < 3:
        raise shape_error("pixel_unshuffle", f"{described(x)} has fewer than three dimensions", "give at least three dimensions")
    *lead, c, h, w = x.shape
    with x.fusion.call():
        parts = reshape(x, [*lead, c, h // r, r, w // r, r])
        n = len(lead)
        return reshape(permute(parts, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), [*lead, c * (r * r), h // r, w // r])


@op(OpKind.VIEW, same, torch="channel_shuffle native_channel_shuffle", numpy="")
def channel_shuffle(x: TensorView, groups: int) -> TensorView:
    """``x [N, C, ...]`` with the channels of ``groups`` groups interleaved: a view (Zhang, Zhou, Lin, Sun, "ShuffleNet", 2018).

    Raises :class:`ShapeError` unless ``groups`` provably divides the channels.
    """
    check_tensor("channel_shuffle", x)
    g = count("channel_shuffle", "number of groups", groups, 1)
    if x.ndim < 2:
        raise shape_error("channel_shuffle", f"{described(x)} has fewer than two dimensions", "give at least two dimensions")
    n, c, *rest = x.shape
    with x.fusion.call():
        return reshape(swapaxes(reshape(x, [n, g, c // g, *rest]), 1, 2), list(x.shape))
