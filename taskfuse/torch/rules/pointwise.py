"""Elementwise ops whose signatures differ from taskfuse's: scaled sums, bounds, roundings, activations."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from taskfuse import ops
from taskfuse.dtypes import DType, bool_, float8_e4m3, float32, float64
from taskfuse.ir.scalar import Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.torch.metadata import Meta, Quotient, Refused
from taskfuse.torch.rules.call import AtenCall, Made, computed_in, converted, filled, fitted, number, promoted, rule


def _number(value: Any, dtype: DType) -> Any:
    """An operand in a dtype: a tensor, or a number."""
    if isinstance(value, TensorView):
        return converted(value, dtype)
    if isinstance(value, Expr | Quotient):
        return filled(value, dtype)
    return float(value) if dtype.is_float else int(value) if dtype.is_integer else bool(value)


@rule("add", "sub", "rsub")
def sums(call: AtenCall) -> Made:
    """``self + alpha * other``."""
    a, b, alpha = call["self"], call["other"], call.get("alpha", 1)
    if call.name == "rsub":
        a, b = b, a
    dtype = computed_in(call.out.dtype, [a, b])
    if not (isinstance(alpha, int | float) and alpha == 1):  # the product is not rounded before it is added
        dtype = dtype.compute
        scaled, factor = (a, b) if call.name == "rsub" else (b, a)
        product = ops.mul(_number(scaled, dtype), _number(alpha, dtype)) if isinstance(scaled, TensorView | Quotient) else _number(scaled * alpha, dtype)
        a, b = (product, factor) if call.name == "rsub" else (factor, product)
        if call.name == "rsub":
            a, b = call["other"], ops.mul(_number(call["self"], dtype), _number(alpha, dtype))
    x, y = _number(a, dtype), _number(b, dtype)
    if dtype is bool_ and call.name != "add":
        raise Refused("a difference of bools")
    return ops.add(x, y) if call.name == "add" else ops.sub(x, y)


@rule("div")
def division(call: AtenCall) -> Made:
    """A quotient, or one rounded down or towards zero."""
    a, b, mode = call["self"], call["other"], call.get("rounding_mode")
    dtype = computed_in(call.out.dtype, [a, b])
    x, y = _number(a, dtype), _number(b, dtype)
    if mode is None:
        return ops.div(x, y)
    if mode == "floor":
        return ops.floor_divide(x, y)
    return ops.trunc_divide(x, y)


@rule("where.self", "where.ScalarOther", "where.ScalarSelf")
def selection(call: AtenCall) -> Made:
    """``self`` where ``condition``, else ``other``."""
    return ops.where(call["condition"], _number(call["self"], call.out.dtype), _number(call["other"], call.out.dtype))


def _in(x: TensorView, out: Meta) -> TensorView:
    """``x`` in the dtype of a result. What ``float8_e4m3`` lacks, infinity included, becomes its greatest number or NaN, as torch says on that device."""
    if out.dtype is float8_e4m3 and x.dtype is not float8_e4m3 and saturates(out.device.partition(":")[0]):
        most = float(float8_e4m3.max_value)
        x = ops.maximum(ops.minimum(converted(x, float32 if x.dtype is not float64 else float64), most), -most)
    return ops.cast(x, out.dtype)


@cache
def saturates(device: str) -> bool:
    """Whether torch's conversions to ``float8_e4m3`` on a type of device make its greatest number of what is greater: its releases differ."""
    with unset_fake_temporarily(), torch.no_grad():
        return math.isfinite(torch.full((), 1e9, device=device).to(torch.float8_e4m3fn).float().item())


@rule("_to_copy", "convert_element_type", "to")
def conversion(call: AtenCall) -> Made:
    """Another dtype, on the same device."""
    call.get("dtype")
    call.get("non_blocking")
    if call.get("device") is not None and call.given["self"].fusion is not None and call.outs[0] is None:
        raise Refused("it moves to another device")
    return _in(call.tensor("self" if "self" in call.given else "a"), call.out)


@rule("clone", "alias", "detach", "lift_fresh_copy", "contiguous")
def same(call: AtenCall) -> Made:
    """The same elements."""
    return ops.copy(call.tensor("self"))


@rule("copy")
def replaced(call: AtenCall) -> Made:
    """The elements of ``src`` in the place of all of ``self``."""
    call.get("non_blocking")
    call.passed -= {"self"}  # of which only the shape and the dtype count
    return ops.broadcast_to(_in(call.tensor("src"), call.out), list(call.out.shape))


