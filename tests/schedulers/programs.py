"""Programs as people write them in torch, in taskfuse: which scheduler takes which is a test; how fast they are, ``benchmarks/programs.py`` measures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import taskfuse as tf

HALF, WIDE, INDEX = tf.bfloat16, tf.float32, tf.int64
Outputs = list[tf.TensorView]


@dataclass(frozen=True)
class Program:
    """A fusion of given extents.

    Attributes:
        build: defines the inputs and returns the outputs.
        schedulers: of its kernels.
        small, large: arguments of ``build``, for the simulator and for a GPU.
        below: what the values of an integer input stay below: the name of an extent.
    """

    build: Callable[..., Outputs]
    schedulers: str
    small: Mapping[str, int]
    large: Mapping[str, int]
    below: Mapping[str, str] = field(default_factory=dict[str, str])

    def fusion(self, sizes: Mapping[str, int]) -> tf.Fusion:
        with tf.Fusion(self.build.__name__) as fusion:
            for out in self.build(**sizes):
                fusion.add_output(out)
        return fusion

    def arguments(self, fusion: tf.Fusion, sizes: Mapping[str, int], rng: np.random.Generator) -> list[npt.NDArray[Any]]:
        """Random ones: floats in [0.1, 1)."""
        found: list[npt.NDArray[Any]] = []
        for tv in fusion.inputs:
            shape = [int(str(e)) for e in tv.shape]
            if tv.dtype.is_float:
                found.append(rng.uniform(0.1, 1.0, shape).astype(tv.dtype.numpy))
            else:
                found.append(rng.integers(0, sizes[self.below[tv.name]] if tv.name in self.below else 2, shape).astype(tv.dtype.numpy))
        return found


def tensor(name: str, *shape: int | str, dtype: tf.DType = WIDE) -> tf.TensorView:
    return tf.define_tensor(list(shape), dtype=dtype, name=name)


# -- indices ----------------------------------------------------------------------------------------------------------------------------


def embedding(V: int, N: int, D: int) -> Outputs:
    return [tf.take(tensor("weights", V, D, dtype=HALF), tensor("tokens", N, dtype=INDEX), 0) * 2.0 + tensor("residual", N, D, dtype=HALF)]


def embedding_norm(V: int, N: int, D: int) -> Outputs:
    rows = tf.take(tensor("weights", V, D, dtype=HALF), tensor("tokens", N, dtype=INDEX), 0)
    return [tf.layer_norm(rows, tensor("scale", D), tensor("bias", D), 1)]


def embedding_bag(V: int, N: int, S: int, D: int) -> Outputs:
    return [tf.sum(tf.take(tensor("weights", V, D, dtype=HALF), tensor("tokens", N, S, dtype=INDEX), 0), 1)]


def permuted_rows(M: int, N: int, K: int) -> Outputs:
    return [tensor("x", M, N, dtype=HALF)[tensor("order", K, dtype=INDEX)] * tf.expand_dims(tensor("scale", K, dtype=HALF), 1)]


def gathered_columns(M: int, N: int, K: int) -> Outputs:
    return [tf.take_along_axis(tensor("x", M, N), tensor("columns", M, K, dtype=INDEX), 1)]


def one_hot(N: int, C: int) -> Outputs:
    return [tf.one_hot(tensor("classes", N, dtype=INDEX), C)]


def cross_entropy(N: int, C: int) -> Outputs:
    picked = tf.take_along_axis(tf.log_softmax(tensor("x", N, C), 1), tf.expand_dims(tensor("classes", N, dtype=INDEX), 1), 1)
    return [tf.neg(tf.squeeze(picked, 1))]


def mean_cross_entropy(N: int, C: int) -> Outputs:
    picked = tf.take_along_axis(tf.log_softmax(tensor("x", N, C, dtype=HALF), 1), tf.expand_dims(tensor("classes", N, dtype=INDEX), 1), 1)
    return [tf.mean(tf.neg(picked))]


# -- rows -------------------------------------------------------------------------------------------------------------------------------


def softmax_middle(B: int, N: int, C: int) -> Outputs:
    return [tf.softmax(tensor("x", B, N, C), 1)]


def log_softmax(N: int, C: int) -> Outputs:
    return [tf.log_softmax(tensor("x", N, C), 1)]


def causal_softmax(B: int, N: int) -> Outputs:
    scores = tf.cast(tensor("x", B, N, N, dtype=HALF), WIDE) * 0.125
    return [tf.cast(tf.softmax(tf.where(tf.arange(N) <= tf.expand_dims(tf.arange(N), 1), scores, -1e30), 2), HALF)]


def layer_norm_of_two(N: int, H: int, W: int) -> Outputs:
    return [tf.layer_norm(tensor("x", N, H, W), tensor("scale", H, W), tensor("bias", H, W), (1, 2))]


def residual_rms_norm(N: int, C: int) -> Outputs:
    total = tensor("x", N, C, dtype=HALF) + tensor("residual", N, C, dtype=HALF)
    return [total, tf.rms_norm(total, tensor("scale", C, dtype=HALF), 1)]


def batch_norm(N: int, C: int, H: int) -> Outputs:
    return [tf.layer_norm(tensor("x", N, C, H, H), tensor("scale", C, 1, 1), tensor("bias", C, 1, 1), (0, 2, 3))]


def group_norm(N: int, C: int, H: int, G: int) -> Outputs:
    groups = tf.reshape(tensor("x", N, C, H, H), [N, G, C // G, H, H])
    flat = tf.reshape(tf.layer_norm(groups, axis=(2, 3, 4)), [N, C, H, H])
    return [tf.silu(flat * tensor("scale", C, 1, 1) + tensor("bias", C, 1, 1))]


def softmax_of_one(N: int, C: int) -> Outputs:
    return [tf.softmax(tf.expand_dims(tensor("x", N, C), 2), (1, 2))]


def mean_of_one(N: int, C: int) -> Outputs:
    return [tf.mean(tensor("x", N, 1, C), 1) * 2.0]


def argmax(N: int, C: int) -> Outputs:
    return [tf.argmax(tensor("x", N, C), 1)]


def argmin_of_columns(N: int, C: int) -> Outputs:
    return [tf.argmin(tensor("x", N, C), 0)]


def quantized(N: int, C: int) -> Outputs:
    x = tf.cast(tensor("x", N, C, dtype=HALF), WIDE)
    scale = tf.max(tf.abs(x), 1, keepdims=True) * (1 / 127.0)
    return [tf.cast(tf.round(x / scale), tf.int8), tf.squeeze(scale, 1)]


def weighted_experts(B: int, S: int, E: int, D: int) -> Outputs:
    return [tf.sum(tensor("x", B, S, E, D) * tf.expand_dims(tensor("weights", B, S, E), 3), 2)]


def distances(N: int, M: int, D: int) -> Outputs:
    return [tf.sum(tf.square(tf.expand_dims(tensor("x", N, D), 1) - tf.expand_dims(tensor("y", M, D), 0)), 2)]


def max_pool(N: int, C: int, H: int) -> Outputs:
    return [tf.max(tf.reshape(tensor("x", N, C, H, H), [N, C, H // 2, 2, H // 2, 2]), (3, 5))]


# -- elementwise ------------------------------------------------------------------------------------------------------------------------


def rope(B: int, S: int, H: int, D: int) -> Outputs:
    x, cos, sin = tensor("x", B, S, H, D, dtype=HALF), tensor("cos", S, 1, D), tensor("sin", S, 1, D)
    turned = tf.cat([tf.neg(x[..., D // 2 :]), x[..., : D // 2]], 3)
    return [tf.cast(x * cos + turned * sin, HALF)]


def rope_of_pairs(B: int, S: int, H: int, D: int) -> Outputs:
    pairs, cos, sin = tf.reshape(tensor("x", B, S, H, D), [B, S, H, D // 2, 2]), tensor("cos", S, 1, D // 2), tensor("sin", S, 1, D // 2)
    a, b = pairs[..., 0], pairs[..., 1]
    return [tf.reshape(tf.stack([a * cos - b * sin, a * sin + b * cos], 4), [B, S, H, D])]


def swiglu(N: int, H: int) -> Outputs:
    x = tensor("x", N, 2 * H, dtype=HALF)
    return [tf.silu(x[:, :H]) * x[:, H:]]


def patches(N: int, C: int, H: int, P: int) -> Outputs:
    x = tf.reshape(tensor("x", N, C, H, H), [N, C, H // P, P, H // P, P])
    return [tf.copy(tf.reshape(x.permute(0, 2, 4, 1, 3, 5), [N, (H // P) * (H // P), C * P * P]))]


def key_cache(B: int, S: int, N: int, D: int) -> Outputs:
    return [tf.cat([tensor("past", B, S, D, dtype=HALF), tensor("new", B, N, D, dtype=HALF)], 1)]


def depthwise_conv(B: int, S: int, C: int) -> Outputs:
    x, weights = tf.pad(tensor("x", B, S, C), [(0, 0), (3, 0), (0, 0)]), tensor("weights", 4, C)
    total = x[:, :S] * weights[0]
    for k in range(1, 4):
        total = total + x[:, k : k + S] * weights[k]
    return [tf.silu(total)]


# -- products ---------------------------------------------------------------------------------------------------------------------------


def gram(N: int, K: int) -> Outputs:
    x = tensor("x", N, K, dtype=HALF)
    return [x @ x.T]


def gram_in_float32(N: int, K: int) -> Outputs:
    x = tensor("x", N, K)
    return [x @ x.T]


def covariance(N: int, K: int) -> Outputs:
    x = tensor("x", K, N, dtype=HALF)
    return [(x.T @ x) * (1.0 / K)]


def squared(N: int) -> Outputs:
    x = tensor("x", N, N, dtype=HALF)
    return [x @ x]


def relu_product(M: int, N: int, K: int) -> Outputs:
    return [tf.relu(tensor("a", M, K, dtype=HALF)) @ tensor("b", K, N, dtype=HALF)]


def int8_product(M: int, N: int, K: int) -> Outputs:
    return [tensor("a", M, K, dtype=HALF) @ (tf.cast(tensor("b", K, N, dtype=tf.int8), HALF) * tensor("scale", N, dtype=HALF))]


def norm_product(M: int, N: int, K: int) -> Outputs:
    return [tf.rms_norm(tensor("x", M, K, dtype=HALF), tensor("scale", K, dtype=HALF)) @ tensor("b", K, N, dtype=HALF)]


def gated_mlp(M: int, N: int, K: int) -> Outputs:
    x = tensor("x", M, K, dtype=HALF)
    return [tf.silu(x @ tensor("up", K, N, dtype=HALF)) * (x @ tensor("gate", K, N, dtype=HALF))]


def flat_linear(B: int, S: int, C: int, N: int) -> Outputs:
    return [tf.reshape(tf.reshape(tensor("x", B, S, C, dtype=HALF), [B * S, C]) @ tensor("weights", C, N, dtype=HALF), [B, S, N])]


def head_scores(B: int, S: int, H: int, D: int) -> Outputs:
    q, k = (tf.reshape(tensor(name, B, S, H * D, dtype=HALF), [B, S, H, D]) for name in "qk")
    return [tf.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1))]


def packed_scores(B: int, S: int, D: int) -> Outputs:
    packed = tensor("qkv", B, S, 3 * D, dtype=HALF)
    return [tf.matmul(packed[:, :, :D], packed[:, :, D : 2 * D].permute(0, 2, 1))]


def attention(B: int, S: int, D: int) -> Outputs:
    q, k, v = (tensor(name, B, S, D, dtype=HALF) for name in "qkv")
    return [tf.matmul(tf.softmax(tf.matmul(q, k.permute(0, 2, 1)) * 0.125, 2), v)]


def conv1d(B: int, S: int, C: int, N: int) -> Outputs:
    x, weights = tensor("x", B, S + 2, C, dtype=HALF), tensor("weights", 3, C, N, dtype=HALF)
    return [x[:, :S] @ weights[0] + x[:, 1 : S + 1] @ weights[1] + x[:, 2:] @ weights[2]]


ALIKE = (
    Program(embedding, "pointwise", dict(V=10, N=6, D=16), dict(V=50000, N=8192, D=4096), {"tokens": "V"}),
    Program(embedding_norm, "normalization", dict(V=10, N=6, D=16), dict(V=50000, N=8192, D=4096), {"tokens": "V"}),
    Program(embedding_bag, "reduction", dict(V=10, N=6, S=4, D=16), dict(V=50000, N=8192, S=16, D=1024), {"tokens": "V"}),
    Program(permuted_rows, "pointwise", dict(M=6, N=16, K=8), dict(M=16384, N=4096, K=16384), {"order": "M"}),
    Program(gathered_columns, "pointwise", dict(M=6, N=12, K=8), dict(M=8192, N=8192, K=4096), {"columns": "N"}),
    Program(one_hot, "pointwise", dict(N=6, C=8), dict(N=16384, C=4096), {"classes": "C"}),
    Program(cross_entropy, "normalization", dict(N=6, C=16), dict(N=8192, C=32768), {"classes": "C"}),
    Program(mean_cross_entropy, "normalization+reduction", dict(N=6, C=16), dict(N=8192, C=32768), {"classes": "C"}),
    Program(softmax_middle, "normalization", dict(B=2, N=6, C=16), dict(B=16, N=1024, C=4096)),
    Program(log_softmax, "normalization", dict(N=6, C=16), dict(N=8192, C=8192)),
    Program(causal_softmax, "normalization", dict(B=2, N=16), dict(B=32, N=2048)),
    Program(layer_norm_of_two, "normalization", dict(N=6, H=4, W=8), dict(N=4096, H=64, W=128)),
    Program(residual_rms_norm, "normalization", dict(N=6, C=16), dict(N=8192, C=8192)),
    Program(batch_norm, "normalization", dict(N=2, C=8, H=4), dict(N=64, C=128, H=64)),
    Program(softmax_of_one, "normalization", dict(N=6, C=16), dict(N=8192, C=8192)),
    Program(mean_of_one, "pointwise", dict(N=6, C=16), dict(N=8192, C=8192)),
    Program(argmax, "normalization", dict(N=6, C=16), dict(N=8192, C=8192)),
    Program(argmin_of_columns, "normalization", dict(N=6, C=16), dict(N=8192, C=8192)),
    Program(quantized, "normalization", dict(N=6, C=16), dict(N=16384, C=4096)),
    Program(weighted_experts, "reduction", dict(B=2, S=4, E=4, D=8), dict(B=8, S=4096, E=8, D=2048)),
    Program(distances, "simt_gemm", dict(N=16, M=12, D=8), dict(N=2048, M=2048, D=128)),
    Program(max_pool, "reduction", dict(N=2, C=3, H=8), dict(N=32, C=128, H=128)),
    Program(rope, "cat", dict(B=2, S=4, H=2, D=8), dict(B=4, S=4096, H=32, D=128)),
    Program(rope_of_pairs, "pointwise", dict(B=2, S=4, H=2, D=8), dict(B=4, S=4096, H=32, D=128)),
    Program(swiglu, "pointwise", dict(N=6, H=8), dict(N=8192, H=8192)),
    Program(patches, "pointwise", dict(N=2, C=3, H=8, P=4), dict(N=64, C=16, H=224, P=16)),
    Program(key_cache, "cat", dict(B=2, S=6, N=2, D=8), dict(B=32, S=2048, N=64, D=1024)),
    Program(depthwise_conv, "pointwise", dict(B=2, S=8, C=8), dict(B=8, S=4096, C=2048)),
    Program(gram, "matmul", dict(N=64, K=32), dict(N=4096, K=4096)),
    Program(gram_in_float32, "simt_gemm", dict(N=32, K=32), dict(N=4096, K=4096)),
    Program(covariance, "matmul", dict(N=64, K=32), dict(N=4096, K=4096)),
    Program(squared, "matmul", dict(N=64), dict(N=4096)),
)
"""Those that the same schedulers take at small and at large extents."""
BIG = (
    Program(group_norm, "normalization+pointwise", dict(N=2, C=8, H=4, G=2), dict(N=32, C=256, H=64, G=32)),
    Program(relu_product, "matmul", dict(M=16, N=16, K=16), dict(M=8192, N=8192, K=8192)),
    Program(int8_product, "pointwise+matmul", dict(M=16, N=16, K=16), dict(M=8192, N=8192, K=8192)),
    Program(norm_product, "normalization+matmul", dict(M=16, N=16, K=16), dict(M=8192, N=8192, K=2048)),
    Program(gated_mlp, "matmul", dict(M=16, N=16, K=16), dict(M=8192, N=8192, K=2048)),
    Program(flat_linear, "matmul", dict(B=2, S=8, C=16, N=16), dict(B=8, S=4096, C=1024, N=1024)),
    Program(head_scores, "matmul", dict(B=1, S=16, H=2, D=16), dict(B=8, S=2048, H=32, D=128)),
    Program(packed_scores, "matmul", dict(B=2, S=16, D=16), dict(B=32, S=2048, D=128)),
    Program(attention, "attention", dict(B=1, S=16, D=16), dict(B=32, S=2048, D=128)),
    Program(conv1d, "matmul", dict(B=1, S=16, C=16, N=16), dict(B=8, S=4096, C=1024, N=1024)),
)
"""Those that are cut, or taken by the scheduler that they are for, at large extents only."""
