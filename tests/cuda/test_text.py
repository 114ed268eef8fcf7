"""Helper functions in the text."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.cuda.source import emit


def test_only_what_is_called_is_defined() -> None:
    for path in ("sin", "atan2"):
        with tf.Fusion(path) as fusion:
            x = tf.define_tensor(["N"])
            fusion.add_output(tf.sin(x) if path == "sin" else tf.atan2(x, x))
        text = tf.lower(fusion)
        assert "#include" not in emit(text).text
        assert emit(text).text.count("__device__") == 1, "the wait for the stream alone"
