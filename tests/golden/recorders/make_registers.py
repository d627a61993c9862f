"""A thin slice of recorded warp-level matrix instructions: python tests/golden/recorders/make_registers.py GOLDEN_DIR.

Writes registers.npz (mma, mma.sp) and tiles.npz (wmma): a tile of two or three distributions of every form, other ones
from form to form; moves.npz (ldmatrix, stmatrix, movmatrix) and wmma_maps.npz (all maps).  Keys are those of the
recordings; `index` is a JSON text with the mnemonic, selector and types of each form.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KINDS = {"registers": ("mma", "mma884", "mma.sp"), "tiles": ("wmma",)}
ALWAYS = ("anymeta",)


def text(index: dict[str, dict[str, object]]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(index).encode(), np.uint8)


def main(golden: Path, here: Path) -> None:
    index = json.loads((golden / "index.json").read_text())
    for name, kinds in KINDS.items():
        forms = {form: row for form, row in index.items() if row["kind"] in kinds}
        kept: dict[str, NDArray[np.generic]] = {}
        for file in sorted({row["file"] for row in forms.values()}):
            with np.load(golden / file) as z:
                runs: dict[str, list[str]] = {}
                for run in sorted({key.rsplit("__", 1)[0] for key in z.files}):
                    runs.setdefault(run.split("__")[0], []).append(run)
                for n, form in enumerate(f for f in runs if f in forms):
                    some = runs[form]
                    chosen = {some[n % len(some)], some[(n + len(some) // 2) % len(some)]}
                    chosen |= {r for r in some if r.split("__")[1] in ALWAYS}
                    kept |= {
                        k: z[k][-1:] for r in sorted(chosen) for k in (f"{r}__{x}" for x in "ABCDE") if k in z.files
                    }
        used = {key.split("__")[0] for key in kept}
        np.savez_compressed(here / f"{name}.npz", index=text({f: r for f, r in forms.items() if f in used}), **kept)
    with np.load(golden / "ldmatrix.npz") as z:
        np.savez_compressed(here / "moves.npz", **{key: z[key][:1] for key in z.files})
    with np.load(golden / "wmma_maps.npz") as z:
        np.savez_compressed(here / "wmma_maps.npz", **{key: z[key] for key in z.files})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).parents[1])
