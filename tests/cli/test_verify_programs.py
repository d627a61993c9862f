"""Recorded programs run again: agreement is exit code 0, one wrong byte 1, and it is named."""

import hashlib
import json

import numpy as np
import pytest

from nbtc.cli import main
from nbtc.errors import OptionError, RecordingError
from nbtc.verify import inputs
from nbtc.verify.programs import verify_programs

TEXT = """.version 8.0
.target sm_80
.address_size 64
.global .u32 count;
.visible .entry add(.param .u64 a, .param .u64 out, .param .u32 n)
{
 .reg .b32 %r<9>; .reg .b64 %rd<9>;
 ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [n];
 mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
 ld.global.u32 %r5, [%rd4]; add.u32 %r5, %r5, %r1; st.global.u32 [%rd5], %r5;
 mov.u64 %rd6, count; st.global.u32 [%rd6], %r1; ret;
}
"""


@pytest.fixture
def folder(tmp_path):
    """One program that adds 3 to 32 numbers, with the module variable it writes."""
    number = {"dtype": "u32", "shape": [32]}
    a = {"name": "a", "kind": "in", **number, "generator": {"name": "arange", "params": {"start": 5}}}
    count = {"name": "count", "kind": "out", "symbol": "count", "dtype": "u32", "shape": [1]}
    entry = {
        "name": "add3", "family": "integer", "ptx": "add.ptx", "entry": "add", "grid": [1, 1, 1], "block": [32, 1, 1],
        "shared": 0, "exact": True, "globals": [count], "outputs": {"out": {}, "count": {}},
        "args": [a, {"name": "out", "kind": "out", **number},
                 {"name": "n", "kind": "scalar", "dtype": "s32", "hex": "03000000"}],
    }  # fmt: skip
    (tmp_path / "add.ptx").write_text(TEXT)
    write(tmp_path, entry)
    return tmp_path, entry


def write(folder, entry, change=0):
    out = np.arange(8, 40, dtype=np.uint32)
    out[7] ^= np.uint32(change)
    (folder / "manifest.json").write_text(json.dumps({"programs": [entry]}))
    np.savez(folder / "results.npz", add3__out=out, add3__count=np.uint32([3]))


def test_agreement(folder, capsys):
    assert main(["verify", "--programs", str(folder[0])]) == 0
    assert "programs: 1/1 programs, 33 outputs, 0 mismatches" in capsys.readouterr().out


def test_a_wrong_bit_is_found(folder, capsys):
    write(*folder, change=1)
    assert main(["verify", "--programs", str(folder[0])]) == 1
    out = capsys.readouterr().out
    assert "out: 1 of 32 differ, first at 7" in out and "not reproduced: add3" in out
    assert main(["verify", "--programs", str(folder[0]), "--json"]) == 1
    (program,) = json.loads(capsys.readouterr().out)["programs"]
    assert program["mismatches"] == 1 and not program["ok"]


def test_a_digest_stands_for_what_is_not_kept(folder):
    path, entry = folder
    entry["outputs"]["out"]["sha256"] = hashlib.sha256(np.arange(8, 40, dtype=np.uint32)).hexdigest()
    write(path, entry)
    assert next(verify_programs(path)).ok
    entry["outputs"]["out"]["sha256"] = "0" * 64
    write(path, entry)
    assert next(verify_programs(path)).mismatches == 1


def test_no_program_has_a_tolerance(folder):
    path, entry = folder
    write(path, {**entry, "exact": False, "tolerance": {"rtol": 0.2, "atol": 0}}, change=1)
    assert next(verify_programs(path)).mismatches == 1


def test_printed_text_and_errors_count(folder):
    path, entry = folder
    write(path, {**entry, "printed": "hello\n"})
    assert "printed" in next(verify_programs(path)).failures[0]
    write(path, {**entry, "block": [64, 1, 1]})
    assert "reads outside" in next(verify_programs(path)).failures[0]


def test_wrong_use(folder, tmp_path_factory, capsys):
    path, entry = folder
    with pytest.raises(OptionError, match=r"manifest.json"):
        next(verify_programs(tmp_path_factory.mktemp("empty")))
    with pytest.raises(OptionError, match="no program named"):
        next(verify_programs(path, "nothing"))
    assert main(["verify", "--programs", str(path), "--hw"]) == 2
    write(path, {**entry, "args": [{**entry["args"][0], "generator": {"name": "dice"}}]})
    with pytest.raises(RecordingError, match="dice"):
        next(verify_programs(path))
    del entry["args"]
    write(path, entry)
    with pytest.raises(RecordingError, match="args"):
        next(verify_programs(path))


