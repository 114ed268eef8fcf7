"""What the checker says: a verdict per obligation, and one for the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from taskfuse.errors import ProofError


class Verdict(Enum):
    """PROVED: holds for every launch and every interleaving. REFUTED: a counterexample was found. OUTSIDE: neither; the text names why."""

    PROVED = "proved"
    REFUTED = "refuted"
    OUTSIDE = "outside the model"


class Layer(Enum):
    """The part of the argument (docs/proof.md) that an obligation belongs to."""

    STRUCTURE = "structure"
    ORDER = "order"
    ADDRESS = "address"
    INSTANCE = "instances"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing that had to be shown.

    Attributes:
        subject: what it is about: a barrier, a ring, a pair of accesses.
        reason: why it holds, or what stands against it.
        notes: the counterexample, or facts about it, one line each.
    """

    layer: Layer
    subject: str
    verdict: Verdict
    reason: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((f"{self.verdict.value}: {self.subject}: {self.reason}", *(f"  {n}" for n in self.notes)))


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of :func:`taskfuse.check.verify`. ``str`` lists what was shown, and what was not.

    Attributes:
        obligations: in the order in which they were looked at.
        assumptions: what the launch must see to, or what holds of the machine.
    """

    kernel: str
    obligations: tuple[Obligation, ...]
    assumptions: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """REFUTED if an obligation is, else OUTSIDE if one is, else PROVED."""
        found = {o.verdict for o in self.obligations}
        return next((v for v in (Verdict.REFUTED, Verdict.OUTSIDE) if v in found), Verdict.PROVED)

    @property
    def failures(self) -> tuple[Obligation, ...]:
        """The obligations that do not hold or were not shown, refuted ones first."""
        failed = [o for o in self.obligations if o.verdict is not Verdict.PROVED]
        return tuple(sorted(failed, key=lambda o: o.verdict is not Verdict.REFUTED))

    def require(self) -> None:
        """Do nothing if the kernel is proved.

        Raises:
            ProofError: with the first counterexample, or what is outside the model.
        """
        if self.verdict is Verdict.PROVED:
            return
        first, *rest = self.failures
        more = (f"{len(rest)} more obligations are not proved",) if rest else ()
        raise ProofError(
            kernel=self.kernel,
            verdict=first.verdict.value,
            reason=f"{first.subject}: {first.reason}",
            notes=(*first.notes, *more),
            help="str(certificate) lists every obligation",
        )

    def __str__(self) -> str:
        lines = [f"{self.kernel}: {self.verdict.value}"]
        for layer in Layer:
            mine = [o for o in self.obligations if o.layer is layer]
            if mine:
                held = sum(o.verdict is Verdict.PROVED for o in mine)
                lines.append(f"{layer.value}: {held} of {len(mine)} obligations")
                lines += [f"  {line}" for o in mine for line in str(o).split("\n")]
        if self.assumptions:
            lines += ["assumed:", *(f"  {a}" for a in self.assumptions)]
        return "\n".join(lines)
