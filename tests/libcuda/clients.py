"""Clients of the driver in processes of their own: Python with ctypes, and executables that nvcc makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbtc.libcuda.command import environment
from nbtc.libcuda.library.boot import python_library
from tests.processes import forked

PRELUDE = """
import ctypes, sys
from ctypes import *
cu = CDLL("libcuda.so.1")
rt = CDLL("libcudart.so.13")
u64, u32, i32 = c_uint64, c_uint32, c_int32

def ok(code):
    assert code == 0, code

def ready():
    ok(cu.cuInit(0))
    context = u64()
    ok(cu.cuDevicePrimaryCtxRetain(byref(context), 0))
    ok(cu.cuCtxSetCurrent(context))
    return context

def module(text):
    m = u64()
    ok(cu.cuModuleLoadData(byref(m), text.encode()))
    return m

def kernel(m, name):
    f = u64()
    ok(cu.cuModuleGetFunction(byref(f), m, name.encode()))
    return f

def allocate(size):
    p = u64()
    ok(cu.cuMemAlloc_v2(byref(p), c_size_t(size)))
    return p

def launch(f, grid, block, *args, stream=0, shared=0):
    pointers = (c_void_p * max(1, len(args)))(*(cast(byref(a), c_void_p) for a in args))
    return cu.cuLaunchKernel(f, *grid, *block, shared, c_void_p(stream), pointers, None)

TWICE = '''.version 8.0 .target sm_80 .address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry twice(.param .u64 x, .param .u32 n) {
.reg .b32 t, v, m; .reg .b64 a, o; .reg .pred p;
ld.param.u64 a, [x]; ld.param.u32 m, [n]; mov.u32 t, %tid.x; setp.ge.u32 p, t, m; @p ret;
mul.wide.u32 o, t, 4; add.u64 a, a, o; ld.global.u32 v, [a]; add.u32 v, v, v; st.global.u32 [a], v; ret; }'''
"""


def python(code: str, check: bool = True, **changes: str) -> subprocess.CompletedProcess[str]:
    """Python code, with the driver loaded, in a process of its own."""
    process = forked(PRELUDE + code, **environment(os.environ) | changes)
    out, error = process.communicate(timeout=300)
    if check and process.returncode:
        raise AssertionError(f"exit code {process.returncode}\n{out}\n{error}")
    return subprocess.CompletedProcess(code, process.returncode, out, error)


def compiled(folder: Path, source: str, *options: str) -> Path:
    """An executable of CUDA C++ with the shared runtime; skips where there is no nvcc."""
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc")
    file = folder / "program.cu"
    file.write_text(source)
    out = folder / "program"
    command = ["nvcc", "-cudart", "shared", "-arch=compute_80", "-lineinfo", *options, "-o", str(out), str(file)]
    links = {"LIBRARY_PATH": environment(os.environ)["LIBRARY_PATH"]}  # nvcc's wheels have no libcudart.so
    made = subprocess.run(command, capture_output=True, text=True, env=os.environ | links)
    assert not made.returncode, made.stderr
    return out


def run(program: Path, *arguments: str, arch: str = "sm_90", **changes: str) -> subprocess.CompletedProcess[str]:
    """An executable under `nbtc run`, in its own folder; skips where it couldn't start this Python."""
    if python_library() is None:
        pytest.skip("this Python has no shared library")
    command = [sys.executable, "-P", "-m", "nbtc", "run", "--arch", arch, str(program), *arguments]
    env, folder = os.environ | changes, program.parent
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, cwd=folder)
