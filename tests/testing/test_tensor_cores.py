"""Products on tensor cores."""

import taskfuse as tf
from taskfuse.testing import Mix, RandomChooser, check_case, random_schedule


def matmul() -> tf.Fusion:
    with tf.Fusion("matmul") as fusion:
        a, b = tf.define_tensor([64, 32], dtype=tf.bfloat16), tf.define_tensor([16, 32], dtype=tf.bfloat16)
        d = tf.relu(tf.matmul(a, b.T, dtype=tf.float32))
        fusion.add_output(d)
        fusion.add_output(d / tf.sum(d, 1, keepdims=True))
    return fusion


def test_a_users_product_on_tensor_cores() -> None:
    options = Mix.PRODUCTS.options(0)
    cases = [random_schedule(RandomChooser(seed), matmul(), options=options) for seed in range(6)]
    assert sum("wgmma" in case.drawn or "mma" in case.drawn for case in cases) == 6
    for case in cases:
        check_case(case)
