"""A folder of checked, bounded entries that many processes may fill at once.

An entry is a file ``<key>.kernel``: a line that names the form, the SHA-256 of the key and the content, and the content. Any other
file counts as missing, and is replaced when the content is made again. The sum guards against damage, not against somebody who may write to
the folder.

Files appear under their names only when they are complete (``os.replace`` of a temporary file beside them). A writer that is killed leaves at
most its temporary file, ``<key>.<host>.<process>.<random>.tmp``, which the next clean-up removes. Files of other names are not touched.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_FORM: Final = b"taskfuse kernel 1\n"
_HEADER: Final = len(_FORM) + hashlib.sha256().digest_size
_ENTRY: Final = r"[0-9a-f]{64}\.kernel"
_TEMPORARY: Final = r"[0-9a-f]{64}\.(.+)\.([0-9]+)\.[0-9a-f]+\.tmp"
_STALE_SECONDS: Final = 3600.0
_WRITES_BETWEEN_SCANS: Final = 32


class _File(NamedTuple):
    path: str
    size: int
    modified: float


class DiskCache:
    """Entries in ``folder``, at most ``limit`` bytes of them: the least recently used go first.

    The bound holds for one process. Each of several that write at once may exceed it by what it writes between two looks at the folder, 32
    entries at most. Times are those of the file system; one that lies in the future counts as very old, so that a clock that was wrong
    makes no entry stay for ever.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._lock = threading.Lock()
        self._bytes = 0  # of entries, by the last look and what was written since
        self._writes = _WRITES_BETWEEN_SCANS  # since the last look

    def get(self, key: str) -> bytes | None:
        """The content of entry ``key``, or ``None``: also for one that is damaged or cannot be read."""
        path = f"{self.folder}/{key}.kernel"  # text, and no buffer: a first call waits for this
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read()
        except OSError:
            return None
        content = data[_HEADER:]
        if data[:_HEADER] != _header(key, content):
            return None
        with suppress(OSError):  # a folder that cannot be written can be read all the same
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Writes an entry, unless it alone exceeds the limit; then makes room.

        Raises:
            OSError: the folder is missing and cannot be made, or cannot be written, or is full. What was there is as before.
        """
        data = _header(key, content) + content
        if len(data) > self.limit:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / f"{key}.{_host()}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, self._path(key))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        with self._lock:
            self._bytes += len(data)
            self._writes += 1
            if self._writes > _WRITES_BETWEEN_SCANS or self._bytes > self.limit:
                self._clean_up()

    def usage(self) -> tuple[int, int]:
        """Number of entries, and their bytes."""
        sizes = [file.size for file in self._files(_ENTRY)]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Removes all entries and what killed writers left; returns how many entries there were."""
        files = list(self._files(_ENTRY))
        for file in files:
            _remove(file)
        self._remove_stale()
        return len(files)

    def _clean_up(self) -> None:
        """Removes the least recently used entries until an eighth of the limit is free again, if it was exceeded; and stale temporary files."""
        self._remove_stale()
        now = time.time()
        files = sorted(self._files(_ENTRY), key=lambda file: (0.0 if file.modified > now + _STALE_SECONDS else file.modified, file.path))
        total = sum(file.size for file in files)
        if total > self.limit:
            for file in files:
                if total <= self.limit - self.limit // 8:
                    break
                _remove(file)
                total -= file.size
        self._bytes = total
        self._writes = 0

    def _remove_stale(self) -> None:
        now = time.time()
        for file in self._files(_TEMPORARY):
            match = re.fullmatch(_TEMPORARY, os.path.basename(file.path))
            if match is not None and (abs(now - file.modified) > _STALE_SECONDS or (match[1] == _host() and not _runs(int(match[2])))):
                _remove(file)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.kernel"

    def _files(self, name: str) -> Iterator[_File]:
        """The files of such names. Those that vanish meanwhile are left out."""
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if re.fullmatch(name, entry.name):
                    with suppress(OSError):
                        state = entry.stat(follow_symlinks=False)
                        yield _File(entry.path, state.st_size, state.st_mtime)


def _header(key: str, content: bytes) -> bytes:
    return _FORM + hashlib.sha256(key.encode() + content).digest()


def _host() -> str:
    """The name of this machine as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9-]", "_", os.uname().nodename) or "_"


def _runs(process: int) -> bool:
    """Is there a process of that number on this machine?"""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # it belongs to somebody else
    return True


def _remove(file: _File) -> None:
    with suppress(OSError):  # somebody else was faster
        os.unlink(file.path)
