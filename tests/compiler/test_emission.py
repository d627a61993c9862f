"""Machine code that several threads write at once: the same bytes, and what goes wrong reaches the caller."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nbtc
from nbtc.compiler import threads
from nbtc.compiler.machine_code import emission, native
from nbtc.executor.code import helpers

# A product, which has files of its own, and a sum of what it gives in a loop with a barrier.
PROGRAM = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 x, .param .u32 rounds) {
  .reg .pred p; .reg .b32 t, o, n, a, b; .reg .f32 d<4>; .reg .b64 g, at;
  ld.param.u64 g, [x]; ld.param.u32 n, [rounds]; mov.u32 t, %tid.x; mul.wide.u32 at, t, 4; add.u64 g, g, at;
  ld.global.b32 a, [g]; mov.b32 d0, 0; mov.b32 d1, 0; mov.b32 d2, 0; mov.b32 d3, 0;
again:
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a, a, a, a}, {a, a}, {d0, d1, d2, d3};
  bar.sync 0; sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra again;
  st.global.f32 [g], d0; ret; }"""
HALF = np.float16(0.5).view(np.uint16).item() * 0x10001


class Writers:
    """Threads that have written machine code, in order; `before` is called by each, before it does."""

    def __init__(self, monkeypatch):
        self.threads, self.before, self.real = [], lambda: None, native.object_file
        monkeypatch.setattr(native, "object_file", self)

    def __call__(self, machine, module):
        self.threads.append(threading.current_thread())
        self.before()
        return self.real(machine, module)


@pytest.fixture
def writers(monkeypatch):
    monkeypatch.setattr(threads, "allowed_processors", lambda: 2)
    monkeypatch.setattr(threads, "thread_count", lambda _: 2)
    return Writers(monkeypatch)


def compiled(monkeypatch, folder):
    """The sums of a program that is compiled anew, and the files that are kept of it."""
    monkeypatch.setenv("NBTC_CACHE_DIR", str(folder))
    monkeypatch.setattr(helpers, "_HELPERS", {})
    x = np.full(64, HALF, np.uint32)
    nbtc.load(PROGRAM)["k"][1, 64](x, 3)
    return x.view(np.float32).tolist(), {f.name: f.read_bytes() for f in folder.rglob("*.o")}


def beside(thread):
    return thread is not threading.current_thread()


@pytest.mark.parametrize("alone", ["allowed_processors", "thread_count"])
def test_files_are_the_same_without_a_second_thread(alone, writers, monkeypatch, tmp_path):
    sums, files = compiled(monkeypatch, tmp_path / "two")
    assert sums == [3 * 16 * 0.25] * 64
    assert {beside(thread) for thread in writers.threads} == {False, True}
    writers.threads.clear()
    monkeypatch.setattr(threads, alone, lambda *_: 1)
    assert compiled(monkeypatch, tmp_path / "one") == (sums, files)
    assert len(writers.threads) >= 3 and not any(map(beside, writers.threads))
    assert len(files) > len(writers.threads)


def test_a_thread_that_is_busy_is_not_waited_for(writers, monkeypatch, tmp_path):
    release = threading.Event()
    busy = threads._one_more().submit(release.wait)
    try:
        sums, _ = compiled(monkeypatch, tmp_path)
    finally:
        release.set()
    assert sums == [12.0] * 64 and not any(map(beside, writers.threads))
    assert busy.result()


def test_no_thread_to_be_had(writers, monkeypatch, tmp_path):
    def refuse():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_one_more", refuse)
    assert compiled(monkeypatch, tmp_path)[0] == [12.0] * 64
    assert not any(map(beside, writers.threads))


class Failure(Exception):
    """Of a thread."""


def test_an_error_of_the_other_thread_reaches_the_caller(writers, monkeypatch, tmp_path):
    def fail():
        if beside(threading.main_thread()):
            raise Failure

    writers.before = fail
    with pytest.raises(Failure):
        compiled(monkeypatch, tmp_path / "failed")
    writers.before = lambda: None
    assert compiled(monkeypatch, tmp_path / "again")[0] == [12.0] * 64


def test_an_interrupt_leaves_nothing_under_way(writers, monkeypatch, tmp_path):
    ended = []

    def interrupt():
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.3)
        ended.append(True)

    writers.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        compiled(monkeypatch, tmp_path / "interrupted")
    assert ended and threads._one_more()._work_queue.empty()
    writers.before = lambda: None
    assert compiled(monkeypatch, tmp_path / "again")[0] == [12.0] * 64


LOOP = """define i32 @f(ptr %p, i32 %n) {{
  br label %again
again:
  %i = phi i32 [ 0, %0 ], [ %j, %again ]
  %at = getelementptr <{lanes} x {kind}>, ptr %p, i32 %i
  %x = load <{lanes} x {kind}>, ptr %at
  %y = {opcode} <{lanes} x {kind}> %x, %x
  %z = {opcode} <{lanes} x {kind}> %y, %x
  store <{lanes} x {kind}> %z, ptr %at
  %j = add i32 %i, 1
  %more = icmp ne i32 %j, %n
  br i1 %more, label %again, label %end
end:
  ret i32 %j
}}"""


def test_threads_write_the_bytes_that_one_writes():
    kinds = {"float": "fmul", "double": "fadd", "i32": "mul", "i16": "add", "i8": "xor"}
    texts = [LOOP.format(lanes=8 << n, kind=k, opcode=o) for k, o in kinds.items() for n in range(5)] * 8
    want = [native.compile_text(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(native.compile_text, texts)) == want
    assert emission.UNDER_WAY.count == 0


def test_two_threads_are_in_llvm_at_once(monkeypatch):
    """Each waits there for the other one; and a fork would wait for both."""
    together, counts, real = threading.Barrier(2), [], emission._EMIT

    def emit(*arguments):
        together.wait(20)
        counts.append(emission.UNDER_WAY.count)
        together.wait(20)
        return real(*arguments)

    monkeypatch.setattr(emission, "_EMIT", emit)
    text = LOOP.format(lanes=8, kind="float", opcode="fadd")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(native.compile_text, [text, text])
    assert first == second and counts == [2, 2]


def test_llvmlites_lock_is_not_taken():
    """By what takes longest: the function that llvmlite's lock is around is still to be found."""
    assert emission._EMIT is not emission.ffi.lib.LLVMPY_TargetMachineEmitToMemory


def test_garbage_is_finalised_in_any_order():
    """A context that ended before its module would be a crash."""
    for swap in (False, True):
        own = emission.context()
        cycle = [own, native.binding().parse_assembly("define void @f() { ret void }", own)]
        cycle = [*(reversed(cycle) if swap else cycle)]
        cycle.append(cycle)
        del own, cycle
        assert gc.collect()
