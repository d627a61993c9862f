"""Handles, refusals and queries of textures and surfaces."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ParseError, ProgramError
from nbtc.executor.texture.objects import Flag, ObjectKind, Objects, Sampler, TexelFormat, TexelImage, objects
from tests.executor.texture.texture_programs import PROGRAM

TEXELS = np.arange(48, dtype=np.float32).reshape(3, 4, 4)


def image(layers=0, height=4, depth=0):
    return TexelImage(TEXELS.ctypes.data, 4, height, depth, layers, 16, 64, TexelFormat.F32, 1)


def run(text, handle, words=(0, 0, 0, 0)):
    out, given = np.zeros((1, 4), np.uint32), np.array([words], np.int32).view(np.uint32)
    nbtc.load(PROGRAM.format(body=text))["k"][1, 1](handle, given, out, 1)
    return out[0].tolist()


@pytest.fixture
def made():
    handles = []

    def make(kind, *how):
        handles.append((objects.add(kind, *how), kind))
        return handles[-1][0]

    yield make
    for handle, kind in handles:
        objects.remove(handle, kind)


READ = "tex.2d.v4.f32.s32 {%d0, %d1, %d2, %d3}, [%t, {%w0, %w1}];"
LOAD = "suld.b.2d.b32.trap {%d0}, [%t, {%w0, %w1}];"


@pytest.mark.parametrize("handle", [0, 1 << 20, -1, 1 << 63 - 1, 12345])
def test_what_is_no_handle(handle):
    with pytest.raises(ProgramError, match="handle that is none"):
        run(READ, np.uint64(handle & (1 << 64) - 1))


def test_a_surface_is_no_texture_and_a_destroyed_one_neither(made):
    surface, texture = made(ObjectKind.SURFACE, image()), made(ObjectKind.TEXTURE, image())
    assert np.uint32(run(READ, texture, (1, 2, 0, 0))[0]).view(np.float32) == TEXELS[0, 2, 1]
    assert np.uint32(run(LOAD, surface, (4, 2, 0, 0))[0]).view(np.float32) == TEXELS[0, 2, 1]
    for text, handle in ((READ, surface), (LOAD, texture)):
        with pytest.raises(ProgramError, match="handle that is none"):
            run(text, handle)
    assert not objects.remove(texture, ObjectKind.SURFACE)
    assert objects.remove(texture, ObjectKind.TEXTURE)
    with pytest.raises(ProgramError, match="destroyed"):
        run(READ, texture)


@pytest.mark.parametrize("x", [-4, 16, 1 << 30])
def test_a_surface_traps(made, x):
    with pytest.raises(ProgramError, match=r"leaves the surface, and says \.trap"):
        run(LOAD, made(ObjectKind.SURFACE, image()), (x, 0, 0, 0))


def test_an_access_to_a_surface_is_aligned(made):
    with pytest.raises(ProgramError, match="not a multiple of the access"):
        run(LOAD.replace("trap", "zero"), made(ObjectKind.SURFACE, image()), (2, 0, 0, 0))


# width, height, depth, as an H100 tells them (driver 580.159.04): layers come after the dimensions, and a texture of a
# cube does not count its faces
@pytest.mark.parametrize(
    ("how", "flags", "texture", "surface"),
    [
        ({"height": 0}, Flag(0), (4, 1, 0), (4, 0, 0)),
        ({}, Flag(0), (4, 4, 0), (4, 4, 0)),
        ({"depth": 3}, Flag(0), (4, 4, 3), (4, 4, 3)),
        ({"height": 0, "layers": 3}, Flag(0), (4, 3, 0), (4, 3, 0)),
        ({"layers": 3}, Flag(0), (4, 4, 3), (4, 4, 3)),
        ({"layers": 6}, Flag.CUBE, (4, 4, 0), (4, 4, 6)),
        ({"layers": 18}, Flag.CUBE, (4, 4, 3), (4, 4, 18)),
    ],
)
def test_queries(made, how, flags, texture, surface):
    ask = lambda op: " ".join(f"{op}.{x}.b32 %d{n}, [%t];" for n, x in enumerate(("width", "height", "depth")))  # noqa: E731
    assert run(ask("txq"), made(ObjectKind.TEXTURE, image(**how), Sampler(flags)))[:3] == list(texture)
    assert run(ask("suq"), made(ObjectKind.SURFACE, image(**how)))[:3] == list(surface)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%w0}];", "takes 2 coordinates in braces"),
        ("tex.2d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, %c, {%w0, %w1}];", "64-bit handle"),
        ("sured.b.add.2d.u32.trap [%t, {%w0, %w1}], %d0;", "use red or atom"),
        ("tex.4d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%t, {%w0, %w1}];", "4d"),
    ],
)
def test_what_is_refused(made, text, why):
    with pytest.raises((ParseError, ProgramError), match=why):
        run(text, made(ObjectKind.TEXTURE, image()))


def test_a_full_table_gives_no_handle():
    small = Objects(3)
    assert [small.add(ObjectKind.TEXTURE, image()) for _ in range(3)] == [1, 2, 0]
    assert small.remove(1, ObjectKind.TEXTURE)
    assert small.add(ObjectKind.SURFACE, image()) == 1
