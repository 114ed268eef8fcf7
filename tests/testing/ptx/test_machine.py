"""The reader and the machine of PTX, instruction by instruction: what is computed, what is unknown, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import pytest

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.machine import PtxMachine, Thread, ThreadEvent, TooLong, data_machine, machine
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.text import read
from taskfuse.testing.ptx.unknown import UNKNOWN, Unknown, Value
from tests.testing.ptx.entry import TEXT

MASK = (1 << 32) - 1


@dataclass
class Log:
    """What a thread did; waits pass at the second try."""

    events: list[tuple[Kind, tuple[object, ...]]] = field(default_factory=list[tuple[Kind, tuple[object, ...]]])
    accesses: list[tuple[bool, Value, int]] = field(default_factory=list[tuple[bool, Value, int]])
    doubts: int = 0

    def event(self, line: int, kind: Kind, operands: tuple[object, ...]) -> Value:
        self.events.append((kind, operands))
        return len(self.events) > 1

    def access(self, line: int, store: bool, address: Value, size: int) -> None:
        self.accesses.append((store, address, size))

    def uncertain(self) -> None:
        self.doubts += 1


@cache
def made(body: str) -> PtxMachine:
    return machine(read(TEXT.replace("BODY", body)))


def run(body: str, x: int = 0, y: int = 0) -> Log:
    log = Log()
    special = {f"{name}.{d}": 1 for name in ("tid", "ntid", "ctaid", "nctaid", "cluster_ctaid", "cluster_nctaid") for d in "xyz"}
    at: Mapping[str, int] = {"shared": 1024, "k_param_0": 1 << 56, "k_param_1": (1 << 56) + 8}
    made(body).run(special | {"tid.x": x, "tid.y": y}, at, lambda a, n: UNKNOWN, log)
    return log


def shown(lines: str, x: int, y: int) -> object:
    """What register %r9 holds after some lines; a barrier's number shows it."""
    ((_, (value, _)),) = run(lines + "\tbar.sync \t%r9, 32;\n", x & MASK, y & MASK).events
    return value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


