"""The persistent, warp-specialized matmul."""

from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.synchronization import Barrier
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.proofs import proved
from tests.schedulers.multiplied import KINDS
from tests.schedulers.products import TWO, Product, simulated
from tests.schedulers.several import of_several


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    """Rounds that are full, ragged, of one tile; clusters of which one block has nothing. Each kernel is proved for all sizes."""
    product = Product("rows bias", out=tf.float32) if "narrow" in kind or "three" in kind else Product("square residual bias")
    sizes = {"M": 130, "N": 72, "K": 72}, {"M": 1, "N": 8, "K": 8}
    proved(simulated(product, KINDS[kind], *sizes), *sizes)


@pytest.mark.parametrize(("columns", "piece"), [(32, 32), (48, 16), (80, 16), (112, 16), (176, 16), (160, 32)])
def test_pieces_of_tiles_of_all_widths(columns: int, piece: int) -> None:
    config = replace(TWO, tile_n=columns)
    assert config.columns == piece
    sizes = {"M": 130, "N": columns + 40, "K": 72}
    proved(simulated(Product("bias"), config, sizes), sizes)


@pytest.mark.parametrize("columns", [64, 128])
def test_tiles_that_divide_the_columns_are_proved_without_guards(columns: int) -> None:
    """Then only the order of tiles says that a column is inside: the number of the tile in its group over the rows of the group, these the last's."""
    with tf.Fusion("whole") as fusion:
        n, k = tf.dim("N", multiple_of=columns), tf.dim("K", multiple_of=8)
        a, b = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=name) for rows, name in (("M", "a"), (n, "b")))
        fusion.add_output(tf.matmul(a, b.T, dtype=tf.float32) + tf.define_tensor(["N"], name="bias"))
    tf.schedulers.matmul(fusion, replace(TWO, blocks=132))
    proved(tf.lower(fusion), {"M": 300, "N": 2 * columns, "K": 72})


