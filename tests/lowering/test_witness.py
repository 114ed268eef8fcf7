"""The definitions that lowering writes mean what the fusion means: they are computed without it, and compared word for word."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.scalar import evaluate as evaluate_expr
from taskfuse.ir.values import MODULAR, NATIVE
from taskfuse.kir import Kernel
from taskfuse.kir.meaning import meaning
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.testing.definition_operators import DEFINITION_OPERATORS
from taskfuse.testing.options import Mix
from taskfuse.testing.outcomes import is_valid
from taskfuse.testing.value_faults import edit
from taskfuse.testing.value_subjects import equal, subjects
from tests.random_cases import PAIRS, random_case_of

EXAMPLES = ("founding", "horizontal_fusion", "nested_groups", "pipeline", "stream", "block_roles", "transpose", "cat:gather", "cat:scatter_horizontal")
Build = Callable[[], list[tf.TensorView]]
MOST = 1 << 20
"""Points of a definition, all of which are computed."""


def array(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).uniform(0.1, 1.0, shape).astype(np.float32)


def points(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """The points of the greatest space of a definition."""
    return max(math.prod(int(evaluate_expr(n, sizes)) for n in d.space) for d in kernel.definitions)


@pytest.mark.parametrize("mix", Mix, ids=lambda m: m.value)
def test_random_cases(mix: Mix) -> None:
    """Those that other tests look at, and one more: its seed is another one for each kind."""
    compared = 0
    for seed in dict.fromkeys((*PAIRS[mix], 2 + [*Mix].index(mix) % 6)):
        case = random_case_of(seed, mix)
        if case.kernel is not None and points(case.kernel, case.sizes) < MOST:
            arguments = case.arguments()
            assert equal(meaning(case.kernel, arguments, case.sizes), evaluate(case.plain, arguments, MODULAR)), seed
            compared += 1
    assert compared


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    for subject in subjects(name):
        for launch in subject.launches:
            assert equal(meaning(subject.kernel, launch.arguments, launch.extents), launch.exact)


def softmax_of_matmul() -> list[tf.TensorView]:
    a, b = tf.define_tensor([48, 32], name="a"), tf.define_tensor([32, 24], name="b")
    return [tf.softmax(tf.matmul(a, b), axis=1)]


def norm() -> list[tf.TensorView]:
    x, w = tf.define_tensor([24, 40], name="x"), tf.define_tensor([40], name="w")
    return [tf.layer_norm(x, axis=1) * w]


def totals() -> list[tf.TensorView]:
    x = tf.define_tensor([12, 20], name="x")
    return [tf.cumsum(x, 1), tf.permute(x, (1, 0))]


def joined() -> list[tf.TensorView]:
    x, y = tf.define_tensor([5, 6], name="x"), tf.define_tensor([7, 6], name="y")
    return [tf.cat([tf.exp(x), tf.sin(y)], 0)]


@pytest.mark.parametrize("build", [softmax_of_matmul, norm, totals, joined])
def test_what_schedulers_make(build: Build) -> None:
    """Exact in the ring; in ordinary numbers both round sums once, in orders of their own."""
    with tf.Fusion("f") as fusion:
        for out in build():
            fusion.add_output(out)
    for step in choose_segments(fusion).steps:
        kernel = tf.lower(step.fusion)
        arguments = [array(*(int(str(e)) for e in tv.shape)) for tv in step.fusion.inputs]
        assert equal(meaning(kernel, arguments, {}), evaluate(step.fusion, arguments, MODULAR))
        for found, wanted in zip(meaning(kernel, arguments, {}, NATIVE), evaluate(step.fusion, arguments, NATIVE), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


# -- the kill table -----------------------------------------------------------------------------------------------------------------


def mapped() -> list[tf.TensorView]:
    """Functions of operands, transposed, sliced, broadcast; a constant, an index, a run-time scalar."""
    x, y, z = (tf.define_tensor([4, 5], name=name) for name in "xyz")
    w = tf.define_tensor([5], name="w")
    return [tf.exp(x) - y / (w + 2.5), tf.permute(z, (1, 0)) * 3.0, tf.where(x < y, y, z[:, 1:2])]


def reduced() -> list[tf.TensorView]:
    return [tf.matmul(tf.define_tensor([4, 5], name="x"), tf.define_tensor([5, 6], name="y"))]


def scanned() -> list[tf.TensorView]:
    return [tf.cumsum(tf.define_tensor([4, 5], name="x"), 1)]


def chosen() -> list[tf.TensorView]:
    x, y = tf.define_tensor([4, 5], name="x"), tf.define_tensor([4, 5], name="y")
    return [tf.cat([tf.exp(x), tf.sin(y)], 0), tf.pad(x, ((0, 0), (1, 2)))]


@pytest.mark.parametrize("build", [mapped, reduced, scanned, chosen])
def test_mistakes_in_definitions_show(build: Build) -> None:
    """Each mutant of the definitions gives other words, or reads what there is not; or breaks a rule. Of a sum, no two factors move together."""
    kernel, arguments, wanted = lowered(build)
    assert equal(meaning(kernel, arguments, {}), wanted)
    survivors = [f"{op.name}: {edit(kernel, m)}" for op in DEFINITION_OPERATORS for m in op.apply(kernel) if not shows(m, arguments, wanted)]
    assert survivors == []


def test_every_operator_is_used() -> None:
    kernels = [lowered(build)[0] for build in (mapped, reduced, scanned, chosen)]
    assert [op.name for op in DEFINITION_OPERATORS if not any(True for k in kernels for _ in op.apply(k))] == []


def lowered(build: Build) -> tuple[Kernel, list[Any], tuple[Any, ...]]:
    with tf.Fusion("f") as fusion:
        for out in build():
            fusion.add_output(out)
    fusion.inline_most()
    rng = np.random.default_rng(1)
    arguments = [rng.uniform(0.1, 1.0, [int(str(e)) for e in tv.shape]).astype(np.float32) for tv in fusion.inputs]
    for given in arguments:
        given.flat[0] = 0.5  # some are equal
    return tf.lower(fusion), arguments, evaluate(fusion, arguments, MODULAR)


def shows(mutant: Kernel, arguments: list[Any], wanted: tuple[Any, ...]) -> bool:
    if not is_valid(mutant):
        return True
    try:
        return not equal(meaning(mutant, arguments, {}), wanted)
    except IndexError:
        return True
