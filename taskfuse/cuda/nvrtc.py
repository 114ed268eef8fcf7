"""CUDA C++ to machine code with NVRTC. Needs no GPU, no driver and no CUDA toolkit: the library comes with ``pip install taskfuse[cuda]``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from taskfuse.cuda.resources import Diagnostic, diagnostics, parse_resources
from taskfuse.errors import CudaCompileError, CudaUnavailableError, RegisterError, UnsupportedError, shown
from taskfuse.reports.resources import Resources

if TYPE_CHECKING:
    from cuda.bindings.nvrtc import nvrtcProgram


class CompileOptions(NamedTuple):
    """The options of a compilation.

    Attributes:
        arch: target: ``sm_80``, ``sm_90a``, ...; with ``a``, instructions of that architecture alone are included (wgmma needs it, TMA does not).
        fast_math: approximate division, square root and functions, subnormals flushed, multiplications and additions fused.
        max_registers: the most registers of a thread; ``None``, or if the text has launch bounds: the number that those allow.
        line_info: keep line numbers for profilers and sanitizers.
    """

    arch: str = "sm_90a"
    fast_math: bool = False
    max_registers: int | None = None
    line_info: bool = False

    def flags(self) -> tuple[str, ...]:
        """The flags for NVRTC without the architecture. Math is IEEE, and products are not fused with sums, unless ``fast_math``."""
        flags = [
            "--std=c++17",
            "--minimal",  # leaves out textures, device-side runtime calls and their types: a tenth of the time of a small kernel
            "--use_fast_math" if self.fast_math else "--fmad=false",
        ]
        if self.max_registers is not None:
            flags.append(f"--maxrregcount={self.max_registers}")
        if self.line_info:
            flags.append("--generate-line-info")
        return tuple(flags)


class Binary(NamedTuple):
    """A compiled kernel.

    Attributes:
        code: the cubin, an ELF file.
        log: the output of NVRTC and ptxas.
        resources: the resources of the kernel; ``None`` if the form of this NVRTC's log is unknown.
        diagnostics: the complaints of ptxas.
    """

    code: bytes
    log: str
    resources: Resources | None
    diagnostics: tuple[Diagnostic, ...]


def compile_cubin(text: str, name: str, options: CompileOptions) -> Binary:
    """Machine code of ``text``, which defines the one kernel ``name`` (``extern "C"``).

    Raises:
        CudaCompileError: NVRTC or ptxas rejects the text.
        RegisterError: an instruction needs more registers than the block's threads have.
        CudaUnavailableError: NVRTC is not installed.
        UnsupportedError: this NVRTC does not know the architecture.
    """
    check_arch(options.arch)
    code, log = _Program(text, name, options.arch).cubin((*options.flags(), "--ptxas-options=-v"))
    resources = parse_resources(log, name)
    return Binary(code, log, resources, diagnostics(log, resources))


def compile_ptx(text: str, name: str, options: CompileOptions) -> str:
    """PTX of ``text``. Raises the errors of :func:`compile_cubin`, except those of ptxas."""
    check_arch(options.arch)
    return _Program(text, name, options.arch).ptx(options.flags())


@cache
def version() -> tuple[int, int]:
    """Version of the NVRTC in use: (13, 5).

    Raises:
        CudaUnavailableError: NVRTC is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()  # the first call loads the library: RuntimeError if it is missing
    except (ImportError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CudaUnavailableError(what="NVRTC, the compiler of CUDA C++,", reason=reason, help="pip install taskfuse[cuda]") from error
    return major, minor


def installed_version() -> tuple[int, int] | None:
    """Version of the NVRTC that ``pip`` installed for this interpreter, found without loading it; ``None`` if there is none, or several.

    The version is in the name of a library that NVRTC loads, ``libnvrtc-builtins.so.13.5``. A process may use another NVRTC that was loaded before.
    """
    folders = tuple(sys.path)
    known = _folders.get(folders)
    found = None if known is None else _version_in(known)
    if found is not None:
        return found
    for folder in folders:
        found = _version_in(folder)
        if found is not None:
            _folders[folders] = folder
            return found
    return None


_folders: dict[tuple[str, ...], str] = {}
"""Where the NVRTC of a search path was found: the next call looks there first, and asks the system once, not for each folder."""


def _version_in(folder: str) -> tuple[int, int] | None:
    """The version of the only NVRTC in a folder of packages; ``None`` if there is none, or several."""
    try:
        names = os.listdir(os.path.join(folder, _WHEEL_FOLDER))
    except OSError:
        return None
    found = {match[1] for match in (re.fullmatch(_BUILTINS, name) for name in names) if match}
    if len(found) != 1:
        return None
    major, minor = found.pop().split(".")
    return int(major), int(minor)


@cache
def supported_archs() -> tuple[int, ...]:
    """Compute capabilities, times ten, that NVRTC compiles for: (75, 80, ..., 90, 100, 120)."""
    version()
    from cuda.bindings import nvrtc

    return tuple(nvrtc.nvrtcGetSupportedArchs()[1])


def known_archs() -> tuple[str, ...]:
    """Names of the architectures that NVRTC compiles for, those of one architecture (``a``) and of one family (``f``) included."""
    return tuple(f"sm_{number}{suffix}" for number in supported_archs() for suffix, least in (("", 0), ("a", 90), ("f", 100)) if number >= least)


def check_arch(arch: str) -> None:
    """Check that NVRTC compiles for ``arch``.

    Raises:
        UnsupportedError: it does not.
    """
    if arch not in known_archs():
        major, minor = version()
        raise UnsupportedError(
            what=f"architecture {shown(arch)}",
            reason=f"NVRTC {major}.{minor} does not compile for it",
            help=f"use one of {', '.join(known_archs())}",
        )


class _Program(NamedTuple):
    """A text to compile, and what to call it in errors.

    NVRTC writes into ``bytes`` that are made for it. Python shares those of one byte; a text of one byte is the zero at its end, which
    ``bytes(1)`` holds already.
    """

    text: str
    name: str
    arch: str

    def cubin(self, flags: tuple[str, ...]) -> tuple[bytes, str]:
        """Machine code, and the log."""
        from cuda.bindings import nvrtc

        with _handle(self.text, f"{self.name}.cu") as handle:
            log = self._compile(handle, self.arch, flags)
            code = bytes(nvrtc.nvrtcGetCUBINSize(handle)[1])
            nvrtc.nvrtcGetCUBIN(handle, code)
        return code, log

    def ptx(self, flags: tuple[str, ...]) -> str:
        """PTX of a text that is valid C++."""
        from cuda.bindings import nvrtc

        with _handle(self.text, f"{self.name}.cu") as handle:
            self._compile(handle, self.arch.replace("sm_", "compute_"), flags)
            text = bytes(nvrtc.nvrtcGetPTXSize(handle)[1])
            nvrtc.nvrtcGetPTX(handle, text)
        return text.rstrip(b"\0").decode()

    def _compile(self, handle: nvrtcProgram, target: str, flags: tuple[str, ...]) -> str:
        """The log of a compilation that went well."""
        from cuda.bindings import nvrtc

        options = [option.encode() for option in (f"--gpu-architecture={target}", *flags)]
        (result,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        buffer = bytes(nvrtc.nvrtcGetProgramLogSize(handle)[1])
        nvrtc.nvrtcGetProgramLog(handle, buffer)
        log = buffer.rstrip(b"\0").decode(errors="replace").strip()
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise self._error(result.name, log, flags)
        return log

    def _error(self, result: str, log: str, flags: tuple[str, ...]) -> CudaCompileError | RegisterError:
        lines = log.splitlines()
        if few := re.search(_FEW_REGISTERS, log):
            return RegisterError(
                kernel=self.name,
                arch=self.arch,
                reason=f"an instruction needs {few[2]} registers of a thread, which has {few[1]}",
                help="give the block fewer threads, or the instruction fewer columns",
            )
        in_text = [(int(match[1]), match[2]) for match in (re.match(_IN_TEXT, line) for line in lines) if match]
        in_ptx = [(int(match[1]), match[2]) for match in (re.match(_IN_PTX, line) for line in lines) if match]
        elsewhere = [match[1] for match in (re.match(_ELSEWHERE, line) for line in lines) if match]
        ptx = self._ptx_or_nothing(flags) if in_ptx else ""
        notes = [f"in the text, line {line}: {said}\n{_quoted(self.text, line)}" for line, said in in_text]
        notes += [f"in the PTX, line {line}: {said}\n{_quoted(ptx, line)}" for line, said in in_ptx]
        reasons = [said for _, said in in_text + in_ptx] + elsewhere
        major, minor = version()
        shown = "\n".join(f"  {line}" for line in lines[:_LOG_LINES]) + (f"\n  ... and {len(lines) - _LOG_LINES} lines" if len(lines) > _LOG_LINES else "")
        return CudaCompileError(
            kernel=self.name,
            arch=self.arch,
            reason=reasons[0] if reasons else result,
            text=self.text,
            log=log,
            notes=(*notes[:_QUOTED_ERRORS], f"NVRTC {major}.{minor}, {' '.join(flags)}:\n{shown}"),
            help="this is a bug of taskfuse; please report it with this message and the fusion as print(fusion) gives it",
        )

    def _ptx_or_nothing(self, flags: tuple[str, ...]) -> str:
        """The PTX that ptxas has refused."""
        try:
            return self.ptx(tuple(flag for flag in flags if not flag.startswith("--ptxas-options")))
        except CudaCompileError:
            return ""


_WHEEL_FOLDER: Final = "nvidia/cu13/lib"  # of nvidia-cuda-nvrtc 13
_BUILTINS: Final = r"libnvrtc-builtins\.so\.(\d+\.\d+)"
_LOG_LINES: Final = 30
_QUOTED_ERRORS: Final = 3
_IN_TEXT: Final = r"\S+\.cu\((\d+)\): (?:catastrophic )?error: (.*)"
_IN_PTX: Final = r"ptxas application ptx input, line (\d+); (?:error|fatal)\s*: (.*)"
_FEW_REGISTERS: Final = r"Insufficient registers \((\d+)\).*register target of (\d+)"
_ELSEWHERE: Final = r"(?:ptxas|nvrtc)\s*:? (?:error|fatal)\s*: (.*)"


def _quoted(text: str, line: int) -> str:
    """Line ``line`` of ``text``, counted from 1, with two lines above and below."""
    lines = text.splitlines()
    numbers = range(max(1, line - 2), min(len(lines), line + 2) + 1)
    width = len(str(numbers.stop))
    return "\n".join(f"{'>' if number == line else ' '} {number:{width}} | {lines[number - 1]}" for number in numbers)


@contextmanager
def _handle(text: str, file: str) -> Generator[nvrtcProgram]:
    from cuda.bindings import nvrtc

    _, handle = nvrtc.nvrtcCreateProgram(text.encode(), file.encode(), 0, [], [])
    try:
        yield handle
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
