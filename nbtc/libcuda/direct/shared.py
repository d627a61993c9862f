"""Python's side of compiled calls: threads get slots, launches records, copies the table of allocations."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from itertools import count
from time import perf_counter
from typing import Any

from nbtc.errors import ProgramError
from nbtc.executor.launch.repeated import RepeatedLaunch
from nbtc.libcuda import host, launching, state
from nbtc.libcuda.code import Function
from nbtc.libcuda.direct import layout
from nbtc.libcuda.direct.words import MOST_BLOCKS, TABLE_AT, words
from nbtc.libcuda.launching import Config
from nbtc.libcuda.memory import memory
from nbtc.libcuda.streams import capturing

ALONE_NANOSECONDS = 300_000  # what several blocks may take on the caller's thread: waking others costs half of it
ALONE_BLOCKS = 4096  # of code without loops, so that the first launch that takes long can't take very long
_libc = ctypes.CDLL(None)
_pages: dict[int, int] = {}  # where a thread's slot begins, by thread
_records: dict[int, dict[int, Record]] = {}  # of a slot, by place
_numbered: dict[int, Record] = {}
_numbers = count(1)
_table_missed = -1  # the version of memory at which a copy was last done in Python


class Record:
    """A launch that a thread has made; from the second time on compiled calls can make it."""

    def __init__(self, key: tuple[int, ...], function: Function) -> None:
        self.key, self.function = key, function
        self.repeated: RepeatedLaunch | None = None
        self.version = -1  # of memory, at the last launch in Python
        self.kept: Any = None

    def make(self, repeated: RepeatedLaunch, blocks: int) -> None:
        """Write what a launch takes."""
        self.repeated, number = repeated, next(_numbers)
        self.kept = (ctypes.c_uint64 * layout.RECORD)()
        raw, f = self.kept, self.function
        raw[layout.KEY : layout.KEYS] = self.key
        raw[layout.RUN], raw[layout.WORKER] = repeated.code, repeated.worker
        raw[layout.PARAMETERS], raw[layout.PARAMETER_COUNT] = repeated.parameters, len(f.parameters)
        raw[layout.FAILURE], raw[layout.NUMBER] = repeated.failed, number
        raw[layout.LIMIT] = ALONE_NANOSECONDS if blocks > 1 else 0
        for i, field in enumerate(f.parameters):
            raw[layout.FIELDS + 2 * i : layout.FIELDS + 2 * i + 2] = field
        _numbered[number] = self
        self.refresh()

    def refresh(self) -> None:
        """The copies that set the machine's structures, with the memory that there is now."""
        if self.repeated is None:
            return
        version = memory.version
        found = self.repeated.copies(memory.reach())
        for i, row in enumerate(found):
            self.kept[layout.COPIES + 3 * i : layout.COPIES + 3 * i + 3] = row
        self.kept[layout.COPY_COUNT], self.kept[layout.RECORD_VERSION] = len(found), version

    def end(self) -> None:
        """Another takes its place."""
        if self.kept is not None:
            _numbered.pop(self.kept[layout.NUMBER], None)


def _stack() -> tuple[int, int]:
    """The calling thread's stack."""
    attributes = ctypes.create_string_buffer(64)
    first, size = ctypes.c_uint64(), ctypes.c_uint64()
    thread = ctypes.c_uint64(threading.get_ident())
    if _libc.pthread_getattr_np(thread, attributes):
        return 0, 0
    _libc.pthread_attr_getstack(attributes, ctypes.byref(first), ctypes.byref(size))
    _libc.pthread_attr_destroy(attributes)
    end = first.value + size.value
    # what the library keeps of a thread lies at the end of its stack, but of the first thread's
    return first.value, thread.value if first.value < thread.value < end else end


def _slot() -> int | None:
    """Where the calling thread's slot begins."""
    thread = threading.get_ident()
    found = _pages.get(thread)
    if found is not None:
        return found
    if not words.address:
        return None
    first = layout.thread_hash(thread)
    for i in range(layout.PROBES):
        at = layout.HEADER + (first + i) % layout.THREADS * layout.SLOT
        if not words.at[at + layout.THREAD]:
            words.at[at + layout.STACK], words.at[at + layout.STACK + 1] = _stack()
            words.at[at + layout.THREAD] = thread
            _records[at] = {}
            _pages[thread] = at
            return at
    return None


