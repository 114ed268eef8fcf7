"""The text of PTX, as far as NVRTC prints it."""

import pytest

from taskfuse.testing.ptx.nodes import Data, Float, Integer, PtxAddress, PtxError, Register, Symbol, Vector
from taskfuse.testing.ptx.text import read
from tests.testing.ptx.entry import TEXT, function, instruction


def test_a_function() -> None:
    found = function("")
    assert (found.name, found.target, found.limits["maxntid"], found.limits["minnctapersm"]) == ("k", "sm_90a", (64, 1, 1), (1,))
    assert [(p.name, p.size, p.align) for p in found.params] == [("k_param_0", 8, 8), ("k_param_1", 12, 4)]
    assert [".".join(i.opcode) for i in found.code] == ["mov.u32", "mov.u32", "ret"]
    assert found.data == {"shared": Data("shared", 1, None, 0)}


def test_operands() -> None:
    assert instruction("ld.shared.v2.f32 {%r3, %r4}, [%r1+-4];").operands == (Vector((Register("%r3"), Register("%r4"))), PtxAddress(Register("%r1"), -4))
    assert instruction("mov.f32 %r3, 0f3F800000;").operands[1] == Float("0f3F800000")
    assert instruction("mov.u32 %r3, 0x1FU;").operands[1] == Integer(31)
    assert instruction("mov.u64 %rd1, shared;").operands[1] == Symbol("shared")
    box = instruction("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];")
    assert box.operands[0] == PtxAddress(Register("%rd1"), 0, (Register("%r1"), Register("%r2")))
    assert box.opcode[-2:] == ("shared::cta", "bulk_group")


def test_guards() -> None:
    for text, negated in (("@%p1 mov.u32 %r3, 1;", False), ("@!%p1 mov.u32 %r3, 1;", True)):
        found = instruction(text)
        assert (found.guard, found.negated) == (Register("%p1"), negated)
    assert instruction("mov.u32 %r3, 1;").guard is None


def test_the_second_result_of_a_shuffle_is_an_operand() -> None:
    assert instruction("shfl.sync.idx.b32 %r3|%p1, %r1, 0, 31, -1;").operands[:2] == (Register("%r3"), Register("%p1"))


def test_one_name_in_two_scopes_is_two_registers() -> None:
    one, two = function("{ .reg .b32 t; mov.u32 t, 1; }\n{ .reg .b32 t; mov.u32 t, 2; }\n").code[2:4]
    assert [i.operands[1] for i in (one, two)] == [Integer(1), Integer(2)]
    assert one.operands[0] != two.operands[0]


def test_labels_and_pragmas() -> None:
    found = function('$A:\n.pragma "used_bytes_mask 0x7";\nld.shared.u32 %r3, [%r1];\nbra $A;\nmov.u32 %r4, 1;\n')
    assert found.labels == {"$A": 2}
    assert [i.used for i in found.code[2:5]] == [7, None, None]  # of the next instruction alone


def test_data_of_the_module() -> None:
    extra = ".global .align 4 .b8 numbers[3] = {1, -2, 0x10};\n.global .align 4 .f32 halves[1] = {0f3F000000};\n.visible"
    found = read(TEXT.replace(".visible", extra).replace("BODY", ""))
    assert found.data["numbers"] == Data("global", 1, (1, -2, 16), 3)
    assert found.data["halves"].values == (0x3F000000,)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("mov.u32 %r3, §;", "PTX line 17: no token"),
        ("@3 mov.u32 %r3, 1;", "PTX line 17: '3' is not a register"),
        ("mov.u32 %r3, !%p1;", "PTX line 17: a negated operand"),
        ("ld.shared.u32 %r3, [%r1;", "']' is expected, not ';'"),
        (".weird thing;", "PTX line 17: a declaration: .weird thing"),
    ],
)
def test_what_is_refused(line: str, text: str) -> None:
    with pytest.raises(PtxError) as caught:
        function(line + "\n")
    assert text in str(caught.value)


def test_one_kernel_is_expected() -> None:
    text = TEXT.replace("BODY", "")
    for given, count in (("", 0), (text + text[text.index(".visible") :], 2)):
        with pytest.raises((PtxError, IndexError)) as caught:
            read(given + ("" if given else ".version 9.5\n"))
        assert f"one kernel is expected, not {count}" in str(caught.value)
    with pytest.raises(PtxError, match="the text ends too early"):
        read(text[: text.rindex("}")])


def test_widths_of_registers() -> None:
    found = function("{ .reg .b16 t; cvt.u16.u32 t, %r1; setp.eq.s32 %p1, %r1, 0; mov.u64 %rd1, 0; }\n").code[2:5]
    assert [i.operands[0].bits for i in found if isinstance(i.operands[0], Register)] == [16, 1, 64]


def test_functions_that_are_called() -> None:
    callee = ".func (.param .b32 f_ret) f(.param .b32 f_0, .param .b64 f_1)\n{\n.local .align 8 .b8 depot[24];\nret;\n}\n.visible .entry"
    call = "{ .param .b32 a; .param .b64 c; .param .b32 b; call.uni (b), f, (a, c); }\n"
    found = read(TEXT.replace("BODY", call).replace(".visible .entry", callee))
    assert [(p.name, p.size) for p in found.callees["f"].params] == [("f_ret", 4), ("f_0", 4), ("f_1", 8)]
    assert (found.callees["f"].data["depot"].bytes, found.data["b"].bytes) == (24, 4)
    assert found.code[2].operands == tuple(map(Symbol, ("b", "f", "a", "c")))
