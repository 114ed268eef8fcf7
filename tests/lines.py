"""The lines of the functions of tests: what errors about what they build must name."""

import inspect
from collections.abc import Callable
from pathlib import Path

import taskfuse as tf
from taskfuse import ParallelType as P


def line_of(text: str, function: Callable[..., object]) -> int:
    """The line of a function that begins with a text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = (first + k for k, line in enumerate(lines) if line.strip().startswith(text))
    return found


def snippet(text: str, function: Callable[..., object], column: int | None = None) -> list[str]:
    """What an error prints of that line; the caret stands at the right side of its assignment unless ``column`` says where."""
    number = line_of(text, function)
    lines, first = inspect.getsourcelines(function)
    line = lines[number - first].rstrip("\n")
    caret = line.index("= ") + 2 if column is None else column
    return [f"  --> {Path(inspect.getfile(function)).name}:{number}", f"   | {line}", f"   | {' ' * caret}^"]


def pipeline(rows: int = 6) -> tf.Fusion:
    """Two roles joined by a ring of two slots, whose lines errors name."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([rows, 32], name="x")
        a = tf.exp(x)
        y = a + 1.0
        fusion.add_output(y)
    for tv in (a, y):
        tv.axis(1).parallelize(P.TIDx)
    a.circular_buffer(2)
    a.inline_at(1)
    fusion.group([fusion.task([a], "load"), fusion.task([y], "use")], "pair").parallelize(P.TIDy)
    return fusion
