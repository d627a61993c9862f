"""A writer of shared libraries for x86-64 Linux: trampolines through a table, without compiler or linker.

(System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; its AMD64 supplement for relocations.)  An
exported function is `jmp *table[i]`.  At first its entry leads to a stub that calls `nbtc_boot(i)`, which puts what the
function shall do into the table, and goes on there with the caller's arguments.  Code of `nbtc_boot` comes as an object
file (`boot`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

PAGE, STUB = 4096, 16
BUCKETS, BLOOM, SHIFT = 256, 64, 6  # of the GNU hash table: about two names a bucket
HEADERS = 0x400  # bytes that the file's and the segments' headers have
RELATIVE, GLOB_DAT = 8, 6  # R_X86_64_*
ABSOLUTE, PC_RELATIVE, THROUGH_GOT = 1, (2, 4), (9, 41, 42)
WRITE, ALLOC, EXECUTE, PROGBITS, SYMTAB, STRTAB, RELA, DYNAMIC, NOBITS, DYNSYM = 1, 2, 4, 1, 2, 3, 4, 6, 8, 11
GNU_HASH, GNU_VERDEF, GNU_VERSYM = 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFF  # SHT_*
# push rbp; mov rbp, rsp; push rdi, rsi, rdx, rcx, r8, r9; room for xmm0 and xmm1; mov rdi, [rbp+8]; call ...
ENTER = bytes.fromhex("55 4889e5 57 56 52 51 4150 4151 4881ec80000000 4883e4f0 0f110424 0f114c2410 488b7d08 e8")
LEAVE = bytes.fromhex("0f100424 0f104c2410 488d65d0 4159 4158 59 5a 5e 5f 5d 58 4c8d1d")
JUMP = bytes.fromhex("41ff24c3")  # jmp [r11 + 8 * rax]


class Section(NamedTuple):
    """A section header."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class Symbol(NamedTuple):
    """Its name, the section it is defined in, and where."""

    name: str
    section: int
    value: int


class Relocation(NamedTuple):
    """A place in a section that wants a symbol's address."""

    section: int
    offset: int
    info: int
    addend: int


class Object(NamedTuple):
    """What of an object file is laid into the library."""

    raw: bytes
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[Relocation]

    def loaded(self, writable: bool) -> list[int]:
        """Numbers of the sections with code and constants, or of those with data."""
        kinds = (PROGBITS, NOBITS) if writable else (PROGBITS,)
        return [
            i
            for i, s in enumerate(self.sections)
            if s.flags & ALLOC and bool(s.flags & WRITE) is writable and s.type in kinds and s.size
        ]


def read_object(raw: bytes) -> Object:
    """A relocatable ELF file."""
    (at,) = struct.unpack_from("<Q", raw, 40)
    count, _ = struct.unpack_from("<HH", raw, 60)
    sections = [Section(*struct.unpack_from("<IIQQQQIIQQ", raw, at + 64 * i)) for i in range(count)]
    table = next(s for s in sections if s.type == SYMTAB)
    names = sections[table.link].offset

    def text(start: int) -> str:
        return raw[names + start : raw.index(b"\0", names + start)].decode()

    rows = struct.iter_unpack("<IBBHQQ", raw[table.offset : table.offset + table.size])
    symbols = [Symbol(text(name), section, value) for name, _, _, section, value, _ in rows]
    relocations = [
        Relocation(s.info, *row)
        for s in sections
        if s.type == RELA
        for row in struct.iter_unpack("<QQq", raw[s.offset : s.offset + s.size])
    ]
    return Object(raw, sections, symbols, relocations)


def gnu_hash(name: str) -> int:
    """Of a symbol in DT_GNU_HASH."""
    h = 5381
    for c in name.encode():
        h = (h * 33 + c) & 0xFFFFFFFF
    return h


def sysv_hash(name: str) -> int:
    """Of the name of a version."""
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        high = h & 0xF0000000
        h = (h ^ high >> 24) & ~high
    return h & 0xFFFFFFFF


