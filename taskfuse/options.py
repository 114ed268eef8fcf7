"""Settings of the process, from the environment. Nothing else in the package reads it.

============================  ===================================================================  =======================
variable                      meaning                                                              when not set
============================  ===================================================================  =======================
``TASKFUSE_DUMP``             stages that ``tf.compile`` prints, separated by commas: fusion,      nothing
                              plan:STEP (a step of lowering), kernel, cuda, ptx, sass
``TASKFUSE_DUMP_DIR``         folder of files for what is dumped                                   stderr
``TASKFUSE_CACHE_DIR``        folder of the cache of compiled kernels                              ``$XDG_CACHE_HOME/taskfuse``,
                                                                                                   else ``~/.cache/taskfuse``
``TASKFUSE_CACHE_BYTES``      its largest size: bytes, or a number with K, M or G; 0: no folder    1G
``TASKFUSE_CACHE_PLANS``      0: schedules and proofs are not read from the cache                  1
``TASKFUSE_ALWAYS_COMPILE``   1: compile even what is in the cache                                 0
``TASKFUSE_BACKEND``          what "auto" means in ``tf.compile``: auto, cuda or sim               auto
``TASKFUSE_PROGRESS``         1: a line on stderr about work of more than 2 seconds; 0: no line    on a terminal only
``TASKFUSE_VERIFY``           0: ``tf.compile`` proves nothing, to measure the cost of the proof   1
``TASKFUSE_CHAOS``            a seed: debug builds delay every warp at random around its           no delays
                              synchronization
``TASKFUSE_WATCHDOG_MS``      how long a wait of a debug build lasts before it reports             2000
============================  ===================================================================  =======================

An empty variable counts as not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeVar, get_args

from taskfuse.errors import OptionError, shown

Stage = Literal["fusion", "kernel", "cuda", "ptx", "sass"]
Backend = Literal["auto", "cuda", "sim"]
Progress = Literal["auto", "0", "1"]

PREFIX: Final = "TASKFUSE_"
PLAN: Final = "plan:"
VARIABLES: Final = tuple(
    PREFIX + name
    for name in ("DUMP", "DUMP_DIR", "CACHE_DIR", "CACHE_BYTES", "CACHE_PLANS", "ALWAYS_COMPILE", "BACKEND", "PROGRESS", "VERIFY", "CHAOS", "WATCHDOG_MS")
)
OTHERS: Final = ("XDG_CACHE_HOME", "HOME", "CUDA_VISIBLE_DEVICES")
DEFAULT_CACHE_BYTES: Final = 1 << 30
DEFAULT_WATCHDOG_MS: Final = 2000
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
PROGRESS: Final[tuple[Progress, ...]] = get_args(Progress)
_T = TypeVar("_T", bound=str)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Options:
    """The settings.

    Attributes:
        dump: stages of a compilation to print.
        dump_steps: names of the steps of lowering after which the plan is printed.
        dump_dir: folder for one file per stage; ``None``: stderr.
        cache_dir: folder of the compiled kernels.
        cache_bytes: the most bytes in that folder; 0: compiled kernels are kept in memory only.
        cache_plans: read schedules and proofs of fusions from the cache, too.
        always_compile: compile even if the cache has the kernel.
        backend: the meaning of ``backend="auto"``.
        progress: whether long work reports progress; "auto": on a terminal.
        verify: prove every kernel before it runs.
        chaos: seed of the random delays of a debug build; ``None``: no delays.
        watchdog_ms: milliseconds after which a wait of a debug build reports a timeout.
        visible_devices: CUDA's own ``CUDA_VISIBLE_DEVICES``; empty: all.
    """

    dump: frozenset[Stage]
    dump_steps: frozenset[str]
    dump_dir: Path | None
    cache_dir: Path
    cache_bytes: int
    cache_plans: bool
    always_compile: bool
    backend: Backend
    progress: Progress
    verify: bool
    chaos: int | None
    watchdog_ms: int
    visible_devices: str


def cores() -> int:
    """The cores that this process may use: all of the machine's, unless its affinity says otherwise, as in a share of a machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_options(env: Mapping[str, str] | None = None) -> Options:
    """The settings in ``env``; ``None``: the environment of the process.

    Raises:
        OptionError: an unknown variable that starts with ``TASKFUSE_``, or an invalid value.
    """
    if env is not None:
        return _options(variables(env))
    global _last
    raw: dict[object, object] | None = getattr(os.environ, "_data", None)  # decoding it takes fifty times as long, and a first call asks ten times
    last = _last
    if last is None or not raw or last[0] != raw:
        last = _last = dict(raw or ()), _options(variables())
    return last[1]


_last: tuple[dict[object, object], Options] | None = None
"""The environment of the process when it was read last, and its settings."""


