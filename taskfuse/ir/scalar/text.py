"""The text of expressions.

Grammar, loosest first::

    or    := and ('||' and)*
    and   := not ('&&' not)*
    not   := '!' not | cmp
    cmp   := sum (('<' | '<=' | '>' | '>=' | '==' | '!=') sum)?
    sum   := ['-'] prod (('+' | '-') prod)*
    prod  := unary (('*' | '//' | '%') unary)*
    unary := '-' unary | atom
    atom  := INT | NAME | '(' or ')' | ('min' | 'max') '(' or (',' or)* ')' | ('xor' | 'ceildiv') '(' or ',' or ')'
           | 'select' '(' or ',' or ',' or ')' | 'table' '(' '[' int (',' int)* ']' ',' or ')'
           | 'clamp' '(' NAME '[' or 'of' or ']' ',' or ',' or ')'
           | 'upper_bound' '(' NAME '[' 'k' 'of' or ']' ['//' INT] ['+' [INT '*'] 'k'] ',' or ',' or ',' or ')'
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from taskfuse.ir.scalar.arithmetic import floordiv, linear_parts, mod, mul, scale, sub
from taskfuse.ir.scalar.expr import (
    And,
    Compare,
    CompareOp,
    Const,
    Element,
    Expr,
    FloorDiv,
    IntLike,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Select,
    Sum,
    Sym,
    Table,
    UpperBound,
    Xor,
    const,
    sym,
    wrap,
)
from taskfuse.ir.scalar.logic import and_, element, eq, ge, gt, le, lt, maximum, minimum, ne, not_, or_, select, table, upper_bound, xor
from taskfuse.ir.scalar.memory import forgotten_by
from taskfuse.ir.scalar.operators import ceildiv
from taskfuse.ir.scalar.tokens import Token, TokenKind, tokenize


class _Precedence(IntEnum):
    """Binding strength of an expression's outermost operator."""

    OR = 0
    AND = 1
    NOT = 2
    COMPARE = 3
    SUM = 4
    PRODUCT = 5
    ATOM = 6


_TEXTS: dict[Expr, tuple[str, _Precedence]] = {}
forgotten_by(_TEXTS.clear)


def to_text(e: IntLike) -> str:
    """The text of ``e`` in the notation of Python and C, with as few parentheses as possible. ``parse_expr`` is its inverse."""
    return _text(wrap(e))[0]


Expr.printer = to_text


def _text(e: Expr) -> tuple[str, _Precedence]:
    found = _TEXTS.get(e)
    if found is None:
        found = _TEXTS[e] = _print(e)
    return found


def _at(e: Expr, level: _Precedence) -> str:
    """The text of ``e`` where operators below ``level`` need parentheses."""
    text, own = _text(e)
    return text if own >= level else f"({text})"


def _print(e: Expr) -> tuple[str, _Precedence]:
    match e:
        case Const(value):
            return str(value), _Precedence.ATOM if value >= 0 else _Precedence.SUM
        case Sym(name):
            return name, _Precedence.ATOM
        case Sum(terms, constant):
            return _print_sum(terms, constant)
        case Product(factors):
            return "*".join(_at(factor, _Precedence.ATOM) for factor in factors), _Precedence.PRODUCT
        case FloorDiv(a, b):
            dividend = _ceildiv_dividend(a, b)
            if dividend is not None:
                return _call("ceildiv", (dividend, b))
            left = _at(a, _Precedence.ATOM if isinstance(a, Mod) else _Precedence.PRODUCT)
            return f"{left}//{_at(b, _Precedence.ATOM)}", _Precedence.PRODUCT
        case Mod(a, b):
            return f"{_at(a, _Precedence.PRODUCT)} % {_at(b, _Precedence.ATOM)}", _Precedence.PRODUCT
        case Min(args):
            return _call("min", args)
        case Max(args):
            return _call("max", args)
        case Xor(a, b):
            return _call("xor", (a, b))
        case Select(cond, a, b):
            return _call("select", (cond, a, b))
        case Table(values, index):
            return f"table([{', '.join(map(str, values))}], {to_text(index)})", _Precedence.ATOM
        case Element(tensor, index, size, low, high):
            return f"clamp({tensor.name}[{to_text(index)} of {to_text(size)}], {to_text(low)}, {to_text(high)})", _Precedence.ATOM
        case UpperBound(tensor, size, low, high, divisor, step, sought):
            rises = (f"//{divisor}" if divisor > 1 else "") + (" + k" if step == 1 else f" + {step}*k" if step else "")
            return f"upper_bound({tensor.name}[k of {to_text(size)}]{rises}, {to_text(sought)}, {to_text(low)}, {to_text(high)})", _Precedence.ATOM
        case Compare(op, a, b):
            return _print_compare(op, a, b), _Precedence.COMPARE
        case And(args):
            return " && ".join(_at(arg, _Precedence.NOT) for arg in args), _Precedence.AND
        case Or(args):
            return " || ".join(_at(arg, _Precedence.AND) for arg in args), _Precedence.OR
        case Not(a):
            return f"!{_at(a, _Precedence.ATOM)}", _Precedence.NOT
        case _:
            raise AssertionError(type(e))


