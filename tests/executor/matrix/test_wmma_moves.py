"""wmma.load and wmma.store in programs: every byte of a fragment, however its tile is reached."""

import numpy as np
import pytest

import nbtc
from nbtc.isa.parse import row as parse_row
from nbtc.testing import assert_bits_equal

LOADS = [
    "a.sync.aligned.row.m16n16k16.f16",
    "b.sync.aligned.row.m16n16k16.bf16",
    "b.sync.aligned.col.m8n32k16.f16",
    "a.sync.aligned.col.m32n8k16.s8",
    "b.sync.aligned.row.m16n16k16.u8",
    "a.sync.aligned.col.m16n16k8.tf32",
    "b.sync.aligned.row.m8n8k4.f64",
    "a.sync.aligned.row.m8n8k32.s4",
    "b.sync.aligned.col.m8n8k128.b1",
    "c.sync.aligned.row.m16n16k16.f32",
    "c.sync.aligned.col.m32n8k16.f16",
]
STORES = [f"d{form[1:]}" for form in LOADS if form.startswith("c")] + ["d.sync.aligned.row.m8n8k4.f64"]
STEP = {16: 8, 8: 16, 32: 8, 64: 2, 4: 32, 1: 128}  # elements by bits: 128 bits, of which a stride is a multiple
ROOM = 1 << 14  # bytes of all tiles of one form
RNG = np.random.default_rng(3)


