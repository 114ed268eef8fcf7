"""Parameters given by hand: what no scheduler can take is refused in a text of its own, and leaves the fusion as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import CatConfig, FallbackConfig, Form, MatmulConfig, PointwiseConfig, RowConfig, SimtGemmConfig, TransposeConfig

CONFIGS: list[Any] = [
    PointwiseConfig(4, 64, 1, 1),
    TransposeConfig(64, 256, 4, 4),
    CatConfig(Form.GATHER),
    RowConfig(),
    SimtGemmConfig(),
    MatmulConfig(),
    FallbackConfig(),
]
FIELDS = [(config, field.name) for config in CONFIGS for field in fields(config)]
IDS = [f"{type(config).__name__}.{name}" for config, name in FIELDS]


@pytest.mark.parametrize(("config", "name"), FIELDS, ids=IDS)
@pytest.mark.parametrize("value", [0, -1, True, 1.0, float("nan"), float("inf"), "2", (1,), [2], np.bool_(True)], ids=repr)
def test_no_value_of_another_kind(config: Any, name: str, value: object) -> None:
    if value == 0 and name in config.LEAST and not isinstance(value, bool | np.bool_):
        return
    if isinstance(getattr(config, name), bool) and value is True:
        return
    with pytest.raises(UnsupportedError, match=r"^this [A-Z][A-Za-z]+Config is not supported: ") as caught:
        replace(config, **{name: value})
    assert caught.value.message.splitlines()[0].endswith(f"{name} is {value!r}")
    assert caught.value.help
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


ONE: Any = 1
FOUR: Any = 4
TEXT: Any = "x"
GATHER: Any = "gather"
TEXTS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: PointwiseConfig(3, 64, 1, 1), "this PointwiseConfig is not supported: vector is 3", "use a power of two"),
    (lambda: PointwiseConfig(4, 512, 4, 1), "this PointwiseConfig is not supported: 512 x 4 threads", "a block has at most 1024 threads"),
    (lambda: PointwiseConfig(4, 64, 1, 1, flat=ONE), "this PointwiseConfig is not supported: flat is 1", "use True or False"),
    (lambda: CatConfig(GATHER), "this CatConfig is not supported: form is 'gather'", "use a tf.schedulers.Form"),
    (lambda: CatConfig(Form.GATHER, FOUR), "this CatConfig is not supported: loops is 4", "use a tf.schedulers.PointwiseConfig or None"),
    (lambda: TransposeConfig(48, 256, 4, 4), "this TransposeConfig is not supported: tile is 48", "use a power of two"),
    (
        lambda: TransposeConfig(2, 256, 4, 4),
        "this TransposeConfig is not supported: vectors of 4 in a tile of 2 x 2",
        "use a larger tile or smaller vectors",
    ),
    (
        lambda: TransposeConfig(64, 8, 4, 4),
        "this TransposeConfig is not supported: 8 threads",
        "a row of a tile takes 16, and a block has at most 1024",
    ),
    (lambda: FallbackConfig(1025), "this FallbackConfig is not supported: 1025 threads", "a block has at most 1024 threads"),
    (lambda: RowConfig(blocks=65536), "this RowConfig is not supported: 65536 blocks of each row", "a grid has at most 65535 along y"),
    (lambda: MatmulConfig(in_flight=-1), "this MatmulConfig is not supported: in_flight is -1", "use 0 or more"),
    (lambda: MatmulConfig(residents=2, cluster=2), "this MatmulConfig is not supported: residents = 2, and cluster = 2", "use residents=1"),
    (
        lambda: MatmulConfig(64, 128, warpgroups=1, residents=3),
        "this MatmulConfig is not supported: 3 blocks of a multiprocessor, whose threads have 88 registers and 64 accumulators each",
        "use fewer residents or a smaller tile",
    ),
    (lambda: RowConfig(keep=TEXT), "this RowConfig is not supported: keep is 'x'", "use a tf.schedulers.Keep"),
]


@pytest.mark.parametrize(("make", "text", "help"), TEXTS)
def test_texts(make: Callable[[], object], text: str, help: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        make()
    assert caught.value.message.splitlines()[0] == text
    assert caught.value.help == help


def scaled(name: str = "x") -> tf.Fusion:
    with tf.Fusion("scaled") as fusion:
        fusion.add_output(2 * tf.define_tensor([8, 64], name=name))
    return fusion


def test_integers_of_numpy_are_integers() -> None:
    numbers: dict[str, Any] = {"vector": np.int64(2), "columns": np.uint8(32), "rows": np.int32(1)}
    config = PointwiseConfig(**numbers, unroll=1)
    assert repr(config) == repr(PointwiseConfig(2, 32, 1, 1))
    assert "np." not in tf.schedulers.pointwise(scaled(), config).code


def test_parameters_that_do_not_suit_leave_the_fusion_as_it_was() -> None:
    """Vectors of the parameters' size are legal, but not of these elements: that is found half way through the schedule."""
    fusion = scaled()
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        tf.schedulers.pointwise(fusion, PointwiseConfig(8, 64, 1, 1))
    config = "PointwiseConfig(vector=8, columns=64, rows=1, unroll=1, unroll_rows=1, flat=False, tile=1, lanes=0)"
    why = f"with {config}, parallelize(tv2): 8 elements of float32 are more than the 16 bytes of the atom vector"
    assert caught.value.message.splitlines()[0] == f"a pointwise schedule of fusion 'scaled' is not supported: {why}"
    assert caught.value.help == "use an extent of 4 or less"
    assert (str(fusion), fusion.has_schedule) == (before, False)
    tf.schedulers.pointwise(fusion, PointwiseConfig(4, 64, 1, 1))


