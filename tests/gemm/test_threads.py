"""Threads, progress, interrupts and memory of large products."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.gemm import gemm
from tests.processes import forked, output

RNG = np.random.default_rng(11)
A, B = RNG.standard_normal((200, 520), np.float32), RNG.standard_normal((520, 330), np.float32)
KINDS: dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any]]] = {
    "f16": (A.astype(np.float16), B.astype(np.float16), {}),
    "f16 split": (A.astype(np.float16), B.astype(np.float16), {"k_split": 128, "acc": "f16"}),
    "tf32": (A, B, {}),
    "f64": (A.astype(np.float64), B.astype(np.float64), {}),
    "s8": ((A * 40).astype(np.int8), (B * 40).astype(np.int8), {}),
    "s8 saturate": ((A * 40).astype(np.int8), (B * 40).astype(np.int8), {"saturate": True, "instruction": "mma"}),
    "b1": (A > 0, B > 0, {}),
    "small": (A[:3].astype(np.float16), B[:, :5].astype(np.float16), {}),
    "batch": (np.stack([A[:100], A[100:]]).astype(np.float16), B.astype(np.float16), {}),
    "nothing": (A[:0].astype(np.float16), B.astype(np.float16), {}),
    "no depth": (A[:, :0].astype(np.float16), B[:0].astype(np.float16), {}),
}


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_calls_from_several_python_threads(threads: int | None) -> None:
    """Four Python threads at once, different formats each: every result is that of a call alone."""
    names = ["f16", "s8", "f64", "tf32"]
    alone = {n: nbtc.matmul(*KINDS[n][:2], threads=1, **KINDS[n][2]).tobytes() for n in names}
    wrong: list[str] = []
    gate = threading.Barrier(4)

    def work(turn: int) -> None:
        gate.wait()
        for i in range(6):
            name = names[(turn + i) % 4]
            a, b, options = KINDS[name]
            if nbtc.matmul(a, b, threads=threads, **options).tobytes() != alone[name]:
                wrong.append(name)

    crowd = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in crowd:
        t.start()
    for t in crowd:
        t.join(60)
    assert not wrong and not any(t.is_alive() for t in crowd)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_progress_reaches_its_end(name: str, threads: int) -> None:
    """(done, total) multiply-adds: done never falls and ends at total; total never changes."""
    a, b, options = KINDS[name]
    seen: list[tuple[int, int]] = []
    nbtc.matmul(a, b, threads=threads, progress=lambda *x: seen.append(x), **options)
    assert seen, "a callable hears at least once"
    done, totals = [d for d, _ in seen], {t for _, t in seen}
    assert totals == {nbtc.plan(a, b, **options).shape[-1] * nbtc.matmul(a, b, **options).size}
    assert done == sorted(done) and done[-1] == totals.pop() and all(type(d) is int for d in done)
    again: list[int] = []
    gemm(2, a, b, 0, None, threads=threads, progress=lambda d, t: again.append(d), **options)
    assert again[-1] == done[-1]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, ml_dtypes.int4, np.bool_])
def test_progress_counts_as_it_goes(dtype: Any) -> None:
    """Two tasks of equal size on one thread are two steps of half the multiply-adds, whatever a word holds."""
    seen: list[tuple[int, int]] = []
    rows = 1024 if dtype is np.float16 else 1536
    nbtc.matmul(np.ones((rows, 64), dtype), np.ones((64, 32), dtype), threads=1, progress=lambda *x: seen.append(x))
    total = rows * 64 * 32
    assert seen == [(total // 2, total), (total, total)]


def test_progress_may_show_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """progress=True writes to stderr alone."""
    nbtc.matmul(*KINDS["f16"][:2], progress=True)
    shown = capsys.readouterr()
    assert shown.err and not shown.out


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_progress_stops_the_product(threads: int) -> None:
    """What the callable raises reaches the caller, out is untouched, and the next product is fine."""
    a, b, _ = KINDS["f16"]
    out = np.full((200, 330), 7, np.float32)

    def fail(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        nbtc.matmul(a, b, threads=threads, progress=fail, out=out)
    assert (out == 7).all()
    assert nbtc.matmul(a, b, threads=threads).tobytes() == nbtc.matmul(a, b, threads=1).tobytes()


INTERRUPTED = """
import signal, sys, time
import numpy as np, nbtc
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it as ignored
kind, threads = {kind!r}, {threads}
one = np.ones((64, 64), kind)
nbtc.matmul(np.ones((200, 64), kind), one, threads=threads)
x, d = np.ones((8192, 8192), kind), np.full((8192, 8192), np.nan, {{"float16": np.float32}}.get(kind, np.float64))
print("ready", flush=True)
try:
    nbtc.matmul(x, x, out=d, threads=threads)
