"""CUDA C++ through NVRTC, where its wheels are installed; what is said where they are not."""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc import errors
from nbtc.cli import main
from nbtc.dialect.intrinsics import INTRINSICS, operands
from nbtc.executor.command import argument
from nbtc.interop import toolkit
from nbtc.testing.scalar_inputs import words

SOURCE = """
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }
template <class T> __global__ void axpy(T a, const T *x, T *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
installed = bool(toolkit.candidates())
needs = pytest.mark.skipif(not installed, reason="NVRTC's wheels are not installed")


@needs
def test_kernels_and_templates():
    module = nbtc.cuda.compile(SOURCE, names=["axpy<float>"])
    x, y = np.arange(40, dtype=np.float32), np.ones(40, np.float32)
    module["twice"][1, 32](x)
    assert x[31] == 62 and x[32] == 32
    module["axpy<float>"][2, 32](0.5, x, y, 40)
    assert (y == 1 + np.float32(0.5) * x).all()


@needs
def test_messages_name_the_line():
    with pytest.raises(errors.ProgramError, match=r"twice\.cu\(1\).*undefined"):
        nbtc.cuda.compile("__global__ void f(int *x) { x[0] = y; }", filename="twice.cu")


@pytest.mark.skipif(installed, reason="NVRTC's wheels are installed")
def test_what_to_install():
    with pytest.raises(errors.MissingExtraError, match="nvrtc"):
        nbtc.cuda.compile(SOURCE)


def test_bad_architecture():
    with pytest.raises((errors.ArchError, errors.MissingExtraError)):
        nbtc.cuda.compile(SOURCE, arch="hopper")


@needs
@pytest.mark.parametrize(
    ("name", "target"), [("A100", "sm_80"), ("H200", "sm_90a"), (90, "sm_90"), ("compute_86", "sm_86")]
)
def test_architectures_have_the_names_that_they_have_elsewhere(name, target):
    assert nbtc.cuda.compile(SOURCE, arch=name).target == target


def wheels(root, *names):
    """Folders as wheels of NVRTC make them: a name such as "cu13/lib/libnvrtc.so.13"."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.skipif(toolkit.WINDOWS, reason="names of Linux")
def test_the_newest_of_several_is_taken_with_headers_of_its_own(tmp_path, monkeypatch):
    old, new, newest = tmp_path / "old", tmp_path / "new", tmp_path / "newest"
    wheels(old, "cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.8")
    wheels(old, "cuda_nvrtc/include/nvrtc.h", "cuda_runtime/include/cuda_fp16.h")
    wheels(new, "cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc-builtins.so.13.0", "cu13/lib/libnvrtc.alt.so.13")
    wheels(newest, "cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc-builtins.so.13.5", "cu13/include/cuda_fp16.h")
    monkeypatch.setattr(toolkit, "_roots", lambda: iter((new, old, newest)))
    found = toolkit.candidates()
    assert [c.version for c in found] == [(13, 5), (13, 0), (12, 8)]
    assert toolkit.headers(found[0].path) == (newest / "cu13/include",)
    assert toolkit.headers(found[2].path) == (old / "cuda_nvrtc/include", old / "cuda_runtime/include")
    assert toolkit.headers(found[1].path)[0] == newest / "cu13/include"  # it has none: those of the other wheels


@needs
def test_its_builtins_are_loaded_with_it():
    """They are opened by their name alone, which finds what is loaded, in a process without torch too."""
    assert nbtc.cuda.compile("__global__ void f(float *x) { x[0] = sinf(x[0]); }").kernels
    assert toolkit.compiler().version >= (12, 0)


@needs
def test_a_file_is_read_with_the_headers_beside_it(tmp_path):
    (tmp_path / "size.cuh").write_text("#define SIZE 3\n")
    (tmp_path / "fill.cu").write_text(
        '#include <cstdio>\n#include <cstdint>\n#include "size.cuh"\n'
        'extern "C" __global__ void fill(uint32_t *x) { *x = SIZE; }'
    )
    for path in (tmp_path / "fill.cu", str(tmp_path / "fill.cu")):
        x = np.zeros(1, np.uint32)
        nbtc.cuda.compile(path)["fill"][1, 1](x)
        assert x[0] == 3
    (tmp_path / "bad.cu").write_text("int x = ;")
    with pytest.raises(errors.ProgramError, match=r"bad\.cu\(1\)"):
        nbtc.cuda.compile(tmp_path / "bad.cu")


@needs
def test_errors_of_a_launch_name_the_file_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    source = "// line 1\n__global__ void beyond(float *x) { x[threadIdx.x] = 1; }"
    Path("src/beyond.cu").write_text(source)
    with pytest.raises(errors.ProgramError) as caught:
        nbtc.cuda.compile("src/beyond.cu")["beyond"][1, 4](np.zeros(3, np.float32))
    assert "the end of x (12 bytes)" in str(caught.value)
    assert caught.value.places == ((str(tmp_path / "src" / "beyond.cu"), 2),)


