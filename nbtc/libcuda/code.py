"""Loaded code: modules of PTX, their kernels and variables."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from nbtc.errors import NbtcError
from nbtc.executor.launch.launch import GridShape, obeyed
from nbtc.executor.program import Module
from nbtc.libcuda import fatbin, host
from nbtc.libcuda.errors import INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND, CudaError, say
from nbtc.libcuda.memory import Block, Kind, memory
from nbtc.libcuda.state import current_or_none, handles, numbers, processor

ELF = 0x464C457F
REGISTERS = 64  # that a thread is said to take: nobody assembles the program, so the true number is unknown
STATIC_SHARED = 48 << 10  # bytes of shared memory that a kernel has without asking for more
LARGE_TEXT = 1 << 16  # characters from which kernels are read when they are first asked for: 0.3 s together (measured)
MOST_GEOMETRIES = 1 << 10
MACHINE_CODE = "is machine code without PTX, which nbtc can't run: have nvcc write PTX too (-gencode arch=...,code=...)"


def texts_of(image: int, what: str = "a module") -> list[str]:
    """The PTX of what a client hands over: text, or a fat binary; the newest that the device can run."""
    if not image:
        raise CudaError(INVALID_VALUE)
    magic = host.u32(image)
    if magic in (fatbin.WRAPPER, fatbin.FATBIN):
        return _of_entries(fatbin.entries_at(image), what)
    if magic == ELF:
        say(f"{what} {MACHINE_CODE}")
        raise CudaError(NO_BINARY_FOR_GPU)
    text = host.text(image, 1 << 28).decode("utf-8", "replace")
    if ".version" not in text:
        raise CudaError(INVALID_IMAGE)
    return [text]


def _of_entries(entries: Sequence[fatbin.Entry], what: str) -> list[str]:
    number = processor().number
    found = [e for e in entries if e.kind == fatbin.PTX and e.arch <= number]
    if not found:
        have = sorted({f"{'PTX' if e.kind == fatbin.PTX else 'machine code'} for sm_{e.arch}" for e in entries})
        say(f"{what} has {', '.join(have) or 'nothing'}: nbtc needs PTX that {processor().arch} can run")
        raise CudaError(NO_BINARY_FOR_GPU)
    best = max(e.arch for e in found)
    return [e.text() for e in found if e.arch == best]


class Loaded:
    """A loaded module."""

    def __init__(self, texts: Sequence[str]) -> None:
        try:
            text = "\n".join(texts)
            self.module = Module(text, processor().arch, by_kernel=len(text) >= LARGE_TEXT)
        except NbtcError as error:
            say(f"{type(error).__name__}: {error}")
            raise CudaError(INVALID_PTX) from error
        self.functions: dict[str, Function] = {}
        self.context: Any = None
        self.library: Library | None = None
        self.handle = 0
        self.ranges: list[int] = []
        for one in self.module.own_memory:
            if one.bytes:
                block = Block(one.first, one.bytes, Kind.MODULE, 0, one.keeps, next(numbers), current_or_none())
                self.ranges.append(memory.add(block))

    def shared_handle(self) -> int:
        """The handle that all who ask for this module get."""
        if not self.handle:
            self.handle = handles.add(self)
        return self.handle

    def function(self, name: str) -> Function:
        """A kernel by its name in the text."""
        found = self.functions.get(name)
        if found is None:
            declared = self.module.ptx.functions.get(name)
            if declared is None or not declared.entry:
                raise CudaError(NOT_FOUND)
            found = self.functions[name] = Function(self, name)
        return found

    def variable(self, name: str) -> tuple[int, int]:
        """Address and bytes of a variable."""
        try:
            found = self.module.globals[name]
        except KeyError:
            raise CudaError(NOT_FOUND) from None
        return found.ctypes.data, found.nbytes

    def unload(self) -> None:
        """Its kernels and variables are gone."""
        for first in self.ranges:
            memory.free(first, Kind.MODULE)
        self.ranges.clear()
        for function in self.functions.values():
            handles.drop(function.handle)
        self.functions.clear()


class Function:
    """A kernel of a loaded module."""

    remembered = True  # compiled calls know its handle

    def __init__(self, loaded: Loaded, name: str) -> None:
        self.loaded, self.name = loaded, name
        self.program = loaded.module[name]
        self.parameters: list[tuple[int, int]] = []  # offset and bytes
        at = 0
        for p in self.program.params:
            at += -at % p.alignment
            self.parameters.append((at, p.bytes))
            at += p.bytes
        self.bytes = at
        ptx = loaded.module.ptx
        declared = ptx.functions[name]  # its instructions are read where no machine code of them is on disk
        self.directives = declared.directives
        static = [v for v in (*declared.variables, *ptx.variables.values()) if v.bytes]

        def total(space: str) -> int:
            return sum(v.bytes for v in static if v.space == space)

        self.virtual_architecture = int("".join(c for c in ptx.target if c.isdigit()))  # 90 of sm_90a
        self.shared, self.local, self.constant = total("shared"), total("local"), total("const")
        most = declared.directives.get("maxntid") or declared.directives.get("reqntid")
        self.threads = min(1024, math.prod(most)) if most else 1024
        self.dynamic = max(0, STATIC_SHARED - self.shared)  # bytes of dynamic shared memory that it may have now
        self.attributes: dict[int, int] = {}
        self.geometries: dict[Any, GridShape] = {}
        self.old: dict[str, Any] = {}  # what the launches of CUDA 3 set one by one
        self.label_at = constant_text(name.encode() + b"\0")
        self.handle = handles.add(self)

    def geometry(self, grid: tuple[int, ...], block: tuple[int, ...], cluster: Any) -> GridShape:
        """The extents of a launch, checked once."""
        key = (grid, block, cluster)
        found = self.geometries.get(key)
        if found is None:
            if len(self.geometries) > MOST_GEOMETRIES:
                self.geometries.clear()
            found = self.geometries[key] = obeyed(self.directives, grid, block, cluster)
        return found


_texts: dict[bytes, int] = {}


def constant_text(text: bytes) -> int:
    """The address of a constant text of C, which ends with a zero."""
    found = _texts.get(text)
    if found is None:
        found = _texts[text] = handles.buffer(len(text))
        ctypes.memmove(found, text, len(text))
    return found


class Library:
    """A library of kernels: read when it is first asked for something, as CUDA does by default."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts, self._loaded = texts, list[Loaded]()
        self.handle = 0

    @property
    def loaded(self) -> Loaded:
        """Its module."""
        if not self._loaded:
            made = Loaded(self.texts)
            made.library = self
            self._loaded.append(made)
        return self._loaded[0]

    def unload(self) -> None:
        """Give back the module."""
        for one in self._loaded:
            one.unload()
        self._loaded.clear()
