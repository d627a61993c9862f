"""Replaying recordings: agreement is exit code 0, one flipped bit anywhere is 1, and it is named."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from nbtc.cli import main
from nbtc.driver import device, library
from nbtc.verify import sets, verify
from nbtc.verify.replay import GENERATORS

FORM = "mma_m16n8k16_f32_f16_f16_f32"
OP = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@pytest.fixture
def golden(tmp_path):
    """A folder with one recording: 16 x 1.0 in every output."""
    ones, halves = np.float32(1).view(np.uint32), np.uint32(0x3C003C00)
    a, b, c = (np.full((1, 32, r), w, np.uint32) for r, w in ((4, halves), (2, halves), (4, ones)))
    d = np.full((1, 32, 4), np.float32(17).view(np.uint32), np.uint32)
    arrays = {f"{FORM}__ones__{k}": v for k, v in zip("ABCD", (a, b, c, d), strict=True)}
    (tmp_path / "index.json").write_text(json.dumps({FORM: {"kind": "mma", "op": OP, "sel": 0}}))
    np.savez(tmp_path / "mma_f16.npz", **arrays)
    return tmp_path, arrays


def test_agreement(golden, capsys):
    assert main(["verify", "--golden", str(golden[0])]) == 0
    assert "1 forms, 128 outputs, 0 mismatches" in capsys.readouterr().out


def test_a_flipped_bit_is_found(golden, capsys):
    folder, arrays = golden
    arrays[f"{FORM}__ones__D"][0, 7, 2] ^= np.uint32(1)
    np.savez(folder / "mma_f16.npz", **arrays)
    assert main(["verify", "--golden", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "1 mismatches" in out and "(0, 7, 2)" in out and "mma_f16.npz" in out
    assert main(["verify", "--golden", str(folder), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["mismatches"] == 1 and not data["files"][0]["ok"]


def test_a_wrong_shape_is_a_mismatch(golden, capsys):
    folder, arrays = golden
    arrays[f"{FORM}__ones__D"] = arrays[f"{FORM}__ones__D"][..., :2]
    np.savez(folder / "mma_f16.npz", **arrays)
    assert main(["verify", "--golden", str(folder)]) == 1


def test_what_nobody_knows_is_no_agreement(golden):
    np.savez(golden[0] / "zzz.npz", what__is__this=np.zeros(3))
    assert main(["verify", "--golden", str(golden[0])]) == 1


def test_a_broken_file_is_wrong_use(golden, capsys):
    (golden[0] / "zzz.npz").write_bytes(b"PK\x03\x04 and then nothing")
    assert main(["verify", "--golden", str(golden[0])]) == 2


@pytest.mark.long
@pytest.mark.parametrize("kind", GENERATORS)
def test_the_set_that_ships(kind):
    """Each kind by itself: workers share them, and nothing is replayed twice."""
    report = next(r for r in verify(only=kind) if r.file == kind)
    assert report.ok, report.failures[:5]
    assert report.forms > 0


FOLDERS = [os.environ[name] for name in ("NBTC_GOLDEN",) if name in os.environ]


@pytest.mark.parametrize(
    "file", [path.name for folder in FOLDERS for path in sorted(Path(folder).glob("*.npz"))] or [None]
)
def test_a_full_set(file):
    """Each file of the folder that NBTC_GOLDEN names; without one, that the compact set lacks no kind."""
    if file is None:
        assert set(GENERATORS) == {kind for kind, *_ in sets(None)}
    else:
        assert [r.failures[:5] for r in verify(FOLDERS[0], only=file) if not r.ok] == []


class FakeGpu:
    """Stands where the driver would: keeps what it is asked to run, and answers with one fixed word."""

    def __init__(self, arch, word):
        self.arch, self.word, self.launches = arch, word, []

    def run(self, body, blocks, threads, shared, inputs, outputs):
        self.launches.append((body, blocks, threads, shared, [x.shape for x in inputs]))
        for out in outputs:
            out[...] = self.word


def run_on(monkeypatch, gpu, *argv):
    monkeypatch.setattr("nbtc.verify.Gpu", lambda: gpu)
    return main(["verify", "--hw", *argv])


def test_a_gpu_stands_in_for_the_recording(golden, monkeypatch, capsys):
    seventeen = int(np.float32(17).view(np.uint32))
    gpu = FakeGpu("sm_90", seventeen)
    assert run_on(monkeypatch, gpu, "--golden", str(golden[0])) == 0
    ((body, blocks, threads, shared, shapes),) = gpu.launches
    assert f"{OP} {{d0, d1, d2, d3}}, {{a0, a1, a2, a3}}, {{b0, b1}}, {{c0, c1, c2, c3}};" in body
    assert (blocks, threads, shared, shapes) == (1, 32, 0, [(1, 32, 4), (1, 32, 2), (1, 32, 4)])
    assert run_on(monkeypatch, FakeGpu("sm_90", seventeen ^ 1), "--golden", str(golden[0])) == 1


def test_a_gpu_without_the_form_has_nothing_to_say(golden, monkeypatch):
    gpu = FakeGpu("sm_75", 0)
    assert run_on(monkeypatch, gpu, "--golden", str(golden[0])) == 2
    assert gpu.launches == []


def test_every_wgmma_recording_becomes_a_kernel(monkeypatch, capsys):
    gpu = FakeGpu("sm_90", 0)
    monkeypatch.setattr("nbtc.verify.Gpu", lambda: gpu)
    assert not any(report.ok for report in verify(only="wgmma", hardware=True))  # zeros are not what an H200 answered
    assert len(gpu.launches) > 50
    for body, _, threads, shared, _ in gpu.launches:
        assert threads == 128 and shared % 16 == 0
        assert body.count("wgmma.mma_async") == body.count("wgmma.wait_group") == 1


def test_no_driver_is_wrong_use(monkeypatch, capsys):
    def absent(name):
        raise OSError(f"{name}: no such library")

    monkeypatch.setattr("nbtc.driver.library.ctypes.CDLL", absent)
    library.driver.cache_clear()
    device.device.cache_clear()
    assert main(["verify", "--hw"]) == 2
    assert "no driver" in capsys.readouterr().err


def flipped(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


def entry(**more):
    return json.dumps({FORM: {"kind": "mma", "op": OP, "sel": 0, **more}})


def save(folder, arrays, **changed):
    np.savez(folder / "mma_f16.npz", **{**arrays, **{f"{FORM}__ones__{k}": v for k, v in changed.items()}})


DAMAGES = {
    "no json": lambda folder, arrays: (folder / "index.json").write_text("{"),
    "no text": lambda folder, arrays: (folder / "index.json").write_bytes(b"\xff\xfe\x00"),
    "nested json": lambda folder, arrays: (folder / "index.json").write_text("[" * 100_000),
    "a list": lambda folder, arrays: (folder / "index.json").write_text("[1]"),
    "numbers": lambda folder, arrays: (folder / "index.json").write_text(json.dumps({FORM: 1})),
    "no kind": lambda folder, arrays: (folder / "index.json").write_text(json.dumps({FORM: {"op": OP}})),
    "no op": lambda folder, arrays: (folder / "index.json").write_text(json.dumps({FORM: {"kind": "mma"}})),
    "op of numbers": lambda folder, arrays: (folder / "index.json").write_text(entry(op=[1])),
    "unknown op": lambda folder, arrays: (folder / "index.json").write_text(entry(op="mma.sync.nothing")),
    "other kind": lambda folder, arrays: (folder / "index.json").write_text(entry(kind="wgmma")),
    "bad bytes": lambda folder, arrays: flipped(folder / "mma_f16.npz", 200),
    "bad header": lambda folder, arrays: flipped(folder / "mma_f16.npz", 70),
    "bad compression": lambda folder, arrays: np.savez_compressed(folder / "mma_f16.npz", **arrays)
    or flipped(folder / "mma_f16.npz", 140),
    "method": lambda folder, arrays: method(folder / "mma_f16.npz"),
    "empty": lambda folder, arrays: (folder / "mma_f16.npz").write_bytes(b""),
    "truncated": lambda folder, arrays: os.truncate(folder / "mma_f16.npz", 900),
    "one array": lambda folder, arrays: (folder / "mma_f16.npz").write_bytes(npy(np.ones(3))),
    "objects": lambda folder, arrays: save(folder, arrays, A=np.array([{}], object)),
    "text": lambda folder, arrays: save(folder, arrays, D=np.array(["x"])),
    "floats": lambda folder, arrays: save(folder, arrays, A=np.ones((1, 32, 4))),
    "short": lambda folder, arrays: save(folder, arrays, B=np.ones((1, 31, 2), np.uint32)),
    "no operand": lambda folder, arrays: np.savez(
        folder / "mma_f16.npz", **{k: v for k, v in arrays.items() if not k.endswith("__B")}
    ),
    "a pipe": lambda folder, arrays: os.mkfifo(folder / "zzz.npz"),
    "a piped index": lambda folder, arrays: (folder / "index.json").unlink() or os.mkfifo(folder / "index.json"),
    "a folder": lambda folder, arrays: (folder / "zzz.npz").mkdir(),
    "no source": lambda folder, arrays: np.savez(folder / "gemm.npz", f16__8x8x8__order=np.array("seq")),
}  # fmt: skip


def npy(x):
    import io

    buffer = io.BytesIO()
    np.save(buffer, x)
    return buffer.getvalue()


def method(path):
    """Claim a compression that zipfile lacks, in both headers of the first member."""
    data = bytearray(path.read_bytes())
    data[8:10] = b"\x63\x00"
    central = data.index(b"PK\x01\x02")
    data[central + 10 : central + 12] = b"\x63\x00"
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_recordings_are_wrong_use(golden, capsys, damage):
    folder, arrays = golden
    DAMAGES[damage](folder, arrays)
    assert main(["verify", "--golden", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("nbtc: ") and said.count("\n") == 1 and len(said) < 800
    assert ".npz" in said or "index.json" in said


def test_a_report_is_of_comparisons_with_a_gpu(tmp_path, capsys):
    """Without one nothing would be written."""
    report = tmp_path / "report.md"
    assert main(["verify", "--only", "dpx", "--report", str(report)]) == 2
    assert "--hw" in capsys.readouterr().err and not report.exists()
