"""Recordings of wgmma: the committed ones, or all of them where NBTC_GOLDEN names a directory."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

SMALL = Path(__file__).parents[1] / "golden"


def _groups():
    """(key, entry of the index, arrays by name) of every recorded group."""
    if "NBTC_GOLDEN" in os.environ:
        folder = Path(os.environ["NBTC_GOLDEN"])
        index = json.loads((folder / "index.json").read_text())
        names = sorted({e["file"] for e in index.values() if e["kind"] == "wgmma"} | {"wgmma_layouts.npz"})
        files = [folder / n for n in names]
    else:
        files = [SMALL / "wgmma.npz"]
        with np.load(files[0]) as z:
            index = json.loads(z["index"].tobytes())
    for file in files:
        with np.load(file) as z:
            for head in dict.fromkeys(k.rsplit("__", 1)[0] for k in z.files if "__" in k):
                names = ["S", "desc", "A", "C", "D", "E"]
                arrays = {n: z[f"{head}__{n}"] for n in names if f"{head}__{n}" in z.files}
                yield head, index[head.split("__")[0]], arrays


def _probes():
    """(tag, descriptor fields, addresses) of every recorded probe."""
    folder = os.environ.get("NBTC_GOLDEN")
    file = Path(folder) / "wgmma_descriptor_probes.npz" if folder else SMALL / "wgmma_probes.npz"
    with np.load(file) as z:
        for key in z.files:
            if key.endswith("__desc"):
                tag = key.removesuffix("__desc")
                for fields, addresses in zip(z[key].tolist(), z[tag + "__addr"], strict=True):
                    yield tag, fields, addresses


@pytest.fixture
def product_groups():
    return _groups()


@pytest.fixture
def probes():
    return _probes()
