"""The layer of rewritings over one kernel: its definitions against the original ones, tensor by tensor.

The proof is cut at tensors that have one name on both sides: once such a tensor is proved equal, its readers treat its elements as the same. A name
implies nothing else; two unrelated tensors of one name cost a comparison. Only the outputs must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.check.rewrites.combined import compare_terms
from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.instances import Instance, instance
from taskfuse.check.rewrites.sides import At, Definitions, Different
from taskfuse.check.rewrites.unknown_functions import UnknownFunctions
from taskfuse.ir.dims import facts_of
from taskfuse.ir.scalar import Expr, Facts
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access
from taskfuse.kir.witness import Definition, tensors_of
from taskfuse.location import Quote
from taskfuse.reports.certificate import Layer, Obligation, Verdict


@dataclass(frozen=True, slots=True)
class Rewritings:
    """The result of the layer.

    Attributes:
        obligations: proved, refuted or open ones. An output is open if it is neither proved nor refuted, and nothing is evidence that it is right.
        assumptions: outputs that are neither proved nor refuted, with the evidence at small extents.
    """

    obligations: tuple[Obligation, ...] = ()
    assumptions: tuple[str, ...] = ()


def rewritings(kernel: Kernel) -> Rewritings:
    """Compare the definitions of a kernel with the original ones. Empty if no scheduling call replaced definitions."""
    if not kernel.written:
        return Rewritings()
    comparison = _Tensors(kernel)
    open_outputs = comparison.run()
    proved = sorted(p.name for p in kernel.outputs if p.name not in open_outputs)
    made: list[Obligation] = []
    if proved:
        changed = sum(d.tensor not in comparison.now.definitions or comparison.now.definitions[d.tensor] != d for d in kernel.written)
        reason = f"every element of {', '.join(proved)} is what was written, behind {changed} definitions that scheduling calls replaced"
        if comparison.elements.finite:
            reason += f", in real numbers, where {' and '.join(sorted(comparison.elements.finite))} is finite"
        made.append(Obligation(Layer.REWRITINGS, "definitions", Verdict.PROVED, reason))
    if not open_outputs:
        return Rewritings(tuple(made))
    match instance(kernel, tuple(sorted(open_outputs))):
        case Instance(output=str(output)) as found:
            made.append(Obligation(Layer.REWRITINGS, f"output {output}", Verdict.REFUTED, found.reason, (*found.notes, *comparison.lines())))
            return Rewritings(tuple(made))
        case Instance() as found:
            said = {name: f"{name} is what was written, which is not shown ({reason})" for name, reason in sorted(open_outputs.items())}
            left = [name for name in said if name not in found.compared]
            why = found.reason if len(left) == len(said) else "none of its elements has been computed"
            made += (Obligation(Layer.REWRITINGS, f"output {name}", Verdict.OUTSIDE, f"{said[name]}; {why}", tuple(comparison.lines())) for name in left)
            return Rewritings(tuple(made), tuple(f"{text}; {found.reason}" for name, text in said.items() if name in found.compared))


class _Tensors:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.written, self.now = Definitions.of(kernel, kernel.written), Definitions.of(kernel, kernel.definitions)
        self.facts = facts_of(kernel.extents)
        self.elements = ElementPairs(compare_terms)
        self._sides = [(self.written, self.now)]
        if kernel.tables:
            unknown = UnknownFunctions(self.facts, frozenset(e.name for e in kernel.extents))
            self._sides.insert(0, (self.written.mapped(unknown), self.now.mapped(unknown)))

    def run(self) -> Mapping[str, str]:
        """The outputs that are not proved, with the reasons."""
        outputs = {p.name for p in self.kernel.outputs}
        left: dict[str, str] = {}
        for d in self.kernel.definitions:
            written = self.written.definitions.get(d.tensor)
            if written is None or written.shape != d.shape or written.dtype is not d.dtype:
                continue
            try:
                if not self._is_kept(d, written):
                    self._check(d)
            except Different as error:
                if d.tensor in outputs:
                    left[d.tensor] = str(error)
                continue
            self.elements.same.add(d.tensor)
        return left

    def lines(self) -> list[str]:
        """The tensors whose definition differs from the original, each with the user's line that replaced it."""
        changed = [d for d in self.kernel.definitions if self.written.definitions.get(d.tensor) != d and d.location is not None]
        return [Quote(f"rewritten: {d.tensor}", d.location) for d in {d.location: d for d in changed}.values()]

    def _is_kept(self, d: Definition, written: Definition) -> bool:
        """The same definition, of tensors that are the same."""
        return d == written and tensors_of(d.rule) <= self.elements.same | self.now.inputs

    def _check(self, d: Definition) -> None:
        for k, (written, now) in enumerate(self._sides):
            self.elements.restart()
            facts: Facts = self.facts
            index: list[Expr] = []
            for extent in d.shape:
                at, facts = self.elements.fresh(extent, facts)
                index.append(at)
            element = Access(d.tensor, tuple(index))
            try:
                self.elements.check(At(written, element), At(now, element), facts)
            except Different:
                if k == len(self._sides) - 1:
                    raise
            else:
                return
