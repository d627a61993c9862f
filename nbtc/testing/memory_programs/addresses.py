"""Pointers of every kind: affine in the numbers of threads and rounds, masked, clamped, wrapped, swizzled, bounded.

Each tells in which bytes around it this thread may read or write.
"""

from __future__ import annotations

from math import gcd

from nbtc.testing.memory_programs.scalar import predicate
from nbtc.testing.memory_programs.writer import POINTERS, PREFIXES, REGIONS, Index, Owned, Pointer, Writer

GENERIC = 0.15  # of pointers are generic addresses
SPACES = {"src": "global", "own": "global", "shm": "shared", "loc": "local", "con": "const"}
NARROW = ("shm", "loc")  # regions whose addresses fit 32 bits
# stride and bytes of what each thread of a block owns; -: downwards
OWNED = ((1, 1), (2, 2), (4, 4), (4, 4), (8, 8), (12, 4), (12, 12), (16, 16), (16, 8), (20, 4), (24, 8), (32, 32),
         (32, 16), (48, 16), (64, 64), (64, 4), (36, 36))  # fmt: skip
WRAPS = (0x100, 0x80000000, 0xFFFFFF00, 0x7FFFFFF0, 0x10, 0xFFFF0000)


def power(n: int) -> int:
    """The largest power of two up to 4096 that divides a number."""
    return n & -n & 4095 or 4096


# --- offsets --------------------------------------------------------------------------------------------------------
def _scaled(w: Writer, x: str, by: int, bits: int) -> str:
    """A register of `bits` that holds a 32-bit one times a number."""
    name, way = w.new(PREFIXES[bits]), w.rng.random()
    if bits == 64 and (by < 0 or way < 0.5):
        w.put(f"mul.wide.s32 {name}, {x}, {by};", name)
        return name
    if bits == 64:
        wide = w.new(PREFIXES[64])
        w.put(f"cvt.{w.pick('u', 's')}64.{w.pick('u', 's')}32 {wide}, {x};", wide)
        x = wide
    if by > 0 and by & by - 1 == 0 and way < 0.8:
        w.put(f"shl.b{bits} {name}, {x}, {by.bit_length() - 1};", name)
    else:
        w.put(f"mul.lo.{w.pick('u', 's') if by >= 0 else 's'}{bits} {name}, {x}, {by};", name)
    return name


def _sum(w: Writer, x: str, y: str, bits: int) -> str:
    name = w.new(PREFIXES[bits])
    w.put(f"add.{w.pick('u', 's')}{bits} {name}, {x}, {y};", name)
    return name


def affine(w: Writer, bits: int, terms: list[tuple[Index, int]], constant: int) -> str:
    """A register that holds constant + the sum of index * stride."""
    total = ""
    for index, stride in terms:
        if total and w.chance(0.4):
            name = w.new(PREFIXES[bits])
            wide = "wide" if bits == 64 else "lo"
            w.put(f"mad.{wide}.s32 {name}, {index.name}, {stride}, {total};", name)
            total = name
            continue
        part = _scaled(w, index.name, stride, bits)
        total = _sum(w, total, part, bits) if total else part
    if not total:
        total = w.new(PREFIXES[bits])
        w.put(f"mov.b{bits} {total}, {constant};", total)
        return total
    if constant and len(terms) == 1 and 0 < constant < power(terms[0][1]) and w.chance(0.5):
        name = w.new(PREFIXES[bits])  # no bit of the one is one of the other
        w.put(f"{w.pick('or', 'xor')}.b{bits} {name}, {total}, {constant};", name)
        return name
    if bits == 32 and w.chance(0.15):  # beyond the largest number and back
        wrap = w.pick(*WRAPS)
        total, constant = _sum(w, total, str(wrap), 32), constant - wrap
    return _sum(w, total, str(constant), bits) if constant or w.chance(0.1) else total


def _range(terms: list[tuple[Index, int]]) -> tuple[int, int]:
    low = sum(min(i.low * s, i.high * s) for i, s in terms)
    return low, sum(max(i.low * s, i.high * s) for i, s in terms)


