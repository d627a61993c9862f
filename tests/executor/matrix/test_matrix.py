"""Matrix instructions in programs: the same registers through PTX text and through `nbtc.instruction`."""

import numpy as np
import pytest

import nbtc
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse
from nbtc.testing import assert_bits_equal

FORMS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32",
]
HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"


def registers(operand):
    """(count, PTX type) of an operand's registers."""
    wide = operand.format.bits == 64
    kind = "f64" if wide else "f32" if operand.format.name == "f32" else "b32"
    return operand.registers // (2 if wide else 1), kind


def program(form):
    """A kernel that loads every lane's registers, executes the form once and stores its result."""
    names = {"a": form.a, "b": form.b, "c": form.c, "d": form.d}
    lines, lists = [], {}
    for name, operand in names.items():
        count, kind = registers(operand)
        lines.append(f".reg .{kind} %{name}<{count}>;")
        lists[name] = "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"
    meta = ", %e, 0x0" if form.meta else ""
    body = [".reg .b64 %p<6>;", ".reg .b32 %t, %e;", "mov.u32 %t, %tid.x;", *lines]
    for n, name in enumerate("abced" if form.meta else "abcd"):
        count, kind = (1, "b32") if name == "e" else registers(names[name])
        size = 8 if kind == "f64" else 4
        body += [f"ld.param.u64 %p{n}, [P{n}];", f"mad.wide.u32 %p{n}, %t, {size * count}, %p{n};"]
        if name == "d":
            body.append(f"{form.mnemonic} {lists['d']}, {lists['a']}, {lists['b']}, {lists['c']}{meta};")
        for i in range(count):
            register = "%e" if name == "e" else f"%{name}{i}"
            place = f"[%p{n}+{size * i}]"
            body.append(
                f"st.global.{kind} {place}, {register};" if name == "d" else f"ld.global.{kind} {register}, {place};"
            )
    count = 5 if form.meta else 4
    parameters = ", ".join(f".param .u64 P{n}" for n in range(count))
    return f"{HEAD}.visible .entry k({parameters})\n{{\n" + "\n".join(body) + "\nret;\n}\n"


def image(rng, operand):
    """One warp's registers: numbers of moderate size; of f16 raw bits in the last lanes, which the general way does."""
    raw = rng.integers(0, 1 << 32, (32, operand.registers), np.uint64).astype(np.uint32)
    moderate = {16: 0xBFFFBFFF, 8: 0xBFBFBFBF}.get(operand.format.bits, 0xBFFFFFFF)  # the exponent's top bit clear
    if operand.format.kind == "float":
        raw[: 28 if operand.format.name == "f16" else 32] &= np.uint32(moderate)
    return raw


@pytest.mark.parametrize("mnemonic", FORMS)
def test_products_through_text(mnemonic):
    form = nbtc.instruction(mnemonic)
    rng = np.random.default_rng(len(mnemonic))
    kernel = nbtc.load(program(form), arch="sm_90")["k"]
    for _ in range(3):
        a, b, c = (image(rng, o) for o in (form.a, form.b, form.c))
        meta = rng.integers(0, 1 << 32, 32, np.uint64).astype(np.uint32)
        want = form(a, b, c, *([meta] if form.meta else []), arch="sm_90")
        d = np.zeros_like(want)
        kernel[1, 32](a, b, c, *([meta] if form.meta else []), d)
        assert_bits_equal(d, want)


IN_PLACE = [FORMS[0], FORMS[1], "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"]


@pytest.mark.parametrize("mnemonic", IN_PLACE)
def test_accumulators_that_are_their_own_result(mnemonic):
    """D takes C's registers: what the vector code gives up (Inf, NaN, large sums) reads the old ones."""
    form = nbtc.instruction(mnemonic)
    text = program(form)
    line = next(x for x in text.splitlines() if x.startswith("mma"))
    count, kind = registers(form.c)
    move = "".join(f"mov.{kind} %d{i}, %c{i};" for i in range(count))
    own = line[: line.rindex("{")] + "{" + ", ".join(f"%d{i}" for i in range(count)) + "};"
    kernel = nbtc.load(text.replace(line, f"{move}\n{own}\n{own}"), arch="sm_90")["k"]
    rng = np.random.default_rng(3)
    for special in (0, 0xFFFFFFFF):  # moderate numbers alone, and raw bits in the last lanes
        a, b, c = (image(rng, o) & np.uint32(special or 0x3FFF3FFF) for o in (form.a, form.b, form.c))
        want = form(a, b, form(a, b, c, arch="sm_90"), arch="sm_90")
        d = np.zeros_like(want)
        kernel[1, 32](a, b, c, d)
        assert_bits_equal(d, want)


