"""Write segments.json out of probes of divided tiles and products of one row: make_segments.py PROBES ROWS.

PROBES: a pickle of products with their kernel, and which tiles into how many parts.  ROWS: products of one row.
"""

import json
import pickle
import sys
from pathlib import Path

import numpy as np

from nbtc.gemm.cublas.choices import ONE_ROW

COLUMNS = 2
probes, rows = (pickle.loads(Path(path).read_bytes()) for path in sys.argv[1:])
kept, seen = [], {}
for p in probes:
    if p["cluster attribute"] == 0 or (p["n"] > 1 and p["tiles"] is None):
        continue
    kind = (p["layout"], p["kernel"].split(":")[1], p["kernel"][-1], p["wave"] > 0, min(p["n"], 3))
    if seen.setdefault(kind, 0) < 1 and (p["n"] > 1 or len(kept) < 4) and p["rows"] * p["columns"] < 4000:
        seen[kind] += 1
        divided = np.argwhere(p["tiles"] == 1) if p["tiles"] is not None else np.zeros((0, 2), int)
        ends = [int(x) for x in (*divided.min(0), *divided.max(0), len(divided))] if len(divided) else []
        kept.append([p["kernel"], p["layout"], *p["size"], p["n"], ends])
single = []
for product, kernel, columns, result in rows:
    if kernel in ONE_ROW and product[4] <= ONE_ROW[kernel][1] and seen.setdefault((kernel, product[1]), 0) < 1:
        seen[kernel, product[1]] += 1
        words = [f"{x:08x}" for x in result[:COLUMNS].view(np.uint32).tolist()]
        single.append([*product, kernel, columns[:COLUMNS].tolist(), words])
FILE = Path(__file__).parents[1] / "libraries" / "segments.json"
FILE.write_text(json.dumps({"tiles": kept, "rows": single}, separators=(",", ":")))
print(len(kept), len(single), FILE.stat().st_size)
