"""A whole random program: its head, which gives registers and memory their first contents, and its tail."""

from __future__ import annotations

import random
from typing import NamedTuple

from nbtc.testing.memory_programs.addresses import new_layout
from nbtc.testing.memory_programs.bulk import first_lines
from nbtc.testing.memory_programs.control import Place, function, statements
from nbtc.testing.memory_programs.writer import KEPT, LANES, PREFIXES, PRODUCT, REGIONS, SHAPES, Index, Writer

OUT = 128  # bytes that each thread stores at the end
COUNTERS = 64  # bytes of shared memory
SHARED = REGIONS["shm"] + COUNTERS
VERSION = "8.3"


class MemoryProgram(NamedTuple):
    """PTX with one kernel `k` of three pointers (SHARED bytes to read, REGIONS["own"] bytes a block that it
    changes, and what threads and blocks found, which it writes), and its launch."""

    body: str
    arch: str
    grid: int
    block: tuple[int, int, int]

    @property
    def text(self) -> str:
        """A whole module."""
        return f".version {VERSION}\n.target {self.arch}\n.address_size 64\n{self.body}\n"

    @property
    def bytes(self) -> tuple[int, int, int]:
        """Of the three arrays."""
        threads = self.block[0] * self.block[1] * self.block[2]
        return SHARED, REGIONS["own"] * self.grid, (threads * OUT + SHARED) * self.grid


