"""Decides which kernels may run: those that are proved, for all extents or for those of a launch.

Proofs are cached, in this process and in the folder of compiled kernels, by the kernel's text and the checker's files. Only the
verdict is cached; the certificate is computed again when it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING, Final

from taskfuse.cuda.cache import folder, keep
from taskfuse.cuda.kernel_interface import KernelInterface
from taskfuse.cuda.sources import sources
from taskfuse.kir import Kernel
from taskfuse.options import Options
from taskfuse.version import VERSION

_PROVED: Final = b"proved"
_REMEMBERED: Final = 4096

if TYPE_CHECKING:
    from taskfuse.check import Certificate


class Standing(Enum):
    """The state of the proof of a kernel that may run."""

    PROVED = "proved"
    OPEN = "open"
    VALUES_OPEN = "values open"


class Proof:
    """The proof of a kernel. Safe for calls from several threads.

    A kernel of symbolic extents whose argument has gaps, and without a counterexample, is *open*: it is proved, or rejected, for
    the extents of each launch, which takes a while for new extents. If only the value layer is open, only that layer is repeated.

    Args:
        interface: the kernel's.
        standing: another process's verdict, if the caller has it bound to the kernel's text and to the checker (:func:`identity`).
        searches: whether gaps start a search for a counterexample, which takes longer than the argument; of a schedule of constant extents
            that is one of many, only its verdict is computed.

    Raises:
        ProofError: the kernel is refuted; or it is outside the model, and has no symbolic extents.
    """

    __slots__ = ("_admitted", "_certificate", "_interface", "_lock", "standing")

    def __init__(self, interface: KernelInterface, settings: Options, searches: bool = True, standing: Standing | None = None) -> None:
        self._interface = interface
        self._certificate: Certificate | None = None
        self._admitted: set[tuple[int, ...]] = set()
        self._lock = Lock()
        key = identity(interface.text, settings)
        if standing is Standing.PROVED:
            _known[key] = None
        self.standing = standing or (Standing.PROVED if _remembered(key, settings) else self._found(searches))
        if self.standing is Standing.PROVED and key not in _known:
            _remember(key, settings)

    def _found(self, searches: bool) -> Standing:
        from taskfuse.check import Layer, Verdict

        certificate, extents = self.certificate, self._interface.head.extents
        if not certificate.is_proved:
            if extents and certificate.open_layers == frozenset((Layer.VALUES,)):
                return Standing.VALUES_OPEN
            if not searches and not extents:
                certificate.refuse()
            if certificate.verdict is Verdict.OUTSIDE and extents:
                return Standing.OPEN
        certificate.require()
        return Standing.PROVED

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self._interface.whole()

    @property
    def is_open(self) -> bool:
        """Whether launches of new extents are proved one by one."""
        return self.standing is not Standing.PROVED

    @property
    def certificate(self) -> Certificate:
        """The certificate for all extents."""
        if self._certificate is None:
            self._certificate = verify(self.kernel)
        return self._certificate

    def admit(self, symbols: Mapping[str, int]) -> None:
        """Return if the kernel is proved for a launch.

        Args:
            symbols: values of its extents, among others.

        Raises:
            ProofError: it is proved neither for all extents nor for these.
        """
        if not self.is_open:
            return
        from taskfuse.check import Layer

        sizes = tuple(symbols[e.name] for e in self._interface.head.extents)
        with self._lock:
            if sizes not in self._admitted:
                certificate = verify(self.kernel, {e.name: symbols[e.name] for e in self.kernel.extents})
                if self.standing is Standing.OPEN or Layer.VALUES in certificate.open_layers:  # order that holds for all extents holds for these
                    certificate.require()
                self._admitted.add(sizes)


def verify(kernel: Kernel, extents: Mapping[str, int] | None = None) -> Certificate:
    """:func:`taskfuse.check.verify`."""
    from taskfuse.check import verify as proved  # only who has to prove pays for its import

    return proved(kernel, extents)


def identity(text: str, settings: Options) -> str:
    """The identity of a proof: the text of a kernel with its witness, and the current files of the checker, so that a changed checker starts without proofs."""
    return hashlib.sha256("\0".join(("proof", VERSION, sources(settings).checker, text)).encode()).hexdigest()


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
