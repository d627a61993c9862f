"""Whole PTX lines: their immediates are used, and reading them takes time in proportion to their length."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc import ptx, sparse
from nbtc.errors import MetadataError, NbtcError, OptionError, ParseError, shown
from nbtc.isa import lines, parse
from nbtc.wgmma import Sequence, tile_to_smem

SP = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
OPERANDS = "{%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%f5,%f6,%f7,%f8}, %r9, "
WG = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
WG_OPERANDS = " {%f0, %f1, %f2, %f3}, %rd1, %rd2, "


def test_numbers_are_named() -> None:
    line = parse.line(f"{ORDERED} {OPERANDS} 0x1;")
    assert line.immediates == {"selector": 1}
    assert parse.line(f"{WG}{WG_OPERANDS} p, -1, 1, 0, 1;").immediates == {
        "scaleA": -1, "scaleB": 1, "transA": 0, "transB": 1,
    }  # fmt: skip
    load = "wmma.load.a.sync.aligned.row.m16n16k16.f16 {a,b,c,d,e,f,g,h}, [%rd1+64], 0b100000;"
    assert parse.line(load).immediates == {"offset": 64, "stride": 32}
    scaled = next(r for r in parse.rows(family="mma") if r.scale)
    text = lines.example(scaled).replace("{0, 0}", "{2, 1}", 1)
    assert parse.line(text).immediates == {"byteA": 2, "threadA": 1, "byteB": 0, "threadB": 0}


def sparse_operands() -> tuple[Any, Any, Any, Any]:
    """Images whose result depends on the selector: lanes of the two selectors hold other metadata."""
    i = nbtc.instruction(SP)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((16, 16), (32, 8)))
    meta = np.where(np.arange(32) % 4 < 2, 0x44444444, 0xEEEEEEEE).astype(np.uint32)
    return i.pack_a(a), i.pack_b(b), i.pack_c(np.zeros((16, 8), np.float32)), meta


def test_instructions_of_one_meaning_are_equal() -> None:
    """Each call makes an object; compiled functions give back the first that they met."""
    first, second, other = (nbtc.instruction(f"{ORDERED} {OPERANDS} {n};") for n in (1, 1, 0))
    assert first == second and first != other and first != ORDERED
    assert len({first, second, other}) == 2


def test_selector_of_the_line_is_used() -> None:
    operands = sparse_operands()
    plain = [nbtc.instruction(SP)(*operands, selector) for selector in (0, 1)]
    assert (plain[0] != plain[1]).any()
    for selector in (0, 1):
        line = f"{SP} {OPERANDS} {selector};"
        i = nbtc.instruction(line)
        for found in (i(*operands), i(*operands, selector), ptx.mma_sp(line, *operands)):
            assert (found == plain[selector]).all()
        with pytest.raises(OptionError, match=f"contradicts the line, whose operand selector is {selector}"):
            i(*operands, 1 - selector)
        with pytest.raises(OptionError):
            ptx.mma_sp(line, *operands, 1 - selector)
        assert pickle.loads(pickle.dumps(i)) == i != nbtc.instruction(SP)


def test_sparse_matrices_go_by_the_line() -> None:
    line = f"{SP} {OPERANDS} 1;"
    dense = np.zeros((16, 32), np.float16)
    dense[:, ::2] = np.arange(1, 17)
    stored, meta = sparse.compress(dense, line)
    assert (meta == sparse.compress(dense, SP, 1)[1]).all() and (meta != sparse.compress(dense, SP)[1]).any()
    assert (sparse.expand(stored, meta, line) == dense).all()
    with pytest.raises(OptionError):
        sparse.compress(dense, line, 0)


def warpgroup() -> dict[str, Any]:
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 16), (8, 16)))
    (ia, da), (ib, db) = tile_to_smem(a, "f16"), tile_to_smem(b, "f16")
    d = rng.integers(-9, 9, (128, 4)).astype(np.float32).view(np.uint32)
    return {"d": d, "a": da, "b_desc": db.encode() + (ia.size >> 4), "smem": np.concatenate([ia, ib])}


WARPGROUPS = {
    WG: ("p, 1, 1, 0, 0", "p p,1,1 p,1,1,0 p,1,1,0,0,0"),
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32": ("p, 1, 1", "p p,1,1,0,0"),
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8": ("p", "p,1,1"),
}


@pytest.mark.parametrize("mnemonic", WARPGROUPS)
def test_wgmma_has_all_of_its_immediates_or_none(mnemonic: str) -> None:
    """As ptxas has it."""
    taken, refused = WARPGROUPS[mnemonic]
    assert parse.line(f"{mnemonic}{WG_OPERANDS}{taken};")
    for tail in refused.split():
        with pytest.raises(ParseError):
            parse.line(f"{mnemonic}{WG_OPERANDS}{tail};")


def test_wgmma_uses_its_immediates() -> None:
    x = warpgroup()
    cases = {
        "1, -1, 1, 0, 0": {"scale_d": 1, "scale_a": -1},
        "0, 1, -1, 0, 0": {"scale_d": 0, "scale_b": -1},
        "p, -1, -1, 1, 1": {"scale_a": -1, "scale_b": -1, "trans_a": 1, "trans_b": 1},
    }
    for tail, keywords in cases.items():
        line = f"{WG}{WG_OPERANDS}{tail};"
        want = ptx.wgmma(WG, **x, **keywords)
        assert (ptx.wgmma(line, **x) == want).all(), tail
        assert (ptx.wgmma(line, **x, **keywords) == want).all()
        for name, value in keywords.items():
            other = {"scale_d": 1 - value, "trans_a": 0, "trans_b": 0}.get(name, -value)
            with pytest.raises(OptionError, match=f"{name}={other} contradicts the line"):
                ptx.wgmma(line, **x, **{name: other})
    assert (
        ptx.wgmma(f"{WG}{WG_OPERANDS}p, -1, 1, 0, 0;", **x, scale_d=0) == ptx.wgmma(WG, **x, scale_d=0, scale_a=-1)
    ).all()


def test_a_sequence_uses_them_too() -> None:
    x = warpgroup()
    s = Sequence(x["smem"])
    d = s.registers(x["d"], "d")
    s.fence()
    s.wgmma(f"{WG}{WG_OPERANDS}1, -1, 1, 0, 0;", d, x["a"], x["b_desc"])
    s.commit_group()
    s.wait_group(0)
    assert (np.asarray(d[...]) == ptx.wgmma(WG, **x, scale_a=-1)).all()


def test_matmul_refuses_a_line_that_negates() -> None:
    a = np.zeros((16, 16), np.float16)
    with pytest.raises(OptionError, match="scaleA = -1"):
        nbtc.plan(a, a, instruction=f"{WG}{WG_OPERANDS}p, -1, 1, 0, 0;")


def test_wmma_takes_stride_and_displacement() -> None:
    mem = np.arange(2048, dtype=np.float16).view(np.uint8)
    name = "wmma.load.a.sync.aligned.row.m16n16k16.f16"
    want = ptx.wmma_load(name, mem, 64, 32)
    line = f"{name} {{a,b,c,d,e,f,g,h}}, [%rd1+64], 32;"
    assert (ptx.wmma_load(line, mem) == want).all() and (ptx.wmma_load(line, mem, 64, 32) == want).all()
    with pytest.raises(OptionError):
        ptx.wmma_load(line, mem, 0)
    store, out = "wmma.store.d.sync.aligned.row.m16n16k16.f16", np.zeros(4096, np.uint8)
    ptx.wmma_store(f"{store} [%rd1], {{a,b,c,d}}, 32;", out, np.full((32, 4), 0x3C003C00, np.uint32))
    assert out.view(np.float16).reshape(-1, 32)[:16].sum(0).tolist() == [16.0] * 16 + [0.0] * 16
    with pytest.raises(OptionError):
        ptx.wmma_store(f"{store} [p], {{a,b,c,d}}, 32;", out, np.zeros((32, 4), np.uint32), stride=16)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000 + ";x",
        SP + " " * 200_000 + ";;",
        SP + " " * 100_000 + "x" * 100_000,
        "/*" * 100_000,
        "@" + "p" * 200_000,
        f"{SP} " + "{" * 100_000,
        f"{SP} " + "{a," * 50_000,
        f"{SP} " + "[]" * 100_000,
        f"{SP} " + "," * 200_000,
        "mma." + "x." * 100_000,
        "\"" + "mma\\n" * 50_000,
        f"{SP} {OPERANDS} {'1' * 5000};",
        f"{SP} {OPERANDS} 0x{'1' * 5000};",
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {a,b,c,d,e,f,g,h}, [p], " + "9" * 5000 + ";",
        "mma.sync.aligned.m" + "1" * 5000 + "n8k16.row.col.f32.f16.f16.f32",
        "q" * 200_000,
    ],
    ids=lambda t: t[:12],
)  # fmt: skip
def test_long_texts_are_refused_at_once(text: str) -> None:
    start = time.thread_time()
    with pytest.raises(ParseError) as caught:
        nbtc.instruction(text)
    assert time.thread_time() - start < 2 and 40 <= len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nbtc.matmul(np.zeros((2, 2), np.float16), np.zeros((2, 2), np.float16), arch=x),
        lambda x: nbtc.as_format(x),
        lambda x: nbtc.instructions(arch=x),
        lambda x: nbtc.instructions(shape=x),
        lambda x: nbtc.instructions(family=x),
        lambda x: tile_to_smem(np.zeros((8, 8), np.float16), "f16", "k", x),
        lambda x: nbtc.wgmma.Descriptor(x, 16, 16),
        lambda x: nbtc.wgmma.Descriptor.decode(x),
        lambda x: nbtc.unpack(np.zeros(2, np.uint32), "s4", count=x),
    ],
)
@pytest.mark.parametrize("x", ["z" * 100_000, 10**5000, -(10**5000)], ids=["text", "huge", "negative"])
def test_messages_cut_what_they_quote(call: Any, x: object) -> None:
    with pytest.raises(NbtcError) as caught:
        call(x)
    assert len(str(caught.value)) < 2000


def test_shown() -> None:
    assert shown(5) == "5" and shown(-(10**400)).startswith("an integer of") and len(shown("x" * 10**6)) == 90


def test_spellings_of_a_line() -> None:
    name = "movmatrix.sync.aligned.m8n8.trans.b16"
    for text in (
        f"{name} %0, %1;",
        f'"{name} %0, %1;\\n"',
        f'"{name} "\n"%0, %1;\\n\\t"',
        f"@!%p1\t{name} d, a; // end",
        f"/* one */ {name} /* two */ d , a ;",
    ):
        assert parse.line(text).row.mnemonic == name and len(parse.line(text).operands) == 2, text
    assert parse.line(f"@!%p1 {name} d, a;").guard == "!%p1"
    for wrong, says in (
        (f"{name} d, a}};", "nothing opened"),
        (f"{name} {{d, a;", "lacks a"),
        (f"{name} d, a; {name} d, a;", "one instruction at a time"),
        (f"@ {name} d, a;", "is not an instruction"),
        (f"{name} d, a,;", "operands"),
    ):
        with pytest.raises(ParseError, match=says):
            parse.line(wrong)


def test_illegal_selectors_still_raise() -> None:
    with pytest.raises(MetadataError):
        nbtc.instruction(SP)(*sparse_operands(), 2)
