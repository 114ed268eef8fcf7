"""The text of fusions: pinned texts, and what has none."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import DType, bfloat16, bool_, float16, float32
from taskfuse.errors import FusionError
from taskfuse.ir.axes import Axis, AxisKind, Merge, Rasterize, Resize, Split, Swizzle, axis, iteration_symbol, resize_axis
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, IndexValue, Literal, Pointwise, Read, Reduction, ScalarRead, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.printer import fusion_to_text
from taskfuse.ir.scalar import sym
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.lowering import lower
from taskfuse.schedule import layouts
from tests.ir.same import FOUNDING, check_round_trip, founding


def test_founding_example() -> None:
    fusion = founding()
    assert fusion_to_text(fusion) == FOUNDING
    parsed = check_round_trip(fusion)
    assert str(lower(parsed)) == str(lower(fusion))


def test_examples_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fusion-text.md").read_text(encoding="utf-8")
    examples = [block.split("```", 1)[0].strip("\n") for block in page.split("```text\n")[1:]]
    assert len(examples) == 2
    for text in examples:
        assert fusion_to_text(parse_fusion(text)) == text


def test_math() -> None:
    with Fusion("math") as fusion:
        x = tf.define_tensor(["M", tf.dim("K", min=0, max=64)], dtype=bfloat16)
        alpha = tf.define_scalar(name="alpha")
        y = tf.mul(x, alpha)
        tf.add(tf.sum(y, 1, keepdims=True), y)
        tf.matmul(x, tf.permute(x, (1, 0)))
        tf.cat([tf.neg(x), tf.copy(x)], 1, form=tf.CatForm.SCATTER)
        z = tf.pad(x, [(0, 0), (1, 0)])
        tf.gt(y, -0.5)
        tf.full((), -float("inf"))
        tf.full([2], True)
        fusion.add_output(z)
        fusion.add_output(y)
    assert fusion_to_text(fusion) == (
        """\
FUSION math
DIM M, K min 0 max 64
SCALAR alpha: float32
INPUT tv0: bfloat16[M, K]
tv1: float32[M, K] = cast(tv0) for tv2
tv2: float32[M, K] = mul(tv1, alpha)
tv3: float32[M] = reduce add of copy(tv2) over i1: K init 0.0 for tv4
tv4: float32[M, 1] = view expand_dims(tv3[i0])
tv5: float32[M, K] = add(tv4[i0, 0], tv2)
tv6: bfloat16[K, M] = view permute(tv0[i1, i0])
tv7: float32[M, M] = reduce add of mul(tv0[i0, i2], tv6[i2, i1]) over i2: K init 0.0 for tv8
tv8: bfloat16[M, M] = cast(tv7)
tv9: bfloat16[M, K] = neg(tv0)
tv10: bfloat16[M, K] = copy(tv0)
tv11: bfloat16[M, 2*K] = assemble(tv9 -> [i0, i1], tv10 -> [i0, K + i1])
tv12: bfloat16[M, K + 1] = select pad(tv0[i0, i1 - 1] if i1 >= 1, 0.0)
tv13: bool[M, K] = gt(tv2, -0.5:float32)
tv14: float32[] = copy(-inf)
tv15: bool[2] = copy(true)
OUTPUT tv12, tv2"""
    ).replace("K + i1", str(sym("K") + sym("i1"))).replace("K + 1]", f"{sym('K') + 1}]")
    check_round_trip(fusion)


def test_schedule() -> None:
    with Fusion("sched") as fusion:
        x = tf.define_tensor(["M", 64], dtype=float32)
        y = tf.sin(x)
        s = tf.sum(y, 1)
        fusion.add_output(s)
    c = x.cache_after()
    s.split(1, 4)
    first = s.rfactor([1])
    y.split(0, 8, inner=False).split(2, 32).split(2, 4).merge(1, 2).reorder([0, 3, 1, 2])
    first.axis(0).parallelize(P.BIDx)
    c.set_memory_type(MemoryType.Shared)
    c.circular_buffer(3)
    c.set_allocation_domain(layouts.padded(1))
    c.split(1, 4)
    c.axis(2).parallelize(P.Vectorize)
    producer, consumer = fusion.task([c]), fusion.task([y, first, s])
    fusion.group([producer, consumer])
    assert fusion_to_text(fusion) == (
        """\
