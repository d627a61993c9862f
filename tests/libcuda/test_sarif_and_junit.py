"""What `nbtc run` writes: SARIF, JUnit's XML, profiles; and what Ctrl-C ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
from clients import PRELUDE, compiled

from nbtc.errors import ProgramError
from nbtc.libcuda.report import findings, sarif_and_junit

# each thread writes its word of shared memory and reads its neighbour's, of another warp, without a barrier
RACE = """
ready()
text = '''.version 8.0 .target sm_80 .address_size 64
.file 1 "FOLDER/race.cu"
.visible .entry race(.param .u64 x) { .reg .b32 t, u, v; .reg .b64 a; .shared .align 4 .b8 s[256];
ld.param.u64 a, [x]; mov.u32 t, %tid.x; mov.u32 u, s;
mad.lo.u32 u, t, 4, u;
.loc 1 7 3
st.shared.u32 [u], t;
xor.b32 u, u, 128;
.loc 1 9 5
ld.shared.u32 v, [u]; st.global.u32 [a], v; ret; }
.visible .entry good() { ret; }'''
m, d = module(text), allocate(4)
ok(launch(kernel(m, "good"), (1, 1, 1), (32, 1, 1)))
ok(launch(kernel(m, "race"), (1, 1, 1), (64, 1, 1), d))
print(cu.cuCtxSynchronize())
"""
NBTC = (sys.executable, "-P", "-m", "nbtc", "run")


def nbtc_run(tmp_path, options, code):
    command = [*NBTC, *options, "--", sys.executable, "-P", "-c", PRELUDE + code.replace("FOLDER", str(tmp_path))]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)


def test_findings_as_sarif_and_junit(tmp_path):
    done = nbtc_run(tmp_path, ("--checked", "--sarif", "out.sarif", "--junit", "out.xml"), RACE)
    assert done.returncode == 1 and done.stdout == "719\n", done.stderr
    log = json.loads((tmp_path / "out.sarif").read_text())
    (run,) = log["runs"]
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    assert log["version"] == "2.1.0" and rule["id"] == result["ruleId"] == "data-race"
    lines = [
        (where["physicalLocation"]["artifactLocation"]["uri"], where["physicalLocation"]["region"]["startLine"])
        for where in (*result["locations"], *result["relatedLocations"])
    ]
    assert sorted(lines) == [("race.cu", 7), ("race.cu", 9)]
    assert result["message"]["text"] in done.stderr and result["occurrenceCount"] == 1
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == tmp_path.as_uri() + "/"
    top = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (top.get("tests"), top.get("failures")) == ("2", "1")
    good, race = top.iter("testcase")
    assert good.get("name") == "good" and not len(good)
    assert race.get("name") == "race" and race[0].tag == "failure" and race[0].get("type") == "data race"
    assert race.get("file") == str(tmp_path / "race.cu") and race.get("line") in ("7", "9")


@pytest.mark.parametrize(("code", "result"), [("raise SystemExit(7)", 7), ("", 0), ("import os; os.abort()", 134)])
def test_the_commands_exit_code_is_kept(tmp_path, code, result):
    command = [*NBTC, "--sarif", "out.sarif", "--", sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, timeout=100, cwd=tmp_path).returncode == result
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"] == []


def test_a_report_that_cannot_be_written_is_refused_first(tmp_path):
    command = [*NBTC, "--junit", "nowhere/out.xml", "--", sys.executable, "-c", "print('ran')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 2 and "nowhere/out.xml" in done.stderr and not done.stdout


def test_profiles_of_all_launches(tmp_path):
    code = RACE.partition('ok(launch(kernel(m, "race")')[0] + "ok(launch(kernel(m, 'good'), (2, 1, 1), (64, 1, 1)))"
    done = nbtc_run(tmp_path, ("--profile", "profile.txt"), code)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "profile.txt").read_text().count("good") == 2


def interrupted(command, seconds, **options):
    """What a program prints, and its exit status, that is interrupted so long after it printed a line "now"."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)
    try:
        assert started.stdout.readline() == "now\n"
        time.sleep(seconds)
        os.killpg(started.pid, signal.SIGINT)
        return started.communicate(timeout=60)[0], started.returncode
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)


def test_interrupted_kernel_of_a_python_program_leaves_its_reports(tmp_path):
    code = """
ready()
f = kernel(module('''.version 8.0 .target sm_80 .address_size 64
.visible .entry endless(.param .u64 x) { .reg .u32 v; .reg .u64 a; .reg .pred p; ld.param.u64 a, [x];
again: ld.volatile.global.u32 v, [a]; setp.eq.u32 p, v, 0; @p bra again; ret; }'''), "endless")
d = allocate(4)
ok(cu.cuMemsetD32_v2(d, u32(0), c_size_t(1)))
print("now", flush=True)
try:
    launch(f, (1, 1, 1), (32, 1, 1), d)
    import time
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise SystemExit(3)
"""
    command = [*NBTC, "--junit", "out.xml", "--", sys.executable, "-P", "-c", PRELUDE + code]
    out, code = interrupted(command, 2, cwd=tmp_path)  # after two seconds it is compiled, and runs
    assert out == "interrupted\n" and code == 3
    assert ElementTree.parse(tmp_path / "out.xml").getroot().get("tests") == "1"


def test_interrupted_kernel_of_a_program_in_c_ends_with_it(tmp_path):
    source = """
#include <cstdio>
__global__ void wait(volatile int *x) { while (!*x); }
int main() {
  int *x; cudaMalloc(&x, 4); cudaMemset(x, 1, 4);
  for (int i = 0; i < 4; i++) wait<<<1, 32>>>(x);
  cudaMemset(x, 0, 4); puts("now"); fflush(stdout);
  wait<<<1, 32>>>(x); cudaDeviceSynchronize(); puts("after"); }
"""
    command = [*NBTC, str(compiled(tmp_path, source))]
    out, code = interrupted(command, 1)
    assert out == "" and code == -signal.SIGINT


def test_what_was_found_is_told_at_the_end_without_a_report_file(tmp_path):
    quiet = f"import subprocess, sys; subprocess.run([sys.executable, '-P', '-c', {PRELUDE + RACE!r}], stderr=-3)"
    code = quiet.replace("FOLDER", str(tmp_path))  # as ctest, which hides what a passing test writes
    done = subprocess.run([*NBTC, "--checked", "--", sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()[-2:]
    assert first == "nbtc: found 1 fault in 1 program:"
    assert "race.cu:" in second and "data race in race" in second


def test_what_ends_nbtc_run_ends_the_command(tmp_path):
    code = "import time; print('begun', flush=True); time.sleep(60)"
    command = [*NBTC, "--checked", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


def test_kernels_have_the_names_of_their_source(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTC_FINDINGS", str(tmp_path / "lines"))
    findings.found("_Z3revPf", ProgramError("rev: data race"))
    lines = sarif_and_junit.read(tmp_path / "lines")
    assert {x["kernel"] for x in lines} == {"rev(float*)"} and len(lines) == 2