def up(x: int, step: int) -> int:
    """The next multiple."""
    return -(-x // step) * step


class Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data, self.at = bytearray(1), dict[str, int]()

    def add(self, text: str) -> int:
        """The offset of a text."""
        if text not in self.at:
            self.at[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self.at[text]


class Library:
    """A shared library while it is laid out."""

    def __init__(self, soname: str, names: Sequence[str], imports: Sequence[str], boot: bytes, version: str | None):
        self.soname, self.names, self.imports, self.version = soname, list(names), list(imports), version
        self.object = read_object(boot)
        self.order = sorted(names, key=lambda n: gnu_hash(n) % BUCKETS)
        self.strings = Strings()
        for text in (*imports, *self.order, soname, "libc.so.6", "libdl.so.2", *([version] if version else [])):
            self.strings.add(text)
        self.relocated: list[tuple[int, int, int]] = []  # address, kind and symbol, addend
        self._places()
        self.image = bytearray(self.end)

    def _places(self) -> None:
        """Where everything goes."""
        count, symbols = len(self.names), 1 + len(self.imports) + len(self.names)
        self.symbols_at, self.first = HEADERS, 1 + len(self.imports)
        self.strings_at = self.symbols_at + 24 * symbols
        self.hash_at = up(self.strings_at + len(self.strings.data), 8)
        self.versions_at = up(self.hash_at + 16 + 8 * BLOOM + 4 * (BUCKETS + count), 8)
        self.defined_at = up(self.versions_at + 2 * symbols, 8)
        self.relocations_at = up(self.defined_at + 2 * 28, 8)
        most = count + len(self.imports) + 1 + len(self.object.relocations)
        self.text_at = up(self.relocations_at + 24 * most, PAGE)
        self.stubs_at = self.text_at + STUB * count
        self.common_at = self.stubs_at + STUB * count
        self.calls_at = self.common_at + 128
        at, self.place = self.calls_at + STUB * len(self.imports), dict[int, int]()
        for writable in (False, True):
            if writable:
                at = self.data_at = up(at, PAGE)
            for i in self.object.loaded(writable):
                section = self.object.sections[i]
                at = up(at, max(16, section.align))
                self.place[i] = at
                at += section.size
        self.table_at = up(at, 16)
        self.got_at = self.table_at + 8 * count
        self.dynamic_at = up(self.got_at + 8 * (len(self.imports) + 1), 16)
        self.end = self.dynamic_at + 16 * 24

    def put(self, at: int, layout: str, *values: int) -> None:
        """Numbers into the image."""
        struct.pack_into("<" + layout, self.image, at, *values)

    def write(self) -> bytes:
        """The finished file."""
        self._trampolines()
        self._boot_code()
        self._symbols()
        self._dynamic()
        self._headers()
        self._sections()
        return bytes(self.image)

    def _trampolines(self) -> None:
        for i in range(len(self.names)):
            at, stub = self.text_at + STUB * i, self.stubs_at + STUB * i
            self.put(at, "IBBi", 0xFA1E0FF3, 0xFF, 0x25, self.table_at + 8 * i - (at + 10))  # endbr64; jmp *table[i]
            self.put(stub, "BiBi", 0x68, i, 0xE9, self.common_at - (stub + 10))  # push i; jmp common
            self.relocated.append((self.table_at + 8 * i, RELATIVE, stub))
        for i in range(len(self.imports)):
            at, slot = self.calls_at + STUB * i, self.got_at + 8 * i
            self.put(at, "BBi", 0xFF, 0x25, slot - (at + 6))
            self.relocated.append((slot, (1 + i) << 32 | GLOB_DAT, 0))
        self.relocated.append((self.got_at + 8 * len(self.imports), RELATIVE, self.table_at))

    def _boot_code(self) -> None:
        """The object's sections with their relocations, and the stub that all first calls go through."""
        for i, at in self.place.items():
            section = self.object.sections[i]
            if section.type == PROGBITS:
                self.image[at : at + section.size] = self.object.raw[section.offset : section.offset + section.size]
        defined = {s.name: self.place[s.section] + s.value for s in self.object.symbols if s.section in self.place}
        defined["nbtc_table"] = self.table_at
        calls = {name: self.calls_at + STUB * i for i, name in enumerate(self.imports)}
        slots = {name: self.got_at + 8 * i for i, name in enumerate((*self.imports, "nbtc_table"))}
        for r in self.object.relocations:
            if r.section not in self.place:
                continue
            kind, symbol = r.info & 0xFFFFFFFF, self.object.symbols[r.info >> 32]
            at, own = self.place[r.section] + r.offset, self.place.get(symbol.section)
            target = own + symbol.value if own is not None else defined.get(symbol.name, calls.get(symbol.name))
            if kind in PC_RELATIVE and target is not None:
                self.put(at, "i", target + r.addend - at)
            elif kind in THROUGH_GOT and symbol.name in slots:
                self.put(at, "i", slots[symbol.name] + r.addend - at)
            elif kind == ABSOLUTE and target is not None:
                self.relocated.append((at, RELATIVE, target + r.addend))
            else:
                raise RuntimeError(f"LLVM wrote a relocation of kind {kind} to {symbol.name!r}, which isn't known here")
        code = bytearray(ENTER)
        code += struct.pack("<i", defined["nbtc_boot"] - (self.common_at + len(code) + 4)) + LEAVE
        code += struct.pack("<i", self.table_at - (self.common_at + len(code) + 4)) + JUMP
        self.image[self.common_at : self.common_at + len(code)] = code

    def _symbols(self) -> None:
        """The dynamic symbols, their hash table, the one version that all of them have."""
        text = self.strings.at
        for i, name in enumerate(self.imports):
            self.put(self.symbols_at + 24 * (1 + i), "IBBHQQ", text[name], 0x12, 0, 0, 0, 0)
        place = {name: self.text_at + STUB * i for i, name in enumerate(self.names)}
        bloom, heads, chain = [0] * BLOOM, [0] * BUCKETS, []
        hashes = [gnu_hash(n) for n in self.order]
        for i, (name, h) in enumerate(zip(self.order, hashes, strict=True)):
            self.put(self.symbols_at + 24 * (self.first + i), "IBBHQQ", text[name], 0x12, 0, 1, place[name], 10)
            bloom[h // 64 % BLOOM] |= 1 << h % 64 | 1 << (h >> SHIFT) % 64
            heads[h % BUCKETS] = heads[h % BUCKETS] or self.first + i
            last = i + 1 == len(hashes) or hashes[i + 1] % BUCKETS != h % BUCKETS
            chain.append(h & ~1 | last)
        self.image[self.strings_at : self.strings_at + len(self.strings.data)] = self.strings.data
        layout = f"IIII{BLOOM}Q{BUCKETS}I{len(chain)}I"
        self.put(self.hash_at, layout, BUCKETS, self.first, BLOOM, SHIFT, *bloom, *heads, *chain)
        own = 2 if self.version else 1
        numbers = [0] + [1] * len(self.imports) + [own] * len(self.names)
        self.put(self.versions_at, f"{len(numbers)}H", *numbers)
        if self.version:  # two definitions: the library itself, and its version
            for k, (name, base) in enumerate(((self.soname, 1), (self.version, 0))):
                row = (1, base, k + 1, 1, sysv_hash(name), 20, 28 * (1 - k), text[name], 0)
                self.put(self.defined_at + 28 * k, "HHHHIIIII", *row)

    def _dynamic(self) -> None:
        for i, (at, info, addend) in enumerate(self.relocated):
            self.put(self.relocations_at + 24 * i, "QQq", at, info, addend)
        text = self.strings.at
        tags = [
            (1, text["libc.so.6"]), (1, text["libdl.so.2"]), (14, text[self.soname]), (0x6FFFFEF5, self.hash_at),
            (5, self.strings_at), (10, len(self.strings.data)), (6, self.symbols_at), (11, 24),
            (7, self.relocations_at), (8, 24 * len(self.relocated)), (9, 24), (24, 0),
        ]  # fmt: skip
        if self.version:
            tags += [(0x6FFFFFF0, self.versions_at), (0x6FFFFFFC, self.defined_at), (0x6FFFFFFD, 2)]
        for i, (tag, value) in enumerate((*tags, (0, 0))):
            self.put(self.dynamic_at + 16 * i, "QQ", tag, value)

    def _headers(self) -> None:
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        self.image[:64] = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 64, 0, 0, 64, 56, 5, 64, 0, 0)
        segments = [  # type, flags, offset, bytes: what is read, run and written, the dynamic table, a plain stack
            (1, 4, 0, self.text_at), (1, 5, self.text_at, self.data_at - self.text_at),
            (1, 6, self.data_at, self.end - self.data_at), (2, 6, self.dynamic_at, 16 * 24), (0x6474E551, 6, 0, 0),
        ]  # fmt: skip
        for i, (kind, flags, at, size) in enumerate(segments):
            align = PAGE if kind == 1 else 16
            self.put(64 + 56 * i, "IIQQQQQQ", kind, flags, at, at, at, size, size, align)

    def _sections(self) -> None:
        """Section headers, after all that is loaded: `ld -lcuda` finds the symbols by them, not by the segments."""
        symbols, text = 1 + len(self.imports) + len(self.names), self.data_at - self.text_at
        rows: list[tuple[str, Section]] = [
            ("", Section(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
            (".text", Section(0, PROGBITS, ALLOC | EXECUTE, 0, self.text_at, text, 0, 0, PAGE, 0)),
            (".dynsym", Section(0, DYNSYM, ALLOC, 0, self.symbols_at, 24 * symbols, 3, 1, 8, 24)),
            (".dynstr", Section(0, STRTAB, ALLOC, 0, self.strings_at, len(self.strings.data), 0, 0, 1, 0)),
            (".gnu.hash", Section(0, GNU_HASH, ALLOC, 0, self.hash_at, self.versions_at - self.hash_at, 2, 0, 8, 0)),
            (".dynamic", Section(0, DYNAMIC, ALLOC | WRITE, 0, self.dynamic_at, 16 * 24, 3, 0, 16, 16)),
        ]
        if self.version:
            rows += [
                (".gnu.version", Section(0, GNU_VERSYM, ALLOC, 0, self.versions_at, 2 * symbols, 2, 0, 8, 2)),
                (".gnu.version_d", Section(0, GNU_VERDEF, ALLOC, 0, self.defined_at, 2 * 28, 3, 2, 8, 0)),
            ]
        names = Strings()
        at = [names.add(name) if name else 0 for name, _ in rows]
        own = names.add(".shstrtab")
        rows.append((".shstrtab", Section(0, STRTAB, 0, 0, self.end, len(names.data), 0, 0, 1, 0)))
        headers_at = up(self.end + len(names.data), 8)
        self.put(40, "Q", headers_at)
        self.put(60, "HH", len(rows), len(rows) - 1)
        self.image += names.data + bytes(headers_at - self.end - len(names.data))
        for name, (_, row) in zip((*at, own), rows, strict=True):
            place = row.offset if row.flags & ALLOC else 0
            self.image += struct.pack("<IIQQQQIIQQ", *row._replace(name=name, address=place))