class Form:
    """A load or store, and where its tile and registers lie."""

    def __init__(self, text):
        self.text, self.use = f"wmma.{'store' if text[0] == 'd' else 'load'}.{text}", text[0]
        row = parse_row(self.text)
        self.operand = next(o for o in (row.a, row.b, row.c, row.d) if o is not None)
        self.bits, self.by_row = self.operand.format.bits, ".row." in text
        self.size = 8 if self.bits == 64 else 4
        self.count = self.operand.registers * 4 // self.size
        natural = self.operand.cols if self.by_row else self.operand.rows
        step = STEP[self.bits]
        self.stride = -(-natural // step) * step + 2 * step
        number = (self.bits == 64 and "f64") or (self.operand.format.name == "f32" and "f32") or "b32"
        self.kind = number

    def places(self):
        """(register, shift) of each element, and its first bit in memory: [lane][element]."""
        coords = self.operand.coords()
        line, along = (coords[..., 0], coords[..., 1])[:: 1 if self.by_row else -1]
        return self.operand.slots(), (line * self.stride + along) * self.bits

    def registers_of(self, memory):
        """The fragment of a tile: [lane][32-bit word]."""
        bits = np.unpackbits(memory, bitorder="little")
        (register, shift), at = self.places()
        out = np.zeros((32, self.operand.registers * 32), np.uint8)
        for n in range(self.operand.elements):
            for bit in range(self.bits):
                out[:, 32 * register[n] + shift[n] + bit] = bits[at[:, n] + bit]
        return np.packbits(out, axis=1, bitorder="little").view(np.uint32)

    def tile_of(self, words):
        """The memory that a fragment of [lane][32-bit word] leaves, zero elsewhere."""
        bits = np.zeros(8 * ROOM, np.uint8)
        (register, shift), at = self.places()
        given = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        for n in range(self.operand.elements):
            for bit in range(self.bits):
                bits[at[:, n] + bit] = given[:, 32 * register[n] + shift[n] + bit]
        return np.packbits(bits, bitorder="little")


def program(forms, shared):
    """A kernel that moves every form's tile twice: tiles and registers (32 words a lane) of form n lie at n * ROOM.

    shared: tiles of loads are copied to shared memory first, whose addresses are generic ones.
    """
    body = [
        ".reg .b64 %t, %r, %a, %b, %o, %s; .reg .b32 %lane, %n, %w, %st; .reg .pred %p;",
        "ld.param.u64 %t, [T]; ld.param.u64 %r, [R]; mov.u32 %lane, %tid.x; mov.u32 %n, 0;",
        "again:",
    ]
    for n, form in enumerate(forms):
        names = [f"%v{n}_{i}" for i in range(form.count)]
        body += [f".reg .{form.kind} {', '.join(names)};", f"add.u64 %a, %t, {n * ROOM};"]
        if shared:
            body += [
                "mov.u64 %b, room; cvta.shared.u64 %b, %b; mov.u32 %w, %lane; bar.sync 0;",
                f"copy{n}: mul.wide.u32 %o, %w, 4; add.u64 %s, %a, %o; ld.global.b32 %st, [%s];",
                "add.u64 %s, %b, %o; st.b32 [%s], %st; add.u32 %w, %w, 32;",
                f"setp.lt.u32 %p, %w, {ROOM // 4}; @%p bra copy{n}; bar.sync 0; mov.u64 %a, %b;",
            ]
        body.append(f"mov.u32 %st, {form.stride}; mul.wide.u32 %o, %lane, 128; add.u64 %o, %o, %r;")
        place = [f"[%o+{n * ROOM + form.size * i}]" for i in range(form.count)]
        fragment = f"{{{', '.join(names)}}}"
        if form.use == "d":
            body += [f"ld.global.{form.kind} {x}, {at};" for x, at in zip(names, place, strict=True)]
            body.append(f"{form.text} [%a], {fragment}, %st;")
        else:
            body.append(f"{form.text} {fragment}, [%a], %st;")
            body += [f"st.global.{form.kind} {at}, {x};" for x, at in zip(names, place, strict=True)]
    text = f".shared .align 128 .b8 room[{ROOM}];\n" if shared else ""
    body += [f"add.u64 %t, %t, {len(forms) * ROOM}; add.u64 %r, %r, {len(forms) * ROOM};"]
    body += ["add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 2; @%p bra again; ret;"]
    lines = "\n".join(body)
    return (
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        f".visible .entry k(.param .u64 T, .param .u64 R)\n{{\n{text}{lines}\n}}\n"
    )


def moved(forms, tiles, registers, shared=False):
    """Run the kernel: the first pass meets memory that it does not know yet, the second moves whole tiles."""
    nbtc.load(program(forms, shared))["k"][1, 32](tiles, registers)


@pytest.mark.parametrize("shared", [False, True], ids=["global", "shared"])
def test_fragments_of_tiles(shared):
    forms = [Form(text) for text in (LOADS if not shared else LOADS[:2])]
    tiles = RNG.integers(0, 256, (2, len(forms), ROOM)).astype(np.uint8)
    registers = np.zeros((2, len(forms), ROOM // 4), np.uint32)
    moved(forms, tiles, registers, shared)
    for again in range(2):
        for n, form in enumerate(forms):
            found = registers[again, n].reshape(-1, 32)[:32, : form.operand.registers]
            assert_bits_equal(found, form.registers_of(tiles[again, n]))


def test_tiles_of_fragments():
    forms = [Form(text) for text in STORES]
    tiles = np.zeros((2, len(forms), ROOM), np.uint8)
    registers = RNG.integers(0, 1 << 32, (2, len(forms), ROOM // 4), np.uint64).astype(np.uint32)
    moved(forms, tiles, registers)
    for again in range(2):
        for n, form in enumerate(forms):
            words = np.ascontiguousarray(registers[again, n].reshape(-1, 32)[:32, : form.operand.registers])
            assert_bits_equal(tiles[again, n], form.tile_of(words))


LOAD_LAST = """.version 8.0\n.target sm_90\n.address_size 64
.visible .entry k(.param .u64 T, .param .u32 last) {
.reg .b64 %t; .reg .b32 %n, %last, %v<8>; .reg .pred %p;
ld.param.u64 %t, [T]; ld.param.u32 %last, [last]; mov.u32 %n, 0;
again: wmma.load.a.sync.aligned.row.m16n16k16.f16 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%t];
add.u64 %t, %t, 512; add.u32 %n, %n, 1; setp.lt.u32 %p, %n, %last; @%p bra again; ret; }"""


def test_a_tile_beyond_the_end_is_found():
    kernel = nbtc.load(LOAD_LAST)["k"]
    tiles = np.zeros((3, 256), np.float16)  # its lines are 32 bytes, a tile 512
    kernel[1, 32](tiles, np.uint32(3))
    with pytest.raises(nbtc.errors.ProgramError, match="load"):
        kernel[1, 32](tiles, np.uint32(4))
    with pytest.raises(nbtc.errors.ProgramError, match="load"):
        kernel[1, 32](tiles.reshape(-1)[:-1], np.uint32(3))
    with pytest.raises(nbtc.errors.ProgramError, match="aligned"):
        kernel[1, 32](tiles.reshape(-1).view(np.uint8)[1:], np.uint32(2))
