"""Texture and surface objects (CUDA Driver API, "Texture Object Management", "Surface Object Management")."""

from __future__ import annotations

import struct

from nbtc.executor.texture.objects import Flag, Mode, ObjectKind, Sampler
from nbtc.libcuda import host
from nbtc.libcuda.arrays import Array
from nbtc.libcuda.errors import INVALID_VALUE, CudaError
from nbtc.libcuda.registry import driver
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
    remove,
    surface,
    texture,
)

RESOURCE, TEXTURE = 144, 104  # bytes of a CUDA_RESOURCE_DESC, of a CUDA_TEXTURE_DESC
# addressMode[3], filterMode, flags, maxAnisotropy, mipmapFilterMode, mipmapLevelBias and its clamps, borderColor[4]
_TEXTURE = struct.Struct("<4i2Ii3f4f")
AS_INTEGER, NORMALIZED, SRGB, SEAMLESS = 1, 2, 0x10, 0x40  # CU_TRSF_*


def _resource(raw: bytes) -> Resource:
    kind = int.from_bytes(raw[:4], "little")
    first, packed, *rest = struct.unpack_from("<5Q", raw, 8)
    if kind == MIPMAPPED:
        raise refused("mipmapped textures")
    if kind == ARRAY:
        return of_array(handles.get(first, Array))
    form, channels = packed & 0xFFFFFFFF, packed >> 32
    if kind == LINEAR:
        return of_line(first, form, channels, rest[0])
    if kind != PITCHED:
        raise CudaError(INVALID_VALUE)
    width, height, pitch = rest
    if not height:
        raise CudaError(INVALID_VALUE)
    return of_memory(first, form, channels, width, height, pitch)


def of_line(address: int, form: int, channels: int, size: int) -> Resource:
    """`size` bytes of linear memory."""
    one = of_memory(address, form, channels, 1, 0, 0).image.texel
    return of_memory(address, form, channels, size // one, 0, 0)


def sampler(modes: tuple[int, ...], linear: int, flags: Flag, border: tuple[float, ...], unknown: str) -> Sampler:
    """How a texture is read; unknown: what is asked for and isn't there."""
    if unknown:
        raise refused(unknown)
    if linear not in (0, 1) or not frozenset(Mode).issuperset(modes):
        raise CudaError(INVALID_VALUE)
    x, y, z = (Mode(m) for m in modes)
    r, g, b, a = border
    return Sampler(flags | (Flag.LINEAR if linear else Flag(0)), (x, y, z), (r, g, b, a))


def _sampler(raw: bytes) -> Sampler:
    x, y, z, linear, given, anisotropy, _, _, _, _, *border = _TEXTURE.unpack_from(raw)
    flags = Flag.INTEGER if given & AS_INTEGER else Flag(0)
    flags |= Flag.NORMALIZED if given & NORMALIZED else Flag(0)
    unknown = "textures in sRGB" if given & SRGB else "seamless cubemaps" if given & SEAMLESS else ""
    unknown = unknown or ("anisotropic textures" if anisotropy > 1 else "")
    return sampler((x, y, z), linear, flags, tuple(border), unknown)


@driver
def cuTexObjectCreate(out: int, resource: int, how: int, view: int) -> None:
    raw = host.read(resource, RESOURCE), host.read(how, TEXTURE)
    if view:
        raise refused("views of textures' resources")
    host.given64(out, texture(_resource(raw[0]), _sampler(raw[1]), raw))


@driver
def cuTexObjectDestroy(handle: int) -> None:
    remove(handle, ObjectKind.TEXTURE)


@driver
def cuTexObjectGetResourceDesc(out: int, handle: int) -> None:
    host.write(out, find(handle, ObjectKind.TEXTURE).descriptors[0])


@driver
def cuTexObjectGetTextureDesc(out: int, handle: int) -> None:
    host.write(out, find(handle, ObjectKind.TEXTURE).descriptors[1])


@driver
def cuSurfObjectCreate(out: int, resource: int) -> None:
    raw = host.read(resource, RESOURCE)
    if int.from_bytes(raw[:4], "little") != ARRAY:
        raise CudaError(INVALID_VALUE)
    host.given64(out, surface(_resource(raw), (raw,)))


@driver
def cuSurfObjectDestroy(handle: int) -> None:
    remove(handle, ObjectKind.SURFACE)


@driver
def cuSurfObjectGetResourceDesc(out: int, handle: int) -> None:
    host.write(out, find(handle, ObjectKind.SURFACE).descriptors[0])
