"""Which torch is installed, as a part of the keys of graphs in torch's caches.

torch digests all of its files for that in each process. A wheel's ``RECORD`` has the digest of each file that was installed (PyPA, "Recording installed
projects"), so the digest of that says the same, unless a module was changed after the installation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import torch

from taskfuse.cuda.sources import modules

BESIDE: Final = frozenset({"__pycache__", "bin", "include", "lib", "share", "test"})
"""Folders of torch without modules that a graph depends on."""
SLACK_NS: Final = 2_000_000_000
"""Nanoseconds that an installer may take after it has written the record: file systems keep the seconds of times."""


@cache
def recorded(folder: Path) -> bytes | None:
    """The digest of what an installer has recorded of the torch in a folder; ``None`` without a record, as of a build from source, or if a module is newer."""
    records = list(folder.parent.glob("torch-*.dist-info/RECORD"))  # the name has the version, but not always all of torch's own
    if len(records) != 1:
        return None
    try:
        content, latest = records[0].read_bytes(), records[0].stat().st_mtime_ns + SLACK_NS
        is_changed = any(module.stat().st_mtime_ns > latest for module in modules(str(folder), BESIDE))
    except OSError:
        return None
    return None if is_changed or not content else hashlib.sha256(content).digest()


def torch_key(read: Callable[[], bytes]) -> bytes:
    """What differs between two torches.

    Args:
        read: digests torch's files: called if there is no record of them.
    """
    return recorded(Path(torch.__file__).parent) or read()
