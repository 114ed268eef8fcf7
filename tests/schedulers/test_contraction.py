"""The contraction of a fusion, found by structure: its axes, its factors, and what stands behind it."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ops.views import view
from taskfuse.schedulers.contraction import MatrixProduct, find
from tests.schedulers.contracted import factors, product, tensor
from tests.schedulers.fusions import Build
from tests.schedulers.tried import built


def test_axes_and_factors() -> None:
    p = find(built(lambda: [product()]))
    assert (p.axes.m, p.axes.n, p.axes.k, p.axes.batch) == (0, 1, 2, ())
    assert (p.a.tensor.name, p.a.position, p.a.is_k_major, p.a.is_bulk, p.a.size) == ("a", 0, True, True, 16)
    assert (p.b.tensor.name, p.b.position, p.b.is_k_major) == ("b", 1, True)
    assert (p.epilogue, p.sides, p.reductions, p.finals) == ((), (), (), ())
    assert [out.tensor for out in p.outputs] == [p.axes.result]
    assert not p.outputs[0].is_bulk  # 4 bytes
    assert p.outputs[0].is_paired


def test_the_contiguous_axis_of_the_output_is_the_columns() -> None:
    p = find(built(lambda: [tf.cast(product().T, tf.bfloat16)]))
    assert (p.axes.m, p.axes.n) == (1, 0)
    assert (p.a.tensor.name, p.b.tensor.name) == ("b", "a")
    assert (p.a.position, p.b.position) == (1, 0)


def test_rows_contiguous_and_odd_strides() -> None:
    def turned() -> list[tf.TensorView]:
        a, b = tensor("a", "K", tf.dim("M", multiple_of=4)), tensor("b", "N", "K")
        return [tf.matmul(a.T, b.T, dtype=tf.float32)]

    p = find(built(turned))
    assert (p.a.is_k_major, p.a.is_bulk, p.a.size) == (False, False, 8)
    assert (p.b.is_k_major, p.b.is_bulk, p.b.size) == (True, False, 2)
    assert not p.outputs[0].is_paired  # N may be odd


def test_batch_axes() -> None:
    def batched() -> list[tf.TensorView]:
        a, b = tensor("a", "B", "M", "K"), tensor("b", 1, "K", "N")
        return [tf.matmul(a, b, dtype=tf.float32)]

    p = find(built(batched))
    assert (p.axes.batch, p.axes.m, p.axes.n, p.axes.k) == ((0,), 1, 2, 3)


def two_sums() -> list[tf.TensorView]:
    a, b = factors()
    return [tf.matmul(a, b.T, dtype=tf.float32), tf.matmul(a, b.T, dtype=tf.float32)]


def of_integers() -> list[tf.TensorView]:
    c, d = (tensor(name, 64, 64, dtype=tf.int8) for name in "cd")
    return [tf.matmul(tensor("a", 64, 64), tensor("b", 64, 64), dtype=tf.float32) + tf.cast(tf.matmul(c, d.T, dtype=tf.int32), tf.float32)]


def at_two_places() -> list[tf.TensorView]:
    a, b = tensor("a", 64, 32), tensor("b", 32, 64)
    return [tf.matmul(a, b, dtype=tf.float32) + tf.matmul(tensor("c", 64, 32), b, dtype=tf.float32).T]


def of_other_types() -> list[tf.TensorView]:
    eight = [tensor(name, 64, 64, dtype=tf.float8_e4m3) for name in "cd"]
    return [tf.matmul(tensor("a", 64, 64), tensor("b", 64, 64), dtype=tf.float32) + tf.matmul(eight[0], eight[1].T, dtype=tf.float32)]


def reads_the_whole_again() -> list[tf.TensorView]:
    x = product()
    return [x / tf.expand_dims(tf.sum(x, axis=1), 1)]


def batch_sum() -> list[tf.TensorView]:
    return [tf.sum(tf.matmul(tensor("a", "B", "M", "K"), tensor("b", "B", "K", "N"), dtype=tf.float32), axis=0)]


def empty_rows() -> list[tf.TensorView]:
    return [tf.matmul(tensor("a", tf.dim("M", min=0), "K"), tensor("b", "K", "N"), dtype=tf.float32)]


def other_output() -> list[tf.TensorView]:
    return [product(), tf.exp(tensor("z", 8))]


def scan_behind() -> list[tf.TensorView]:
    return [tf.cumsum(product(), 1)]


def sliced_factor() -> list[tf.TensorView]:
    return [tf.matmul(tensor("a", 64, 128)[:, :64], tensor("b", 64, 32), dtype=tf.float32)]


def batch_contiguous() -> list[tf.TensorView]:
    return [tf.matmul(tensor("a", "M", "K", "B").permute(2, 0, 1), tensor("b", "B", "K", "N"), dtype=tf.float32)]


def gram() -> list[tf.TensorView]:
    x = tensor("x", 64, 64)
    return [tf.matmul(x, x.T, dtype=tf.float32) + x]


def shared_input() -> list[tf.TensorView]:
    bias = tensor("bias", "M", dtype=tf.float32)
    x = product() + tf.expand_dims(bias, 1)
    return [x, tf.sum(x, axis=1) + bias]


def turned_final() -> list[tf.TensorView]:
    x = tf.matmul(tensor("a", 64, 32), tensor("b", 32, 64), dtype=tf.float32)
    return [tf.sum(x, axis=1) * tf.sum(x, axis=0)]


REFUSED: dict[Build, str] = {
    two_sums: "it computes one tile at a time, and the results of 2 contractions are not combined",
    of_integers: "differs in shape or dtype from the tiles of",
    at_two_places: "reads products at two places",
    of_other_types: "differ in dtype",
    reads_the_whole_again: "a reduction of all tiles, which are complete when their registers are gone",
    batch_sum: "reduces batch axes, and neither rows nor columns",
    empty_rows: "the extent M of tv2 may be 0",
    other_output: "does not need the product",
    scan_behind: "is not computed element by element",
    sliced_factor: "reads a at [",
    batch_contiguous: "the last axis of a is a batch axis",
    gram: "x is read by more than the contraction",
    shared_input: "bias is read by the epilogue and after a reduction",
    turned_final: "along axes other than its own",
}


@pytest.mark.parametrize("build", REFUSED, ids=lambda f: f.__name__)
def test_refusals(build: Build) -> None:
    fusion = built(build)
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        find(fusion)
    assert REFUSED[build] in caught.value.message
    assert caught.value.message.startswith("a matmul schedule of fusion 'fusion' is not supported: ")
    assert caught.value.help
    assert str(fusion) == before


def grouped(rows: int = 150) -> tf.Fusion:
    with tf.Fusion("grouped") as fusion:
        a, b = tensor("a", rows, 64), tensor("b", 3, 64, 64)
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", 4, rows, rising=True), dtype=tf.float32))
    return fusion


def test_products_of_groups_of_rows() -> None:
    fusion = grouped()
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, s).astype(tf.bfloat16.numpy) for s in ((150, 64), (3, 64, 64)))
    table = np.array([0, 5, 5, 150], np.int32)
    (wanted,) = fusion.evaluate(a, b, table)
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert (kernel.simulate(a, b, table)[0] == wanted).all()


def test_factors_that_a_table_chooses() -> None:
    with tf.Fusion("chosen") as fusion:
        x, b, ids = tensor("x", 3, 64, 64), tensor("b", 4, 64, 64), tf.table("ids", 3, 3)
        i, j, k = (tf.scalar.sym(f"i{n}") for n in range(3))
        chosen = view(b, "chosen", tuple(map(tf.scalar.const, (3, 64, 64))), (tf.scalar.element(tf.scalar.sym(ids.name), i, 3, 0, 3), j, k))
        fusion.add_output(tf.matmul(x, chosen, dtype=tf.float32))
    tf.schedulers.matmul(fusion)
    tf.lower(fusion).verify().require()


def test_several_contractions_of_one_tile() -> None:
    """They walk along k together if they read one factor at the same places; a transposed one is another."""

    def found(turned: bool, k: int = 64) -> MatrixProduct:
        def build() -> list[tf.TensorView]:
            x, up, gate = tensor("x", 64, 64), tensor("up", 64, 64), tensor("gate", k, 64)
            y = x.T if turned else x if k == 64 else tensor("y", 64, k)
            return [tf.matmul(x, up, dtype=tf.float32) * tf.matmul(y, gate, dtype=tf.float32)]

        return find(built(build))

    together = found(False)
    assert [[operand.tensor.name for operand in two] for two in together.factors] == [["x", "up"], ["x", "gate"]]
    assert together.shares_steps
    assert [other.axes.k for other in together.beside] == [together.axes.k]
    assert not found(True).shares_steps
    assert not found(False, 128).shares_steps
