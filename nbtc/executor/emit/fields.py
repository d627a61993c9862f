"""Fields of the machine's structures (`state`), as compiled code loads them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32, I64, VectorBuilder
from nbtc.executor.emit.state import LAYOUTS


def field_at(v: VectorBuilder, structure: str, base: Any, name: str, index: Any = 0) -> Any:
    """Pointer to a field of the "launch", "worker", "block" or "warp" at `base`, moved by `index` bytes."""
    return v.at(base, LAYOUTS[structure].offset(name), index)


def load_field(v: VectorBuilder, structure: str, base: Any, name: str) -> Any:
    """A field's value."""
    bits = LAYOUTS[structure].fields[name].bits
    return v.load(field_at(v, structure, base, name), ir.IntType(bits), bits // 8)


def store_field(v: VectorBuilder, structure: str, base: Any, name: str, value: Any) -> None:
    """Set a field."""
    v.store(value, field_at(v, structure, base, name), LAYOUTS[structure].fields[name].bits // 8)


def cluster_size(v: VectorBuilder, launch: Any) -> Any:
    """Blocks of a cluster of the launch, 1 where there are none (i32)."""
    x, y, z = (load_field(v, "launch", launch, f"cluster_{axis}") for axis in "xyz")
    return v.b.mul(v.b.mul(x, y), z)


def _split(b: Any, index: Any, extents: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """A linear index as three, the first of which runs fastest."""
    x, y = extents
    row = b.udiv(index, x)
    return b.urem(index, x), b.urem(row, y), b.udiv(row, y)


def grid_place(v: VectorBuilder, launch: Any, index: Any) -> tuple[tuple[Any, Any, Any], Any]:
    """(x, y, z) in the grid, and the rank in its cluster, of a block by its number (i64).

    Blocks are counted cluster by cluster, so a cluster's first block has a multiple of the cluster's size.
    """
    b = v.b
    size = b.zext(cluster_size(v, launch), I64)
    grid, cluster = (
        tuple(load_field(v, "launch", launch, f"{what}_{a}") for a in "xyz") for what in ("grid", "cluster")
    )
    rank = b.trunc(b.urem(index, size), I32)
    whole = _split(b, b.trunc(b.udiv(index, size), I32), (b.udiv(grid[0], cluster[0]), b.udiv(grid[1], cluster[1])))
    within = _split(b, rank, (cluster[0], cluster[1]))
    x, y, z = (b.add(b.mul(n, c), w) for n, c, w in zip(whole, cluster, within, strict=True))
    return (x, y, z), rank


def take_cluster(v: VectorBuilder, launch: Any, blocks: Any = None) -> Any:
    """The number of the first block of the next cluster (i64); beyond the grid when there are no more.

    blocks: of several clusters that are taken at once (default: one).
    """
    place = field_at(v, "launch", launch, "next_block")
    counter = v.b.bitcast(place, I64.as_pointer())
    taken = v.b.zext(cluster_size(v, launch), I64) if blocks is None else blocks
    return v.b.atomic_rmw("add", counter, taken, "monotonic")
