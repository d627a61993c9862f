"""CUDA's runtime on the device: kernels that launch kernels (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism").

Compilers write a launch as two calls: one for a buffer, which takes the parameters, and one that launches with it.  The
host runs what a grid launched, copies and fills too, when that has ended (`launch.children`), one after the other: no
stream or event asks for another order, and nothing on the device can wait for it, so streams and events are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32, I64, vector
from nbtc.executor.control.host_requests import Ask, answer, argument
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.memory.memory import store_lanes
from nbtc.executor.memory.resolve import ADDRESSES
from nbtc.executor.memory.side_by_side import LaneElements
from nbtc.executor.memory.stack import WORDS, Stack
from nbtc.executor.text.data import Operand, Symbol

LANES = 32
PREFIX = "__cudaCDP2"
PREFIXES = (PREFIX, "cudaCDP", "__cudaCDP", "cudaLaunchDevice", "cudaGetParameterBuffer")
HANDLE = 0x10  # of every stream and event that device code makes; 0 to 4 are streams that CUDA has names for
NO_MEMORY = 2  # cudaErrorMemoryAllocation
Arguments = tuple[Operand, ...]


def _site(lanes: Lanes) -> Any:
    return lanes.spread(lanes.v.int(lanes.machine.site(lanes)))


def _extent(lanes: Lanes, operand: Operand) -> tuple[Any, Any]:
    """A dim3: x with y, and z, 64 bits each."""
    if not isinstance(operand, Symbol):
        return lanes.refuse("a dim3 is a variable of 12 bytes")
    stack, at, none = Stack(lanes.frame), lanes.frame.local_offsets(operand.name), ir.Constant(WORDS, None)
    later = lanes.b.add(at, ir.Constant(vector(I32, LANES), [4] * LANES))
    half = ir.Constant(WORDS, [32] * LANES)
    return stack.pop(lanes.active, at, none), lanes.b.lshr(stack.pop(lanes.active, later, none), half)


def _parameters(lanes: Lanes, arguments: Arguments) -> Any:
    kernel, shared = argument(lanes, arguments[0]), argument(lanes, arguments[3])
    (grid, grid_z), (block, block_z) = (_extent(lanes, x) for x in arguments[1:3])
    both = lanes.b.or_(grid_z, lanes.b.shl(block_z, ir.Constant(WORDS, [32] * LANES)))
    lanes.host(Ask.PARAMETERS, kernel, grid, block, both, shared, _site(lanes))
    return answer(lanes)


def _launch(lanes: Lanes, arguments: Arguments) -> Any:
    lanes.host(Ask.LAUNCH, *(argument(lanes, x) for x in arguments), _site(lanes))
    return _success()


def _copy(lanes: Lanes, arguments: Arguments) -> Any:
    to, origin, size, _, stream = arguments  # within device memory, whatever the direction says
    lanes.host(Ask.COPY, *(argument(lanes, x) for x in (to, origin, size, stream)))
    return _success()


def _fill(lanes: Lanes, arguments: Arguments) -> Any:
    lanes.host(Ask.FILL, *(argument(lanes, x) for x in arguments))
    return _success()


def _error(name: int) -> Callable[[Lanes, Arguments], Any]:
    """A function that gives a text for an error code: what it means, or its name."""

    def emit(lanes: Lanes, arguments: Arguments) -> Any:
        lanes.host(Ask.ERROR, argument(lanes, arguments[0]), lanes.spread(ir.Constant(I64, name)))
        return answer(lanes)

    return emit


def _success(*_: Any) -> Any:
    """cudaSuccess: what fails here ends the launch with a message."""
    return ir.Constant(ADDRESSES, None)


def _gives(bits: int, value: int) -> Callable[[Lanes, Arguments], Any]:
    """A function that stores a number at the address that is its first argument."""

    def emit(lanes: Lanes, arguments: Arguments) -> Any:
        _store(lanes, arguments[0], bits, lanes.spread(ir.Constant(ir.IntType(bits), value)))
        return _success()

    return emit


def _store(lanes: Lanes, pointer: Operand, bits: int, values: Any) -> None:
    shape = LaneElements("generic", bits, 1, False)
    store_lanes(lanes, shape, argument(lanes, pointer), [values], lanes.machine.site(lanes))


def _malloc(lanes: Lanes, arguments: Arguments) -> Any:
    lanes.host(Ask.MALLOC, argument(lanes, arguments[1]), _site(lanes))
    found = answer(lanes)
    _store(lanes, arguments[0], 64, found)
    none = lanes.b.icmp_unsigned("==", found, ir.Constant(ADDRESSES, None))
    return lanes.b.select(none, lanes.spread(ir.Constant(I64, NO_MEMORY)), _success())


def _free(lanes: Lanes, arguments: Arguments) -> Any:
    lanes.host(Ask.FREE, argument(lanes, arguments[0]), _site(lanes))
    return _success()


_SHORT: dict[str, tuple[int, Callable[[Lanes, Arguments], Any]]] = {
    "GetParameterBufferV2": (4, _parameters),
    "LaunchDeviceV2": (2, _launch),
    "LaunchDeviceV2_ptsz": (2, _launch),
    "StreamCreateWithFlags": (2, _gives(64, HANDLE)),
    "StreamDestroy": (1, _success),
    "StreamWaitEvent": (3, _success),
    "EventCreateWithFlags": (2, _gives(64, HANDLE)),
    "EventRecord": (2, _success),
    "EventDestroy": (1, _success),
    "GetLastError": (0, _success),
    "PeekAtLastError": (0, _success),
    "GetDevice": (1, _gives(32, 0)),
    "GetDeviceCount": (1, _gives(32, 1)),
    "Malloc": (2, _malloc),
    "Free": (1, _free),
    "MemcpyAsync": (5, _copy),
    "MemcpyAsync_ptsz": (5, _copy),
    "MemsetAsync": (4, _fill),
    "MemsetAsync_ptsz": (4, _fill),
    "GetErrorString": (1, _error(0)),
    "GetErrorName": (1, _error(1)),
}
FUNCTIONS = {PREFIX + name: row for name, row in _SHORT.items()}
_TAKING = ("Malloc", "GetParameterBufferV2", "GetErrorString", "GetErrorName")
NEED_HEAP = frozenset(("malloc", *(PREFIX + name for name in _TAKING)))
