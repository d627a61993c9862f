"""Recorded warpgroup products and descriptor probes, few of each kind.

    python tests/golden/recorders/make_wgmma.py GOLDEN_DIR

writes wgmma.npz (one tile of one or two distributions of most forms), wgmma_layouts.npz (a spread of the swizzle
recordings) and wgmma_probes.npz (every third probe) in the folder above, with the keys of the full recordings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDE = 8  # forms with more columns keep one distribution
WIDEST = 24  # and those with still more are kept for one form in four
LAYOUTS = "wgmma_layouts.npz"  # recordings that spread their tiles over shared memory in every way


def heads(z: Any, form: str) -> list[str]:
    """The groups of a form in one file, in file order."""
    return list(dict.fromkeys(k.rsplit("__", 1)[0] for k in z.files if k.split("__")[0] == form))


def chosen(groups: list[str], turn: int, wide: bool) -> list[str]:
    """A few of a form's distributions, other ones for each form."""
    count = 1 if wide else 2
    return sorted({groups[(turn + i * max(1, len(groups) // count)) % len(groups)] for i in range(count)})


def products(folder: Path, index: dict[str, Any]) -> dict[str, dict[str, NDArray[Any]]]:
    """Arrays to keep, by file and key."""
    kept: dict[str, dict[str, NDArray[Any]]] = {"wgmma.npz": {}, LAYOUTS: {}}
    files: dict[str, Any] = {}
    for turn, (form, entry) in enumerate((f, e) for f, e in index.items() if e["kind"] == "wgmma"):
        if entry["n"] > WIDEST and turn % 4:
            continue
        for file in dict.fromkeys((entry["file"], LAYOUTS)):
            z = files.setdefault(file, np.load(folder / file))
            groups = heads(z, form)
            layouts = file == LAYOUTS
            for head in groups if layouts or not groups else chosen(groups, turn, entry["n"] > WIDE):
                for key in (k for k in z.files if k.rsplit("__", 1)[0] == head):
                    x = z[key]
                    some = x[:: max(1, -(-len(x) // 3))] if layouts else x[turn % len(x)][None]
                    kept[LAYOUTS if layouts else "wgmma.npz"][key] = some
    return kept


def main(folder: Path) -> None:
    here = Path(__file__).parents[1]
    index = json.loads((folder / "index.json").read_text())
    for file, kept in products(folder, index).items():
        forms = sorted({k.split("__")[0] for k in kept})
        kept["index"] = np.frombuffer(json.dumps({f: index[f] for f in forms}).encode(), np.uint8)
        np.savez_compressed(here / file, **kept)
    with np.load(folder / "wgmma_descriptor_probes.npz") as z:
        np.savez_compressed(here / "wgmma_probes.npz", **{k: z[k][::3] for k in z.files})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