@rule("clamp", "clamp_min", "clamp_max", "hardtanh")
def bounds(call: AtenCall) -> Made:
    """Elements between bounds that are numbers or tensors; NaN stays."""
    low, high = (call.get(name) if name in call.given else call.get(f"{name}_val") for name in ("min", "max"))
    dtype = computed_in(call.out.dtype, [low, high])
    found = call.tensor("self", dtype)
    found = found if low is None else ops.maximum(found, _number(low, dtype))
    return found if high is None else ops.minimum(found, _number(high, dtype))


@rule("pow")
def power(call: AtenCall) -> Made:
    """A power; of exponents that are numbers, those that torch computes otherwise as it does."""
    base, exponent = call["self"], call["exponent"]
    dtype = computed_in(call.out.dtype, [base, exponent])
    if isinstance(exponent, int | float) and not isinstance(exponent, bool) and isinstance(base, TensorView):
        x = converted(base, dtype)
        if exponent == 2:
            return ops.square(x)
        if dtype.is_float:
            wide = converted(x, dtype.compute)
            match float(exponent):
                case 0.5:
                    return ops.sqrt(wide)
                case -0.5:
                    return ops.rsqrt(wide)
                case -1.0:
                    return ops.reciprocal(wide)
                case 3.0:
                    return ops.mul(ops.square(wide), wide)
                case 1.0:
                    return ops.copy(x)
                case _:
                    pass
        if dtype.is_integer and exponent < 0:
            raise Refused("a negative power of integers")
    return ops.pow(_number(base, dtype), _number(exponent, dtype))


@rule("gelu")
def gelu(call: AtenCall) -> Made:
    """gelu, exact or by tanh."""
    x = call.tensor("self")
    return ops.gelu_tanh(x) if call.get("approximate", "none") == "tanh" else ops.gelu(x)


@rule("leaky_relu")
def leaky_relu(call: AtenCall) -> Made:
    """``x`` or its multiple."""
    x = converted(call.tensor("self"), call.out.dtype.compute)
    return ops.where(ops.gt(x, 0.0), x, ops.mul(x, float(call["negative_slope"])))


@rule("elu")
def elu(call: AtenCall) -> Made:
    """elu with its scales."""
    x = converted(call.tensor("self"), call.out.dtype.compute)
    alpha, scale, inner = (float(call[name]) for name in ("alpha", "scale", "input_scale"))
    below = ops.mul(ops.expm1(x if inner == 1 else ops.mul(x, inner)), alpha * scale)
    return ops.where(ops.gt(x, 0.0), x if scale == 1 else ops.mul(x, scale), below)


@rule("round.decimals")
def rounding(call: AtenCall) -> Made:
    """Multiples of a power of ten, halves to even."""
    decimals, x = call["decimals"], call.tensor("self", call.out.dtype)
    if decimals and not x.dtype.is_float:
        raise Refused("it rounds integers to decimals")
    return ops.round(x, decimals)


@rule("polygamma")
def polygamma(call: AtenCall) -> Made:
    """A derivative of digamma, of a constant order."""
    return ops.polygamma(number(call["n"]), converted(call.tensor("self"), call.out.dtype.compute))


@rule("masked_fill")
def masked_fill(call: AtenCall) -> Made:
    """A number where a mask is set."""
    dtype = call.out.dtype
    return ops.where(fitted(call.tensor("mask"), call.out.shape), _number(call["value"], dtype), call.tensor("self", dtype))


@rule("nan_to_num")
def nan_to_num(call: AtenCall) -> Made:
    """NaN and infinities replaced."""
    nan, high, low = (call[name] for name in ("nan", "posinf", "neginf"))
    x = call.tensor("self")
    return ops.nan_to_num(x, 0.0 if nan is None else nan, high, low) if x.dtype.is_float else ops.copy(x)


@rule("logit")
def logit(call: AtenCall) -> Made:
    """``log(x / (1 - x))``."""
    x = converted(call.tensor("self"), call.out.dtype.compute)
    eps = call["eps"]
    x = x if eps is None else ops.minimum(ops.maximum(x, float(eps)), 1.0 - float(eps))
    return ops.log(ops.div(x, ops.sub(1.0, x)))