FUSION sched
DIM M
INPUT tv0: float32[M, 64]
tv3: float32[M, 64] = copy(tv0) from tv0 for tv1
tv1: float32[M, 64] = sin(tv3)
tv4: float32[M, 4] root [M, 64 reduction] = reduce add of copy(tv1) init 0.0 from tv2 for tv2
tv2: float32[M] = reduce add of copy(tv4) over i1: 4 init 0.0
OUTPUT tv2
ORDER tv0, tv1, tv2, tv3, tv4
SCHEDULE tv3: resize(a1, 0, 1) -> a2; split(a1, 4) -> a3, a4; loop [a0, a3, a4:Vectorize]; memory Shared; allocation [a0, a2]; stages 3; atom vector(a4)
SCHEDULE tv1: split(a0, 8 outer) -> a2, a3; split(a1, 32) -> a4, a5; split(a4, 4) -> a6, a7; merge(a3, a6) -> a8; loop [a2, a5, a8, a7]
SCHEDULE tv4: split(a1, 4) -> a2, a3 as iteration: 4; logical [a0, a3]; loop [a0:BIDx, a2, a3]
TASK t1 = tv3
TASK t2 = tv1, tv4, tv2
GROUP group1 = t1, t2  # vertical"""
    )
    check_round_trip(fusion)


def test_foreign_axes() -> None:
    with Fusion("mm") as fusion:
        a, b = tf.define_tensor([64, 32]), tf.define_tensor([32, 16])
        acc = tf.matmul(a, b)
        fusion.add_output(acc)
    a_s, b_s = a.cache_after(), b.cache_after()
    acc.split(1, 4).split(0, 8).reorder([0, 2, 1, 3, 4]).merge(0, 1)
    acc.propagate([a_s, b_s], upto=1)
    text = fusion_to_text(fusion)
    assert "SCHEDULE tv3: foreign a2: 16 of tv2.a1; split(a2, 4) -> a3, a4; split(a0, 8) -> a5, a6; merge(a5, a3) -> a7; loop [a7, a6, a1]" in text
    check_round_trip(fusion)


def test_an_axis_that_no_tensor_has_any_more() -> None:
    with Fusion() as fusion:
        x, y = tf.define_tensor([8]), tf.define_tensor([8])
        u, v = tf.sin(x), tf.cos(y)
    gone = axis(5)
    for tv in (u, v):
        tv.schedule.loop = [axis(5, AxisKind.FOREIGN, gone), *tv.root]
    text = fusion_to_text(fusion)
    assert "SCHEDULE tv2: foreign a1: 5 of x0; loop [a1, a0]\nSCHEDULE tv3: foreign a1: 5 of x0; loop [a1, a0]" in text
    check_round_trip(fusion)


