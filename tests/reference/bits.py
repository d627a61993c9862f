"""Logic, shifts, bit fields and byte permutation in Python integers, as the PTX ISA's pseudo-code has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtc.executor.emit.form import WIDTHS, Op
from tests.reference.integers import join, signed, split, value, wrapped

BOOLEANS = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}


def _width(op: Op) -> int:
    return WIDTHS[op.types[-1]]


def _bit(x: int, place: int) -> int:
    return x >> place & 1


def logic(op: Op, a: int, b: int) -> int:
    """and, or, xor."""
    return BOOLEANS[op.opcode](a, b)


def invert(op: Op, a: int) -> int:
    """not."""
    return wrapped(~a, _width(op))


def cnot(op: Op, a: int) -> int:
    """cnot."""
    return int(a == 0)


def shl(op: Op, a: int, amount: int) -> int:
    """shl."""
    return wrapped(a << min(amount, _width(op)), _width(op))


def shr(op: Op, a: int, amount: int) -> int:
    """shr."""
    return wrapped(value(a, op.types[-1]) >> min(amount, _width(op)), _width(op))


def shf(op: Op, a: int, b: int, amount: int) -> int:
    """shf."""
    n = amount % 32 if op.has("wrap") else min(amount, 32)
    both = b << 32 | a
    return wrapped(both << n >> 32, 32) if op.has("l") else wrapped(both >> n, 32)


def lop3(op: Op, a: int, b: int, c: int, table: int, q: int | None = None) -> Any:
    """lop3."""
    found = join([_bit(table, 4 * _bit(a, i) + 2 * _bit(b, i) + _bit(c, i)) for i in range(32)], 1)
    return found if q is None else (found, BOOLEANS[op.modifiers[0]](int(found != 0), q))


def _count(op: Op, x: int) -> int:
    """A field's start or length: the low byte for 32 bits; for 64 all of it, held where nothing changes any more."""
    return x & 0xFF if _width(op) == 32 else min(x, 200)


def bfe(op: Op, a: int, start: int, count: int) -> int:
    """bfe."""
    top = _width(op) - 1
    pos, length = (_count(op, n) for n in (start, count))
    plain = op.types[-1].startswith("u") or length == 0
    fill = 0 if plain else _bit(a, min(pos + length - 1, top))
    return join([_bit(a, pos + i) if i < length and pos + i <= top else fill for i in range(top + 1)], 1)


def bfi(op: Op, a: int, b: int, start: int, count: int) -> int:
    """bfi."""
    bits = split(b, 1, _width(op))
    pos, length = (_count(op, n) for n in (start, count))
    for i in range(length):
        if pos + i < len(bits):
            bits[pos + i] = _bit(a, i)
    return join(bits, 1)


def bfind(op: Op, a: int) -> int:
    """bfind."""
    number = value(a, op.types[-1])
    place = (~number if number < 0 else number).bit_length() - 1
    if place < 0:
        return 0xFFFFFFFF
    return _width(op) - 1 - place if op.has("shiftamt") else place


def brev(op: Op, a: int) -> int:
    """brev."""
    return join(split(a, 1, _width(op))[::-1], 1)


def clz(op: Op, a: int) -> int:
    """clz."""
    return _width(op) - a.bit_length()


def popc(op: Op, a: int) -> int:
    """popc."""
    return a.bit_count()


def fns(op: Op, mask: int, base: int, offset: int) -> int:
    """fns, for a base below 32."""
    n = signed(offset, 32)
    if n == 0:
        return base if _bit(mask, base) else 0xFFFFFFFF
    place, left = base, abs(n) - 1
    while 0 <= place < 32:
        if _bit(mask, place):
            if left == 0:
                return place
            left -= 1
        place += 1 if n > 0 else -1
    return 0xFFFFFFFF


def bmsk(op: Op, start: int, count: int) -> int:
    """bmsk."""
    if op.has("clamp") and start >= 32:
        return 0
    first, length = start % 32, min(count, 32) if op.has("clamp") else count % 32
    return wrapped(((1 << length) - 1) << first, 32)


def szext(op: Op, a: int, count: int) -> int:
    """szext."""
    length = min(count, 32) if op.has("clamp") else count % 32
    if length == 0:
        return 0
    low = a % (1 << length)
    return wrapped(signed(low, length), 32) if op.types[-1] == "s32" else low


PICKS: dict[str, Callable[[int], list[int]]] = {
    "f4e": lambda n: [n, n + 1, n + 2, n + 3],
    "b4e": lambda n: [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
    "rc8": lambda n: [n] * 4,
    "ecl": lambda n: [max(n, i) for i in range(4)],
    "ecr": lambda n: [min(n, i) for i in range(4)],
    "rc16": lambda n: [2 * (n % 2), 2 * (n % 2) + 1] * 2,
}


def prmt(op: Op, a: int, b: int, control: int) -> int:
    """prmt."""
    source = split(a, 8, 4) + split(b, 8, 4)
    mode = op.among(tuple(PICKS))
    if mode:
        return join([source[i] for i in PICKS[mode](control % 4)], 8)
    picks = split(control, 4, 4)
    return join([(0xFF if source[p % 8] >= 128 else 0) if p & 8 else source[p] for p in picks], 8)


REFERENCE: dict[str, Callable[..., Any]] = {
    "and": logic,
    "or": logic,
    "xor": logic,
    "not": invert,
    "cnot": cnot,
    "shl": shl,
    "shr": shr,
    "shf": shf,
    "lop3": lop3,
    "bfe": bfe,
    "bfi": bfi,
    "bfind": bfind,
    "brev": brev,
    "clz": clz,
    "popc": popc,
    "fns": fns,
    "bmsk": bmsk,
    "szext": szext,
    "prmt": prmt,
}
