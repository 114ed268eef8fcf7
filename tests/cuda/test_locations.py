"""CUDA text says on request which line of the user's each statement comes from, and the waits of debug builds know theirs."""

from dataclasses import replace

import taskfuse as tf
from taskfuse.cuda.debug import WaitPoint
from taskfuse.cuda.source import emit
from taskfuse.kir import map_stmts
from taskfuse.location import Location
from tests.lines import line_of, pipeline


def test_comments_on_request() -> None:
    kernel = tf.lower(pipeline(9))
    plain, text = kernel.cuda_source(), kernel.cuda_source(locations=True)
    said = [line for line in text.split("\n") if line.strip().startswith("//") and "tests/lines.py:" in line]
    assert "tests/lines.py" not in plain
    assert "\n".join(line for line in text.split("\n") if line not in said) == plain
    a, y = (f"tests/lines.py:{line_of(start, pipeline)}:13  {start}" for start in ("a = tf.exp(x)", "y = a + 1.0"))
    assert {line.strip()[3:] for line in said} >= {a, y}
    body = [line.strip() for line in text.split("\n")]
    stored = next(k for k, line in enumerate(body) if (line.startswith("y") and "=" in line) or line.startswith("tv2[") or line.startswith("tv2_"))
    assert [line for line in body[:stored] if line.startswith("// tests/")][-1] == f"// {y}"


def test_a_comment_ends_with_its_line() -> None:
    """A source line that goes on with a backslash must not take the next line of the text into the comment."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([32], name="x")
        y = x + \
            1.0  # fmt: skip
        fusion.add_output(y)
    text = tf.lower(fusion).cuda_source(locations=True)
    assert [line for line in text.split("\n") if line.lstrip().startswith("// tests/")]
    assert not [line for line in text.split("\n") if line.endswith("\\")]


def test_neither_key_nor_text_knows_locations_unless_asked() -> None:
    kernel = tf.lower(pipeline(9))
    other = replace(kernel, body=map_stmts(kernel.body, lambda s: replace(s, location=Location("other.py", 1))))
    assert kernel.cuda_source() == other.cuda_source()
    assert kernel.cuda_source(debug=True) == other.cuda_source(debug=True)
    assert kernel.cuda_source(locations=True) != other.cuda_source(locations=True)


def test_the_waits_of_a_debug_build_know_their_lines() -> None:
    waits = emit(tf.lower(pipeline(9)), debug=True).waits
    assert [(w.barrier, w.where, None if w.location is None else w.location.line) for w in waits] == [
        ("ch0.empty", "load", line_of("a = tf.exp(x)", pipeline)),
        ("ch0.full", "use", line_of("a = tf.exp(x)", pipeline)),
    ]
    assert WaitPoint(("load",), "ch0.empty").location is None
    assert all(isinstance(w.location, Location) for w in waits)
