"""Sums of blocks in registers: schedules, values, planted mistakes."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.errors import UnsupportedError
from taskfuse.kir import parse_kernel
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.schedulers.scaled import ONE, arguments, grouped, symbolic

FORMS = ("1d2d", "1d1d", "bulk")


@cache
def kernel(form: str, config: MatmulConfig = ONE) -> tf.Kernel:
    fusion = symbolic(form)
    tf.schedulers.matmul(fusion, config)
    return tf.lower(fusion)


@pytest.mark.parametrize("form", FORMS)
def test_proved_and_right(form: str) -> None:
    """For all extents; simulated at some that are whole tiles and some that are not."""
    made = kernel(form)
    assert made.verify().is_proved
    for m, n, k in ((64, 64, 128), (68, 136, 256)):
        args = arguments(form, m, n, k)
        (found,) = made.simulate(*args, seed=m)
        (wanted,) = symbolic(form).evaluate(*args)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("config", [MatmulConfig(128, 192, 128, 2, 3, 0, 8, 132), MatmulConfig(192, 128, 128, 3, 3, 0, 8, 132)], ids=["wide", "three"])
def test_large_tiles_are_proved_and_spill_nothing(config: MatmulConfig) -> None:
    made = kernel("bulk", config)
    assert made.verify().is_proved
    resources = made.resources()
    assert resources is not None
    assert resources.compiled.spill_stores == 0


def test_ragged_groups() -> None:
    fusion = grouped(rows := 150, 2, 64, 128)
    rng = np.random.default_rng(0)
    factors = [rng.integers(-4, 5, s).astype(ml_dtypes.float8_e4m3fn) for s in ((rows, 128), (2, 64, 128))]
    args = [*factors, *(np.exp2(rng.integers(-2, 3, s)).astype(np.float32) for s in ((rows, 1), (2, 1, 1))), np.array([0, 70, rows], np.int32)]
    (wanted,) = fusion.evaluate(*args)
    tf.schedulers.matmul(fusion, MatmulConfig(128, 64, 128, 2, 2, 0, 2, 2))
    made = tf.lower(fusion)
    assert made.verify().is_proved
    assert np.array_equal(made.simulate(*args, seed=0)[0], wanted)


def test_scales_of_rows_have_a_ring_of_their_own() -> None:
    lines = [line.strip() for line in str(kernel("bulk")).splitlines()]
    (load,) = (line for line in lines if line.startswith("TMA tv") and "<- tv18.map" in line)
    assert "on ch1.full" in load
    waits = [line.split("[")[0] for line in lines if line.startswith("WAIT ch") and ".full" in line]
    assert waits == ["WAIT ch1.full", "WAIT ch0.full"]
    assert not any("scale_a[" in line for line in lines)


def test_what_does_not_fit() -> None:
    for config, reason in (
        (MatmulConfig(128, 256, 128, in_flight=0), "sums of blocks take as many registers as the products"),
        (MatmulConfig(64, 64, 128, 2, kind=MatmulKind.PINGPONG, in_flight=0), "warpgroups that take turns"),
        (MatmulConfig(128, 128, 128), "products of a block are read before the next is issued"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            tf.schedulers.matmul(symbolic("1d2d"), config)
    two = MatmulConfig(128, 192, 128, 2, 3, 0)
    tf.schedulers.matmul(symbolic("1d2d"), two)
    with pytest.raises(UnsupportedError, match="sums of blocks take as many registers as the products"):
        tf.schedulers.matmul(symbolic("1d1d"), two)  # each column has a scale of its own


def test_chosen_tiles_suit_it() -> None:
    for form in FORMS:
        chosen = tf.schedulers.matmul(symbolic(form), sizes={"M": 4096, "N": 4096, "K": 4096})
        assert all(option.config.in_flight == 0 and not option.config.is_pingpong for option in chosen.alternatives)
        assert chosen.config.accumulators <= 96


MISTAKES = {
    "the scale of the block before": ("1d2d", ", i16])", ", max(i16 - 1, 0)])"),
    "the scale of the next block of columns": ("1d2d", "copy(scale_b[min(", "copy(scale_b[min(1 + "),
    "the scale of the row before": ("1d2d", "copy(scale_a[min(", "copy(scale_a[min(-1 + "),
    "clamped to the last row but one": ("1d2d", ", M - 1)", ", M - 2)"),
    "accumulators that are not cleared": ("1d2d", "accumulate i26 >= 1", "accumulate i16 + i26 >= 1"),
    "accumulators that are cleared at every step": ("1d2d", "accumulate i26 >= 1", "accumulate i26 >= 4"),
    "the first block is not added": ("1d2d", "tv13[i22, i23, i24] = fma", "IF i16 >= 1:\n tv13[i22, i23, i24] = fma"),
    "a start that is not 0": ("1d2d", "= copy(0.0)", "= copy(1.0)"),
    "another element of the products": ("1d2d", "fma(tv9[4*i22 + i23 + 2*i24]", "fma(tv9[4*i22 + 2*i23 + i24]"),
    "products that are not complete": ("1d2d", "WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1"),
}


def edited(form: str, old: str, new: str) -> tf.Kernel:
    """The kernel with a mistake in it."""
    text = kernel(form).text(witness=True)
    assert old in text, old
    out: list[str] = []
    for line in text.splitlines():
        if old not in line:
            out.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        first, *rest = line.replace(old, new).splitlines()
        out += [first, *(f"{indent}  {more.strip()}" for more in rest)]
    return parse_kernel("\n".join(out) + "\n")


def test_the_twin_is_proved() -> None:
    assert verify(parse_kernel(kernel("1d2d").text(witness=True))).is_proved


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistakes(name: str) -> None:
    assert any(o.verdict is not Verdict.PROVED for o in verify(edited(*MISTAKES[name])).argument)