@rule("addcmul", "addcdiv")
def scaled_sum(call: AtenCall) -> Made:
    """``self + value * tensor1 * tensor2``, rounded once."""
    dtype = call.out.dtype.compute
    x, a, b = (call.tensor(name, dtype) for name in ("self", "tensor1", "tensor2"))
    value = call["value"]
    if value != 1:
        a = ops.mul(_number(value, dtype), a)
    return ops.add(x, ops.mul(a, b) if call.name == "addcmul" else ops.div(a, b))


@rule("_softmax_backward_data")
def softmax_backward(call: AtenCall) -> Made:
    """``(g - sum(g y)) y`` along a dimension."""
    g, y = (ops.cast(call.tensor(name), call.given[name].dtype.compute) for name in ("grad_output", "output"))
    axis = call.axis("dim", len(y.shape))
    call.get("input_dtype")
    term = ops.mul(g, y)
    return ops.sub(term, ops.mul(y, ops.sum(term, axis, keepdims=True)))


@rule("silu_backward")
def silu_backward(call: AtenCall) -> Made:
    """The gradient of silu."""
    g, x = (converted(call.tensor(name), call.out.dtype.compute) for name in ("grad_output", "self"))
    s = ops.sigmoid(x)
    return ops.mul(ops.mul(g, s), ops.add(ops.mul(x, ops.sub(1.0, s)), 1.0))


@rule("gelu_backward")
def gelu_backward(call: AtenCall) -> Made:
    """The gradient of gelu, exact or by tanh."""
    g, x = (converted(call.tensor(name), call.out.dtype.compute) for name in ("grad_output", "self"))
    if call.get("approximate", "none") == "tanh":
        beta, kappa = math.sqrt(2 / math.pi), 0.044715
        t = ops.tanh(ops.mul(ops.add(x, ops.mul(ops.mul(ops.square(x), x), kappa)), beta))
        slope = ops.mul(ops.add(ops.mul(ops.square(x), 3 * kappa), 1.0), beta)
        inner = ops.mul(ops.mul(ops.mul(x, 0.5), ops.sub(1.0, ops.square(t))), slope)
        return ops.mul(g, ops.add(ops.mul(ops.add(t, 1.0), 0.5), inner))
    cdf = ops.mul(ops.add(ops.erf(ops.mul(x, math.sqrt(0.5))), 1.0), 0.5)
    pdf = ops.mul(ops.exp(ops.mul(ops.square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return ops.mul(g, ops.add(cdf, ops.mul(x, pdf)))


@rule("threshold_backward")
def threshold_backward(call: AtenCall) -> Made:
    """The gradient where an element is above a threshold."""
    x, g = call.tensor("self"), call.tensor("grad_output", call.out.dtype)
    return ops.where(ops.le(x, _number(call["threshold"], x.dtype)), _number(0, call.out.dtype), g)


@rule("tanh_backward", "sigmoid_backward")
def saturating_backward(call: AtenCall) -> Made:
    """The gradients of tanh and sigmoid, from their results."""
    g, y = (converted(call.tensor(name), call.out.dtype.compute) for name in ("grad_output", "output"))
    return ops.mul(g, ops.sub(1.0, ops.square(y)) if call.name == "tanh_backward" else ops.mul(ops.sub(1.0, y), y))


@rule("native_dropout_backward")
def dropout_backward(call: AtenCall) -> Made:
    """The gradient of dropout, from its mask."""
    g = converted(call.tensor("grad_output"), call.out.dtype.compute)
    return ops.mul(ops.mul(g, converted(call.tensor("mask"), g.dtype)), float(call["scale"]))


@rule("sign", "sgn")
def signs(call: AtenCall) -> Made:
    """-1, 0 or 1; 0 of NaN, of which :func:`taskfuse.sign` is NaN."""
    x = call.tensor("self")
    if x.dtype is bool_:
        return ops.copy(x)
    return ops.where(ops.isnan(x), _number(0, x.dtype), ops.sign(x)) if x.dtype.is_float else ops.sign(x)


@rule("isposinf", "isneginf")
def infinities(call: AtenCall) -> Made:
    """Which elements are an infinity of one sign."""
    x = call.tensor("self")
    if not x.dtype.is_float:
        return ops.full(list(x.shape), False, bool_)
    return ops.eq(converted(x, float32 if x.dtype.bits < 32 else x.dtype), math.inf if call.name == "isposinf" else -math.inf)


def common(call: AtenCall, *names: str) -> DType:
    """The promoted dtype of arguments."""
    return promoted([call.given[name] for name in names])
