"""Tokens of taskfuse's texts, shared by expressions, kernels and fusions."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

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


class Token(NamedTuple):
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
    [ \t\r]* (?:
    (?P<skip>\#[^\n]*|\Z)
    | (?P<NEWLINE>\n)
    | (?P<FLOAT>\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
    | (?P<INT>0[xX][0-9a-fA-F]+|\d+)
    | (?P<NAME>[A-Za-z_]\w*(?:\.\w+)*)
    | (?P<STRING>"(?:[^"\\\n]|\\.)*")
    | (?P<PUNCT>//|&&|\|\||==|!=|<=|>=|->|:=|\+=|\.\.|[-+*/%<>=!?:;,.()\[\]{}@&|^~$])
    | (?P<other>.)
    )
    """,
    re.VERBOSE | re.ASCII,
)
_KINDS = {number: TokenKind.__members__.get(name) for name, number in _LEXICON.groupindex.items()}
_SKIP = _LEXICON.groupindex["skip"]


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text``, ending with one of kind ``END``.

    ``#`` starts a comment. Line ends are tokens, except inside round and square brackets. A name may have parts joined by dots.

    Raises:
        ParseError: a character that starts no token.
    """
    tokens: list[Token] = []
    line, line_start, depth = 1, 0, 0
    for match in _LEXICON.finditer(text):
        group = match.lastindex
        assert group is not None
        if group == _SKIP:
            continue
        kind, word, start = _KINDS[group], match[group], match.start(group)
        if kind is None:
            raise ParseError(line=line, column=start - line_start + 1, reason=f"unexpected character {word!r}")
        if kind is TokenKind.NEWLINE:
            if depth == 0:
                tokens.append(Token(kind, word, line, start - line_start + 1))
            line, line_start = line + 1, start + 1
            continue
        tokens.append(Token(kind, word, line, start - line_start + 1))
        if kind is TokenKind.PUNCT:
            if word in ("(", "["):
                depth += 1
            elif word in (")", "]") and depth:
                depth -= 1
    tokens.append(Token(TokenKind.END, "", line, len(text) - line_start + 1))
    return tokens
