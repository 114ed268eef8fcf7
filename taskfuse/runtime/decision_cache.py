"""Decisions of ``tf.compile`` on disk: the kernels that compute a fusion.

A decision is a function of the text of the fusion, the settings, the target and the files of taskfuse. Their SHA-256 is the key of an entry in
the folder of compiled kernels. The entry is JSON: the text of every kernel, its interface (:mod:`taskfuse.cuda.kernel_interface`), its verdict, its argument
and result arrays, and the explanation of the schedule. A process that finds the entry neither lowers, searches nor proves, and parses the body of a
kernel only on demand. A verdict is valid only for its kernel text and for the checker's files.

An entry that cannot be parsed, or was written by another version, is ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, cast

from taskfuse.cuda.cache import folder, keep
from taskfuse.cuda.carried_code import take
from taskfuse.cuda.kernel_interface import interface_from_text
from taskfuse.cuda.nvrtc import installed_version
from taskfuse.cuda.packed import packed_head, unpacked_head
from taskfuse.cuda.present import found
from taskfuse.cuda.ranges import small_extents
from taskfuse.cuda.sources import sources
from taskfuse.errors import FusionError, ParseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.lowering import LoweringOptions
from taskfuse.options import Options, read_options
from taskfuse.runtime.chain import Chain, Link, UnreadFusion, unread, views_of
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import CompiledKernel, Maker
from taskfuse.runtime.proof import Standing, identity
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.schedule import Schedule
from taskfuse.target import Target

_FORM: Final = 3  # of what _packed makes


@dataclass(frozen=True, slots=True)
class CachedSchedule:
    """The description of another process's automatic schedule."""

    scheduler: str
    us: float
    code: str
    text: str

    def explain(self) -> str:
        """The reasons for this schedule."""
        return self.text

    def __getattr__(self, name: str) -> NoReturn:
        help = "compile it with cache=False for the schedule itself"
        raise AttributeError(f"a schedule from the cache has no '{name}', only scheduler, us, code and explain(): {help}", name=name, obj=self)


class Outline(NamedTuple):
    """The properties by which schedules are compared before lowering: microseconds, and the scheduling calls."""

    us: float
    code: str


class DecisionCache:
    """The cached decisions of one fusion.

    Args:
        fusion: the user's fusion.
        make: makes its kernels.
        asked: the other inputs of the decision.
    """

    __slots__ = ("_fusion", "_key", "_make", "_settings", "_text")

    def __init__(self, fusion: Fusion, make: Maker, *asked: object) -> None:
        self._fusion = fusion
        self._make = make
        self._settings = read_options()
        self._text = _text(fusion) if make.remembers and _is_on(self._settings) else None
        self._key = None if self._text is None else _key(self._text, make, asked, self._settings)

    def recall(self) -> Executable | None:
        """The executable in the cache, or ``None``."""
        content = self._content()
        return None if content is None else restored(content, self._fusion, self._make, self._settings, self._text)

    def keep(self, run: Executable) -> None:
        """Write an executable for :meth:`recall` in later processes, if all its kernels are proved."""
        if self._key is not None and (content := packed(run, self._fusion, self._settings, self._make.options.target)) is not None:
            self._write(content)

    def outline(self) -> Outline | None:
        """The outline written by :meth:`keep_outline`."""
        match self._content():
            case {"us": int() | float() as us, "code": str(code)}:
                return Outline(float(us), code)
            case _:
                return None

    def keep_outline(self, schedule: Schedule) -> None:
        """Write the result of a search without lowering, the most expensive part of a specialization."""
        if self._key is not None:
            self._write({"us": schedule.us, "code": schedule.code})

    def _content(self) -> dict[str, Any] | None:
        disk = folder(self._settings)
        content = None if self._key is None or disk is None else disk.get(self._key)
        try:
            found = None if content is None else json.loads(content)
        except ValueError:
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def _write(self, content: Mapping[str, object]) -> None:
        disk = folder(self._settings)
        if disk is not None and self._key is not None:
            keep(disk, self._key, json.dumps(content).encode())