except KeyboardInterrupt:
    print("stopped", bool(np.isnan(d).any()), flush=True)
"""


@pytest.mark.parametrize(("kind", "threads"), [("float16", 1), ("float16", 2), ("float64", 2)])
def test_an_interrupt_stops_before_the_end(kind: str, threads: int) -> None:
    """SIGINT in the middle of a product of many seconds raises KeyboardInterrupt when most of it is yet to do."""
    process = forked(INTERRUPTED.format(kind=kind, threads=threads))
    assert process.stdout is not None and process.stdout.readline().strip() == "ready"
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert out.split() == ["stopped", "True"], error
    assert process.returncode == 0, error


MEMORY = """
import ml_dtypes
import numpy as np, nbtc
def figure(name):
    line = next(x for x in open("/proc/self/status") if x.startswith(name))
    return int(line.split()[1]) << 10
kind, size, options = {kind!r}, {size}, {options!r}
dtype = getattr(np, kind, None) or getattr(ml_dtypes, kind)
a, b = np.ones((size, min(size, {depth})), dtype), np.ones((min(size, {depth}), size), dtype)
few = nbtc.matmul(a[:128, :128], b[:128, :128], **options)  # compiling takes memory of its own, and gives it back
c = np.ones((size, size), few.dtype) if {with_c} else None
with open("/proc/self/clear_refs", "w") as f:
    f.write("5")  # the peak counts from here
before = figure("VmRSS")
d = nbtc.matmul(a, b, c, **options)
print(figure("VmHWM") - before, nbtc.plan(a, b, c, **options).peak_bytes)
"""


@pytest.mark.parametrize(
    ("kind", "size", "options", "with_c", "depth"),
    [
        ("float16", 1024, {}, True, 1024),
        ("float16", 1024, {"acc": "f16"}, False, 1024),
        ("float16", 4000, {"k_split": 32}, True, 64),
        ("int8", 4000, {}, True, 64),
        ("int8", 2000, {"saturate": True, "instruction": "mma", "k_split": 32}, True, 64),
        ("float64", 1024, {}, False, 1024),
        ("bool", 4000, {}, True, 256),
        ("int4", 2000, {}, False, 256),
    ],
)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux says what a peak was")
def test_memory_stays_within_the_plan(kind: str, size: int, options: dict[str, Any], with_c: bool, depth: int) -> None:
    """The peak of a product, beyond what its operands take, is at most plan's figure."""
    process = forked(MEMORY.format(kind=kind, size=size, options=options, with_c=with_c, depth=depth))
    used, promised = map(int, output(process).split())
    assert 0 < used <= promised


def test_memory_of_a_large_product_is_planned_small() -> None:
    """4096^3 in f16: under three times the operands and the result."""
    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float16), (4096, 4096), (0, 0))
    assert nbtc.plan(x, x).peak_bytes < 3 * (2 * 2 + 4) * 4096**2


def test_plan_says_what_would_be_done() -> None:
    """Figures of a plan, its print and its words; planning computes nothing and reads no element."""
    a, b = np.zeros((2, 64, 100), np.float16), np.zeros((100, 48), np.float16)
    p = nbtc.plan(a, b, k_split=40, threads=3)
    assert p.shape == (2, 64, 48, 100) and p.threads == 3 and p.arch == "sm_90" and p.k_split == 40
    assert p.instruction.startswith("wgmma.mma_async") and "k16" in p.instruction
    assert p.steps == 3 + 3 + 2  # 40 elements are three steps of 16, the last 20 two
    assert p.formats == ("f16", "f16", "f32")
    assert p.peak_bytes >= 2 * 64 * 48 * 4
    for text in (p.instruction, "8 steps", "MiB", "f16"):
        assert text in str(p)
    assert str(p) in p.explain() and p.model.id in p.explain() and "40" in p.explain()
    assert nbtc.plan(a, b).steps == 7
    assert nbtc.plan(a[..., :0], b[:0]).steps == 0
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float16), (1 << 20, 1 << 20), (0, 0))
    assert nbtc.plan(huge, huge).steps == 1 << 16  # whose product nobody would see the end of


def test_a_forked_child_has_threads_of_its_own() -> None:
    """A pool of the parent does not exist in a fork: the child must not wait for it."""
    code = """
import os, warnings
import numpy as np, nbtc
warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what is tested
x = np.ones((300, 300), np.float16)
want = nbtc.matmul(x, x, threads=2).tobytes()
child = os.fork()
if child == 0:
    os._exit(0 if nbtc.matmul(x, x, threads=2).tobytes() == want else 3)
import time
for _ in range(100):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise SystemExit("the child hangs")
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    assert output(forked(code), timeout=60) == ""
