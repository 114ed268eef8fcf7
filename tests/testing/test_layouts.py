"""Layouts are written as they are made."""

import taskfuse as tf
from taskfuse.testing import RandomChooser
from taskfuse.testing.layouts import layout
from taskfuse.testing.program import Recorder


def test_layouts_are_written_as_they_are_made() -> None:
    kinds: set[str] = set()
    for seed in range(60):
        recorder = Recorder()
        x = recorder.call(tf, "define_tensor", [6, 10])
        y: tf.TensorView = recorder.call(tf, "neg", x)
        recorder.call(recorder.fusion, "add_output", y)
        copy: tf.TensorView = recorder.call(y, "cache_before")
        made = layout(RandomChooser(seed), copy, copy.name)
        kinds.add("by hand" if ".split" in made.text or ".pad(" in made.text else made.text.partition("(")[0])
        if recorder.attempt(copy, "set_allocation_domain", made) is not None:
            assert str(recorder.program().run()) == str(recorder.fusion)
    assert {"tf.layouts.padded", "tf.layouts.rowmajor", "by hand"} <= kinds