def test_no_candidate_is_larger_than_a_block() -> None:
    """Parameters that suit a block, of which neighbors are tried, may have none that do."""
    schedule = tf.schedulers.pointwise(scaled(), PointwiseConfig(1, 256, 4, 1))
    blocks = [option.block for option in schedule.alternatives]
    assert max(block[0] * block[1] for block in blocks if block is not None) <= 1024
    assert None not in blocks


@pytest.mark.parametrize("size", [-1, 2.5, "4", None, True, float("nan"), 2**63], ids=repr)
def test_sizes_are_extents(size: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        tf.compile(rows(), sizes={"N": size})
    assert caught.value.message.splitlines()[0] == f"a schedule of fusion 'rows' is not supported: sizes has {size!r} for 'N'"
    assert caught.value.help == "give an integer from 0 to 9223372036854775807"


def rows() -> tf.Fusion:
    with tf.Fusion("rows") as fusion:
        fusion.add_output(tf.sum(tf.define_tensor(["N", 64], name="x"), axis=1))
    return fusion


def test_sizes_are_a_mapping_of_dimensions() -> None:
    pairs: Any = [("N", 3)]
    zero: Any = np.int64(0)
    for make in (rows, lambda: tf.segment(rows(), [["tv1"]])):
        with pytest.raises(UnsupportedError, match=r"sizes is \[\('N', 3\)\]") as caught:
            tf.compile(make(), sizes=pairs)
        assert caught.value.help == "give a mapping from names of dimensions to extents, such as {'N': 1024}"
        with pytest.raises(UnsupportedError, match="sizes has 'Q', which is not a dimension of it"):
            tf.compile(make(), sizes={"Q": 3})
    assert tf.compile(rows(), sizes={"N": zero}).certificate.is_proved


@pytest.mark.parametrize("name", ["import", "None", "tf", "P", "fusion", "segmented", "MemoryType", "atoms", "part0", "tv3", "tv1_"])
def test_code_finds_tensors_of_any_name(name: str) -> None:
    """What a tensor is called may be a word of Python, or what the code calls something else."""
    with tf.Fusion("parts") as fusion:
        x, y = tf.define_tensor([4, 8], name=name), tf.define_tensor([4, 8], name=f"{name}_")
        fusion.add_output(tf.exp(tf.cat([tf.sin(x), tf.cos(y)], 0)))
    copy, _ = tf.copy_fusion(fusion)
    schedule = tf.schedulers.cat(fusion, CatConfig(Form.BLOCKS))
    exec(schedule.code, {"fusion": copy})
    assert str(tf.lower(copy)) == str(tf.lower(fusion))
