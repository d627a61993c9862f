"""C's printf as device code calls it: a format, and values that lie one after the other in memory.

CUDA C++ Programming Guide, "Formatted Output".
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?"
    r"(?P<size>hh|h|ll|l)?(?P<kind>[diuoxXfFeEgGaAcsp%])"
)  # other sizes and kinds (z, j, t, L, q, n) are printed as they stand
_BITS = {"hh": 8, "h": 16, "l": 64, "ll": 64}
_TAIL = 8  # bytes of the format that lie after the values in the device's buffer


class Values:
    """The values after a format, each at a multiple of its size.

    Device code copies the values that the format announces, but does not know the size hh: what is read beyond the
    copy is the format's own text, which follows it (program print, recorded on an H200; the CUDA C++ Programming Guide
    leaves hh out).
    """

    def __init__(self, address: int, text: str) -> None:
        self.at = self.count = 0  # bytes and values taken
        copied = 0
        for match in _SPECIFIER.finditer(text):
            for size in _sizes(match):
                copied = -(-copied // size) * size + size
        self.bytes = (ctypes.string_at(address, copied) if copied else b"") + text.encode()[:_TAIL]

    def take(self, size: int) -> int:
        """The next value's bits; zeros where there is nothing left."""
        self.at = -(-self.at // size) * size
        raw = self.bytes[self.at : self.at + size]
        self.at += size
        self.count += 1
        return int.from_bytes(raw, "little")


def _sizes(match: re.Match[str]) -> list[int]:
    """Bytes of the values that device code copies for one specifier."""
    stars = [4] * (match["width"] == "*") + [4] * (match["precision"] == "*")
    if match["kind"] == "%" or match["size"] == "hh":
        return stars if match["kind"] != "%" else []
    return [*stars, _value_bytes(match)]


def _value_bytes(match: re.Match[str]) -> int:
    eight = match["kind"] in "fFeEgGaAsp" or (match["kind"] in "diuoxX" and _BITS.get(match["size"], 32) == 64)
    return 8 if eight else 4


def formatted(text: str, values: Values, string: Callable[[int], str]) -> str:
    """C's printf, as device code calls it: values lie one after the other, floats as doubles."""

    def one(match: re.Match[str]) -> str:
        if match["kind"] == "%":
            return "%"
        flags, width, precision = match["flags"], match["width"], match["precision"]
        if width == "*":
            width = str(_signed(values.take(4), 32))
            flags, width = flags + "-" * width.startswith("-"), width.lstrip("-")
        if precision == "*":
            precision = str(_signed(values.take(4), 32))
        # C: a negative precision is none, and a dot alone is 0
        digits = None if precision is None or precision.startswith("-") else int(precision or 0)
        spec = Spec(flags, int(width or 0), digits, match["kind"])
        return _one(spec, _BITS.get(match["size"], 32), values.take(_value_bytes(match)), string)

    return _SPECIFIER.sub(one, text)


class Spec(NamedTuple):
    """A specifier of a format: flags, least width, precision if there is one, and kind."""

    flags: str
    width: int
    precision: int | None
    kind: str

    def padded(self, head: str, body: str, zeros: bool) -> str:
        """A value's sign and prefix, and what follows it, in the width; `zeros`: whether the flag 0 counts."""
        if zeros and "0" in self.flags and "-" not in self.flags:
            return head + body.zfill(self.width - len(head))
        return (head + body).ljust(self.width) if "-" in self.flags else (head + body).rjust(self.width)

    def sign(self, negative: bool) -> str:
        """What a signed number begins with."""
        return "-" if negative else "+" if "+" in self.flags else " " if " " in self.flags else ""


def _one(spec: Spec, bits: int, raw: int, string: Callable[[int], str]) -> str:
    """One value in its format."""
    kind = spec.kind
    if kind in "diuoxX":
        raw &= (1 << bits) - 1
        return _integer(spec, _signed(raw, bits) if kind in "di" else raw)
    if kind in "fFeEgGaA":
        return _float(spec, _double(raw))
    if kind == "c":
        return spec.padded("", chr(raw & 0xFF), zeros=False)
    said = string(raw)[: spec.precision] if kind == "s" else f"{raw:#x}" if raw else "(nil)"
    return spec.padded("", said, zeros=False)


def _signed(raw: int, bits: int) -> int:
    return raw - (1 << bits) if raw >> (bits - 1) else raw


def _double(raw: int) -> float:
    return float(np.uint64(raw).view(np.float64))


def _integer(spec: Spec, value: int) -> str:
    """A whole number; 0 in no digits is nothing, and has no prefix."""
    kind, precision = spec.kind, spec.precision
    digits = "" if value == 0 and precision == 0 else format(abs(value), kind if kind in "xXo" else "d")
    digits = digits.zfill(precision or 0)
    head = spec.sign(value < 0) if kind in "di" else ""
    if "#" in spec.flags and kind in "xX" and value:
        head = "0" + kind
    if "#" in spec.flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    return spec.padded(head, digits, zeros=precision is None)


def _float(spec: Spec, value: float) -> str:
    """A float: Python writes the decimal ones as C does, but infinities and NaNs, which zeros never pad."""
    head, size = spec.sign(math.copysign(1, value) < 0), abs(value)
    if not math.isfinite(value):
        body, zeros = "nan" if math.isnan(value) else "inf", False
    elif spec.kind in "aA":
        head, body, zeros = head + "0x", _hexadecimal(size, spec.precision, "#" in spec.flags), True
    else:
        dot = "" if spec.precision is None else f".{spec.precision}"
        body, zeros = f"%{'#' * ('#' in spec.flags)}{dot}{spec.kind}" % size, True
    if spec.kind in "AEFG":
        head, body = head.upper(), body.upper()
    return spec.padded(head, body, zeros)


def _hexadecimal(value: float, precision: int | None, dot: bool) -> str:
    """The digits of `%a` after 0x, rounded to nearest even where fewer are wanted than there are."""
    mantissa, exponent = value.hex()[2:].split("p")
    whole, fraction = mantissa.split(".")
    if precision is None:
        fraction = fraction.rstrip("0")
    elif precision >= len(fraction):
        fraction = fraction.ljust(precision, "0")
    else:
        number, cut = int(whole + fraction, 16), 4 * (len(fraction) - precision)
        rest, half = number & ((1 << cut) - 1), 1 << (cut - 1)
        number >>= cut
        digits = format(number + (rest > half or (rest == half and number & 1)), "x").zfill(precision + 1)
        whole, fraction = digits[: len(digits) - precision], digits[len(digits) - precision :]
    return f"{whole}{'.' * bool(fraction or dot)}{fraction}p{exponent}"
