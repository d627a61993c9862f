"""Contexts (CUDA Driver API, "Primary Context Management", "Context Management")."""

from __future__ import annotations

from nbtc.libcuda import host, state
from nbtc.libcuda.direct.words import changed
from nbtc.libcuda.errors import INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, SUCCESS, CudaError
from nbtc.libcuda.memory import Kind, memory
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import Context, device, of_handle, primary, stack
from nbtc.libcuda.streams import unsafe_in_capture

LIMITS = {0: 1024, 1: 1 << 20, 2: 8 << 20, 3: 2, 4: 2048, 5: 128, 6: 0}  # CUlimit: stack, printf, heap ...
PRIORITIES = 0, -5  # the least and the greatest of a stream
ALL_KINDS = tuple(Kind)


def end(context: Context) -> None:
    """Give back a context's objects and memory."""
    state.end(context)
    for block in memory.of_context(context):
        if memory.blocks.get(block.first) is block:
            memory.free(block.first, *ALL_KINDS)


@driver
def cuDevicePrimaryCtxRetain(out: int, number: int) -> None:
    device(number)
    host.put64(out, primary.handle)
    primary.retained += 1


@driver_as("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2")
def cuDevicePrimaryCtxRelease(number: int) -> int:
    device(number)
    if not primary.retained:
        return INVALID_CONTEXT
    primary.retained -= 1
    if not primary.retained:
        end(primary)
    return SUCCESS


@driver_as("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2")
def cuDevicePrimaryCtxReset(number: int) -> None:
    """What lets a process go on after a kernel's fault: everything of the context is gone."""
    device(number)
    end(primary)


@driver_as("cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2")
def cuDevicePrimaryCtxSetFlags(number: int, flags: int) -> None:
    device(number)
    primary.flags = flags


@driver
def cuDevicePrimaryCtxGetState(number: int, flags: int, active: int) -> None:
    device(number)
    host.put32(flags, primary.flags)
    host.put32(active, int(primary.retained > 0))


@driver
def cuCtxCreate_v2(out: int, flags: int, number: int) -> None:
    device(number)
    host.put64(out, 0)
    made = Context()
    made.flags = flags
    stack().append(made)
    changed()
    host.put64(out, made.handle)


@driver
def cuCtxCreate_v3(out: int, affinity: int, count: int, flags: int, number: int) -> None:
    cuCtxCreate_v2(out, flags, number)


@driver
def cuCtxCreate_v4(out: int, parameters: int, flags: int, number: int) -> None:
    cuCtxCreate_v2(out, flags, number)


@driver_as("cuCtxDestroy_v2", "cuCtxDetach")
def cuCtxDestroy(handle: int) -> int:
    if not handle:
        return INVALID_CONTEXT
    context = of_handle(handle)
    if context is primary:
        return INVALID_CONTEXT
    end(context)
    here = stack()
    if context in here:
        here.remove(context)
    changed()
    state.handles.drop(handle)
    return SUCCESS


@driver
def cuCtxPushCurrent_v2(handle: int) -> int:
    if not handle:
        return INVALID_CONTEXT
    stack().append(of_handle(handle))
    changed()
    return SUCCESS


@driver
def cuCtxPopCurrent_v2(out: int) -> int:
    here = stack()
    if not here:
        return INVALID_CONTEXT
    host.given64(out, here[-1].handle)
    here.pop()
    changed()
    return SUCCESS


@driver
def cuCtxSetCurrent(handle: int) -> None:
    if not state.initialised:
        state.device(0)
    context = of_handle(handle) if handle else None
    here = stack()
    if (here[-1] if here else None) is context:
        return
    if here:
        here.pop()
    if context is not None:
        here.append(context)
    changed()


@driver
def cuCtxGetCurrent(out: int) -> None:
    state.device(0)
    found = state.current_or_none()
    host.put64(out, found.handle if found is not None else 0)


@driver
def cuCtxGetDevice(out: int) -> None:
    of_handle(0)
    host.put32(out, 0)


@driver
def cuCtxGetDevice_v2(out: int, handle: int) -> None:
    of_handle(handle)
    host.put32(out, 0)


@driver
def cuCtxGetFlags(out: int) -> None:
    host.put32(out, of_handle(0).flags)


@driver
def cuCtxSetFlags(flags: int) -> None:
    of_handle(0).flags = flags


@driver
def cuCtxGetId(handle: int, out: int) -> None:
    host.put64(out, of_handle(handle).id)


@driver
def cuCtxSynchronize() -> None:
    state.current()
    unsafe_in_capture()


@driver
def cuCtxSynchronize_v2(handle: int) -> int:
    return of_handle(handle).failure


@driver
def cuCtxSetLimit(what: int, value: int) -> int:
    context = of_handle(0)
    if what not in LIMITS:
        return INVALID_VALUE
    context.limits[what] = value
    return SUCCESS


@driver
def cuCtxGetLimit(out: int, what: int) -> int:
    context = of_handle(0)
    if what not in LIMITS:
        return INVALID_VALUE
    host.put64(out, context.limits.get(what, LIMITS[what]))
    return SUCCESS


@driver_as("cuCtxGetCacheConfig")
def cuCtxGetCacheConfig(out: int) -> None:
    of_handle(0)
    host.put32(out, 0)


@driver_as("cuCtxSetCacheConfig", "cuCtxSetSharedMemConfig")
def cuCtxSetCacheConfig(config: int) -> None:
    of_handle(0)


@driver
def cuCtxGetSharedMemConfig(out: int) -> None:
    of_handle(0)
    host.put32(out, 1)


@driver
def cuCtxGetApiVersion(handle: int, out: int) -> None:
    of_handle(handle)
    host.put32(out, 3020)


@driver
def cuCtxGetStreamPriorityRange(least: int, greatest: int) -> None:
    of_handle(0)
    host.given32(least, PRIORITIES[0])
    host.given32(greatest, PRIORITIES[1])


@driver_as("cuCtxResetPersistingL2Cache")
def cuCtxResetPersistingL2Cache() -> None:
    of_handle(0)


@driver
def cuCtxAttach(out: int, flags: int) -> None:
    host.put64(out, of_handle(0).handle)


@driver
def cuCtxGetExecAffinity(out: int, kind: int) -> int:
    raise CudaError(NOT_SUPPORTED)


@driver_as("cuProfilerStart", "cuProfilerStop")
def cuProfilerStart() -> None:
    of_handle(0)
