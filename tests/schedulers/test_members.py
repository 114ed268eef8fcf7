"""Members of tf.horizontal that have no schedule."""

import re

import numpy as np

import taskfuse as tf
from tests.errors import text_of
from tests.schedulers.members import numbers, row_sum, softmax
from tests.schedulers.side_by_side import lowered, normalized, plain


def test_fusions_without_a_schedule_are_scheduled_and_stay_as_they_are() -> None:
    members = [
        plain(lambda x, y: tf.tanh(2 * x + y), [12, 512], [12, 512], name="pointwise"),
        normalized(5, 1024),
        plain(lambda x: tf.exp(x.T), [40, 36], name="turned"),
        plain(lambda x: tf.sum(x, axis=1), [7, 4096], name="sums"),
        plain(lambda x: tf.cat([tf.sin(x), tf.cos(x)], 0), [3, 64], name="parts"),
        row_sum(3, 100, threads=64),
    ]
    before = list(map(str, members))
    kernel = lowered(tf.horizontal(members))
    assert list(map(str, members)) == before
    arguments = [numbers([tuple(int(str(e)) for e in tv.shape) for tv in m.inputs]) for m in members]
    outs = kernel.simulate(*(a for given in arguments for a in given))
    for out, member, given in zip(outs, members, arguments, strict=True):
        np.testing.assert_allclose(out, member.evaluate(*given)[0], rtol=2e-5, atol=1e-6)


def test_their_blocks_fit_together() -> None:
    """Alone they have blocks of 512 and 16 x 8 threads, of which the most along each are 4096."""
    members = [normalized(64, 16384, "wide"), plain(lambda x: tf.sum(x, axis=1), [4096, 64], name="narrow")]
    alone = [tf.lower(copy).block for m in members for copy in [tf.copy_fusion(m)[0]] if tf.schedulers.auto(copy)]
    assert [tuple(map(str, block)) for block in alone] == [("512", "1", "1"), ("16", "8", "1")]
    x, y, _ = (int(str(e)) for e in tf.lower(tf.horizontal(members, force=True)).block)
    assert x * y <= 1024


def test_a_common_height_where_threads_along_x_do_not_do() -> None:
    """Rows of 32 elements: eight threads have one, and a block has several rows."""
    kernel = lowered(tf.horizontal([normalized(4096, 32, "short"), normalized(512, 4096, "long")], force=True))
    x, y, _ = (int(str(e)) for e in kernel.block)
    assert y > 1
    assert x * y <= 1024


def test_blocks_that_wait_for_one_another_are_left_to_themselves() -> None:
    """Alone the blocks of the long sum meet in a barrier of the grid; among so many others they could not all be resident."""
    long = plain(lambda x: tf.sum(x, axis=1), [1, 1 << 20], name="long")
    alone, _ = tf.copy_fusion(long)
    tf.schedulers.auto(alone)
    assert tf.lower(alone).is_cooperative
    kernel = lowered(tf.horizontal([long, plain(tf.exp, [1 << 22], name="others")], force=True))
    assert not kernel.is_cooperative
    horizontal_cost = tf.horizontal_cost([alone, plain(tf.exp, [1 << 22], name="others")])
    assert not horizontal_cost.pays
    assert re.search("blocks of long wait for one another, so that all [0-9]+ have to be resident at once: 132 are sure to be$", horizontal_cost.explain())


def test_a_member_that_is_several_kernels_is_refused() -> None:
    split = plain(lambda x: tf.sum(tf.stack([tf.sin(x), tf.cos(x)], 0, form="scatter"), axis=0), [8, 8], name="split")
    assert text_of(lambda: tf.horizontal([split, softmax()])).startswith("one kernel for fusion 'split' is not supported: no scheduler takes it\n")