@pytest.mark.parametrize("kind", inputs.DTYPES)
def test_special_values_are_distinct_and_of_every_class(kind):
    found = inputs.specials(kind)
    bits = 8 * np.dtype(inputs.DTYPES[kind]).itemsize
    assert not (found >> np.uint64(bits - 1) >> np.uint64(1)).any()
    if kind in ("f16", "f32", "f64"):
        numbers = found.astype(f"u{bits // 8}").view(f"f{bits // 8}")
        for some in (np.isnan, np.isposinf, np.isneginf, np.signbit):
            assert some(numbers).any()
        assert (numbers == 0).sum() == 2 and ((numbers != 0) & (abs(numbers) < np.finfo(numbers.dtype).tiny)).any()


def entry_of(name, kind, count=9, **parameters):
    return {"name": "x", "dtype": kind, "shape": [count], "generator": {"name": name, "seed": 3, "params": parameters}}


def test_generators():
    """Each against what its description says, or against itself in another type."""
    assert inputs.make(entry_of("poison", "u16")).tobytes() == b"\xa5" * 18
    assert inputs.make(entry_of("fill", "f32", value=1.5)).tolist() == [1.5] * 9
    assert inputs.make(entry_of("fill", "u32", bits=7)).tolist() == [7] * 9
    assert inputs.make(entry_of("arange", "s32", start=3, step=-1, mod=5)).tolist() == [3, 2, 1, 0, 4, 3, 2, 1, 0]
    assert inputs.make(entry_of("table", "u8", 3, hex=["ff", "1"])).tolist() == [255, 1, 255]
    assert bytes(inputs.make(entry_of("text", "u8", 5, text="abc"))) == b"abcab"
    assert sorted(inputs.make(entry_of("perm", "u32"))) == list(range(9))
    draws = inputs.draws(3, 9)
    assert (inputs.make(entry_of("bits", "u64")) == draws).all()
    assert (inputs.make(entry_of("ints", "s8", lo=-5, hi=5)) == (draws % 10).astype(np.int64) - 5).all()
    assert ((draws >> np.uint64(11)) / 2.0**53 == inputs.make(entry_of("uniform", "f64", lo=0, hi=1))).all()
    wide = abs(inputs.make(entry_of("wide", "f32", 1000, lo=-3, hi=4)))
    assert 0.125 <= wide.min() < 0.2 and 20 < wide.max() <= 32
    codes = inputs.make(entry_of("fp8", "e4m3", 1000, lo=2, hi=5)) & 0x7F
    assert set(codes.tolist()) == {2, 3, 4}
    normal = inputs.make(entry_of("normal", "f64", 4000, scale=2.0))
    assert abs(normal.std() - 2) < 0.1 and abs(normal.mean()) < 0.1
    nibbles = inputs.make(entry_of("meta24", "u32", 100))[:, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15
    assert set(nibbles.ravel().tolist()) == set(inputs.LEGAL_PAIRS)
    pairs = [inputs.make(entry_of("specials", "u8", 24 * 24, of=2, role=role)) for role in (1, 2)]
    kinds = len(set(inputs.specials("u8").tolist()))
    assert len({(int(a), int(b)) for a, b in zip(*pairs, strict=True)}) == kinds**2


def test_inputs_are_what_was_recorded():
    """Digests of arrays as the recordings' own generators made them."""
    for name, kind, parameters, digest in (
        ("normal", "bf16", {"scale": 2.0}, "5815e55703c58f5a"),
        ("wide", "f16", {"lo": -9, "hi": 9}, "4f12addb1484834e"),
        ("specials", "f32", {"of": 2, "role": 2}, "8be13eb642b38a72"),
        ("meta24", "u32", {}, "61b9901c64792e0c"),
        ("uniform", "f32", {"lo": -3, "hi": 7.5}, "510dae3aae7e44a3"),
    ):
        array = inputs.make(entry_of(name, kind, 3000, **parameters))
        assert hashlib.sha256(array.tobytes()).hexdigest()[:16] == digest, name
