"""Loads, stores, atomics and asynchronous copies of every width, each thread on bytes that no other one writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nbtc.executor.emit.form import WIDTHS
from nbtc.testing.memory_programs import addresses
from nbtc.testing.memory_programs.addresses import at, displacement
from nbtc.testing.memory_programs.scalar import known, predicate
from nbtc.testing.memory_programs.writer import POINTERS, PREFIXES, REGIONS, Index, Pointer, Writer, braces

TYPES = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
LOADS = ("", "", "", "", ".relaxed.gpu", ".volatile", ".acquire.cta")
STORES = ("", "", "", "", ".relaxed.gpu", ".volatile", ".release.cta")
CACHES = {"src": (".ca", ".cg", ".cs", ".nc", ""), "own": (".ca", ".cg", ".cs", "")}
ATOMICS = {
    **{f"{op}.u32": 1 for op in ("add", "min", "max", "inc", "dec")},
    **{f"{op}.s32": 1 for op in ("add", "min", "max")},
    **{f"{op}.u64": 1 for op in ("add", "min", "max")}, "min.s64": 1, "max.s64": 1,
    **{f"{op}.{t}": 1 for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")},
    "add.f32": 1, "add.noftz.f16x2": 1, "add.noftz.bf16x2": 1, "add.f64": 1, "add.noftz.f16": 1,
    "cas.b32": 2, "cas.b64": 2, "cas.b16": 2,
}  # fmt: skip
COUNTERS = ("add.u32", "min.u32", "max.s32", "xor.b32", "or.b32", "and.b32", "inc.u32", "max.u32")


class Element(NamedTuple):
    """What an access moves: its type, how many of it, and their bytes."""

    type: str
    number: int

    @property
    def size(self) -> int:
        """Of one."""
        return WIDTHS[self.type] // 8

    @property
    def bytes(self) -> int:
        """Of all."""
        return self.size * self.number

    @property
    def name(self) -> str:
        """As instructions have it."""
        return f"{f'.v{self.number}' if self.number > 1 else ''}.{self.type}"


def element(w: Writer, most: int = 16) -> Element:
    """A type, words more often, and one to four of it, of so many bytes at most."""
    kind = w.pick(*(t for t in ("b32", "u32", *TYPES) if WIDTHS[t] <= 8 * most))
    return Element(kind, w.pick(*(n for n in (1, 1, 1, 2, 2, 4, 4) if n * WIDTHS[kind] <= 8 * most)))


def _register_bits(w: Writer, e: Element) -> int:
    """Of the registers: as wide as the type, or wider for integers and bits."""
    bits = WIDTHS[e.type]
    if e.type[0] == "f":
        return bits
    wider = [b for b in (16, 32, 64) if b >= bits]
    return int(wider[0] if w.chance(0.6) else w.pick(*wider))


def load_at(w: Writer, p: Pointer, e: Element, more: int, guard: str = "") -> None:
    names = w.results(_register_bits(w, e), e.number)
    shown = ["_" if e.number > 1 and w.chance(0.08) else n for n in names]
    names = [n for n in shown if n != "_"]
    if not names:
        return
    how = w.pick(*LOADS) if p.space in ("global", "shared", "") else ""
    if not how and p.space == "global" and w.chance(0.3):
        how = w.pick(*CACHES[p.region])
    space = f".{p.space}" if p.space else ""
    # .nc comes after the space, as all that is said of caches does
    text = f"ld{space}{how}" if how[1:] in ("ca", "cg", "cs", "nc") else f"ld{how}{space}"
    w.put(f"{text}{e.name} {braces(shown)}, {at(p, more)};", *names, guard=guard)


def store_at(w: Writer, p: Pointer, e: Element, more: int, guard: str = "") -> None:
    bits = _register_bits(w, e)
    sources = [w.register(bits) for _ in range(e.number)]
    if bits > WIDTHS[e.type]:
        sources = [w.of_integers(bits, x) for x in sources]
    if e.number == 1 and e.type[0] != "f" and w.chance(0.1):
        sources = [w.literal(e.type)]
    how = w.pick(*STORES) if p.space in ("global", "shared", "") else ""
    space = f".{p.space}" if p.space else ""
    w.put(f"st{how}{space}{e.name} {at(p, more)}, {braces(sources)};", guard=guard)


Access = Callable[[Writer, Pointer, Element, int], None]


def several(w: Writer, do: Access, region: str, e: Element, count: int) -> None:
    """An access, or neighbouring ones in any order."""
    p = addresses.pointer(w, region, e.size if e.number == 1 else e.bytes, e.bytes * count)
    if p is None:
        return
    first = displacement(w, p, e.bytes if e.number > 1 else e.size, e.bytes * count)
    places = list(range(count))
    if w.chance(0.15):
        w.rng.shuffle(places)
    for n in places:
        do(w, p, e, first + n * e.bytes)


def _count(w: Writer) -> int:
    return int(w.pick(1, 1, 1, 1, 2, 2, 4, 4, 8))


def load(w: Writer) -> None:
    region = addresses.readable(w)
    e = element(w, addresses.widest(w, region))
    several(w, load_at, region, e, _count(w) if e.number == 1 else w.pick(1, 1, 2))


def _writable(w: Writer) -> str:
    return str(w.pick("loc", *(region for region, layout in w.layouts.items() if layout), *("own", "shm")))


def store(w: Writer) -> None:
    region = _writable(w)
    if region == "loc" or w.layouts[region]:
        e = element(w, addresses.widest(w, region))
        several(w, store_at, region, e, _count(w) if e.number == 1 else w.pick(1, 1, 2))


def exchange(w: Writer) -> None:
    """Stores and loads of other widths on the same bytes."""
    region = _writable(w)
    if region != "loc" and not w.layouts[region]:
        return
    e = element(w, addresses.widest(w, region))
    p = addresses.pointer(w, region, e.bytes, e.bytes)
    if p is None:
        return
    first = displacement(w, p, e.bytes, e.bytes)
    store_at(w, p, e, first)
    for _ in range(w.pick(1, 1, 2)):
        kinds = [t for t in TYPES if WIDTHS[t] // 8 <= e.bytes]
        other = Element(w.pick(*kinds), 1)
        inside = other.size * w.rng.randrange(e.bytes // other.size)
        w.pick(load_at, load_at, store_at)(w, p, other, first + inside)
    load_at(w, p, e, first)


def bounded(w: Writer) -> None:
    """Accesses of those threads whose address is inside."""
    e = element(w)
    # what each thread owns has no bounds that an address of another could be tested against
    region = w.pick("src", "loc", "con", *(r for r, layout in w.layouts.items() if layout is None))
    p, inside = addresses.bounded(w, region, e.bytes, e.bytes)
    does = (load_at, store_at) if region == "loc" else (load_at,)
    if w.chance(0.5):
        w.pick(*does)(w, p, e, 0, f"@{inside} ")
        return
    end = w.label()
    w.line(f"@!{inside} bra {end};")
    with w.inner():
        w.pick(*does)(w, p, e, 0)
        w.pointers.append(p)
        load(w)
    w.line(f"{end}:")


def walk(w: Writer) -> None:
    """A loop that moves a pointer."""
    region, rounds = w.pick(addresses.readable(w), _writable(w)), w.rng.randrange(2, 6)
    e = element(w, addresses.widest(w, region))
    p = addresses.pointer(w, region, e.bytes, e.bytes)
    if p is None:
        return
    step = e.bytes * w.pick(1, 1, 1, -1, 2, 4, 0, 32)
    first, last = p.first - min(0, step * rounds), p.last - max(0, step * rounds)
    if last - first < 2 * e.bytes:
        return
    bits = 64 if p.register.startswith(POINTERS[64]) else 32
    moving = w.new(POINTERS[bits])
    count, top, done = w.new("%c"), w.label(), w.new(PREFIXES[1])
    w.line(f"mov.u{bits} {moving}, {p.register};")
    if w.chance(0.6):
        w.line(f"mov.u32 {count}, {rounds};")
    else:
        w.line(f"rem.u32 {count}, {w.register(32)}, {rounds};")
    w.line(f"{top}:")
    with w.inner():
        w.pointers = [p._replace(register=moving, first=first, last=last, align=min(p.align, e.bytes))]
        w.indices.append(Index(count, 0, rounds))
        for _ in range(w.pick(1, 1, 2, 3)):
            here = w.pointers[0]
            writes = region == "loc" or (region in w.layouts and w.layouts[region] is not None)
            do = w.pick(load_at, store_at) if writes else load_at
            do(w, here, e, displacement(w, here, e.bytes, e.bytes))
        if w.chance(0.3):
            load(w)
    w.line(f"add.s{bits} {moving}, {moving}, {step};")
    w.line(f"sub.s32 {count}, {count}, 1;")
    w.line(f"setp.gt.s32 {done}, {count}, 0;")
    w.line(f"@{done} bra {top};")


def atomic(w: Writer) -> None:
    """An atomic operation on a thread's own words."""
    regions = [region for region, layout in w.layouts.items() if layout]
    if not regions:
        return
    region = w.pick(*regions)
    names = [n for n in ATOMICS if WIDTHS[n.split(".")[-1]] <= 8 * addresses.widest(w, region)]
    if not names:
        return
    name = w.pick(*names)
    kind = name.split(".")[-1]
    size = WIDTHS[kind] // 8
    p = addresses.pointer(w, region, size, size)
    if p is None:
        return
    place = at(p, displacement(w, p, size, size))
    space = f".{p.space}" if p.space else ""
    order = w.pick("", "", "", ".relaxed.gpu", ".acq_rel.cta", ".release.gpu", ".acquire.sys")
    if not known(f"atom.{name}", w.arch):
        return
    found = [w.register(8 * size) for _ in range(ATOMICS[name])]
    values = ", ".join(w.of_integers(32, x) if kind.endswith("x2") else x for x in found)
    if w.chance(0.2) and not name.startswith(("exch", "cas")):
        order = "" if "acq" in order else order
        w.put(f"red{order}{space}.{name} {place}, {values};")
        return
    result = w.result(8 * size)
    w.put(f"atom{order}{space}.{name} {result}, {place}, {values};", result)