@needs
def test_a_source_without_a_file_is_the_same_text_in_every_directory(tmp_path, monkeypatch):
    texts = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        texts.append(nbtc.cuda.compile(SOURCE).text)
    assert '"source.cu"' in texts[0]
    assert texts[0] == texts[1]


def test_a_file_that_is_not_there():
    for path in ("nowhere/kernel.cu", Path("nowhere.txt")):
        with pytest.raises(errors.SourceError, match="cannot be read"):
            nbtc.cuda.compile(path)
    with pytest.raises(errors.FormatError):
        nbtc.cuda.compile(5)


@needs
@pytest.mark.parametrize(
    ("header", "says"),
    [("vector", r"host's C\+\+ library"), ("mine.cuh", "-I/path"), ("cub/nothing.cuh", r"nbtc\[nvrtc\]")],
)
def test_a_missing_header_has_a_hint(header, says):
    with pytest.raises(errors.ProgramError, match=says):
        nbtc.cuda.compile(f"#include <{header}>\n")


@needs
@pytest.mark.parametrize("body", ["k<<<1, 1>>>(0);", "float *d; cudaMalloc(&d, 4);", "cudaDeviceSynchronize();"])
def test_host_code_is_sent_to_nvcc(body):
    with pytest.raises(errors.ProgramError, match=r"nvcc -cudart shared -o program.*\n?.*nbtc run \./program"):
        nbtc.cuda.compile(f"__global__ void k(float *x) {{ *x = 1; }}\nint main() {{ {body} }}\n")


@needs
def test_shared_arrays_are_called_as_in_the_source():
    module = nbtc.cuda.compile("""__global__ void rev(float *y) {
        __shared__ float tile[64]; tile[threadIdx.x] = 1; __syncthreads(); *y = tile[64 - threadIdx.x]; }""")
    with pytest.raises(
        errors.ProgramError, match=r"^rev: .*address 0x100, 0 bytes after the end of tile \(256 bytes\)"
    ):
        module["rev"][1, 64](np.zeros(1, np.float32))
    with pytest.raises(errors.ProgramError, match=r"^rev takes 1 arguments"):
        module["rev"][1, 64]()


@needs
def test_the_command_line_runs_a_source(tmp_path, capsys):
    path = tmp_path / "twice.cu"
    path.write_text("__global__ void twice(float *x) { x[threadIdx.x] *= 2; }")
    out = tmp_path / "y.npy"
    words = [str(path), "--block", "4", "--arg", "random:f32:4", "--out", f"0={out}"]
    assert main(["run", *words]) == main(["ptx", *words, "--run", "twice"]) == 0
    assert (np.load(out) == 2 * argument("random:f32:4", 0)).all()
    assert main(["ptx", str(path)]) == 0
    assert "twice(float*): " in capsys.readouterr().out
    path.write_text(path.read_text() * 2 + "x")
    assert main(["run", *words]) == 2


@needs
def test_intrinsics_are_what_nvrtc_makes_of_them():
    """nbtc.intrinsics and CUDA C++ have the same bits."""
    calls = {name: ", ".join(("x[i]", "y[i]")[: operands(name)]) for name in INTRINSICS}
    bodies = "".join(f"out[{n} * size + i] = {name}({given});" for n, (name, given) in enumerate(calls.items()))
    text = 'extern "C" __global__ void all(const float *x, const float *y, float *out, int size)'
    module = nbtc.cuda.compile(f"{text} {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {bodies} }}")
    rng = np.random.default_rng(11)
    x, y = (words(rng, "f32", 1 << 12).view(np.float32) for _ in "xy")
    out = np.zeros((len(calls), x.size), np.float32)
    module["all"][x.size // 128, 128](x, y, out, x.size)
    for name, found in zip(calls, out, strict=True):
        wanted = getattr(nbtc.intrinsics, name)(*(x, y)[: operands(name)])
        np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32), name)


@needs
def test_a_source_runs_from_the_command_line(tmp_path, capsys):
    (tmp_path / "reverse.cu").write_text(
        'extern "C" __global__ void reverse(const int *from, int *to) {\n'
        "    __shared__ int s[64]; int t = threadIdx.x;\n    s[t] = from[t];\n    to[t] = s[63 - t];\n}\n"
    )
    given = [str(tmp_path / "reverse.cu"), "--block", "64", "--arg", "random:s32:64", "--arg", "zeros:s32:64"]
    out = tmp_path / "to.npy"
    assert main(["run", *given, "--out", f"to={out}"]) == 0  # as the source calls it
    printed = capsys.readouterr().out
    assert "  from: sha256" in printed and "  to: sha256" in printed and np.load(out).shape == (64,)
    assert main(["run", "--checked", "--arch", "A100", *given]) == 1
    assert "data race" in capsys.readouterr().out
