"""Compiled kernels in memory and on disk, with a compiler that counts."""

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from taskfuse.cuda import cache
from taskfuse.cuda.cache import cache_key, compiled
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.cuda.resources import diagnostics, parse_resources
from taskfuse.errors import CudaCompileError, RegisterError, TaskfuseWarning
from taskfuse.options import Options, read_options
from taskfuse.reports.resources import Resources

OPTIONS = CompileOptions()
LOG = """\
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     8 bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 8 bytes cumulative stack size"""


class Compiler:
    """Stands for NVRTC: the code is the text; a text of ``spill`` spills."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, text: str, name: str, options: CompileOptions) -> Binary:
        self.calls.append(text)
        if "error" in text:
            raise CudaCompileError(kernel=name, arch=options.arch, reason="error", text=text, log="")
        log = LOG.format(spills=16 if "spill" in text else 0)
        resources = parse_resources(log, name)
        return Binary(text.encode(), log, resources, diagnostics(log, resources))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler()
    monkeypatch.setattr(cache, "compile_cubin", compiler)
    monkeypatch.setattr(cache, "version", lambda: (13, 0))
    monkeypatch.setattr(cache, "installed_version", lambda: None)
    monkeypatch.setattr(cache, "process_cache", cache.ProcessCache())
    return compiler


@pytest.fixture
def next_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what is in memory."""
    return lambda: monkeypatch.setattr(cache, "process_cache", cache.ProcessCache())


@pytest.fixture
def settings(tmp_path: Path) -> Options:
    return read_options({"HOME": "/nowhere", "TASKFUSE_CACHE_DIR": str(tmp_path / "cache")})


def files(settings: Options) -> list[Path]:
    return sorted(settings.cache_dir.iterdir()) if settings.cache_dir.exists() else []


def test_from_memory_and_from_disk(compiler: Compiler, settings: Options, next_process: Callable[[], None]) -> None:
    first = compiled("text", "k", OPTIONS, settings)
    assert first == Binary(b"text", LOG.format(spills=0), Resources(40, 0, 8, 0, 0, 1, local_arrays=8), ())
    assert compiled("text", "k", OPTIONS, settings) is first
    assert [path.name for path in files(settings)] == [f"{cache_key('text', 'k', OPTIONS, (13, 0))}.kernel"]
    next_process()
    assert compiled("text", "k", OPTIONS, settings) == first
    assert compiler.calls == ["text"]


def test_a_damaged_entry_is_compiled_again(compiler: Compiler, settings: Options, next_process: Callable[[], None]) -> None:
    compiled("text", "k", OPTIONS, settings)
    (path,) = files(settings)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + b"x", whole[:60], b"", whole[::-1]):
        path.write_bytes(damaged)
        next_process()
        assert compiled("text", "k", OPTIONS, settings).code == b"text"
        assert path.read_bytes() == whole
    assert len(compiler.calls) == 6


def test_what_the_key_depends_on(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"arch": "sm_80", "fast_math": True, "max_registers": 40, "line_info": True}
    assert others.keys() == set(CompileOptions._fields)
    keys = [
        cache_key("text", "k", OPTIONS, (13, 0)),
        cache_key("text", "k", OPTIONS, (13, 5)),
        cache_key("text ", "k", OPTIONS, (13, 0)),
        cache_key("text", "k2", OPTIONS, (13, 0)),
        cache_key("tex", "tk", OPTIONS, (13, 0)),
        *(cache_key("text", "k", OPTIONS._replace(**{name: value}), (13, 0)) for name, value in others.items()),
    ]
    assert cache_key("text", "k", CompileOptions(), (13, 0)) == keys[0]
    for name, value in {"VERSION": "999", "_FORM": 2}.items():
        with monkeypatch.context() as patch:
            patch.setattr(cache, name, value)
            keys.append(cache_key("text", "k", OPTIONS, (13, 0)))
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)


