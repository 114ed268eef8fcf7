"""Memory of a run: which bytes an address names, and which accesses are errors."""

import pytest

from taskfuse.testing.ptx.events import RANK
from taskfuse.testing.ptx.launch import SHARED_AT, TENSORS_AT
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.storage import ALLOCATION, POISON, Storage
from taskfuse.testing.ptx.unknown import LOCAL, SHARED


def storage() -> Storage:
    blocks = [bytearray(SHARED_AT + 64) for _ in range(2)]
    return Storage({TENSORS_AT >> ALLOCATION: bytearray(32)}, blocks[0], blocks, bytearray(16))


@pytest.mark.parametrize(
    ("space", "address", "other", "same"),
    [
        ("global", TENSORS_AT + 8, "generic", TENSORS_AT + 8),
        ("shared", SHARED_AT + 4, "generic", SHARED + SHARED_AT + 4),
        ("shared", SHARED_AT + 4, "shared", RANK + SHARED_AT + 4),
        ("local", 4, "generic", LOCAL + 4),
        ("local", 4, "param", LOCAL + 4),
    ],
)
def test_two_names_of_one_byte(space: str, address: int, other: str, same: int) -> None:
    memory = storage()
    memory.store(1, space, address, 4, 0x01020304)
    assert memory.load(1, other, same, 4) == 0x01020304
    assert memory.read(1, other, same + 1, 2) == b"\3\2"


def test_blocks_of_a_cluster() -> None:
    memory = storage()
    memory.write(1, "shared", 2 * RANK + SHARED_AT, b"ab")
    assert memory.load(1, "shared", SHARED_AT, 2) == 0
    assert memory.cluster[1][SHARED_AT:][:2] == b"ab"


@pytest.mark.parametrize(
    ("space", "address", "size"),
    [
        ("global", TENSORS_AT + 32, 4),
        ("global", TENSORS_AT - 4, 4),
        ("shared", SHARED_AT - 4, 4),
        ("shared", SHARED_AT + 64, 1),
        ("shared", 3 * RANK + SHARED_AT, 4),
        ("local", 16, 4),
        ("global", TENSORS_AT + 2, 4),
    ],
)
def test_what_is_outside_or_not_aligned(space: str, address: int, size: int) -> None:
    with pytest.raises(PtxError, match=r"PTX line 7: a(n access| load) of"):
        storage().load(7, space, address, size)
    with pytest.raises(PtxError, match=r"PTX line 7: a(n access| store) of"):
        storage().store(7, space, address, size, 0)


def test_bytes_that_are_not_used_may_be_outside() -> None:
    memory = storage()
    memory.store(1, "shared", SHARED_AT + 60, 4, 0x01020304)
    end = Storage({}, memory.shared[: SHARED_AT + 62], [], bytearray())
    assert end.load(1, "shared", SHARED_AT + 60, 4, 0b11) == POISON << 24 | POISON << 16 | 0x0304
    with pytest.raises(PtxError, match="an access of 1 bytes"):
        end.load(1, "shared", SHARED_AT + 60, 4, 0b111)
    with pytest.raises(PtxError, match="not aligned"):
        end.load(1, "shared", SHARED_AT + 58, 4, 0b11)
