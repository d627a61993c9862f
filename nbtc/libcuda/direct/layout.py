"""Memory that Python writes and compiled calls read, in words of 64 bits.

A header for the process; a slot for each thread that calls, found by its thread pointer; records of launches that a
thread may repeat.  A record and a slot are read and changed by their own thread alone, so neither needs a lock; the
table of allocations is read under a sequence number (odd while it changes).  The system clears header and slots in a
forked child, which thus has nothing to take for granted.
"""

from __future__ import annotations

WORD = 8
# the header
EPOCH = 0  # changes when any slot or record may be wrong: contexts, modules, streams, captures, faults
VERSION = 1  # of the device's memory: launches list what they may touch
SEQUENCE, COUNT, TABLE = 2, 3, 4  # of the allocations: pairs (first, end), sorted
TABLE_VERSION = 5  # the version of memory that the table shows
ERRORS = 6  # threads whose last error of the runtime waits to be asked for
PROCESS = 7  # the process's number
FAILED = 8  # Python's function for a record whose kernel failed: i32 (*)(i64 record)
GUARDS, MOST_GUARDS = 16, 8  # pairs (low, high) of addresses that are no memory of the host's
HEADER = 64

# a thread's slot
THREAD = 0  # its thread pointer
SEEN = 1  # the epoch in which its context was found to be fine
STACK = 2  # the first byte of its stack, and the end
CONTEXT = 4  # the handle of its context
DEPTH, CONFIGS, MOST_CONFIGS, CONFIG = 5, 8, 8, 6  # launch configurations of <<< >>> that wait for their kernels
STREAMS, MOST_STREAMS = 56, 8  # by a hash: streams that exist and aren't captured
REGIONS, MOST_REGIONS = 64, 8  # pairs (low, high) of the host's memory that was readable and writable
RECORDS, MOST_RECORDS = 96, 32  # addresses of records, by a hash of what they are of
SLOT = 128
THREADS, PROBES = 256, 16  # slots, and how many are looked at for a thread

# a record
KEY, KEYS = 0, 5  # function, grid (x, y), grid z and shared memory, block (x, y), block z
RECORD_SEEN, RECORD_VERSION = 5, 6
RUN, WORKER = 7, 8  # the compiled kernel and its argument
PARAMETERS, PARAMETER_COUNT = 9, 10  # where a launch's go, and how many there are
FAILURE = 11  # address of the launch's word that is not 0 when it failed
LIMIT = 12  # nanoseconds that a launch may take: 0 for any
OVER, MOST_OVER = 15, 4  # launches that took longer, and after how many the record is not used again: the system may
# have stopped a thread in one of them
NUMBER = 13  # for Python
COPIES, COPY_COUNT, MOST_COPIES = 16, 14, 16  # (target, source, bytes) that set the machine's structures
FIELDS = 64  # (offset, bytes) of each parameter
MOST_PARAMETERS = 64
RECORD = FIELDS + 2 * MOST_PARAMETERS

MIX = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio: the high bits of a product depend on all of the other factor's


def mixed(x: int, bits: int) -> int:
    """A hash of some bits."""
    return (x * MIX & (1 << 64) - 1) >> 64 - bits


def thread_hash(thread: int) -> int:
    """The first slot that is looked at for a thread."""
    return mixed(thread, THREADS.bit_length() - 1)


def stream_hash(stream: int) -> int:
    """The place of a stream in a slot."""
    return mixed(stream, MOST_STREAMS.bit_length() - 1)


def key_hash(words: tuple[int, ...]) -> int:
    """The place of a record in a slot."""
    return mixed(words[0] ^ words[1] ^ words[3] << 7, MOST_RECORDS.bit_length() - 1)
