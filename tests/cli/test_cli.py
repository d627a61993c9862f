"""The command line: what it prints, what it writes, and its exit codes."""

import hashlib
import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.cli import main
from nbtc.isa.archs import ARCHS

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
VOLTA = ARCHS["sm_70"]
SMALL = ("--m", "24", "--n", "16", "--k", "40")


def run(capsys, *argv):
    """Exit code and parsed JSON of a command."""
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def refused(capsys, *argv):
    """The message of a command that must end with exit code 2 and print nothing else."""
    assert main(list(argv)) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("nbtc: ")
    assert len(printed.err) >= 40
    return printed.err


def test_info(capsys):
    code, data = run(capsys, "info")
    assert code == 0
    assert data["nbtc"] == nbtc.__version__
    assert data["kernels"] in ("AVX-512", "AVX2", "generic")
    assert "recordings" in data["architectures"]["sm_90"]
    assert main(["info"]) == 0
    assert "sm_121" in capsys.readouterr().out


def test_list_filters(capsys):
    everything = run(capsys, "list")[1]
    some = run(capsys, "list", "--arch", "sm_75", "--family", "mma")[1]
    assert 0 < len(some) < len(everything)
    assert {row["family"] for row in some} == {"mma"}
    assert all(row["min_arch"] in ("sm_70", "sm_75") for row in some)
    assert main(["list", "--arch", "sm_75", "--family", "mma"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(some)


def test_a_launch_without_its_arguments_says_which(capsys, tmp_path):
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 x) { ret; }")
    launch = ("ptx", str(path), "--run", "k")
    assert "takes 1 arguments (x), and --arg gives 0: write --arg once for each" in refused(capsys, *launch)
    missing = str(tmp_path / "nope.npy")
    said = refused(capsys, *launch, "--arg", missing)
    assert said.startswith(f"nbtc: --arg {missing} cannot be read (No such file") and "numpy.save" in said


def test_options_of_programs_are_not_a_sources(capsys):
    assert "--sarif, --junit, --profile and --threads are for programs" in refused(
        capsys, "run", "--sarif", "o.sarif", "k.cu"
    )
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--block", "--grid", "--arg", "--out", "one thread"))


def test_a_family_alone_leads_to_its_forms(capsys):
    assert "`nbtc list --family mma` shows all" in refused(capsys, "show", "mma")


def test_show(capsys, tmp_path):
    code, data = run(capsys, "show", MMA)
    assert code == 0
    assert np.array_equal(data["operands"]["a"]["coords"], nbtc.instruction(MMA).a.coords())
    svg = tmp_path / "picture.svg"
    assert main(["show", MMA, "--svg", str(svg)]) == 0
    assert svg.read_text(encoding="utf-8") == nbtc.instruction(MMA)._repr_svg_()
    capsys.readouterr()
    assert main(["show", MMA]) == 0
    assert "m16n8k16" in capsys.readouterr().out


def test_gemm_says_what_matmul_does(capsys):
    code, data = run(capsys, "gemm", *SMALL, "--seed", "3")
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape, np.float32).astype(np.float16) for shape in ((24, 40), (40, 16)))
    d = nbtc.matmul(a, b)
    assert code == 0
    assert data["sha256"] == hashlib.sha256(d.tobytes()).hexdigest()
    assert data["shape"] == [24, 16, 40]
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)  # 40 products of 22 bits: exact in float64
    assert data["correctly_rounded"]["different"] == np.count_nonzero(d != exact)
    assert data["gmas_per_s"] > 0 and data["numpy_float32"]["ratio"] > 0


@pytest.mark.parametrize("fmt", ["bf16", "tf32", "e4m3", "s8", "u4", "b1", "f64"])
def test_gemm_of_every_kind_of_format(capsys, fmt):
    code, data = run(capsys, "gemm", *SMALL, "--format", fmt)
    assert code == 0
    assert data["correctly_rounded"]["outputs"] == 24 * 16
    if data["acc"] == "s32":
        assert data["correctly_rounded"]["different"] == 0


