"""Cut the committed convolutions.npz out of a full recording: make_convolutions.py PRODUCTS_PKL_XZ."""

import lzma
import pickle
import sys
from pathlib import Path

import numpy as np

MOST = 96  # outputs of each

with lzma.open(sys.argv[1]) as f:
    products = pickle.load(f)["products"]
rows = [p for p in products if len(p["row"]) > 7 and p["row"][1] != "tf32"]
names = [" ".join(map(str, p["row"])) for p in rows]
found = {
    name: p["y"][: 2048 : max(1, min(2048, p["y"].size) // MOST)][:MOST] for name, p in zip(names, rows, strict=True)
}
np.savez_compressed(Path(__file__).parents[1] / "libraries" / "convolutions.npz", names=names, **found)
print(len(names))
