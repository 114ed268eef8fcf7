"""Which kernels may run: those that are proved free of deadlock and race, for all extents or for those of a launch.

What was proved once is remembered: in this process, and in the folder of compiled kernels for the next one, by the kernel's text and the state of
the checker. Only that a kernel is proved is kept; who wants to read the certificate has it made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final

from taskfuse.check import Certificate, Layer, Verdict, verify
from taskfuse.cuda.cache import folder, keep
from taskfuse.kir import Kernel, to_text
from taskfuse.options import Options
from taskfuse.version import VERSION

_PROVED: Final = b"proved"
_CHECKER: Final = ("check", "kir", "ir")
_REMEMBERED: Final = 4096


class Proof:
    """What is known of a kernel. Safe for calls from several threads.

    A kernel of symbolic extents whose argument has gaps, and against which no counterexample is found, is *open*: it is proved, or refused, for
    the extents of each launch. That takes a while for extents that are new. Where values alone are open, nothing else is asked again.

    Args:
        searches: whether a counterexample is looked for where the argument has gaps. It takes longer than the argument; of a schedule of constant extents
            that is one of many nothing more is asked than that it is proved.

    Raises:
        ProofError: the kernel is refuted; or it is outside the model, and has no symbolic extents.
    """

    __slots__ = ("_admitted", "_certificate", "_lock", "_values_alone", "is_open", "kernel")

    def __init__(self, kernel: Kernel, settings: Options, searches: bool = True) -> None:
        self.kernel = kernel
        self.is_open = False
        self._values_alone = False
        self._certificate: Certificate | None = None
        self._admitted: set[tuple[int, ...]] = set()
        self._lock = Lock()
        key = _key(kernel)
        if _remembered(key, settings):
            return
        certificate = self.certificate
        if certificate.is_proved:
            _remember(key, settings)
        elif kernel.extents and certificate.open_layers == frozenset((Layer.VALUES,)):
            self.is_open = self._values_alone = True
        elif not searches and not kernel.extents:
            certificate.refuse()
        elif certificate.verdict is Verdict.OUTSIDE and kernel.extents:
            self.is_open = True
        else:
            certificate.require()

    @property
    def certificate(self) -> Certificate:
        """The certificate for all extents."""
        if self._certificate is None:
            self._certificate = verify(self.kernel)
        return self._certificate

    def admit(self, symbols: Mapping[str, int]) -> None:
        """Do nothing if the kernel is proved for a launch.

        Args:
            symbols: values of its extents, among others.

        Raises:
            ProofError: it is not, and neither is it for these extents alone.
        """
        if not self.is_open:
            return
        sizes = tuple(symbols[e.name] for e in self.kernel.extents)
        with self._lock:
            if sizes not in self._admitted:
                certificate = verify(self.kernel, symbols)
                if not self._values_alone or Layer.VALUES in certificate.open_layers:  # order that holds for all extents holds for these
                    certificate.require()
                self._admitted.add(sizes)


def _key(kernel: Kernel) -> str:
    return hashlib.sha256("\0".join(("proof", VERSION, checker(), to_text(kernel, witness=True))).encode()).hexdigest()


@lru_cache(maxsize=1)
def checker() -> str:
    """The files that a proof depends on, as they are: a checker that was changed has proved nothing yet."""
    root = Path(__file__).parents[1]
    files = sorted((*root.glob("*.py"), *(f for folder in _CHECKER for f in (root / folder).rglob("*.py"))))
    return " ".join(f"{f.name}:{s.st_size}:{s.st_mtime_ns}" for f in files for s in (f.stat(),))


_known: dict[str, None] = {}


def _remembered(key: str, settings: Options) -> bool:
    if key in _known:
        return True
    disk = folder(settings)
    if disk is None or disk.get(key) != _PROVED:
        return False
    _known[key] = None
    return True


def _remember(key: str, settings: Options) -> None:
    if len(_known) >= _REMEMBERED:
        _known.clear()
    _known[key] = None
    disk = folder(settings)
    if disk is not None:
        keep(disk, key, _PROVED)
