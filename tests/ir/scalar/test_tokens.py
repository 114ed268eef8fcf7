"""Tokens of the text of scalar expressions."""

from __future__ import annotations

from taskfuse.ir.scalar import TokenKind, sym, tokenize

S, T, N, a, b, i0, i1 = map(sym, ("S", "T", "N", "a", "b", "i0", "i1"))


def test_tokens() -> None:
    tokens = tokenize('FOR i0 in [0,\n 3] # all\n  full0.slot += 1.5e-3 -> "a\\"b"')
    assert [(token.kind, token.text) for token in tokens] == [
        (TokenKind.NAME, "FOR"),
        (TokenKind.NAME, "i0"),
        (TokenKind.NAME, "in"),
        (TokenKind.PUNCT, "["),
        (TokenKind.INT, "0"),
        (TokenKind.PUNCT, ","),
        (TokenKind.INT, "3"),
        (TokenKind.PUNCT, "]"),
        (TokenKind.NEWLINE, "\n"),
        (TokenKind.NAME, "full0.slot"),
        (TokenKind.PUNCT, "+="),
        (TokenKind.FLOAT, "1.5e-3"),
        (TokenKind.PUNCT, "->"),
        (TokenKind.STRING, '"a\\"b"'),
        (TokenKind.END, ""),
    ]
    assert (tokens[6].line, tokens[6].column) == (2, 2)
    assert (tokens[9].line, tokens[9].column) == (3, 3)