def _affine_offset(w: Writer, bits: int, size: int, align: int, room: int) -> tuple[str, int, int, int]:
    """An offset from terms that keep it inside: its register, its least and greatest value, and what divides it."""
    unit = w.pick(align, align, align, 2 * align, 3 * align, 4 * align)
    strides = (0, unit, unit, room, -align, -room, 32 * align, 128 * align, unit + align)
    terms: list[tuple[Index, int]] = []
    for _ in range(w.pick(1, 1, 1, 2, 2, 3, 0)):
        more = [*terms, (w.pick(*w.indices), w.pick(*strides))]
        low, high = _range(more)
        if high - low <= size - room:
            terms = more
    low, high = _range(terms)
    spare = (size - room - (high - low)) // align
    constant = align * w.pick(0, 0, spare, w.rng.randrange(spare + 1), min(spare, 1), min(spare, 4)) - low
    divides = power(gcd(constant, *(s for _, s in terms)))
    return affine(w, bits, terms, constant), low + constant, high + constant, divides


def _masked_offset(w: Writer, bits: int, size: int, align: int, room: int) -> tuple[str, int, int, int]:
    """An offset from any number, by a mask, a clamp, a remainder or a field of it."""
    name, x = w.new(PREFIXES[bits]), w.register(bits)
    if w.chance(0.3):
        x = affine(w, bits, [(w.pick(*w.indices), w.pick(align, 3 * align, -align, 0x1000))], w.number(bits - 1))
    way = w.rng.randrange(5)
    units = (size - room) // align
    if way == 0 and bits == 32:
        field = (units + 1).bit_length() - 1
        y = w.new(PREFIXES[32])
        w.put(f"bfe.u32 {y}, {x}, {w.rng.randrange(32)}, {field};", y)
        return _scaled(w, y, align, 32), 0, ((1 << field) - 1) * align, align
    if way in (1, 2):
        y = w.new(PREFIXES[bits])
        how = f"min.u{bits} {y}, {x}, {units};" if way == 1 else f"rem.u{bits} {y}, {x}, {units + 1};"
        w.put(how, y)
        w.put(f"mul.lo.u{bits} {name}, {y}, {align};", name)
        return name, 0, units * align, align
    mask = ((1 << (size - room + align).bit_length() - 1) - 1) & -align  # all offsets below a power of two
    if mask > size - room:
        mask = mask >> 1 & -align
    if way == 3:  # swizzled
        y, z = w.new(PREFIXES[bits]), w.new(PREFIXES[bits])
        w.put(f"shr.u{bits} {y}, {x}, {w.pick(2, 3, 4, 7)};", y)
        w.put(f"xor.b{bits} {z}, {x}, {y};", z)
        x = z
    w.put(f"and.b{bits} {name}, {x}, {mask};", name)
    return name, 0, mask, align


# --- pointers -------------------------------------------------------------------------------------------------------
def base_of(region: str, bits: int, generic: bool) -> str:
    """The register that holds a region's address."""
    return f"%{region}{'_generic' if generic else '_narrow' if bits == 32 else ''}"


def _at(w: Writer, region: str, offset: str, bits: int) -> tuple[str, str]:
    """A pointer so many bytes into a region, and its space."""
    generic = w.chance(GENERIC)
    space = "" if generic else SPACES[region]
    if bits == 32 and (generic or region not in NARROW or w.chance(0.2)):
        wide = w.new(PREFIXES[64])
        # offsets of 32 bits are small
        w.put(f"cvt.{w.pick('u', 's')}64.{w.pick('u', 's')}32 {wide}, {offset};", wide)
        offset, bits = wide, 64
    name = w.new(POINTERS[bits])
    base = base_of(region, bits, generic)
    a, b = w.pick((base, offset), (offset, base))
    w.line(f"add.{w.pick('u', 's')}{bits} {name}, {a}, {b};")
    return name, space


def anywhere(w: Writer, region: str, align: int, room: int) -> Pointer:
    """A pointer to `room` bytes or more of a region that this thread may read all of."""
    bits, size = w.pick(32, 64), REGIONS[region]
    make = _affine_offset if w.chance(0.6) else _masked_offset
    offset, low, high, divides = make(w, bits, size, align, room)
    register, space = _at(w, region, offset, bits)
    found = Pointer(register, region, space, min(divides, 16), -low, size - high)
    w.pointers.append(found)
    return found


def new_layout(w: Writer, region: str) -> Owned | None:
    """Which thread owns what of a region from here on."""
    if w.chance(0.35):
        return None
    fitting = [x for x in OWNED if x[0] * w.threads <= REGIONS[region]]
    stride, chunk = w.pick(*fitting)
    spare = (REGIONS[region] - stride * w.threads) // 16
    start = 16 * w.pick(0, spare, w.rng.randrange(spare + 1))
    if w.chance(0.2):
        return Owned(start + stride * (w.threads - 1), -stride, chunk, _order(w))
    return Owned(start, stride, chunk, _order(w))


