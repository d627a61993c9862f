"""Recordings of wgmma (committed, or all where NBTC_GOLDEN names a directory); programs to look for hazards in."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from nbtc.errors import HazardError
from nbtc.wgmma import Descriptor, Sequence, tile_to_smem

N8 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SMALL = Path(__file__).parents[1] / "golden"


def _groups():
    """(key, entry of the index, arrays by name) of every recorded group."""
    if "NBTC_GOLDEN" in os.environ:
        folder = Path(os.environ["NBTC_GOLDEN"])
        index = json.loads((folder / "index.json").read_text())
        names = sorted({e["file"] for e in index.values() if e["kind"] == "wgmma"} | {"wgmma_layouts.npz"})
        files = [folder / n for n in names]
    else:
        files, index = [SMALL / "wgmma.npz", SMALL / "wgmma_layouts.npz"], {}
        for file in files:
            with np.load(file) as z:
                index |= json.loads(z["index"].tobytes())
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


class Program:
    """A sequence over tiles of ones, with its usual steps as short words."""

    def __init__(self, check=True, **more):
        a, self.a = tile_to_smem(np.ones((64, 16), np.float16), "f16")
        b, b_desc = tile_to_smem(np.ones((16, 16), np.float16), "f16")
        self.image, self.b_at = np.concatenate([a, b]), a.size
        self.b = Descriptor(a.size, b_desc.leading, b_desc.stride)
        self.s = Sequence(self.image, check=check, **more)
        self.d, self.e = self.s.registers(4, "d"), self.s.registers(4, "e")
        self.f = self.s.registers(np.full((128, 4), 0x3C003C00, np.uint32), "f")

    def go(self, d=None, name=N8, a=None, **more):
        self.s.wgmma(name, self.d if d is None else d, self.a if a is None else a, more.pop("b", self.b), **more)

    def done(self, n=0):
        self.s.commit_group()
        self.s.wait_group(n)

    def product(self):
        """Fence, one product, wait: in itself without a hazard."""
        self.s.fence()
        self.go()
        self.done()


def _run(program, **more):
    p = Program(**more)
    with p.s:
        program(p)
    return p


@pytest.fixture
def program():
    """The class of programs."""
    return Program


@pytest.fixture
def run():
    """run(steps, **options) of a program: a fresh one that has taken these steps."""
    return _run


@pytest.fixture
def judge():
    """judge(rule, broken, correct, where): the one is reported, at that place, and its twin is not."""

    def check(rule, broken, correct, where):
        assert _run(correct).s.hazards == []
        with pytest.raises(HazardError) as found:
            _run(broken)
        assert f"[{rule}]" in str(found.value) and where in str(found.value)
        recorded = _run(broken, check="record").s.hazards
        assert [h.rule for h in recorded] == [rule] and recorded[0].where == where
        assert f"instruction {recorded[0].instruction} " in str(found.value)
        assert _run(broken, check=False).s.hazards == []

    return check
