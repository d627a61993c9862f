"""Programs of the sm_100 family: tensor memory, its moves and products; block scales in mma.sync."""

import lzma
import warnings
from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc import tcgen05
from nbtc.errors import BoundsError, OptionError, ProgramError

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
REGISTERS = """ .reg .b32 %r<200>; .reg .b64 %d<16>; .reg .pred %p<4>; .shared .align 1024 .b8 tile[16384];
 .shared .align 8 .b64 bar; .shared .b32 slot; ld.param.u64 %d9, [out]; ld.param.u64 %d8, [a];
 mov.u32 %r199, %tid.x; shr.u32 %r198, %r199, 5; shl.b32 %r197, %r198, 21; setp.eq.u32 %p1, %r198, 0;
 setp.eq.u32 %p2, %r199, 0;"""
ALLOC = """ @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;
 @%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; bar.sync 0; ld.shared.u32 %r196, [slot];
 add.u32 %r195, %r196, %r197;"""
FREE = " bar.sync 0; @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r196, 128;"


def program(body, free=FREE, target="sm_100a"):
    head = HEAD.replace("sm_100a", target)
    return nbtc.load(f"{head}.visible .entry k(.param .u64 out, .param .u64 a) {{{REGISTERS}{body}{free} ret; }}")["k"]


def names(count, first=0):
    return "{" + ", ".join(f"%r{first + n}" for n in range(count)) + "}"


def stored(count, first=0):
    """Registers of all threads to the array: [thread][register]."""
    at = f" mul.lo.u32 %r194, %r199, {4 * count}; cvt.u64.u32 %d7, %r194; add.u64 %d7, %d9, %d7;"
    return at + "".join(f" st.global.u32 [%d7+{4 * n}], %r{first + n};" for n in range(count))


def run(body, a, shape, free=FREE, target="sm_100a"):
    out = np.zeros(shape, np.uint32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program(body, free, target)[1, 128](out, a)
    return out


@pytest.mark.parametrize(
    ("shape", "num", "registers"), [("32x32b", 8, 8), ("16x64b", 4, 4), ("16x128b", 2, 4), ("16x256b", 2, 8)]
)
def test_stored_words_are_loaded_in_another_shape(shape, num, registers):
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 32, (128, 16), dtype=np.uint32)
    load = " mul.lo.u32 %r194, %r199, 64; cvt.u64.u32 %d7, %r194; add.u64 %d7, %d8, %d7;"
    load += "".join(f" ld.global.u32 %r{n}, [%d7+{4 * n}];" for n in range(16))
    body = f"""{ALLOC}{load} tcgen05.st.sync.aligned.32x32b.x16.b32 [%r195], {names(16)};
 tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.{shape}.x{num}.b32 {names(registers, 20)}, [%r195+2];
 tcgen05.wait::ld.sync.aligned;{stored(registers, 20)}"""
    tmem = tcgen05.TensorMemory(check=False)
    tmem.words[:, :16] = words
    expected = tcgen05.ld(tmem, 2, shape, num)
    np.testing.assert_array_equal(run(body, words, (128, registers)), expected)


def extremes(words, which, any_nan=False):
    """Of rows of f32: of zeros the one with a sign is less; a NaN that all are, or that counts, is the GPU's."""
    nan = words & 0x7FFFFFFF > 0x7F800000
    signed = words.view(np.int32).astype(np.int64)
    keys = np.where(signed < 0, signed ^ 0x7FFFFFFF, signed)
    keys[nan] = 1 << 40 if which == "min" else -(1 << 40)
    at = getattr(np, f"arg{which}")(keys, axis=1)
    found = words[np.arange(len(words)), at]
    return np.where(nan.any(1) if any_nan else nan.all(1), np.uint32(0x7FFFFFFF), found)