def packed(run: Executable, fusion: Fusion, settings: Options, target: Target | None = None) -> dict[str, object] | None:
    """An executable of ``fusion`` in JSON, for :func:`restored`; ``None`` if not all its kernels are proved, or it has no such form.

    Args:
        target: the machine code for this GPU is part of it, as far as it is known already; ``None``: there is none.
    """
    links = run.links if isinstance(run, Chain) else (Link(run, (), ()),)
    kernels = list(dict.fromkeys(link.run for link in links))
    forms = [_packed_kernel(kernel, settings, target) for kernel in kernels]
    if None in forms:
        return None
    content: dict[str, object] = {"kernels": forms, "schedule": _told(run.schedule), "links": None, "whole": None}
    if isinstance(run, Chain):
        content["links"] = [[kernels.index(link.run), list(link.arguments), list(link.outputs)] for link in run.links]
        try:
            whole = str(run.fusion)
        except FusionError:  # its inputs are in an order that texts do not have
            return None
        content["whole"] = None if whole == str(fusion) else whole
    return content


def restored(content: Mapping[str, Any], fusion: Fusion, make: Maker, settings: Options, text: str | None = None) -> Executable | None:
    """The executable that :func:`packed` gave, without the body of its kernels, which is parsed on demand; ``None`` if it is not in that form, or nothing is
    proved of it by these files.

    Args:
        text: that of the fusion, if it is known: it is then no more copied than a call needs.
    """
    try:
        kernels = [_made_kernel(form, make, settings) for form in content["kernels"]]
        if content["links"] is None:
            (run,) = kernels
            return run
        links = [Link(kernels[k], tuple(map(str, arguments)), tuple(map(str, outputs))) for k, arguments, outputs in content["links"]]
        return Chain(_whole(content["whole"], text, fusion, links), links, _schedule(content["schedule"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ParseError, FusionError):
        return None


def _whole(found: str | None, text: str | None, fusion: Fusion, links: Sequence[Link]) -> Fusion | UnreadFusion:
    """What several kernels compute: ``found`` in the cache, or ``fusion``, which its user may change from now on."""
    if found is not None:
        return parse_fusion(found)
    return copy_fusion(fusion)[0] if text is None or views_of(fusion.arguments, links) else unread(text, fusion)


def _is_on(settings: Options) -> bool:
    """Whether decisions are stored: not if their stages are dumped or debugged, or if nothing is proved."""
    return settings.cache_bytes > 0 and settings.cache_plans and settings.verify and not (settings.always_compile or settings.dump or settings.dump_steps)


def _text(fusion: Fusion) -> str | None:
    """The text of a fusion; ``None``: it has none."""
    try:
        return str(fusion)
    except FusionError:
        return None


def _key(text: str, make: Maker, asked: Sequence[object], settings: Options) -> str:
    """The key of a decision."""
    gpu = [_shown(present), installed_version()] if (present := found()) is not None else None
    parts = ["decision", _FORM, sources(settings).all, text, *map(_shown, make.asked), settings.backend, gpu, *map(_shown, asked)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _shown(value: object) -> str:
    return _long(value) if isinstance(value, Target | LoweringOptions) else repr(value)


_long = lru_cache(64)(repr)
"""Of what hundreds of figures make: several are asked for in each call, and equal ones again and again."""


def _packed_kernel(run: Executable, settings: Options, target: Target | None) -> dict[str, object] | None:
    """A kernel in JSON; ``None``: there are several, or it is not proved."""
    if not isinstance(run, CompiledKernel) or run.standing is None:
        return None
    interface = run.interface
    return {
        "text": interface.text,
        "head": packed_head(interface.head),
        "accessed": sorted(interface.accessed),
        "vectors": dict(interface.vectors),
        "small": small_extents(interface.whole()),
        "standing": run.standing.value,
        "of": identity(interface.text, settings),
        "schedule": _told(run.schedule),
        "code": None if target is None else run.packed_code(target),
    }


def _made_kernel(form: Mapping[str, Any], make: Maker, settings: Options) -> CompiledKernel:
    """The kernel that :func:`_packed_kernel` gave. Raises :class:`ValueError` if nothing is proved of this text by these files."""
    text = form["text"]
    if identity(text, settings) != form["of"]:
        raise ValueError("proved of another kernel, or by another checker")
    vectors = {str(name): int(size) for name, size in form["vectors"].items()}
    interface = interface_from_text(text, form["accessed"], vectors, form["small"], unpacked_head(form["head"]))
    if form["code"] is not None:
        take(form["code"], interface)
    return make.remembered(interface, _schedule(form["schedule"]), Standing(form["standing"]))


def _told(schedule: Schedule | None) -> list[object] | None:
    return None if schedule is None else [schedule.scheduler, schedule.us, schedule.code, schedule.explain()]


def _schedule(form: Sequence[Any] | None) -> Schedule | None:
    if form is None:
        return None
    scheduler, us, code, text = form
    return CachedSchedule(str(scheduler), float(us), str(code), str(text))
