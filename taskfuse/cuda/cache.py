"""The cache of compiled kernels: in memory, and in a folder for later processes.

A kernel's key is the SHA-256 of everything that determines its machine code: the text, the compile options, the versions of NVRTC and of taskfuse. An
entry is machine code and the compiler's log; every hit reads the log again, so a hit warns like a compilation. A hit does not
load NVRTC if its version is known without.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from taskfuse.cuda.disk import DiskCache
from taskfuse.cuda.nvrtc import Binary, CompileOptions, compile_cubin, installed_version, version
from taskfuse.cuda.resources import diagnostics, parse_resources
from taskfuse.errors import RegisterError, warn
from taskfuse.location import caller
from taskfuse.options import Options
from taskfuse.version import VERSION

_MEMORY_BYTES: Final = 64 << 20
_FORM: Final = 1  # of what _packed makes


def compiled(text: str, name: str, options: CompileOptions, settings: Options, *, strict: bool = False) -> Binary:
    """Machine code of ``text``, which defines the kernel ``name``: from memory, from the folder of ``settings``, or compiled.

    Threads that ask for one kernel at once compile it once. Two processes may both compile it; they write the same entry. A folder that
    cannot be written causes one warning; kernels are then kept in memory only. A diagnostic of the compiler causes one warning per
    kernel and process; with ``strict``, a diagnostic about registers is an error, each time.

    Raises:
        RegisterError: an instruction needs more registers than a thread has; ``strict``, and registers spill, ``wgmma`` waits for its registers, or
            ``setmaxnreg`` is ignored.
        CudaCompileError: NVRTC or ptxas rejects the text.
        CudaUnavailableError: NVRTC is not installed.
        UnsupportedError: this NVRTC does not know the architecture.
    """
    binary = compile_quietly(text, name, options, settings)
    lost = [d for d in binary.diagnostics if strict and d.of_registers]
    if lost:
        notes = tuple(d.text for d in lost[1:])
        raise RegisterError(kernel=name, arch=options.arch, reason=lost[0].text, notes=notes, help=lost[0].help, location=caller())
    for diagnostic in binary.diagnostics if binary.diagnostics and process_cache.first(f"diagnostics of {cache_key(text, name, options, None)}") else ():
        warn(f"kernel '{name}' for {options.arch}: {diagnostic}")
    return binary


def compile_quietly(text: str, name: str, options: CompileOptions, settings: Options) -> Binary:
    """As :func:`compiled`, without warnings."""
    key = cache_key(text, name, options, None)
    state = process_cache
    binary = None if settings.always_compile else state.recall(key)
    if binary is None:
        with state.locked(key):
            binary = None if settings.always_compile else state.recall(key)
            if binary is None:
                binary = _load_or_compile(text, name, options, settings)
                state.remember(key, binary)
    return binary


def cache_key(text: str, name: str, options: CompileOptions, compiler: tuple[int, int] | None) -> str:
    """64 hexadecimal digits that determine the machine code. ``compiler``: version of NVRTC; ``None``: that of this process."""
    parts = [text, name, *map(repr, options), *options.flags(), repr(compiler), VERSION, repr(_FORM)]
    sum = hashlib.sha256()
    for part in parts:
        data = part.encode()
        sum.update(len(data).to_bytes(8, "little") + data)  # with its length, so that no two lists of parts give the same bytes
    return sum.hexdigest()


def _load_or_compile(text: str, name: str, options: CompileOptions, settings: Options) -> Binary:
    disk = folder(settings)
    if disk is None:
        return compile_cubin(text, name, options)
    for compiler in () if settings.always_compile else _compilers():
        content = disk.get(cache_key(text, name, options, compiler))
        if content is not None:
            return _unpacked(content, name, options)
    binary = compile_cubin(text, name, options)
    keep(disk, cache_key(text, name, options, version()), _packed(binary))
    return binary


def folder(settings: Options) -> DiskCache | None:
    """The folder of compiled kernels; ``None``: no folder."""
    return process_cache.disk(settings)


def keep(disk: DiskCache, key: str, content: bytes) -> None:
    """Write an entry. A folder that cannot be written causes one warning."""
    try:
        disk.put(key, content)
    except OSError as error:
        if process_cache.first(f"folder {disk.folder}"):
            warn(
                f"compiled kernels are kept in memory only: {disk.folder}: {error.strerror or error}\n"
                "help: set TASKFUSE_CACHE_DIR to a folder that can be written, or TASKFUSE_CACHE_BYTES=0 for none"
            )


def _compilers() -> Iterator[tuple[int, int]]:
    """Versions of NVRTC whose machine code will do: that of the one installed, then, if it is another, that of the one in use."""
    installed = installed_version()
    if installed is not None:
        yield installed
    if version() != installed:
        yield version()


def _packed(binary: Binary) -> bytes:
    """The length of the log in 8 bytes (little endian), the log, the machine code."""
    log = binary.log.encode()
    return len(log).to_bytes(8, "little") + log + binary.code


def _unpacked(content: bytes, name: str, options: CompileOptions) -> Binary:
    end = 8 + int.from_bytes(content[:8], "little")
    log = content[8:end].decode()
    resources = parse_resources(log, name)
    return Binary(content[end:], log, resources, diagnostics(log, resources))


@dataclass(slots=True)
class _KeyLock:
    """The lock of a key, dropped when nobody waits for it."""

    lock: Lock = field(default_factory=Lock)
    wanted: int = 0


@dataclass(slots=True)
class ProcessCache:
    """The cache of a process. Thread-safe."""

    kernels: OrderedDict[str, Binary] = field(default_factory=OrderedDict[str, Binary])  # the least recently used first
    bytes: int = 0
    said: set[str] = field(default_factory=set[str])
    disks: dict[tuple[str, int], DiskCache] = field(default_factory=dict[tuple[str, int], DiskCache])
    key_locks: dict[str, _KeyLock] = field(default_factory=dict[str, _KeyLock])
    lock: Lock = field(default_factory=Lock)

    def recall(self, key: str) -> Binary | None:
        with self.lock:
            binary = self.kernels.get(key)
            if binary is not None:
                self.kernels.move_to_end(key)
            return binary

    def remember(self, key: str, binary: Binary) -> None:
        with self.lock:
            old = self.kernels.pop(key, None)
            self.kernels[key] = binary
            self.bytes += len(binary.code) - (0 if old is None else len(old.code))
            while self.bytes > _MEMORY_BYTES and len(self.kernels) > 1:
                self.bytes -= len(self.kernels.popitem(last=False)[1].code)

    def first(self, what: str) -> bool:
        """True at the first call with ``what``."""
        with self.lock:
            new = what not in self.said
            self.said.add(what)
            return new

    def disk(self, settings: Options) -> DiskCache | None:
        if settings.cache_bytes == 0:
            return None
        with self.lock:
            return self.disks.setdefault((str(settings.cache_dir), settings.cache_bytes), DiskCache(settings.cache_dir, settings.cache_bytes))

    @contextmanager
    def locked(self, key: str) -> Generator[None]:
        """Hold the lock of a key."""
        with self.lock:
            own = self.key_locks.setdefault(key, _KeyLock())
            own.wanted += 1
        try:
            with own.lock:
                yield
        finally:
            with self.lock:
                own.wanted -= 1
                if own.wanted == 0:
                    del self.key_locks[key]


process_cache = ProcessCache()


def _forget() -> None:
    global process_cache
    process_cache = ProcessCache()


# a lock that another thread held at a fork would stay closed in the child
os.register_at_fork(after_in_child=_forget)