EDGES = (0, 1, 2, 3, 7, 31, 32, 33, 2**31 - 1, -1, -2, -7, -(2**31))
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add.s32 %r9, %r1, %r2;": lambda a, b: a + b,
    "sub.s32 %r9, %r1, %r2;": lambda a, b: a - b,
    "mul.lo.s32 %r9, %r1, %r2;": lambda a, b: a * b,
    "mul.hi.s32 %r9, %r1, %r2;": lambda a, b: a * b >> 32,
    "mul.hi.u32 %r9, %r1, %r2;": lambda a, b: (a & MASK) * (b & MASK) >> 32,
    "mad.lo.s32 %r9, %r1, %r2, 5;": lambda a, b: a * b + 5,
    "neg.s32 %r9, %r1;": lambda a, b: -a,
    "not.b32 %r9, %r1;": lambda a, b: ~a,
    "abs.s32 %r9, %r1;": lambda a, b: abs(a),
    "min.s32 %r9, %r1, %r2;": min,
    "max.s32 %r9, %r1, %r2;": max,
    "max.u32 %r9, %r1, %r2;": lambda a, b: max(a & MASK, b & MASK),
    "div.s32 %r9, %r1, %r2;": truncated,
    "rem.s32 %r9, %r1, %r2;": lambda a, b: a - b * truncated(a, b),
    "rem.u32 %r9, %r1, %r2;": lambda a, b: (a & MASK) % (b & MASK),
    "xor.b32 %r9, %r1, %r2;": lambda a, b: a ^ b,
    "shl.b32 %r9, %r1, 3;": lambda a, b: a << 3,
    "shr.s32 %r9, %r1, 3;": lambda a, b: a >> 3,
    "shr.u32 %r9, %r1, 29;": lambda a, b: (a & MASK) >> 29,
    "shl.b32 %r9, %r1, %r2;": lambda a, b: a << min(b & MASK, 32),
    "shr.s32 %r9, %r1, %r2;": lambda a, b: a >> min(b & MASK, 32),
    "bfe.u32 %r9, %r1, 4, 3;": lambda a, b: a >> 4 & 7,
    "bfe.s32 %r9, %r1, 4, 3;": lambda a, b: (a >> 4 & 7) - 8 * (a >> 6 & 1),
    "bfi.b32 %r9, %r1, %r2, 6, 26;": lambda a, b: b & 63 | a << 6,
    "lop3.b32 %r9, %r1, %r2, 7, 0x96;": lambda a, b: a ^ b ^ 7,
    "prmt.b32 %r9, %r1, %r2, 0x5410;": lambda a, b: a & 0xFFFF | b << 16,
    "shf.l.wrap.b32 %r9, %r1, %r2, 8;": lambda a, b: b << 8 | (a & MASK) >> 24,
    "popc.b32 %r9, %r1;": lambda a, b: (a & MASK).bit_count(),
    "clz.b32 %r9, %r1;": lambda a, b: 32 - (a & MASK).bit_length(),
    "mul.wide.s32 %rd1, %r1, %r2; cvt.u32.u64 %r9, %rd1;": lambda a, b: a * b,
    "cvt.s64.s32 %rd1, %r1; shr.s64 %rd2, %rd1, 31; cvt.u32.u64 %r9, %rd2;": lambda a, b: a >> 31,
    "cvt.u64.u32 %rd1, %r1; shr.u64 %rd2, %rd1, 31; cvt.u32.u64 %r9, %rd2;": lambda a, b: (a & MASK) >> 31,
    "mov.b64 %rd1, {%r1, %r2}; mov.b64 {%r8, %r9}, %rd1;": lambda a, b: b,
    "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r9, 1, 2, %p1;": lambda a, b: 1 if a < b else 2,
    "setp.lt.u32 %p1, %r1, %r2; selp.b32 %r9, 1, 2, %p1;": lambda a, b: 1 if a & MASK < b & MASK else 2,
    "setp.ne.s32 %p1, %r1, %r2; selp.b32 %r9, 1, 2, %p1;": lambda a, b: 1 if a != b else 2,
    "mov.pred %p1, -1; not.pred %p2, %p1; selp.b32 %r9, 1, 2, %p2;": lambda a, b: 2,
    "setp.lt.s32 %p1, %r1, %r2; xor.pred %p2, %p1, -1; selp.b32 %r9, 1, 2, %p2;": lambda a, b: 2 if a < b else 1,
    "add.cc.u32 %r3, %r1, %r2; addc.u32 %r9, 0, 0;": lambda a, b: (a & MASK) + (b & MASK) >> 32,
    "sub.cc.u32 %r3, %r1, %r2; subc.u32 %r9, 0, 0;": lambda a, b: -(a & MASK < b & MASK),
    "mad.lo.cc.u32 %r3, %r1, %r2, %r1; madc.hi.u32 %r9, %r1, %r2, 0;": lambda a, b: (a & MASK) * (b & MASK) + (a & MASK) >> 32,
    "cvt.s32.s8 %r9, %r1;": lambda a, b: (a & 255 ^ 128) - 128,
    "dp4a.s32.u32 %r9, %r1, %r2, 5;": lambda a, b: 5 + sum(((a >> k & 255 ^ 128) - 128) * (b >> k & 255) for k in range(0, 32, 8)),
    "dp2a.lo.s32.u32 %r9, %r1, %r2, 5;": lambda a, b: 5 + sum(((a >> 16 * k & 65535 ^ 32768) - 32768) * (b >> 8 * k & 255) for k in range(2)),
    "dp2a.hi.u32.s32 %r9, %r1, %r2, 5;": lambda a, b: 5 + sum((a >> 16 * k & 65535) * ((b >> 16 + 8 * k & 255 ^ 128) - 128) for k in range(2)),
    "bfind.u32 %r9, %r1;": lambda a, b: (a & MASK).bit_length() - 1,
    "bfind.shiftamt.u32 %r9, %r1;": lambda a, b: 32 - (a & MASK).bit_length() if a else -1,
    "brev.b32 %r9, %r1;": lambda a, b: int(f"{a & MASK:032b}"[::-1], 2),
    "setp.eq.s32 %p1, %r1, 3; setp.gt.or.s32 %p2, %r2, 5, %p1; selp.b32 %r9, 1, 2, %p2;": lambda a, b: 1 if b > 5 or a == 3 else 2,
    "mov.u32 %r9, 4; setp.gt.s32 %p1, %r1, %r2; @%p1 mov.u32 %r9, 5;": lambda a, b: 5 if a > b else 4,
    "mov.u32 %r9, 4; setp.gt.s32 %p1, %r1, %r2; @!%p1 mov.u32 %r9, 5;": lambda a, b: 4 if a > b else 5,
}


