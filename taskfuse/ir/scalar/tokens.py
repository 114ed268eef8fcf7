"""Tokens of taskfuse's texts, shared by expressions, kernels and fusions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from taskfuse.errors import ParseError


class TokenKind(Enum):
    """The kind of a token."""

    NAME = "name"
    INT = "integer"
    FLOAT = "float"
    STRING = "string"
    PUNCT = "punctuation"
    NEWLINE = "end of line"
    END = "end of text"


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its text as written; ``line`` and ``column`` count from 1."""

    kind: TokenKind
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"'{self.text}'" if self.text.strip() else self.kind.value

    @property
    def integer(self) -> int:
        """The value of a token of kind ``INT``: decimal (leading zeros are ignored) or hexadecimal."""
        return int(self.text, 16 if self.text[:2] in ("0x", "0X") else 10)

    def error(self, reason: str) -> ParseError:
        """A ``ParseError`` at this token."""
        return ParseError(line=self.line, column=self.column, reason=reason)


_LEXICON = re.compile(
    r"""
    (?P<skip>[ \t\r]+|\#[^\n]*)
    | (?P<NEWLINE>\n)
    | (?P<FLOAT>\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
    | (?P<INT>0[xX][0-9a-fA-F]+|\d+)
    | (?P<NAME>[A-Za-z_]\w*(?:\.\w+)*)
    | (?P<STRING>"(?:[^"\\\n]|\\.)*")
    | (?P<PUNCT>//|&&|\|\||==|!=|<=|>=|->|:=|\+=|\.\.|[-+*/%<>=!?:;,.()\[\]{}@&|^~$])
    """,
    re.VERBOSE | re.ASCII,
)


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text``, ending with one of kind ``END``.

    ``#`` starts a comment. Line ends are tokens, except inside round and square brackets. A name may have parts joined by dots.

    Raises:
        ParseError: a character that starts no token.
    """
    tokens: list[Token] = []
    line, line_start, position, depth = 1, 0, 0, 0
    while position < len(text):
        match = _LEXICON.match(text, position)
        if match is None or match.lastgroup is None:
            raise ParseError(line=line, column=position - line_start + 1, reason=f"unexpected character {text[position]!r}")
        start, position = match.span()
        if match.lastgroup == "skip":
            continue
        kind, word = TokenKind[match.lastgroup], match.group()
        if kind is not TokenKind.NEWLINE or depth == 0:
            tokens.append(Token(kind, word, line, start - line_start + 1))
        if kind is TokenKind.NEWLINE:
            line, line_start = line + 1, position
        elif kind is TokenKind.PUNCT:
            depth = max(depth + (word in "([") - (word in ")]"), 0)
    tokens.append(Token(TokenKind.END, "", line, len(text) - line_start + 1))
    return tokens
