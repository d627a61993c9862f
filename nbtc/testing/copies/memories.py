"""What programs of copies read and write, a move of it in abstract, and the arithmetic of reductions in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
IMAGE = 24 << 10  # bytes of a block's shared memory that are moved to and from
SOURCE, MEMORY = 8 << 10, 8 << 10  # bytes of global memory of a block and round: read; written
BARRIERS = 4  # mbarriers that count bytes; one more counts the threads of a warp
WARP_BARRIER = BARRIERS
NANS = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}  # what sums that are no number are


@dataclass
class Memories:
    """All memory of a program.

    source, memory: (blocks, rounds, bytes).  shared: (blocks, bytes).  tensors: by their numbers.  turn: the round.
    """

    cluster: int
    source: Bytes
    shared: Bytes
    memory: Bytes
    tensors: list[Bytes]
    turn: int = 0

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """Each block with its peer, which in a cluster of one is itself, and its slot: a number of block and round."""
        for block in range(len(self.shared)):
            yield block, block ^ (self.cluster - 1), block * self.source.shape[1] + self.turn

    def read(self, block: int, at: int, size: int) -> Bytes:
        """A part of a block's source."""
        return self.source[block, self.turn, at : at + size]


@dataclass(frozen=True)
class Move:
    """What a warp or one of its threads does.

    warp: which.  written, read: first byte and bytes in shared memory, of the block or of its peer.
    """

    warp: int
    written: tuple[int, int] = (0, 0)
    read: tuple[int, int] = (0, 0)
    barrier: int = -1  # the mbarrier that counts its bytes, in the block that gets them
    one_thread: ClassVar[bool] = False
    groups: ClassVar[str] = ""  # "async" or "bulk": the group that it is a part of

    @property
    def told(self) -> int:
        """Bytes that the mbarrier of each block is told of."""
        return 0

    def lines(self) -> list[str]:
        """Its PTX, in which all that the program's head declares is at hand."""
        raise NotImplementedError

    def apply(self, m: Memories) -> None:
        """Its effect on all blocks."""
        raise NotImplementedError

    def at(self, register: str, offset: int, base: str = "%shared") -> str:
        """Set a register to an address in shared memory."""
        return f"add.u32 {register}, {base}, {offset};"

    def mbarrier(self, base: str = "%shared") -> str:
        """Set %bar to the address of its mbarrier."""
        return f"add.u32 %bar, {base}, {IMAGE + 8 * self.barrier};"


# --- reductions -----------------------------------------------------------------------------------------------------
# what may be reduced in global memory, and in another block's shared memory (PTX ISA, "cp.reduce.async.bulk")
TO_MEMORY = (
    *(("add", t) for t in ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16")),
    *((o, t) for o in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    *((o, t) for o in ("and", "or", "xor") for t in ("b32", "b64")), ("inc", "u32"), ("dec", "u32"),
)  # fmt: skip
TO_OTHERS = (
    ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "u32"), ("max", "u32"), ("min", "s32"), ("max", "s32"),
    ("inc", "u32"), ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"),
)  # fmt: skip
_SINGLE = np.float32


def size_of(name: str) -> int:
    """Bytes of an element: of "noftz.bf16" two."""
    return int(name.split(".")[-1].lstrip("bfsu")) // 8


def reduced(operation: str, name: str, x: Bytes, y: Bytes) -> Bytes:
    """x op y of bytes that hold elements of a type; x is what was there."""
    kind = name.split(".")[-1]
    if kind in ("f16", "bf16"):
        return _halves(operation, kind, x.view(np.uint16), y.view(np.uint16)).view(np.uint8)
    if kind[0] == "f":
        dtype = f"<f{size_of(kind)}"
        with np.errstate(all="ignore"):
            total = x.view(dtype) + y.view(dtype)
        found = np.ascontiguousarray(total).view(np.uint8)
        if kind == "f32":
            found.view(np.uint32)[np.isnan(total)] = NANS[kind]
        else:  # memory keeps a NaN as it is, the operand's before its own
            old, new = x.view(dtype), y.view(dtype)
            words = found.view(np.uint64)
            words[np.isnan(total)] = 0xFFF8000000000000
            for operand in (old, new):
                words[np.isnan(operand)] = np.ascontiguousarray(operand).view(np.uint64)[np.isnan(operand)]
        return found
    dtype = f"<{'i' if kind[0] == 's' else 'u'}{size_of(kind)}"
    a, b = x.view(dtype), y.view(dtype)
    with np.errstate(over="ignore"):
        found = _INTEGERS[operation](a, b)
    return np.ascontiguousarray(found).view(np.uint8)


_INTEGERS: dict[str, Any] = {
    "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "inc": lambda a, b: np.where(a >= b, 0, a + 1).astype(a.dtype),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1).astype(a.dtype),
}  # fmt: skip


def _halves(operation: str, kind: str, x: NDArray[np.uint16], y: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Of 16-bit floats: sums are rounded to nearest even, min and max ignore a NaN and put -0 before +0."""

    def single(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
        wide = bits.view(np.float16).astype(_SINGLE) if kind == "f16" else bits.astype(np.uint32) << np.uint32(16)
        return wide.view(_SINGLE)

    with np.errstate(all="ignore"):
        a, b = single(x), single(y)
        if operation == "add":
            total = a + b  # exact enough: 24 bits are twice the 11 of a half and two more
            if kind == "f16":
                found = total.astype(np.float16).view(np.uint16)
            else:
                bits = total.view(np.uint32)
                found = ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(
                    np.uint16
                )
            return np.where(np.isnan(total), np.uint16(NANS[kind]), found)
    less = (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))
    found = np.where(less == (operation == "min"), x, y)
    found = np.where(np.isnan(a), y, np.where(np.isnan(b), x, found))
    return np.where(np.isnan(a) & np.isnan(b), np.uint16(NANS[kind]), found)
