"""A product too large for memory, from zarr to zarr: python scripts/zarr_product.py FOLDER [--size N] [--format s8|b1].

Writes random operands of N x N (default 30,000), multiplies them in blocks, and compares some rows with exact sums.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr

import nbtc

CHUNK = 7680  # a multiple of every instruction's K
CHECKED = 8  # rows compared with exact sums


def random_operand(path: Path, size: int, fmt: str, seed: int) -> zarr.Array:
    """An operand on disk: int8 elements, or words of 32 bits along K (for b1)."""
    columns, dtype, chunk = (size, np.int8, CHUNK) if fmt == "s8" else (-(-size // 32), np.uint32, CHUNK // 32)
    array = zarr.create_array(path, shape=(size, columns), chunks=(CHUNK, chunk), dtype=dtype, compressors=None)
    rng = np.random.default_rng(seed)
    for i in range(0, size, CHUNK):
        raw = rng.bytes((min(size, i + CHUNK) - i) * columns * array.dtype.itemsize)
        array[i : i + CHUNK] = np.frombuffer(raw, dtype).reshape(-1, columns)
    return array


def exact(a: np.ndarray, b: zarr.Array, fmt: str) -> np.ndarray:
    """Rows of the product by other means: int64 sums, or counts of the bits that differ.  b is stored transposed."""
    parts = []
    for i in range(0, b.shape[0], CHUNK):
        block = np.asarray(b[i : i + CHUNK])
        if fmt == "s8":
            parts.append((a.astype(np.float64) @ block.T.astype(np.float64)).astype(np.int32))  # below 2**53: exact
        else:
            parts.append(np.bitwise_count(a[:, None] ^ block).sum(-1, dtype=np.int32))
    return np.hstack(parts)


def main() -> None:
    """Make operands, multiply, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=30_000)
    parser.add_argument("--format", choices=("s8", "b1"), default="s8")
    given = parser.parse_args()
    a = random_operand(given.folder / "a", given.size, given.format, 1)
    b = random_operand(given.folder / "b", given.size, given.format, 2)  # rows are columns of B
    shape = (given.size, given.size)
    d = zarr.create_array(given.folder / "d", shape=shape, chunks=(CHUNK, CHUNK), dtype=np.int32, compressors=None)
    formats = {} if given.format == "s8" else {"a_format": "b1", "b_format": "b1"}
    x, y = da.from_zarr(a), da.from_zarr(b).T
    print(nbtc.dask.plan(x, y, **formats))
    start = time.perf_counter()
    with dask.config.set(scheduler="threads", num_workers=2):
        da.store(nbtc.dask.matmul(x, y, **formats), d, lock=False)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:.1f} s, {given.size**3 / seconds / 1e9:.0f} G multiply-adds a second, peak {peak:.2f} GiB")
    rows = np.linspace(0, given.size - 1, CHECKED).astype(int)
    wrong = sum(int((d[int(i)] != exact(np.asarray(a[int(i)])[None], b, given.format)[0]).sum()) for i in rows)
    print(f"{wrong} of {CHECKED * given.size} outputs checked are wrong")


if __name__ == "__main__":
    main()
