"""Fusions with reductions, random arguments for them, and what is accepted of the results."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.kir.walk import walk
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers import RowConfig
from taskfuse.testing.tolerance import accepted
from tests.proofs import proved

Array = npt.NDArray[Any]
Shape = tuple[int | str | tf.Dim, ...]


def tensor(name: str, shape: Shape, dtype: tf.DType) -> tf.TensorView:
    return tf.define_tensor(list(shape), dtype=dtype, name=name)


def along(shape: Shape, axis: int) -> Shape:
    """The shape of a tensor that has one axis only, and broadcasts."""
    return tuple(e if d == axis % len(shape) else 1 for d, e in enumerate(shape)) if axis % len(shape) < len(shape) - 1 else shape[-1:]


def softmax(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return [tf.softmax(x, axis)]


def log_softmax(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return [tf.log_softmax(x, axis)]


def layer_norm(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    weight, bias = (tensor(name, along(shape, axis), x.dtype) for name in ("weight", "bias"))
    return [tf.layer_norm(x, weight, bias, axis)]


def rms_norm(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return [tf.rms_norm(x, tensor("weight", along(shape, axis), x.dtype), axis)]


def residual_norm(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    """The sum is an output, too."""
    total = x + tensor("residual", shape, x.dtype)
    return [total, tf.rms_norm(total, None, axis)]


def gated_norm(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    gate = tensor("gate", shape, x.dtype)
    return [tf.rms_norm(x, None, axis) * (gate * tf.sigmoid(gate))]


def two_norms(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return [tf.layer_norm(tf.rms_norm(x, None, axis), None, None, axis)]


def statistics(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return [tf.mean(x, axis), tf.var(x, axis)]


def total(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return [tf.sum(x, axis)]


def extremes(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    y = tf.abs(x)
    return [tf.max(y, axis), tf.min(x, axis), tf.neg(tf.sum(y, axis))]


Kind = Callable[[tf.TensorView, Shape, int], list[tf.TensorView]]
NORMS: tuple[Kind, ...] = (softmax, log_softmax, layer_norm, rms_norm, residual_norm, gated_norm, two_norms, statistics)
SUMS: tuple[Kind, ...] = (total, extremes)


def make(kind: Kind, shape: Shape, dtype: tf.DType = tf.bfloat16, axis: int = -1) -> tf.Fusion:
    """The fusion, without a schedule."""
    with tf.Fusion(kind.__name__) as fusion:
        for out in kind(tensor("x", shape, dtype), shape, axis):
            fusion.add_output(out)
    return fusion


def scheduler(kind: Kind) -> Callable[..., tf.schedulers.Chosen[RowConfig]]:
    return tf.schedulers.reduction if kind in SUMS else tf.schedulers.normalization


def arguments(fusion: tf.Fusion, sizes: Mapping[str, int], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = [[tf.scalar.evaluate(e, sizes) for e in tv.shape] for tv in fusion.inputs]
    return [rng.normal(size=shape).astype(tv.dtype.numpy) for tv, shape in zip(fusion.inputs, shapes, strict=True)]


def check(fusion: tf.Fusion, config: RowConfig | None, *sizes: Mapping[str, int], seed: int = 0) -> tf.Kernel:
    """Schedule a copy, prove its kernel, and compare what it gives with NumPy."""
    ours, _ = copy_fusion(fusion)
    kind = next(k for k in (*NORMS, *SUMS) if k.__name__ == fusion.name)
    scheduler(kind)(ours, config, sizes=sizes[0] if sizes else None)
    kernel = tf.lower(ours)
    proved(kernel)
    for values in sizes or ({},):
        args = arguments(fusion, values, seed)
        for out, wanted in zip(kernel.simulate(*args, seed=seed), accepted(fusion, args), strict=True):
            assert not len(wanted.wrong(out)), f"{fusion.name} {values}: element {wanted.wrong(out)[0]}"
    return kernel


def barriers(kernel: tf.Kernel) -> list[BarrierScope]:
    """The scopes of a kernel's barriers, in the order of the text."""
    return [s.scope for s in walk(kernel) if isinstance(s, Barrier)]
