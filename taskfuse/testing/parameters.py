"""Random parameters of schedulers: small tiles and few blocks, so that blocks have several tiles, and rings few slots."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import AttentionConfig, BackToBackConfig, MatmulConfig, MatmulKind, MixedGemmConfig, NestedSumConfig, ProductsConfig, WindowsConfig
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import SpelledArgument
from taskfuse.tiles import Half

ROWS = ((64, 1), (128, 2), (64, 1), (128, 1), (192, 3))
"""tile_m, and the warpgroups that share it."""
COLUMNS = (64, 32, 128, 16, 256)
DEPTHS = (64, 64, 32, 128)
BLOCKS = (2, 3, 1, 4, 7)
GROUPS = (8, 1, 2, 3)
STAGES = (3, 2, 4)


def matmul_parameters(chooser: Chooser) -> SpelledArgument | None:
    """A :class:`MatmulConfig`; ``None``: the drawn values do not fit together."""
    is_pingpong = chooser.chance(25)
    tile_m, sharing = chooser.pick(ROWS[:3] if is_pingpong else ROWS)
    stages = chooser.pick(STAGES)
    half = None if not chooser.chance(35) else chooser.pick((Half.LOWER, Half.UPPER))
    cluster = 2 if chooser.chance(8) else 1
    values: dict[str, Any] = {
        "tile_m": tile_m,
        "tile_n": chooser.pick(COLUMNS),
        "tile_k": chooser.pick(DEPTHS),
        "warpgroups": chooser.pick((2, 3)) if is_pingpong else sharing,
        "stages": stages,
        "in_flight": chooser.integer(0, stages - 1),
        "group": chooser.pick(GROUPS),
        "blocks": chooser.pick(BLOCKS) * cluster,
        "kind": MatmulKind.PINGPONG if is_pingpong else MatmulKind.COOPERATIVE,
        "cluster": cluster,
        "is_swapped": chooser.chance(5),
        "half": half,
        "residents": 2 if chooser.chance(10) else 1,
        "layers": half is None and chooser.chance(10),
    }
    return _spelled(MatmulConfig, values)


def products_parameters(chooser: Chooser) -> SpelledArgument | None:
    """A :class:`ProductsConfig`; ``None``: the drawn values do not fit together."""
    tile_m, warpgroups = chooser.pick(ROWS)
    stages = chooser.pick(STAGES)
    values: dict[str, Any] = {
        "tile_m": tile_m,
        "tile_n": chooser.pick(COLUMNS),
        "tile_k": chooser.pick(DEPTHS[:2]),
        "warpgroups": warpgroups,
        "stages": stages,
        "in_flight": chooser.integer(0, stages - 1),
        "blocks": chooser.pick(BLOCKS),
        "is_sorted": chooser.chance(50),
        "is_dynamic": chooser.chance(50),
    }
    return _spelled(ProductsConfig, values)


def attention_parameters(chooser: Chooser) -> SpelledArgument | None:
    """An :class:`AttentionConfig`; ``None``: the drawn values do not fit together."""
    warpgroups = chooser.pick((2, 1, 2, 3))
    values: dict[str, Any] = {
        "warpgroups": warpgroups,
        "chunk": chooser.pick((64, 32, 16, 128)),
        "stages": chooser.pick((2, 3, 1)),
        "cluster": 2 if chooser.chance(10) else 1,
        "blocks": chooser.pick((0, 0, 2, 4)),
        "query_stages": chooser.pick((1, 2)),
        "staged": chooser.pick((0, 0, 1)),
        "is_pipelined": chooser.chance(45),
        "in_turn": warpgroups > 1 and chooser.chance(45),
    }
    return _spelled(AttentionConfig, values)


def back_to_back_parameters(chooser: Chooser) -> SpelledArgument | None:
    """A :class:`BackToBackConfig`."""
    return _spelled(BackToBackConfig, {"warpgroups": chooser.pick((1, 2, 3)), "chunk": chooser.pick((32, 64, 16)), "stages": chooser.pick((2, 1, 3))})


def nested_sum_parameters(chooser: Chooser) -> SpelledArgument | None:
    """A :class:`NestedSumConfig`."""
    values = {"vector": chooser.pick((4, 8, 16)), "rows": chooser.pick((2, 4)), "stages": chooser.pick((1, 2, 4)), "each": chooser.pick((1, 2))}
    return _spelled(NestedSumConfig, values)


def windows_parameters(chooser: Chooser) -> SpelledArgument | None:
    """A :class:`WindowsConfig`."""
    values = {"tile": chooser.pick((2, 3, 4)), "lanes": chooser.pick((8, 4, 16)), "rows": chooser.pick((2, 1, 4)), "vector": chooser.pick((1, 1, 2))}
    return _spelled(WindowsConfig, values)


def mixed_gemm_parameters(chooser: Chooser) -> SpelledArgument | None:
    """A :class:`MixedGemmConfig`; ``None``: the drawn values do not fit together."""
    warp_m = chooser.pick((16, 32))
    values: dict[str, Any] = {
        "tile_m": warp_m * chooser.pick((1, 2, 3)),
        "tile_n": chooser.pick((8, 16, 24)),
        "warp_m": warp_m,
        "tile_k": chooser.pick((256, 128, 64)),
        "parts": chooser.pick((2, 1, 4)),
        "stages": chooser.pick((2, 3)),
    }
    return _spelled(MixedGemmConfig, values)


DRAWN = {
    "matmul": matmul_parameters,
    "products": products_parameters,
    "attention": attention_parameters,
    "back_to_back": back_to_back_parameters,
    "mixed_gemm": mixed_gemm_parameters,
    "nested_sums": nested_sum_parameters,
    "windows": windows_parameters,
}
"""The functions that draw parameters, by scheduler."""


Config = MatmulConfig | ProductsConfig | AttentionConfig | BackToBackConfig | MixedGemmConfig | NestedSumConfig | WindowsConfig


def _spelled(kind: type[Config], values: dict[str, Any]) -> SpelledArgument | None:
    """The parameters, without those that are the default, with what makes them."""
    try:
        made = kind(**values)
    except UnsupportedError:
        return None
    given = ", ".join(f"{f.name}={_text(values[f.name])}" for f in fields(made) if f.name in values and values[f.name] != f.default)
    return SpelledArgument(f"tf.schedulers.{kind.__name__}({given})", made)


def _text(value: object) -> str:
    if isinstance(value, Half):
        return f"tf.tiles.{value!s}"
    return f"tf.schedulers.{value!s}" if isinstance(value, MatmulKind) else repr(value)
