"""Recorded register images as plain matrices: operands and results of single instructions.

    python tests/golden/recorders/make_products.py GOLDEN_DIR

writes products.npz in the folder above: a few tiles of every form and distribution.  The lane maps are written out
here, so that the arithmetic is checked without the package's own fragment code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BITS = {
    "f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16,
    "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
WORDS = {64: np.uint64, 32: np.uint32, 16: np.uint16, 8: np.uint8, 4: np.uint8, 1: np.uint8}


class Product(NamedTuple):
    """Element bits of `tiles` products d = a b + c: a (tiles, M, K), b (tiles, K, N), c and d (tiles, M, N)."""

    key: str  # unit, formats of a, b, accumulator, saturate, rounding, bit operation, distribution
    a: Array
    b: Array
    c: Array
    d: Array


def elements(registers: Array, fmt: str) -> Array:
    """(..., registers) words as (..., elements) of a format."""
    bits = BITS[fmt]
    if bits == 64:
        return np.ascontiguousarray(registers).view(np.uint64)
    slots = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    mask = np.uint32((1 << bits) - 1)
    parts = registers[..., None] >> slots & mask
    return parts.reshape(*registers.shape[:-1], -1).astype(WORDS[bits])


def scatter(values: Array, row: Array, col: Array, shape: tuple[int, int]) -> Array:
    """(tiles, lanes, elements) into (tiles, *shape)."""
    out = np.zeros((values.shape[0], *shape), values.dtype)
    out[:, row, col] = values
    return out


def mma_maps(m: int, n: int, k: int, fmt: str) -> tuple[tuple[Array, Array], ...]:
    """(row, column) of each lane's elements of A, B, C."""
    g, t = np.arange(32)[:, None] >> 2, np.arange(32)[:, None] & 3
    e = max(1, 32 // BITS[fmt])
    i = np.arange(m * k // 32)[None]
    r, p = i // e, i % e
    a = (g + 8 * (r & 1), e * t + p + 4 * e * (r >> 1)) if m == 16 else (g + 0 * i, e * t + p)
    j = np.arange(k * n // 32)[None]
    b = (e * t + j % e + 4 * e * (j // e), g + 0 * j)
    o = np.arange(m * n // 32)[None]
    return a, b, (g + 8 * (o >> 1), 2 * t + (o & 1))


def quad_maps(entry: dict[str, Any], fmt: str) -> tuple[tuple[Array, Array], ...]:
    """The same inside each lane's own 8x8x4 product, for A, B and an accumulator format."""
    lane = np.arange(32)[:, None]
    i, j = np.arange(4)[None], np.arange(8)[None]
    h, u = lane >> 4, lane & 3
    a = (u + 4 * h, i + 0 * u) if entry["al"] == "row" else (i + 4 * h, u + 0 * i)
    b = (u + 0 * i, i + 4 * h) if entry["bl"] == "row" else (i + 0 * u, u + 4 * h)
    if fmt == "f16":
        return a, b, (u + 4 * h + 0 * j, j + 0 * u)
    return a, b, ((lane & 1) + (j & 2) + 4 * h, (j & 4) + (lane & 2) + (j & 1))


def rounding(op: str) -> str:
    """The rounding of an f64 form."""
    return next((p for p in op.split(".") if p in ("rn", "rz", "rm", "rp")), "rn")


def name(unit: str, entry: dict[str, Any], distribution: str, acc: str) -> str:
    """The key of a product."""
    op = "and" if ".and." in entry.get("op", "") or entry.get("bop") == "and" else "xor"
    second = entry.get("bt", entry["at"])
    how = (entry["at"], second, acc, "sat" if entry["sat"] else "wrap", rounding(entry.get("op", "")), op)
    return "__".join((unit, *how, f"k{entry['k']}", distribution))


def groups(folder: Path, entry: dict[str, Any], form: str) -> Iterator[tuple[str, dict[str, Array]]]:
    """(distribution, arrays) of a form."""
    with np.load(folder / entry["file"]) as z:
        heads = sorted({k.rsplit("__", 1)[0] for k in z.files if k.startswith(form + "__")})
        for head in heads:
            names = [k for k in z.files if k.rsplit("__", 1)[0] == head]
            yield head.split("__", 1)[1], {k.rsplit("__", 1)[1]: z[k] for k in names}


def from_mma(folder: Path, form: str, entry: dict[str, Any]) -> Iterator[Product]:
    """mma.sync but f16 m8n8k4."""
    m, n, k, at, acc = entry["m"], entry["n"], entry["k"], entry["at"], entry["dt"]
    shapes = ((m, k), (k, n), (m, n))
    maps = mma_maps(m, n, k, at)
    for distribution, x in groups(folder, entry, form):
        fmts = (at, entry["bt"], acc)
        a, b, c = (scatter(elements(x[q], f), *at_, s) for q, f, at_, s in zip("ABC", fmts, maps, shapes, strict=True))
        d = scatter(elements(x["D"], acc), *maps[2], shapes[2])
        yield Product(name("mma", entry, distribution, acc), a, b, c, d)


def from_quad(folder: Path, form: str, entry: dict[str, Any]) -> Iterator[Product]:
    """f16 m8n8k4 with equal C and D: four products a tile."""
    if entry["ct"] != entry["dt"]:
        return
    acc = entry["dt"]
    maps = quad_maps(entry, acc)
    for distribution, x in groups(folder, entry, form):
        parts = [[], [], [], []]  # type: list[list[Array]]
        for quad in range(4):
            lanes = np.flatnonzero(np.arange(32) >> 2 & 3 == quad)
            for into, q, f, (row, col), s in zip(
                parts, "ABCD", ("f16", "f16", acc, acc), (*maps, maps[2]), ((8, 4), (4, 8), (8, 8), (8, 8)), strict=True
            ):
                into.append(scatter(elements(x[q][:, lanes], f), row[lanes], col[lanes], s))
        yield Product(name("quad", entry, distribution, acc), *(np.concatenate(p) for p in parts))


def from_wgmma(folder: Path, form: str, entry: dict[str, Any]) -> Iterator[Product]:
    """Unswizzled K-major wgmma with both operands in shared memory and nothing negated."""
    if entry["areg"] or entry.get("sparse") or (entry["sa"], entry["sb"], entry["ta"], entry["tb"]) != (1, 1, 0, 0):
        return
    n, k, at, acc = entry["n"], entry["k"], entry["at"], entry["dt"]
    if n > 64 or at == "b1" or "layouts" in entry["file"]:
        return
    lane, o = np.arange(128)[:, None], np.arange(n // 2)[None]
    row = 16 * (lane >> 5) + (lane >> 2 & 7) + 8 * (o >> 1 & 1)
    col = 8 * (o >> 2) + 2 * (lane & 3) + (o & 1)
    width = BITS[at] // 8
    for distribution, x in groups(folder, entry, form):
        if distribution.endswith("scd0"):
            continue
        tiles = [[_tile(s, int(desc), rows, k, width) for s, desc in zip(x["S"], x["desc"][:, side], strict=True)]
                 for side, rows in ((0, 64), (1, n))]  # fmt: skip
        a, b = (np.stack(t) for t in tiles)
        c, d = (scatter(elements(x[q], acc), row, col, (64, n)) for q in "CD")
        yield Product(name("wgmma", entry, distribution, acc), a, b.transpose(0, 2, 1), c, d)


def _tile(image: Array, descriptor: int, rows: int, k: int, width: int) -> Array:
    start, leading, stride = (descriptor >> s << 4 & 0x3FFFF for s in (0, 16, 32))
    mn, at = np.arange(rows)[:, None], np.arange(k)[None] * width
    base = start + mn % 8 * 16 + mn // 8 * stride + at // 16 * leading + at % 16
    octets = image[base[..., None] + np.arange(width)]
    return np.ascontiguousarray(octets).view(WORDS[8 * width])[..., 0]


def from_wmma(folder: Path, form: str, entry: dict[str, Any]) -> Iterator[Product]:
    """wmma with whole-byte elements and equal C and D."""
    m, n, k, at, acc = entry["m"], entry["n"], entry["k"], entry["at"], entry["dt"]
    if entry["ct"] != acc or BITS[at] < 8:
        return
    for distribution, x in groups(folder, entry, form):

        def matrix(image: Array, fmt: str, rows: int, cols: int, layout: str) -> Array:
            flat = np.ascontiguousarray(image).view(WORDS[BITS[fmt]])
            return flat.reshape(-1, rows, cols) if layout == "row" else flat.reshape(-1, cols, rows).transpose(0, 2, 1)

        a, b = matrix(x["A"], at, m, k, entry["al"]), matrix(x["B"], at, k, n, entry["bl"])
        c, d = (matrix(x[q], acc, m, n, "row") for q in "CD")
        yield Product(name("wmma", entry, distribution, acc), a, b, c, d)


READERS = {"mma": from_mma, "mma884": from_quad, "wgmma": from_wgmma, "wmma": from_wmma}


def products(folder: Path) -> Iterator[Product]:
    """Every product of a directory of recordings."""
    index = json.loads((folder / "index.json").read_text())
    for form, entry in index.items():
        reader = READERS.get(entry["kind"])
        if reader is not None:
            yield from reader(folder, form, entry)


def thin(p: Product, seen: dict[str, int]) -> dict[str, Array]:
    """A few rows and columns of a product, or nothing when its key has enough."""
    if seen.setdefault(p.key, 0) >= 1:
        return {}
    seen[p.key] += 1
    special = p.key.rsplit("__", 1)[1] in ("floor", "nan", "special", "extreme", "align", "subnormal", "randbits")
    tiles = min(len(p.a), 2 if special else 1)
    rows, cols = np.s_[: min(8, p.a.shape[1])], np.s_[: min(8, p.b.shape[2])]
    cut = (p.a[:tiles, rows], p.b[:tiles, :, cols], p.c[:tiles, rows, cols], p.d[:tiles, rows, cols])
    return {f"{p.key}__{q}": v for q, v in zip("ABCD", cut, strict=True)}


def main() -> None:
    """Write the subset."""
    folder, out, seen = Path(sys.argv[1]), {}, {}  # type: Path, dict[str, Array], dict[str, int]
    for p in products(folder):
        out |= thin(p, seen)
    np.savez_compressed(Path(__file__).parents[1] / "products.npz", **out)


if __name__ == "__main__":
    main()
