"""Block-scaled mma.sync on registers: every form against the oracle, scale registers and selectors, what is refused."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.errors import ArchError, FormatError, OptionError, ParseError, ShapeError, UnsupportedInstructionError
from nbtc.formats.arrays import from_bits
from nbtc.formats.table import FORMATS
from nbtc.fragments.scales import BYTES, THREADS
from nbtc.instructions import Instruction, instruction, instructions
from nbtc.isa import parse
from nbtc.isa.archs import target
from nbtc.numerics import models
from nbtc.numerics.exact_scaled import ScaledOracle
from nbtc.testing import assert_bits_equal
from nbtc.testing.scaled_cases import draw

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
FORMS = [i for i in instructions(family="mma") if i.row.scale]
MX4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
MX8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
NV4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


def oracle(i: Instruction) -> ScaledOracle:
    r = i.row
    row = models._ROWS["sm_120", r.unit, models.family(r.a.format)]
    return ScaledOracle(row, r.a.format, r.b.format, r.c.format, r.shape[2], FORMATS[r.scale], r.chunks)


def arrays(i: Instruction, x):
    scale = FORMATS[i.row.scale]
    return (from_bits(x.a, i.a.format), from_bits(x.b, i.b.format), x.c.view(np.float32), from_bits(x.xs, scale),
            from_bits(x.ys, scale))  # fmt: skip


def test_the_forms_are_those_of_the_isa() -> None:
    assert len(FORMS) == 2 * 25 + 2 + 3
    assert {i.row.chunks for i in FORMS} == {1, 2, 4} and {i.row.scale for i in FORMS} == {"ue8m0", "ue4m3"}


@pytest.mark.parametrize("kind", ["mxf8f6f4", "mxf4", "mxf4nvf4"])
def test_forms_against_the_oracle(kind: str) -> None:
    for i in (f for f in FORMS if f.row.kind == kind):
        rng = np.random.default_rng(zlib.crc32(i.mnemonic.encode()))
        judge, count = oracle(i), 6 if kind == "mxf8f6f4" else 40
        for _ in range(count):
            x = draw(rng, i.shape, (i.a.format, i.b.format, FORMATS[i.row.scale]), i.row.chunks)
            a, b, c, sa, sb = arrays(i, x)
            byte = {"byte_a": int(rng.choice(BYTES[i.row.chunks])), "byte_b": int(rng.choice(BYTES[i.row.chunks]))}
            thread = {"thread_a": int(rng.choice(THREADS["a"])), "thread_b": int(rng.choice(THREADS["b"]))}
            how = {
                "scale_a": i.pack_scale_a(sa, byte["byte_a"], thread["thread_a"]),
                "scale_b": i.pack_scale_b(sb, byte["byte_b"], thread["thread_b"]), **byte, **thread,
            }  # fmt: skip
            got = i(i.pack_a(a), i.pack_b(b), i.pack_c(c), arch="sm_120", **how)
            rows = slice(0, 4)
            want = judge.matrix(x.a[rows], x.b, x.c[rows], x.xs[rows], x.ys)
            assert_bits_equal(i.unpack_d(got)[rows].view(np.uint32), want, "f32", i.mnemonic)
            again = nbtc.ptx.mma_sync(i.mnemonic, i.pack_a(a), i.pack_b(b), i.pack_c(c), arch="sm_120a", **how)
            assert_bits_equal(again, got)


def test_published_vectors() -> None:
    """All tiles of the published model, where NBTC_VECTORS names the folder of recordings."""
    folder = os.environ.get("NBTC_VECTORS")
    if folder is None:
        pytest.skip("NBTC_VECTORS is not set")
    with np.load(Path(folder) / "blackwell_models.npz") as z:
        for form in sorted({k.rsplit("__", 1)[0] for k in z.files if k.startswith("sm120.mx")}):
            _, kind, size, scale, a, b = form.split(".")
            k = z[f"{form}__A"].shape[-1]
            i = instruction(
                f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.scale_vec::{size}.f32.{a}.{b}.f32.{scale}"
            )
            x = [from_bits(z[f"{form}__{n}"], f) for n, f in (("A", a), ("B", b), ("SA", scale), ("SB", scale))]
            c = z[f"{form}__C"].astype(np.uint32).view(np.float32)
            how = {"scale_a": i.pack_scale_a(x[2]), "scale_b": i.pack_scale_b(x[3])}
            got = i.unpack_d(i(i.pack_a(x[0]), i.pack_b(x[1]), i.pack_c(c), arch="sm_120", **how))
            assert_bits_equal(got.view(np.uint32), z[f"{form}__D"].astype(np.uint32), "f32", form)


def test_every_scale_code_and_its_nan() -> None:
    for name, code, scale in ((MX4, 0xFF, "ue8m0"), (NV4, 0x7F, "ue4m3"), (NV4, 0xFF, "ue4m3"), (MX8, 0xFF, "ue8m0")):
        i = instruction(name)
        a, b = np.zeros((16, i.shape[2]), i.a.format.dtype), np.zeros((i.shape[2], 8), i.b.format.dtype)
        sa = np.full((16, i.row.chunks), 0x38, np.uint8)
        sa[3, -1] = code
        sb = np.full((i.row.chunks, 8), 0x38, np.uint8)
        dtype = FORMATS[scale].dtype
        how = {"scale_a": i.pack_scale_a(sa.view(dtype)), "scale_b": i.pack_scale_b(sb.view(dtype))}
        d = i.unpack_d(i(i.pack_a(a), i.pack_b(b), i.pack_c(np.ones((16, 8), np.float32)), arch=120, **how))
        assert (d.view(np.uint32)[3] == 0x7FFFFFFF).all() and (np.delete(d, 3, 0) == 1).all()


def test_a_cancelled_group_rules_the_exponent_and_an_empty_one_does_not() -> None:
    i = instruction(MX4)
    a, b = np.zeros((16, 64), np.uint8), np.zeros((64, 8), np.uint8)
    a[:, :2], b[0], b[1] = 2, 2, 10  # 1 * 1 - 1 * 1
    scale = np.full((16, 2), 127, np.uint8)
    scale[:, 0] = 127 + 20  # E = 20: c is cut to multiples of 2**-15
    how = {"scale_b": i.pack_scale_b(np.full((2, 8), 127, np.uint8).view(ml_dtypes.float8_e8m0fnu)),
           "scale_a": i.pack_scale_a(scale.view(ml_dtypes.float8_e8m0fnu)), "arch": "sm_120"}  # fmt: skip
    c = i.pack_c(np.full((16, 8), 1 + 2.0**-20, np.float32))
    dtype = ml_dtypes.float4_e2m1fn
    d = i.unpack_d(i(i.pack_a(a.view(dtype)), i.pack_b(b.view(dtype)), c, **how))
    assert (d == 1).all()
    empty = i.unpack_d(i(i.pack_a(np.zeros((16, 64), dtype)), i.pack_b(b.view(dtype)), c, **how))
    assert (empty == np.float32(1 + 2.0**-20)).all()


def ones_of(i: Instruction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of ones, and of a zero accumulator."""
    (m, n, k), fmt = i.shape, i.a.format.dtype
    return i.pack_a(np.ones((m, k), fmt)), i.pack_b(np.ones((k, n), fmt)), i.pack_c(np.zeros((m, n), np.float32))