@pytest.mark.parametrize("line", OPERATIONS)
def test_arithmetic(line: str) -> None:
    for a in EDGES:
        for b in EDGES:
            if b or not line.startswith(("div", "rem")):
                assert shown(line + "\n", a, b) == OPERATIONS[line](a, b) & MASK, (a, b)


def test_what_is_divided_by_zero_is_unknown() -> None:
    assert isinstance(shown("div.s32 %r9, %r1, %r2;\n", 5, 0), Unknown)


LOAD = "ld.global.u32 %r3, [%rd1]; setp.eq.s32 %p1, %r3, 0;\n"


def test_control() -> None:
    loop = "mov.u32 %r4, 0;\n$A:\nbar.sync 0;\nadd.s32 %r4, %r4, 1;\nsetp.lt.s32 %p1, %r4, %r1;\n@%p1 bra $A;\n"
    assert len(run(loop, x=5).events) == 5
    with pytest.raises(TooLong):
        run("$A:\nbar.sync 0;\nbra.uni $A;\n")


def test_waits_are_tried_until_they_pass() -> None:
    wait = "$A:\n{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r2; selp.u32 %r5, 1, 0, p; }\nsetp.eq.s32 %p1, %r5, 0;\n@%p1 bra $A;\n"
    assert run(wait, 1032, 1).events == [(Kind.WAIT, ("acquire cta shared::cta", 1032, 1))] * 2


def test_branches_on_data() -> None:
    with pytest.raises(PtxError, match=r"data decides whether line 19 is executed: bar\.sync"):
        run(LOAD + "@%p1 bra $A;\nbar.sync 0;\n$A:\n")
    log = run(LOAD + "mov.u32 %r4, 1;\n@%p1 bra $A;\nmov.u32 %r4, 2;\n$A:\nbar.sync %r4;\n")
    assert isinstance(log.events[0][1][0], Unknown)
    log = run(LOAD + "mov.u32 %r4, 1;\n@%p1 bra $A;\nmov.u32 %r5, 2;\nst.shared.u32 [%r1], %r5;\n$A:\nbar.sync %r4;\n")
    assert (log.events[0][1][0], log.doubts) == (1, 1)
    with pytest.raises(PtxError, match="data decides"):
        run(LOAD + "@%p1 bar.sync 0;\n")


def test_accesses() -> None:
    log = run('.pragma "used_bytes_mask 7";\nld.shared.v4.u8 {%r3, %r4, %r5, %r6}, [%r1+8];\nst.global.v2.f32 [%rd1], {%r7, %r8};\n', x=1024)
    assert log.accesses[:3] == [(False, 1032 + k, 1) for k in range(3)]
    assert log.accesses[3][0]
    assert log.accesses[3][2] == 8


@pytest.mark.parametrize(
    "line",
    ["tcgen05.fence::before_thread_sync;", "elect.sync %r3|%p1, -1;", "mbarrier.inval.shared.b64 [%r1];", "brx.idx %r1, $A;", "cp.async.bulk.prefetch [%r1];"],
)
def test_what_is_not_known_is_refused(line: str) -> None:
    with pytest.raises(PtxError, match="PTX line 17"):
        run(line + "\n")


class Bytes:
    """Memory of a thread, from address 0 on."""

    def __init__(self) -> None:
        self.content = bytearray(256)

    def load(self, line: int, space: str, address: int, size: int, used: int | None = None) -> int:
        return int.from_bytes(self.content[address : address + size], "little")

    def store(self, line: int, space: str, address: int, size: int, value: int) -> None:
        self.content[address : address + size] = value.to_bytes(size, "little")


def computed(body: str, prefix: str = "", x: int = 0, y: int = 0) -> bytearray:
    """Memory after a thread has computed values."""
    program = data_machine(read(TEXT.replace("BODY", body).replace(".visible .entry", prefix + ".visible .entry")))
    memory = Bytes()
    special = {f"{name}.{d}": 1 for name in ("tid", "ntid", "ctaid", "nctaid", "cluster_ctaid", "cluster_nctaid") for d in "xyz"}
    at = {"shared": 0, **{name: 128 + place for name, place in program.private.items()}}
    thread = program.thread(special | {"tid.x": x, "tid.y": y}, at, memory)
    assert next(thread, None) is None
    return memory.content


