"""What a caller of ``torch.compile(model, backend="taskfuse", mode=..., options={...})`` may choose."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, cast, get_args

from taskfuse.cuda.sources import sources
from taskfuse.errors import UnsupportedError, shown
from taskfuse.location import caller
from taskfuse.options import read_options
from taskfuse.version import VERSION

Run = Literal["kernels", "reference", "simulator"]
Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Numerics = Literal["eager", "wide"]

LOWEST: Final = {"least": 1, "most": 1, "processes": 0, "budget": 0.0}
"""Bounds of the options that are numbers."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, by their names in ``options=``.

    Attributes:
        strict: raise errors; by default a graph that cannot be compiled runs uncompiled, with one warning.
        run: ``"kernels"``: tensors on GPUs, by kernels; ``"reference"``: tensors on the host, by the NumPy reference; ``"simulator"``: tensors on the host, by
            kernels in the simulator. The last two are for tests.
        products: all matrix products become kernels of taskfuse; by default those that, with the math around them, are expected to be no slower than
            torch's.
        measure: the same, but products whose expected times are near torch's are measured both ways, on the GPU; ``mode="max-autotune"`` sets it.
        numerics: as for :func:`taskfuse.compile`: ``"eager"`` rounds as torch does op by op, ``"wide"`` keeps chains of 16-bit floats in float32.
        least: fewest ops of a fusion.
        most: most ops of a fusion; greater ones are cut.
        processes: how many processes compile fusions; 0: as many as there are cores that this process may use, at most 16.
        budget: seconds that the search for the schedule of one fusion may take.
        cudagraphs: record CUDA graphs; ``mode="reduce-overhead"`` and ``"max-autotune"`` set it.
        cache: keep compiled graphs in torch's caches, and schedules in taskfuse's.
    """

    strict: bool = False
    run: Run = "kernels"
    products: bool = False
    measure: bool = False
    numerics: Numerics = "eager"
    least: int = 1
    most: int = 40
    processes: int = 0
    budget: float = 10.0
    cudagraphs: bool = False
    cache: bool = True

    @property
    def device(self) -> str:
        """The type of the devices whose tensors it computes."""
        return "cuda" if self.run == "kernels" else "cpu"

    @property
    def tag(self) -> str:
        """What distinguishes graphs compiled with these settings, and by these sources of taskfuse, in torch's caches."""
        own = repr(self) + sources(read_options()).all
        return f"taskfuse-{VERSION}-{hashlib.sha256(own.encode()).hexdigest()[:16]}"


def settings_of(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """The settings of a call.

    Raises:
        UnsupportedError: a mode or option does not exist, or an option has a value of another kind.
    """
    if mode is not None and mode not in get_args(Mode):
        raise _refused(f"mode {shown(mode)}", f"use one of {', '.join(map(repr, get_args(Mode)))}")
    given = dict(options or {})
    known = {f.name: f for f in fields(Settings)}
    plain = Settings()
    for name, value in given.items():
        if name not in known:
            raise _refused(f"option {shown(name)}", f"the options are: {', '.join(known)}")
        default: bool | int | float | str = getattr(plain, name)
        kinds: tuple[type[bool | int | float | str], ...] = (int, float) if isinstance(default, float) else (type(default),)
        if not isinstance(value, kinds) or (isinstance(value, bool) and not isinstance(default, bool)):
            raise _refused(f"{name}={shown(value)}", f"give a value like {shown(default)}")
        if name in LOWEST and not cast("float", value) >= LOWEST[name]:
            raise _refused(f"{name}={shown(value)}", f"give at least {LOWEST[name]}")
        choices = {"run": get_args(Run), "numerics": get_args(Numerics)}.get(name, ())
        if choices and value not in choices:
            raise _refused(f"{name}={shown(value)}", f"use one of {', '.join(map(repr, choices))}")
    if mode in ("reduce-overhead", "max-autotune"):
        given.setdefault("cudagraphs", True)
    if mode in ("max-autotune", "max-autotune-no-cudagraphs"):
        given.setdefault("measure", True)
        given.setdefault("budget", 60.0)
    return Settings(**given)


def _refused(what: str, help: str) -> UnsupportedError:
    return UnsupportedError(what=f"torch.compile with {what}", reason="there is no such choice", help=help, location=caller())
