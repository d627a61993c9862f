"""Pictures: well-formed, complete, and true to the layouts."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from nbtc import show
from nbtc.errors import MetadataError, UnsupportedInstructionError
from nbtc.fragments.boxes import panel
from nbtc.instructions import instruction
from nbtc.isa import parse

FORMS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64.rz",
    "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32",
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8",
    "wmma.mma.sync.aligned.row.col.m8n32k16.f16.f32",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16",
    "ldmatrix.sync.aligned.m8n8.x4.trans.b16",
    "stmatrix.sync.aligned.m16n8.x2.trans.b8",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "cvt.rn.f16x2.f32",
]


@pytest.mark.parametrize("name", FORMS)
def test_svg_is_well_formed_and_stays_in_its_frame(name):
    picture = instruction(name)._repr_svg_()
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg") and len(picture) < 400_000
    width, height = float(root.get("width")), float(root.get("height"))
    for rect in list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]:
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
    for label in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 < float(label.get("y")) < height and label.text
        if label.get("text-anchor") == "start":  # 0.6 em a letter in every monospace font
            assert float(label.get("x")) + 0.6 * float(label.get("font-size")) * len(label.text) <= width


@pytest.mark.parametrize("name", FORMS)
def test_labels_fit_their_boxes(name):
    root = ElementTree.fromstring(show.svg(name))
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        _, rect, label = list(group)
        assert 0.602 * float(label.get("font-size")) * len(label.text) <= float(rect.get("width"))
        assert float(rect.get("height")) >= 1.4 * float(label.get("font-size"))


@pytest.mark.parametrize("name", FORMS)
def test_boxes_tile_the_matrix_and_name_the_right_register(name):
    row = parse.row(name)
    for letter in "abcd":
        operand = getattr(row, letter)
        if operand is None or operand.layout is None:
            continue
        coords, register = operand.coords(), operand.slots()[0]
        for product in range(operand.products):
            p = panel(letter.upper(), letter, operand, product)
            assert sum(b.rows * b.cols for b in p.boxes) == p.rows * p.cols
            for box in p.boxes:
                numbers = [int(v) for v in re.findall(r"\d+", box.registers)]
                held = {
                    (int(r), int(c))
                    for i, (r, c) in enumerate(coords[box.lane])
                    if int(register[i]) in numbers and operand.layout.products()[box.lane] == product
                }
                assert held >= {(box.row + i, box.col + j) for i in range(box.rows) for j in range(box.cols)}


def test_text():
    text = show.text(FORMS[1])
    assert max(len(line) for line in text.splitlines()) <= 100
    for lane in range(32):
        for name in ("a0", "a3", "b1", "d3"):
            assert re.search(rf"\bT{lane} {name}\b", text)
    assert "selector 0" in show.text(FORMS[5]) and "in shared memory" in show.text(FORMS[7])
    assert "a0·2·4·6" in show.text(FORMS[9]) and "a0:1" in show.text(FORMS[4])


def test_older_layouts():
    name = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    assert "T0+T8 a0" in show.text(name, arch="sm_70") and "T0+T8" not in show.text(name, arch="sm_75")
    with pytest.raises(UnsupportedInstructionError):
        show.svg("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32", arch="sm_70")


def test_every_form_has_a_picture():
    for row in parse.rows():
        if row.shape is None or row.shape[1] in (8, 16, 32):
            assert show.text(row).startswith(row.mnemonic)


def test_each_range_of_architectures_has_its_picture():
    """wmma fragments: Volta's, Turing's and the later ones, or a line that says nobody knows."""
    pictures = show.text("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    new, old = pictures.split("on sm_70 to sm_72")
    assert "on sm_75 to sm_121" in new and "T0+T8" not in new and "T0+T8 a0" in old
    turing = show.text("wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32")
    assert "on sm_80 to sm_121" in turing and "on sm_75 only" in turing
    assert "on sm_72 only: exists, but nobody has published" in turing
    assert "sm_70 to sm_121" not in pictures + turing
    assert show.text(FORMS[0]).count("on sm_") == 1 and "on sm_80 to sm_121" in show.text(FORMS[0])
    picture = show.svg("wmma.load.c.sync.aligned.row.m16n16k16.f32")
    assert "on sm_75 to sm_121" in picture and "on sm_70 to sm_72" in picture


def test_what_is_repeated_has_a_legend():
    assert "a0·2·4·6: each of these registers of T0 holds a copy" in show.text(FORMS[9])
    assert "T0+T8: each of these lanes holds a copy" in show.text(FORMS[10], arch="sm_70")
    assert "holds a copy" in show.svg(FORMS[9]) and "copy" not in show.text(FORMS[0])


def test_the_selector_is_the_one_drawn():
    name = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    assert "metadata, selector 1" in show.text(name, selector=1) and "T2 bits" in show.text(name, selector=1)
    assert "T2 bits" not in show.text(name) and "metadata, selector 0" in show.svg(name)
    line = f"{name} {{d0,d1,d2,d3}}, {{a0,a1,a2,a3}}, {{b0,b1,b2,b3}}, {{c0,c1,c2,c3}}, e, 1;"
    assert show.text(line) == show.text(name, selector=1) and "selector 1" in instruction(line)._repr_svg_()
    with pytest.raises(MetadataError):
        show.text(name, selector=2)


def test_block_scales_are_drawn_where_the_product_reads_them():
    """Row 8 of A in lane 1 and row 1 in lane 4, column 3 of B in lane 12; two scales a line in the lower bytes."""
    four = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    lines = show.text(four).splitlines()
    a, b = (next(n for n, x in enumerate(lines) if x.startswith(f"scales of {side}, byte 0")) for side in "AB")
    assert lines[a].endswith("16 x 2 ue8m0") and lines[b].endswith("2 x 8 ue8m0")
    assert lines[a + 3].split() == ["1", "T4", "bytes", "0..1"] and lines[a + 10].split()[:2] == ["8", "T1"]
    assert lines[b + 2].split()[1::3] == [f"T{4 * n}" for n in range(8)]
    eight = show.svg("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0")
    assert ">T28 byte 0<" in eight and "scales of B" in eight
    assert "scales of" not in show.text("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X")


def test_rows_of_matrix_moves_name_the_lane_of_their_address():
    for name in FORMS[11:13]:
        assert "row 3 @T3: lane 3 gives" in show.text(name) and ">6+7 @T6+T7<" in show.svg(name)
    assert re.search(r"^ *30\+31 @T30\+T31 ", show.text(FORMS[11]), re.MULTILINE)
    assert re.search(r"^ *31 @T31 ", show.text("ldmatrix.sync.aligned.m8n8.x4.b16"), re.MULTILINE)
    assert "@T" not in show.text("movmatrix.sync.aligned.m8n8.trans.b16")


def test_names_alone_say_so():
    assert "only a name" in show.text("tcgen05.mma.sp.cta_group::1.kind::f16")
