"""Add what the committed library_shapes.npz lacks out of full recordings: make_shapes.py PRODUCTS_PKL_XZ ..."""

import lzma
import pickle
import sys
from pathlib import Path

import numpy as np

from nbtc.gemm.cublas.shapes import shapes

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
FILE = Path(__file__).parents[1] / "libraries" / "library_shapes.npz"
kept, seen = {"names": []}, {}
if FILE.exists():
    with np.load(FILE) as z:
        kept = {name: z[name] for name in z.files}
    kept["names"] = [str(x) for x in kept["names"]]
for name in kept["names"]:
    op, fmt, layout, *size = name.split()
    order = shapes()[op, fmt, layout][tuple(map(int, size))]
    seen[op, fmt, layout, order.split("x")[0]] = 1
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
    rows, columns = (spread(x, have)[:MOST] for x, have in zip((m, n), outcome.shape, strict=True))
    name = " ".join(map(str, p["row"]))
    kept["names"].append(name)
    kept |= {f"{name} rows": rows, f"{name} columns": columns, f"{name} result": outcome[:MOST, :MOST]}
np.savez_compressed(FILE, **kept)
print(len(kept["names"]))