def test_gemm_prints_everything(capsys):
    assert main(["gemm", *SMALL, "--threads", "1"]) == 0
    out = capsys.readouterr().out
    for word in (
        "24 x 16 x 40",
        "time",
        "G multiply-adds/s on 1 threads",
        "numpy float32",
        "sha256",
        "accuracy",
    ):
        assert word in out


def test_gemm_on_files(capsys, tmp_path):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 32), (32, 8), (8, 8)))
    a, b = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    paths = {name: str(tmp_path / f"{name}.npy") for name in "abcd"}
    for name, x in (("a", a), ("b", b), ("c", c)):
        np.save(paths[name], x)
    argv = ["gemm", "--a", paths["a"], "--b", paths["b"], "--c", paths["c"], "--out", paths["d"]]
    assert main([*argv, "--format", "bf16", "--arch", "sm_80"]) == 0
    want = nbtc.matmul(a, b, c, arch="sm_80")
    assert np.load(paths["d"]).tobytes() == want.tobytes()
    capsys.readouterr()
    assert "raw bytes" in refused(capsys, *argv)  # bfloat16 comes back from a file as bytes without a name


def test_gemm_on_packed_words(capsys, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (16, 64)), rng.integers(-8, 8, (64, 8))
    np.save(tmp_path / "a.npy", nbtc.pack(a, "s4"))
    np.save(tmp_path / "b.npy", nbtc.pack(b, "s4", axis=0))
    out = tmp_path / "d.npy"
    files = ["--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy"), "--out", str(out)]
    code, data = run(capsys, "gemm", *files, "--format", "s4")
    assert code == 0 and data["shape"] == [16, 8, 64]
    assert np.array_equal(np.load(out), a @ b)


def test_wrong_use_of_files(capsys, tmp_path):
    good, text, objects, several = (str(tmp_path / f) for f in ("a.npy", "t.npy", "o.npy", "s.npz"))
    np.save(good, np.ones((4, 4), np.float16))
    (tmp_path / "t.npy").write_text("no array")
    np.save(objects, np.array([{}]), allow_pickle=True)
    np.savez(several, x=np.ones(3))
    refused(capsys, "gemm", "--a", good)
    for bad in (str(tmp_path / "missing.npy"), text, objects, several):
        refused(capsys, "gemm", "--a", good, "--b", bad)
    np.save(text, np.ones((5, 4), np.float16))
    refused(capsys, "gemm", "--a", good, "--b", text)
    refused(capsys, "gemm", "--a", good, "--b", good, "--out", str(tmp_path / "no" / "folder.npy"))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["gemm", *SMALL, "--format", "f17"],
        ["gemm", *SMALL, "--arch", "sm_1"],
        ["gemm", *SMALL, "--saturate"],
        ["list", "--arch", "volta"],
        ["show", "mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32"],
        ["verify", "--golden", "no-such-folder"],
        ["verify", "--only", "nothing is called this"],
    ],
    ids=" ".join,
)
def test_wrong_use(capsys, argv):
    refused(capsys, *argv)


@pytest.mark.parametrize(
    "argv", [[], ["frobnicate"], ["gemm", "--m", "-1"], ["gemm", "--m", "x"], ["explain", "1", "2"]]
)
def test_wrong_options(argv):
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2


def test_explain(capsys):
    code, data = run(capsys, "explain", "512", "256", "4096", "--format", "e4m3", "--k-split", "128")
    assert code == 0
    assert "wgmma" in data["instruction"] and "e4m3" in data["instruction"]
    assert data["peak_bytes"] > 0
    assert main(["explain", "512", "256", "4096"]) == 0
    assert "m64n" in capsys.readouterr().out