def test_lanes_that_are_not_selected_are_not_read() -> None:
    i = instruction(MX4)
    scale = np.full((16, 2), 130, np.uint8).view(ml_dtypes.float8_e8m0fnu)
    image = i.pack_scale_a(scale, byte=2, thread=1)
    lanes = np.flatnonzero(image)
    assert lanes.tolist() == [4 * q + t for q in range(8) for t in (2, 3)] and (image[lanes] == 0x82820000).all()
    noise = np.where(image == 0, np.uint32(0xFFFFFFFF), image | np.uint32(0xFFFF))
    one = np.ones((64, 8), ml_dtypes.float4_e2m1fn)
    sb = i.pack_scale_b(np.full((2, 8), 127, np.uint8).view(ml_dtypes.float8_e8m0fnu))
    operands = i.pack_a(np.ones((16, 64), ml_dtypes.float4_e2m1fn)), i.pack_b(one), i.pack_c(np.zeros((16, 8), "f4"))
    d = i(*operands, scale_a=noise, scale_b=sb, byte_a=2, thread_a=1, arch="sm_120")
    assert (i.unpack_d(d) == 512).all()


def test_a_line_gives_its_selectors() -> None:
    line = f"{MX4} {{d0,d1,d2,d3}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{c0,c1,c2,c3}}, sa, {{2, 1}}, sb, {{0, 3}};"
    i = instruction(line)
    ones = np.full((16, 2), 128, np.uint8).view(ml_dtypes.float8_e8m0fnu), np.full((2, 8), 127, np.uint8)
    how = {"scale_a": i.pack_scale_a(ones[0], 2, 1),
           "scale_b": i.pack_scale_b(ones[1].view(ml_dtypes.float8_e8m0fnu), 0, 3), "arch": "sm_120"}  # fmt: skip
    operands = ones_of(i)
    assert (i.unpack_d(i(*operands, **how)) == 128).all()
    with pytest.raises(OptionError, match="contradicts the line"):
        i(*operands, **how, byte_a=0)


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        (MX4, {"byte": 1}, "takes 0 2"),
        (MX4, {"thread": 2}, "takes 0 1"),
        (NV4, {"byte": 2}, "takes 0;"),
        (MX8, {"byte": 4}, "takes 0 1 2 3"),
        (MX8, {"thread": True}, "takes 0 1"),
    ],
)
def test_selectors_outside_the_legal_set_raise(name: str, how: dict[str, int], message: str) -> None:
    i = instruction(name)
    with pytest.raises(OptionError, match=message):
        i.pack_scale_a(np.ones((16, i.row.chunks), FORMATS[i.row.scale].dtype), **how)


