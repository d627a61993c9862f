"""The host's side of tensor memory and block scales: what compiled code asks `tensor_memory` and `scaled_product` for.

Every block has tensor memory from its first allocation to its last deallocation.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import BoundsError, HazardError, NbtcError, OptionError, ProgramError
from nbtc.executor.emit.state import BLOCK, LAUNCH, WARP, read_field
from nbtc.executor.watch import products, service
from nbtc.fragments.scales import ScaleRegister
from nbtc.fragments.smem_descriptors import UNIT
from nbtc.isa.parse import row as parse_row
from nbtc.ops.mma.scaled import execute
from nbtc.ops.mma.vector_code import present
from nbtc.ops.tcgen05.memory import LANES, Region, TensorMemory
from nbtc.ops.tcgen05.moves import SHAPES, cp, places
from nbtc.ops.tcgen05.product import mma

WARP_LANES, QUARTER, LOW = 32, 32, 0xFFFFFFFF


def _image(address: int, registers: int) -> NDArray[np.uint32]:
    """A [register][lane] image in a worker's memory."""
    words = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint32))
    return np.ctypeslib.as_array(words, (registers, WARP_LANES))


class Allocated(NamedTuple):
    """Columns of a block's tensor memory, and the line of the text that allocated them."""

    block: int
    address: int
    columns: int
    line: int


