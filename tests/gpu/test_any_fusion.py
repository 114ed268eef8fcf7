"""Kernels of kinds that automatic schedules took many times as long for: products of short sums and of odd rows, padded factors, patches, nearest points,
sums of few columns, updates of rows."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.calls import Math, Of

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf

Case = tuple[Math, Of[Any, Any], tuple[tuple[int, ...], ...]]


def compiled(build: Math, arguments: list[Any]) -> Any:
    with tf.Fusion("kind") as fusion:
        inputs = [tf.define_tensor(list(a.shape), str(a.dtype).removeprefix("torch.")) for a in arguments]
        fusion.add_output(build(*inputs))
    return tf.compile(fusion, cache=False)


def integers(*shape: int) -> Any:
    """Small ones, of which products and sums are exact in bfloat16 and float32 where they are few."""
    return torch.randint(-1, 2, shape, device="cuda").to(torch.bfloat16)


CASES: dict[str, Case] = {
    "interactions": (lambda a, b: a @ b.mT, lambda a, b: a @ b.mT, ((300, 27, 64), (300, 27, 64))),
    "heads of 197 tokens": (lambda a, b: a @ b, lambda a, b: a @ b, ((96, 197, 197), (96, 197, 64))),
    "scores of 197 tokens": (lambda a, b: a @ b.mT, lambda a, b: a @ b.mT, ((96, 197, 64), (96, 197, 64))),
    "odd widths": (lambda a, b: tf.relu(a) @ b, lambda a, b: torch.relu(a) @ b, ((4096, 123), (123, 777))),
}


@pytest.mark.parametrize("name", CASES)
def test_products(name: str) -> None:
    build, wanted, shapes = CASES[name]
    given = [integers(*shape) for shape in shapes]
    (found,) = compiled(build, given)(*given)
    assert torch.equal(found, wanted(*(a.double() for a in given)).to(torch.bfloat16))


@pytest.mark.parametrize("channels", [16, 48])
def test_patches_become_an_image(channels: int) -> None:
    x = torch.randn(4, 1024, 4 * channels, device="cuda", dtype=torch.bfloat16)

    def image(a: Any, reshape: Callable[..., Any], permute: Callable[..., Any]) -> Any:
        return reshape(permute(reshape(a, [4, 32, 32, 2, 2, channels]), [0, 5, 1, 3, 2, 4]), [4, channels, 64, 64])

    (found,) = compiled(lambda a: image(a, tf.reshape, tf.permute), [x])(x)
    assert torch.equal(found, image(x, torch.reshape, torch.permute))


def test_nearest_points() -> None:
    a, b = (torch.rand(n, 3, device="cuda") for n in (2048, 1500))

    def build(p: tf.TensorView, q: tf.TensorView) -> tf.TensorView:
        return tf.min(tf.sum(tf.square(tf.expand_dims(p, 1) - tf.expand_dims(q, 0)), 2), 0)

    (found,) = compiled(build, [a, b])(a, b)
    wanted = (a.double()[:, None] - b.double()[None]).square().sum(2).amin(0)
    assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("columns", [768, 2304])
def test_sums_of_few_columns(columns: int) -> None:
    x = torch.randn(1576, columns, device="cuda", dtype=torch.bfloat16)
    (found,) = compiled(lambda a: tf.sum(tf.cast(a, tf.float32), 0), [x])(x)
    assert torch.allclose(found.double(), x.double().sum(0), rtol=1e-4, atol=1e-2)


def test_rows_are_gathered_and_added_up_at_once() -> None:
    x, source, target = torch.randint(-4, 5, (4096, 64), device="cuda").float(), *(torch.randint(0, 4096, (65536,), device="cuda") for _ in range(2))
    (found,) = compiled(lambda a, s, t: tf.segment_sum(tf.take(a, s, 0), t, 4096), [x, source, target])(x, source, target)
    assert torch.equal(found, torch.zeros_like(x).index_add_(0, target, x[source]))
