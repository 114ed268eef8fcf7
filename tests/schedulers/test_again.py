"""What two kernels need is computed by both where that moves fewer bytes; what takes many functions, or is stored anyway, is read."""

import taskfuse as tf
from taskfuse.schedulers import segmenter
from taskfuse.schedulers.again import MOST_AGAIN


def test_what_two_kernels_gather_is_gathered_by_both() -> None:
    """Rows of the nodes of a graph for its edges, summed over columns and over edges: both kernels look them up, and none stores them for the other."""
    with tf.Fusion("messages") as fusion:
        nodes, sources = tf.define_tensor([2048, 256], name="nodes"), tf.define_tensor([65536], dtype=tf.int64, name="sources")
        sent = tf.take(nodes, sources, 0)
        for axis, term in ((1, sent * tf.define_tensor([65536, 256], name="weights")), (0, tf.square(sent))):
            fusion.add_output(tf.sum(term, axis))
    found = segmenter.choose_segments(fusion)
    assert not found.crossing
    assert all("nodes" in step.arguments for step in found.steps)


def test_scales_of_rows_do_not_keep_elements_from_being_computed_again() -> None:
    """Sums over rows and over columns of scaled elements: many functions compute a scale, and few an element."""
    with tf.Fusion("scaled") as fusion:
        x, scale = tf.define_tensor([8192, 2048], name="x"), tf.define_tensor([8192, 1], name="scale")
        for _ in range(MOST_AGAIN):
            scale = scale * scale + 1.0
        scaled = x * scale
        for axis in (0, 1):
            fusion.add_output(tf.sum(scaled * scaled if axis else scaled, axis))
    found = segmenter.choose_segments(fusion)
    assert sum(size for _, size in found.crossing) < 4 * 8192 * 10


def test_outputs_that_elements_are_computed_of_are_read() -> None:
    """A sum that is stored, and normalized twice over other rows: the second kernel reads the sum, not its terms."""
    with tf.Fusion("sums") as fusion:
        x, y = tf.define_tensor([4096, 4096], tf.bfloat16, name="x"), tf.define_tensor([4096, 4096], tf.bfloat16, name="y")
        total = x + y
        wide = tf.cast(total, tf.float32)
        groups = tf.reshape(wide * tf.rsqrt(tf.mean(wide * wide, 1, keepdims=True)), [4096, 32, 128])
        fusion.add_output(total)
        fusion.add_output(tf.cast(groups / tf.max(tf.abs(groups), 2, keepdims=True), tf.float8_e4m3))
    last = segmenter.choose_segments(fusion).steps[-1]
    assert total.name in last.arguments
    assert {"x", "y"}.isdisjoint(last.arguments)


def test_parts_that_two_kernels_read_are_computed_by_each() -> None:
    """The first column of a matrix, and the others as a factor of a product: many functions compute an element, and none is computed twice."""
    with tf.Fusion("parts") as fusion:
        x, w = tf.define_tensor([256, 4097], tf.bfloat16, name="x"), tf.define_tensor([4096, 128], tf.bfloat16, name="w")
        y = tf.cast(x, tf.float32)
        for _ in range(MOST_AGAIN):
            y = tf.exp(y) * 0.5
        y = tf.cast(y, tf.bfloat16)
        fusion.add_output((y[:, 1:] @ w) + y[:, :1])
    found = segmenter.choose_segments(fusion)
    assert all(size != 256 * 4097 * 2 for _, size in found.crossing)
    assert sum("recompute" in line for line in found.moved) == 2


def test_a_cast_is_done_again_where_what_follows_it_is_not() -> None:
    """A batch of long rows: softmax of its float32 along rows, of two views against two others, and its mean along columns. Functions of exponentials are not
    computed once for each pair of views, the cast is for each kernel."""
    with tf.Fusion("center") as fusion:
        x = tf.cast(tf.define_tensor([128, 65536], tf.bfloat16, name="x"), tf.float32)
        p = tf.softmax(x / 0.04, axis=1)
        fusion.add_output(tf.mean(x, 0))
        fusion.add_output(tf.sum(tf.reshape(p, [2, 1, 64, 65536]) * tf.define_tensor([1, 2, 64, 65536], name="y"), 3))
    found = segmenter.choose_segments(fusion)
    assert x.name not in [name for name, _ in found.crossing]
