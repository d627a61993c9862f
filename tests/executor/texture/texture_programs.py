"""Programs of one texture or surface instruction, and the recordings of what an H100 returned for them.

A thread reads four words of coordinates and writes the four words that it gets.  The recordings: 164 cases of
formats, geometries, ways around and coordinates, NaN and infinity among them (driver 580.159.04).
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path

import numpy as np

from nbtc.executor.texture.objects import Flag, Mode, Sampler, TexelFormat, TexelImage

GOLDEN = Path(__file__).parents[2] / "golden" / "textures_h100.xz"
PROGRAM = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 object, .param .u64 from, .param .u64 to, .param .u32 count) {{
 .reg .b64 %t, %c, %o, %a, %l<2>; .reg .b32 %i, %n, %m, %w<4>, %d<4>; .reg .b16 %h<4>; .reg .pred %p;
 ld.param.u64 %t, [object]; ld.param.u64 %c, [from]; ld.param.u64 %o, [to]; ld.param.u32 %n, [count];
 mov.u32 %i, %ctaid.x; mov.u32 %m, %ntid.x; mul.lo.u32 %i, %i, %m; mov.u32 %m, %tid.x; add.u32 %i, %i, %m;
 setp.ge.u32 %p, %i, %n; @%p bra END;
 mul.wide.u32 %a, %i, 16; add.u64 %c, %c, %a; add.u64 %o, %o, %a;
 ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%c];
 mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
 {body}
 st.global.v4.b32 [%o], {{%d0, %d1, %d2, %d3}};
END: ret; }}
"""
WORDS = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4}  # of coordinates in braces
DIMS = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 2, "acube": 2}
RESULTS = "{%d0, %d1, %d2, %d3}"
# registers of a surface's access: what puts values there to be stored, what brings loaded ones to %d
REGISTERS = {
    "b16": ("{%h0}", "mov.u16 %h0, 4660;", "cvt.u32.u16 %d0, %h0;"),
    "b32": ("{%d0}", "mov.u32 %d0, 0x01020304;", ""),
    "b64": ("{%l0}", "mov.u64 %l0, 0x1122334455667788;", "mov.b64 {%d0, %d1}, %l0;"),
    "v4.b32": (RESULTS, " ".join(f"mov.u32 %d{n}, {0x01020304 * (n + 1)};" for n in range(4)), ""),
    "v4.b8": (
        "{%h0, %h1, %h2, %h3}",
        " ".join(f"mov.u16 %h{n}, {0x11 * (n + 1)};" for n in range(4)),
        " ".join(f"cvt.u32.u16 %d{n}, %h{n};" for n in range(4)),
    ),
}


def coordinates(geometry: str) -> str:
    """The operand of an instruction: the object and words in braces."""
    return "[%t, {" + ", ".join(f"%w{n}" for n in range(WORDS[geometry])) + "}]"


def body(case: dict) -> str:
    """The instructions of a case."""
    geometry, operation = case["geom"], case["op"]
    if operation in ("suld", "sust"):
        registers, before, after = REGISTERS[case["width"]]
        name = f"{operation}.b.{geometry}.{case['width']}.{case['clamp']}"
        if operation == "suld":
            return f"{name} {registers}, {coordinates(geometry)}; {after}"
        return f"{before} {name} {coordinates(geometry)}, {registers};"
    level = ", %w2" if operation == "tex.level" else ""
    return f"{operation}.{geometry}.v4.{case['dt']}.{case['ct']} {RESULTS}, {coordinates(geometry)}{level};"


def image(case: dict, texels: np.ndarray) -> TexelImage:
    """Texels [depth or layer][row][column][channel] as a resource."""
    depth, height, width, channels = texels.shape
    geometry, dims = case["geom"], DIMS[case["geom"]]
    layers = depth if geometry[0] == "a" or geometry == "cube" else 0
    width = case.get("width", width) if case["res"] == "pitch" else width
    return TexelImage(
        texels.ctypes.data, width, height if dims > 1 else 0, depth if dims == 3 else 0, layers,
        texels.strides[1], texels.strides[0], TexelFormat[case["fmt"].upper()], channels,
    )  # fmt: skip


def sampler(case: dict) -> Sampler:
    """How a case reads its texture."""
    flags = {
        Flag.LINEAR: case["linear"], Flag.NORMALIZED: case["norm"], Flag.INTEGER: case["integer"],
        Flag.MEMORY: case["res"] == "linear", Flag.CUBE: "cube" in case["geom"],
    }  # fmt: skip
    given = Flag(0)
    for flag, on in flags.items():
        given |= flag if on else Flag(0)
    mode = Mode.CLAMP if "cube" in case["geom"] else Mode[case["mode"].upper()]
    return Sampler(given, (mode,) * 3, tuple(case["border"]))


@cache
def recorded() -> tuple[list[dict], bytes]:
    """The cases, and the arrays that they name by (offset, dtype, shape)."""
    raw = lzma.decompress(GOLDEN.read_bytes())
    head = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + head]), raw[8 + head :]


def array(place: list) -> np.ndarray:
    """One array of the recording."""
    at, dtype, shape = place
    count = int(np.prod(shape))
    return np.frombuffer(recorded()[1], dtype, count, at).reshape(shape).copy()
