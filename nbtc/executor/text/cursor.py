"""A place in a list of tokens, and what all levels of the parser share: expectations, constants, and types."""

from __future__ import annotations

import struct
from typing import NoReturn

from nbtc.errors import ParseError
from nbtc.executor.text.data import WIDTHS, Immediate
from nbtc.executor.text.lex import Token, integer, tokens

END = Token("end", "", 0)
_BINARY = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"))
_BITS64 = (1 << 64) - 1


class Cursor:
    """Tokens, read one after the other."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0
        self.count = len(self.tokens)

    @property
    def next(self) -> Token:
        """The token to be read next; END behind the last."""
        return self.tokens[self.at] if self.at < self.count else END

    def peek(self, ahead: int) -> Token:
        """The token so many places ahead."""
        return self.tokens[self.at + ahead] if self.at + ahead < self.count else END

    def take(self) -> Token:
        """Read a token."""
        token = self.next
        self.at += 1
        return token

    def takes(self, text: str) -> bool:
        """Read the token if it is this text."""
        if self.next.text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Read this very token."""
        token = self.take()
        if token.text != text:
            self.fail(f"{text!r} should stand here", token)
        return token

    def name(self) -> str:
        """Read a name."""
        token = self.take()
        if token.kind != "name" or token.text[0] == ".":
            self.fail("a name should stand here", token)
        return token.text

    def string(self) -> str:
        """Read a quoted string; what is between the quotes."""
        token = self.take()
        if token.kind != "string":
            self.fail("a quoted text should stand here", token)
        return token.text[1:-1]

    def type(self) -> str:
        """Read a type such as `.u32`; its name without the dot."""
        token = self.take()
        if token.text[1:] not in WIDTHS or token.text[0] != ".":
            self.fail("a type such as .u32 should stand here", token)
        return token.text[1:]

    def line(self) -> list[Token]:
        """Read the rest of a directive that ends with its line."""
        first = self.at
        number = self.tokens[first - 1].line
        while self.next.line == number and self.next is not END:
            self.at += 1
        return self.tokens[first : self.at]

    def integers(self) -> tuple[int, ...]:
        """Read numbers with commas between them, perhaps none."""
        found = []
        while self.next.kind == "integer":
            found.append(integer(self.next.text, self.take().line))
            if not self.takes(","):
                break
        return tuple(found)

    def skip_braces(self) -> None:
        """Read `{ ... }`, whatever is inside."""
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            if token is END:
                self.fail("a { is never closed", token)
            depth += {"{": 1, "}": -1}.get(token.text, 0)

    def fail(self, why: str, token: Token | None = None) -> NoReturn:
        """Raise with the place."""
        token = token or self.next
        place = "the end of the text" if token is END else f"line {token.line}: {token.text[:40]!r}"
        raise ParseError(f"PTX, {place}: {why}")

    # --- constant expressions (PTX ISA 4.5) -------------------------------------------------------------------------
    def constant(self) -> Immediate:
        """Read a constant: a literal, or an expression of whole numbers."""
        sign = 1
        while self.next.text in ("-", "+") and self.peek(1).kind in ("hexfloat", "decimal"):
            sign = -sign if self.take().text == "-" else sign
        token = self.next
        if token.kind == "hexfloat":
            return self._float_bits(int(self.take().text[2:], 16), 32 if token.text[1] in "fF" else 64, sign)
        if token.kind == "decimal":
            bits = struct.unpack("<Q", struct.pack("<d", float(self.take().text)))[0]
            return self._float_bits(bits, 64, sign)
        return Immediate(self.expression())

    @staticmethod
    def _float_bits(bits: int, width: int, sign: int) -> Immediate:
        return Immediate(bits ^ (1 << (width - 1)) if sign < 0 else bits, width)

    def expression(self, level: int = 0) -> int:
        """Read an expression of whole numbers, operators from the weakest to the strongest."""
        if level == len(_BINARY):
            return self._product()
        value = self.expression(level + 1)
        while self.next.text in _BINARY[level]:
            value = _apply(self.take().text, value, self.expression(level + 1))
        return value

    def _product(self) -> int:
        value = self._unary()
        while self.next.text in ("*", "/"):
            operator, right = self.take(), self._unary()
            if operator.text == "/" and not right:
                self.fail("division by zero", operator)
            if operator.text == "*":
                value *= right
            else:  # toward zero
                value = abs(value) // abs(right) * (1 if (value < 0) == (right < 0) else -1)
        return value

    def _unary(self) -> int:
        token = self.take()
        if token.kind == "integer":
            return integer(token.text, token.line)
        if token.text == "(":
            if self.next.text in (".s64", ".u64"):  # a cast
                unsigned = self.take().text == ".u64"
                self.expect(")")
                return self._unary() & _BITS64 if unsigned else self._unary()
            value = self.expression()
            self.expect(")")
            return value
        if token.text in ("-", "+", "~", "!"):
            value = self._unary()
            return {"-": -value, "+": value, "~": ~value, "!": int(not value)}[token.text]
        self.fail("a constant should stand here", token)


def _apply(operator: str, a: int, b: int) -> int:
    return int(
        {
            "||": lambda: bool(a) or bool(b),
            "&&": lambda: bool(a) and bool(b),
            "|": lambda: a | b,
            "^": lambda: a ^ b,
            "&": lambda: a & b,
            "==": lambda: a == b,
            "!=": lambda: a != b,
            "<": lambda: a < b,
            ">": lambda: a > b,
            "<=": lambda: a <= b,
            ">=": lambda: a >= b,
            "<<": lambda: (a << (b & 63)) & _BITS64,
            ">>": lambda: a >> (b & 63),
            "+": lambda: a + b,
            "-": lambda: a - b,
        }[operator]()
    )