def counter(w: Writer) -> None:
    """An operation of whose results no order matters, on a word that nothing reads before the end."""
    n = w.rng.randrange(len(COUNTERS))
    name = COUNTERS[n]
    value = w.register(32) if w.chance(0.6) and name != "inc.u32" else str(w.rng.randrange(1, 99))
    value = "0xffffffff" if name == "inc.u32" else value
    where = f"[{w.pick('memory', '%shm', '%shm_narrow')}+{REGIONS['shm'] + 4 * n}]"
    w.put(f"red.shared.{name} {where}, {value};")


def copy(w: Writer) -> None:
    """cp.async into what a thread owns of shared memory, and a wait for it."""
    if w.layouts["shm"] is None:
        return
    waiting = False
    for _ in range(w.pick(1, 1, 2)):
        size = w.pick(4, 8, 16)
        to = next((p for p in reversed(w.pointers) if p.region == "shm" and p.space == "shared"), None)
        to = to if to and w.chance(0.5) else addresses.own(w, "shm")
        source = addresses.anywhere(w, "src", size, size)
        if to.space != "shared" or source.space != "global" or to.align % size or to.last - to.first < size:
            continue
        where = at(to, displacement(w, to, size, size))
        what = at(source, displacement(w, source, size, size))
        cache = "cg" if size == 16 and w.chance(0.5) else "ca"
        w.put(f"cp.async.{cache}.shared.global {where}, {what}, {size}{_taken(w, size)};", guard="")
        waiting = True
    if waiting:
        if w.chance(0.5):
            w.line("cp.async.wait_all;")
        else:
            w.line("cp.async.commit_group;")
            w.line(f"cp.async.wait_group {w.pick(0, 0, 0)};")


def _taken(w: Writer, size: int) -> str:
    """How many bytes are taken from the source: all, a constant, or a register's number."""
    way = w.rng.random()
    if way < 0.5:
        return ""
    if way < 0.7:
        return f", {w.rng.randrange(size + 1)}"
    name = w.new(PREFIXES[32])
    w.put(f"rem.u32 {name}, {w.register(32)}, {size + 1};", name)
    return f", {name}"


def space_test(w: Writer) -> None:
    """isspacep, on addresses of each space."""
    region = w.pick(*REGIONS)
    name = w.result(1)
    w.put(f"isspacep.{w.pick('global', 'shared', 'local', 'const')} {name}, "
          f"{addresses.base_of(region, 64, True)};", name)  # fmt: skip
    if w.chance(0.3):
        predicate(w)


STATEMENTS = ((4, load), (4, store), (3, exchange), (2, bounded), (2, walk), (4, atomic), (0.7, counter), (1.5, copy),
              (0.2, space_test))  # fmt: skip