def test_wrong_scales_raise() -> None:
    i = instruction(MX8)
    good = np.ones((16, 1), ml_dtypes.float8_e8m0fnu)
    operands = ones_of(i)
    with pytest.raises(ShapeError, match="1 a row"):
        i.pack_scale_a(np.ones((16, 2), ml_dtypes.float8_e8m0fnu))
    with pytest.raises(FormatError, match="ue8m0 is carried by"):
        i.pack_scale_a(np.ones((16, 1), np.float32))
    with pytest.raises(OptionError, match="needs scale_b"):
        i(*operands, scale_a=i.pack_scale_a(good), arch="sm_120")
    with pytest.raises(FormatError, match="scale registers are uint32"):
        i(*operands, scale_a=good, scale_b=good, arch="sm_120")
    with pytest.raises(ShapeError, match="scale registers are uint32"):
        i(*operands, scale_a=i.pack_scale_a(good)[:4], scale_b=i.pack_scale_a(good), arch="sm_120")
    plain = instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
    with pytest.raises(OptionError, match="has no block scales"):
        plain(*operands, scale_a=i.pack_scale_a(good), arch="sm_120")
    with pytest.raises(OptionError, match="has no block scales"):
        plain.pack_scale_a(good)


def test_architectures_and_targets() -> None:
    i = instruction(MX8)
    with pytest.raises(UnsupportedInstructionError, match="exists on sm_120, sm_121"):
        i(*[np.zeros((32, n), np.uint32) for n in (4, 2, 4)], scale_a=np.zeros(32, np.uint32),
          scale_b=np.zeros(32, np.uint32), arch="sm_100")  # fmt: skip
    legal = {t for t in ("sm_90a", "sm_100a", "sm_120", "sm_120a", "sm_120f", "sm_121a") if i.row.legal_on(target(t))}
    assert legal == {"sm_120a", "sm_120f", "sm_121a"}
    fp8 = parse.row("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32")
    assert [fp8.legal_on(target(t)) for t in ("sm_90", "sm_100", "sm_100f", "sm_103a", "sm_110f")] == [0, 0, 1, 1, 1]
    sparse = parse.rows(family="mma.sp", a="e2m1", scale="ue4m3")
    assert [sparse[0].legal_on(target(t)) for t in ("sm_120a", "sm_120f")] == [True, False]
    for name in ("sm_80a", "sm_90f", "sm_75f"):
        with pytest.raises(ArchError, match="has no suffix"):
            target(name)


def test_a_form_newer_than_the_lines_is_named_by_its_mnemonic() -> None:
    name = MX4.replace("mxf4.block_scale", "mxf4nvf4.block_scale.scale_vec::4X")
    i = instruction(name)
    assert i.row.version == "9.1" and i.row.chunks == 4
    line = f"{name} {{d0,d1,d2,d3}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{c0,c1,c2,c3}}, sa, {{0, 0}}, sb, {{0, 0}};"
    with pytest.raises(ParseError, match=r"PTX ISA 9\.1"):
        instruction(line)
    assert parse.line(line, "9.1").row is i.row


def test_sparse_kinds_are_refused_by_name() -> None:
    for name in ("kind::f8f6f4.f32.e2m1.e2m1.f32", "kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"):
        i = instruction(f"mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.{name}")
        with pytest.raises(UnsupportedInstructionError, match="no recorded arithmetic"):
            i(*[np.zeros((32, 4), np.uint32)] * 3, np.zeros(32, np.uint32), arch="sm_120")


def test_unvalidated() -> None:
    i = instruction(NV4)
    models._WARNED.clear()
    zeros = [np.zeros((32, n), np.uint32) for n in (4, 2, 4)]
    with pytest.warns(nbtc.errors.UnvalidatedModelWarning, match="literature"):
        i(*zeros, scale_a=np.zeros(32, np.uint32), scale_b=np.zeros(32, np.uint32), arch="sm_120")
