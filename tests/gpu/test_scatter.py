"""Writes at computed indices against torch, in both forms: random, hostile and no indices at all."""

from typing import Any

import pytest

from tests.calls import Math

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers.scatter import is_updated

HOSTILE = [-(2**31), 2**31 - 1, -1, 0, 4, 5, -5, -6, 3, 3, 3]


def compiled(build: Math, *arguments: Any, gather: bool = False) -> Any:
    """A fusion of inputs like the arguments, compiled; ``gather``: its updates in gather form."""
    with tf.Fusion("scatter") as fusion:
        inputs = [tf.define_tensor(list(a.shape), str(a.dtype).removeprefix("torch.")) for a in arguments]
        fusion.add_output(build(*inputs))
    updated = [tv for tv in fusion.tensors() if is_updated(fusion, tv)]
    assert updated or gather
    for tv in updated if gather else ():
        tv.unscatter()
    return tf.compile(fusion)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bfloat16", "float16"])
def test_index_add(dtype: str, gather: bool) -> None:
    kind = getattr(torch, dtype)
    x, s = (torch.randint(-8, 8, (n, 96), device="cuda").to(kind) for n in (300, 1000))
    i = torch.randint(0, 300, (1000,), device="cuda")
    run = compiled(lambda a, b, c: tf.index_add(a, 0, b, c), x, i, s, gather=gather)
    (found,) = run(x, i, s)
    wide = x.double().index_add(0, i, s.double())
    assert torch.equal(found, wide.to(kind))  # sums of small integers are exact in float32


@pytest.mark.parametrize("gather", [False, True])
def test_hostile_indices_write_nothing_outside(gather: bool) -> None:
    i = torch.tensor(HOSTILE, dtype=torch.int32, device="cuda")
    x, s = torch.zeros(5, 64, device="cuda"), torch.ones(len(HOSTILE), 64, device="cuda")
    (found,) = compiled(lambda a, b, c: tf.index_add(a, 0, b, c), x, i, s, gather=gather)(x, i, s)
    wanted = [0.0] * 5
    for k in HOSTILE:
        if -5 <= k < 5:
            wanted[k] += 1
    assert found[:, 7].tolist() == wanted
    (counts,) = compiled(lambda b: tf.bincount(b, 5), i, gather=gather)(i)
    assert counts.tolist() == [HOSTILE.count(k) for k in range(5)]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("columns", [4, 6, 5])
def test_neighbors_of_rows_are_updated_together(columns: int, apart: bool) -> None:
    """By 4, 2 and 1; also of arguments that are columns of wider tensors, at addresses that no vector has."""
    wide = [torch.randint(-8, 8, (n, columns + 3 * apart), device="cuda").float() for n in (50, 3000)]
    x, s = (t[:, apart : columns + apart] for t in wide)
    i = torch.randint(-60, 60, (3000,), device="cuda", dtype=torch.int32)
    run = compiled(lambda a, b, c: tf.index_add(a, 0, b, c), x, i, s)
    kept = (i >= -50) & (i < 50)
    wanted = x.double().index_add(0, i[kept].remainder(50), s[kept].double())
    for _ in range(20):
        assert torch.equal(run(x, i, s)[0].double(), wanted)


def test_other_writes() -> None:
    x, i = torch.randn(200, 40, device="cuda"), torch.randint(0, 200, (300, 40), device="cuda")
    s = torch.randn(300, 40, device="cuda")
    (found,) = compiled(lambda a, b, c: tf.scatter_add(a, 0, b, c), x, i, s)(x, i, s)
    assert torch.allclose(found, x.scatter_add(0, i, s), rtol=1e-4, atol=1e-4)
    (found,) = compiled(lambda a, b, c: tf.scatter_reduce(a, 0, b, c, "amax"), x, i, s, gather=True)(x, i, s)
    assert torch.equal(found, x.scatter_reduce(0, i, s, "amax"))
    unique = torch.stack([torch.randperm(200, device="cuda") for _ in range(40)], 1)
    (found,) = compiled(lambda a, b, c: tf.scatter(a, 0, b, c), x, unique, s[:200], gather=True)(x, unique, s[:200])
    assert torch.equal(found, x.scatter(0, unique, s[:200]))
    j, k, v = torch.randint(0, 200, (64, 1), device="cuda"), torch.randint(0, 40, (1, 8), device="cuda"), torch.randn(64, 8, device="cuda")
    (found,) = compiled(lambda a, b, c, d: tf.index_put(a, [b, c], d, accumulate=True), x, j, k, v)(x, j, k, v)
    assert torch.allclose(found, x.index_put((j, k), v, accumulate=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gather", [False, True])
def test_the_last_of_several_writes(gather: bool) -> None:
    """Rows of a cache, several of them to one place, from the end and past it: the last one stays, at every launch."""
    x, s = torch.randn(300, 96, device="cuda"), torch.randn(1000, 96, device="cuda")
    i = torch.randint(-320, 320, (1000,), device="cuda")
    run = compiled(lambda a, b, c: tf.index_put(a, [b], c), x, i, s, gather=gather)
    wanted = x.clone()
    for k, place in enumerate(i.tolist()):
        if -300 <= place < 300:
            wanted[place] = s[k]
    for _ in range(20):
        assert torch.equal(run(x, i, s)[0], wanted)


def test_any_number_of_points() -> None:
    with tf.Fusion("embedding_backward") as fusion:
        gradient, tokens = tf.define_tensor([tf.dim("N", min=0), 128]), tf.define_tensor([tf.dim("N", min=0)], "int64")
        fusion.add_output(tf.segment_sum(gradient, tokens, 100))
    run = tf.compile(fusion)
    for n in (0, 1, 7, 1000, 4097):
        g, t = torch.randint(-8, 8, (n, 128), device="cuda").float(), torch.randint(-3, 103, (n,), device="cuda")
        (found,) = run(g, t)
        kept = (t >= 0) & (t < 100)
        assert torch.equal(found, torch.zeros(100, 128, device="cuda").index_add(0, t[kept], g[kept]))
