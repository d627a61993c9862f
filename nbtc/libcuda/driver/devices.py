"""The device (CUDA Driver API, "Device Management"): one, with the facts of its row."""

from __future__ import annotations

from functools import cache

from nbtc.libcuda import host
from nbtc.libcuda.errors import (
    INVALID_DEVICE,
    INVALID_VALUE,
    PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
    SUCCESS,
    CudaError,
)
from nbtc.libcuda.memory import memory
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.rows import numbered
from nbtc.libcuda.sharing import BY_FILE
from nbtc.libcuda.state import device, initialise, processor

BUS = b"0000:01:00.0"
GRID, BLOCK, THREADS = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64), 1024
# Sizes of textures and surfaces (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
TEXTURES = {
    "MAXIMUM_TEXTURE1D_WIDTH": 131072, "MAXIMUM_TEXTURE2D_WIDTH": 131072, "MAXIMUM_TEXTURE2D_HEIGHT": 65536,
    "MAXIMUM_TEXTURE3D_WIDTH": 16384, "MAXIMUM_TEXTURE3D_HEIGHT": 16384, "MAXIMUM_TEXTURE3D_DEPTH": 16384,
    "MAXIMUM_TEXTURE2D_LAYERED_WIDTH": 32768, "MAXIMUM_TEXTURE2D_LAYERED_HEIGHT": 32768,
    "MAXIMUM_TEXTURE2D_LAYERED_LAYERS": 2048, "MAXIMUM_TEXTURE1D_LAYERED_WIDTH": 32768,
    "MAXIMUM_TEXTURE1D_LAYERED_LAYERS": 2048, "MAXIMUM_SURFACE1D_WIDTH": 32768, "MAXIMUM_SURFACE2D_WIDTH": 131072,
    "MAXIMUM_SURFACE2D_HEIGHT": 65536, "MAXIMUM_SURFACE3D_WIDTH": 16384, "MAXIMUM_SURFACE3D_HEIGHT": 16384,
    "MAXIMUM_SURFACE3D_DEPTH": 16384, "MAXIMUM_TEXTURE1D_LINEAR_WIDTH": 1 << 28,
    "MAXIMUM_TEXTURE2D_LINEAR_WIDTH": 131072, "MAXIMUM_TEXTURE2D_LINEAR_HEIGHT": 65000,
    "MAXIMUM_TEXTURE2D_LINEAR_PITCH": 2097120, "TEXTURE_ALIGNMENT": 512, "TEXTURE_PITCH_ALIGNMENT": 32,
    "SURFACE_ALIGNMENT": 512,
}  # fmt: skip
# What the CPU that stands for the device can do.
ABILITIES = (
    "GPU_OVERLAP", "CAN_MAP_HOST_MEMORY", "CONCURRENT_KERNELS", "UNIFIED_ADDRESSING", "STREAM_PRIORITIES_SUPPORTED",
    "GLOBAL_L1_CACHE_SUPPORTED", "LOCAL_L1_CACHE_SUPPORTED", "MANAGED_MEMORY", "COMPUTE_PREEMPTION_SUPPORTED",
    "CONCURRENT_MANAGED_ACCESS", "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM", "COOPERATIVE_LAUNCH",
    "HOST_REGISTER_SUPPORTED", "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED",
    "MEMORY_POOLS_SUPPORTED", "HOST_MEMORY_POOLS_SUPPORTED", "HOST_NUMA_MEMORY_POOLS_SUPPORTED",
    "CAN_USE_STREAM_MEM_OPS", "CAN_USE_64_BIT_STREAM_MEM_OPS",
    "CAN_USE_STREAM_WAIT_VALUE_NOR", "TENSOR_MAP_ACCESS_SUPPORTED", "UNIFIED_FUNCTION_POINTERS",
    "READ_ONLY_HOST_REGISTER_SUPPORTED", "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST", "ECC_ENABLED",
    "IPC_EVENT_SUPPORTED", "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
)  # fmt: skip


@cache
def attributes() -> dict[str, int]:
    """Facts by the names of CUdevice_attribute, without their beginning."""
    one = processor()
    facts = one.facts
    return {
        **dict.fromkeys(ABILITIES, 1), **TEXTURES,
        **{f"MAX_BLOCK_DIM_{a}": n for a, n in zip("XYZ", BLOCK, strict=True)},
        **{f"MAX_GRID_DIM_{a}": n for a, n in zip("XYZ", GRID, strict=True)},
        "MAX_THREADS_PER_BLOCK": THREADS, "WARP_SIZE": 32, "TOTAL_CONSTANT_MEMORY": 64 << 10,
        "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": facts.shared_block,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": facts.shared_processor,
        "RESERVED_SHARED_MEMORY_PER_BLOCK": facts.shared_reserved,
        "MAX_REGISTERS_PER_BLOCK": facts.registers, "MAX_REGISTERS_PER_MULTIPROCESSOR": facts.registers,
        "MAX_PITCH": (1 << 31) - 1,
        "MULTIPROCESSOR_COUNT": facts.processors, "CLOCK_RATE": facts.clock_khz,
        "MEMORY_CLOCK_RATE": facts.memory_clock_khz, "GLOBAL_MEMORY_BUS_WIDTH": facts.bus_bits,
        "L2_CACHE_SIZE": facts.l2_bytes, "MAX_THREADS_PER_MULTIPROCESSOR": facts.threads_processor,
        "MAX_BLOCKS_PER_MULTIPROCESSOR": facts.blocks_processor, "ASYNC_ENGINE_COUNT": 3, "PCI_BUS_ID": 1,
        "COMPUTE_CAPABILITY_MAJOR": one.number // 10, "COMPUTE_CAPABILITY_MINOR": one.number % 10,
        "CLUSTER_LAUNCH": int(facts.cluster > 0), "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
        "MEMPOOL_SUPPORTED_HANDLE_TYPES": BY_FILE, "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED": 0, "NUMA_ID": 0,
        "MAX_PERSISTING_L2_CACHE_SIZE": 0, "MAX_ACCESS_POLICY_WINDOW_SIZE": 0, "COMPUTE_MODE": 0,
    }  # fmt: skip


