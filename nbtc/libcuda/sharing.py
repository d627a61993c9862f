"""The device's memory in several processes: tickets, by which one lets another in.

Device memory lies in a file in memory.  A ticket names the process, its descriptor of that file, and the place of an
allocation in it; another process of the same user opens the file by /proc and maps those pages.  The file begins with
a random name and the numbers of the allocations that tickets were made for, so that a ticket of memory that has been
freed, or of another process with the same number, is refused.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import struct
from enum import IntEnum
from typing import NamedTuple

from nbtc.libcuda.arena import READ_WRITE, SHARED, _libc
from nbtc.libcuda.errors import INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, CudaError
from nbtc.libcuda.memory import FILE, HEADER, Block, Kind, Outside, memory
from nbtc.libcuda.state import current_or_none, numbers

BY_FILE = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PHYSICAL, POOL = "nbtc-memory", "nbtc-pool"  # files of `cuMemCreate`, and those that stand for pools
MAGIC, PAGE = b"nbtc", 4096
LAYOUT = struct.Struct("<4sI16sIiIIQQQ")  # of the fields below after MAGIC: 64 bytes, as CUDA's opaque handles have
NUMBER = struct.Struct("<Q")
NAME_BYTES, FIRST_NUMBER = 16, 2  # the random name; where, in words, the numbers of allocations begin
_FAILED = ctypes.c_void_p(-1).value
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class What(IntEnum):
    """What a ticket is for."""

    MEMORY = 1
    EVENT = 2
    POOL = 3
    POOL_MEMORY = 4


class Ticket(NamedTuple):
    """A ticket; slot: which of the file's numbers is its allocation's; pool: the number of the pool that it is for."""

    what: int
    name: bytes
    process: int
    file: int
    slot: int = 0
    pool: int = 0
    number: int = 0
    offset: int = 0
    size: int = 0

    def packed(self) -> bytes:
        """As clients keep it."""
        return LAYOUT.pack(MAGIC, *self)


def ticket(raw: bytes, what: What) -> Ticket:
    """A ticket of a client's, which has to be for that."""
    magic, *fields = LAYOUT.unpack(raw)
    found = Ticket(*fields)
    if magic != MAGIC or found.what != what:
        raise CudaError(INVALID_VALUE)
    return found


class Exports:
    """What this process has let others into."""

    def __init__(self) -> None:
        self.name = b""
        self._slots: dict[int, int] = {}  # by numbers of allocations
        self._idle: list[int] = []
        self._next = FIRST_NUMBER

    def base(self, what: What) -> Ticket:
        """A ticket for the file itself."""
        file = memory.arena(True).file
        if file < 0:
            raise CudaError(NOT_SUPPORTED)
        if not self.name:
            self.name = secrets.token_bytes(NAME_BYTES)
            os.pwrite(file, self.name, 0)
            memory.when_freed.append(self._freed)
        return Ticket(what, self.name, os.getpid(), file)

    def of(self, block: Block, what: What, pool: int = 0) -> Ticket:
        """A ticket for an allocation, always the same."""
        with memory.lock:
            base = self.base(what)
            slot = self._slots.get(block.id)
            if slot is None:
                slot = self._slots[block.id] = self._idle.pop() if self._idle else self._fresh()
                os.pwrite(base.file, NUMBER.pack(block.id), slot * NUMBER.size)
        offset = HEADER + block.first - memory.arena(True).low
        return base._replace(slot=slot, pool=pool, number=block.id, offset=offset, size=block.bytes)

    def _fresh(self) -> int:
        if self._next == HEADER // NUMBER.size:
            raise CudaError(OUT_OF_MEMORY)
        self._next += 1
        return self._next - 1

    def _freed(self, block: Block) -> None:
        slot = self._slots.pop(block.id, None)
        if slot is not None:
            os.pwrite(memory.arena(True).file, NUMBER.pack(0), slot * NUMBER.size)
            self._idle.append(slot)


exports = Exports()


def is_ours(file: int, name: str) -> bool:
    """Whether a descriptor of this process is of one of nbtc's files."""
    return _named(f"/proc/self/fd/{file}", name)


def _named(path: str, name: str) -> bool:
    try:
        return os.readlink(path).startswith(f"/memfd:{name} ")
    except OSError:
        return False


def opened(given: Ticket) -> int:
    """The file of another process, which lives and has that name.

    Raises CudaError: INVALID_CONTEXT for a ticket of this process, as a GPU's driver does.
    """
    if given.name == exports.name and given.process == os.getpid():
        raise CudaError(INVALID_CONTEXT)
    path = f"/proc/{given.process}/fd/{given.file}"
    if not _named(path, FILE):
        raise CudaError(INVALID_VALUE)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise CudaError(INVALID_VALUE) from None
    if os.pread(file, NAME_BYTES, 0) != given.name:
        os.close(file)
        raise CudaError(INVALID_VALUE)
    return file


class Imported(Outside):
    """Memory of another process: the pages that an allocation lies in, and how often it was opened."""

    def __init__(self, first: int, given: Ticket, mapping: tuple[int, int]) -> None:
        super().__init__(first, given.size)
        self.ticket, self.mapping, self.users = given, mapping, 1


def let_in(given: Ticket, kind: Kind) -> int:
    """The address of another process's allocation in this one: always the same of what is opened again."""
    with memory.lock:
        for block in memory.blocks.values():
            if block.kind is kind is Kind.OPENED and block.owner.ticket == given:
                block.owner.users += 1
                return block.first
        file = opened(given)
        try:
            live = os.pread(file, NUMBER.size, given.slot * NUMBER.size) == NUMBER.pack(given.number)
            inside = given.offset >= HEADER and given.offset + given.size <= os.fstat(file).st_size
            if not live or not given.number or not inside or not given.size:
                raise CudaError(INVALID_VALUE)
            before = given.offset % PAGE
            length = -(-(before + given.size) // PAGE) * PAGE
            at = _libc.mmap(None, length, READ_WRITE, SHARED, file, given.offset - before)
        finally:
            os.close(file)
        if at in (None, _FAILED):
            raise CudaError(OUT_OF_MEMORY)
        first = int(at) + before
        owner = Imported(first, given, (int(at), length))
        return memory.add(Block(first, given.size, kind, 0, owner, next(numbers), current_or_none()))


def close(address: int) -> None:
    """Memory was opened once less; after the last time its pages are no longer mapped."""
    with memory.lock:
        block = memory.blocks.get(address)
        if block is None or block.kind is not Kind.OPENED:
            raise CudaError(INVALID_VALUE)
        block.owner.users -= 1
        if not block.owner.users:
            memory.free(address, Kind.OPENED)


def _unmap(block: Block) -> None:
    if isinstance(block.owner, Imported):
        _libc.munmap(*block.owner.mapping)


memory.when_freed.append(_unmap)
