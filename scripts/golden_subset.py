"""Make the compact set of recordings that ships with nbtc from a full folder of them.

    python scripts/golden_subset.py GOLDEN_FOLDER

Every form keeps a tile or two of each of its most telling distributions; every table keeps an even sample of its rows.
The result is one file, `nbtc/data/golden_small.npz.xz`, with the index of its forms inside.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import re
from pathlib import Path

import numpy as np

from nbtc.verify.replay import kind_of

OUT = Path(__file__).resolve().parents[1] / "nbtc" / "data" / "golden_small.npz.xz"
FLOATS = ("randbits", "align", "floor")  # what a wrong special, block, fraction or floor would change
OTHERS = ("nearmax", "anymeta")
TILES = {"mma": 1, "mma.sp": 1, "wgmma": 1, "wmma": 1, "move": 1, "warp": 12, "dpx": 192, "descriptors": 12}
WIDEST = 8  # wgmma forms up to this N: the arithmetic and the register map do not depend on it
LIBRARY = 64 * 64 * 2048  # library products up to this size

CORNER = 8  # rows and columns kept of them


def wanted(key: str, kind: str, index: dict) -> bool:
    if kind in ("mma", "mma.sp", "wmma"):
        return key.split("__")[1] in FLOATS[: 1 + (kind == "mma")] + OTHERS
    if kind == "wgmma":
        form = index[key.split("__")[0]]
        return (form["n"] <= WIDEST and key.split("__")[1] in FLOATS[1:2] + OTHERS) or "example" in key
    if kind == "matmul":
        return np.prod([int(v) for v in re.search(r"__(\d+)x(\d+)x(\d+)__", key).groups()]) <= LIBRARY
    if kind == "wmma maps":
        return True
    return kind != "unknown"


def cut(x: np.ndarray, kind: str, key: str) -> np.ndarray:
    """An even sample of the tiles (rows) of an array; the same for all arrays of a form."""
    if kind == "cvt":
        return x.reshape(-1, 2)[:: max(1, x.size // 2048)].reshape(-1)  # neighbours are each other's pair
    if kind == "matmul":
        rows, columns = {"A": (CORNER, None), "B": (None, CORNER), "R": (CORNER, CORNER)}.get(key[-1], (None, None))
        return x[:rows, :columns] if x.ndim else x
    if kind not in TILES:
        return x
    keep = TILES[kind]
    return x[:: max(1, len(x) // keep)][:keep]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("golden", type=Path)
    folder = parser.parse_args().golden
    index = json.loads((folder / "index.json").read_text())
    arrays, forms = {}, set()
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as z:
            for key in z.files:
                kind = kind_of(key, index)
                if wanted(key, kind, index):
                    arrays[key] = cut(z[key], kind, key)
                    forms.add(key.split("__")[0])
    arrays["index"] = np.array(json.dumps({f: e for f, e in index.items() if f in forms}))
    OUT.parent.mkdir(exist_ok=True)
    memory = io.BytesIO()
    np.savez(memory, **arrays)  # thousands of small arrays: their zip headers shrink only from outside
    OUT.write_bytes(lzma.compress(memory.getvalue(), preset=9))
    print(
        f"{OUT.name}: {len(arrays) - 1} arrays of {len(forms)} forms and tables, {OUT.stat().st_size / 2**20:.2f} MiB"
    )


if __name__ == "__main__":
    main()
