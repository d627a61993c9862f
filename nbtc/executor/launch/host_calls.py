"""The host's side of what programs ask for: formatted output, assertions, memory from `malloc`."""

from __future__ import annotations

import ctypes
import math
import re
import sys
from bisect import bisect
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import ProgramError
from nbtc.executor.control.host_requests import Ask
from nbtc.executor.emit.errors import Kind
from nbtc.executor.emit.state import BLOCK, LAUNCH, LOCAL_WINDOW, SHARED_WINDOW, WARP, read_field, write_field
from nbtc.executor.launch.children import ERRORS, UNKNOWN, Children, Transfer
from nbtc.executor.launch.launch import CALLBACK, LANES
from nbtc.executor.launch.tensor_services import TensorAnswers
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.watch.heap import Given, HeapCells

HEAP_BYTES = 8 << 20  # CUDA's default heap (cudaLimitMallocHeapSize)
HEAP_MARGIN = 4096  # bytes of nobody on both sides: what misses an array beside the heap is outside all memory
HEAP_ALIGN = 16
ROWS = 6  # words a question may have in each lane
MOST_TEXT = 1 << 16  # characters of a %s, should its end be missing
TAG = 56
_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?"
    r"(?P<size>hh|h|ll|l)?(?P<kind>[diuoxXfFeEgGaAcsp%])"
)  # other sizes and kinds (z, j, t, L, q, n) are printed as they stand
_BITS = {"hh": 8, "h": 16, "l": 64, "ll": 64}
_TAIL = 8  # bytes of the format that lie after the values in the device's buffer


