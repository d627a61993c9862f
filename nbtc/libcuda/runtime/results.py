"""What the runtime's functions return, and the last error of each thread (CUDA Runtime API, "Error Handling")."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from nbtc.libcuda import errors, state
from nbtc.libcuda.code import constant_text
from nbtc.libcuda.direct.words import errors_waiting
from nbtc.libcuda.errors import NOT_READY, CudaError, unexpected
from nbtc.libcuda.registry import Implementation, runtime
from nbtc.libcuda.rows import Row

QUIET = ("cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorName", "cudaGetErrorString")
# Functions that need no device: what runs before main, and what asks for errors.
BEFORE = ("__cudaRegister", "__cudaUnregister", "__cudaInitModule", "__cudaPushCall", "__cudaPopCall",
          "cudaGetError", "cudaGetLast", "cudaPeekAt", "cudaDeviceReset")  # fmt: skip
# Functions that work after a kernel's fault too.
FREE = ("cudaGetError", "cudaGetLast", "cudaPeekAt", "cudaGetDevice", "cudaSetDevice",
        "cudaDriverGet", "cudaRuntimeGet", "cudaDeviceGet", "cudaChooseDevice", "cudaCreateChannelDesc",
        "cudaGetDriverEntryPoint", "cudaUserObject")  # fmt: skip
_last: dict[int, int] = {}


def note(code: int) -> int:
    """A result, remembered where it is an error."""
    if code and code != NOT_READY:
        _last[threading.get_ident()] = code
        errors_waiting(len(_last))
    return code


def tracked(function: Implementation, row: Row) -> Callable[..., Any]:
    """A function whose exceptions are its result."""
    use, current = state.use_primary, state.current
    before, free, quiet = row.name.startswith(BEFORE), row.name.startswith(FREE), row.name in QUIET

    def plain(*args: Any) -> Any:
        try:
            return function(*args)
        except CudaError as error:
            note(error.code)
        except BaseException:
            note(unexpected())
        return 0

    def called(*args: Any) -> int:
        try:
            if not before:
                use()
                if not free:
                    current()
            code = function(*args) or 0
        except CudaError as error:
            code = error.code
        except BaseException:
            code = unexpected()
        return code if quiet or not code else note(code)

    return called if row.result == "cudaError_t" else plain


def _sticky() -> int:
    found = state.current_or_none()
    return found.failure if found is not None else 0


@runtime
def cudaGetLastError() -> int:
    found = _last.pop(threading.get_ident(), 0)
    errors_waiting(len(_last))
    return found or _sticky()


@runtime
def cudaPeekAtLastError() -> int:
    return _last.get(threading.get_ident(), 0) or _sticky()


def forget() -> None:
    """A reset device has no errors."""
    _last.clear()
    errors_waiting(0)


def _text(found: str | None, otherwise: str) -> int:
    return constant_text((found or otherwise).encode() + b"\0")


@runtime
def cudaGetErrorString(code: int) -> int:
    return _text(errors.text_of(code, "runtime_errors"), "unrecognized error code")


@runtime
def cudaGetErrorName(code: int) -> int:
    return _text(errors.name_of(code, "runtime_errors"), "unrecognized error code")
