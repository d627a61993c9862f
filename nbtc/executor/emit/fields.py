"""Fields of the machine's structures (`state`), as compiled code loads them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.state import LAYOUTS


def place_of(v: VectorBuilder, structure: str, base: Any, name: str) -> Any:
    """A field of a structure, loaded."""
    bits = LAYOUTS[structure].fields[name].bits
    return v.load(v.at(base, LAYOUTS[structure].offset(name)), ir.IntType(bits), bits // 8)


def cluster_size(v: VectorBuilder, launch: Any) -> Any:
    """Blocks of a cluster of the launch, 1 where there are none (i32)."""
    x, y, z = (place_of(v, "launch", launch, f"cluster_{axis}") for axis in "xyz")
    return v.b.mul(v.b.mul(x, y), z)
