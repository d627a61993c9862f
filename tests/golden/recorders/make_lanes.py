"""A thin slice of recorded DPX and warp functions, written to the folder above.

python tests/golden/recorders/make_lanes.py GOLDEN_DIR
"""

import sys
from pathlib import Path

import numpy as np

EVERY = {"dpx": 5, "warp": 3}  # rows of a DPX function, warps of a warp function


def main() -> None:
    """An even sample of every array; the arrays of one function keep the same rows."""
    for name, step in EVERY.items():
        with np.load(Path(sys.argv[1]) / f"{name}.npz") as z:
            np.savez_compressed(Path(__file__).parents[1] / f"{name}.npz", **{key: z[key][::step] for key in z.files})


if __name__ == "__main__":
    main()