def _order(w: Writer) -> tuple[str, int]:
    way = w.pick("plain", "plain", "plain", "xor", "turn")
    if way == "xor":
        low = w.threads & -w.threads
        return ("xor", w.rng.randrange(1, low)) if low > 1 else ("plain", 0)
    return (way, w.rng.randrange(1, w.threads) if way == "turn" else 0)


def _place_of(w: Writer, order: tuple[str, int]) -> Index:
    """The number that a thread has in an order of the block's."""
    kind, n = order
    number = Index("%number", 0, w.threads - 1)
    if kind == "plain":
        return number
    name = w.new(PREFIXES[32])
    if kind == "xor":
        w.put(f"xor.b32 {name}, %number, {n};", name)
    else:
        t = w.new(PREFIXES[32])
        w.put(f"add.u32 {t}, %number, {n};", t)
        w.put(f"rem.u32 {name}, {t}, {w.threads};", name)
    return number._replace(name=name)


def own(w: Writer, region: str) -> Pointer:
    """A pointer to what this thread owns of a region."""
    layout = w.layouts[region]
    if layout is None:
        raise ValueError(f"nobody owns {region}")
    bits = w.pick(32, 64)
    offset = affine(w, bits, [(_place_of(w, layout.order), layout.stride)], layout.start)
    register, space = _at(w, region, offset, bits)
    found = Pointer(register, region, space, min(16, power(gcd(layout.start, layout.stride))), 0, layout.chunk)
    w.pointers.append(found)
    return found


def widest(w: Writer, region: str) -> int:
    """The most bytes that this thread may access there at once."""
    layout = w.layouts.get(region)
    return 16 if layout is None else min(16, power(layout.stride), 1 << layout.chunk.bit_length() - 1)


def readable(w: Writer) -> str:
    """A region to read."""
    return str(w.pick("src", "src", "own", "own", "shm", "shm", "loc", "con"))


def pointer(w: Writer, region: str, align: int, room: int) -> Pointer | None:
    """A pointer to as many bytes, so aligned; None where this thread owns too few of the region."""
    known = [p for p in w.pointers if p.region == region and p.align % align == 0 and _spare(p, align, room)]
    if known and w.chance(0.4):
        return w.pick(*known)  # type: ignore[no-any-return]
    if w.layouts.get(region) is None:
        return anywhere(w, region, align, room)
    found = own(w, region)
    return found if found.align % align == 0 and _spare(found, align, room) else None


def _spare(p: Pointer, align: int, room: int) -> bool:
    return (p.last - room) // align * align >= p.first


def displacement(w: Writer, p: Pointer, align: int, room: int) -> int:
    """A constant to add to a pointer, so that as many bytes may be accessed."""
    least, most = -(-p.first // align), (p.last - room) // align
    return align * int(w.pick(least, most, *(n for n in (0, 1) if least <= n <= most), w.rng.randint(least, most)))


def at(p: Pointer, more: int) -> str:
    """An address operand."""
    return f"[{p.register}+{more}]" if more else f"[{p.register}]"


def bounded(w: Writer, region: str, align: int, room: int) -> tuple[Pointer, str]:
    """A pointer made of any number, and a predicate that says whether it is inside."""
    bits = w.pick(32, 64)
    if w.chance(0.6):
        size = REGIONS[region]
        term = (w.pick(*w.indices), w.pick(align, room, 2 * align, -align, 8 * align, size // 16 // align * align))
        constant = align * w.pick(0, 1, size // align - 8, size // align // 2, -4, -1, size // align - 31)
        offset = affine(w, bits, [term], constant)
    else:
        offset = w.new(PREFIXES[bits])
        w.put(f"and.b{bits} {offset}, {w.register(bits)}, {-align};", offset)
    p = w.new(PREFIXES[1])
    w.put(f"setp.le.u{bits} {p}, {offset}, {REGIONS[region] - room};", p)
    if w.chance(0.3):
        q = w.new(PREFIXES[1])
        w.put(f"and.pred {q}, {p}, {predicate(w)};", q)
        p = q
    register, space = _at(w, region, offset, bits)
    return Pointer(register, region, space, min(align, 16), 0, room), p
