"""PTX text to tokens (PTX ISA chapter 4): one pass of one regular expression, no backtracking over long texts."""

from __future__ import annotations

import re
from typing import NamedTuple

from nbtc.errors import ParseError

# `debugging` is a section of debug information with its numbers, of which nothing is wanted: a kernel of
# FlashAttention-2 has half a million of them.  `name` covers opcodes with all of their modifiers (`cvt.rn.f32.s32`,
# `ld.shared::cta.b32`), registers, and directives.
_TOKEN = re.compile(
    r"""
    (?P<skip>(?:[ \t\r\f\v\n]+|//[^\n]*)+)
  | (?P<comment>/\*)
  | (?P<debugging>\.section\s+[.\w$]+\s*\{)(?P<numbers>[^{}"/]*(?://[^\n]*\n[^{}"/]*)*)(?=\})
  | (?P<hexfloat>0[fF][0-9a-fA-F]{8}(?![0-9a-zA-Z_$])|0[dD][0-9a-fA-F]{16}(?![0-9a-zA-Z_$]))
  | (?P<decimal>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<integer>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+U?)(?![0-9a-zA-Z_$])
  | (?P<name>\.[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z0-9_]+)*
      |%?[A-Za-z_$][A-Za-z0-9_$]*(?:(?:\.|::)[A-Za-z0-9_$]+)*|%[0-9]+|[.%])
  | (?P<string>"[^"\n]*")
  | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[-+*/(){}\[\],;:@!|=<>~&^?])
    """,
    re.VERBOSE,
)
MOST_DIGITS = 72  # of a literal: "0b" and 64 bits with zeros before them; Python refuses to convert thousands


class Token(NamedTuple):
    """A piece of text: its kind (a group of the expression above), itself, and its line from 1 up."""

    kind: str
    text: str
    line: int


def tokens(text: str, line: int = 1) -> list[Token]:
    """All tokens of a PTX text, comments, white space and the contents of sections left out; line: of the first one.

    >>> [t.text for t in tokens("add.s32 %r1, %r2, -4; // sum")]
    ['add.s32', '%r1', ',', '%r2', ',', '-', '4', ';']
    """
    found: list[Token] = []
    text = text.rstrip("\0")  # what comes from C may end with one
    at, end, match = 0, len(text), _TOKEN.match
    while at < end:
        m = match(text, at)
        if m is None:
            raise ParseError(f"line {line}: {text[at : at + 20].splitlines()[0]!r} is not a PTX token")
        kind = str(m.lastgroup)
        at = m.end()
        if kind == "skip":
            line += text.count("\n", m.start(), at)
        elif kind == "comment":
            close = text.find("*/", at)
            if close < 0:
                raise ParseError(f"line {line}: a comment that begins with /* never ends")
            line += text.count("\n", at, close)
            at = close + 2
        elif kind == "numbers":
            found += tokens(m["debugging"], line)
            line += text.count("\n", m.start(), at)
        else:
            found.append(Token(kind, m.group(), line))
    return found


def integer(text: str, line: int) -> int:
    """The value of an integer literal: decimal, 0x, 0b, or octal with a leading 0, U allowed after it."""
    digits = text.rstrip("U")
    if len(digits) > MOST_DIGITS:
        raise ParseError(f"line {line}: a number of {len(digits)} digits; PTX integers have 64 bits")
    base = 0 if digits[:2].lower() in ("0x", "0b") else 8 if digits[0] == "0" and len(digits) > 1 else 10
    try:
        value = int(digits, base)
    except ValueError:
        raise ParseError(f"line {line}: {text!r} is not an octal number (it begins with 0)") from None
    if value >> 64:
        raise ParseError(f"line {line}: {text} needs {value.bit_length()} bits; PTX integers have 64 (PTX ISA 4.5.1)")
    return value
