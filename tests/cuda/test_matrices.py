"""The registers of A that a wgmma fence covers, and that the emitted text packs in front of it."""

import re

import pytest

from taskfuse.cuda.matrices import covered
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin, compile_ptx
from taskfuse.cuda.signature import Source
from taskfuse.cuda.source import emit
from taskfuse.dtypes import bfloat16
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import WgmmaFence
from taskfuse.kir.walk import Body, bodies, walk
from tests.lowering.contracted import lowered
from tests.products import PRODUCTS, Product
from tests.sim.kernels import load, replaced

SM_90A = CompileOptions(arch="sm_90a")
RS = load("gemm_rs")
(MULTIPLY,) = re.findall(r" *WGMMA.*\n", RS)
OTHER = MULTIPLY.replace("a_r[8*(kk % 2)]", "a_r[0]")


def fences(text: str) -> list[list[str]]:
    """What each fence of a kernel covers."""
    found: list[list[str]] = []

    def visit(body: Body) -> None:
        for k, stmt in enumerate(body):
            if isinstance(stmt, WgmmaFence):
                found.append([f"{a.buffer}[{', '.join(map(str, a.index))}]" for a in covered(body[k + 1 :])])
            for inner in bodies(stmt):
                visit(inner)

    visit(parse_kernel(text).body)
    return found


HERE = "a_r[8*(kk % 2)]"
LOOP = "      FOR i in 0..2 UNROLL:\n  "
COVERED: dict[str, tuple[str, list[list[str]]]] = {
    "the wgmma behind it": (RS, [[HERE]]),
    "each fragment once": (replaced(RS, MULTIPLY, MULTIPLY + OTHER + MULTIPLY), [[HERE, "a_r[0]"]]),
    "up to the next fence": (replaced(RS, MULTIPLY, MULTIPLY + "      FENCE wgmma\n" + OTHER), [[HERE], ["a_r[0]"]]),
    "every iteration of a loop": (replaced(RS, MULTIPLY, LOOP + MULTIPLY.replace("kk % 2", "i")), [["a_r[0]", "a_r[8]"]]),
    "a loop with the next fence": (replaced(RS, MULTIPLY, LOOP + MULTIPLY.replace("kk % 2", "i") + "        FENCE wgmma\n"), [["a_r[0]"], []]),
    "every branch": (replaced(RS, MULTIPLY, f"      IF K > 8:\n  {MULTIPLY}      ELSE:\n  {OTHER}"), [[HERE, "a_r[0]"]]),
    "no index without a value": (replaced(RS, MULTIPLY, (LOOP + MULTIPLY.replace("kk % 2", "i")).replace(" UNROLL", "")), [[]]),
    "no index of a later cursor": (
        replaced(RS, MULTIPLY, "      q = CURSOR(slots 2, slot 0, parity 0)\n" + MULTIPLY.replace("kk % 2", "q.slot")),
        [[]],
    ),
    "no tile": (load("gemm_fp8"), [[]]),
}


@pytest.mark.parametrize(("text", "want"), COVERED.values(), ids=COVERED)
def test_covered(text: str, want: list[list[str]]) -> None:
    assert fences(text) == want


def test_descriptors_that_are_no_units_apart_have_addresses_of_their_own() -> None:
    """Only what is known to be a multiple of 16 bytes can be divided before it is added to an address."""
    text = load("gemm").replace("+ 32*kk", "+ 8*kk")
    assert "matrix((const unsigned char*)&b_s[a_slot * 128 * 64] + 8 * kk, 0, 0x" in emit(parse_kernel(text)).text


def test_registers_that_are_declared_behind_the_fence_are_left_alone() -> None:
    """No element is written, so that the array is declared in the branch that alone uses it."""
    text = re.sub(r"FOR t in 0..2 UNROLL:\n *FOR v.*\n *a_r.*\n", "", str(Product(bfloat16, bfloat16, a_layout=None).kernel()))
    (multiply,) = re.findall(r"FOR t in .*\n *WGMMA.*\n", text)
    source = emit(parse_kernel(replaced(text, multiply, "IF threadIdx.x < 128:\n  " + multiply.replace("\n ", "\n   "))))
    assert source.text.index("wgmma_fence();") < source.text.index("unsigned short a_r[16];")
    assert "wgmma_factor" not in source.text
    compile_cubin(source.text, source.name, SM_90A)


def written_behind_fences(source: Source) -> list[str]:
    """Lines of PTX that write a register of a wgmma between it and the fence before it."""
    found: list[str] = []
    since: list[str] | None = None
    for line in compile_ptx(source.text, source.name, SM_90A).splitlines():
        if "wgmma.fence" in line:
            since = []
        elif operands := re.search(r"wgmma\.mma_async\S+ \{(.*?)\}, (?:\{(.*?)\})?", line):
            assert since is not None
            registers = {*operands[1].split(", "), *(operands[2] or "").split(", ")}
            found += [
                said for said in since if (out := re.match(r"\s*[a-z]\S*\s+(?:\{(.*?)\}|(%\w+)),", said)) and registers & {*(out[1] or out[2]).split(", ")}
            ]
        elif since is not None:
            since.append(line)
    assert since is not None
    return found


IN_REGISTERS: dict[str, Kernel] = {p.name: p.kernel() for p in PRODUCTS if p.a_layout is None}
IN_REGISTERS["gemm_rs"] = parse_kernel(RS)


@pytest.mark.parametrize("name", [*IN_REGISTERS, "wgmma from registers"])
def test_registers_are_written_before_the_fence(name: str) -> None:
    """Where one is not, NVRTC 13.0 adds a fence; where that is in the way of others (the last case), every NVRTC serializes wgmma."""
    source = emit(IN_REGISTERS[name] if name in IN_REGISTERS else lowered(name)[1])
    assert written_behind_fences(source) == []
    assert "  wgmma_factor(" in source.text


def test_a_lowered_factor_in_registers_runs_in_parallel() -> None:
    kernel = lowered("wgmma from registers")[1]
    assert sum(isinstance(s, Wgmma) for s in walk(kernel)) == 1
    source = emit(kernel)
    assert [line.strip() for line in source.text.splitlines() if line.startswith("      wgmma_f")] == [
        *(f"wgmma_factor(&tv2[{i}]);" for i in (0, 8, 16, 24)),
        "wgmma_fence();",
    ]
    binary = compile_cubin(source.text, source.name, SM_90A)
    assert binary.diagnostics == ()
    assert binary.resources is not None
    assert binary.resources.stack == 0
