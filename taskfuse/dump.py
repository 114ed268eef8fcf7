"""``TASKFUSE_DUMP``: the text of each stage of a compilation, on stderr or in files."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from taskfuse.errors import OptionError
from taskfuse.options import Options, Stage

EXTENSIONS: Final[dict[Stage, str]] = {"fusion": "fusion", "kernel": "kir", "cuda": "cu", "ptx": "ptx", "sass": "sass"}


def dump(stage: Stage, name: str, text: Callable[[], str], options: Options) -> None:
    """Print ``text()`` if ``options`` ask for ``stage``; otherwise ``text`` is not called.

    With ``options.dump_dir`` the text is written atomically to the file ``<name>.<hash of the text>.<extension>`` in that folder; otherwise to stderr
    below a line with the stage and the kernel's ``name``.

    Raises:
        OptionError: the file cannot be written.
    """
    if stage in options.dump:
        _put(stage, EXTENSIONS[stage], name, text(), options)


def dump_step(step: str, name: str, text: Callable[[], str], options: Options) -> None:
    """Print ``text()``, the plan after a step of lowering, if ``options`` ask for it; as :func:`dump`, with the extension ``<step>.plan``."""
    if step in options.dump_steps:
        _put(f"plan:{step}", f"{step}.plan", name, text(), options)


def _put(stage: str, extension: str, name: str, text: str, options: Options) -> None:
    content = text.rstrip("\n") + "\n"
    if options.dump_dir is None:
        print(f"== {stage} of {name} ==\n{content}", file=sys.stderr, flush=True)
        return
    data = content.encode()
    stem = re.sub(r"[^\w.-]", "_", name)
    try:
        _write(options.dump_dir / f"{stem}.{hashlib.sha256(data).hexdigest()[:12]}.{extension}", data)
    except OSError as error:
        raise OptionError(name="TASKFUSE_DUMP_DIR", reason=f"cannot write to {options.dump_dir}: {error.strerror}", help="name a folder for files") from error


def _write(path: Path, data: bytes) -> None:
    """Create the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
