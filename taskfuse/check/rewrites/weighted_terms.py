"""Terms of sums that are products: of a number, of elements and their reciprocals, and of exponentials; what they are multiplied by, and when two are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.images import compare_parts
from taskfuse.check.rewrites.linear_forms import Guard, LinearForm
from taskfuse.check.rewrites.sides import At, Different
from taskfuse.check.rewrites.sums import TermPart
from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import Expr, Facts, Sym

MUL = ELEMENTWISE["mul"]
ONE = Fraction(1)


@dataclass(frozen=True, slots=True, eq=False)
class Monomial:
    """A product.

    Attributes:
        coefficient: a number. Terms with coefficient 0 are kept if they contain references without a guard, which may be infinite, or the constant 0.
        factors: elements, each with its integer exponent.
        products: factors that are themselves products of elements, as sets of terms.
        exponents: by exponential function, its argument.
        narrowed: narrower types to which it, or a factor, is rounded.
        guards, raw: references, as in linear forms.
        has_zero: true if a factor is the constant 0, not an exponential: 0 times an infinite element is not 0.
    """

    coefficient: Fraction = ONE
    factors: tuple[tuple[At, int], ...] = ()
    products: tuple[TermPart, ...] = ()
    exponents: Mapping[Elementwise, LinearForm] = field(default_factory=dict[Elementwise, LinearForm])
    narrowed: frozenset[DType] = frozenset()
    guards: frozenset[Guard] = frozenset()
    raw: frozenset[Guard] = frozenset()
    has_zero: bool = False

    def __mul__(self, other: Monomial) -> Monomial:
        exponents = dict(self.exponents)
        for base, form in other.exponents.items():
            exponents[base] = exponents[base] + form if base in exponents else form
        return Monomial(
            self.coefficient * other.coefficient,
            (*self.factors, *other.factors),
            (*self.products, *other.products),
            exponents,
            self.narrowed | other.narrowed,
            self.guards | other.guards,
            self.raw | other.raw,
            (self.has_zero and (other.has_zero or other.coefficient != 0)) or (other.has_zero and self.coefficient != 0),
        )

    @property
    def is_left_out(self) -> bool:
        """True if it adds nothing: a 0 that is not multiplied by elements, but for divisors, none of which is 0, and for factors of later steps."""
        return not self.coefficient and not (self.has_zero and any(n > 0 for _, n in self.factors))

    def inverse(self) -> Monomial:
        """Its reciprocal.

        Raises:
            Different: it is 0, or contains products.
        """
        if not self.coefficient or self.products:
            raise Different("a divisor is 0, or a product over steps")
        exponents = {base: form.times(-ONE) for base, form in self.exponents.items()}
        return replace(self, coefficient=1 / self.coefficient, factors=tuple((at, -n) for at, n in self.factors), exponents=exponents)

    @property
    def is_exponential(self) -> bool:
        """True if it contains only exponentials."""
        return self.coefficient == 1 and not self.factors and not self.products


class WeightedTerms(NamedTuple):
    """A monomial for each value of some variables at which conditions hold."""

    variables: tuple[tuple[Sym, Expr], ...]
    conditions: tuple[Expr, ...]
    monomial: Monomial

    def times(self, other: WeightedTerms) -> WeightedTerms:
        """The products of these terms with all others."""
        return WeightedTerms((*self.variables, *other.variables), (*self.conditions, *other.conditions), self.monomial * other.monomial)

    def part(self) -> WeightedPart:
        """The terms as a part of a set."""
        m = self.monomial
        operands = [*m.factors, *((at, base, q) for base, form in m.exponents.items() for at, q in form.terms)]
        roles = tuple(Role(None, Fraction(o[1])) if len(o) == 2 else Role(o[1], o[2]) for o in operands)
        constants = {base: Fraction(form.constant) for base, form in m.exponents.items() if form.constant}
        return WeightedPart(self.variables, self.conditions, MUL, tuple(o[0] for o in operands), m.coefficient, m.products, roles, constants, m.narrowed)


class Role(NamedTuple):
    """The role of an operand in a term.

    Attributes:
        base: the exponential function whose argument contains it; ``None`` for a factor.
        q: its coefficient in the argument, or the exponent of a factor.
    """

    base: Elementwise | None
    q: Fraction


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPart(TermPart):
    """Terms that are products; ``operands`` have a role each.

    Attributes:
        constants: of exponents.
        products: factors that are products of elements, as sets of terms.
    """

    coefficient: Fraction
    products: tuple[TermPart, ...]
    roles: tuple[Role, ...]
    constants: Mapping[Elementwise, Fraction]
    narrowed: frozenset[DType]

    def at(self, values: Mapping[str, Expr]) -> WeightedPart:
        """See :meth:`TermPart.at`."""
        moved = super(WeightedPart, self).at(values)
        assert isinstance(moved, WeightedPart)
        return replace(moved, products=tuple(p.at(values) for p in self.products))

    def alike(self, written: TermPart) -> Iterator[tuple[At, At]]:
        """See :meth:`TermPart.alike`."""
        assert isinstance(written, WeightedPart)
        for a, role in zip(written.operands, written.roles, strict=True):
            yield from ((a, b) for b, other in zip(self.operands, self.roles, strict=True) if role == other)

    def check(self, written: TermPart, elements: ElementPairs, inside: Facts) -> None:
        """See :meth:`TermPart.check`."""
        assert isinstance(written, WeightedPart)
        if self.coefficient != written.coefficient or self.constants != written.constants:
            raise Different(f"a term is multiplied by {float(self.coefficient)}, and was by {float(written.coefficient)}")
        if sorted(map(_order, self.roles)) != sorted(map(_order, written.roles)):
            raise Different("a term is another product than it was written as")
        if self.narrowed != written.narrowed:
            raise Different("a term is rounded to other types than it was written")
        left = list(zip(self.operands, self.roles, strict=True))
        for a, role in zip(written.operands, written.roles, strict=True):
            reason = ""
            for k, (b, other) in enumerate(left):
                if role != other:
                    continue
                try:
                    elements.check(a, b, inside, is_converted=True)
                except Different as error:
                    reason = reason or error.reason
                    continue
                del left[k]
                break
            else:
                raise Different(reason or "a factor is not what was written")
        if self.products or written.products:
            compare_parts(elements, written.products, self.products, inside)


def _order(role: Role) -> tuple[str, Fraction]:
    return "" if role.base is None else role.base.name, role.q