def random_memory_program(seed: int, arch: str = "sm_90") -> MemoryProgram:
    """A program, the same for the same seed."""
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    grid = rng.randrange(1, 3)
    exits = rng.random() < 0.2 or shape[0] * shape[1] * shape[2] % LANES != 0
    w = Writer(rng, shape, exits, arch)
    functions = [function(Writer(rng, shape, False, arch), f"f{n}", w) for n in range(rng.randrange(3))]
    _first(w)
    w.layouts = {region: new_layout(w, region) for region in w.layouts}
    statements(w, Place(3, True), 20, 6)
    w.fold(6)
    words = ", ".join(hex(w.number(32)) for _ in range(REGIONS["con"] // 4))
    table = f".const .align 16 .b32 table[{REGIONS['con'] // 4}] = {{{words}}};"
    kernel = [
        ".visible .entry k(.param .u64 src, .param .u64 own, .param .u64 out)", "{", *w.declarations(),
        *_head(w), *w.lines, *_tail(w, grid), "ret;", "}",
    ]  # fmt: skip
    return MemoryProgram("\n".join([table, *functions, *kernel]), arch, grid, shape)


def _head(w: Writer) -> list[str]:
    """Addresses of regions, numbers of threads, and what lies in shared and local memory."""
    x, y, _ = w.shape
    four = "{%i0, %i1, %i2, %i3}"
    local = [
        f"ld.global.v4.b32 {four}, [%first+{n}];\nst.local.v4.b32 [scratch+{n}], {four};"
        for n in range(0, REGIONS["loc"], 16)
    ]
    return [
        ".reg .b64 %src, %own, %shm, %loc, %con, %out, %first, %o;",
        ".reg .b64 %src_generic, %own_generic, %shm_generic, %loc_generic, %con_generic;",
        ".reg .b32 %shm_narrow, %loc_narrow, %number, %lane, %tx, %block, %i<5>;",
        ".reg .pred %more;", *PRODUCT,
        f".shared .align 128 .b8 memory[{SHARED}];",
        f".local .align 16 .b8 scratch[{REGIONS['loc']}];",
        "ld.param.u64 %src, [src];", "ld.param.u64 %own, [own];", "ld.param.u64 %out, [out];",
        "cvta.to.global.u64 %src, %src;", "cvta.to.global.u64 %own, %own;", "cvta.to.global.u64 %out, %out;",
        "mov.u32 %block, %ctaid.x;", f"mad.wide.u32 %own, %block, {REGIONS['own']}, %own;",
        "cvta.global.u64 %src_generic, %src;", "cvta.global.u64 %own_generic, %own;",
        "mov.u64 %shm, memory;", "cvta.shared.u64 %shm_generic, %shm;", "mov.u32 %shm_narrow, memory;",
        "mov.u64 %loc, scratch;", "cvta.local.u64 %loc_generic, %loc;", "mov.u32 %loc_narrow, scratch;",
        "mov.u64 %con, table;", "cvta.const.u64 %con_generic, %con;",
        "mov.u32 %tx, %tid.x;", "mov.u32 %lane, %laneid;", "mov.u32 %i0, %tid.y;", "mov.u32 %i1, %tid.z;",
        f"mad.lo.u32 %i0, %i1, {y}, %i0;", f"mad.lo.u32 %number, %i0, {x}, %tx;",
        *first_lines(w),
        *_shared_copies(w, "ld.global.b32 %i1, [%first];", "st.shared.b32 [%i2], %i1;", "%src", SHARED),
        "bar.sync 0;",
        # each thread begins at other bytes of the source
        "mad.lo.u32 %i0, %number, 36, 4;", f"rem.u32 %i0, %i0, {REGIONS['src'] - 256};", "and.b32 %i0, %i0, -16;",
        "cvt.u64.u32 %o, %i0;", "add.u64 %first, %src, %o;", *local, *_registers(w),
    ]  # fmt: skip


def _shared_copies(w: Writer, load: str, store: str, base: str, size: int) -> list[str]:
    """A loop in which the block moves shared memory, word by word: its address in %i2, the other one in %first."""
    top, left = w.label(), w.label()
    return [
        "shl.b32 %i0, %number, 2;", f"{top}:", "cvt.u64.u32 %o, %i0;", f"add.u64 %first, {base}, %o;",
        "add.u32 %i2, %shm_narrow, %i0;", load, store, f"add.u32 %i0, %i0, {4 * w.threads};",
        f"setp.lt.u32 %more, %i0, {size};", f"@%more bra {top};", f"{left}:",
    ]  # fmt: skip


def _first(w: Writer) -> None:
    """The registers that are kept, which hold numbers from the start."""
    for bits, count in KEPT.items():
        w.scope += [w.new(PREFIXES[bits]) for _ in range(count)]
    w.indices = [Index("%number", 0, w.threads - 1), Index("%tx", 0, w.shape[0] - 1), Index("%lane", 0, LANES - 1)]


def _registers(w: Writer) -> list[str]:
    found = []
    for bits, count in KEPT.items():
        for n in range(count):
            name = f"{PREFIXES[bits]}{n}"
            if bits == 1:
                found += [f"ld.global.b32 %i0, [%first+{200 + 4 * n}];", f"setp.lt.s32 {name}, %i0, {n};"]
            else:
                found.append(
                    f"ld.global.b{bits} {name}, [%first+{(64, 96, 128)[bits.bit_length() - 5] + bits // 8 * n}];"
                )
    return found


def _tail(w: Writer, grid: int) -> list[str]:
    """Registers, local memory, and once all threads are here the block's memory."""
    threads = w.threads
    found = [
        "DONE:", f"mad.lo.u32 %i0, %block, {threads}, %number;", f"mad.wide.u32 %o, %i0, {OUT}, %out;",
        "mov.b32 %i1, 0;",
    ]  # fmt: skip
    for n in range(KEPT[1]):
        found += [f"selp.b32 %i2, {1 << n}, 0, %p{n};", "or.b32 %i1, %i1, %i2;"]
    found += ["st.global.b32 [%o], %i1;"]
    place = 8
    for bits in (64, 32, 16):
        for n in range(KEPT[bits]):
            found.append(f"st.global.b{bits} [%o+{place}], {PREFIXES[bits]}{n};")
            place += bits // 8
    for n in range(REGIONS["loc"] // 16):
        found += [f"ld.local.v4.b32 {{%i0, %i1, %i2, %i3}}, [scratch+{16 * n}];",
                  f"st.global.v4.b32 [%o+{64 + 16 * n}], {{%i0, %i1, %i2, %i3}};"]  # fmt: skip
    if w.exits:
        return found
    return [
        *found, "bar.sync 0;", f"mad.wide.u32 %out, %block, {SHARED}, %out;",
        f"add.u64 %out, %out, {grid * threads * OUT};",
        *_shared_copies(w, "ld.shared.b32 %i1, [%i2];", "st.global.b32 [%first], %i1;", "%out", SHARED),
    ]  # fmt: skip
