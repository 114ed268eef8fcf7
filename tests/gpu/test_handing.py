"""Products of views of torch tensors: no copy of what is row-major, a kernel's copy of what is not."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf


def heads() -> tf.Fusion:
    with tf.Fusion("heads") as fusion:
        q, k = (tf.reshape(tf.define_tensor(["B", 256, 128], dtype=tf.bfloat16, name=name), ["B", 256, 2, 64]) for name in "qk")
        fusion.add_output(tf.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1), dtype=tf.float32))
    return fusion


def test_heads() -> None:
    fusion = heads()
    run = tf.compile(fusion, backend="cuda", sizes={"B": 64})
    assert run.schedule is not None
    assert "views=" in run.schedule.code
    for b in (1, 3):
        q, k = (torch.randint(-4, 5, (b, 256, 128), device="cuda").to(torch.bfloat16) for _ in range(2))
        wanted = torch.einsum("bihd,bjhd->bhij", q.unflatten(2, (2, 64)).float(), k.unflatten(2, (2, 64)).float())
        for args in ((q, k), (q.transpose(1, 2).contiguous().transpose(1, 2), k)):
            assert run(*args)[0].equal(wanted)


def test_one_tensor_as_both_factors() -> None:
    with tf.Fusion("gram") as fusion:
        x = tf.define_tensor([512, 256], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.matmul(x, x.T, dtype=tf.float32))
    run = tf.compile(fusion, backend="cuda")
    assert run.schedule is not None
    assert run.schedule.scheduler == "matmul"
    a = torch.randint(-4, 5, (512, 256), device="cuda").to(torch.bfloat16)
    assert run(a)[0].equal(a.float() @ a.float().T)
