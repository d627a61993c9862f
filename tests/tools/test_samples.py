"""The table of NVIDIA's samples: what a run's end means, and how a page gets its part."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "samples.py"
PAGE = "before\n<!-- samples -->\nold\n<!-- end of samples -->\nafter\n"
PROGRAMS = {
    "good": "__global__ void k(int *x) { *x = 7; }\nint main() { int *x, h; cudaMalloc(&x, 4); k<<<1, 1>>>(x);"
    " cudaMemcpy(&h, x, 4, cudaMemcpyDeviceToHost); return h != 7; }",
    "wrong": "#include <cstdio>\nint main() { fprintf(stderr, \"a | b\\n\"); return 1; }",
    "broken": "int main() { return nothing; }",
}  # fmt: skip


@pytest.fixture
def samples(tmp_path, monkeypatch):
    """The script, with a page of its own."""
    spec = importlib.util.spec_from_file_location("samples", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "PAGE", tmp_path / "samples.md")
    script.PAGE.write_text(PAGE)
    return script


@pytest.mark.parametrize("code, err, expected", [
    (0, "nbtc: something on the way", ("passed", "")),
    (1, "nbtc: cudaX isn't there\nError at x.cu:3", ("refused", "cudaX isn't there")),
    (255, "first\nlast", ("failed", "last")),
    (-11, "", ("failed", "exit code -11")),
    (2, "", ("waived", "")),
    (None, "", ("late", "ran past 9 s")),
])  # fmt: skip
def test_verdicts(samples, code, err, expected):
    assert samples.verdict(code, err, 9) == expected


def test_a_checkout_becomes_a_table(samples, tmp_path, monkeypatch):
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc")
    for name, text in PROGRAMS.items():
        folder = tmp_path / "checkout" / "Samples" / "0_Introduction" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.cu").write_text(text)
    monkeypatch.setattr(sys, "argv", ["samples.py", str(tmp_path / "checkout")])
    samples.main()
    page = samples.PAGE.read_text()
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    rows = {r.split(" | ")[0].strip("| "): r for r in page.splitlines() if r.startswith("| ")}
    assert rows["good"].split(" | ")[1] == "passed"
    assert "| failed |" in rows["wrong"] and "a / b" in rows["wrong"]
    assert "| not built | 0.0 |" in rows["broken"] and "nothing" in rows["broken"]
    assert "3 samples: 1 failed, 1 not built, 1 passed." in page