def test_a_hit_asks_for_the_version_only_where_it_is_not_known(
    compiler: Compiler, settings: Options, monkeypatch: pytest.MonkeyPatch, next_process: Callable[[], None]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cache, "version", lambda: asked.append("") or (13, 0))
    monkeypatch.setattr(cache, "installed_version", lambda: (13, 0))
    compiled("text", "k", OPTIONS, settings)
    asked.clear()
    next_process()
    compiled("text", "k", OPTIONS, settings)
    assert (asked, compiler.calls) == ([], ["text"])
    # another process had a NVRTC loaded that is not the one installed: what it compiles is kept for its like alone
    monkeypatch.setattr(cache, "installed_version", lambda: (13, 5))
    next_process()
    compiled("text", "k", OPTIONS, settings)
    assert compiler.calls == ["text"]
    monkeypatch.setattr(cache, "version", lambda: (13, 5))
    next_process()
    compiled("text", "k", OPTIONS, settings)
    assert (len(compiler.calls), len(files(settings))) == (2, 2)


def test_always_compile(compiler: Compiler, settings: Options, next_process: Callable[[], None]) -> None:
    always = replace(settings, always_compile=True)
    for _ in range(2):
        compiled("text", "k", OPTIONS, always)
    next_process()
    compiled("text", "k", OPTIONS, always)
    assert len(compiler.calls) == 3
    compiled("text", "k", OPTIONS, settings)
    next_process()
    compiled("text", "k", OPTIONS, settings)
    assert len(compiler.calls) == 3


def test_memory_only(compiler: Compiler, settings: Options) -> None:
    memory = replace(settings, cache_bytes=0)
    assert compiled("text", "k", OPTIONS, memory) is compiled("text", "k", OPTIONS, memory)
    assert (compiler.calls, files(settings)) == (["text"], [])