def arrive(stream: int = 0) -> None:
    """A call of this thread has succeeded: the next may be answered without Python."""
    if os.getpid() != state._process[0]:
        return
    at = _slot()
    if at is None:
        return
    epoch = words.at[layout.EPOCH]
    if words.at[at + layout.SEEN] != epoch:
        context = state.current_or_none()
        if capturing or not state.initialised or context is None or context.failure:
            return
        words.at[at + layout.CONTEXT] = context.handle
        for i in range(layout.MOST_STREAMS):
            words.at[at + layout.STREAMS + i] = 0
        words.at[at + layout.SEEN] = epoch
    if stream > 2:
        words.at[at + layout.STREAMS + layout.stream_hash(stream)] = stream
    while host.regions:
        low, high = host.regions.pop()
        place = at + layout.REGIONS + 2 * (low >> 12) % (2 * layout.MOST_REGIONS)
        words.at[place], words.at[place + 1] = low, high


def copied(stream: int = 0) -> None:
    """A copy was done in Python: the second time in a row that memory is the same, its table is written."""
    global _table_missed
    arrive(stream)
    version = memory.version
    if words.at[layout.TABLE_VERSION] == version:
        return
    if _table_missed != version:
        _table_missed = version
        return
    with memory.lock:
        rows = [x for b in sorted(memory.blocks.values()) for x in (b.first, b.end)]
        if len(rows) > 2 * MOST_BLOCKS:
            return
        words.at[layout.SEQUENCE] += 1
        for i, x in enumerate(rows):
            words.at[TABLE_AT + i] = x
        words.at[layout.COUNT], words.at[layout.TABLE_VERSION] = len(rows) // 2, memory.version
        words.at[layout.SEQUENCE] += 1


def launch_again(function: int, f: Function, config: Config, raw: bytearray) -> None:
    """Launch a kernel that may be launched again by this handle or address of the host's."""
    start = perf_counter()
    launching.launch(f, config, raw)
    if not capturing:
        arrive(config.stream)
        _launched(function, f, config, perf_counter() - start)


def _launched(function: int, f: Function, config: Config, seconds: float) -> None:
    """A kernel was launched in Python, which took that long."""
    at = _slot()
    if at is None or launching.settings.checked or launching.settings.profile:
        return
    (gx, gy, gz), (bx, by, bz) = config.grid, config.block
    key = (function, gx | gy << 32, gz | config.shared << 32, bx | by << 32, bz)
    records, place = _records[at], layout.key_hash(key)
    record = records.get(place)
    if record is None or record.key != key or record.function is not f:
        if record is not None:
            record.end()
        words.at[at + layout.RECORDS + place] = 0
        records[place] = Record(key, f)
        return
    if record.kept is None:
        _first(record, config, seconds)
        words.at[at + layout.RECORDS + place] = ctypes.addressof(record.kept) if record.kept is not None else 0
    elif record.kept[layout.RECORD_SEEN] == 0:  # it took too long
        return
    elif record.kept[layout.RECORD_VERSION] != memory.version:
        if record.version == memory.version:
            record.refresh()
        record.version = memory.version
    if record.kept is not None:
        record.kept[layout.RECORD_SEEN] = words.at[layout.EPOCH]


own_process = False  # whether Python was started for C, whose Ctrl-C is not Python's


def _first(record: Record, config: Config, seconds: float) -> None:
    """Make a record, if the launch is one that a thread may do alone."""
    f = record.function
    geometry = f.geometry(config.grid, config.block, config.cluster)
    if len(f.parameters) > layout.MOST_PARAMETERS or geometry.blocks > ALONE_BLOCKS:
        return
    if geometry.blocks > 1 and seconds > 1e-9 * 4 * ALONE_NANOSECONDS:
        return
    found = f.program.repeated(geometry, memory.reach(), config.shared)
    if found is None or (found.loops and (geometry.blocks > 1 or not own_process)):
        return
    if len(found.copies(memory.reach())) <= layout.MOST_COPIES:
        record.make(found, geometry.blocks)


def _failed(number: int) -> int:
    """A kernel of a compiled call has failed."""
    record = _numbered.get(number)
    if record is not None and record.repeated is not None:
        try:
            record.repeated.check(memory.reach())
        except ProgramError as error:
            launching.failed(record.function.name, error)
    return 0


FAILED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(_failed)


def ready(own: bool) -> int:
    """The address of the shared memory for a library that attaches itself; 0 where there is none."""
    global own_process
    own_process = own_process or own
    words.at[layout.PROCESS] = os.getpid()
    words.at[layout.FAILED] = ctypes.cast(FAILED, ctypes.c_void_p).value or 0
    words.at[layout.VERSION] = memory.version
    return words.address


def arriving(function: Callable[..., int], name: str, stream: int) -> Callable[..., int]:
    """Python's form of a function that has a compiled one."""
    after = copied if "Memcpy" in name else arrive

    def called(*args: Any) -> int:
        code = function(*args)
        if not code:
            after(args[stream] if stream >= 0 else 0)
        return code

    return called
