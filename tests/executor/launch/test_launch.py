"""Launches: arguments, memory, threads, interrupts, and machine code on disk."""

import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import nbtc
from nbtc.compiler.machine_code import native
from nbtc.errors import FormatError, OptionError, ProgramError
from nbtc.executor.code.machine import BlockShape, Options
from nbtc.executor.launch import launch

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
ADD = (
    HEAD
    + """
.visible .entry add(.param .u64 a, .param .u64 out, .param .u32 n)
{
 .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
 ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [n];
 mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mad.lo.u32 %r2, %r3, %r4, %r2;
 mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
 ld.global.u32 %r5, [%rd4]; add.u32 %r5, %r5, %r1; st.global.u32 [%rd5], %r5; ret;
}
"""
)
ONE_EACH = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 p) { .reg .b64 a; ld.param.u64 a, [p]; red.global.add.u32 [a], 1; ret; }"""
FOREVER = HEAD + ".visible .entry k() { .reg .b32 a; L: add.u32 a, a, 1; bra L; }"


@pytest.fixture(scope="module")
def add():
    return nbtc.load(ADD)["add"]


def test_a_kernel_asked_for_as_an_attribute_is_named_with_the_way_to_call_it():
    module = nbtc.load(ADD)
    with pytest.raises(AttributeError, match=r"attribute 'add': a kernel is called by module\['add'\]\[grid, block\]"):
        _ = module.add
    with pytest.raises(AttributeError, match=r"no attribute 'sub'$"):
        _ = module.sub


def test_launches_from_many_threads(add):
    def work(i):
        a, out = np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32)
        for _ in range(20):
            add[4, 128](a, out, i)
        return np.array_equal(out, a + i)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_unchecked_runs_the_same(add):
    a, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    add.launch(2, 32, (a, out, 5), checked="off")
    np.testing.assert_array_equal(out, a + 5)


def test_strided_arrays_and_addresses(add):
    a, out = np.arange(64, dtype=np.uint32), np.zeros((2, 64), np.uint32)
    add.launch(1, 32, (a[32:], out[1], 1))
    np.testing.assert_array_equal(out[1, :32], a[32:] + 1)
    add.launch(1, 32, (a.ctypes.data, out, 2), memory=[a])
    np.testing.assert_array_equal(out[0, :32], a[:32] + 2)
    with pytest.raises(ProgramError, match="reads outside"):
        add.launch(1, 32, (a.ctypes.data, out, 2))


def test_read_only_arrays_are_not_written(add):
    a, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    out.flags.writeable = False
    with pytest.raises(ProgramError, match="read-only"):
        add[1, 32](a, out, 1)
    assert not out.any()


def test_wrong_arguments_are_refused(add):
    a = np.zeros(32, np.uint32)
    for bad in ("text", [1, 2], 1.5):
        with pytest.raises((FormatError, ProgramError)):
            add[1, 32](a, a, bad)
    for grid in (0, -1, (1, 2, 3, 4), 1.5, "x"):
        with pytest.raises((OptionError, TypeError)):
            add[grid, 32](a, a, 1)
    with pytest.raises(OptionError, match="dynamic shared"):
        add[1, 32, 0, 1 << 20](a, a, 1)
    with pytest.raises(OptionError, match="not a multiple of cluster"):
        add.launch(3, 32, (a, a, 1), cluster=2)


def test_more_shared_memory_than_a_block_has():
    """Whatever is asked for beside it: an offer of "0 to -167552 bytes" told nobody what was wrong."""
    k = nbtc.load(HEAD + ".visible .entry k() { .shared .b8 s[400000]; .reg .b32 a; mov.u32 a, s; ret; }")["k"]
    with pytest.raises(OptionError, match="k declares 400000 bytes of shared memory, but a block has 232448 at most"):
        k[1, 32]()


def test_dynamic_shared_memory():
    k = nbtc.load(
        HEAD + ".extern .shared .align 16 .b8 dyn[]; .visible .entry k(.param .u64 out) { .reg .b32 a, b; .reg .b64 d;"
        " mov.u32 a, dyn; st.shared.u32 [a+60], a; ld.shared.u32 b, [a+60]; mov.u32 b, %dynamic_smem_size;"
        " ld.param.u64 d, [out]; st.global.u32 [d], b; ret; }"
    )["k"]
    out = np.zeros(1, np.uint32)
    k[1, 32, None, 64](out)
    assert out[0] == 64
    with pytest.raises(ProgramError, match="shared memory"):
        k[1, 32, None, 32](out)


def test_widened_loads_of_dynamic_shared_memory():
    """LLVM makes one load of 16 bytes of the last 12, and a GPU has more than was asked for; `checked` tells of it."""
    k = nbtc.load(
        HEAD + ".extern .shared .align 16 .b8 dyn[]; .visible .entry k(.param .u64 out) {"
        " .reg .b32 a, b, c, e, f; .reg .b64 d; ld.param.u64 d, [out]; mov.u32 a, 7; st.shared.u32 [dyn+24], a;"
        " st.shared.v2.u32 [dyn+16], {a, a}; ld.shared.v4.u32 {a, b, c, e}, [dyn+16]; mov.u32 e, %dynamic_smem_size;"
        " mov.u32 f, %total_smem_size; st.global.v4.u32 [d], {a, c, e, f}; ret; }"
    )["k"]
    out = np.zeros(4, np.uint32)
    k.launch(1, 1, (out,), shared=28)
    assert out.tolist() == [7, 7, 28, 128]
    with pytest.raises(ProgramError, match="shared memory"):
        k.launch(1, 1, (out,), shared=28, checked=True)
    with pytest.raises(ProgramError, match="shared memory"):
        k.launch(1, 1, (out,), shared=16)


def test_structs_by_value():
    k = nbtc.load(
        HEAD + ".visible .entry k(.param .align 8 .b8 s[16], .param .u64 out) { .reg .b32 a; .reg .b64 d;"
        " ld.param.u32 a, [s+12]; ld.param.u64 d, [out]; st.global.u32 [d], a; ret; }"
    )["k"]
    out = np.zeros(1, np.uint32)
    k[1, 1](np.array([1, 2, 3, 4], np.uint32).tobytes(), out)
    assert out[0] == 4
    with pytest.raises(ProgramError, match="16 bytes"):
        k[1, 1](b"short", out)


def test_an_interrupt_ends_an_endless_loop():
    program = nbtc.load(FOREVER)["k"]
    program.module.compiled(program.name, BlockShape.of((64, 1, 1)), Options(program.arch))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(1, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            program[4, 64]()
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def looks(monkeypatch):
    """The times that launches read off their clock, on which half a second passes from one look to the next."""
    found = []

    def look():
        found.append(0.5 * len(found))
        return found[-1]

    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=look))
    return found


@pytest.mark.parametrize("grid", [1, 5])
def test_a_time_limit_ends_an_endless_loop(grid, looks):
    program = nbtc.load(FOREVER)["k"]
    program.module.compiled(program.name, BlockShape.of((64, 1, 1)), Options(program.arch))
    with pytest.raises(ProgramError, match=r"line 4: bra: .*time limit.*block \(\d, 0, 0\) thread \(\d+, 0, 0\)"):
        program.launch(grid, 64, (), timeout=2)
    assert looks == [0, 0.5, 1, 1.5, 2]  # not before the limit, and at the first look after it


@pytest.mark.parametrize("threads", [1, 2])
def test_a_time_limit_ends_a_grid_of_blocks_without_loops(threads, looks):
    many, count = 2**31 - 1, np.zeros(1, np.uint32)
    program = nbtc.load(ONE_EACH)["k"]
    program.launch(1, 1, [count])
    looks.clear()
    with pytest.raises(ProgramError, match=r"^k: was still running .* time limit .*; block \(\d+, 0, 0\)"):
        program.launch(many, 1, [count], timeout=1, threads=threads)
    assert looks == [0, 0.5, 1] and 0 < count[0] < many


def test_a_time_limit_leaves_others_alone(add):
    a, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    add.launch(2, 32, (a, out, 5), timeout=60)
    np.testing.assert_array_equal(out, a + 5)


def test_machine_code_is_found_again_and_a_damaged_file_is_no_harm(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    made = []
    monkeypatch.setattr(native, "compile_text", lambda *part, real=native.compile_text: made.append(1) or real(*part))

    def run():
        a, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
        nbtc.load(ADD)["add"][1, 32](a, out, 7)
        np.testing.assert_array_equal(out, a + 7)

    run()
    run()
    assert len(made) == 1
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    for file in files:
        file.write_bytes(file.read_bytes()[:-10])
    run()
    assert len(made) == 2
    for file in files:
        file.write_bytes(b"")
    run()
    assert len(made) == 3
    monkeypatch.setenv("NBTC_CACHE_DIR", str(files[0] / "below"))  # no folder can be made there
    run()


def test_nothing_absolute_is_in_the_code():
    from nbtc.executor.code.machine import Machine
    from nbtc.executor.kernel.link import link

    module = nbtc.load(ADD + ".global .u32 x[4] = {1, 2, 3, 4};").ptx
    texts = {str(Machine(link(module, "add"), BlockShape.of((64, 1, 1)), Options("sm_80")).module) for _ in range(2)}
    assert len(texts) == 1


def test_a_guarded_ret_before_the_last_one():
    text = "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.ge.u32 p, t, 40; bar.sync 0; @p ret; ret; }"
    nbtc.load(f"{HEAD}.visible .entry k() {text}")["k"][1, 64]()


def test_progress_counts_blocks():
    """A callable is told how many blocks have begun, and in the end that all have."""
    told = []
    kernel = nbtc.load(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n")["k"]
    kernel.launch(500, 64, (), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (500, 500)
    assert told == sorted(told)


def test_parameters_that_a_compiler_named_by_number_are_called_by_their_place():
    """`_Z3addPjS_j_param_1` says less: the source's own name of it is nowhere in the text."""
    text = ADD
    for place, name in enumerate(("a", "out", "n")):
        text = re.sub(rf"(?<=[ \[]){name}(?=[,\])])", f"add_param_{place}", text)
    kernel = nbtc.load(text)["add"]
    with pytest.raises(ProgramError, match=r"writes outside .* 0 bytes after the end of args\[1\] \(128 bytes\)"):
        kernel.checked[2, 32](np.zeros(64, np.int32), np.zeros(32, np.int32), 1)
    with pytest.raises(FormatError, match=r"^args\[2\] is \.u32: pass a whole number"):
        kernel[1, 32](np.zeros(32, np.int32), np.zeros(32, np.int32), 1.5)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("blocks", "cluster"), [(1, 1), (255, 1), (1023, 1), (20011, 1), (2 * 257, 2), (4 * 5003, 4)])
def test_every_block_runs_once_in_whatever_shares(blocks, cluster, threads):
    text = """
.version 8.0 .target sm_90 .address_size 64
.visible .entry count(.param .u64 x) { .reg .b32 c; .reg .b64 a, o; ld.param.u64 a, [x]; mov.u32 c, %ctaid.x;
mul.wide.u32 o, c, 4; add.u64 a, a, o; red.global.add.u32 [a], 1; ret; }"""
    x = np.zeros(blocks, np.uint32)
    nbtc.load(text)["count"].launch((blocks,), (1,), [x], cluster=(cluster,), threads=threads)
    assert (x == 1).all()