def test_products_of_a_form_share_their_code():
    """What each adds to a warp's text are operands and a call."""
    text = program(nbtc.instruction(FORMS[0]))
    line = next(x for x in text.splitlines() if x.startswith("mma"))
    own = line.replace("{%c0, %c1, %c2, %c3}", "{%d0, %d1, %d2, %d3}")

    def lines(count):
        linked = link(parse(text.replace(line, "\n".join([line] + [own] * count))), "k")
        with emitting():
            return len(str(Machine(linked, BlockShape.of((32, 1, 1)), Options("sm_90")).module).splitlines())

    assert lines(8) - lines(4) < 4 * 20


def test_decoded_operands_follow_their_registers():
    """The second product reads an A that was written between the two: a kept decode would be wrong."""
    form = nbtc.instruction(FORMS[0])
    text = program(form)
    line = next(x for x in text.splitlines() if x.startswith("mma"))
    again = line.replace("{%c0, %c1, %c2, %c3}", "{%d0, %d1, %d2, %d3}")
    kernel = nbtc.load(text.replace(line, f"{line}\nadd.u32 %a0, %a0, 1;\n{again}"), arch="sm_90")["k"]
    rng = np.random.default_rng(1)
    a, b, c = (image(rng, o) & np.uint32(0x3FFF3FFF) for o in (form.a, form.b, form.c))
    moved = a.copy()
    moved[:, 0] += 1
    want = form(moved, b, form(a, b, c))
    d = np.zeros_like(want)
    kernel[1, 32](a, b, c, d)
    assert_bits_equal(d, want)


WGMMA = [
    ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", "1, 1, 1, 0, 1", {"trans_b": 1}),
    ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8", "1", {}),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "1, -1, 1", {"scale_a": -1}),
    ("wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e4m3", "1, 1, -1", {"scale_b": -1}),
    ("wgmma.mma_async.sp.sync.aligned.m64n24k64.f32.e5m2.e4m3", "%e, 0, 1, 1, -1", {"scale_b": -1}),
]
# In the last dense one, NaN in row 20 of A and in column 9 of B: a warp's tiles, and a tile of each warp.
SPECIAL = {WGMMA[-2][0]: [2 * 256 + 4 * 16 + 1, 4096 + 1024 + 128 + 3]}


@pytest.mark.parametrize(("mnemonic", "tail", "options"), WGMMA, ids=[w[0] for w in WGMMA])
def test_wgmma_through_text(mnemonic, tail, options):
    form = nbtc.instruction(mnemonic)
    count = form.d.registers
    d = ", ".join(f"%d{i}" for i in range(count))
    body = [
        f".reg .b32 %t, %s, %d<{count}>, %w, %e;", ".reg .b64 %m, %q, %x, %y, %o, %z;", ".reg .pred %p;",
        ".shared .align 1024 .b8 tile[8192];", "mov.u32 %t, %tid.x;", "ld.param.u64 %m, [P0];",
        "ld.param.u64 %q, [P1];", "ld.param.u64 %x, [P2];", "ld.param.u64 %y, [P3];", "mov.u32 %s, %t;",
        "ld.param.u64 %o, [P4];", "mul.wide.u32 %z, %t, 4;", "add.u64 %o, %o, %z;", "ld.global.b32 %e, [%o];",
        "again:", "shl.b32 %w, %s, 2;", "cvt.u64.u32 %o, %w;", "add.u64 %o, %o, %m;", "ld.global.u32 %d0, [%o];",
        "mov.u32 %d1, tile;", "add.u32 %d1, %d1, %w;", "st.shared.u32 [%d1], %d0;", "add.u32 %s, %s, 128;",
        "setp.lt.u32 %p, %s, 2048;", "@%p bra again;", "bar.sync 0;", "fence.proxy.async;",
        f"mad.wide.u32 %q, %t, {4 * count}, %q;",
        *(f"ld.global.b32 %d{i}, [%q+{4 * i}];" for i in range(count)),
        "wgmma.fence.sync.aligned;", f"{mnemonic} {{{d}}}, %x, %y, {tail};", "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;", *(f"st.global.b32 [%q+{4 * i}], %d{i};" for i in range(count)), "ret;",
    ]  # fmt: skip
    parameters = ", ".join(f".param .u64 P{n}" for n in range(5))
    kernel = nbtc.load(f"{HEAD}.visible .entry k({parameters})\n{{\n" + "\n".join(body) + "\n}\n")["k"]
    rng = np.random.default_rng(5)
    memory = rng.integers(0, 256, 8192, np.uint8) & np.uint8(0x3F if form.a.format.kind == "float" else 0xFF)
    memory[SPECIAL.get(mnemonic, [])] = 0x7F
    image_d = image_of(rng, form.d.format, count)
    a = nbtc.wgmma.Descriptor(0, 1024, 256, swizzle="none").encode()
    b = nbtc.wgmma.Descriptor(4096, 1024, 1024, swizzle="128B").encode()
    # of each four elements two, a pair of the last warp's the same one twice
    nibbles = rng.choice([4, 8, 12, 9, 13, 14], (128, 8))
    meta = (nibbles << 4 * np.arange(8)).sum(1).astype(np.uint32)
    meta[127] &= ~np.uint32(15)
    notes = {"meta": meta} if "mma_async.sp" in mnemonic else {}
    want = nbtc.ptx.wgmma(mnemonic, image_d, np.uint64(a), np.uint64(b), memory, **options, **notes)
    kernel[1, 128](memory, image_d, a, b, meta)
    assert_bits_equal(image_d, want)


