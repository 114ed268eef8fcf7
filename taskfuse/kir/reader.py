"""The small readers of a kernel's text that all parts of its parser use."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from taskfuse.dtypes import DTYPES, DType
from taskfuse.errors import ParseError
from taskfuse.ir.reader import TokenReader
from taskfuse.ir.scalar import Expr, Token, TokenKind
from taskfuse.kir.words import KEYWORDS, RESERVED, VALUES, Keyword

T = TypeVar("T")


class Reader(TokenReader):
    """The tokens of a kernel's text."""

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
        return sign * super().integer()

    def string(self, what: str) -> str:
        """Take a text in quotes, written as in JSON."""
        if self.token.kind is not TokenKind.STRING:
            raise self.fail(f"{what} in quotes")
        try:
            text = str(json.loads(self.token.text))
        except ValueError:
            raise self.token.error(f"{self.token} is no text") from None
        self.advance()
        return text

    def number(self, word: str) -> int:
        """Take a word and an integer: ``width 4``."""
        self.expect(word)
        return self.integer()

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
                value = token.integer
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
