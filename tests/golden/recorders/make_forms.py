"""Makes forms.json.xz and fragments.npz: what an assembler accepts and rejects, and where recorded fragments lie.

    python tests/golden/recorders/make_forms.py INSTRUCTIONS.json WMMA_MAPS.npz

forms.json.xz: {"legal": [[family, example, registers, min_sm, n, selectors], ...], "rejected": [line, ...]}, from a
list made with ptxas 13.0.  fragments.npz: for every wmma fragment recorded on an H200, `NAME` uint8
[2, 32, elements]: rows and columns.
"""

import json
import lzma
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[1]


def forms(path: str) -> None:
    listed = json.loads(Path(path).read_text())
    legal = [
        [e["family"], e["example"], e["registers"], e["min_sm"], e.get("n"), e.get("selectors_legal")]
        for e in listed["instructions"]
        if e["example"]
    ]
    rejected = []
    known = {e[1].split(" ")[0].rstrip(";") for e in legal}
    for line in (e["ptx"] for e in listed["rejected_examples"]):
        if not line.rstrip().endswith(";") or "..." in line:  # cut short in the list
            line = line.split(" ")[0]
        if line not in known:
            rejected.append(line)
    text = json.dumps({"legal": legal, "rejected": rejected}, separators=(",", ":"))
    (HERE / "forms.json.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def fragments(path: str) -> None:
    with np.load(path) as maps:
        names = sorted({k.rpartition("__")[0] for k in maps.files})
        arrays = {n: np.stack([maps[f"{n}__row"], maps[f"{n}__col"]]).astype(np.uint8) for n in names}
    np.savez_compressed(HERE / "fragments.npz", **arrays)


if __name__ == "__main__":
    forms(sys.argv[1])
    fragments(sys.argv[2])
