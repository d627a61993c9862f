"""What the functions return: the codes of CUresult, as an exception, with their texts."""

from __future__ import annotations

import re
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable

from nbtc.libcuda.rows import numbered

RETURN_SECONDS = 0.02  # after which a function that was interrupted has returned to its caller
SUCCESS = 0
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, DEINITIALIZED = 1, 2, 3, 4
NO_DEVICE, INVALID_DEVICE = 100, 101
INVALID_IMAGE, INVALID_CONTEXT, NO_BINARY_FOR_GPU = 200, 201, 209
PEER_ACCESS_UNSUPPORTED, INVALID_PTX, JIT_COMPILER_NOT_FOUND = 217, 218, 221
FILE_NOT_FOUND = 301
INVALID_HANDLE, ILLEGAL_STATE, NOT_FOUND, NOT_READY = 400, 401, 500, 600
ILLEGAL_ADDRESS, LAUNCH_OUT_OF_RESOURCES, LAUNCH_TIMEOUT, PEER_ACCESS_NOT_ENABLED = 700, 701, 702, 705
ASSERT, MISALIGNED_ADDRESS, LAUNCH_FAILED, COOPERATIVE_LAUNCH_TOO_LARGE = 710, 716, 719, 720
NOT_PERMITTED, NOT_SUPPORTED = 800, 801
STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_WRONG_THREAD = 900, 901, 903, 908
CAPTURE_IMPLICIT, GRAPH_EXEC_UPDATE_FAILURE, UNKNOWN = 906, 910, 999
HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED = 712, 713
INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, INVALID_CONFIGURATION = 98, 13, 9  # the runtime's own

# Where CUDA's text is not what its name says in small letters.
_TEXTS = {
    0: "no error", 1: "invalid argument", 3: "initialization error", 4: "driver shutting down",
    98: "invalid device function", 100: "no CUDA-capable device is detected", 101: "invalid device ordinal",
    200: "device kernel image is invalid", 201: "invalid device context",
    209: "no kernel image is available for execution on the device", 218: "a PTX JIT compilation failed",
    301: "file not found", 400: "invalid resource handle", 500: "named symbol not found", 600: "device not ready",
    700: "an illegal memory access was encountered", 701: "too many resources requested for launch",
    702: "the launch timed out and was terminated", 710: "device-side assert triggered",
    712: "part or all of the requested memory range is already mapped",
    713: "pointer does not correspond to a registered memory region", 716: "misaligned address",
    719: "unspecified launch failure", 720: "too many blocks in cooperative launch",
    800: "operation not permitted", 801: "operation not supported", 13: "invalid device symbol",
    9: "invalid configuration argument", 12: "invalid pitch argument", 21: "invalid copy direction for memcpy",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture", 999: "unknown error",
}  # fmt: skip


class CudaError(Exception):
    """A function's failure: the number that it returns."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def name_of(code: int, table: str) -> str | None:
    """The constant's name, of "driver_errors" or "runtime_errors"."""
    return numbered(table).get(code)


def text_of(code: int, table: str) -> str | None:
    """What the error means in words."""
    name = name_of(code, table)
    if name is None or code in _TEXTS:
        return _TEXTS.get(code) if name else None
    plain = name.removeprefix("CUDA_ERROR_").removeprefix("cudaError")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain).replace("_", " ").lower()


_said: set[str] = set()
heard: list[Callable[[str], None]] = []  # whom everything that is said is told


def say(message: str, once: bool = False) -> None:
    """A line on stderr, perhaps only the first time."""
    if once and message in _said:
        return
    _said.add(message)
    print(f"nbtc: {message}", file=sys.stderr, flush=True)
    for hear in heard:
        hear(message)


def unexpected() -> int:
    """The result of an exception that isn't an answer: an interrupt is for the caller's Python, others are told."""
    error = sys.exception()
    if isinstance(error, KeyboardInterrupt):
        main = threading.main_thread().ident or 0  # at once, it would be raised in here and lost
        later = threading.Timer(RETURN_SECONDS, signal.pthread_kill, (main, signal.SIGINT))
        later.daemon = True
        later.start()
    elif isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    elif isinstance(error, struct.error | OverflowError):  # a number that no result can hold came of an argument
        return INVALID_VALUE
    else:
        traceback.print_exc()
    return UNKNOWN