def test_loads_that_give_extremes_too():
    """`tcgen05.ld.red`: the columns that a thread loads, and the least or greatest of them."""
    words = np.random.default_rng(3).integers(0, 1 << 32, (128, 4), dtype=np.uint32)
    words[:4] = [[0x7FC12345, 0xFF800000, 0, 1 << 31], [0x7FC12345] * 4, [1 << 31, 0, 0, 0], [0, 1 << 31] * 2]
    words[4:68] = np.random.default_rng(3).standard_normal((64, 4)).astype(np.float32).view(np.uint32)
    load = " mul.lo.u32 %r194, %r199, 16; cvt.u64.u32 %d7, %r194; add.u64 %d7, %d8, %d7;"
    load += "".join(f" ld.global.u32 %r{n}, [%d7+{4 * n}];" for n in range(4))
    body = f"{ALLOC}{load} tcgen05.st.sync.aligned.32x32b.x4.b32 [%r195], {names(4)}; tcgen05.wait::st.sync.aligned;"
    kinds = ("min.f32", "max.f32", "f32.max.abs", "min.NaN.f32", "f32.max.abs.NaN", "max.s32", "min.u32")
    for n, kind in enumerate(kinds):
        move = f" tcgen05.ld.red.sync.aligned.32x32b.x4.{kind} {names(4, 20)}, %r{30 + n}, [%r195];"
        body += f"{move} tcgen05.wait::ld.sync.aligned;"
    found = run(body + stored(17, 20), words, (128, 17), target="sm_103a")
    np.testing.assert_array_equal(found[:, :4], words)
    size = words & 0x7FFFFFFF
    want = [extremes(words, "min"), extremes(words, "max"), extremes(size, "max")]
    want += [extremes(words, "min", any_nan=True), extremes(size, "max", any_nan=True)]
    want += [words.view(np.int32).max(1).view(np.uint32), words.min(1)]
    for n, kind in enumerate(kinds):
        np.testing.assert_array_equal(found[:, 10 + n], want[n], kind)


def test_packed_moves_and_halves():
    words = np.arange(128, dtype=np.uint32)
    body = f"""{ALLOC} mov.u32 %r0, %r199; add.u32 %r1, %r199, 1000;
 tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32 [%r195], {{%r1}}; tcgen05.wait::st.sync.aligned;
 tcgen05.ld.sync.aligned.32x32b.x1.pack::16b.b32 {{%r2}}, [%r195];
 tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {{%r3}}, [%r195], 1;
 tcgen05.wait::ld.sync.aligned;{stored(2, 2)}"""
    out = run(body, words, (128, 2))
    lane = np.arange(128)
    np.testing.assert_array_equal(out[:, 0], lane + 1000)
    source = lane // 32 * 32 + lane % 16
    np.testing.assert_array_equal(out[:, 1], np.where(lane % 32 < 16, source + 1000, 0))


def product_body(kind, idesc, n, more=""):
    """A in shared memory rows of 32 bytes, 128 of them, B after it; both without swizzle."""
    copy = " mov.u64 %d1, tile; mov.u32 %r0, %r199; L:" + (
        " mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d8, %d2; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d3];"
        " add.u64 %d3, %d1, %d2; st.shared.v4.u32 [%d3], {%r1, %r2, %r3, %r4}; add.u32 %r0, %r0, 128;"
        " setp.lt.u32 %p3, %r0, 512; @%p3 bra L; fence.proxy.async.shared::cta;"
    )
    a = tcgen05.Descriptor(0, 128, 256).encode()
    b = tcgen05.Descriptor(4096, 128, 256).encode()
    return f"""{ALLOC}{copy} @%p2 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; setp.ne.u32 %p3, 0, {more or 0};
 @%p2 tcgen05.mma.cta_group::1.kind::{kind} [%r196], {a:#x}, {b:#x}, {idesc:#x}, %p3;
 @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
 W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W; tcgen05.fence::after_thread_sync;
 tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {names(n, 20)}, [%r195]; tcgen05.wait::ld.sync.aligned;{stored(n, 20)}"""