def test_memory_is_bounded(compiler: Compiler, settings: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MEMORY_BYTES", 100)
    memory = replace(settings, cache_bytes=0)
    texts = [letter * 40 for letter in "abc"]
    for text in (texts[0], texts[1], texts[0], texts[2]):  # b is the least recently used
        compiled(text, "k", OPTIONS, memory)
    assert compiler.calls == texts
    compiled(texts[0], "k", OPTIONS, memory)
    assert compiler.calls == texts
    compiled(texts[1], "k", OPTIONS, memory)
    assert compiler.calls == [*texts, texts[1]]
    compiled("d" * 1000, "k", OPTIONS, memory)
    compiled("d" * 1000, "k", OPTIONS, memory)
    assert len(compiler.calls) == 5
    assert (len(cache.process_cache.kernels), cache.process_cache.bytes) == (1, 1000)


# -- warnings --------------------------------------------------------------------------------------------------------------------------


def test_a_hit_warns_like_a_compilation(compiler: Compiler, settings: Options, next_process: Callable[[], None]) -> None:
    def warnings_of() -> list[tuple[str, str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                compiled("spill", "k", OPTIONS, settings)
        assert all(warning.category is TaskfuseWarning for warning in caught)
        return [(str(warning.message).splitlines()[0], warning.filename) for warning in caught]

    expected = [("kernel 'k' for sm_90a: registers spill to local memory: 16 bytes stored, 16 loaded in the code of a thread, at 40 registers", __file__)]
    assert warnings_of() == expected
    next_process()
    assert warnings_of() == expected
    assert compiler.calls == ["spill"]


def test_a_strict_kernel_does_not_spill(compiler: Compiler, settings: Options) -> None:
    expected = (
        "kernel 'k' for sm_90a: registers spill to local memory: 16 bytes stored, 16 loaded in the code of a thread, at 40 registers\n"
        "help: give a thread less to hold: smaller unrolled or vectorized axes, fewer tensors inlined together, or more threads; "
        "Shared memory for the largest"
    )
    for _ in range(2):
        with pytest.raises(RegisterError) as error:
            compiled("spill", "k", OPTIONS, settings, strict=True)
        assert "\n".join(line for line in str(error.value).split("\n") if not line.startswith(("  -->", "   |"))) == expected
    assert compiler.calls == ["spill"]
    assert compiled("fits", "k", OPTIONS, settings, strict=True).code == b"fits"


def test_each_kernel_warns(compiler: Compiler, settings: Options) -> None:
    for text in ("spill 1", "spill 2"):
        with pytest.warns(TaskfuseWarning, match="spill"):
            compiled(text, "k", OPTIONS, settings)


def test_a_warning_that_is_an_error_loses_nothing(compiler: Compiler, settings: Options) -> None:
    with pytest.raises(TaskfuseWarning, match="registers spill to local memory"):
        compiled("spill", "k", OPTIONS, settings)
    assert compiled("spill", "k", OPTIONS, settings).code == b"spill"
    assert compiler.calls == ["spill"]


def test_a_folder_that_cannot_be_written(compiler: Compiler, settings: Options) -> None:
    settings.cache_dir.write_text("mine")
    with pytest.warns(TaskfuseWarning) as caught:
        compiled("text", "k", OPTIONS, settings)
    assert [str(warning.message) for warning in caught] == [
        f"compiled kernels are kept in memory only: {settings.cache_dir}: File exists\n"
        "help: set TASKFUSE_CACHE_DIR to a folder that can be written, or TASKFUSE_CACHE_BYTES=0 for none"
    ]
    compiled("text", "k", OPTIONS, settings)
    compiled("other", "k", OPTIONS, settings)
    assert compiler.calls == ["text", "other"]
    assert settings.cache_dir.read_text() == "mine"


# -- threads and processes -------------------------------------------------------------------------------------------------------------


def together(count: int, work: Callable[[int], object]) -> list[object]:
    """What ``work(0)`` ... return or raise, in threads that start at once."""
    results: list[object] = [None] * count
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return results


def test_threads_compile_a_kernel_once(compiler: Compiler, settings: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(text: str, name: str, options: CompileOptions) -> Binary:
        time.sleep(0.05)
        return compiler(text, name, options)

    monkeypatch.setattr(cache, "compile_cubin", slowly)
    found = together(8, lambda number: compiled("text", "k", OPTIONS, settings))
    assert all(binary is found[0] for binary in found)
    assert compiler.calls == ["text"]
    assert cache.process_cache.key_locks == {}


def test_different_kernels_do_not_wait_for_each_other(compiler: Compiler, settings: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Barrier(4, timeout=10)

    def meet(text: str, name: str, options: CompileOptions) -> Binary:
        inside.wait()
        return compiler(text, name, options)

    monkeypatch.setattr(cache, "compile_cubin", meet)
    found = together(4, lambda number: compiled(f"text {number}", "k", OPTIONS, settings).code)
    assert found == [b"text 0", b"text 1", b"text 2", b"text 3"]


def test_a_compilation_that_fails_is_not_remembered(compiler: Compiler, settings: Options) -> None:
    found = together(4, lambda number: compiled("error", "k", OPTIONS, settings))
    assert all(isinstance(error, CudaCompileError) for error in found)
    assert (len(compiler.calls), files(settings), cache.process_cache.key_locks) == (4, [], {})


FORK = """
import os, sys, threading, time
from pathlib import Path
from taskfuse.cuda import cache
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.options import read_options

settings = read_options({"HOME": "/nowhere", "TASKFUSE_CACHE_DIR": sys.argv[1]})
inside, done = threading.Event(), threading.Event()

def compile(text, name, options):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        done.wait()
    return Binary(text.encode(), "", None, ())

cache.compile_cubin, cache.version, cache.installed_version = compile, lambda: (13, 0), lambda: None
thread = threading.Thread(target=cache.compiled, args=("text", "k", CompileOptions(), settings))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    print(cache.compiled("text", "k", CompileOptions(), settings).code, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
done.set()
thread.join()
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this system")
def test_a_fork_while_a_thread_compiles(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)], capture_output=True, text=True, timeout=15)
    assert (found.stdout, found.stderr) == ("b'text'\n0\n", "")


def test_with_the_compiler_itself(settings: Options, monkeypatch: pytest.MonkeyPatch, next_process: Callable[[], None]) -> None:
    text = 'extern "C" __global__ void __launch_bounds__(64) k(float* x) { x[threadIdx.x] = 1; }'
    next_process()
    first = compiled(text, "k", OPTIONS, settings)
    assert first.code.startswith(b"\x7fELF")
    next_process()
    monkeypatch.setattr(cache, "compile_cubin", None)
    assert compiled(text, "k", OPTIONS, settings) == first
