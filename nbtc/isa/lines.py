"""The operands of a whole PTX line, checked against the operand lists of its row.

A list is written as words, one an operand: `d{4}` a vector of 4 registers, `p[]` an address, `e` a register, `mask~` a
register or immediate, `scaleD!` a predicate (or 0, 1), `d|p` a register and perhaps a predicate, `sel=0,1` an immediate
out of these, `n=` any immediate, `sa{byteA,threadA}` a pair of immediates; a final `?` means optional.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from nbtc.errors import ParseError, shown
from nbtc.isa.spec import Row

REGISTER = re.compile(r"[%$]?[A-Za-z_$][\w$.]*|[%$]\d+")
_NUMBER = r"(0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|\d{1,22})U?"  # of 64 bits at most, as PTX has them
INTEGER = re.compile(rf"[+-]?{_NUMBER}")
NAME = re.compile(r"[A-Za-z][\w.:]*")
GUARD = re.compile(r"|@!?[%\w$]+")
COMMENT, COMMENTS = re.compile(r"//|/\*"), {"//": "\n", "/*": "*/"}
MARKS, OPENERS = re.compile(r"[{}\[\],]"), {"{": "}", "[": "]"}
DISPLACED = re.compile(r"\[\s*[^\s+\]-][^+\]-]*(?P<sign>[+-])\s*(?P<by>" + _NUMBER + r")\s*\]")
WORD = re.compile(
    r"(?P<name>\w*)"
    r"(\{(?P<count>\d+)\}|(?P<address>\[\])|=(?P<values>[-\d,]*)|(?P<mark>[~!])|\|(?P<pred>\w+)|(?P<pair>\{\w+,\w+\}))?"
    r"(?P<optional>\?)?"
)


@dataclass(frozen=True)
class Line:
    """A PTX line as read: its row, its guard ("p", "!p" or ""), each operand's name and text (() for a mnemonic)."""

    row: Row
    guard: str = ""
    operands: tuple[tuple[str, str], ...] = ()

    @property
    def immediates(self) -> dict[str, int]:
        """Operands that are numbers, by name; the displacement of an address counts as "offset"."""
        found = {}
        for name, text in self.operands:
            if INTEGER.fullmatch(text):
                found[name] = integer(text)
            elif displaced := DISPLACED.fullmatch(text):
                found["offset"] = integer(displaced["sign"] + displaced["by"])
            elif text[:1] == "{" and "," in name:
                found |= {n: integer(t.strip()) for n, t in zip(name.split(","), text[1:-1].split(","), strict=True)}
        return found


@dataclass(frozen=True)
class Slot:
    """What one operand of a list may be."""

    name: str
    count: int = 0  # registers of a vector, else 0
    address: bool = False
    values: tuple[int, ...] | None = None  # legal immediates; () any
    mark: str = ""
    pred: str = ""
    pair: str = ""
    optional: bool = False

    @property
    def text(self) -> str:
        """How the operand looks in a line."""
        if self.count:
            names = [f"{self.name}{i}" for i in range(self.count)]
            return "{" + ", ".join(names if self.count <= 8 else [names[0], "...", names[-1]]) + "}"
        if self.pair:
            return "{0, 0}"
        if self.values is not None:
            return str(self.values[0]) if self.values else "0"
        return f"[{self.name}]" if self.address else self.name

    def fault(self, text: str) -> str:
        """Why `text` cannot be this operand; "" when it can."""
        inner = [w.strip() for w in text[1:-1].split(",")] if text[:1] == "{" else None
        if self.count:
            return self._vector_fault(inner, text)
        if self.pair:
            good = inner is not None and len(inner) == 2 and all(INTEGER.fullmatch(w) for w in inner)
            return "" if good else "is a pair of immediates such as {0, 0}"
        if self.address:
            return "" if re.fullmatch(r"\[.+\]", text) else "is an address such as [p]"
        if self.values is not None:
            return self._value_fault(text)
        if self.mark == "!":
            return "" if REGISTER.fullmatch(text.removeprefix("!")) or text in ("0", "1") else "is a predicate, 0 or 1"
        if self.mark == "~" and INTEGER.fullmatch(text):
            return ""
        parts = text.split("|") if self.pred else [text]
        good = len(parts) <= 2 and all(REGISTER.fullmatch(w.strip()) for w in parts)
        return "" if good else f"is a register{' (or register|predicate)' if self.pred else ''}"

    def _vector_fault(self, inner: list[str] | None, text: str) -> str:
        names = [text] if inner is None and self.count == 1 else inner
        if names is None or not all(REGISTER.fullmatch(n) for n in names):
            return f"is a vector of {self.count} registers in braces"
        return "" if len(names) == self.count else f"has {self.count} registers, not {len(names)}"

    def _value_fault(self, text: str) -> str:
        legal = " or ".join(str(v) for v in self.values or ())
        if not INTEGER.fullmatch(text):
            return f"is an immediate ({legal or 'an integer'}), not a register"
        value = integer(text)
        return "" if not self.values or value in self.values else f"is {legal}, not {value}"


def integer(text: str) -> int:
    """The value of an integer literal that `INTEGER` matches: decimal, 0x, 0b or octal with a leading 0, perhaps U."""
    digits = text.rstrip("U").lstrip("+-").lower()
    base = 16 if digits.startswith("0x") else 2 if digits.startswith("0b") else 8 if digits[:1] == "0" else 10
    value = int(digits, base) if base != 8 or digits.strip("01234567") == "" else int(digits)
    return -value if text.startswith("-") else value


