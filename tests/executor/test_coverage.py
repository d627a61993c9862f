"""What kernels use, what can't run, and the command line."""

import io
import json

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.cli import main
from nbtc.executor.command import argument

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry good(.param .u64 out)
{ .reg .b64 d; .reg .f32 f; .reg .b32 r; ld.param.u64 d, [out]; mov.f32 f, 0f40000000; rcp.approx.f32 f, f;
  st.global.f32 [d], f; ret; }
.visible .entry _Z3badv()
{ .reg .b32 a; .reg .b64 t;
  sured.b.add.2d.u32.trap [t, {a, a}], a;
  mov.u32 a, %nosuch;
  call.uni nowhere;
  call.uni cudaGetParameterBufferV2;
  ret; }
.extern .func cudaGetParameterBufferV2();
.extern .func nowhere();
"""


LEGAL = TEXT.replace("mov.u32 a, %nosuch;", "")  # what nbtc lacks is left for the launch, what ptxas refuses isn't


def test_forms_and_what_is_missing():
    found = nbtc.coverage(TEXT)
    assert found["good"].runs and not found["_Z3badv"].runs and not found.runs
    text = str(found["_Z3badv"])
    assert "sured" in text and "line 9" in text and "%nosuch" in text and "nowhere has no body" in text
    assert "cudaGetParameterBufferV2: of the device's CUDA runtime" in text
    assert "rcp.approx.f32" in str(found["good"])


def test_forms_of_a_program_tell_what_backs_approximate_functions():
    k = nbtc.load(LEGAL)["good"]
    evidence = {f.form: f.evidence for f in k.forms}
    assert "sm_90" in evidence["rcp.approx.f32"] and not evidence["ret"]


def test_a_plain_name_finds_a_mangled_kernel():
    assert nbtc.load(LEGAL)["bad"].name == "_Z3badv"
    with pytest.raises(nbtc.errors.ProgramError, match="not a kernel of this module; kernels: good, bad"):
        nbtc.load(LEGAL)["worse"]


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "k.ptx"
    path.write_text(LEGAL)
    assert main(["ptx", str(path)]) == 1
    assert "can't run" in capsys.readouterr().out
    np.save(tmp_path / "a.npy", np.zeros(2, np.float32))
    words = ["--run", "good", "--block", "1", "--arg", str(tmp_path / "a.npy"), "--json"]
    assert main(["ptx", str(path), *words]) == 0
    assert json.loads(capsys.readouterr().out)["arrays"][0]["first"] == [0.5, 0]
    assert main(["ptx", str(path), "--run", "good", "--arg", "zeros:what:3"]) == 2
    assert main(["ptx", str(tmp_path / "none.ptx")]) == 2


def test_the_command_line_reports_hazards(tmp_path, capsys):
    path = tmp_path / "k.ptx"
    text = (
        ".shared .b32 s[32]; .reg .b32 r, t, a, x; mov.u32 t, %tid.x; mov.u32 x, s; shl.b32 a, t, 2; add.u32 a, a, x;"
    )
    used = "ld.shared.b32 r, [a]; st.shared.b32 [a], r;"
    for body, code in ((used, 1), (f"st.shared.b32 [a], t; {used}", 0)):
        path.write_text(f".version 8.0 .target sm_80 .address_size 64 .visible .entry k() {{ {text} {body} ret; }}")
        assert main(["ptx", str(path), "--run", "k", "--block", "32", "--check"]) == code
    assert "uninitialised shared memory" in capsys.readouterr().out
    assert main(["ptx", str(path), "--check"]) == 2


SCALE = """.version 8.0 .target sm_80 .address_size 64
.visible .entry scale(.param .u64 x, .param .f32 by) {
  .reg .b64 p; .reg .b32 t, i; .reg .f32 v, f; ld.param.u64 p, [x]; ld.param.f32 f, [by]; mov.u32 t, %tid.x;
  mad.wide.u32 p, t, 4, p; ld.global.f32 v, [p]; mul.f32 v, v, f; st.global.f32 [p], v; ret; }
"""


def test_the_command_line_reads_and_writes_arrays(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(SCALE))
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    words = ["--run", "", "--block", "4", "--arg", str(tmp_path / "x.npy"), "--arg", "2"]
    assert main(["ptx", "-", *words, "--out", f"0={tmp_path / 'y.npy'}"]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [0, 2, 4, 6]
    path = tmp_path / "scale.ptx"
    path.write_text(SCALE)
    words = ["--run", "scale", "--block", "4", "--arg", "zeros:f32:4", "--arg", "0.5"]
    assert main(["ptx", str(path), *words, "--out", f"x={tmp_path / 'y'}"]) == 0
    assert np.load(tmp_path / "y").tolist() == [0, 0, 0, 0]
    capsys.readouterr()
    for wrong in (["--out", "9=y.npy"], ["--out", "y.npy"], ["--out", "1=y.npy"]):
        assert main(["ptx", str(path), *words, *wrong]) == 2
        assert "--out" in capsys.readouterr().err
    assert main(["ptx", str(path), "--out", "0=y.npy"]) == 2


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("zeros:bf16:3", ml_dtypes.bfloat16), ("random:f16:3", np.float16), ("random:s4:3", ml_dtypes.int4),
     ("zeros:e4m3:3", ml_dtypes.float8_e4m3fn), ("random:uint16:3", np.uint16), ("random:b1:3", np.bool_)],
)  # fmt: skip
def test_arguments_have_the_formats_of_nbtc(text, dtype):
    assert argument(text, 0).dtype == dtype and argument(text, 0).shape == (3,)


def test_arguments_from_files(tmp_path):
    x = np.arange(3).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    assert argument(f"{tmp_path}/x.npy:bf16", 0).tobytes() == x.tobytes()
    for wrong in (f"{tmp_path}/x.npy", f"{tmp_path}/x.npy:f32", f"{tmp_path}/x.npy:what"):
        with pytest.raises(nbtc.errors.OptionError, match="name their format"):
            argument(wrong, 0)
    assert (argument("0x10", 0), argument("2.5", 0)) == (16, 2.5)
    for wrong in ("zeros:what:3", "zeros:f32", "three"):
        with pytest.raises(nbtc.errors.OptionError):
            argument(wrong, 0)
