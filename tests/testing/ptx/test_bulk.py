"""Boxes of tensors: which elements they have, and where these lie in Shared memory."""

from taskfuse.testing.ptx.bulk import TensorMap, loaded

BOX = TensorMap(1000, 2, "bf16", shape=(5, 3), strides=(2, 16), box=(4, 2), steps=(1, 1), span=0)


def test_elements_of_a_box() -> None:
    assert BOX.bytes == 16
    assert list(BOX.elements(128, (1, 1))) == [(128 + 2 * k, 1000 + 2 * (1 + k % 4) + 16 * (1 + k // 4)) for k in range(8)]


def test_elements_outside_of_the_tensor_are_zero() -> None:
    found = loaded(BOX, 0, (3, -1), lambda at: at.to_bytes(2, "little"))
    assert [content for _, content in found] == [b"\0\0"] * 4 + [(1006).to_bytes(2, "little"), (1008).to_bytes(2, "little"), b"\0\0", b"\0\0"]


def test_steps_and_swizzles() -> None:
    box = TensorMap(0, 4, "f32", shape=(8, 9), strides=(4, 32), box=(8, 5), steps=(1, 2), span=32)
    found = dict(box.elements(1024, (0, 0)))
    assert found[1024] == 0
    assert found[1024 + 128 + 16] == 8 * 32  # the fifth row, 128 bytes further: halves of 32 bytes are swapped
    assert len(found) == 40
