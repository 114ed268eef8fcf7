"""Nodes of PTX: what errors say, and sizes of types."""

from taskfuse.testing.ptx.nodes import SIZES, PtxError, PtxInstruction


def test_an_error_names_the_line() -> None:
    assert str(PtxError(7, "no token")) == "PTX line 7: no token"


def test_an_instruction_in_words() -> None:
    assert str(PtxInstruction(3, ("ld", "global", "u32"), ())) == "line 3: ld.global.u32"


def test_bytes_of_types() -> None:
    assert (SIZES["b8"], SIZES["u16"], SIZES["s32"], SIZES["f64"], SIZES["b128"]) == (1, 2, 4, 8, 16)
    assert "f128" not in SIZES
