"""Compilation by NVRTC, with no GPU and no driver."""

import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from taskfuse.cuda import nvrtc
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin, compile_ptx, installed_version, known_archs, supported_archs, version
from taskfuse.errors import CudaCompileError, CudaUnavailableError, RegisterError, UnsupportedError
from taskfuse.reports.resources import Resources

SCALE = """extern "C" __global__ void scale(float* x, float a) {
  x[threadIdx.x] = x[threadIdx.x] * a + 1.0f;
}
"""

SHARED = """extern "C" __global__ void k(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x];
}
"""

# 48 values at once, with 32 registers for a thread
SPILLS = """extern "C" __global__ void __launch_bounds__(1024, 2) k(float* x) {
  float v[48];
  #pragma unroll
  for (int i = 0; i < 48; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 48; ++i) x[i * 1024 + threadIdx.x] = v[(i + 7) % 48] * v[i];
}
"""

BUDGET = """extern "C" __global__ void k(float* x) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  x[threadIdx.x] = 1;
}
"""

ACCUMULATOR_IS_TOUCHED = """extern "C" __global__ void __launch_bounds__(128) k(float* x, unsigned long long a, unsigned long long b, int n) {
  float d0 = x[0], d1 = x[1], d2 = x[2], d3 = x[3];
  for (int i = 0; i < n; ++i) {
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;");
    if (i & 1) d0 *= 2;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  x[threadIdx.x] = d0 + d1 + d2 + d3;
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_a_cubin(arch: str) -> None:
    binary = compile_cubin(SHARED, "k", CompileOptions(arch=arch))
    assert binary.code.startswith(b"\x7fELF")
    assert b".text.k" in binary.code
    assert binary.resources is not None
    assert 0 < binary.resources.registers < 32
    assert binary.resources == Resources(binary.resources.registers, static_shared=256, stack=0, spill_stores=0, spill_loads=0, barriers=1)
    assert binary.diagnostics == ()
    assert f"for '{arch}'" in binary.log


INDEXED = """
extern "C" __global__ void k(const float* x, float* y, int n) {
  float v[64];
  for (int i = 0; i < 64; ++i) v[i] = x[64 * threadIdx.x + i];
  for (int i = 0; i < n; ++i) y[i] = v[(int)y[i] % 64];
}
"""


def test_an_array_in_local_memory() -> None:
    """An array at indices that are not known is no register, and no spill."""
    found = compile_cubin(INDEXED, "k", CompileOptions(arch="sm_90")).resources
    assert found is not None
    assert (found.local_arrays, found.spill_stores) == (256, 0)


def test_ptx() -> None:
    text = compile_ptx(SCALE, "scale", CompileOptions(arch="sm_90a"))
    assert ".target sm_90a" in text
    assert ".entry scale(" in text
    assert text.endswith("}\n\n") or text.endswith("}\n")
    assert ".target sm_80" in compile_ptx(SCALE, "scale", CompileOptions(arch="sm_80"))


def test_every_known_architecture_compiles() -> None:
    assert {75, 80, 86, 89, 90, 100, 120} <= set(supported_archs())
    assert {"sm_80", "sm_90", "sm_90a", "sm_100f", "sm_120a"} <= set(known_archs())
    for arch in known_archs():
        assert compile_cubin(SCALE, "scale", CompileOptions(arch=arch)).resources is not None


def test_math_is_ieee_unless_fast() -> None:
    accurate, fast = (compile_ptx(SCALE, "scale", CompileOptions(fast_math=fast_math)) for fast_math in (False, True))
    assert "fma" not in accurate
    assert "ftz" not in accurate
    assert "fma.rn.ftz.f32" in fast


def test_options_reach_the_compiler() -> None:
    text = SPILLS.replace("__launch_bounds__(1024, 2) ", "")
    free, bound = (compile_cubin(text, "k", CompileOptions(max_registers=registers)).resources for registers in (None, 32))
    assert free is not None
    assert bound is not None
    assert (free.registers > 40, free.spill_stores) == (True, 0)
    assert (bound.registers <= 32, bound.spill_stores > 0) == (True, True)
    assert ".loc" in compile_ptx(SCALE, "scale", CompileOptions(line_info=True))
    assert ".loc" not in compile_ptx(SCALE, "scale", CompileOptions())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SPILLS, "registers spill to local memory: "),
        (BUDGET, "'setmaxnreg' ignored"),
        (ACCUMULATOR_IS_TOUCHED, "wgmma.mma_async instructions are serialized"),
    ],
)
def test_what_ptxas_complains_about(text: str, expected: str) -> None:
    found = compile_cubin(text, "k", CompileOptions()).diagnostics
    assert any(d.text.startswith(expected) and d.help and d.of_registers for d in found), found


def test_equal_texts_give_equal_code_also_in_many_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(compile_cubin, SCALE, "scale", CompileOptions()) for _ in range(8)]
        codes = {f.result().code for f in found}
    assert len(codes) == 1


# -- errors ----------------------------------------------------------------------------------------------------------------------------


def refused(text: str) -> CudaCompileError:
    with pytest.raises(CudaCompileError) as caught:
        compile_cubin(text, "k", CompileOptions())
    return caught.value


def test_an_error_in_the_text() -> None:
    text = 'extern "C" __global__ void k(float* x) {\n  x[0] = 1;\n  x[1] = y;\n  x[2] = 3;\n}\n'
    error = refused(text)
    assert str(error) == (
        "the CUDA text of kernel 'k' does not compile for sm_90a: identifier \"y\" is undefined\n"
        'note: in the text, line 3: identifier "y" is undefined\n'
        '  1 | extern "C" __global__ void k(float* x) {\n'
        "  2 |   x[0] = 1;\n"
        "> 3 |   x[1] = y;\n"
        "  4 |   x[2] = 3;\n"
        "  5 | }\n"
        f"note: NVRTC {version()[0]}.{version()[1]}, --std=c++17 --minimal --fmad=false --ptxas-options=-v:\n"
        '  k.cu(3): error: identifier "y" is undefined\n'
        "      x[1] = y;\n"
        "             ^\n"
        "  \n"
        '  1 error detected in the compilation of "k.cu".\n'
        "help: this is a bug of taskfuse; please report it with this message and the fusion as print(fusion) gives it"
    )
    assert error.fields["text"] == text
    assert 'identifier "y" is undefined' in str(error.fields["log"])


def test_many_errors_are_shortened() -> None:
    text = "\n".join(['extern "C" __global__ void k(float* x) {', *(f"  x[{i}] = y{i};" for i in range(20)), "}"])
    error = refused(text)
    assert len(error.notes) == 4
    assert [note.split(":")[0] for note in error.notes[:3]] == ["in the text, line 2", "in the text, line 3", "in the text, line 4"]
    assert "> 2 | " in error.notes[0]
    assert error.notes[3].splitlines()[-1].endswith(" lines")
    assert len(error.notes[3].splitlines()) == 32


def test_an_error_in_the_assembler() -> None:
    error = refused('extern "C" __global__ void k(float* x) {\n  asm volatile("bogus.op;");\n}\n')
    assert error.fields["reason"] in ("Unknown modifier '.op'", "Not a name of any known instruction: 'bogus'")
    assert error.notes[0].startswith("in the PTX, line ")
    (quoted,) = [line for line in error.notes[0].splitlines() if line.startswith(">")]
    assert "bogus.op;" in quoted


def test_an_instruction_for_which_threads_have_too_few_registers() -> None:
    sums = ", ".join(f"d{k}" for k in range(64))
    text = f"""extern "C" __global__ void __launch_bounds__(1024) k(float* x, unsigned long long a, unsigned long long b) {{
  float {", ".join(f"d{k} = x[{k}]" for k in range(64))};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{", ".join(f"%{k}" for k in range(64))}}}, %64, %65, 1, 1, 1, 0, 0;"
               : {", ".join(f'"+f"(d{k})' for k in range(64))} : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  x[threadIdx.x] = {sums.replace(",", " +")};
}}
"""
    with pytest.raises(RegisterError, match="an instruction needs 90 registers of a thread, which has 64") as error:
        compile_cubin(text, "k", CompileOptions())
    assert error.value.help == "give the block fewer threads, or the instruction fewer columns"


def test_architectures_that_nvrtc_does_not_know() -> None:
    for arch in ("sm_35", "sm_80a", "sm_90f", "compute_90", "sm_090", "90", ""):
        for build in (compile_cubin, compile_ptx):
            with pytest.raises(UnsupportedError) as caught:
                build(SCALE, "scale", CompileOptions(arch=arch))
            assert str(caught.value) == (
                f"architecture {arch!r} is not supported: NVRTC {version()[0]}.{version()[1]} does not compile for it\n"
                f"help: use one of {', '.join(known_archs())}"
            )


@pytest.fixture
def not_loaded() -> Generator[None]:
    """NVRTC is looked for again, and once more after the test."""
    functions = (version, supported_archs)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


class Library(ModuleType):
    def nvrtcVersion(self) -> tuple[int, int, int]:
        raise RuntimeError('Failure finding "libnvrtc.so.13"\nsearched here\nand there')


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "import of cuda.bindings halted; None in sys.modules"),
        (Library("nvrtc"), 'Failure finding "libnvrtc.so.13"'),
    ],
)
def test_nvrtc_is_not_installed(monkeypatch: pytest.MonkeyPatch, not_loaded: None, module: ModuleType | None, reason: str) -> None:
    if module is None:
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    else:
        import cuda.bindings

        monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", module)
        monkeypatch.setattr(cuda.bindings, "nvrtc", module, raising=False)
    for call in (version, supported_archs, lambda: compile_cubin(SCALE, "scale", CompileOptions()), lambda: compile_ptx(SCALE, "scale", CompileOptions())):
        with pytest.raises(CudaUnavailableError) as caught:
            call()
        assert str(caught.value) == f"NVRTC, the compiler of CUDA C++, is not available: {reason}\nhelp: pip install taskfuse[cuda]"


def test_importing_the_module_loads_no_library() -> None:
    program = "import sys, taskfuse.cuda.cache; print([m for m in sys.modules if m == 'cuda' or m.startswith('cuda.')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert nvrtc.__name__ in sys.modules


def test_the_installed_version_is_told_without_loading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_version() in (None, version())  # None: it came with CUDA, or with conda
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "missing"), str(tmp_path)])
    assert installed_version() is None
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.13").touch()
    assert installed_version() is None
    (folder / "libnvrtc-builtins.so.13.12").touch()
    assert installed_version() == (13, 12)
    (folder / "libnvrtc-builtins.so.13.5").touch()
    assert installed_version() is None