def test_root_domain_with_a_foreign_axis_and_transforms_of_all_kinds() -> None:
    fusion = Fusion("raw")
    first = fusion.add_input(fusion.new_tensor([axis(8), axis(8)], float32))
    root = [axis(8), axis(8), axis(3, AxisKind.FOREIGN, first.root[0]), axis(2, AxisKind.FOREIGN)]
    tv = fusion.new_tensor(root, float32, logical=root[:2])
    i, j = iteration_symbol(0), iteration_symbol(1)
    fusion.define(Pointwise(tv, ELEMENTWISE["copy"], (Read(first, (i, j)),)))
    swizzle = Swizzle(root[0], root[1], axis(8), axis(8))
    raster = Rasterize((swizzle.x_out, swizzle.y_out), axis(64), (sym("i0") // 8, sym("i0") % 8))
    other = Rasterize((root[0],), axis(9), (sym("i0"),))
    odd = Split(root[0], axis(5), axis(3))
    tv.schedule.transforms = [swizzle, raster, resize_axis(root[1], 1, -2), other, odd]
    tv.schedule.loop = [root[2], raster.result]
    tv.schedule.ptypes = {root[2]: P.TIDx, odd.outer: P.TIDy, raster.result: P.Serial}
    assert fusion_to_text(fusion) == (
        """\
FUSION raw
INPUT tv0: float32[8, 8]
tv1: float32[8, 8] root [8, 8, 3 foreign of tv0.a0, 2 foreign] = copy(tv0[i0, i1])
SCHEDULE tv1: swizzle(a0, a1) -> a4, a5; rasterize(a4, a5 by i0//8, i0 % 8) -> a6; resize(a1, 1, -2) -> a7; rasterize(a0 by i0) -> a8 as iteration: 9; """
        "split(a0, 3) -> a9 as iteration: 5, a10; logical [a0, a1]; loop [a2:TIDx, a6]; bind [a9:TIDy]"
    )
    check_round_trip(fusion)


def test_names_in_quotes() -> None:
    with Fusion('a "fusion"') as fusion:
        x = tf.define_tensor([4], name="my input")
        y = tf.define_tensor([4], name="INPUT")
        z = tf.define_tensor([4], name="é\n")
        w = tf.add(tf.add(x, y), z)
        w.schedule.loop = [axis(4, AxisKind.FOREIGN, x.root[0]), *w.root]
    text = fusion_to_text(fusion)
    assert text == (
        """\
FUSION "a \\"fusion\\""
INPUT "my input": float32[4]
INPUT "INPUT": float32[4]
INPUT "\\u00e9\\n": float32[4]
tv3: float32[4] = add("my input", "INPUT")
tv4: float32[4] = add(tv3, "\\u00e9\\n")
SCHEDULE tv4: foreign a1: 4 of "my input".a0; loop [a1, a0]"""
    )
    check_round_trip(fusion)


def test_pingpong() -> None:
    fusion = founding()
    group = fusion.tasks.nodes[-1]
    assert isinstance(group, Group)
    group.pingpong(fusion.tensor("tv6").axis(1))
    assert fusion_to_text(fusion).endswith("GROUP group3 = group1, group2 on TIDz pingpong tv6.a1  # vertical")
    check_round_trip(fusion)


def test_turns_over_an_axis_that_no_tensor_has_any_more() -> None:
    fusion = founding()
    group = fusion.tasks.nodes[-1]
    assert isinstance(group, Group)
    group.pingpong_axis = axis(4)
    assert fusion_to_text(fusion).endswith("GROUP group3 = group1, group2 on TIDz pingpong x0  # vertical")
    check_round_trip(fusion)


def test_registers() -> None:
    fusion = founding()
    fusion.tasks.nodes[0].registers(40)
    fusion.tasks.nodes[-1].registers(232)
    text = fusion_to_text(fusion)
    assert "TASK t1 = tv1, tv3 registers 40\n" in text
    assert text.endswith("GROUP group3 = group1, group2 on TIDz registers 232  # vertical")
    check_round_trip(fusion)


def fields_of(cls: type) -> set[str]:
    slots: tuple[str, ...] = getattr(cls, "__slots__", ())
    return {f.name for f in fields(cls)} if is_dataclass(cls) else {*slots}


@pytest.mark.parametrize(
    ("cls", "printed", "left_out"),
    [
        (TensorSchedule, "loop transforms ptypes inline memory allocation stages ring atom atom_axes in_flight pipeline_stage turns", ""),
        (TensorView, "id _name dtype root logical schedule origin", "fusion location"),
        (Scalar, "id name dtype", "fusion location promotes"),
        (Task, "name tensors budget", "tree parent location"),
        (Group, "name members ptype pingpong_axis budget", "tree parent location"),
        (Dim, "name min max multiple_of bound", ""),
        (Axis, "extent kind source", "id"),
        (Split, "source outer inner", ""),
        (Merge, "outer inner result", ""),
        (Swizzle, "x y x_out y_out", ""),
        (Resize, "source left right result", ""),
        (Rasterize, "sources result maps", ""),
        (Read, "tensor index valid", ""),
        (Literal, "value dtype", ""),
        (ScalarRead, "scalar", ""),
        (IndexValue, "index", ""),
        (Pointwise, "output op operands", "location"),
        (FirstValid, "output label operands", "location"),
        (Reduction, "output combine body operands init rescaled starts ends", "location"),
        (View, "output label operand", "location"),
        (Assemble, "output parts places", "location"),
    ],
)
def test_the_text_holds_every_field(cls: type, printed: str, left_out: str) -> None:
    """A field that is new must be printed and parsed, or be named here as one that lowering does not read: then add it to ``Same`` above, too."""
    assert fields_of(cls) == {*printed.split(), *left_out.split()}


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, float32, "0.1"),
        (-0.0, float32, "-0.0"),
        (1e22, float32, "1e+22"),
        (1e-7, float32, "1e-07"),
        (float("nan"), float32, "nan"),
        (float("inf"), float32, "inf"),
        (3, float32, "3"),
        (-3, float32, "-3"),
        (True, bool_, "true:bool"),
        (2.0, float16, "2.0:float16"),
    ],
)
def test_literals(value: float, dtype: DType, text: str) -> None:
    fusion = Fusion()
    tv = fusion.new_tensor([], float32)
    fusion.define(Pointwise(tv, ELEMENTWISE["copy"], (Literal(value, dtype),)))
    assert fusion_to_text(fusion) == f"FUSION fusion\ntv0: float32[] = copy({text})"
    definition = check_round_trip(fusion).tensors()[0].definition
    assert definition is not None
    (parsed,) = definition.operands
    assert repr(parsed) == repr(Literal(value, dtype))


def test_no_text_for_a_tensor_without_definition() -> None:
    fusion = Fusion("f")
    fusion.new_tensor([axis(4)], float32)
    with pytest.raises(FusionError) as caught:
        fusion_to_text(fusion)
    assert caught.value.message == "fusion 'f': the tensors without a definition (tv0) are not its inputs (none)"


def test_no_text_for_an_axis_from_nowhere() -> None:
    fusion = founding()
    fusion.tensor("tv1").schedule.loop.append(axis(7))
    with pytest.raises(FusionError) as caught:
        fusion_to_text(fusion)
    assert caught.value.message == "fusion 'cat': an axis of tv1 (extent 7) is neither a root axis, nor foreign, nor made by a transform"
