"""The table of CUDA libraries says what its programs' exit codes said."""

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "cuda_libraries", Path(__file__).resolve().parents[2] / "scripts" / "cuda_libraries.py"
)
cuda_libraries = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cuda_libraries)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nbtc run needs Linux")


def outcomes(text):
    chosen = argparse.Namespace(arch="sm_80", seconds=60)
    return dict(cuda_libraries.outcomes(["/bin/sh", "-c", text], chosen))


def test_exit_codes_and_what_programs_say_decide():
    assert [x[:2] for x in outcomes("exit 0").values()] == [("passed", "")] * 2
    assert [x[:2] for x in outcomes("echo out: error 3; exit 1").values()] == [("failed", "out: error 3")] * 2
    assert outcomes("echo Invalid kernel number; exit 1") == {}


def test_runs_of_one_kernel_are_one_row_and_failures_have_their_reason():
    passed, failed = ("passed", "", 1.0), ("failed", "dq: 3 | 4", 2.0)
    table = cuda_libraries.table(
        {
            "ggml dequantize q4_0": {"plain": passed, "checked": passed},
            "ggml dequantize q5_0": {"plain": passed, "checked": failed},
        }
    )
    assert "| ggml | dequantize | 2 of 2 | 1 of 2 | 2 | 3 |" in table
    assert "| ggml dequantize q5_0 | checked | dq: 3 / 4 |" in table


def test_rows_of_what_did_not_run_stay():
    passed, failed = ("passed", "", 1.0), ("failed", "dq: 3", 2.0)
    before = cuda_libraries.table({"ggml mul 1": {"plain": failed}, "llm.c gelu 1": {"plain": failed}})
    after = cuda_libraries.table({"ggml mul 1": {"plain": passed}}, before)
    assert "| ggml | mul | 1 of 1 | 0 of 0 | 1 | 0 |" in after
    assert "| llm.c | gelu | 0 of 1 | 0 of 0 | 2 | 0 |" in after
    assert [x for x in after.splitlines() if "dq" in x] == ["| llm.c gelu 1 | plain | dq: 3 |"]


@pytest.mark.parametrize("name", cuda_libraries.LIBRARIES)
def test_a_librarys_own_sources_are_there_and_built_for_its_architecture(name, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(cuda_libraries, "built", lambda command, program: commands.append(command) or program)
    folder = cuda_libraries.LIBRARIES[name].folder.replace("*", "1.0")
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert cuda_libraries.library(name, tmp_path, tmp_path) == tmp_path / name
    own = [x for x in commands[0] if x.startswith(str(cuda_libraries.PROGRAMS))]
    assert own and all(Path(x).exists() for x in own)
    assert [x for x in commands[0] if x.startswith("-arch")] == [f"-arch={cuda_libraries.LIBRARIES[name].arch}"]