@pytest.mark.parametrize("line", OPERATIONS)
def test_both_kinds_of_programs_compute_the_same_integers(line: str) -> None:
    found = computed(line + " st.shared.u32 [0], %r9;\n", x=-7 & MASK, y=5)
    assert int.from_bytes(found[:4], "little") == OPERATIONS[line](-7, 5) & MASK


def test_loaded_and_stored_elements() -> None:
    body = """\
mov.u32 %r3, 0x8080FF7F;
st.shared.u32 [0], %r3;
ld.shared.v2.s8 {%r4, %r5}, [0];
st.shared.v2.u32 [8], {%r4, %r5};
ld.shared.v2.u8 {_, %r5}, [2];
st.shared.u16 [16], %r5;
setp.eq.s32 %p1, %r5, 0;
@%p1 st.shared.u32 [8], %r3;
"""
    assert computed(body)[:18].hex() == "7fff8080" + "00000000" + "7f000000" + "ffffffff" + "8000"


def test_addresses_of_32_bits_wrap() -> None:
    assert computed("mov.u32 %r3, -8;\nst.shared.u32 [%r3+16], 5;\n")[8] == 5


def test_values_decide_branches() -> None:
    body = "mov.f32 %r3, 0f3F800000;\nsetp.lt.f32 %p1, %r3, 0f40000000;\n@%p1 bra $A;\nmov.u32 %r4, 1;\nbra $B;\n$A:\nmov.u32 %r4, 2;\n$B:\n"
    body += "st.shared.u32 [0], %r4;\n"
    assert computed(body)[0] == 2


def _rest(thread: Thread, reply: tuple[int, ...]) -> Iterator[ThreadEvent]:
    """The events after a reply, which have no results."""
    try:
        event = thread.send(reply)
        while True:
            yield event
            event = thread.send(())
    except StopIteration:
        return


def test_a_thread_yields_its_events() -> None:
    program = data_machine(read(TEXT.replace("BODY", "shfl.sync.bfly.b32 %r3|%p1, %r1, 4, 31, -1;\nst.shared.u32 [0], %r3;\n")))
    memory = Bytes()
    special = {f"{name}.{d}": 7 for name in ("tid", "ntid") for d in "xyz"}
    thread = program.thread(special, {}, memory)
    assert next(thread) == (17, Kind.SHUFFLE, ("bfly", 4, 31, MASK), (7,))
    assert [*_rest(thread, (9, 1))] == []
    assert memory.content[0] == 9


def test_calls_pass_values() -> None:
    callee = ".func (.param .b32 f_ret) f(.param .b32 f_0)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [f_0];\nadd.s32 %r1, %r1, 1;\n"
    callee += "st.param.b32 [f_ret], %r1;\nret;\n}\n"
    call = "{ .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; call.uni (b), f, (a); ld.param.b32 %r9, [b]; }\n"
    call += "st.shared.u32 [0], %r9;\n"
    assert computed(call, callee, x=41)[0] == 42


def test_what_is_computed_must_be_known() -> None:
    line = "fns.b32 %r3, %r1, %r2, %r1;\n"
    assert run(line).events == []
    with pytest.raises(PtxError, match="what it computes is not known"):
        computed(line + "st.shared.u32 [0], %r3;\n")
    assert computed(line)[0] == 0  # nothing needs it


def test_calls() -> None:
    callee = ".func (.param .b32 f_ret) f(.param .b32 f_0)\n{\n.reg .b32 %r<3>;\nLINE\nret;\n}\n.visible .entry"
    call = "{ .param .b32 a; st.param.b32 [a+0], %r1; .param .b32 b; call.uni (b), f, (a); ld.param.b32 %r9, [b+0]; }\nbar.sync 0;\n"

    def called(line: str) -> int:
        return len(machine(read(TEXT.replace("BODY", call).replace(".visible .entry", callee.replace("LINE", line)))).events)

    assert called("add.s32 %r1, %r1, 1;") == 1
    for line in ("bar.sync 0;", "st.global.u32 [%r1], %r1;"):
        with pytest.raises(PtxError, match="more than compute"):
            called(line)
