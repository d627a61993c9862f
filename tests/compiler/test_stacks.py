"""Stacks of threads for code with large frames."""

import ctypes
import subprocess
import sys
import threading

import numpy as np
import pytest

from nbtc.compiler.machine_code import native, stacks

FUNCTION = """
define void @f(ptr %word) nounwind {{
  %frame = alloca [{bytes} x i8], align 64
  store volatile i8 1, ptr %frame
  call void asm sideeffect "", "r,~{{memory}}"(ptr %frame)
  store volatile i64 7, ptr %word
  ret void }}"""


def _code(size: int) -> bytes:
    return native.compile_text(FUNCTION.format(bytes=size))


@pytest.mark.parametrize("size", [5000, 300_000, 20 << 20])
def test_frames_are_read_from_the_machine_code(size: int) -> None:
    found = stacks.frames([_code(size), _code(size)])
    assert 2 * (size - 4096) < found <= 2 * (size + 4096)


def test_bytes_of_instructions_of_both_processors() -> None:
    x86 = b"\x90\x48\x81\xec" + (1 << 24).to_bytes(4, "little") + b"\x48\x81\xec" + (7).to_bytes(4, "little")
    assert stacks._x86(x86) == 1 << 24  # no stack is moved by 7 bytes
    arm = b"".join(n.to_bytes(4, "little") for n in (0xD503201F, 0xD1401FFF, 0xD10403FF, 0xD14007FF))
    assert stacks._aarch64(arm) == (7 + 1) * 4096  # sub sp, sp, #7, lsl #12; #256; #1, lsl #12


def test_a_frame_larger_than_any_threads_stack_has_room() -> None:
    code = _code(40 << 20)
    loaded, word = native.load(native.Native(code, {})), np.zeros(1, np.int64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("f"))
    before = threading.stack_size()
    stacks.on_stack(stacks.frames([code]), function, word.ctypes.data).result()
    assert word[0] == 7 and threading.stack_size() == before


def test_what_the_work_raises_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        stacks.on_stack(1 << 20, divmod, 1, 0).result()


LAUNCH = """
import ctypes, sys
from types import SimpleNamespace
from nbtc.compiler.machine_code import native, stacks
from nbtc.executor.launch import launch
import numpy as np
code = native.compile_text(sys.argv[1])
loaded, word = native.load(native.Native(code, {})), np.zeros(1, np.int64)
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("f"))
kernel = SimpleNamespace(run=run, stack_bytes=stacks.frames([code]))
launch._started(kernel, word.ctypes.data, launch.Processors()).result()
print(word[0])
"""


def test_a_launch_of_code_with_a_large_frame_does_not_end_the_process() -> None:
    command = [sys.executable, "-c", LAUNCH, FUNCTION.format(bytes=40 << 20)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
