"""What the instruction tables share: operands by formula, shapes, and the order of types in a mnemonic."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

from nbtc.errors import ParseError, shown
from nbtc.formats.table import Format
from nbtc.isa.layouts import a_layout, b_layout, c_layout
from nbtc.isa.spec import NEWER, Operand, named

FP8 = "e4m3 e5m2"
FLOATS_8_TO_4 = "e4m3 e5m2 e3m2 e2m3 e2m1"
LAYOUT_PAIRS = tuple(product(("row", "col"), ("row", "col")))


def shape(text: str) -> tuple[int, int, int]:
    """(m, n, k) of "m16n8k16"."""
    found = re.fullmatch(r"m(\d{1,4})n(\d{1,4})k(\d{1,4})", text)
    if found is None:
        raise ParseError(
            f'{shown(text)} is not a matrix shape; one looks like "m16n8k16" (m rows, n columns, k summed over)'
        )
    m, n, k = (int(v) for v in found.groups())
    return m, n, k


def registers(elements: int, width: int) -> int:
    """32-bit words a lane for so many elements."""
    return elements * width // 32


def slot(fmt: Format, kind: str) -> tuple[int, int]:
    """Width and shift of a register slot: kind::f8f6f4 and mxf8f6f4 put elements in bytes, e2m1 in bits 2..5 of one."""
    if "f8f6f4" in kind:
        return 8, 2 if fmt.name == "e2m1" else 0
    return fmt.bits, 0


@cache
def fragment_a(fmt: Format, m: int, k: int, kind: str = "") -> Operand:
    """A of mma, mma.sp (k stored columns) and wgmma."""
    width, shift = slot(fmt, kind)
    elements = m * k // (128 if m == 64 else 32)
    return Operand(fmt, m, k, registers(elements, width), elements, a_layout(m, k, max(1, 32 // width)), width, shift)


@cache
def fragment_b(fmt: Format, k: int, n: int, kind: str = "") -> Operand:
    """B of mma and mma.sp."""
    width, shift = slot(fmt, kind)
    elements = k * n // 32
    return Operand(fmt, k, n, registers(elements, width), elements, b_layout(k, n, max(1, 32 // width)), width, shift)


@cache
def fragment_c(fmt: Format, m: int, n: int) -> Operand:
    """C or D of mma, mma.sp and wgmma."""
    elements = m * n // (128 if m == 64 else 32)
    return Operand(fmt, m, n, registers(elements, fmt.bits), elements, c_layout(m, n))


@cache
def metadata(m: int, chunks: int) -> Operand:
    """The metadata register of a sparse form: one nibble for each chunk of each row."""
    return Operand(NEWER["b32"], m, chunks, 1, 8, None, 4)


def vector(name: str, operand: Operand) -> str:
    """Syntax of an operand in a PTX line: f64 registers are 64 bits wide."""
    return f"{name}{{{operand.registers // 2 if operand.format.bits == 64 else operand.registers}}}"


def pairs(names: str) -> list[tuple[Format, Format]]:
    """Every pair of the formats named."""
    return [(named(a), named(b)) for a, b in product(names.split(), repeat=2)]


def later(*targets: str) -> str:
    """The target of higher number."""
    return max(targets, key=lambda t: int(re.sub(r"\D", "", t)))
