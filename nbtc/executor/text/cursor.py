"""A place in a list of tokens, and what all levels of the parser share: expectations, constants, and types."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from nbtc.errors import ParseError
from nbtc.executor.text.data import WIDTHS, Immediate
from nbtc.executor.text.lex import Token, integer, tokens

END = Token("end", "", 0)
# binary operators, from the weakest to the strongest
_BINARY = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_STRENGTH = {operator: level for level, operators in enumerate(_BINARY) for operator in operators}
_BITS64 = (1 << 64) - 1


class Whole(NamedTuple):
    """A value of a constant expression: its 64 bits, and whether they are a .u64; else they are a .s64."""

    bits: int
    unsigned: bool = False

    @property
    def number(self) -> int:
        """What it counts as."""
        return self.bits if self.unsigned or self.bits < 1 << 63 else self.bits - (1 << 64)

    @classmethod
    def of(cls, number: int, unsigned: bool = False) -> Whole:
        """A number cut to 64 bits."""
        return cls(number & _BITS64, unsigned)


class Cursor:
    """Tokens, read one after the other."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0
        self.count = len(self.tokens)

    @property
    def next(self) -> Token:
        """The token to be read next; END after the last."""
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

    def number(self) -> int:
        """Read a whole number."""
        token = self.take()
        if token.kind != "integer":
            self.fail("a number should stand here", token)
        return integer(token.text, token.line)

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
        signs = 0
        while self.peek(signs).text in ("-", "+"):
            signs += 1
        if self.peek(signs).kind not in ("hexfloat", "decimal"):
            return Immediate(self.expression())
        negative = sum(self.take().text == "-" for _ in range(signs)) % 2
        token = self.take()
        if token.kind == "decimal":
            bits = struct.unpack("<Q", struct.pack("<d", float(token.text)))[0]
            return Immediate(bits ^ negative << 63, 64)
        width = 32 if token.text[1] in "fF" else 64
        if signs and width == 32:
            self.fail("the bits of a .f32 have their own sign, and ptxas takes none before them", token)
        return Immediate(int(token.text[2:], 16) ^ negative << 63, width)

    def expression(self) -> int:
        """Read an expression of whole numbers, which are .s64 or .u64 (PTX ISA 4.5.5).

        Where its text and ptxas differ ptxas is followed: &, | and ^ take the usual conversions, % is unsigned.
        """
        return self._conditional().number

    def _conditional(self) -> Whole:
        value = self._binary(0)
        if not self.takes("?"):
            return value
        first = self._conditional()
        self.expect(":")
        second = self._conditional()
        return first if value.bits else second

    def _binary(self, weakest: int) -> Whole:
        """Operands with operators between them, none weaker than that."""
        value = self._unary()
        while (level := _STRENGTH.get(self.next.text, -1)) >= weakest:
            sign = self.take()
            right = self._binary(level + 1)
            if sign.text in ("/", "%") and not right.bits:
                self.fail("division by zero", sign)
            value = _apply(sign.text, value, right)
        return value

    def _unary(self) -> Whole:
        token = self.take()
        if token.kind == "integer":
            literal = integer(token.text, token.line)
            return Whole.of(literal, token.text[-1] == "U" or literal >> 63 != 0)
        if token.text == "(":
            if self.next.text in (".s64", ".u64"):  # a cast
                unsigned = self.take().text == ".u64"
                self.expect(")")
                return Whole(self._unary().bits, unsigned)
            value = self._conditional()
            self.expect(")")
            return value
        if token.text in ("-", "+", "~", "!"):
            value = self._unary()
            if token.text == "~":
                return Whole.of(~value.bits, unsigned=True)
            if token.text == "!":
                return Whole(int(not value.bits))
            return Whole.of(-value.bits if token.text == "-" else value.bits, value.unsigned)
        self.fail("a constant should stand here", token)


def _apply(operator: str, a: Whole, b: Whole) -> Whole:
    if operator in _LOGIC:
        return Whole(int(_LOGIC[operator](bool(a.bits), bool(b.bits))))
    if operator in _SHIFTS:
        return Whole.of(_SHIFTS[operator](a.number, b.bits & 63), a.unsigned)
    unsigned = a.unsigned or b.unsigned or operator == "%"
    x, y = Whole(a.bits, unsigned).number, Whole(b.bits, unsigned).number
    if operator in _COMPARISONS:
        return Whole(int(_COMPARISONS[operator](x, y)))
    return Whole.of(_ARITHMETIC[operator](x, y), unsigned)


def _quotient(a: int, b: int) -> int:
    """Toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_LOGIC: dict[str, Callable[[bool, bool], bool]] = {"||": operator.or_, "&&": operator.and_}
_SHIFTS: dict[str, Callable[[int, int], int]] = {"<<": operator.lshift, ">>": operator.rshift}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_, "^": operator.xor, "&": operator.and_, "+": operator.add, "-": operator.sub,
    "*": operator.mul, "/": _quotient, "%": operator.mod,
}  # fmt: skip
