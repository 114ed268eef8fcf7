"""Digests of taskfuse's files, part of the keys of cache entries, so that another state of the package does not find them.

A digest is the SHA-256 of the contents. Reading them all costs more than a first call may take, so digests are kept on disk by a *glance*: the name, size and
times of every file. Files with an unchanged glance are assumed unchanged; others are read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from taskfuse.cuda.cache import folder, keep
from taskfuse.options import Options
from taskfuse.version import VERSION

_ROOT: Final = str(Path(__file__).parents[1])
_CHECKER: Final = ("check", "kir", "ir", "")
"""Packages that a proof depends on; the last is the root: dtypes, targets, errors."""
_BESIDE: Final = ("__pycache__", "testing", "cli")
"""Folders on which no cache entry depends."""


class Sources(NamedTuple):
    """Digests of the contents, 64 hexadecimal digits each.

    Attributes:
        all: of every module.
        checker: of the modules that a proof depends on.
    """

    all: str
    checker: str


@cache
def sources(settings: Options) -> Sources:
    """The digests at the first call of this process; from the folder of ``settings`` if it has the glance."""
    glance = hashlib.sha256("\0".join(("sources", VERSION, *_looks())).encode()).hexdigest()
    disk = folder(settings)
    content = None if disk is None else disk.get(glance)
    if content is not None:
        words = content.decode(errors="replace").split()
        if len(words) == 2:
            return Sources(*words)
    found = read()
    if disk is not None:
        keep(disk, glance, " ".join(found).encode())
    return found


def read() -> Sources:
    """The digests of the current contents."""
    all, checker = hashlib.sha256(), hashlib.sha256()
    for path in files():
        data = Path(path).read_bytes()
        name = os.path.relpath(path, _ROOT)
        part = f"{name}\0{len(data)}\0".encode() + data
        all.update(part)
        if os.path.dirname(name).split(os.sep)[0] in _CHECKER:
            checker.update(part)
    return Sources(all.hexdigest(), checker.hexdigest())


def files() -> tuple[str, ...]:
    """The paths of the modules."""
    return tuple(sorted(entry.path for entry in modules(_ROOT, _BESIDE)))


def _looks() -> list[str]:
    """The name, size and times of every module. Each first call waits for this: 400 times what the system takes to answer, and no more."""
    found: list[str] = []
    for entry in modules(_ROOT, _BESIDE):
        state = entry.stat()
        found.append(f"{entry.path}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ctime_ns}")
    found.sort()
    return found


def modules(root: str, beside: Container[str]) -> Iterator[os.DirEntry[str]]:
    """The modules in a folder and its packages, without those in folders of some names."""
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name[-3:] == ".py":
                    yield entry
                elif "." not in name and name not in beside and entry.is_dir():
                    folders.append(entry.path)