def image_of(rng, fmt, count):
    """Accumulators of a warpgroup."""
    if fmt.name == "f32":
        return rng.standard_normal((128, count)).astype(np.float32).view(np.uint32)
    return rng.integers(0, 1 << 32, (128, count), np.uint64).astype(np.uint32)


def test_matrix_moves_with_the_shape_after_the_count():
    text = (
        ".version 8.0 .target sm_90 .address_size 64 .visible .entry k(.param .u64 out) {"
        ".shared .align 16 .b8 s[1024];"
        ".reg .b32 t, a, b, c, d, x; .reg .b64 o, q; ld.param.u64 o, [out]; mov.u32 t, %tid.x; mov.u32 x, s;"
        "shl.b32 a, t, 2; add.u32 x, x, a; mov.u32 b, 0;"
        "FILL: shl.b32 c, b, 7; add.u32 c, c, x; mad.lo.u32 d, b, 32, t; st.shared.u32 [c], d;"
        ".reg .pred p; add.u32 b, b, 1; setp.lt.u32 p, b, 8; @p bra FILL; bar.warp.sync -1;"
        "shl.b32 x, t, 4; mov.u32 a, s; add.u32 x, x, a; LOAD {a, b, c, d}, [x]; STORE [x+512], {d, c, b, a};"
        "bar.warp.sync -1; mov.u32 x, s; shl.b32 a, t, 4; add.u32 x, x, a; ld.shared.v4.u32 {a, b, c, d}, [x+512];"
        "mul.wide.u32 q, t, 16; add.u64 o, o, q; st.global.v4.u32 [o], {a, b, c, d}; ret; }"
    )
    names = ("x4.trans.m8n8.shared.b16", "x4.m8n8.shared.b16"), ("m8n8.x4.trans.shared.b16", "m8n8.x4.shared.b16")
    found = []
    for load, store in names:
        made = text.replace("LOAD", f"ldmatrix.sync.aligned.{load}").replace("STORE", f"stmatrix.sync.aligned.{store}")
        found.append(np.zeros(128, np.uint32))
        nbtc.load(made)["k"][1, 32](found[-1])
    assert (found[0] == found[1]).all() and len(set(found[0])) > 60


@pytest.mark.parametrize(
    ("shape", "num", "type"), [("m8n16", 4, "b8x16.b6x16_p32"), ("m16n16", 2, "b8x16.b4x16_p64")]
)  # the second is transposed, as all of its shape are
def test_packed_rows_become_bytes(shape, num, type):
    """Elements of 6 and 4 bits that ldmatrix expands: lanes give the addresses of permuted rows."""
    wide = shape == "m16n16"
    name = f"ldmatrix.sync.aligned.{shape}.x{num}{'.trans' * wide}.shared.{type}"
    count = nbtc.instruction(name.replace(".shared", "")).d.registers
    registers = ", ".join(f"r{n}" for n in range(count))
    text = (
        ".version 8.6 .target sm_100a .address_size 64"
        " .visible .entry k(.param .u64 rows, .param .u64 places, .param .u64 out) {"
        f".shared .align 16 .b8 s[512]; .reg .b32 t, a, b, {registers}; .reg .b64 p, q;"
        "mov.u32 t, %tid.x; mov.u32 a, s; ld.param.u64 p, [rows]; mul.wide.u32 q, t, 16; add.u64 p, p, q;"
        ".reg .b32 w<4>; ld.global.v4.u32 {w0, w1, w2, w3}, [p]; mad.lo.u32 b, t, 16, a;"
        "st.shared.v4.u32 [b], {w0, w1, w2, w3}; bar.warp.sync -1;"
        "ld.param.u64 p, [places]; mul.wide.u32 q, t, 4; add.u64 p, p, q; ld.global.u32 b, [p]; add.u32 b, b, a;"
        f"{name} {{{registers}}}, [b]; ld.param.u64 p, [out]; mad.wide.u32 p, t, {4 * count}, p;"
        + "".join(f"st.global.u32 [p+{4 * n}], r{n};" for n in range(count))
        + "ret; }"
    )
    rng = np.random.default_rng(2)
    memory, places = rng.integers(0, 256, 512, np.uint8), (16 * rng.permutation(32)).astype(np.uint32)
    out = np.zeros((32, count), np.uint32)
    nbtc.load(text)["k"][1, 32](memory, places, out)
    assert_bits_equal(out, nbtc.ptx.ldmatrix(memory, places.astype(np.int64), num, wide, shape, type))
    assert len(np.unique(out)) > 60