@cache
def slots(syntax: str) -> tuple[Slot, ...]:
    """The operand list that a `Row.syntax` string describes."""
    found = []
    for word in syntax.split():
        part = WORD.fullmatch(word)
        if part is None:
            raise ParseError(
                f"{word!r} in the operand list {syntax!r} is not a word of the kind d{{4}}, p[], e, sel=0,1 or mask~"
            )
        values = part["values"]
        legal = None if values is None else tuple(int(v) for v in values.split(",") if v)
        found.append(
            Slot(
                part["name"] or "", int(part["count"] or 0), bool(part["address"]), legal, part["mark"] or "",
                part["pred"] or "", part["pair"] or "", bool(part["optional"]),
            )
        )  # fmt: skip
    return tuple(found)


def split(text: str) -> tuple[str, str, str | None]:
    """Guard, mnemonic and operand text of a line; the operand text of a bare mnemonic is None.

    Comments go, and the quotes of an inline assembly string.  Time is linear in the length of the text.
    """
    plain, guard = _without_comments(_unquoted(text.strip())).strip(), ""
    if plain.startswith("@"):
        guard, _, plain = plain.replace("\n", " ").replace("\t", " ").partition(" ")
        plain = plain.strip()
    found = NAME.match(plain)
    if found is None or not GUARD.fullmatch(guard):
        raise ParseError(_no_line(text))
    body = plain[found.end() :].strip()
    ended = body.endswith(";")
    body = body[:-1].rstrip() if ended else body
    if ";" in body:
        raise ParseError(_no_line(text) + "; pass one instruction at a time")
    return guard[1:], found.group(), body if body or ended else None


def _no_line(text: str) -> str:
    return (
        f"{shown(text)} is not an instruction: expected a mnemonic such as "
        '"movmatrix.sync.aligned.m8n8.trans.b16", or a line such as "movmatrix.sync.aligned.m8n8.trans.b16 d, a;"'
    )


def _unquoted(text: str) -> str:
    """The text of the string literals of an inline assembly statement, joined; other text as it is."""
    if not text.startswith('"'):
        return text
    inside = text.split('"')[1::2]  # no PTX line holds an escaped quote
    return "".join(inside).replace("\\n", " ").replace("\\t", " ").replace("%%", "%")


def _without_comments(text: str) -> str:
    parts, at = [], 0
    while found := COMMENT.search(text, at):
        end = text.find(COMMENTS[found.group()], found.end())
        parts.append(text[at : found.start()])
        at = len(text) if end < 0 else end + len(COMMENTS[found.group()])
    return " ".join([*parts, text[at:]])


def operands(text: str) -> list[str]:
    """Comma-separated operands; commas inside braces and brackets do not separate.  ParseError if these don't match."""
    if not text:
        return []
    found, closers, start = [], list[str](), 0
    for mark in MARKS.finditer(text):
        if mark.group() in OPENERS:
            closers.append(OPENERS[mark.group()])
        elif mark.group() == ",":
            if not closers:
                found.append(text[start : mark.start()].strip())
                start = mark.end()
        elif not closers or closers.pop() != mark.group():
            raise ParseError(f"{shown(text)} has a {mark.group()!r} that nothing opened: write operands as {{d0, d1}}")
    if closers:
        raise ParseError(f"{shown(text)} lacks a {closers[-1]!r}: write operands as {{d0, d1}}, addresses as [p]")
    return [*found, text[start:].strip()]


def match(row: Row, text: str) -> tuple[tuple[str, str], ...]:
    """The operands of a line of `row` by name.  Raises ParseError where none of the row's operand lists fits."""
    given = operands(text)
    faults = []
    for syntax in row.syntax:
        wanted = slots(syntax)
        fault = _fault(wanted, given)
        if not fault:
            return tuple((s.name if not s.pair else s.pair[1:-1], g) for s, g in zip(wanted, given, strict=False))
        faults.append((len(wanted) != len(given), fault, wanted))
    _, fault, wanted = min(faults, key=lambda f: (f[0], f[1].startswith("it takes")))
    raise ParseError(f"{shown(text)} does not fit {row.mnemonic}: {fault}. A legal line: {example(row, wanted)!r}")


def _fault(wanted: tuple[Slot, ...], given: list[str]) -> str:
    least = sum(not s.optional for s in wanted)
    if not least <= len(given) <= len(wanted):
        return f"it takes {least}{f' to {len(wanted)}' if least < len(wanted) else ''} operands, not {len(given)}"
    for number, (slot, text) in enumerate(zip(wanted, given, strict=False), 1):
        fault = slot.fault(text)
        if fault:
            return f"operand {number} ({slot.name}) {fault}"
    return ""


def example(row: Row, wanted: tuple[Slot, ...] | None = None) -> str:
    """A legal line of a row, as text.

    >>> from nbtc.isa.parse import row
    >>> example(row("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"))
    'mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {d0, d1}, {a0}, {b0}, {c0, c1};'
    """
    wanted = slots(row.syntax[-1]) if wanted is None else wanted
    body = ", ".join(s.text + (f"|{s.pred}" if s.pred else "") for s in wanted if not s.optional)
    return f"{row.mnemonic} {body};" if body else f"{row.mnemonic};"