def variables(env: Mapping[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """The variables that settings are made of, as they are in ``env``; ``None``: in the environment of the process."""
    given = os.environ if env is None else env
    return tuple((name, given[name]) for name in given if name.startswith(PREFIX) or name in OTHERS)  # the system's decodes each value that it is asked for


def set_variables(wanted: tuple[tuple[str, str], ...]) -> None:
    """Have the process the settings of another one."""
    for name, _ in variables():
        del os.environ[name]
    os.environ.update(wanted)


@lru_cache(maxsize=16)
def _options(given: tuple[tuple[str, str], ...]) -> Options:
    env = {name: value for name, value in given if value}
    for name in env:
        if name.startswith(PREFIX) and name not in VARIABLES:
            raise OptionError(name=name, reason="there is no such variable", help=_instead(name, VARIABLES, PREFIX))
    dump_dir = env.get("TASKFUSE_DUMP_DIR")
    return Options(
        dump=frozenset(_choice("TASKFUSE_DUMP", word, STAGES, f"{PLAN}STEP") for word in _dumped(env) if not word.startswith(PLAN)),
        dump_steps=frozenset(word.removeprefix(PLAN) for word in _dumped(env) if word.startswith(PLAN)),
        dump_dir=None if dump_dir is None else _folder("TASKFUSE_DUMP_DIR", dump_dir, env),
        cache_dir=_cache_dir(env),
        cache_bytes=_bytes("TASKFUSE_CACHE_BYTES", env, DEFAULT_CACHE_BYTES),
        cache_plans=_switch("TASKFUSE_CACHE_PLANS", env, "1"),
        always_compile=_switch("TASKFUSE_ALWAYS_COMPILE", env),
        backend=_choice("TASKFUSE_BACKEND", env.get("TASKFUSE_BACKEND", "auto"), BACKENDS),
        progress=_choice("TASKFUSE_PROGRESS", env.get("TASKFUSE_PROGRESS", "auto"), PROGRESS),
        verify=_switch("TASKFUSE_VERIFY", env, "1"),
        chaos=_seed("TASKFUSE_CHAOS", env),
        watchdog_ms=_positive("TASKFUSE_WATCHDOG_MS", env, DEFAULT_WATCHDOG_MS),
        visible_devices=env.get("CUDA_VISIBLE_DEVICES", ""),
    )


def _dumped(env: Mapping[str, str]) -> list[str]:
    words = [word.strip() for word in env.get("TASKFUSE_DUMP", "").split(",")]
    return [word for word in words if word]


def _cache_dir(env: Mapping[str, str]) -> Path:
    given = env.get("TASKFUSE_CACHE_DIR")
    if given is not None:
        return _folder("TASKFUSE_CACHE_DIR", given, env)
    base = env.get("XDG_CACHE_HOME", "")
    # the XDG Base Directory Specification: a relative path is to be ignored
    return (Path(base) if os.path.isabs(base) else _home("TASKFUSE_CACHE_DIR", env) / ".cache") / "taskfuse"


def _folder(name: str, value: str, env: Mapping[str, str]) -> Path:
    """An absolute path, so that a change of the working directory does not move it."""
    if value == "~" or value.startswith("~/"):
        return _home(name, env) / value[2:]
    return Path(value).absolute()


def _home(name: str, env: Mapping[str, str]) -> Path:
    if "HOME" in env:
        return Path(env["HOME"])
    try:
        return Path.home()
    except RuntimeError:
        raise OptionError(name=name, reason="this user has no home directory", help=f"set {name} to an absolute path") from None


def _bytes(name: str, env: Mapping[str, str], default: int) -> int:
    value = env.get(name)
    if value is None:
        return default
    match = re.fullmatch(r"([0-9]{1,18})([KMG]?)", value.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        _refuse(name, value, "use a number of bytes, or one with K, M or G: 512M")
    return int(match[1]) * _UNITS[match[2].upper()]


def _seed(name: str, env: Mapping[str, str]) -> int | None:
    value = env.get(name)
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip(), re.ASCII) is None:
        _refuse(name, value, "use a whole number, at most 999999999")
    return int(value)


def _positive(name: str, env: Mapping[str, str], default: int) -> int:
    value = env.get(name)
    if value is None:
        return default
    if re.fullmatch(r"0*[1-9][0-9]{0,8}", value.strip(), re.ASCII) is None:
        _refuse(name, value, f"use a number from 1 to 999999999, such as {default}")
    return int(value)


def _switch(name: str, env: Mapping[str, str], usual: str = "0") -> bool:
    value = env.get(name, usual).strip()
    if value not in ("0", "1"):
        _refuse(name, value, "use 0 or 1")
    return value == "1"


def _choice(name: str, value: str, choices: tuple[_T, ...], *others: str) -> _T:
    """The choice that a value names; the help of the error has ``others``, too."""
    for choice in choices:
        if choice == value.strip():
            return choice
    _refuse(name, value, _instead(value, (*choices, *others)))


def _refuse(name: str, value: str, help: str) -> NoReturn:
    raise OptionError(name=name, reason=f"{shown(value)} is not a value of it", help=help)


def _instead(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """A help text with the closest of ``choices``, all of which start with ``prefix``; with all of them if none is close."""
    from difflib import get_close_matches  # only mistakes pay for its import

    by_rest = {choice.removeprefix(prefix).lower(): choice for choice in choices}
    near = get_close_matches(word.strip().removeprefix(prefix).lower(), by_rest, n=1)
    return f"did you mean {by_rest[near[0]]}?" if near else f"use one of {', '.join(by_rest.values())}"
