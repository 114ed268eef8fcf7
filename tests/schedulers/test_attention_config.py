"""Parameters of attention that contradict one another, and their words."""

import pytest

from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import AttentionConfig
from taskfuse.schedulers.attention_config import span


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((4, 64, 2), "4 warpgroups"),
        ((1, 40, 2), "chunks of 40"),
        ((1, 64, 0), "stages is 0"),
        ((1, 64, 2, 3), "clusters of 3"),
        ((1, 64, 2, 2, 7), "7 blocks in clusters of 2"),
        ((1, 64, 2, 2, 0, 1, 0, 2), "2 blocks of a multiprocessor, in clusters"),
    ],
)
def test_parameters(fields: tuple[int, ...], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        AttentionConfig(*fields)


def test_products_ahead_and_turns_need_two() -> None:
    with pytest.raises(UnsupportedError, match="turns of 1 warpgroup"):
        AttentionConfig(1, in_turn=True)
    with pytest.raises(UnsupportedError, match="values are released one chunk late, with 1 stage"):
        AttentionConfig(stages=1, is_pipelined=True)
    assert AttentionConfig(2, is_pipelined=True, in_turn=True).words.endswith(", products ahead, in turn")


def test_parts_of_the_columns() -> None:
    with pytest.raises(UnsupportedError, match="3 parts of the columns, of 2 warpgroups"):
        AttentionConfig(2, parts=3)
    with pytest.raises(UnsupportedError, match="scores of 144 keys"):
        AttentionConfig(2, 144, parts=2, apart=True)
    with pytest.raises(UnsupportedError, match="turns, or products ahead, of warpgroups with the same rows"):
        AttentionConfig(2, parts=2, is_pipelined=True)
    words = AttentionConfig(2, 64, 2, parts=2, apart=True).words
    assert words == "2 warpgroups of parts of the columns of 64 rows and one of their scores, chunks of 64 keys, 2 stages"


def test_pieces_of_rows_are_as_wide_as_swizzles() -> None:
    """What a last piece lacks takes Shared memory, too."""
    assert [span(row) for row in (16, 64, 80, 144, 160, 192, 256, 1152)] == [128, 64, 128, 128, 32, 64, 128, 128]
    config = AttentionConfig(1, 64, 2)
    assert config.shared_bytes(144, 80) == config.shared_bytes(256, 128)
