"""Cut the committed library_shapes.npz out of full recordings: make_shapes.py PRODUCTS_PKL_XZ ..."""

import lzma
import pickle
import sys
from pathlib import Path

import numpy as np

from nbtc.gemm.library_shapes import shapes

MOST = 6  # outputs a side


def spread(n, most=10):
    """The rows or columns that were recorded: spread over n, at changing places inside of tiles."""
    if n <= most:
        return np.arange(n)
    i = np.arange(most)
    return np.unique(np.minimum(i * n // most + i * 37 % max(1, n // most), n - 1))


products = []
for path in sys.argv[1:]:
    with lzma.open(path) as f:
        products += pickle.load(f)["products"]
kept, seen = {"names": []}, {}
for p in products:
    if len(p["row"]) != 7 or p.get("loose"):
        continue
    op, fmt, layout, batch, m, n, k = p["row"]
    outcome = p["y"][1] if op == "scaled" else p["y"]  # [without, with] fast accumulation
    order = shapes().get((op, fmt, layout), {}).get((batch, m, n, k))
    kind = (op, fmt, layout, (order or "").split("x")[0])
    if order is None or k > 16384 or seen.setdefault(kind, 0) >= 1:
        continue
    seen[kind] += 1
    rows, columns = (spread(x, 24 if fmt == "tf32" and m * n > 1 << 16 else 10)[:MOST] for x in (m, n))
    name = " ".join(map(str, p["row"]))
    kept["names"].append(name)
    kept |= {f"{name} rows": rows, f"{name} columns": columns, f"{name} result": outcome[:MOST, :MOST]}
np.savez_compressed(Path(__file__).with_name("library_shapes.npz"), **kept)
print(len(kept["names"]))
