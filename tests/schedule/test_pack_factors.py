"""pack_factors: the math stays, for layouts, dtypes, batches, shared factors, symbolic extents; kernels of it are proved; refused with a reason."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.scalar import Expr
from taskfuse.ir.values import MODULAR
from tests.errors import untyped

RNG = np.random.default_rng(0)


def product(k: int | tf.Dim, spec: str = "mk,kn->mn", dtype: tf.DType = tf.float32, b: int = 2) -> tuple[tf.Fusion, tf.TensorView]:
    name = k if isinstance(k, int) else k.name
    extents: dict[str, Any] = {"m": 3, "n": 5, "b": b}
    left, right = spec.split("->")[0].split(",")
    with tf.Fusion("product") as fusion:
        x = tf.define_tensor([extents.get(c, k) for c in left], dtype=dtype, name="x")
        y = tf.define_tensor([extents.get(c, name) for c in right], dtype=dtype, name="y")
        z = tf.einsum(spec, x, y, dtype=tf.int32 if dtype is tf.int8 else tf.float32)
        fusion.add_output(tf.neg(z))
    return fusion, z


def reduced(tv: tf.TensorView) -> int:
    return next(p for p, a in enumerate(tv.root) if a.is_reduction)


def numbers(fusion: tf.Fusion, k: int) -> list[Any]:
    return [RNG.integers(-3, 4, [k if str(e) == "K" else int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int8])
@pytest.mark.parametrize("spec", ["mk,kn->mn", "km,nk->mn", "bmk,kn->bmn", "bkm,bnk->bmn", "mk,bkn->bmn", "kbm,kn->nbm"])
@pytest.mark.parametrize("k", [1, 7, 8])
def test_the_math_stays(spec: str, dtype: tf.DType, k: int) -> None:
    fusion, z = product(k, spec, dtype)
    given = numbers(fusion, k)
    wanted = evaluate(fusion, given, MODULAR)
    made = z.pack_factors(reduced(z), 8)
    assert [str(tv.shape[-1]) for tv in made] == ["8", "8"]
    assert len(made) == 2
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted[0])
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_an_axis_of_such_a_length_is_only_copied() -> None:
    fusion, z = product(tf.dim("K", multiple_of=4), "km,kn->mn")
    made = z.pack_factors(2, 4, [1])
    assert [[str(e) for e in tv.shape] for tv in made] == [["5", "K"]]
    assert "copy" in str(made[0].definition)
    assert str(z.root[2].extent) == "K"
    for k in (4, 8):
        x, y = numbers(fusion, k)
        assert np.array_equal(fusion.evaluate(x, y)[0], -(x.T @ y))


@pytest.mark.parametrize("spec", ["mk,kn->mn", "km,nk->mn"])
def test_kernels_of_any_k_are_proved_and_right(spec: str) -> None:
    fusion, z = product(tf.dim("K", min=1), spec)
    for made in z.pack_factors(2, 8):
        made.set_memory_type(tf.MemoryType.Global)
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    assert certificate.is_proved
    assert "rewritings: 1 of 1" in str(certificate)
    for k in (1, 8, 11):
        x, y = numbers(fusion, k)
        assert np.array_equal(kernel.simulate(x, y)[0], -np.einsum(spec, x, y))


@pytest.mark.parametrize("spec", ["mk,kn->mn", "bmk,bnk->bmn"])
def test_the_reduced_axis_before_the_last(spec: str) -> None:
    fusion, z = product(tf.dim("K", min=1), spec)
    for made in z.pack_factors(reduced(z), 8, turned=True):
        assert "K" in str(made.shape[-2])
        made.set_memory_type(tf.MemoryType.Global)
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    assert certificate.is_proved
    assert "rewritings: 1 of 1" in str(certificate)
    for k in (1, 11):
        x, y = numbers(fusion, k)
        assert np.array_equal(kernel.simulate(x, y)[0], -np.einsum(spec, x, y))


@pytest.mark.parametrize(("k", "operands", "n"), [(tf.dim("K", multiple_of=16), [1], 48), (tf.dim("K", min=1), None, 37)])
def test_terms_in_the_order_of_accumulators(k: tf.Dim, operands: list[int] | None, n: int) -> None:
    fusion, z = product(k, dtype=tf.float8_e4m3)
    for made in z.pack_factors(2, 16, operands, as_columns=True):
        made.set_memory_type(tf.MemoryType.Global)
        assert "16*(i1//16) + 8*(i1//2 % 2) + 2*(i1//4 % 4) + i1 % 2" in str(made.definition)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    assert certificate.is_proved
    assert "rewritings: 1 of 1" in str(certificate)
    x, y = numbers(fusion, n)
    assert np.array_equal(kernel.simulate(x, y)[0], -(x.astype(np.float32) @ y.astype(np.float32)))


def test_terms_of_16_bits_are_in_that_order_already() -> None:
    fusion, z = product(16, dtype=tf.bfloat16)
    (made,) = z.pack_factors(2, 16, [1], as_columns=True)
    assert "%" not in str(made.definition)
    assert "%" not in str(fusion.definition(z))


@pytest.mark.parametrize("turned", [False, True])
def test_factors_that_are_alike_share_a_copy(turned: bool) -> None:
    with tf.Fusion("gram") as fusion:
        x, y = tf.define_tensor([3, 7], name="x"), tf.define_tensor([3, 7], name="y")
        both, apart = x @ x.T, x @ y.T
        fusion.add_output(both + apart)
    given = numbers(fusion, 7)
    wanted = fusion.evaluate(*given)[0]
    copies = both.pack_factors(2, 8, turned=turned), apart.pack_factors(2, 8, turned=turned)
    assert [len(made) for made in copies] == [1, 2]
    for made in (*copies[0], *copies[1]):
        made.set_memory_type(tf.MemoryType.Global)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert np.array_equal(kernel.simulate(*given)[0], wanted)


def test_a_factor_that_ends_early_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that loses the last element is no proof's blind spot."""
    import taskfuse.schedule.pack_factors as module

    lt = module.lt

    def short(a: Expr, b: Expr) -> Expr:
        return lt(a, b - 1)

    monkeypatch.setattr(module, "lt", short)
    fusion, z = product(7)
    for made in z.pack_factors(2, 8):
        made.set_memory_type(tf.MemoryType.Global)
    assert tf.lower(fusion).verify().verdict.value == "refuted"


