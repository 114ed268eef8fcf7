"""What one instruction does, by itself. What it computes is run in test_machine.py."""

import pytest

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.nodes import PtxError, Register
from taskfuse.testing.ptx.operands import Happening, Operation, PtxAccess, PtxComputation
from taskfuse.testing.ptx.operations import operations
from taskfuse.testing.ptx.unknown import choose
from tests.testing.ptx.entry import instruction


def of(line: str) -> Operation:
    (found,) = operations(instruction(line))
    return found


def test_integers_are_computed() -> None:
    found = of("add.s32 %r3, %r1, -1;")
    assert isinstance(found, PtxComputation)
    assert found.out == Register("%r3")
    assert found.value is not None
    assert eval(found.value, {"r__r1": 5}) == 4
    assert found.reads == {"r__r1"}


def test_floats_are_functions_of_bits() -> None:
    found = of("fma.rn.f32 %r3, %r1, 0f40000000, %r2;")
    assert isinstance(found, PtxComputation)
    assert (found.value, found.reads) == (None, {"r__r1", "r__r2"})
    assert found.meaning is not None
    assert found.meaning.function(*(eval(o, {"r__r1": 0x40000000, "r__r2": 0xC0400000}) for o in found.meaning.operands)) == 0x3F800000
    unknown = of("fns.b32 %r3, %r1, %r2, %r3;")
    assert isinstance(unknown, PtxComputation)
    assert (unknown.value, unknown.meaning) == (None, None)


def test_moves_do_not_look_at_floats() -> None:
    for line, wanted in (("mov.f32 %r3, 0f3F800000;", 0x3F800000), ("selp.f32 %r3, 0f3F800000, %r1, %p1;", 0x3F800000)):
        found = of(line)
        assert isinstance(found, PtxComputation)
        assert found.value is not None
        assert eval(found.value, {"r__r1": 5, "r__p1": 1, "choose": choose}) == wanted


def test_carries() -> None:
    total, low, carry = operations(instruction("add.cc.u32 %r3, %r1, %r2;"))
    _, high = operations(instruction("addc.u32 %r3, %r1, 0;"))
    assert all(isinstance(o, PtxComputation) for o in (total, low, carry, high))
    values = {"r__r1": 0xFFFFFFFF, "r__r2": 3}
    for o in (total, low, carry):
        assert isinstance(o, PtxComputation)
        assert o.value is not None
        values["r_" + "".join(c if c.isalnum() else "_" for c in o.out.name)] = eval(o.value, dict(values))
    assert (values["r__r3"], values["r__cc"]) == (2, 1)


def test_halves_of_a_register() -> None:
    low, high = operations(instruction("mov.b64 {%r3, %r4}, %rd1;"))
    assert isinstance(low, PtxComputation)
    assert isinstance(high, PtxComputation)
    assert low.value is not None
    assert high.value is not None
    value = {"r__rd1": 7 << 32 | 5}
    assert (eval(low.value, value), eval(high.value, value)) == (5, 7)
    (only,) = operations(instruction("mov.b64 {_, %r4}, %rd1;"))
    assert isinstance(only, PtxComputation)
    assert only.out == Register("%r4")


@pytest.mark.parametrize(
    ("line", "store", "space", "size", "outs"),
    [
        ("ld.shared.u32 %r3, [%r1+8];", False, "shared", 4, ("%r3",)),
        ("ld.shared::cta.v4.f32 {%r3, %r4, %r5, %r6}, [%r1];", False, "shared", 16, ("%r3", "%r4", "%r5", "%r6")),
        ("st.global.v2.b64 [%rd1], {%rd2, %rd3};", True, "global", 16, ()),
        ("ld.u8 %r3, [%rd1];", False, "generic", 1, ("%r3",)),
        ("ld.param.u64 %rd1, [k_param_0];", False, "param", 8, ("%rd1",)),
    ],
)
def test_accesses(line: str, store: bool, space: str, size: int, outs: tuple[str, ...]) -> None:
    found = of(line)
    assert isinstance(found, PtxAccess)
    assert (found.store, found.space, found.size, tuple(r.name for r in found.outs)) == (store, space, size, outs)


def test_loads_of_constant_memory() -> None:
    found, other = of("ld.global.nc.f32 %r3, [%rd1];"), of("ld.global.f32 %r3, [%rd1];")
    assert isinstance(found, PtxAccess)
    assert isinstance(other, PtxAccess)
    assert (found.constant, other.constant) == (True, False)


def test_an_address_is_what_is_read() -> None:
    found = of("st.shared.u32 [%r1+8], %r2;")
    assert isinstance(found, PtxAccess)
    assert eval(found.address, {"r__r1": 100}) == 108
    assert found.reads == {"r__r1"}  # not what is stored
    assert found.values == ("r__r2",)


def test_elements_that_are_loaded() -> None:
    found = of("ld.global.v4.s8 {%r3, _, _, %r4}, [%rd1];")
    assert isinstance(found, PtxAccess)
    assert ([r.name for r in found.outs], found.places, found.element, found.signed) == (["%r3", "%r4"], (0, 3), 1, True)


def test_events_come_first() -> None:
    found = of("bar.sync 0;")
    assert isinstance(found, Happening)
    assert found.kind is Kind.BARRIER
    assert operations(instruction("call.uni f, ();")) == ()


@pytest.mark.parametrize(
    "line",
    [
        "ld.relaxed.gpu.global.u32 %r3, [%rd1];",
        "st.relaxed.gpu.global.u32 [%rd1], %r1;",
        "setp.equ.s32 %p1, %r1, %r2;",
        "add.q32 %r3, %r1, %r2;",
        "sad.s32 %r3, %r1, %r2, %r4;",
        "shl.pred %p1, %p2, %p3;",
        "cvt.sat.u8.s32 %r3, %r1;",
        "madc.hi.s32 %r3, %r1, %r2, %r4;",
    ],
)
def test_what_is_not_known_is_refused(line: str) -> None:
    with pytest.raises(PtxError, match=r"PTX line 17: .* not known"):
        operations(instruction(line))
