"""Branches, loops, barriers, exits, jumps through tables and calls of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nbtc.testing.memory_programs import accesses, addresses, bulk, scalar, warps
from nbtc.testing.memory_programs.scalar import kept, predicate
from nbtc.testing.memory_programs.writer import KEPT, PREFIXES, PRODUCT, Index, Writer

MOST = 40  # statements after which no structure begins
Statement = Callable[[Writer], None]


class Place(NamedTuple):
    """Where a statement stands.

    depth: structures that it may still hold.  uniform: whether all threads of the block are here together.
    leave: the label after the innermost loop of a single thread.
    """

    depth: int
    uniform: bool
    leave: str = ""


class Function(NamedTuple):
    """A device function: the bits of its parameters and of its result."""

    name: str
    parameters: tuple[int, ...]
    result: int
    struct: bool


def statements(w: Writer, place: Place, most: int, least: int = 2) -> None:
    """A few statements."""
    for _ in range(w.rng.randint(least, most)):
        w.size += 1
        choices = _choices(w, place)
        weights = [weight for weight, _ in choices]
        w.rng.choices([do for _, do in choices], weights)[0](w)


def _choices(w: Writer, place: Place) -> list[tuple[float, Statement]]:
    found: list[tuple[float, Any]] = [*scalar.STATEMENTS, *accesses.STATEMENTS]
    if place.depth and w.size < MOST:
        found += [(2, lambda w: branch(w, place)), (2, lambda w: loop(w, place)), (0.7, lambda w: jump(w, place))]
    if w.functions:
        found.append((1, call))
    if place.uniform:
        found += [(2, barrier), (0.3, broadcast)]
        if bulk.available(w):
            found.append((1, copied))
        if not w.exits:
            found += warps.STATEMENTS
    if place.leave:
        found.append((0.7, lambda w: w.line(f"@{predicate(w)} bra {place.leave};")))
    if w.exits:
        found.append((0.3, lambda w: w.line(f"@{predicate(w)} {w.pick('bra DONE', 'exit')};")))
    return found


def branch(w: Writer, place: Place) -> None:
    other, end = w.label(), w.label()
    inside = place._replace(depth=place.depth - 1, uniform=False)
    w.line(f"@{w.pick('', '!')}{predicate(w) if w.chance(0.7) else w.register(1)} bra {other};")
    with w.inner():
        statements(w, inside, 4)
    if w.chance(0.5):
        w.line(f"bra {end};")
        w.line(f"{other}:")
        with w.inner():
            statements(w, inside, 4)
    else:
        w.line(f"{other}:")
    w.line(f"{end}:")


def loop(w: Writer, place: Place) -> None:
    """A counted loop; of a number of rounds that differs between threads, unless all have to stay together."""
    count, top, end, more = w.new("%c"), w.label(), w.label(), w.new("%q")
    together = place.uniform and w.chance(0.6)
    most = w.rng.randrange(1, 4)
    if together or w.chance(0.4):
        w.line(f"mov.u32 {count}, {most};")
        least = 1
    else:
        w.line(f"and.b32 {count}, {w.register(32)}, 3;")
        most, least = 3, 0
    up = w.chance(0.4) and least == 1
    if up:
        w.line(f"mov.u32 {count}, 0;")
    layouts = dict(w.layouts)
    if together:
        w.pointers = [p for p in w.pointers if p.region not in w.layouts]
    w.line(f"{top}:")
    with w.inner():
        w.indices.append(Index(count, 0, most))
        statements(w, place._replace(depth=place.depth - 1, uniform=together, leave="" if together else end), 4)
    if together and layouts != w.layouts:
        w.line("bar.sync 0;")
        w.layouts = layouts
    if up:
        w.line(f"add.u32 {count}, {count}, 1;")
        w.line(f"setp.lt.u32 {more}, {count}, {most};")
    else:
        w.line(f"sub.s32 {count}, {count}, 1;")
        w.line(f"setp.gt.s32 {more}, {count}, 0;")
    w.line(f"@{more} bra {top};")
    w.line(f"{end}:")


def jump(w: Writer, place: Place) -> None:
    """brx.idx to one of several places."""
    index, table, end = w.new(PREFIXES[32]), w.label(), w.label()
    labels = [w.label() for _ in range(w.pick(2, 3, 4))]
    w.put(f"rem.u32 {index}, {w.register(32)}, {len(labels)};", index, plain=True)
    w.line(f"{table}: .branchtargets {', '.join(labels)};")
    w.line(f"brx.idx {index}, {table};")
    for label in labels:
        w.line(f"{label}:")
        with w.inner():
            statements(w, place._replace(depth=0, uniform=False), 2)
        w.line(f"bra {end};")
    w.line(f"{end}:")


def barrier(w: Writer) -> None:
    """From here on other threads own other bytes of what the block shares."""
    ways = ["bar.sync 0;", "bar.sync 0;", "barrier.sync 1;"]
    if not w.exits:  # threads that have ended don't count
        ways.append(f"bar.sync 2, {w.threads};")
    w.line(w.pick(*ways))
    for region in w.layouts:
        w.layouts[region] = addresses.new_layout(w, region)
    w.pointers = [p for p in w.pointers if p.region not in w.layouts]


def copied(w: Writer) -> None:
    """A copy of many bytes, after which other threads own other bytes."""
    bulk.copy(w)
    barrier(w)


def broadcast(w: Writer) -> None:
    """One word that all threads store alike, or one of them alone."""
    region = w.pick("own", "shm")
    base = addresses.base_of(region, 64, False)
    w.line("bar.sync 0;")
    place, value = f"[{base}+{4 * w.rng.randrange(64)}]", w.literal("b32")
    space = addresses.SPACES[region]
    if w.chance(0.5):
        w.line(f"st.{space}.b32 {place}, {value};")
    else:
        p = w.new(PREFIXES[1])
        w.put(f"setp.eq.u32 {p}, %number, {w.rng.randrange(w.threads)};", p)
        w.line(f"@{p} st.{space}.b32 {place}, {w.register(32)};")
    barrier(w)


# --- functions ------------------------------------------------------------------------------------------------------
def call(w: Writer) -> None:
    """A call of a function, by some of the threads."""
    f: Function = w.pick(*w.functions)
    n = w.label()
    lines = [f".param .b{bits} {n}_{i};" for i, bits in enumerate(f.parameters)]
    lines += [f"st.param.b{bits} [{n}_{i}], {w.register(bits)};" for i, bits in enumerate(f.parameters)]
    names = [f"{n}_{i}" for i in range(len(f.parameters))]
    if f.struct:
        pair = f"{{{w.register(32)}, {w.register(32)}}}"
        lines += [f".param .align 8 .b8 {n}_s[24];", f"st.param.v2.b32 [{n}_s], {pair};",
                  f"st.param.b64 [{n}_s+8], {w.register(64)};", f"st.param.b16 [{n}_s+16], {w.register(16)};",
                  f"st.param.b32 [{n}_s+20], {w.register(32)};"]  # fmt: skip
        names.append(f"{n}_s")
    lines += [f".param .b64 {n}_a;", f"st.param.b64 [{n}_a], %src;"]
    names.append(f"{n}_a")
    guard = w.guard() if w.chance(0.2) else ""
    name = w.result(f.result)
    if guard and name not in w.scope:
        w.zero(name)
    lines += [f".param .b{f.result} {n}_o;"]
    if guard:
        skip = w.label()
        w.line(f"@!{guard[1:]}bra {skip};".replace("!!", ""))
    w.line("{")
    w.lines += lines
    w.line(f"call ({n}_o), {f.name}, ({', '.join(names)});")
    w.line(f"ld.param.b{f.result} {name}, [{n}_o];")
    w.line("}")
    if guard:
        w.line(f"{skip}:")
    if name not in w.scope:
        w.scope.append(name)


def function(w: Writer, name: str, outer: Writer) -> str:
    """The text of a device function, written by `w`, and known to the other writer from here on."""
    f = Function(name, tuple(w.pick(32, 32, 64, 16) for _ in range(w.rng.randrange(1, 4))), w.pick(32, 32, 64, 16),
                 w.chance(0.4))  # fmt: skip
    parameters = [f".param .b{bits} {name}_{i}" for i, bits in enumerate(f.parameters)]
    if f.struct:
        parameters.append(f".param .align 8 .b8 {name}_s[24]")
    parameters.append(f".param .b64 {name}_a")
    start(w)
    for i, bits in enumerate(f.parameters):
        x = w.new(PREFIXES[bits])
        w.line(f"ld.param.b{bits} {x}, [{name}_{i}];")
        w.scope.append(x)
        w.fold_one(x)
    if f.struct:
        for bits, place in ((32, 0), (32, 4), (64, 8), (16, 16), (32, 20)):
            x = w.new(PREFIXES[bits])
            w.line(f"ld.param.b{bits} {x}, [{name}_s+{place}];")
            w.scope.append(x)
    w.line(f"ld.param.b64 %src, [{name}_a];")
    w.line("cvta.global.u64 %src_generic, %src;")
    w.functions = list(outer.functions)
    saved = w.layouts
    for _ in range(w.rng.randrange(2, 6)):
        w.rng.choices([do for _, do in (*scalar.STATEMENTS, (3, _load_source))],
                      [weight for weight, _ in (*scalar.STATEMENTS, (3, _load_source))])[0](w)  # fmt: skip
    if w.chance(0.3):
        w.line(f"@{predicate(w)} bra OUT;")
        with w.inner():
            scalar.instruction(w)
            scalar.fold(w)
    w.layouts = saved
    w.fold(3)
    w.line("OUT:")
    w.line(f"st.param.b{f.result} [{name}_o], {w.pick(*kept(f.result))};")
    outer.functions.append(f)
    head = f".func (.param .b{f.result} {name}_o) {name}({', '.join(parameters)})"
    own = ".reg .b64 %src, %src_generic; .reg .b32 %number, %tx;"
    return "\n".join([head, "{", own, *PRODUCT, *w.declarations(), *w.lines, "ret;", "}"])


def _load_source(w: Writer) -> None:
    e = accesses.element(w)
    accesses.several(w, accesses.load_at, "src", e, 1)


def start(w: Writer) -> None:
    """Numbers of the registers that are kept, in a function."""
    w.line("mov.u32 %tx, %tid.x;")
    w.line("mov.u32 %number, %laneid;")
    w.indices = [Index("%tx", 0, w.shape[0] - 1), Index("%number", 0, 31)]
    for bits, count in KEPT.items():
        for _ in range(count):
            x = w.new(PREFIXES[bits])
            if bits == 1:
                w.line(f"setp.lt.u32 {x}, %tx, {w.rng.randrange(33)};")
            else:
                w.line(f"mov.b{bits} {x}, {w.number(bits)};")
            w.scope.append(x)
