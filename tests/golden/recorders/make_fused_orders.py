"""Write fused_orders.json: products of a GPU without tensor cores, one for each kind: make_fused_orders.py FILE ...

FILE: gzipped JSON, a list of products: format ("f32", or "tf32" where tf32 was allowed), operation, layout, batch, M,
N, K, kernels, rows, columns and their results in base64.  Operands are `tests.hashed.hashed_floats` of seeds 21 and 22.
"""

import base64
import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np

from nbtc.gemm.cublas.shapes import find

MOST, ROWS, COLUMNS = 8192, 2, 3  # elements of K, and what is kept of a result
kept, seen = [], set()
for path in sys.argv[1:]:
    for fmt, op, layout, batch, m, n, k, _, rows, columns, result in json.loads(
        gzip.decompress(Path(path).read_bytes())
    ):
        if fmt not in ("f32", "tf32") or k > MOST:
            continue
        found = find(op, fmt, layout, (batch, m, n, k))
        kind = (fmt, op, layout, re.sub(r"\d+", "", found.order), k % 32 == 0)
        if found.kind != "rule" or not found.order.startswith("fma") or kind in seen:
            continue
        seen.add(kind)
        values = np.frombuffer(base64.b64decode(result), np.float32).reshape(len(rows), len(columns))
        words = [[f"{x:08x}" for x in row] for row in values[-ROWS:, -COLUMNS:].view(np.uint32).tolist()]
        kept.append([fmt, op, layout, batch, m, n, k, rows[-ROWS:], columns[-COLUMNS:], words])
FILE = Path(__file__).parents[1] / "libraries" / "fused_orders.json"
FILE.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
print(len(kept), FILE.stat().st_size)