class TensorAnswers:
    """Answers the questions of one launch."""

    def __init__(self) -> None:
        self._memories: dict[int, TensorMemory] = {}
        self._lines: dict[tuple[int, int], int] = {}  # of each allocation: (block, address) -> line
        # of checked launches, by block: columns -> the epoch of the last operation that writes them
        self._written: dict[int, dict[Region, int]] = {}
        self._ways = {
            "alloc": self._alloc, "dealloc": self._dealloc, "relinquish": self._relinquish, "ld": self._move,
            "st": self._move, "cp": self._copy, "mma": self._multiply, "scaled": self._scaled,
        }  # fmt: skip

    def answer(self, row: Any, thread: Any) -> None:
        """One question of a lane: its text, "line what ...", and words."""
        line, what, *rest = ctypes.string_at(int(row[0])).decode().split(" ")
        more = {"ld": [what], "st": [what], "alloc": [line]}.get(what, [])
        try:
            self._ways[what](row, thread, more + rest)
        except NbtcError as error:
            raise ProgramError(f"line {line}: tcgen05.{what}: {error}" if what != "scaled" else str(error)) from error

    def _memory(self, block: int, new: bool = False) -> TensorMemory:
        index = read_field(BLOCK, block, "index")
        if index not in self._memories and not new:
            raise OptionError("the block has allocated no tensor memory: it needs tcgen05.alloc first")
        return self._memories.setdefault(index, TensorMemory(check=False))

    # --- allocation -------------------------------------------------------------------------------------------------
    def _alloc(self, row: Any, thread: Any, rest: list[str]) -> None:
        row[0] = self._memory(thread.block, new=True).alloc(int(row[1]))
        self._lines[read_field(BLOCK, thread.block, "index"), int(row[0])] = int(rest[0])

    def kept(self) -> Allocated | None:
        """An allocation that nobody has given back, as all have to be ("Tensor Memory Allocation and Management")."""
        found = (
            Allocated(block, address, columns, self._lines[block, address])
            for block, memory in sorted(self._memories.items())
            for address, columns in memory.allocated.items()
        )
        return next(found, None)

    def _dealloc(self, row: Any, thread: Any, rest: list[str]) -> None:
        memory = self._memory(thread.block)
        memory.dealloc(int(row[1]), int(row[2]))
        if not memory.allocated and memory.relinquished:
            del self._memories[read_field(BLOCK, thread.block, "index")]

    def _relinquish(self, row: Any, thread: Any, rest: list[str]) -> None:
        self._memory(thread.block).relinquished = True

    # --- moves ------------------------------------------------------------------------------------------------------
    def _move(self, row: Any, thread: Any, rest: list[str]) -> None:
        what, shape = rest[:2]
        times, packed, registers = (int(n) for n in rest[2:])
        memory, address = self._memory(thread.block), int(row[1])
        lane, column = places(shape, times, int(row[3]))
        if registers != lane.shape[1]:
            raise OptionError(f"{shape}.x{times} moves {lane.shape[1]} registers a thread, not {registers}")
        column = 2 * column if packed else column
        first, last = memory.region(address & LOW, int(column.max()) + 1 + packed, "the move")
        quarter = QUARTER * (read_field(WARP, thread.warp, "index") % (LANES // QUARTER))
        if not quarter <= address >> 16 <= quarter + QUARTER - SHAPES[shape][2]:
            raise BoundsError(
                f"{shape} at lane {address >> 16}: this warp reaches lanes {quarter} to {quarter + QUARTER - 1}"
            )
        at = (lane + (address >> 16)).T, (column + first).T
        image = _image(int(row[2]), registers)
        if what == "ld":
            self._complete(thread, (first, last))
            upper = memory.words[at[0], at[1] + 1] << np.uint32(16) if packed else np.uint32(0)
            image[:] = (memory.words[at] & np.uint32(0xFFFF if packed else LOW)) | upper
        elif packed:
            memory.words[at], memory.words[at[0], at[1] + 1] = image & np.uint32(0xFFFF), image >> np.uint32(16)
        else:
            memory.words[at] = image

    def _copy(self, row: Any, thread: Any, rest: list[str]) -> None:
        memory = self._memory(thread.block)
        cp(memory, int(row[1]), int(row[2]), _shared(thread.launch, thread.block), rest[0])
        self._done(memory, thread, thread.block, int(rest[1]))

    # --- products ---------------------------------------------------------------------------------------------------
    def _multiply(self, row: Any, thread: Any, rest: list[str]) -> None:
        mnemonic, arch, from_memory, site = rest
        pair = "cta_group::2" in mnemonic
        blocks = _pair(thread.block) if pair else [thread.block]
        memories = [self._memory(block) for block in blocks]
        shared = [_shared(thread.launch, block) for block in blocks]
        idesc, scales = int(row[4]), int(row[5])
        scaled = (scales & LOW, scales >> 32) if "block_scale" in mnemonic else (None, None)
        mma(
            mnemonic, memories if pair else memories[0], int(row[1]), int(row[2]), int(row[3]), idesc & LOW,
            shared if pair else shared[0], a_in_tmem=from_memory == "1", enable_d=bool(idesc >> 32),
            scale_a=scaled[0], scale_b=scaled[1], arch=arch,
        )  # fmt: skip
        for memory, block in zip(memories, blocks, strict=True):
            self._done(memory, thread, block, int(site))

    def _done(self, memory: TensorMemory, thread: Any, block: int, site: int) -> None:
        """Operations are complete when they are issued; a checked launch goes on watching what they read and write."""
        written = self._written.setdefault(read_field(BLOCK, block, "index"), {}) if site >= 0 else {}
        for operation in memory.pending if site >= 0 else ():
            written[operation.writes] = products.operation_of(thread.block, thread.warp)
            if operation.source is not None:
                units = np.unique(operation.source[1] // UNIT * UNIT)
                base = read_field(BLOCK, block, "shared")
                _sources()(thread.block, thread.warp, thread.lane, base, units.ctypes.data, len(units), site)
        memory.pending.clear()

    def _complete(self, thread: Any, columns: Region) -> None:
        """Whether the warp that loads knows that what writes these columns is done."""
        written = self._written.get(read_field(BLOCK, thread.block, "index"), {})
        for (first, last), stamp in written.items():
            overlap = first < columns[1] and columns[0] < last
            if overlap and not products.known(thread.block, thread.warp, stamp):
                raise HazardError(
                    f"asynchronous operation still under way: a tcgen05.mma or tcgen05.cp writes columns {first} to "
                    f"{last - 1} of tensor memory; wait for the phase of the mbarrier of a tcgen05.commit first, or at "
                    "a barrier for threads that have"
                )

    def _scaled(self, row: Any, thread: Any, rest: list[str]) -> None:
        mnemonic, arch, *numbers = rest
        form, selected = parse_row(mnemonic), [int(n) for n in numbers]
        a, b, c, d = (
            _image(int(at), present(o).registers).T
            for at, o in zip(row[1:5], (form.a, form.b, form.c, form.d), strict=True)
        )
        scales = _image(int(row[5]), 2)
        of_a, of_b = ScaleRegister(scales[0], *selected[:2]), ScaleRegister(scales[1], *selected[2:])
        d[:] = execute(form, a, b, c, of_a, of_b, arch, 1)


@cache
def _sources() -> Any:
    """`tensor_sources`, for callers in Python."""
    kernel = products.tensor_sources
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * service.words(kernel))(service.entry(kernel).address)


def _shared(launch: int, block: int) -> NDArray[np.uint8]:
    """A block's shared memory."""
    octets = ctypes.cast(read_field(BLOCK, block, "shared"), ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(octets, (read_field(LAUNCH, launch, "shared_bytes"),))


def _pair(block: int) -> list[int]:
    """The two blocks of a cluster that share products, the even one first."""
    table = ctypes.cast(read_field(BLOCK, block, "peers"), ctypes.POINTER(ctypes.c_uint64))
    even = read_field(BLOCK, block, "cluster_rank") & ~1
    return [int(table[even]), int(table[even + 1])]
