"""The certificate of a kernel: a verdict per obligation, and one for the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from taskfuse.errors import ProofError
from taskfuse.location import with_snippets


class Verdict(Enum):
    """PROVED: holds for every launch and every interleaving. REFUTED: a counterexample was found. OUTSIDE: neither; the text names the reason."""

    PROVED = "proved"
    REFUTED = "refuted"
    OUTSIDE = "outside the model"


class Layer(Enum):
    """The part of the argument (docs/proof.md) that an obligation belongs to."""

    REWRITINGS = "rewritings"
    STRUCTURE = "structure"
    ORDER = "order"
    ADDRESS = "address"
    VALUES = "values"
    INSTANCE = "instances"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One obligation of the proof, and its verdict.

    Attributes:
        subject: a barrier, a ring, a pair of accesses, ...
        reason: why it holds, or why it is open or refuted.
        notes: the counterexample, or facts about it, one line each; those that quote a statement are :class:`taskfuse.location.Quote`.
    """

    layer: Layer
    subject: str
    verdict: Verdict
    reason: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"{self.verdict.value}: " + self.subject + f": {self.reason}"
        return "\n".join(with_snippets((said, *("  " + n for n in self.notes))))


def no_search() -> tuple[Obligation, ...]:
    """A search that finds no counterexample."""
    return ()


@dataclass(frozen=True)
class Certificate:
    """The result of :func:`taskfuse.check.verify`. ``str`` lists all obligations with their verdicts.

    Attributes:
        argument: the obligations of all layers; can be read several times. They are evaluated lazily: the first gap decides that the kernel is not proved, the
            rest is evaluated when it is read.
        assumptions: about the launch and the machine.
        extents: the values of the extents, if the argument holds only for these.
        search: searches for a counterexample. It takes longer than the argument, and is called only if the argument has gaps and a verdict or text is read.
    """

    kernel: str
    argument: Iterable[Obligation]
    assumptions: tuple[str, ...] = ()
    extents: tuple[tuple[str, int], ...] = ()
    search: Callable[[], tuple[Obligation, ...]] = field(default=no_search, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the whole argument, which is evaluated first."""
        return Certificate, (self.kernel, self.obligations, self.assumptions, self.extents)

    @property
    def is_proved(self) -> bool:
        """The argument has no gap."""
        return all(o.verdict is Verdict.PROVED for o in self.argument)

    @property
    def open_layers(self) -> frozenset[Layer]:
        """The layers of the argument that have gaps."""
        return frozenset(o.layer for o in self.argument if o.verdict is not Verdict.PROVED)

    @cached_property
    def obligations(self) -> tuple[Obligation, ...]:
        """All obligations; the results of the search for a counterexample come first."""
        found = () if self.is_proved else self.search()
        return (*found, *self.argument)

    @property
    def verdict(self) -> Verdict:
        """REFUTED if an obligation is, else OUTSIDE if one is, else PROVED."""
        if self.is_proved:
            return Verdict.PROVED
        found = {o.verdict for o in self.obligations}
        return next((v for v in (Verdict.REFUTED, Verdict.OUTSIDE) if v in found), Verdict.PROVED)

    @property
    def failures(self) -> tuple[Obligation, ...]:
        """The obligations that are refuted or not proved, refuted ones first."""
        failed = [o for o in self.obligations if o.verdict is not Verdict.PROVED]
        return tuple(sorted(failed, key=lambda o: o.verdict is not Verdict.REFUTED))

    def refuse(self) -> None:
        """Raise :class:`ProofError` with the first gap of the argument, without a search for a counterexample."""
        gap = next(o for o in self.argument if o.verdict is not Verdict.PROVED)
        raise ProofError(kernel=self.kernel, verdict=gap.verdict.value, reason=f"{gap.subject}: {gap.reason}", notes=gap.notes)

    def require(self) -> None:
        """Return if the kernel is proved.

        Raises:
            ProofError: with the first counterexample, or the first obligation outside the model.
        """
        if self.is_proved:
            return
        first, *rest = self.failures
        more = (f"{len(rest)} more obligations are not proved",) if rest else ()
        raise ProofError(
            kernel=self.kernel,
            verdict=first.verdict.value,
            reason=f"{first.subject}: {first.reason}",
            notes=(*first.notes, *more),
            help="str(certificate) lists every obligation; unsafe=True compiles the kernel all the same",
        )

    def __str__(self) -> str:
        at = f" for {', '.join(f'{name} = {value}' for name, value in self.extents)}" if self.extents else ""
        lines = [f"{self.kernel}: {self.verdict.value}{at}"]
        for layer in Layer:
            mine = [o for o in self.obligations if o.layer is layer]
            if mine:
                held = sum(o.verdict is Verdict.PROVED for o in mine)
                lines.append(f"{layer.value}: {held} of {len(mine)} obligations")
                lines += [f"  {line}" for o in mine for line in str(o).split("\n")]
        if self.assumptions:
            lines += ["assumed:", *(f"  {a}" for a in self.assumptions)]
        return "\n".join(lines)