def test_products_in_tasks_keep_their_tasks() -> None:
    fusion, z = product(7)
    task = fusion.task([z])
    for made in z.pack_factors(2, 8):
        assert made.task is task
    fusion.check()


REFUSED: list[tuple[Callable[[tf.TensorView], object], str]] = [
    (lambda z: z.pack_factors(0, 8), "axis 0 of tv3 is not a reduction axis"),
    (lambda z: z.pack_factors(2, 0), "a multiple of 0"),
    (lambda z: z.pack_factors(2, 8, [0]), "8 does not divide the axis of 7, and an operand has no zeros past its end"),
    (lambda z: z.pack_factors(2, 8, [2]), "it has no operand 2"),
    (lambda z: z.pack_factors(2, 8, untyped(3)), "it has no operand 3"),
    (lambda z: z.pack_factors(2, 8, untyped([[0]])), "it has no operand [0]"),
    (lambda z: z.pack_factors(2, 8, [True]), "it has no operand True"),
    (lambda z: z.pack_factors(2, 8, untyped(0.5)), "0.5 is not a list of operands"),
    (lambda z: z.pack_factors(2, 8, []), "it has no operand to pack"),
    (lambda z: z.pack_factors(2, 8, turned=untyped(1)), "turned is 1"),
    (lambda z: z.pack_factors(2, 16, as_columns=untyped(1)), "as_columns is 1"),
    (lambda z: z.pack_factors(2, 8, as_columns=True), "a multiple of 8, of terms in the order of columns"),
]


@pytest.mark.parametrize(
    ("change", "reason"),
    REFUSED,
)
def test_what_is_refused(change: Callable[[tf.TensorView], object], reason: str) -> None:
    fusion, z = product(7)
    z.set_name("tv3")
    before = str(fusion)
    with pytest.raises(ScheduleError) as error:
        change(z)
    assert reason in str(error.value)
    assert str(fusion) == before


def test_a_product_with_a_schedule_is_refused() -> None:
    _, z = product(7)
    z.split(2, 4)
    with pytest.raises(ScheduleError, match="the loops of z are not the axes of its math"):
        z.named("z").pack_factors(2, 8)


def test_sums_of_anything_else_are_refused() -> None:
    with tf.Fusion("sums") as fusion:
        x = tf.define_tensor([3, 7], name="x")
        y = tf.sum(x, axis=1)
        fusion.add_output(y)
    with pytest.raises(ScheduleError, match="is not a sum of products of tensors along axis 1"):
        y.pack_factors(1, 8)
