"""Token readers that several grammars share: a position in the tokens of a fusion's or a kernel's text; words, names and lists of a fusion's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

from taskfuse.errors import ParseError
from taskfuse.ir.scalar import Expr, Token, TokenKind, parse_tokens, tokenize
from taskfuse.ir.syntax import AxisName, BoundAxis, Name
from taskfuse.ir.types import ParallelType

_WORDS = (TokenKind.NAME, TokenKind.PUNCT)  # no set: hashing a member of an enum takes longer than both comparisons


class TokenReader:
    """Tokens and the position of the next one, initially on the first line that is not empty.

    Attributes:
        lines: the text, for comments, which are not tokens.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.tokens = tokenize(text)
        self.position: int = 0
        self.skip_lines()

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def fail(self, expected: str) -> ParseError:
        """The error for an unexpected token."""
        return self.token.error(f"expected {expected}, found {self.token}")

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        self.position += 1
        return token

    def at(self, *texts: str) -> bool:
        """True if the next token is one of these words or punctuations."""
        token = self.tokens[self.position]
        return token.text in texts and token.kind in _WORDS

    def take(self, *texts: str) -> bool:
        """Take the next token if it is one of these words or punctuations."""
        found = self.at(*texts)
        self.position += found
        return found

    def expect(self, text: str) -> Token:
        """Take this word or punctuation."""
        token = self.tokens[self.position]
        if token.text != text or token.kind not in _WORDS:
            raise self.fail(f"'{text}'")
        self.position += 1
        return token

    def integer(self) -> int:
        """Take an integer without a sign."""
        if self.token.kind is not TokenKind.INT:
            raise self.fail("an integer")
        return self.advance().integer

    def expression(self) -> Expr:
        """Take the longest expression."""
        e, self.position = parse_tokens(self.tokens, self.position)
        return e

    def at_line_end(self) -> bool:
        """True if only a comment is left in the line."""
        return self.token.kind in (TokenKind.NEWLINE, TokenKind.END)

    def comment_above(self) -> str:
        """The comment that is the whole line above the next token; empty if there is none."""
        above = self.lines[self.token.line - 2].strip() if self.token.line > 1 else ""
        return above[1:].strip() if above.startswith("#") else ""

    def end_line(self) -> str | None:
        """Take the end of the line and the empty lines after it; returns the line's comment, if there is one."""
        if not self.at_line_end():
            raise self.fail("the end of the line")
        last = self.tokens[self.position - 1]  # a '#' in a text in quotes begins no comment
        behind = last.column - 1 + len(last.text) if self.position and last.line == self.token.line else 0
        comment = self.lines[self.token.line - 1][behind:].partition("#")[2].strip()
        self.skip_lines()
        return comment or None

    def skip_lines(self) -> None:
        """Take empty lines."""
        while self.token.kind is TokenKind.NEWLINE:
            self.position += 1


T = TypeVar("T")
W = TypeVar("W", bound=Enum)


def by_value(words: type[W]) -> dict[str, W]:
    """The members of an enum by their words."""
    return {w.value: w for w in words}


PARALLEL_TYPES = by_value(ParallelType)


class FusionReader(TokenReader):
    """The tokens of a fusion's text."""

    def word(self, what: str, table: Mapping[str, T]) -> T:
        """The row of ``table`` that the next token names."""
        token = self.token
        if token.kind is not TokenKind.NAME:
            raise token.error(f"expected a {what}, found {token}")
        if token.text not in table:
            raise token.error(f"there is no {what} '{token.text}'")
        self.position += 1
        return table[token.text]

    def name(self, what: str) -> Name:
        """A name, plain or in quotes."""
        token = self.token
        match token.kind:
            case TokenKind.NAME:
                self.position += 1
                return Name(token.text, token)
            case TokenKind.STRING:
                self.position += 1
                return Name(_unquoted(token), token)
            case _:
                raise token.error(f"expected the name of a {what}, found {token}")

    def tensor_name(self) -> Name:
        """The name of a tensor."""
        return self.name("tensor")

    def axis_name(self) -> AxisName:
        """``tv7.a1``, ``"a tensor".a1``, or ``x0``."""
        token = self.token
        name = self.name("tensor's axis")
        if token.kind is TokenKind.STRING:
            self.expect(".")
            return AxisName(name, self.axis())
        tensor, _, axis = name.text.rpartition(".")
        return AxisName(Name(tensor, token) if tensor else None, Name(axis, token))

    def axis(self) -> Name:
        """The name of an axis, without its tensor."""
        if self.token.kind is not TokenKind.NAME:
            raise self.token.error(f"expected an axis, found {self.token}")
        token = self.advance()
        if "." in token.text:
            raise token.error(f"'{token.text}' is not a name of an axis: it has a dot")
        return Name(token.text, token)

    def source(self) -> AxisName | None:
        """The source of an axis, if the text names one."""
        return self.axis_name() if self.take("of") else None

    def bound_axis(self) -> BoundAxis:
        """An axis and its parallel type."""
        name = self.axis()
        return BoundAxis(name, self.word("parallel type", PARALLEL_TYPES) if self.take(":") else ParallelType.Serial)

    def some(self, item: Callable[[], T]) -> tuple[T, ...]:
        """One or more, separated by commas."""
        found = [item()]
        while self.take(","):
            found.append(item())
        return tuple(found)

    def bracketed(self, item: Callable[[], T], opening: str = "[", closing: str = "]") -> tuple[T, ...]:
        """None or more in brackets, separated by commas."""
        self.expect(opening)
        found = () if self.at(closing) else self.some(item)
        self.expect(closing)
        return found


def _unquoted(token: Token) -> str:
    try:
        return str(json.loads(token.text))
    except json.JSONDecodeError:
        raise token.error(f"{token} is not a string: the escapes are those of JSON") from None
