"""Texture and surface objects: what they are made of, and that they end with the memory that they read."""

from __future__ import annotations

from typing import NamedTuple

from nbtc.executor.texture.objects import Flag, Mode, ObjectKind, Sampler, TexelFormat, TexelImage, objects
from nbtc.libcuda.arrays import CUBEMAP, SURFACE, Array
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, CudaError, say
from nbtc.libcuda.memory import Block, Outside, memory
from nbtc.libcuda.memory import Kind as MemoryKind

ARRAY, MIPMAPPED, LINEAR, PITCHED = range(4)  # CUresourcetype
PITCH_ALIGN = 32  # bytes, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT
MOST_LINEAR = 1 << 28  # texels, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH
INTEGERS = (TexelFormat.U8, TexelFormat.U16, TexelFormat.U32, TexelFormat.S8, TexelFormat.S16, TexelFormat.S32)

FRACTIONS = (TexelFormat.U8, TexelFormat.U16, TexelFormat.S8, TexelFormat.S16)  # unless they are read as integers


class Resource(NamedTuple):
    """What an object reads, and how: the image, and whether it is linear memory, a cube, a surface."""

    image: TexelImage
    memory: bool = False
    cube: bool = False
    surface: bool = False


class Made(NamedTuple):
    """An object that is there: its kind, the memory it reads, the descriptors it was made of."""

    kind: ObjectKind
    first: int
    descriptors: tuple[bytes, ...]


made: dict[int, Made] = {}


def refused(what: str) -> CudaError:
    """The error of a kind of texture that isn't there, said once."""
    say(f"{what} aren't there: they return CUDA_ERROR_NOT_SUPPORTED", once=True)
    return CudaError(NOT_SUPPORTED)


def of_array(found: Array) -> Resource:
    """An array as a resource."""
    return Resource(found.image, cube=bool(found.flags & CUBEMAP), surface=bool(found.flags & SURFACE))


def of_memory(address: int, form: int, channels: int, width: int, height: int, pitch: int) -> Resource:
    """Memory as a resource: a line of texels where height is 0, else rows."""
    if form not in frozenset(TexelFormat) or channels not in (1, 2, 4):
        raise CudaError(INVALID_VALUE)
    image = TexelImage(address, width, height, 0, 0, pitch, 0, TexelFormat(form), channels)
    line = width * image.texel
    pitched = bool(height)
    if width < 1 or (pitched and (pitch % PITCH_ALIGN or pitch < line)) or (not pitched and width > MOST_LINEAR):
        raise CudaError(INVALID_VALUE)
    block = memory.inside(address, pitch * (height - 1) + line if pitched else line)
    if not isinstance(block.owner, Outside):
        raise refused("textures of memory that is not the device's")
    return Resource(image, memory=not pitched)


def texture(resource: Resource, sampler: Sampler, descriptors: tuple[bytes, ...]) -> int:
    """The handle of a texture object."""
    flags, form = sampler.flags, resource.image.format
    if form not in INTEGERS:
        flags &= ~Flag.INTEGER
    whole = form in (TexelFormat.U32, TexelFormat.S32) or flags & Flag.INTEGER
    if flags & Flag.LINEAR and (whole or resource.memory):
        raise CudaError(INVALID_VALUE)  # only fractions and floats are filtered, and not in linear memory
    if Mode.BORDER in sampler.modes and form in FRACTIONS and not whole and not {0.0, 1.0}.issuperset(sampler.border):
        raise refused("border colours between 0 and 1 of textures with channels of 8 or 16 bits")
    if resource.cube:
        flags |= Flag.NORMALIZED | Flag.CUBE
        sampler = sampler._replace(modes=(Mode.CLAMP,) * 3)
    if resource.memory:
        flags |= Flag.MEMORY
    return _add(ObjectKind.TEXTURE, resource, sampler._replace(flags=flags), descriptors)


def surface(resource: Resource, descriptors: tuple[bytes, ...]) -> int:
    """The handle of a surface object."""
    if not resource.surface:
        raise CudaError(INVALID_VALUE)
    return _add(ObjectKind.SURFACE, resource, Sampler(), descriptors)


def _add(kind: ObjectKind, resource: Resource, sampler: Sampler, descriptors: tuple[bytes, ...]) -> int:
    handle = objects.add(kind, resource.image, sampler)
    if not handle:
        raise CudaError(OUT_OF_MEMORY)
    made[handle] = Made(kind, resource.image.base, descriptors)
    return handle


def find(handle: int, kind: ObjectKind) -> Made:
    """An object."""
    found = made.get(handle)
    if found is None or found.kind is not kind:
        raise CudaError(INVALID_VALUE)
    return found


def remove(handle: int, kind: ObjectKind) -> None:
    """End an object."""
    find(handle, kind)
    objects.remove(handle, kind)
    del made[handle]


def _freed(block: Block) -> None:
    """Objects end with their memory: nothing may be read or written through them."""
    if block.kind is MemoryKind.MODULE or not made:
        return
    for handle, found in list(made.items()):
        if block.first <= found.first < block.end:
            objects.remove(handle, found.kind)
            made[handle] = found._replace(first=0)


memory.when_freed.append(_freed)
