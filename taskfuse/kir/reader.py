"""A position in the tokens of a kernel's text, with the small readers that both halves of the parser use."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from taskfuse.dtypes import DTYPES, DType
from taskfuse.errors import ParseError
from taskfuse.ir.scalar import Expr, Token, TokenKind, parse_tokens, tokenize
from taskfuse.kir.words import KEYWORDS, RESERVED, VALUES, Keyword

T = TypeVar("T")


class Reader:
    """The tokens and the position of the next one.

    Attributes:
        lines: the text, for comments, which are no tokens.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.tokens = tokenize(text)
        self.position = 0
        self.skip_lines()

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def fail(self, expected: str) -> ParseError:
        """The error for a next token that is not what the grammar has here."""
        return self.token.error(f"expected {expected}, found {self.token}")

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        self.position += 1
        return token

    def at(self, text: str) -> bool:
        """True if the next token is this word or punctuation."""
        return self.token.text == text

    def take(self, text: str) -> bool:
        """Take the next token if it is this word or punctuation."""
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take this word or punctuation."""
        if not self.take(text):
            raise self.fail(f"'{text}'")

    def keyword(self) -> Keyword | None:
        """The keyword that the next token is, or begins with (``WGMMA.m64n64k16.bfloat16``); not taken."""
        return KEYWORDS.get(self.token.text.partition(".")[0]) if self.token.kind is TokenKind.NAME else None

    def word(self, what: str) -> Token:
        """Take a word, reserved or not."""
        if self.token.kind is not TokenKind.NAME:
            raise self.fail(what)
        return self.advance()

    def name(self, what: str) -> str:
        """Take a name that a declaration makes."""
        token = self.word(what)
        if token.text in RESERVED:
            raise token.error(f"'{token.text}' is a word of the grammar, not a name")
        return token.text

    def integer(self) -> int:
        """Take an integer with its sign."""
        sign = -1 if self.take("-") else 1
        if self.token.kind is not TokenKind.INT:
            raise self.fail("an integer")
        return sign * int(self.advance().text, 0)

    def number(self, word: str) -> int:
        """Take a word and an integer: ``width 4``."""
        self.expect(word)
        return self.integer()

    def expression(self) -> Expr:
        """Take the longest expression."""
        e, self.position = parse_tokens(self.tokens, self.position)
        return e

    def sequence(self, item: Callable[[], T], close: str) -> tuple[T, ...]:
        """Take items between commas, up to and with the closing punctuation."""
        items: list[T] = []
        while not self.take(close):
            if items:
                self.expect(",")
            items.append(item())
        return tuple(items)

    def expressions(self, opening: str, close: str) -> tuple[Expr, ...]:
        """Take ``(a, b)`` or ``[a, b]``."""
        self.expect(opening)
        return self.sequence(self.expression, close)

    def dtype(self) -> DType:
        """Take the name of a dtype."""
        token = self.word("a dtype")
        return known(token, token.text, DTYPES, "dtype")

    def literal(self) -> int | float | bool:
        """Take a constant: ``3``, ``-0.5``, ``inf``, ``nan``, ``true``."""
        negative = self.take("-")
        token = self.token
        value: int | float | bool
        match token.kind:
            case TokenKind.INT:
                value = int(token.text, 0)
            case TokenKind.FLOAT:
                value = float(token.text)
            case TokenKind.NAME if token.text in VALUES:
                value = VALUES[token.text]
            case _:
                raise self.fail("a constant")
        if negative and isinstance(value, bool):
            raise self.fail("a number")
        self.advance()
        return -value if negative and not math.isnan(value) else value

    def at_literal(self) -> bool:
        """True if a constant begins here."""
        return self.token.kind in (TokenKind.INT, TokenKind.FLOAT) or self.at("-") or self.token.text in VALUES

    def at_line_end(self) -> bool:
        """True if nothing but a comment is left in the line."""
        return self.token.kind in (TokenKind.NEWLINE, TokenKind.END)

    def end_line(self) -> str | None:
        """Take the end of the line and the empty lines after it. Gives the line's comment, if there is one."""
        if not self.at_line_end():
            raise self.fail("the end of the line")
        comment = self.lines[self.token.line - 1].partition("#")[2].strip()
        self.skip_lines()
        return comment or None

    def skip_lines(self) -> None:
        """Take empty lines."""
        while self.token.kind is TokenKind.NEWLINE:
            self.position += 1


def known(token: Token, name: str, names: dict[str, T], what: str) -> T:
    """The thing called ``name``, which ``token`` mentions. Raises :class:`ParseError` at the token if there is none."""
    found = names.get(name)
    if found is None:
        raise ParseError(line=token.line, column=token.column, reason=f"there is no {what} '{name}'", help=suggestion(name, names))
    return found


def suggestion(name: str, names: Iterable[str]) -> str | None:
    """What the author may have meant."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean '{close[0]}'?" if close else None
