"""Functions of atomic updates."""

import pytest

from taskfuse.testing.ptx.updates import combination, size_of


@pytest.mark.parametrize(
    ("function", "kind", "a", "b", "wanted"),
    [
        ("add", "u32", 0xFFFFFFFF, 2, 1),
        ("min", "s32", 0xFFFFFFFF, 1, 0xFFFFFFFF),
        ("min", "u32", 0xFFFFFFFF, 1, 1),
        ("max", "s64", (1 << 64) - 1, 1, 1),
        ("xor", "b32", 5, 3, 6),
        ("add", "f32", 0x3F800000, 0x3F800000, 0x40000000),
        ("add", "f32", 1, 0, 0),
    ],
)
def test_combinations(function: str, kind: str, a: int, b: int, wanted: int) -> None:
    found = combination(function, kind)
    assert found is not None
    assert found(a, b) == wanted


def test_what_is_not_known() -> None:
    assert combination("inc", "u32") is None
    assert combination("add", "f9") is None


def test_sizes() -> None:
    assert [size_of(kind) for kind in ("u32", "s64", "f16", "bf16x2")] == [4, 8, 2, 4]
