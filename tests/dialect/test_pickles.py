"""Kernels, device functions, modules and programs in other processes."""

import copy
import importlib
import inspect
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import nbtc
from nbtc.warmup import PROGRAM


@nbtc.device
def twice(x):
    return x + x


@nbtc.kernel
def doubled(x):
    i = nbtc.grid(1)
    if i < x.size:
        x[i] = twice(x[i])


COUNTER = """.version 8.0 .target sm_80 .address_size 64 .visible .global .u32 n = 7;
.visible .entry k(.param .u64 p) { .reg .b32 %r<3>; .reg .b64 %d<2>; ld.param.u64 %d0, [p]; ld.global.u32 %r0, [n];
 add.u32 %r1, %r0, 1; st.global.u32 [n], %r1; st.global.u32 [%d0], %r1; ret; }"""


def made(offset):
    @nbtc.device
    def more(x):
        return x + offset

    @nbtc.kernel(arch="sm_80", max_threads=64)
    def added(x):
        i = nbtc.grid(1)
        if i < x.size:
            x[i] = more(x[i])

    return added


def launched(run, size=5):
    x = np.arange(size, dtype=np.int32)
    run(x)
    return x.tolist()


def test_what_can_be_imported_goes_by_name():
    assert pickle.loads(pickle.dumps(doubled)) is doubled and pickle.loads(pickle.dumps(twice)) is twice
    assert copy.deepcopy(doubled) is doubled


def test_what_can_not_goes_with_its_code():
    kernel = made(3)
    found = pickle.loads(pickle.dumps(kernel))
    assert (
        found is not kernel
        and found.arch == "sm_80"
        and found.ptx(np.zeros(1, np.int32)) == kernel.ptx(np.zeros(1, np.int32))
    )
    assert launched(found[1, 32]) == launched(pickle.loads(pickle.dumps(kernel[1, 32]))) == [3, 4, 5, 6, 7]


def test_modes_are_kept():
    wild = pickle.loads(pickle.dumps(made(1).checked))
    assert launched(wild[1, 32]) == [1, 2, 3, 4, 5]
    assert pickle.loads(pickle.dumps(doubled.profile))[1, 32](np.ones(4, np.int32)) is not None


def test_variables_of_a_copy_begin_anew():
    module = nbtc.load(COUNTER)
    assert launched(module["k"][1, 1], 1) == [8]
    found = pickle.loads(pickle.dumps(module))
    assert found.kernels == ("k",) and launched(found["k"][1, 1], 1) == [8] and launched(module["k"][1, 1], 1) == [9]


@pytest.mark.parametrize("mode", ["", "checked"])
def test_programs(mode):
    program = nbtc.load(PROGRAM)["reverse"].on("sm_80")
    found = pickle.loads(pickle.dumps(getattr(program, mode) if mode else program))
    x, y = np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32)
    found[1, 64](x)
    program[1, 64](y)
    assert found.arch == "sm_80" and x.tolist() == y.tolist()


def test_kernels_of_another_process(tmp_path, monkeypatch):
    """In a module of their own: which folder these tests are imported from is not said to other processes.

    A `multiprocessing.Pool` would wait for ever for a process that can't read what it is sent.
    """
    lines = ["import numpy as np", "import nbtc", *map(inspect.getsource, (twice.function, doubled.function, launched))]
    (tmp_path / "kernels_to_send.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    sent = importlib.import_module("kernels_to_send")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = [pool.submit(sent.launched, run).result(60) for run in (made(2)[1, 32], sent.doubled[1, 32])]
    assert found == [[2, 3, 4, 5, 6], [0, 2, 4, 6, 8]]


def test_kernels_of_a_script_go_with_their_code():
    text = """
import pickle, sys, nbtc
@nbtc.kernel
def k(x):
    x[nbtc.thread_idx.x] = 5
sys.stdout.buffer.write(pickle.dumps(k))"""
    sent = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout
    assert launched(pickle.loads(sent)[1, 5]) == [5] * 5