def test_as_a_process(tmp_path):
    def go(*argv, **more):
        command = [sys.executable, "-m", "nbtc", *argv]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, **more)

    assert go("gemm", *SMALL, "--threads", "1", "--json").returncode == 0
    assert go("gemm", "--a", "x.npy", "--b", "y.npy").returncode == 2
    head = subprocess.run(
        f"{sys.executable} -m nbtc list | head -n 1", shell=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert head.stderr == "" and head.stdout.startswith("sm_")


def test_version(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0 and capsys.readouterr().out == f"nbtc {nbtc.__version__}\n"


@pytest.mark.parametrize("family", ["wgmma", "wmma", "mma", "mma.sp", "shfl", "wgmma.mma_async", "tcgen05"])
def test_families_and_their_first_words(capsys, family):
    code, data = run(capsys, "list", "--family", family)
    names = {row["family"] for row in data}
    assert code == 0 and names and all(n == family or n.startswith(f"{family}.") for n in names)
    assert len(names) == {"wgmma": 3, "wmma": 3}.get(family, len(names))
    if family in ("mma", "wgmma.mma_async"):
        assert names == {family}  # a whole name is that family alone


def test_an_unknown_family_is_wrong_use(capsys):
    assert "wgmma" in refused(capsys, "list", "--family", "wgmmma")
    refused(capsys, "list", "--family", "")


def test_list_and_show_say_where_a_form_runs(capsys):
    rows = {r["mnemonic"]: r for r in run(capsys, "list", "--family", "mma")[1]}
    assert rows[MMA]["executable"] and rows[MMA]["archs"][0] == "sm_80"
    assert not all(r["executable"] for r in run(capsys, "list")[1])
    sparse = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    data = run(capsys, "show", sparse)[1]
    assert data["executable"] and data["archs"][-1] == "sm_121" and data["min_arch"] == "sm_80"
    places = data["metadata"]["selectors"]
    assert data["metadata"]["rows"] == 16 and set(places) == {"0", "1"}
    assert np.array_equal(places["1"]["lane"], np.array(places["0"]["lane"]) + 2)
    assert run(capsys, "show", MMA)[1]["metadata"] is None


def test_show_draws_each_range_and_the_one_asked_for(capsys, tmp_path):
    name = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    assert main(["show", name]) == 0
    out = capsys.readouterr().out
    assert "on sm_75 to sm_121" in out and "on sm_70 to sm_72" in out and "T0+T8" in out
    assert main(["show", name, "--arch", "sm_80"]) == 0
    assert "T0+T8" not in capsys.readouterr().out
    old = run(capsys, "show", name, "--arch", "sm_70")[1]
    assert np.array_equal(old["operands"]["a"]["coords"], nbtc.instruction(name).row.on(VOLTA).a.coords())
    assert [r["archs"] for r in old["ranges"]][-1] == ["sm_70", "sm_72"]
    refused(capsys, "show", MMA, "--arch", "sm_70")


def test_show_the_selector_asked_for(capsys):
    sparse = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    assert main(["show", sparse, "--selector", "1"]) == 0
    assert "selector 1" in capsys.readouterr().out
    refused(capsys, "show", sparse, "--selector", "3")


def test_show_a_tile(capsys, tmp_path):
    argv = ["show", "--swizzle", "128B", "--tile", "64x64", "f16"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "64 x 64 f16, K-major, swizzle 128B" in out and "Swizzle<3,4,3>" in out
    code, data = run(capsys, *argv)
    assert code == 0 and data["bytes"] == 8192
    _, descriptor = nbtc.wgmma.tile_to_smem(np.zeros((64, 64), np.float16), "f16", "k", "128B")
    assert data["descriptor"] == hex(descriptor.encode())
    assert main([*argv, "--svg", str(tmp_path / "t.svg")]) == 0
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
    capsys.readouterr()
    for wrong in (["--tile", "64"], ["--tile", "9x9"], ["--swizzle", "12B", "--tile", "64x64"], ["--swizzle", "128B"]):
        refused(capsys, "show", *wrong, "f16")
    refused(capsys, "show", "--tile", "64x64", "f17")


def test_explain_is_plain_data(capsys):
    data = run(capsys, "explain", "512", "256", "4096")[1]
    assert data["model"]["evidence"] == "recorded" and data["model"]["kind"] == "FUSED"
    assert "Model(" not in json.dumps(data) and "Kind" not in json.dumps(data)


@pytest.mark.parametrize(
    "argv",
    [
        ["gemm", "--m", "1e30"],
        ["gemm", "--m", "9" * 5000],
        ["gemm", "--m", str(10**30)],
        ["gemm", "--seed", "-1"],
        ["gemm", "--seed", "x"],
        ["explain", "9" * 30, "1", "1"],
    ],
    ids=lambda argv: argv[1] + argv[2][:4],
)
def test_numbers_that_are_none(capsys, argv):
    with pytest.raises(SystemExit) as left:
        main(argv)
    said = capsys.readouterr().err
    assert left.value.code == 2 and "_size" not in said and "_seed" not in said and len(said) < 3000
    assert "whole numbers" in said.replace("\n", " ")


@pytest.mark.parametrize(
    "argv",
    [
        ["gemm", *SMALL, "--format", "s32"],
        ["gemm", *SMALL, "--format", "z" * 5000],
        ["gemm", "--m", "999999999999"],
        ["explain", "999999999999", "999999999999", "1"],
        ["explain", "999999999999", "1", "999999999999"],
    ],
    ids=lambda argv: " ".join(argv)[:30],
)
def test_products_that_cannot_be(capsys, argv):
    assert len(refused(capsys, *argv)) < 1000


def test_gemm_ends_with_digits(capsys):
    assert main(["gemm", *SMALL, "--format", "f16", "--acc", "f16"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("accuracy") and "of the 3.3 decimal digits that f16 holds are right (relative error" in last
    data = run(capsys, "gemm", *SMALL, "--acc", "f16")[1]["correctly_rounded"]
    assert 0 < data["relative"] < 1e-2 and data["max_ulp"] >= 1
    assert main(["gemm", *SMALL, "--format", "s8"]) == 0
    assert capsys.readouterr().out.endswith("every output is the exact product, rounded once\n")


def test_sizes_beside_files_are_refused(capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((16, 16), np.float16))
    files = ["--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "a.npy")]
    assert "--m 64 together with --a and --b" in refused(capsys, "gemm", "--m", "64", *files)


def test_show_knows_functions(capsys):
    for spelled in ("viaddmax_s32_relu", "__viaddmax_s32_relu", "nbtc.dpx.viaddmax_s32_relu"):
        data = run(capsys, "show", spelled)[1]
        assert data["call"] == "nbtc.dpx.viaddmax_s32_relu(a, b, c, out)" and "max(a + b, c)" in data["text"]
    assert main(["show", "shfl_xor_sync"]) == 0
    assert "shfl.sync.bfly" in capsys.readouterr().out
    refused(capsys, "show", "shfl_sync", "--svg", "x.svg")
    assert "did you mean vimax3_s32?" in refused(capsys, "show", "vimaxx3_s32")
    assert "Nearest legal form" in refused(capsys, "show", "mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32")
    refused(capsys, "show", "no_such_function")


def test_the_package_lists_its_own_names_alone():
    names = [n for n in dir(nbtc) if not n.startswith("__")]
    assert sorted(names) == sorted(nbtc.__all__)


def test_warmup(capsys):
    code, data = run(capsys, "warmup", "b1", "programs", "--arch", "sm_80")
    assert code == 0 and [row["what"] for row in data["warmed"]] == ["b1", "programs"]
    assert main(["warmup", "s8"]) == 0
    printed = capsys.readouterr()
    assert "kept" in printed.out and printed.err.startswith("s8")
    assert "can't be warmed up: pass " in refused(capsys, "warmup", "f17")


def test_warmup_says_where_nothing_is_kept(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path / "file" / "folder"))  # which not even root can write to
    assert run(capsys, "warmup", "b1")[1]["folder"] is None
    assert main(["warmup", "b1"]) == 0
    assert "nothing is kept" in (said := capsys.readouterr().out) and "can't be written to" in said
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path / "folder"))
    assert run(capsys, "warmup", "b1")[1]["folder"] == str(tmp_path / "folder")