def _call(function: str, args: tuple[Expr, ...]) -> tuple[str, _Precedence]:
    return f"{function}({', '.join(map(to_text, args))})", _Precedence.ATOM


def _print_sum(terms: tuple[tuple[Expr, int], ...], constant: int) -> tuple[str, _Precedence]:
    """Positive terms first, the constant last, unless that would start the text with a minus."""
    items = [(t, k) for t, k in terms if k > 0] + [(t, k) for t, k in terms if k < 0]
    if constant > 0 and items[0][1] < 0:
        items.insert(0, (const(constant), 1))
    elif constant:
        items.append((const(abs(constant)), 1 if constant > 0 else -1))
    (first, k), *rest = items
    text = _print_term(first, k)
    if k < 0:  # a leading minus binds tighter than // and %
        text = f"-{_at(first, _Precedence.ATOM)}" if k == -1 and not isinstance(first, Product) else f"-{_print_term(first, -k)}"
    for term, k in rest:
        text += f" {'+' if k > 0 else '-'} {_print_term(term, abs(k))}"
    return text, _Precedence.SUM if rest or k < 0 else _Precedence.PRODUCT


def _print_term(term: Expr, k: int) -> str:
    if k == 1:
        return _at(term, _Precedence.PRODUCT)
    return f"{k}*{_text(term)[0]}" if isinstance(term, Product) else f"{k}*{_at(term, _Precedence.ATOM)}"


def _ceildiv_dividend(a: Expr, b: Expr) -> Expr | None:
    """``x`` if ``a//b`` reads better as ``ceildiv(x, b)``: if ``x`` is shorter than ``a``."""
    dividend = sub(a, b) + 1
    return dividend if _length(dividend) < _length(a) and not (isinstance(b, Const) and b.value < 2) else None


def _length(e: Expr) -> int:
    terms, constant = linear_parts(e)
    return len(terms) + (constant != 0)


def _print_compare(op: CompareOp, a: Expr, b: Expr) -> str:
    """An inequality is exchanged where that brings a constant, or the extents among indices, to the right."""
    if (op is CompareOp.LT or op is CompareOp.LE) and (isinstance(a, Const) or (_is_extent(a) and not _is_extent(b))):
        return f"{_at(b, _Precedence.SUM)} {'>' if op is CompareOp.LT else '>='} {_at(a, _Precedence.SUM)}"
    return f"{_at(a, _Precedence.SUM)} {op.value} {_at(b, _Precedence.SUM)}"


def _is_extent(e: Expr) -> bool:
    """Whether all symbols of ``e`` are written like dimensions, with a capital."""
    return all(name[0].isupper() for name in e.free)


def parse_expr(text: str) -> Expr:
    """The expression in ``text``.

    Raises:
        ParseError: ``text`` is not one expression.
    """
    tokens = tokenize(text)
    e, position = parse_tokens(tokens, 0)
    if tokens[position].kind is not TokenKind.END:
        raise tokens[position].error(f"expected the end of the expression, found {tokens[position]}")
    return e


def parse_tokens(tokens: list[Token], position: int) -> tuple[Expr, int]:
    """The longest expression that starts at ``tokens[position]``, and the position after it. The last token must be of kind ``END``.

    Raises:
        ParseError: no expression starts there, or it breaks off.
    """
    token = tokens[position]
    if token.kind in _SINGLE and tokens[position + 1].text in _ENDS:  # most are a number or a name: extents of a list
        return const(token.integer) if token.kind is TokenKind.INT else sym(token.text), position + 1
    parser = _Parser(tokens, position)
    return parser.disjunction(), parser.position


_SINGLE = frozenset({TokenKind.INT, TokenKind.NAME})
_ENDS = frozenset({",", ")", "]"})
"""Punctuation after which an expression does not go on."""


_COMPARISONS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
_VARIADIC = {"min": minimum, "max": maximum}
_BINARY = {"xor": xor, "ceildiv": ceildiv}


