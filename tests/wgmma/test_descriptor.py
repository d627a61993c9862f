"""Descriptors against recorded addresses, the worked examples, and their own drawings."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc.errors import DescriptorError, FormatError, NbtcError, OptionError, RangeError, ShapeError
from nbtc.wgmma import Descriptor, smem_to_tile, tile_to_smem

MODES = ("none", "128B", "64B", "32B")  # in the order of their codes
FORMATS = {"8": "s8", "16": "f16", "32": "tf32"}
# operand, descriptor fields, major, addresses of (0,0) (1,0) (8,0) (0,1) (0,8) (9,5) (last,15), rows
EXAMPLES = {
    "1 A": (Descriptor(0, 1024, 128), "k", (0, 16, 128, 2, 1024, 154, 2046), 64),
    "1 B": (Descriptor(0, 512, 128), "k", (0, 16, 128, 2, 512, 154, 1022), 32),
    "2 A": (Descriptor(0, 512, 1024, swizzle="64B"), "mn", (0, 2, 16, 64, 1024, 370, 1998), 64),
    "2 B": (Descriptor(0, 512, 128), "mn", (0, 2, 128, 16, 512, 210, 1022), 32),
    "3 A": (Descriptor(0, 16, 1024, swizzle="128B"), "mn", (0, 2, 16, 144, 1024, 706, 1934), 64),
    "3 B": (Descriptor(0, 16, 256, swizzle="32B"), "k", (0, 32, 256, 2, 16, 298, 1006), 32),
    "4 B": (Descriptor(0, 16, 512, swizzle="64B"), "mn", (0, 2, 16, 64, 512, 370, 974), 32),
}
# start, LBO, SBO and base offset: where an H200 read the four units of K of some columns of a sparse product's B
# (golden/recorders/make_two_rows.py)
COLUMNS = (0, 1, 4, 8, 17)
TWO_ROWS = {
    (0, 16, 256, 0): [
        [0, 16, 16, 32], [32, 48, 48, 64], [144, 128, 128, 176], [256, 272, 272, 288], [544, 560, 560, 576],
    ],
    (0, 128, 256, 0): [
        [0, 16, 144, 128], [32, 48, 176, 160], [144, 128, 256, 272], [256, 272, 400, 384], [544, 560, 688, 672],
    ],
    (0, 1024, 512, 0): [
        [0, 16, 1024, 1040], [32, 48, 1056, 1072], [144, 128, 1168, 1152], [512, 528, 1536, 1552],
        [1056, 1072, 2080, 2096],
    ],
    (0, 256, 512, 5): [
        [16, 0, 272, 256], [48, 32, 304, 288], [128, 144, 384, 400], [528, 512, 784, 768], [1072, 1056, 1328, 1312],
    ],
    (128, 16, 512, 0): [
        [144, 128, 128, 176], [176, 160, 160, 208], [256, 272, 272, 288], [656, 640, 640, 688],
        [1200, 1184, 1184, 1232],
    ],
}  # fmt: skip


def test_recorded_probes(probes):
    count = 0
    for tag, (start, leading, stride, code, base), want in probes:
        operand, major = tag.split("_")[:2]
        d = Descriptor(start, leading, stride, base, MODES[code])
        rows, cols = want.shape
        got = d.address(np.arange(rows)[:, None], np.arange(cols)[None, :], FORMATS[operand[1:]], major)
        np.testing.assert_array_equal(got, want, f"{tag} {d}")
        assert Descriptor.decode(d.encode()) == d
        count += 1
    assert count > 300


def test_rows_of_two_swizzle_rows():
    """Sparse B in K-major order with the 32-byte swizzle: LBO is the step to the second 32 bytes."""
    columns, k = np.array(COLUMNS)[:, None], 16 * np.arange(4)
    for (start, leading, stride, base), want in TWO_ROWS.items():
        d = Descriptor(start, leading, stride, base, "32B")
        assert d.address(columns, k, "u8").tolist() == want
        assert any(f"LBO ({leading} bytes) is the step" in n for n in d.notes((32, 64), "u8"))
    picture = Descriptor(0, 1024, 512, swizzle="32B").explain((32, 64), "u8")
    assert picture.layout == "Swizzle<1,4,3> on bytes o ((8,4),(16,2,2)):((32,512),(1,16,1024))"
    assert "next 32 elements of K" in str(picture)


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name):
    d, major, want, rows = EXAMPLES[name]
    mn, k = np.array([0, 1, 8, 0, 0, 9, rows - 1]), np.array([0, 0, 0, 1, 8, 5, 15])
    assert tuple(d.address(mn, k, "f16", major).tolist()) == want
    data, made = tile_to_smem(np.zeros((rows, 16), np.float16), "f16", major, d.swizzle)
    assert made == d and data.shape == (rows * 32,)


def fields(units):
    return st.integers(0, units - 1)


@given(fields(1 << 14), fields(1 << 14), fields(1 << 14), fields(8), st.sampled_from(MODES))
@settings(deadline=None, max_examples=200)
def test_word_and_fields(start, leading, stride, base, mode):
    d = Descriptor(16 * start, 16 * leading, 16 * stride, base, mode)
    word = d.encode()
    assert word == start | leading << 16 | stride << 32 | base << 49 | MODES.index(mode) << 62
    assert Descriptor.decode(np.uint64(word)) == d


BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}


def tile(rng, shape, fmt):
    from nbtc.formats.table import FORMATS as ROWS

    bits = ROWS[fmt].bits
    dtype = ROWS[fmt].dtype
    if fmt == "b1":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 1 << bits, shape, dtype=np.uint64).astype(f"u{max(1, bits // 8)}").view(dtype)


@given(st.sampled_from(sorted(BITS)), st.sampled_from(MODES), st.integers(1, 12), st.integers(1, 3), st.integers(0, 99))
@settings(deadline=None, max_examples=150)
def test_tiles_come_back(fmt, mode, octets, deep, seed):
    rng = np.random.default_rng(seed)
    for major in ("k", "mn") if BITS[fmt] == 16 else ("k",):
        per = 128 // BITS[fmt] if major == "k" else 8
        if major == "k" and mode != "none":
            deep = min(deep, int(mode[:-1]) // 16)
        m = tile(rng, (2, 8 * octets, deep * per), fmt)
        data, d = tile_to_smem(m, fmt, major, mode)
        assert data.shape[0] == 2 and data.dtype == np.uint8
        back = smem_to_tile(data, d, m.shape[-2:], fmt, major)
        assert back.dtype == m.dtype and back.tobytes() == m.tobytes()
        assert not [n for n in d.notes(m.shape[-2:], fmt, major) if "share" in n or "inside" in n or "wraps" in n]


def test_addresses_wrap_at_the_window():
    assert int(Descriptor((1 << 18) - 16, 128, 128).address(1, 0, "f16")) == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_drawing(name):
    d, major, _, rows = EXAMPLES[name]
    picture = d.explain((rows, 16), "f16", major)
    root = ET.fromstring(picture._repr_svg_())
    texts = ["".join(t.itertext()).replace("\u00a0", " ") for t in root.iter() if t.tag.endswith("text")]
    assert any(picture.layout in t for t in texts)
    labels = [t for t in texts if re.fullmatch(r"\d+(-\d+)?:k\d+(-\d+)?", t)]
    assert len(labels) == rows * 2 and len(set(labels)) == len(labels)  # every unit once
    assert [t for t in texts if t == "28-31"]  # banks
    arrows = [e for e in root.iter() if e.get("marker-end")]
    assert len(arrows) == sum(f"{n} {v} B" in texts for n, v, _ in picture.fields) > 0
    text = str(picture)
    assert picture.layout in text and all(label in text for label in labels)
    assert picture.fields == (("start", 0, 0), ("LBO", d.leading, d.leading // 16), ("SBO", d.stride, d.stride // 16))


LAYOUTS = {
    "1 A": "((8,8),(8,2)):((8,64),(1,512))",
    "2 A": "Swizzle<2,4,3> on bytes o ((8,4,2),(8,2)):((1,8,256),(32,512))",
    "2 B": "((8,1,4),(8,2)):((1,8,64),(8,256))",
    "3 A": "Swizzle<3,4,3> on bytes o ((8,8,1),(8,2)):((1,8,8),(64,512))",
    "3 B": "Swizzle<1,4,3> on bytes o ((8,4),(8,2)):((16,128),(1,8))",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_the_address_formula(name):
    """The CuTe layout evaluated by its own rules gives the addresses."""
    d, major, _, rows = EXAMPLES[name]
    text = d.explain((rows, 16), "f16", major).layout
    assert text == LAYOUTS[name]
    swizzle = re.match(r"Swizzle<(\d),4,3>", text)
    shape, stride = (eval(p) for p in text.split(" o ")[-1].split(":"))  # two tuples of integers
    off = 0
    for extents, steps, coordinate in zip(shape, stride, np.ix_(np.arange(rows), np.arange(16)), strict=True):
        for extent, step in zip(extents, steps, strict=True):
            off = off + coordinate % extent * step
            coordinate = coordinate // extent
    byte = 2 * off
    if swizzle:
        byte = byte ^ ((byte >> 7 & (1 << int(swizzle[1])) - 1) << 4)
    np.testing.assert_array_equal(byte, d.address(np.arange(rows)[:, None], np.arange(16)[None, :], "f16", major))


def test_a_wrong_descriptor_is_seen():
    picture = Descriptor(0, 128, 64).explain((32, 16), "f16")
    assert any("share bytes" in n for n in picture.notes)
    assert "x2!" in str(picture) and "#ff3030" in picture.svg()
    assert "#ff3030" not in Descriptor(0, 512, 128).explain((32, 16), "f16").svg()
    late = Descriptor(512, 16, 1024, swizzle="128B")
    assert any("inside" in n for n in late.notes((64, 16), "f16"))
    assert not any("inside" in n for n in Descriptor(32, 16, 1024, swizzle="128B").notes((64, 16), "f16"))
    assert any("base offset 3" in n for n in Descriptor(0, 16, 256, 3).notes((64, 16), "f16"))
    assert any("LBO" in n and "not read" in n for n in late.notes((64, 16), "f16"))


def test_big_drawings_are_cut():
    picture = Descriptor(0, 16, 1024, swizzle="128B").explain((256, 16), "f16")
    assert "more lines" in str(picture) and "more rows" in picture.svg()


@pytest.mark.parametrize(
    "error, call",
    [
        (DescriptorError, lambda: Descriptor(8, 128, 256)),
        (DescriptorError, lambda: Descriptor(0, 1 << 18, 256)),
        (DescriptorError, lambda: Descriptor(0, 128, -16)),
        (DescriptorError, lambda: Descriptor(0, 128, 256, base_offset=8)),
        (DescriptorError, lambda: Descriptor(0.0, 128, 256)),
        (DescriptorError, lambda: Descriptor(True, 128, 256)),
        (DescriptorError, lambda: Descriptor.decode(1 << 14)),
        (DescriptorError, lambda: Descriptor.decode(1 << 64)),
        (OptionError, lambda: Descriptor(0, 128, 256, swizzle="16B")),
        (OptionError, lambda: Descriptor(0, 128, 256).address(0, 0, "f16", "row")),
        (OptionError, lambda: Descriptor(0, 128, 256).address(0, 0, "s8", "mn")),
        (OptionError, lambda: tile_to_smem(np.zeros((64, 16), np.float32), "tf32", "mn")),
        (FormatError, lambda: Descriptor(0, 128, 256).address(0, 0, "f64")),
        (FormatError, lambda: Descriptor(0, 128, 256).address(0.5, 0, "f16")),
        (RangeError, lambda: Descriptor(0, 128, 256).address(-1, 0, "f16")),
        (ShapeError, lambda: Descriptor(0, 128, 256).explain((64,), "f16")),
        (ShapeError, lambda: tile_to_smem(np.zeros((60, 16), np.float16), "f16")),
        (ShapeError, lambda: tile_to_smem(np.zeros((64, 12), np.float16), "f16")),
        (ShapeError, lambda: tile_to_smem(np.zeros(64, np.float16), "f16")),
        (ShapeError, lambda: tile_to_smem(np.zeros((64, 32), np.float16), "f16", "k", "32B")),
        (ShapeError, lambda: tile_to_smem(np.zeros((4096, 64), np.float16), "f16")),
        (FormatError, lambda: tile_to_smem(np.zeros((64, 16), np.float32), "f16")),
        (FormatError, lambda: smem_to_tile(np.zeros(64, np.int8), Descriptor(0, 128, 256), (8, 8), "f16")),
        (NbtcError, lambda: smem_to_tile(np.zeros(64, np.uint8), Descriptor(0, 128, 256), (8, 8), "f16")),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as found:
        call()
    assert len(str(found.value)) >= 40
