"""Losses and similarities, by torch's names and formulas.

Floats below 32 bits are computed in float32 throughout; the result is cast once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskfuse.dtypes import DType, result_type
from taskfuse.errors import shown
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, normalize_axis, shape_error, typed
from taskfuse.ops.composite import log_softmax
from taskfuse.ops.elementwise import abs, add, div, exp, log, log1p, lt, maximum, mul, ne, neg, sqrt, square, sub, where
from taskfuse.ops.gather import take_along_axis
from taskfuse.ops.keywords import axial
from taskfuse.ops.reduce import mean, sum
from taskfuse.ops.registry import OpKind, floating_only, op
from taskfuse.ops.special import xlogy
from taskfuse.ops.statistics import vector_norm
from taskfuse.ops.views import expand_dims, squeeze

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "normalize",
    "smooth_l1_loss",
]


def _floats(dtypes: Sequence[DType]) -> DType | None:
    """The promoted dtype of floats."""
    return result_type(*dtypes) if all(d.is_float for d in dtypes) else None


def _loss(op: str, x: TensorView, y: TensorView, reduction: str, terms: Callable[[TensorView, TensorView], TensorView]) -> TensorView:
    """Terms of two floats, all of them, or their sum or mean."""
    for tv in (x, y):
        check_tensor(op, tv)
        if not tv.dtype.is_float:
            raise dtype_error(op, f"{typed(tv)} is not a float", "cast to a float first")
    fusion, dtype = common_fusion(op, (x, y)), result_type(x.dtype, y.dtype)
    _check_reduction(op, reduction)
    with fusion.call():
        found = terms(cast_tensor(x, dtype.compute), cast_tensor(y, dtype.compute))
        return cast_tensor(_reduced(found, reduction), dtype)


def _check_reduction(op: str, reduction: str) -> None:
    if reduction not in ("none", "sum", "mean"):
        raise shape_error(op, f"{shown(reduction)} is not a reduction", 'use "none", "sum" or "mean"')


def _reduced(terms: TensorView, reduction: str) -> TensorView:
    return terms if reduction == "none" else mean(terms) if reduction == "mean" else sum(terms)


@op(OpKind.REDUCTION, _floats, numpy="")
def mse_loss(x: TensorView, y: TensorView, reduction: str = "mean") -> TensorView:
    """``(x - y)^2``: each one ("none"), their "sum" or "mean"."""
    return _loss("mse_loss", x, y, reduction, lambda a, b: square(sub(a, b)))


@op(OpKind.REDUCTION, _floats, numpy="")
def l1_loss(x: TensorView, y: TensorView, reduction: str = "mean") -> TensorView:
    """``abs(x - y)``; ``reduction`` as in :func:`mse_loss`."""
    return _loss("l1_loss", x, y, reduction, lambda a, b: abs(sub(a, b)))


@op(OpKind.REDUCTION, _floats, numpy="")
def huber_loss(x: TensorView, y: TensorView, reduction: str = "mean", delta: float = 1.0) -> TensorView:
    """``d^2 / 2`` for distances d below ``delta``, else ``delta * (d - delta / 2)`` (Huber, 1964); ``reduction`` as in :func:`mse_loss`."""

    def terms(a: TensorView, b: TensorView) -> TensorView:
        d = abs(sub(a, b))
        return where(lt(d, delta), mul(mul(d, 0.5), d), mul(sub(d, 0.5 * delta), delta))

    return _loss("huber_loss", x, y, reduction, terms)


@op(OpKind.REDUCTION, _floats, numpy="")
def smooth_l1_loss(x: TensorView, y: TensorView, reduction: str = "mean", beta: float = 1.0) -> TensorView:
    """``d^2 / (2 beta)`` for distances d below ``beta``, else ``d - beta / 2``; ``reduction`` as in :func:`mse_loss`."""
    if beta == 0:
        return l1_loss(x, y, reduction)

    def terms(a: TensorView, b: TensorView) -> TensorView:
        d = abs(sub(a, b))
        return where(lt(d, beta), div(mul(mul(d, d), 0.5), beta), sub(d, 0.5 * beta))

    return _loss("smooth_l1_loss", x, y, reduction, terms)


@op(OpKind.REDUCTION, _floats, numpy="")
def kl_div(x: TensorView, y: TensorView, reduction: str = "mean", log_target: bool = False) -> TensorView:
    """``y * (log(y) - x)`` of logarithms ``x`` and of probabilities ``y``, or their logarithms; ``reduction`` as in :func:`mse_loss`."""

    def terms(a: TensorView, b: TensorView) -> TensorView:
        return mul(exp(b), sub(b, a)) if log_target else sub(xlogy(b, b), mul(b, a))

    return _loss("kl_div", x, y, reduction, terms)


@op(OpKind.REDUCTION, _floats, numpy="")
def binary_cross_entropy(x: TensorView, y: TensorView, reduction: str = "mean") -> TensorView:
    """``-(y * log(x) + (1 - y) * log(1 - x))`` with logarithms of at least -100; ``reduction`` as in :func:`mse_loss`."""

    def terms(a: TensorView, b: TensorView) -> TensorView:
        return sub(mul(sub(b, 1.0), maximum(log1p(neg(a)), -100.0)), mul(b, maximum(log(a), -100.0)))

    return _loss("binary_cross_entropy", x, y, reduction, terms)


@op(OpKind.REDUCTION, _floats, numpy="")
def binary_cross_entropy_with_logits(x: TensorView, y: TensorView, reduction: str = "mean") -> TensorView:
    """:func:`binary_cross_entropy` of the sigmoid of ``x``, without overflow; ``reduction`` as in :func:`mse_loss`."""

    def terms(a: TensorView, b: TensorView) -> TensorView:
        return add(sub(maximum(a, 0.0), mul(a, b)), log1p(exp(neg(abs(a)))))

    return _loss("binary_cross_entropy_with_logits", x, y, reduction, terms)


def _classes(dtypes: Sequence[DType]) -> DType | None:
    return dtypes[0] if dtypes[0].is_float and all(d.is_integer and d.name != "uint64" for d in dtypes[1:]) else None


def _labelled(op: str, x: TensorView, target: TensorView, ignore_index: int, reduction: str, is_log: bool) -> TensorView:
    for tv in (x, target):
        check_tensor(op, tv)
    fusion = common_fusion(op, (x, target))
    if not x.dtype.is_float or not target.dtype.is_integer or target.dtype.name == "uint64":
        raise dtype_error(op, f"{typed(x)} are not floats, or {typed(target)} not class numbers", "give floats, and int64 targets")
    _check_reduction(op, reduction)
    place = 0 if x.ndim == 1 else 1
    if not x.ndim or target.shape != (*x.shape[:place], *x.shape[place + 1 :]):
        raise shape_error(op, f"{described(target)} are not targets of {described(x)}", "give [N, C, ...] and targets [N, ...]")
    with fusion.call():
        wide = cast_tensor(x, x.dtype.compute)
        values = wide if is_log else log_softmax(wide, place)
        is_counted = ne(target, ignore_index)
        chosen = squeeze(take_along_axis(values, expand_dims(where(is_counted, target, 0), place), place), place)
        terms = where(is_counted, neg(chosen), 0.0)
        if reduction == "mean":
            found = div(sum(terms), sum(cast_tensor(is_counted, terms.dtype)))
        else:
            found = _reduced(terms, reduction)
        return cast_tensor(found, x.dtype)


@op(OpKind.REDUCTION, _classes, torch="", numpy="")
def nll_loss(x: TensorView, target: TensorView, ignore_index: int = -100, reduction: str = "mean") -> TensorView:
    """The negative ``x`` at the class ``target``: ``x [N, C, ...]`` are logarithms of probabilities, ``target [N, ...]`` class numbers of [0, C).

    Elements whose target is ``ignore_index`` are 0, and do not count in the "mean". Raises :class:`ShapeError` and :class:`DTypeError` for other operands.
    """
    return _labelled("nll_loss", x, target, ignore_index, reduction, is_log=True)


@op(OpKind.REDUCTION, _classes, torch="", numpy="")
def cross_entropy(x: TensorView, target: TensorView, ignore_index: int = -100, reduction: str = "mean") -> TensorView:
    """:func:`nll_loss` of the :func:`log_softmax` of ``x`` over its classes."""
    return _labelled("cross_entropy", x, target, ignore_index, reduction, is_log=False)


@op(OpKind.COMPOSITE, _floats, numpy="")
@axial
def cosine_similarity(a: TensorView, b: TensorView, axis: int = 1, eps: float = 1e-8) -> TensorView:
    """The cosine of the angle between vectors along ``axis``, whose lengths count as at least ``eps``; the other dimensions broadcast."""
    for tv in (a, b):
        check_tensor("cosine_similarity", tv)
        if not tv.dtype.is_float:
            raise dtype_error("cosine_similarity", f"{typed(tv)} is not a float", "cast to a float first")
    fusion, dtype = common_fusion("cosine_similarity", (a, b)), result_type(a.dtype, b.dtype)
    place = normalize_axis("cosine_similarity", axis, a.ndim, described(a))
    with fusion.call():
        x, y = (cast_tensor(tv, dtype.compute) for tv in (a, b))
        x, y = (div(tv, maximum(sqrt(sum(square(tv), axis, keepdims=True)), float(eps))) for tv in (x, y))
        return cast_tensor(sum(mul(x, y), place), dtype)


@op(OpKind.COMPOSITE, floating_only, torch="normalize", numpy="")
@axial
def normalize(x: TensorView, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> TensorView:
    """``x`` divided by its norm of order ``p`` along ``axis``, which counts as at least ``eps``. Raises :class:`DTypeError` unless ``x`` is a float."""
    check_tensor("normalize", x)
    if not x.dtype.is_float:
        raise dtype_error("normalize", f"{typed(x)} is not a float", "cast to a float first")
    place = normalize_axis("normalize", axis, x.ndim, described(x))
    with x.fusion.call():
        wide = cast_tensor(x, x.dtype.compute)
        return cast_tensor(div(wide, maximum(vector_norm(wide, p, place, keepdims=True), float(eps))), x.dtype)
