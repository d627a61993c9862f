"""The host's side of system calls: what a program prints, asserts, allocates or launches, a question a lane."""

from __future__ import annotations

import ctypes
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbtc.errors import ProgramError
from nbtc.executor.control.host_requests import Ask
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.state import BLOCK, LAUNCH, LOCAL_WINDOW, SHARED_WINDOW, WARP, read_field, write_field
from nbtc.executor.launch.children import ERRORS, UNKNOWN, Children, Transfer
from nbtc.executor.launch.device_heap import HEAP_BYTES, Heap
from nbtc.executor.launch.launch import CALLBACK, LANES
from nbtc.executor.launch.printf import Values, formatted

if TYPE_CHECKING:
    from nbtc.executor.launch.tensor_services import Allocated, TensorAnswers
    from nbtc.executor.watch.heap import HeapCells

ROWS = 6  # words a question may have in each lane
MOST_TEXT = 1 << 16  # characters of a %s, should its end be missing
TAG = 56


class _Thread(NamedTuple):
    """The thread that asks: addresses of its launch, block and warp, and its lane."""

    launch: int
    block: int
    warp: int
    lane: int

    def stop(self) -> None:
        """End the launch."""
        write_field(LAUNCH, self.launch, "stop", 1)

    def indices(self) -> tuple[int, int]:
        """Of the block in the grid, and of the thread in the block."""
        index = read_field(BLOCK, self.block, "index")
        return index, LANES * read_field(WARP, self.warp, "index") + self.lane

    def fail(self, kind: ErrorKind, site: int) -> None:
        """Record an error unless there is one, and end the launch."""
        if not read_field(LAUNCH, self.launch, "failed"):
            write_field(LAUNCH, self.launch, "failed", 1)
            write_field(LAUNCH, self.launch, "error_kind", kind)
            write_field(LAUNCH, self.launch, "error_site", site)
            block, thread = self.indices()
            write_field(LAUNCH, self.launch, "error_block", block & 0xFFFFFFFF)
            write_field(LAUNCH, self.launch, "error_thread", thread)
        self.stop()

    def string(self, address: int) -> str:
        """A text that ends with a zero byte, at a generic address."""
        tag, offset = address >> TAG << TAG, address & ((1 << TAG) - 1)
        limit = MOST_TEXT
        if tag == SHARED_WINDOW:
            address = read_field(BLOCK, self.block, "shared") + offset
            limit = read_field(LAUNCH, self.launch, "shared_bytes") - offset
        elif tag == LOCAL_WINDOW:
            size = read_field(LAUNCH, self.launch, "local_bytes")
            thread = LANES * read_field(WARP, self.warp, "index") + self.lane
            address, limit = read_field(BLOCK, self.block, "local") + thread * size + offset, size - offset
        elif (limit := self._buffer(address)) == 0:
            return "(bad address)"
        raw = ctypes.string_at(address, max(0, min(limit, MOST_TEXT)))
        return raw.split(b"\0", 1)[0].decode("utf-8", "replace")

    def _buffer(self, address: int) -> int:
        """Bytes from an address to the end of the memory it lies in."""
        count = read_field(LAUNCH, self.launch, "range_count")
        table = ctypes.cast(read_field(LAUNCH, self.launch, "ranges"), ctypes.POINTER(ctypes.c_uint64))
        rows = ((table[3 * i], table[3 * i + 1]) for i in range(count))
        return max((first + size - address for first, size in rows if first <= address < first + size), default=0)


