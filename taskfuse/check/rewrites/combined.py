"""Two elements combine the same terms: those of a reduction, a scan or a fold by one function, or summed products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.images import compare_parts
from taskfuse.check.rewrites.sides import At, Different
from taskfuse.check.rewrites.sums import CombineForm, eliminated, form_of, in_digits, terms
from taskfuse.check.rewrites.weighted_sums import weighted_parts
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import Facts
from taskfuse.kir.witness import Definition, Iterate, Reduce


def compare_terms(elements: ElementPairs, a: At, b: At, facts: Facts) -> None:
    """Return if two elements combine the same terms.

    Raises:
        Different: they do not, or no proof was found.
    """
    for at in (a, b):
        match at.side.defined(at.operand):
            case Definition(rule=Reduce(init=init) | Iterate(init=init)) if is_same_number(init.value, -0.0):
                raise Different("it begins with -0.0, to which 0.0 is not neutral")
            case _:
                pass
    form = form_of(a) or form_of(b)
    tries: list[Callable[[], None]] = []
    if form is not None:
        tries += [partial(_compare, elements, a, b, replace(form, atoms=frozenset(elements.same)), facts)] if elements.same else []
        tries.append(partial(_compare, elements, a, b, form, facts))
    tries.append(partial(_compare_weighted, elements, a, b, facts))
    for k, attempt in enumerate(tries):
        try:
            attempt()
        except Different:
            if k == len(tries) - 1:
                raise
        else:
            return


def _compare(elements: ElementPairs, a: At, b: At, form: CombineForm, facts: Facts) -> None:
    written, now = terms(a, form, elements, facts), terms(b, form, elements, facts)
    if not is_same_number(written.init, now.init):
        raise Different(f"it begins with {now.init}, and began with {written.init}")
    compare_parts(elements, written.parts, now.parts, facts, is_idempotent=now.combine.idempotent)


def _compare_weighted(elements: ElementPairs, a: At, b: At, facts: Facts) -> None:
    written, now = ([in_digits(q, elements, facts) for p in of for q in eliminated(p, facts)] for of in weighted_parts(elements, a, b, facts))
    compare_parts(elements, written, now, facts)