class _Parser:
    """Recursive descent; one method per rule of the grammar."""

    def __init__(self, tokens: list[Token], position: int) -> None:
        self.tokens = tokens
        self.position = position

    def take(self, *texts: str) -> str | None:
        """The next token's text, consumed, if it is one of these punctuations."""
        token = self.tokens[self.position]
        if token.kind is TokenKind.PUNCT and token.text in texts:
            self.position += 1
            return token.text
        return None

    def expect(self, text: str) -> None:
        if self.take(text) is None:
            token = self.tokens[self.position]
            raise token.error(f"expected '{text}', found {token}")

    def disjunction(self) -> Expr:
        args = [self.conjunction()]
        while self.take("||"):
            args.append(self.conjunction())
        return or_(*args) if len(args) > 1 else args[0]

    def conjunction(self) -> Expr:
        args = [self.negation()]
        while self.take("&&"):
            args.append(self.negation())
        return and_(*args) if len(args) > 1 else args[0]

    def negation(self) -> Expr:
        return not_(self.negation()) if self.take("!") else self.comparison()

    def comparison(self) -> Expr:
        left = self.sum()
        op = self.take(*_COMPARISONS)
        return left if op is None else _COMPARISONS[op](left, self.sum())

    def sum(self) -> Expr:
        result = self.product()
        while sign := self.take("+", "-"):
            term = self.product()
            result = result + term if sign == "+" else result - term
        return result

    def product(self) -> Expr:
        result = self.unary()
        while op := self.take("*", "//", "%"):
            right = self.unary()
            match op:
                case "*":
                    result = mul(result, right)
                case "//":
                    result = floordiv(result, right)
                case _:
                    result = mod(result, right)
        return result

    def unary(self) -> Expr:
        return scale(self.unary(), -1) if self.take("-") else self.atom()

    def atom(self) -> Expr:
        token = self.tokens[self.position]
        if self.take("("):
            e = self.disjunction()
            self.expect(")")
            return e
        match token.kind:
            case TokenKind.INT:
                self.position += 1
                return const(token.integer)
            case TokenKind.NAME:
                self.position += 1
                return self.call(token) if self.take("(") else sym(token.text)
            case _:
                raise token.error(f"expected an expression, found {token}")

    def call(self, name: Token) -> Expr:
        """A function's arguments, after the opening parenthesis."""
        if name.text == "table":
            values = self.values()
            self.expect(",")
            result = table(values, self.disjunction())
            self.expect(")")
            return result
        if name.text == "clamp":
            return self.element()
        if name.text == "upper_bound":
            return self.upper_bound()
        args = [self.disjunction()]
        while self.take(","):
            args.append(self.disjunction())
        self.expect(")")
        if name.text in _VARIADIC:
            return _VARIADIC[name.text](*args)
        wanted = 2 if name.text in _BINARY else 3 if name.text == "select" else None
        if wanted is None:
            raise name.error(f"there is no function '{name.text}'")
        if len(args) != wanted:
            raise name.error(f"'{name.text}' takes {wanted} arguments, not {len(args)}")
        return _BINARY[name.text](args[0], args[1]) if wanted == 2 else select(*args)

    def element(self) -> Expr:
        """An element of a tensor and its range, after the opening parenthesis."""
        token = self.tensor()
        index = self.disjunction()
        size = self.size()
        self.expect(",")
        low = self.disjunction()
        self.expect(",")
        high = self.disjunction()
        self.expect(")")
        return element(sym(token.text), index, size, low, high)

    def upper_bound(self) -> Expr:
        """A place in a table, after the opening parenthesis."""
        token = self.tensor()
        self.word("k", "the element that runs")
        size = self.size()
        divisor = self.integer() if self.take("//") else 1
        step = 0
        if self.take("+"):
            step = 1
            if self.tokens[self.position].text != "k":
                step = self.integer()
                self.expect("*")
            self.word("k", "the element that runs")
        self.expect(",")
        sought = self.disjunction()
        self.expect(",")
        low = self.disjunction()
        self.expect(",")
        high = self.disjunction()
        self.expect(")")
        if divisor < 1:
            raise token.error(f"elements of '{token.text}' are divided by {divisor}")
        if step < 0:
            raise token.error(f"elements of '{token.text}' have the negative step {step}")
        return upper_bound(sym(token.text), size, low, high, sought, divisor=divisor, step=step)

    def tensor(self) -> Token:
        """The name of a tensor, and the bracket after it."""
        token = self.tokens[self.position]
        if token.kind is not TokenKind.NAME:
            raise token.error(f"expected the name of a tensor, found {token}")
        self.position += 1
        self.expect("[")
        return token

    def word(self, text: str, meaning: str) -> None:
        """A word."""
        token = self.tokens[self.position]
        if token.text != text:
            raise token.error(f"expected '{text}' and {meaning}, found {token}" if text == "of" else f"expected '{text}', {meaning}, found {token}")
        self.position += 1

    def size(self) -> Expr:
        """The number of elements of a tensor, and the bracket after it."""
        self.word("of", "the number of elements")
        size = self.disjunction()
        self.expect("]")
        return size

    def values(self) -> list[int]:
        """A table's list of integers."""
        self.expect("[")
        values = [self.integer()]
        while self.take(","):
            values.append(self.integer())
        self.expect("]")
        return values

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        token = self.tokens[self.position]
        if token.kind is not TokenKind.INT:
            raise token.error(f"expected an integer, found {token}")
        self.position += 1
        return sign * token.integer


def shape_text(shape: Sequence[Expr]) -> str:
    """``[B, 4*S]``."""
    return "[" + ", ".join(str(e) for e in shape) + "]"