def attribute(number: int) -> int:
    """A fact by its number; 0 of what has no counterpart on a CPU."""
    name = numbered("attributes").get(number)
    if name is None:
        raise CudaError(INVALID_VALUE)
    return attributes().get(name, 0)


def uuid() -> bytes:
    """The device's: the same in every process."""
    return b"nbtc" + processor().facts.name.encode()[-12:].ljust(12, b"\0")


@driver
def cuDeviceGetCount(out: int) -> None:
    device(0)
    host.put32(out, 1)


@driver
def cuDeviceGet(out: int, number: int) -> None:
    device(number)
    host.put32(out, 0)


@driver
def cuDeviceGetName(out: int, size: int, number: int) -> int:
    device(number)
    if size <= 0:
        return INVALID_VALUE
    host.write(out, processor().facts.name.encode()[: size - 1] + b"\0")
    return SUCCESS


@driver_as("cuDeviceGetUuid", "cuDeviceGetUuid_v2")
def cuDeviceGetUuid(out: int, number: int) -> None:
    device(number)
    host.write(out, uuid())


@driver
def cuDeviceGetLuid(out: int, mask: int, number: int) -> None:
    device(number)
    host.write(out, bytes(8))
    host.put32(mask, 1)


@driver
def cuDeviceTotalMem_v2(out: int, number: int) -> None:
    device(number)
    host.put64(out, memory.total)


@driver
def cuDeviceComputeCapability(major: int, minor: int, number: int) -> None:
    device(number)
    host.put32(major, processor().number // 10)
    host.put32(minor, processor().number % 10)


@driver
def cuDeviceGetPCIBusId(out: int, size: int, number: int) -> int:
    device(number)
    if size <= len(BUS):
        return INVALID_VALUE
    host.write(out, BUS + b"\0")
    return SUCCESS


@driver
def cuDeviceGetByPCIBusId(out: int, text: int) -> int:
    initialise()
    if host.text(text).lower() not in (BUS, BUS[5:], BUS[5:-2]):
        return INVALID_DEVICE
    host.put32(out, 0)
    return SUCCESS


@driver
def cuDeviceGetAttribute(out: int, what: int, number: int) -> None:
    device(number)
    host.put32(out, attribute(what))


@driver
def cuDeviceGetProperties(out: int, number: int) -> None:
    """CUdevprop of CUDA 2."""
    device(number)
    known = attributes()
    rest = ("MAX_SHARED_MEMORY_PER_BLOCK", "TOTAL_CONSTANT_MEMORY", "WARP_SIZE", "MAX_PITCH",
            "MAX_REGISTERS_PER_BLOCK", "CLOCK_RATE", "TEXTURE_ALIGNMENT")  # fmt: skip
    for i, value in enumerate((THREADS, *BLOCK, *GRID, *(known[n] for n in rest))):
        host.put32(out + 4 * i, value)


@driver
def cuDeviceCanAccessPeer(out: int, first: int, second: int) -> None:
    device(first)
    device(second)
    host.put32(out, 0)


@driver
def cuDeviceGetP2PAttribute(out: int, what: int, first: int, second: int) -> int:
    return INVALID_DEVICE  # two devices are needed


@driver
def cuDeviceGetTexture1DLinearMaxWidth(out: int, form: int, channels: int, number: int) -> None:
    device(number)
    host.put64(out, TEXTURES["MAXIMUM_TEXTURE1D_LINEAR_WIDTH"])


@driver
def cuDeviceGetExecAffinitySupport(out: int, kind: int, number: int) -> None:
    device(number)
    host.put32(out, 0)


@driver_as("cuDeviceGraphMemTrim")
def cuDeviceGraphMemTrim(number: int) -> None:
    device(number)


@driver_as("cuCtxEnablePeerAccess")
def cuCtxEnablePeerAccess(context: int, flags: int) -> int:
    return PEER_ACCESS_UNSUPPORTED


@driver_as("cuCtxDisablePeerAccess")
def cuCtxDisablePeerAccess(context: int) -> int:
    return PEER_ACCESS_NOT_ENABLED
