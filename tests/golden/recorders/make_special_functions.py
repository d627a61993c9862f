"""The subset of the special functions' recordings that the tests carry: python make_special_functions.py sfu.npz"""

import sys
from pathlib import Path

import numpy as np

full = np.load(sys.argv[1])
SPECIAL, DOUBLES, QUOTIENTS = 8, 16, 12  # one in so many
CHUNKS = np.unique(np.r_[np.arange(0, 1 << 14, 1009), (127 << 5) + np.arange(2), (255 << 5) + np.arange(2)])
found = {"special_x": full["special_x"][::SPECIAL], "special_dx": full["special_dx"][::DOUBLES], "chunks": CHUNKS}
for name in full.files:
    if name.startswith("hash_"):
        found[name] = full[name][CHUNKS]
    elif name.startswith("special_") and name not in found:
        found[name] = full[name][:: DOUBLES if name.endswith("f64") else SPECIAL]
    elif name.startswith("quot_"):
        found[name] = full[name][::QUOTIENTS]
    elif name.startswith("all_"):
        found[name] = full[name]
np.savez_compressed(Path(__file__).parents[1] / "special_functions.npz", **found)