@pytest.mark.parametrize(("kind", "fmt"), [("f16", "f16"), ("f8f6f4", "e4m3")])
def test_products_are_those_of_the_other_door(kind, fmt):
    rng = np.random.default_rng(2)
    i = tcgen05.InstructionDescriptor(kind, "f32", fmt, fmt, 128, 16)
    data = np.zeros(8192, np.uint8)
    values = rng.standard_normal(128 * i.k + 16 * i.k).astype(np.float32)
    codes = nbtc.convert(values, fmt).view(np.uint8)
    data[:4096], data[4096 : 4096 + len(codes) - 4096] = codes[:4096], codes[4096:]
    tmem = tcgen05.TensorMemory(check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tcgen05.mma(
            f"tcgen05.mma.cta_group::1.kind::{kind}", tmem, 0, tcgen05.Descriptor(0, 128, 256),
            tcgen05.Descriptor(4096, 128, 256), i, data, enable_d=False,
        )  # fmt: skip
    found = run(product_body(kind, i.encode(), 16), data, (128, 16))
    assert found.any()
    np.testing.assert_array_equal(found, tmem.words[:, :16])


@pytest.mark.parametrize("way", ["cvta.shared.u64 %d5, %d5;", ""])
def test_a_commit_takes_the_low_word_of_a_generic_address(way):
    """ptxas 13.5 drops the high word of a generic address (UMOV, UTCBAR); Triton 3.6 gives none but the low one."""
    i = tcgen05.InstructionDescriptor("f16", "f32", "f16", "f16", 128, 16).encode()
    body = product_body("f16", i, 16)
    commit = " @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one"
    given = f" mov.u32 %r190, bar; cvt.u64.u32 %d5, %r190; {way}"
    told = body.replace(f"{commit}.shared::cluster.b64 [bar]", f"{given}{commit}.b64 [%d5]")
    assert told != body
    data = np.random.default_rng(3).standard_normal(4096).astype(np.float16).view(np.uint8)
    np.testing.assert_array_equal(run(told, data, (128, 16)), run(body, data, (128, 16)))


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("m", [128, 256])
def test_products_of_two_blocks(m, checked):
    """cta_group::2: each block of a cluster has half of A, of B and of D; the even one issues, both are told."""
    rng, n = np.random.default_rng(7), 32
    i = tcgen05.InstructionDescriptor("f16", "f32", "f16", "f16", m, n)
    data = rng.standard_normal((2, 4096)).astype(np.float16).view(np.uint8).reshape(2, 8192)
    body = product_body("f16", i.encode(), n).replace("cta_group::1", "cta_group::2")
    issue, _, commit = body.partition(" @%p2 tcgen05.mma")[2].partition(" @%p2 tcgen05.commit")
    told = commit.replace("shared::cluster.b64 [bar]", "shared::cluster.multicast::cluster.b64 [bar], %h1", 1)
    body = (
        " .reg .b16 %h<2>; mov.u16 %h1, 3; mov.u32 %r190, %cluster_ctarank; mul.wide.u32 %d6, %r190, 8192;"
        f" add.u64 %d8, %d8, %d6; mul.wide.u32 %d6, %r190, {128 * n * 4}; add.u64 %d9, %d9, %d6;"
        + body.partition(" @%p2 tcgen05.mma")[0]
        + " setp.eq.and.u32 %p2, %r190, 0, %p2; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        + f" @%p2 tcgen05.mma{issue} @%p2 tcgen05.commit{told}"
    )
    out = np.zeros((2, 128, n), np.uint32)
    pair = tuple(tcgen05.TensorMemory(check=False) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = program(body, FREE.replace("cta_group::1", "cta_group::2"))
        kernel.launch(2, 128, (out, data), cluster=2, checked=checked)
        a, b = tcgen05.Descriptor(0, 128, 256), tcgen05.Descriptor(4096, 128, 256)
        tcgen05.mma("tcgen05.mma.cta_group::2.kind::f16", pair, 0, a, b, i, tuple(data), enable_d=False)
    for found, memory in zip(out, pair, strict=True):
        assert found.any()
        np.testing.assert_array_equal(found, memory.words[:, :n])
    assert (out[0] != out[1]).any()


def test_errors_name_the_line():
    nothing = np.zeros(1, np.uint32)
    with pytest.raises(ProgramError, match=r"line 7: .*tcgen05.alloc first") as found:
        run(" mov.u32 %r195, 0; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [%r195];", nothing, 1, "")
    assert isinstance(found.value.__cause__, OptionError)
    body = ALLOC + " tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [%r196];"
    with pytest.raises(ProgramError, match="this warp reaches lanes") as found:
        run(body, nothing, 1)
    assert isinstance(found.value.__cause__, BoundsError)


@pytest.mark.parametrize(
    "form",
    [
        "tcgen05.shift.cta_group::1.down [%r0];",
        "tcgen05.mma.sp.cta_group::1.kind::f16 [%r0], %d1, %d2, [%r1], %r2, %p1;",
        "tcgen05.mma.ws.cta_group::1.kind::f16 [%r0], %d1, %d2, %r2, %p1;",
        "tcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r0], %d1;",
    ],
)
def test_what_is_not_verified_is_refused_by_name(form):
    with pytest.raises(ProgramError, match="tcgen05"):
        run(form, np.zeros(1, np.uint32), 1, "")


def test_a_matmul_of_triton():
    """Tensor copies into swizzled tiles, products in tensor memory with two stages, a tile stored."""
    text = lzma.decompress((Path(__file__).parents[2] / "golden/triton_tma_sm100.ptx.xz").read_bytes()).decode()
    rng, size = np.random.default_rng(6), 128
    a, b = (rng.standard_normal((size, size)).astype(np.float16) for _ in range(2))
    d = np.zeros((size, size), np.float16)
    room = np.zeros(512, np.uint8)
    scratch = room[-room.ctypes.data % 128 :][:384]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = nbtc.load(text)["matmul_tma"]
        kernel.launch(1, 128, (a, b, d, size, size, size, scratch, None), shared=98352)
        expected = nbtc.matmul(a, b, arch="sm_100", instruction="tcgen05")
    nbtc.testing.assert_bits_equal(d, expected.astype(np.float16))


SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.{}"


def scaled_kernel(mnemonic, version):
    registers = [f"%{p}{n}" for p, count in (("a", 4), ("b", 2), ("c", 4), ("s", 2)) for n in range(count)]
    loads = "".join(f" ld.global.u32 {x}, [%q3+{128 * n}];" for n, x in enumerate(registers))
    stores = "".join(f" st.global.u32 [%q4+{128 * n}], %d{n};" for n in range(4))
    text = f""".version {version}\n.target sm_120a\n.address_size 64
.visible .entry k(.param .u64 out, .param .u64 x) {{ .reg .b32 %a<4>, %b<2>, %c<4>, %d<4>, %s<2>, %t; .reg .b64 %q<5>;
 ld.param.u64 %q1, [out]; ld.param.u64 %q2, [x]; mov.u32 %t, %tid.x; mul.wide.u32 %q3, %t, 4; add.u64 %q4, %q1, %q3;
 add.u64 %q3, %q2, %q3;{loads}
 {mnemonic} {{%d0, %d1, %d2, %d3}}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {{%c0, %c1, %c2, %c3}}, %s0, {{0, 1}}, %s1,
 {{0, 2}};{stores} ret; }}"""
    return nbtc.load(text)["k"]


def test_block_scaled_products():
    rng = np.random.default_rng(4)
    words = rng.integers(0, 1 << 32, (12, 32), dtype=np.uint32)
    words[6:10] = rng.standard_normal((4, 32)).astype(np.float32).view(np.uint32)
    words[10:] &= 0x4F4F4F4F
    out, mnemonic = np.zeros((4, 32), np.uint32), SCALED.format("ue4m3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaled_kernel(mnemonic, "8.8")[1, 32](out, words)
        expected = nbtc.instruction(mnemonic)(
            words[:4].T, words[4:6].T, words[6:10].T, scale_a=words[10], scale_b=words[11], thread_a=1, thread_b=2,
            arch="sm_120",
        )  # fmt: skip
    np.testing.assert_array_equal(out.T, expected)


def test_forms_of_a_newer_version_of_ptx():
    mnemonic = SCALED.format("ue8m0")
    with pytest.raises(ProgramError, match=r"needs \.version 9\.1, but the text says 9\.0"):
        scaled_kernel(mnemonic, "9.0")[1, 32](np.zeros(128, np.uint32), np.zeros(384, np.uint32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether the model warns here depends on the tests before
        scaled_kernel(mnemonic, "9.1")[1, 32](np.zeros(128, np.uint32), np.zeros(384, np.uint32))


def test_columns_that_nobody_deallocates():
    """Kernels have to; checked mode looks whether they did."""
    arrays = np.zeros((2, 4), np.uint32)
    broken, repaired = program(ALLOC, ""), program(ALLOC)
    line = HEAD.count("\n") + 1 + (REGISTERS + ALLOC).partition("tcgen05.alloc")[0].count("\n")
    said = (
        rf"k: tensor memory that nobody deallocates: line {line}: tcgen05.alloc: block \(0, 0, 0\) got 128 columns at"
    )
    with pytest.raises(ProgramError, match=said):
        broken.checked[1, 128](*arrays)
    broken[1, 128](*arrays)
    repaired.checked[2, 128](*arrays)