class Answers:
    """Answers the questions of one launch."""

    def __init__(self, heap: Heap | None, cells: HeapCells | None, children: Children) -> None:
        self.heap, self.cells, self.children = heap, cells, children
        self.text: list[str] = []
        self.assertion = ""
        self.error: BaseException | None = None
        self.callback = CALLBACK(self._answer)
        self._ways = {
            Ask.PRINT: self._print,
            Ask.ASSERT: self._assert,
            Ask.MALLOC: self._malloc,
            Ask.FREE: self._free,
            Ask.TENSOR: self._tensor_memory,
            Ask.PARAMETERS: self._parameters,
            Ask.LAUNCH: self._launch,
            Ask.COPY: self._copy,
            Ask.FILL: self._fill,
            Ask.ERROR: self._error,
        }

    def _answer(self, launch: int, block: int, warp: int, what: int, mask: int, words: int) -> int:
        rows = np.ctypeslib.as_array(ctypes.cast(words, ctypes.POINTER(ctypes.c_uint64)), (ROWS, LANES))
        try:
            for lane in range(LANES):
                if mask >> lane & 1:
                    self._ways[Ask(what)](rows[:, lane], _Thread(launch, block, warp, lane))
        except BaseException as error:  # it must not pass through compiled code: the launcher raises it
            self.error = self.error or error
            _Thread(launch, block, warp, 0).stop()
            return -1
        return 0

    @cached_property
    def _tensor(self) -> TensorAnswers:
        from nbtc.executor.launch.tensor_services import TensorAnswers

        return TensorAnswers()

    def _tensor_memory(self, row: Any, thread: _Thread) -> None:
        self._tensor.answer(row, thread)

    def kept(self) -> Allocated | None:
        """Tensor memory that is allocated when its block has ended."""
        return self._tensor.kept() if "_tensor" in vars(self) else None

    def _print(self, row: Any, thread: _Thread) -> None:
        text = _plain(row[0])
        values = Values(int(row[1]), text)
        self.text.append(formatted(text, values, thread.string))
        row[0] = values.count  # what device printf returns (CUDA C++ Programming Guide, "Formatted Output")

    def _assert(self, row: Any, thread: _Thread) -> None:
        message, file, function = (_plain(p) for p in row[:3])
        self.assertion = f"{file}:{int(row[3]) & 0xFFFFFFFF}: {function}: assertion `{message}` failed"
        thread.fail(ErrorKind.ASSERT, int(row[4]))

    def _malloc(self, row: Any, thread: _Thread) -> None:
        row[0] = self._taken(int(row[0]), int(row[1]), thread)

    def _taken(self, size: int, site: int, thread: _Thread) -> int:
        """Memory of the heap, or 0 when there is no room."""
        found = self.heap.take(size) if self.heap else 0
        if self.cells is not None:
            self.cells.take(found, size, site, *thread.indices())
        return found

    def _free(self, row: Any, thread: _Thread) -> None:
        self._given_back(int(row[0]), int(row[1]), thread)

    def _given_back(self, address: int, site: int, thread: _Thread) -> None:
        if address and not (self.heap and self.heap.give(address)):
            thread.fail(ErrorKind.FREE, site)
        elif self.cells is not None:
            self.cells.give(address)

    def _parameters(self, row: Any, thread: _Thread) -> None:
        child = self.children.wanted(row)
        row[0] = self._taken(max(1, len(child.parameters)), int(row[5]), thread)
        if not row[0]:
            raise ProgramError(
                f"{child.kernel}: the heap of {HEAP_BYTES >> 20} MiB is full, its parameters find no room"
            )
        self.children.waiting[int(row[0])] = child

    def _launch(self, row: Any, thread: _Thread) -> None:
        address, stream, site = (int(x) for x in row[:3])
        if address not in self.children.waiting:
            raise ProgramError(f"a kernel launches with parameters at {address:#x}, which is not a buffer for them")
        raw = ctypes.string_at(address, len(self.children.waiting[address].parameters))
        self.children.launch(address, stream, raw)
        self._given_back(address, site, thread)

    def _copy(self, row: Any, thread: _Thread) -> None:
        to, origin, size, stream = (int(x) for x in row[:4])
        self.children.launched.append(Transfer(to, size, origin, 0, stream))

    def _fill(self, row: Any, thread: _Thread) -> None:
        self.children.launched.append(Transfer(int(row[0]), int(row[2]), None, int(row[1]) & 0xFF, int(row[3])))

    def _error(self, row: Any, thread: _Thread) -> None:
        row[0] = self.heap.text(ERRORS.get(int(row[0]) & 0xFFFFFFFF, UNKNOWN)[int(row[1])]) if self.heap else 0

    def end(self) -> None:
        """Print what the program printed, and let go of the heap's granules, 16 MB.

        `ctypes.cast` of a callback makes a cycle, so this object waits for garbage collection, which counts objects:
        launches that kept their granules meanwhile took 600 MB of a process (measured).
        """
        self.cells = None
        if self.text:
            sys.stdout.write("".join(self.text))


def _plain(address: Any) -> str:
    return ctypes.string_at(int(address)).decode("utf-8", "replace")
