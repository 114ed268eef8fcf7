"""From a name on the command line to fusions and kernels."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from taskfuse.errors import TaskfuseError, warn
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.lowering import lower

STDIN = "-"
MAKER = "build"
EXAMPLES = Path(__file__).parents[2] / "examples"  # in a checkout; an installed package has none


@dataclass(frozen=True, slots=True)
class Loaded:
    """A fusion, or a kernel (``given``) without one."""

    fusion: Fusion | None
    given: Kernel | None

    @property
    def name(self) -> str:
        """Name of the fusion and of its kernel."""
        return (self.required_fusion() if self.given is None else self.given).name

    def kernel(self) -> Kernel:
        """The kernel: given, or lowered. Raises :class:`LoweringError`."""
        if self.given is not None:
            return self.given
        fusion = self.required_fusion()
        if not fusion.has_schedule:
            warn(f"fusion '{fusion.name}' has no schedule: one thread computes it all; tf.compile schedules it, and fusion.partition() and tf.schedulers help")
        return lower(fusion)

    def required_fusion(self) -> Fusion:
        """The fusion. Raises :class:`TaskfuseError` if there is only a kernel."""
        if self.fusion is None:
            raise TaskfuseError(message=f"kernel '{self.name}' comes without a fusion", help="give the fusion's text, or the program that builds it")
        return self.fusion


def load(name: str) -> tuple[Loaded, ...]:
    """The fusions and kernels that ``name`` denotes.

    Args:
        name: a text of a fusion or kernel, as ``print`` writes it; the path of a Python program, with ``:function`` if the function is not
            ``build``; the name of an example; or ``-``: a text on stdin.

    Raises:
        TaskfuseError: no such file or example exists, or it describes neither a fusion nor a kernel. Exceptions of the Python program pass through.
    """
    if name == STDIN:
        return (parse(sys.stdin.read()),)
    stem, _, function = name.rpartition(":") if ":" in name else (name, "", "")
    path = _find(stem)
    if path.suffix == ".py":
        return _run(path, function)
    if function:
        raise TaskfuseError(message=f"{path} is not a Python program, so it has no function '{function}'", help=f"leave out :{function}")
    return (parse(_read(path), str(path)),)


def parse(text: str, file: str | None = None) -> Loaded:
    """The fusion or kernel in ``text``, the content of a file. Raises :class:`ParseError` or :class:`VerifyError`."""
    first = next((line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")), "")
    if first.startswith("KERNEL"):
        kernel = parse_kernel(text, file)
        kernel.check_ir()
        return Loaded(None, kernel)
    return Loaded(parse_fusion(text) if file is None else parse_fusion(text, file), None)


def _find(stem: str) -> Path:
    path = Path(stem)
    if path.exists() or path.suffix:
        return path
    example = EXAMPLES / f"{stem}.py"
    if example.exists():
        return example
    names = sorted(p.stem for p in EXAMPLES.glob("*.py"))
    known = f", an example ({', '.join(names)})" if names else ""
    raise TaskfuseError(message=f"there is no file or example '{stem}'", help=f"give a Python program, a text of a fusion or kernel{known}, or - for stdin")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskfuseError(message=f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TaskfuseError(message=f"{path} is not text", help="give a Python program, or a text of a fusion or kernel") from None


def _run(path: Path, function: str) -> tuple[Loaded, ...]:
    """The fusions and kernels that the program at ``path`` builds."""
    _read(path)
    with _importing_from(path.parent):
        names = runpy.run_path(str(path), run_name=path.stem)
        wanted = function or MAKER
        if wanted not in names:
            raise TaskfuseError(message=f"{path} has no function '{wanted}'", help=f"name the one that returns the fusion: {path}:function")
        made: object = names[wanted]() if callable(names[wanted]) else names[wanted]
    several = cast("Sequence[object]", made) if isinstance(made, tuple | list) else (made,)
    return tuple(_loaded(item, f"{path}:{wanted}") for item in several)


def _loaded(item: object, source: str) -> Loaded:
    match item:
        case Fusion():
            return Loaded(item, None)
        case Kernel():
            return Loaded(None, item)
        case _:
            raise TaskfuseError(message=f"{source} gives {type(item).__name__}, not a fusion", help="let it return a tf.Fusion, a kernel, or a tuple of these")


@contextmanager
def _importing_from(folder: Path) -> Generator[None]:
    """Let a program import what lies beside it, as ``python program.py`` does."""
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.resolve()))
