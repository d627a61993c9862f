"""Matrices to registers and back, for every operand of every form."""

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc.errors import FormatError, OptionError, ShapeError
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.fragments import pack
from nbtc.instructions import instruction
from nbtc.isa import parse


def operands():
    """One of each kind of operand: (mnemonic, letter, operand)."""
    seen = {}
    for row in parse.rows():
        for letter in "abcd":
            operand = getattr(row, letter)
            if operand is not None and operand.layout is not None:
                seen.setdefault(operand, (row.mnemonic, letter, operand))
    return tuple(seen.values())


OPERANDS = operands()


def random_matrix(operand, batch, seed):
    inner = ((operand.products,) if operand.products > 1 else ()) + (operand.rows, operand.cols)
    raw = np.random.default_rng(seed).bytes(int(np.prod(batch + inner)) * operand.format.dtype.itemsize)
    bits = np.frombuffer(raw, operand.format.bits_dtype).reshape(batch + inner)
    if operand.format.bits < 8 * operand.format.dtype.itemsize:
        bits = bits & bits.dtype.type((1 << operand.format.bits) - 1)
    return from_bits(bits, operand.format)


@settings(max_examples=300, deadline=None)
@given(
    which=st.sampled_from(OPERANDS), batch=st.sampled_from([(), (1,), (3,), (2, 0), (2, 3)]), seed=st.integers(0, 2**32)
)
def test_round_trip(which, batch, seed):
    _, _, operand = which
    matrix = random_matrix(operand, batch, seed)
    image = pack.pack(operand, matrix)
    assert image.dtype == np.uint32 and image.shape == (*batch, operand.lanes, operand.registers)
    back = pack.unpack(operand, image)
    assert back.dtype == operand.format.dtype
    assert (to_bits(back, operand.format) == to_bits(matrix, operand.format)).all()
    assert (pack.pack(operand, back) == image).all()


@pytest.mark.parametrize(("name", "letter", "operand"), OPERANDS, ids=lambda x: x if isinstance(x, str) else "")
def test_one_element_lands_where_coords_and_slots_say(name, letter, operand):
    """Set the elements of one slot of one lane; the image must have their bits there and nowhere else but in copies."""
    rng = np.random.default_rng(len(name))
    lane, i = int(rng.integers(operand.lanes)), int(rng.integers(operand.elements))
    row, col = operand.coords()[lane, i]
    inner = ((operand.products,) if operand.products > 1 else ()) + (operand.rows, operand.cols)
    bits = np.zeros(inner, operand.format.bits_dtype)
    place = (operand.layout.products()[lane], row, col) if operand.products > 1 else (row, col)
    ones = (1 << operand.format.bits) - 1
    bits[place] = ones
    image = pack.pack(operand, from_bits(bits, operand.format))
    register, shift = (int(v[i]) for v in operand.slots())
    word = int(image[lane, register])
    if operand.width == 64:
        assert word == 0xFFFFFFFF and int(image[lane, register + 1]) == 0xFFFFFFFF
    else:
        assert word >> shift & ones == ones
    copies = operand.lanes * operand.elements // (operand.products * operand.rows * operand.cols)
    assert sum(int(w).bit_count() for w in image.ravel()) == copies * operand.format.bits


def test_f64_low_word_first():
    i = instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    a = np.zeros((8, 4))
    a[1, 2] = np.uint64(0x0123456789ABCDEF).view(np.float64)
    assert [hex(w) for w in i.pack_a(a)[6]] == ["0x89abcdef", "0x1234567"]


def test_small_formats_by_hand():
    i = instruction("mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32")
    a = np.zeros((8, 32), np.int8)
    a[0, :8] = [1, -1, 2, -2, 3, -3, 7, -8]
    assert hex(i.pack_a(a.astype(ml_dtypes.int4))[0, 0]) == "0x87d3e2f1"
    bits = instruction("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc")
    b = np.zeros((128, 8), bool)
    b[[0, 31, 33], 3] = True
    image = bits.pack_b(b)
    assert hex(image[12, 0]) == "0x80000001" and hex(image[13, 0]) == "0x2"


def test_four_bit_floats_sit_in_bits_2_to_5_of_a_byte():
    row = parse.row("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32")
    image = pack.pack(row.a, from_bits(np.full((16, 32), 15, np.uint8), row.a.format))
    assert (image == 0x3C3C3C3C).all()
    assert (pack.pack(row.b, from_bits(np.full((32, 8), 0x3F, np.uint8), row.b.format)) == 0x3F3F3F3F).all()


def test_strided_and_transposed_matrices():
    i = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    x = np.arange(16 * 64, dtype=np.float16).reshape(64, 16)
    assert (i.pack_a(x[::4].T) == i.pack_a(np.ascontiguousarray(x[::4].T))).all()


def test_wmma_packs_as_an_older_architecture():
    i = instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    a = np.arange(256, dtype=np.float16).reshape(16, 16)
    old = i.pack_a(a, arch="sm_70")
    assert (old != i.pack_a(a)).any() and (i.unpack_a(old, arch="sm_70") == a).all()
    assert old.view(np.float16)[0].tolist() == list(range(16))


ERRORS = [
    (lambda i: i.pack_a(np.zeros((16, 8), np.float16)), ShapeError, "np.zeros((16, 16), np.float16)"),
    (lambda i: i.pack_a(np.zeros(16, np.float16)), ShapeError, "(..., 16, 16)"),
    (lambda i: i.pack_a(np.zeros((16, 16), np.float32)), FormatError, "f16"),
    (lambda i: i.pack_c(np.zeros((16, 8), np.int32)), FormatError, "f32"),
    (lambda i: i.unpack_d(np.zeros((32, 4), np.int32)), FormatError, "uint32"),
    (lambda i: i.unpack_d(np.zeros((32, 2), np.uint32)), ShapeError, "(..., 32, 4)"),
    (lambda i: i.unpack_d(np.zeros((4,), np.uint32)), ShapeError, "(..., 32, 4)"),
]


@pytest.mark.parametrize(("call", "kind", "says"), ERRORS)
def test_errors(call, kind, says):
    i = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    with pytest.raises(kind, match=re.escape(says)) as error:
        call(i)
    assert len(str(error.value)) >= 40


def test_forms_without_matrices():
    for text in ("cvt.rn.f16.f32", "shfl.sync.idx.b32"):
        with pytest.raises(OptionError, match="no matrix operand"):
            instruction(text).pack_a(np.zeros((8, 8)))