@pytest.mark.parametrize(
    "config",
    [
        tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2),
        tf.schedulers.MatmulConfig(64, 32, stages=2, blocks=3, kind=tf.schedulers.MatmulKind.PINGPONG),
        tf.schedulers.MatmulConfig(64, 16, warpgroups=1, stages=2, blocks=1),
        tf.schedulers.MatmulConfig(64, 48, warpgroups=1, stages=2, blocks=1),
    ],
)
def test_rows_of_ragged_tiles_are_stored_in_pieces(config: tf.schedulers.MatmulConfig) -> None:
    """16 bytes of a thread, from where its warp staged them; rows of other tiles stay as they are. Also where the output is read again."""
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((150, 64), tf.bfloat16, name="a"), tf.define_tensor((3, 64, 64), tf.bfloat16, name="b")
        y = tf.grouped_matmul(a, tf.permute(b, [0, 2, 1]), tf.table("offsets", 4, 150, rising=True))
        fusion.add_output(tf.relu(y))
        if config.warpgroups == 1:
            fusion.add_output(y)
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, s).astype(tf.bfloat16.numpy) for s in ((150, 64), (3, 64, 64))]
    table = np.array([0, 5, 5, 150], np.int32)
    wanted = fusion.evaluate(*given, table)
    tf.schedulers.matmul(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    stores = [s for s in walk(kernel) if isinstance(s, VectorCopy) and s.out.buffer in {tv.name for tv in fusion.outputs}]
    assert {s.width for s in stores} == {8}
    assert not any("crosses TIDx" in s.note for s in walk(kernel) if isinstance(s, Barrier))
    assert all((found == w).all() for found, w in zip(kernel.simulate(*given, table), wanted, strict=True))


@pytest.mark.parametrize(
    ("form", "m", "config"),
    [
        ("gated", 150, tf.schedulers.MatmulConfig(64, 32, stages=2, blocks=2, kind=tf.schedulers.MatmulKind.PINGPONG)),
        ("added", "M", tf.schedulers.MatmulConfig(128, 32, stages=2, blocks=2)),
        ("taps", 70, tf.schedulers.MatmulConfig(64, 64, warpgroups=1, stages=3, blocks=3)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_several_contractions_of_one_tile(form: str, m: int | str, config: tf.schedulers.MatmulConfig) -> None:
    """Together, in turns, one after another, with views of one input; rows, columns and k that end inside of a tile."""
    k = 64 if form == "taps" else 72
    fusion = of_several(form, m, 72, k)
    chosen = tf.schedulers.matmul(fusion, config)
    kernel = proved(tf.lower(fusion), *([{"M": 1}, {"M": 130}] if isinstance(m, str) else []))
    assert len(kernel.mbarriers) == (2 if config.kind is tf.schedulers.MatmulKind.COOPERATIVE else 3)
    rng = np.random.default_rng(0)
    shapes = [[130 if str(e) == "M" else int(str(e)) for e in tv.shape] for tv in fusion.inputs]
    args = [rng.standard_normal(s).astype(tv.dtype.numpy) for s, tv in zip(shapes, fusion.inputs, strict=True)]
    for found, wanted in zip(kernel.simulate(*args, seed=2), fusion.evaluate(*args), strict=True):
        assert np.allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2**-6, atol=0.3 if form == "taps" else 0.02)
    again = of_several(form, m, 72, k)
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(fusion)


def test_planted_mistakes_in_several_contractions() -> None:
    """The product with the other factor, slots that are released before both have read them."""
    fusion = of_several("gated", 64, 64, 128)
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(64, 64, warpgroups=1, stages=2, in_flight=0, blocks=1))
    text = tf.lower(fusion).text(witness=True)
    line = next(line for line in text.splitlines() if "WGMMA" in line and "desc(tv12[" in line)
    for old, new in {line: line.replace("desc(tv12[", "desc(tv11["), "WAIT_GROUP wgmma <= 0": "WAIT_GROUP wgmma <= 1"}.items():
        assert old in text
        assert verify(parse_kernel(text.replace(old, new))).verdict is not Verdict.PROVED, new


@pytest.mark.parametrize(
    "config",
    [
        tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2),
        tf.schedulers.MatmulConfig(128, 48, stages=2, blocks=2),
        tf.schedulers.MatmulConfig(64, 32, warpgroups=1, stages=2, blocks=2, residents=2),
        tf.schedulers.MatmulConfig(64, 16, warpgroups=1, stages=2, blocks=1),
        tf.schedulers.MatmulConfig(64, 64, stages=2, blocks=2, kind=tf.schedulers.MatmulKind.PINGPONG),
    ],
)
def test_rows_of_odd_length_are_stored_element_by_element(config: tf.schedulers.MatmulConfig) -> None:
    """From where a warp staged them, neighbors by neighboring lanes; also of a batch, and where threads load a factor for the same reason."""
    with tf.Fusion("odd") as fusion:
        a, b = tf.define_tensor((2, 70, 64), tf.bfloat16, name="a"), tf.define_tensor((2, 77, 64), tf.bfloat16, name="b")
        fusion.add_output(tf.relu(a @ b.mT))
    tf.schedulers.matmul(fusion, config)
    kernel = tf.lower(fusion)
    assert verify(kernel).verdict is Verdict.PROVED
    assert kernel.residents == config.residents
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, (2, n, 64)).astype(tf.bfloat16.numpy) for n in (70, 77)]
    assert np.array_equal(kernel.simulate(*given, seed=0)[0], fusion.evaluate(*given)[0])
    unordered = parse_kernel("\n".join(line for line in str(kernel).splitlines() if not ("SYNC warp" in line and "crosses lanes" in line)))
    assert verify(unordered).verdict is not Verdict.PROVED


@pytest.mark.parametrize("kind", [MatmulKind.COOPERATIVE, MatmulKind.PINGPONG])
def test_a_bias_is_loaded_once_for_all_pieces_of_a_tile(kind: MatmulKind) -> None:
    """Each piece of 64 columns would wait for memory. All loads stand before the code that has the first sum."""
    fusion = Product("bias").fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(128, 128, stages=4, kind=kind))
    epilogue = str(tf.lower(fusion)).split("# consumer\n")[1].split("WAIT_GROUP wgmma <= 0")[1].splitlines()
    loads, first = (next(k for k, line in enumerate(epilogue) if text in line) for text in (" <- bias[", "= add"))
    depth = [len(line) - len(line.lstrip()) for line in epilogue]
    pieces = depth[next(k for k in range(loads, 0, -1) if "UNROLL" in epilogue[k] and depth[k] < depth[loads] - 8)]
    assert any(depth[k] <= pieces for k in range(loads + 1, first)), "both in one loop over pieces"


def test_a_residual_is_loaded_piece_by_piece() -> None:
    """It has elements of its own for each, more than registers hold."""
    fusion = Product("residual").fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(128, 128, stages=4))
    (load,) = (line for line in str(tf.lower(fusion)).splitlines() if " <- residual[" in line)
    assert load.strip().startswith("COPY tv12[i")
    assert load.count(",", 0, load.index("<-")) == 2, "no digit of pieces"


def test_a_bias_beside_160_accumulators_spills_nothing() -> None:
    fusion = Product("bias").fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(256, 160, stages=3))
    assert "spills     0 bytes stored" in str(tf.lower(fusion).resources(extents={"M": 2688, "N": 1792, "K": 3968}))
