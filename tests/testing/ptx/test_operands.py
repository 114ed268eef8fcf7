"""Operands of an instruction as Python."""

import pytest

from taskfuse.testing.ptx.nodes import Float, Integer, PtxAddress, PtxError, Register, Symbol, Vector
from taskfuse.testing.ptx.operands import OperandReader, identifier, names, registers
from tests.testing.ptx.entry import instruction

R, S = Register("%r1"), Register("%tid.x")
READER = OperandReader(instruction("mov.u32 %r3, 1;"))


def test_identifiers() -> None:
    assert identifier(R) == "r__r1"
    assert identifier(S) == "r__tid_x"
    assert str.isidentifier(identifier(Register("t'3")))


def test_registers_of_an_operand() -> None:
    operand = Vector((R, PtxAddress(S, 4, (R, Integer(1))), Float("0f0"), Symbol("x")))
    assert list(registers(operand)) == [R, S, R]
    assert names(operand, R) == {identifier(R), identifier(S)}


def test_integers_are_without_sign_in_their_width() -> None:
    assert READER.value(Integer(-1), 32) == str(2**32 - 1)
    assert READER.value(Integer(-1)) == str(2**64 - 1)
    assert READER.value(R) == identifier(R)
    assert READER.value(Symbol("_")) == "0"
    assert READER.value(Symbol("shared")) == "at['shared']"
    assert READER.value(Float("0f3F800000")) == str(0x3F800000)


@pytest.mark.parametrize(("value", "bits", "expected"), [(-1, 32, -1), (2**32 - 1, 32, -1), (5, 32, 5), (200, 8, -56)])
def test_signed(value: int, bits: int, expected: int) -> None:
    assert eval(READER.signed(Integer(value), bits)) == expected
    assert eval(READER.signed(R, bits), {identifier(R): value & (1 << bits) - 1}) == expected


def test_addresses() -> None:
    assert READER.address(PtxAddress(R)) == identifier(R)
    assert eval(READER.address(PtxAddress(R, -4)), {identifier(R): 100}) == 96


def test_what_is_not_such_an_operand() -> None:
    for call, text in (
        (lambda: READER.value(PtxAddress(R)), "mov.u32: a plain operand is expected"),
        (lambda: READER.address(R), "mov.u32: an address is expected"),
        (lambda: READER.register(Integer(1)), "mov.u32: a register is expected"),
    ):
        with pytest.raises(PtxError, match=text):
            call()
    assert READER.outs(Vector((R, S))) == (R, S)