class Values:
    """The values after a format, each at a multiple of its size.

    Device code copies the values that the format announces, but does not know the size hh: what is read beyond the
    copy is the format's own text, which follows it (program print, recorded on an H200; the CUDA C++ Programming Guide
    leaves hh out).
    """

    def __init__(self, address: int, text: str) -> None:
        self.at = self.count = 0  # bytes and values taken
        copied = 0
        for match in _SPECIFIER.finditer(text):
            for size in _sizes(match):
                copied = -(-copied // size) * size + size
        self.bytes = (ctypes.string_at(address, copied) if copied else b"") + text.encode()[:_TAIL]

    def take(self, size: int) -> int:
        """The next value's bits; zeros where there is nothing left."""
        self.at = -(-self.at // size) * size
        raw = self.bytes[self.at : self.at + size]
        self.at += size
        self.count += 1
        return int.from_bytes(raw, "little")


def _sizes(match: re.Match[str]) -> list[int]:
    """Bytes of the values that device code copies for one specifier."""
    stars = [4] * (match["width"] == "*") + [4] * (match["precision"] == "*")
    if match["kind"] == "%" or match["size"] == "hh":
        return stars if match["kind"] != "%" else []
    return [*stars, _value_bytes(match)]


def _value_bytes(match: re.Match[str]) -> int:
    eight = match["kind"] in "fFeEgGaAsp" or (match["kind"] in "diuoxX" and _BITS.get(match["size"], 32) == 64)
    return 8 if eight else 4


def formatted(text: str, values: Values, string: Callable[[int], str]) -> str:
    """C's printf, as device code calls it: values lie one after the other, floats as doubles."""

    def one(match: re.Match[str]) -> str:
        if match["kind"] == "%":
            return "%"
        flags, width, precision = match["flags"], match["width"], match["precision"]
        if width == "*":
            width = str(_signed(values.take(4), 32))
            flags, width = flags + "-" * width.startswith("-"), width.lstrip("-")
        if precision == "*":
            precision = str(_signed(values.take(4), 32))
        # C: a negative precision is none, and a dot alone is 0
        digits = None if precision is None or precision.startswith("-") else int(precision or 0)
        spec = Spec(flags, int(width or 0), digits, match["kind"])
        return _one(spec, _BITS.get(match["size"], 32), values.take(_value_bytes(match)), string)

    return _SPECIFIER.sub(one, text)


class Spec(NamedTuple):
    """A specifier of a format: flags, least width, precision if there is one, and kind."""

    flags: str
    width: int
    precision: int | None
    kind: str

    def padded(self, head: str, body: str, zeros: bool) -> str:
        """A value's sign and prefix, and what follows it, in the width; `zeros`: whether the flag 0 counts."""
        if zeros and "0" in self.flags and "-" not in self.flags:
            return head + body.zfill(self.width - len(head))
        return (head + body).ljust(self.width) if "-" in self.flags else (head + body).rjust(self.width)

    def sign(self, negative: bool) -> str:
        """What a signed number begins with."""
        return "-" if negative else "+" if "+" in self.flags else " " if " " in self.flags else ""


def _one(spec: Spec, bits: int, raw: int, string: Callable[[int], str]) -> str:
    """One value in its format."""
    kind = spec.kind
    if kind in "diuoxX":
        raw &= (1 << bits) - 1
        return _integer(spec, _signed(raw, bits) if kind in "di" else raw)
    if kind in "fFeEgGaA":
        return _float(spec, _double(raw))
    if kind == "c":
        return spec.padded("", chr(raw & 0xFF), zeros=False)
    said = string(raw)[: spec.precision] if kind == "s" else f"{raw:#x}" if raw else "(nil)"
    return spec.padded("", said, zeros=False)


def _signed(raw: int, bits: int) -> int:
    return raw - (1 << bits) if raw >> (bits - 1) else raw


def _double(raw: int) -> float:
    return float(np.uint64(raw).view(np.float64))


def _integer(spec: Spec, value: int) -> str:
    """A whole number; 0 in no digits is nothing, and has no prefix."""
    kind, precision = spec.kind, spec.precision
    digits = "" if value == 0 and precision == 0 else format(abs(value), kind if kind in "xXo" else "d")
    digits = digits.zfill(precision or 0)
    head = spec.sign(value < 0) if kind in "di" else ""
    if "#" in spec.flags and kind in "xX" and value:
        head = "0" + kind
    if "#" in spec.flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    return spec.padded(head, digits, zeros=precision is None)


def _float(spec: Spec, value: float) -> str:
    """A float: Python writes the decimal ones as C does, but infinities and NaNs, which zeros never pad."""
    head, size = spec.sign(math.copysign(1, value) < 0), abs(value)
    if not math.isfinite(value):
        body, zeros = "nan" if math.isnan(value) else "inf", False
    elif spec.kind in "aA":
        head, body, zeros = head + "0x", _hexadecimal(size, spec.precision, "#" in spec.flags), True
    else:
        dot = "" if spec.precision is None else f".{spec.precision}"
        body, zeros = f"%{'#' * ('#' in spec.flags)}{dot}{spec.kind}" % size, True
    if spec.kind in "AEFG":
        head, body = head.upper(), body.upper()
    return spec.padded(head, body, zeros)


def _hexadecimal(value: float, precision: int | None, dot: bool) -> str:
    """The digits of `%a` after 0x, rounded to nearest even where fewer are wanted than there are."""
    mantissa, exponent = value.hex()[2:].split("p")
    whole, fraction = mantissa.split(".")
    if precision is None:
        fraction = fraction.rstrip("0")
    elif precision >= len(fraction):
        fraction = fraction.ljust(precision, "0")
    else:
        number, cut = int(whole + fraction, 16), 4 * (len(fraction) - precision)
        rest, half = number & ((1 << cut) - 1), 1 << (cut - 1)
        number >>= cut
        digits = format(number + (rest > half or (rest == half and number & 1)), "x").zfill(precision + 1)
        whole, fraction = digits[: len(digits) - precision], digits[len(digits) - precision :]
    return f"{whole}{'.' * bool(fraction or dot)}{fraction}p{exponent}"


class Heap:
    """Memory for `malloc`, which lasts as long as the module."""

    def __init__(self) -> None:
        self.memory: NDArray[np.uint8] = np.empty(HEAP_BYTES + 2 * HEAP_MARGIN, np.uint8)
        self.start: int = self.memory.ctypes.data + HEAP_MARGIN
        used = -self.start % HEAP_ALIGN
        self.sizes: dict[int, int] = {}
        # what is free, ascending; no two touch
        self.holes: list[tuple[int, int]] = [(self.start + used, HEAP_BYTES - used)]
        self.lock: Lock = Lock()
        self.texts: dict[str, int] = {}

    def take(self, size: int) -> int:
        """An address, or 0 when there is no room: of the first hole that is large enough."""
        taken = -(-max(size, 1) // HEAP_ALIGN) * HEAP_ALIGN
        with self.lock:
            for n, (first, free) in enumerate(self.holes):
                if free >= taken:
                    self.holes[n : n + 1] = [(first + taken, free - taken)] if free > taken else []
                    self.sizes[first] = taken
                    return first
            return 0

    def text(self, words: str) -> int:
        """The address of a constant text, made once."""
        if words not in self.texts:
            raw = words.encode() + b"\0"
            self.texts[words] = self.take(len(raw))
            if self.sizes.pop(self.texts[words], 0):  # nobody may free it
                ctypes.memmove(self.texts[words], raw, len(raw))
        return self.texts[words]

    @property
    def range(self) -> Memory:
        """All of it."""
        return Memory("malloc'ed memory", self.start, HEAP_BYTES, True, self.memory)

    def give(self, address: int) -> bool:
        """Take memory back; False if it was not given out."""
        with self.lock:
            taken = self.sizes.pop(address, 0)
            if taken:
                self._join(address, taken)
            return bool(taken)

    def _join(self, first: int, size: int) -> None:
        """Add a hole, one with those that it touches: sizes that grow would find none large enough otherwise."""
        n = bisect(self.holes, (first, size))
        if n < len(self.holes) and self.holes[n][0] == first + size:
            size += self.holes.pop(n)[1]
        if n and sum(self.holes[n - 1]) == first:
            before, free = self.holes[n - 1]
            self.holes[n - 1] = before, free + size
        else:
            self.holes.insert(n, (first, size))


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

    def fail(self, kind: Kind, site: int) -> None:
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
        self.tensor = TensorAnswers()
        self._ways = {
            Ask.PRINT: self._print,
            Ask.ASSERT: self._assert,
            Ask.MALLOC: self._malloc,
            Ask.FREE: self._free,
            Ask.TENSOR: self.tensor.answer,
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

    def _print(self, row: Any, thread: _Thread) -> None:
        text = _plain(row[0])
        values = Values(int(row[1]), text)
        self.text.append(formatted(text, values, thread.string))
        row[0] = values.count  # what device printf returns (CUDA C++ Programming Guide, "Formatted Output")

    def _assert(self, row: Any, thread: _Thread) -> None:
        message, file, function = (_plain(p) for p in row[:3])
        self.assertion = f"{file}:{int(row[3]) & 0xFFFFFFFF}: {function}: assertion `{message}` failed"
        thread.fail(Kind.ASSERT, int(row[4]))

    def _malloc(self, row: Any, thread: _Thread) -> None:
        row[0] = self._taken(int(row[0]), int(row[1]), thread)

    def _taken(self, size: int, site: int, thread: _Thread) -> int:
        """Memory of the heap, or 0 when there is no room."""
        found = self.heap.take(size) if self.heap else 0
        if self.cells is not None:
            self.cells.take(found, Given(size, site, *thread.indices()))
        return found

    def _free(self, row: Any, thread: _Thread) -> None:
        self._given_back(int(row[0]), int(row[1]), thread)

    def _given_back(self, address: int, site: int, thread: _Thread) -> None:
        if address and not (self.heap and self.heap.give(address)):
            thread.fail(Kind.FREE, site)
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
