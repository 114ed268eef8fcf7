"""A position in the tokens of a text: what the readers of fusions and of kernels share."""

from __future__ import annotations

from taskfuse.errors import ParseError
from taskfuse.ir.scalar import Expr, Token, TokenKind, parse_tokens, tokenize


class TokenReader:
    """The tokens and the position of the next one, which is that of the first line that is not empty.

    Attributes:
        lines: the text, for comments, which are no tokens.
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
        """The error for a next token that is not what the grammar has here."""
        return self.token.error(f"expected {expected}, found {self.token}")

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        self.position += 1
        return token

    def at(self, *texts: str) -> bool:
        """True if the next token is one of these words or punctuations."""
        return self.token.kind in (TokenKind.NAME, TokenKind.PUNCT) and self.token.text in texts

    def take(self, *texts: str) -> bool:
        """Take the next token if it is one of these words or punctuations."""
        found = self.at(*texts)
        self.position += found
        return found

    def expect(self, text: str) -> Token:
        """Take this word or punctuation."""
        if not self.at(text):
            raise self.fail(f"'{text}'")
        return self.advance()

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
