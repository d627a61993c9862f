"""Texture and surface objects (CUDA Runtime API, "Texture Object Management", "Surface Object Management")."""

from __future__ import annotations

import struct

from nbtc.executor.texture.objects import Flag, ObjectKind, Sampler
from nbtc.libcuda import host
from nbtc.libcuda.arrays import Array
from nbtc.libcuda.driver.textures import of_line, sampler
from nbtc.libcuda.errors import INVALID_VALUE, CudaError
from nbtc.libcuda.registry import DRIVER, RUNTIME, runtime
from nbtc.libcuda.runtime.arrays import CHANNELS, channels_of
from nbtc.libcuda.state import handles
from nbtc.libcuda.textures import (
    ARRAY,
    LINEAR,
    MIPMAPPED,
    PITCHED,
    Resource,
    find,
    of_array,
    of_memory,
    refused,
    surface,
    texture,
)

RESOURCE = 64  # bytes of a cudaResourceDesc that tell something
# cudaTextureDesc: addressMode[3], filterMode, readMode, sRGB, borderColor[4], normalizedCoords, maxAnisotropy,
# mipmapFilterMode, mipmapLevelBias and its clamps, disableTrilinearOptimization, seamlessCubemap
_TEXTURE = struct.Struct("<6i4fiIi3f2i")
ELEMENTS = 0  # cudaReadModeElementType


def _resource(raw: bytes) -> Resource:
    kind, first = int.from_bytes(raw[:4], "little"), int.from_bytes(raw[8:16], "little")
    if kind == MIPMAPPED:
        raise refused("mipmapped textures")
    if kind == ARRAY:
        return of_array(handles.get(first, Array))
    if kind not in (LINEAR, PITCHED):
        raise CudaError(INVALID_VALUE)
    form, channels = channels_of(raw[16 : 16 + CHANNELS.size])
    numbers = struct.unpack_from("<3Q", raw, 40)
    if kind == LINEAR:
        return of_line(first, form, channels, numbers[0])
    if not numbers[1]:
        raise CudaError(INVALID_VALUE)
    return of_memory(first, form, channels, *numbers)


def _sampler(raw: bytes) -> Sampler:
    x, y, z, linear, read, srgb, *border = _TEXTURE.unpack_from(raw)[:10]
    normalized, anisotropy, *_, seamless = _TEXTURE.unpack_from(raw)[10:]
    flags = Flag.INTEGER if read == ELEMENTS else Flag(0)
    flags |= Flag.NORMALIZED if normalized else Flag(0)
    unknown = "textures in sRGB" if srgb else "seamless cubemaps" if seamless else ""
    unknown = unknown or ("anisotropic textures" if anisotropy > 1 else "")
    return sampler((x, y, z), linear, flags, tuple(border), unknown)


@runtime
def cudaCreateTextureObject(out: int, resource: int, how: int, view: int) -> None:
    raw = host.read(resource, RESOURCE), host.read(how, _TEXTURE.size)
    if view:
        raise refused("views of textures' resources")
    host.given64(out, texture(_resource(raw[0]), _sampler(raw[1]), raw))


@runtime
def cudaCreateSurfaceObject(out: int, resource: int) -> None:
    raw = host.read(resource, RESOURCE)
    if int.from_bytes(raw[:4], "little") != ARRAY:
        raise CudaError(INVALID_VALUE)
    host.given64(out, surface(_resource(raw), (raw,)))


@runtime
def cudaGetTextureObjectResourceDesc(out: int, handle: int) -> None:
    host.write(out, find(handle, ObjectKind.TEXTURE).descriptors[0])


@runtime
def cudaGetTextureObjectTextureDesc(out: int, handle: int) -> None:
    host.write(out, find(handle, ObjectKind.TEXTURE).descriptors[1])


@runtime
def cudaGetSurfaceObjectResourceDesc(out: int, handle: int) -> None:
    host.write(out, find(handle, ObjectKind.SURFACE).descriptors[0])


RUNTIME["cudaDestroyTextureObject"] = DRIVER["cuTexObjectDestroy"]
RUNTIME["cudaDestroySurfaceObject"] = DRIVER["cuSurfObjectDestroy"]
