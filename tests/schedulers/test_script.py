"""Scheduling calls that are made and written down at once."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.schedule.keys import Keys
from taskfuse.schedulers.script import HEADER, MAX_LINE, Script, Spelled, variable


def chain(first: str = "x") -> tuple[tf.Fusion, tf.TensorView, tf.TensorView, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8, 64], name=first)
        a = tf.sin(x)
        b = tf.cos(a)
        fusion.add_output(b)
    return fusion, x, a, b


@pytest.mark.parametrize(("name", "taken", "expected"), [("x", (), "x"), ("two words", (), "two_words"), ("1st", (), "_1st"), ("x", ("x", "x_"), "x__")])
def test_a_variable(name: str, taken: tuple[str, ...], expected: str) -> None:
    assert variable(name, set(taken)) == expected


def test_a_call_is_made_and_written() -> None:
    fusion, _, _, b = chain()
    script = Script(fusion)
    script.on(b).split(1, 4).reorder([1, 0, 2])
    script.on(b).bind(0, P.BIDx)
    assert [str(a.extent) for a in b.loop] == ["16", "8", "4"]
    assert script.lines == [f"{b.name} = fusion.tensor('{b.name}')", f"{b.name}.split(1, 4).reorder([1, 0, 2])", f"{b.name}.axis(0).parallelize(P.BIDx)"]
    assert script.text == "\n".join((*HEADER, "", *script.lines)) + "\n"


def test_calls_are_chained_on_one_line_as_long_as_it_is_short() -> None:
    fusion, _, a, b = chain()
    script = Script(fusion)
    for _ in range(12):
        script.on(b).reorder([1, 0])
    assert all(len(line) < MAX_LINE for line in script.lines)
    assert script.lines[-2].count(".reorder") > 5
    script.on(a).reorder([1, 0])
    script.on(b).reorder([1, 0])  # another receiver stood between
    assert script.lines[-1] == f"{b.name}.reorder([1, 0])"


def test_a_section_starts_a_line_of_its_own() -> None:
    fusion, _, _, b = chain()
    script = Script(fusion)
    script.comment("one")
    script.on(b).reorder([1, 0])
    script.comment("two")
    script.on(b).reorder([1, 0])
    assert script.lines == ["# one", f"{b.name} = fusion.tensor('{b.name}')", f"{b.name}.reorder([1, 0])", "", "# two", f"{b.name}.reorder([1, 0])"]


def test_variables_are_neither_words_of_python_nor_of_the_script_nor_of_another() -> None:
    with tf.Fusion("f") as fusion:
        tensors = [tf.define_tensor([4], name=name) for name in ("tf", "class", "a b", "a.b")]
        fusion.add_output(tf.cat(tensors, 0))
    script = Script(fusion)
    names = [script.on(tv).name for tv in tensors]
    assert names == ["tf_", "class_", "a_b", "a_b_"]


def test_arguments_as_python() -> None:
    fusion, _, a, _ = chain()
    script = Script(fusion)
    for value, text in (
        (Spelled(3, "T"), "T"),
        (P.TIDx, "P.TIDx"),
        (MemoryType.Shared, "MemoryType.Shared"),
        (atoms.CP_ASYNC, "atoms.CP_ASYNC"),
        (atoms.wgmma(64, 32, 16), "atoms.wgmma(64, 32, 16)"),
        ([a, 1], f"[{a.name}, 1]"),
        ((-1,), "(-1,)"),
    ):
        assert script.spell(value) == text


def test_a_spelled_argument_is_given_as_its_value() -> None:
    fusion, _, _, b = chain()
    script = Script(fusion)
    script.on(b).split(1, Spelled(4, "VECTOR"))
    assert script.lines[-1] == f"{b.name}.split(1, VECTOR)"
    assert str(b.loop[2].extent) == "4"


def test_what_is_written_does_the_same_to_a_copy() -> None:
    """Every call that makes tensors, tasks or groups."""
    fusion, x, a, b = chain("two words")
    with fusion:
        c = tf.tan(a)
        fusion.add_output(c)
    other, _ = tf.copy_fusion(fusion)
    script = Script(fusion)
    loaded = script.new(x, "cache_after")
    again = script.duplicate(a, [c])
    stored = script.new(b, "cache_before")
    (own,) = script.recompute(a, [stored])
    script.on(b).split(1, 16).bind(-1, P.TIDx).set_memory_type(MemoryType.Global)
    script.on(b).propagate([own, stored])
    script.parallelize_like(b, [own, stored])
    script.inline_most([stored, own])
    script.resident_blocks(2)
    nodes = [script.task([loaded, own, stored, b], "one"), script.task([again, c], "other")]
    script.group(nodes, "both").parallelize(P.TIDy)
    exec(script.text, {"fusion": other})
    assert str(other) == str(fusion)


def test_views_scans_and_concatenations() -> None:
    with tf.Fusion("f") as fusion:
        x, y = tf.define_tensor([8, 16], name="x"), tf.define_tensor([4, 16], name="y")
        c = tf.cat([x, y], 0)
        fusion.add_output(tf.neg(c))
        fusion.add_output(tf.cumsum(x, 1))
        turned = x.T + 1.0
        fusion.add_output(turned)
    other, _ = tf.copy_fusion(fusion)
    script = Script(fusion)
    parts = script.scatter(c)
    assert len(parts) == 2
    script.unscatter(fusion.outputs[0])
    script.through_view(turned, 0)
    script.chunk_scan(fusion.outputs[1], 4)
    exec(script.text, {"fusion": other})
    assert str(other) == str(fusion)


def test_calls_of_several_tensors_look_at_the_axes_once() -> None:
    """What is written down makes the same schedule without that."""
    fusion, x, a, b = chain()
    other, _ = tf.copy_fusion(fusion)
    script = Script(fusion)
    loaded = script.new(x, "cache_after")
    script.on(b).split(1, 16).bind(-1, P.TIDx)
    keys = Keys(fusion)
    script.propagate(b, [a], keys)
    script.parallelize_like(b, [a], keys)
    script.propagate(a, [loaded], keys)
    script.parallelize_like(a, [loaded], keys)
    script.inline_at([], 1)
    script.inline_at([a], 2)
    script.inline_at([loaded, a], 3)
    assert script.lines[-2:] == ["tv1.inline_at(2)", "fusion.inline_at([tv3, tv1], 3)"]
    exec(script.text, {"fusion": other})
    assert str(other) == str(fusion)


def test_roles_load_and_compute() -> None:
    fusion, x, a, b = chain()
    other, _ = tf.copy_fusion(fusion)
    script = Script(fusion)
    loaded = script.new(x, "cache_after")
    consumer = script.grouped([script.task([a], "first"), script.task([b], "last")], "consumer")
    script.make_roles(script.task([loaded], "load"), consumer)
    assert [n.name for n in consumer.members] == ["first", "last"]
    assert "GROUP roles = load, consumer on TIDy" in str(fusion)
    exec(script.text, {"fusion": other})
    assert str(other) == str(fusion)
