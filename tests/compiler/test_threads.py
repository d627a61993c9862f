"""One rule of how many threads, one pool, and what happens to it in forks and where the system has no thread left."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import nbtc
from nbtc.compiler import threads as policy
from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.cpu import lowering
from nbtc.compiler.machine_code.emitted import Emitted, Named, machine_code
from nbtc.compiler.threads import most_threads, parallel_for, shares
from nbtc.errors import OptionError
from nbtc.ops.mma import product
from tests.processes import forked, fresh, output

FORM = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
RNG = np.random.default_rng(3)


COUNTS = """
import threading
import numba, numpy as np, nbtc
from nbtc.compiler.threads import thread_count
from nbtc.report import information
{set_threads}
x = np.ones((400, 400))
images = [np.zeros((5000, 32, n), np.uint32) for n in (4, 2, 4)]
nbtc.matmul(x, x)
nbtc.ptx.mma_sync("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", *images)
mine = [t for t in threading.enumerate() if t.name.startswith("nbtc_")]
print(thread_count(None), nbtc.plan(x, x).threads, information()["threads"], len(mine) + 1)
"""


@pytest.mark.parametrize(
    ("set_threads", "environment", "want"),
    [
        ("numba.set_num_threads(1)", {"NUMBA_NUM_THREADS": "3"}, 1),
        ("numba.set_num_threads(2)", {"NUMBA_NUM_THREADS": "3"}, 2),
        ("", {"NUMBA_NUM_THREADS": "3"}, 3),
    ],
)
def test_every_door_uses_and_reports_the_same_number(set_threads: str, environment: dict[str, str], want: int) -> None:
    # a fresh process: where Numba was imported with one processor, it starts no second thread
    *said, used = map(int, output(fresh(COUNTS.format(set_threads=set_threads), **environment)).split())
    assert said == [want] * 3
    assert used == 1 if want == 1 else used <= want  # quick work may be done before another thread wakes


def test_any_count_gives_the_same_bits_with_a_bounded_pool() -> None:
    a, images = RNG.standard_normal((300, 200)), [RNG.integers(0, 1 << 32, (90, 32, n), np.uint32) for n in (4, 2, 4)]
    product_alone, images_alone = nbtc.matmul(a, a.T, threads=1), nbtc.ptx.mma_sync(FORM, *images, threads=1)
    before = threading.active_count()
    for threads in (*range(2, 40), 10**6, 1 << 70):
        assert nbtc.matmul(a, a.T, threads=threads).tobytes() == product_alone.tobytes()
        assert nbtc.ptx.mma_sync(FORM, *images, threads=threads).tobytes() == images_alone.tobytes()
    assert threading.active_count() <= before + most_threads() - 1
    assert nbtc.plan(a, a.T, threads=10**6).threads == most_threads()
    for wrong in (0, -1, True, 1.0, "2"):
        with pytest.raises(OptionError, match="threads"):
            nbtc.plan(a, a.T, threads=wrong)


def test_one_thread_does_the_work_where_no_other_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    a = RNG.standard_normal((300, 200))
    alone = nbtc.matmul(a, a.T, threads=1)
    policy._pool.cache_clear()

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert nbtc.matmul(a, a.T, threads=4).tobytes() == alone.tobytes()
    monkeypatch.undo()
    policy._pool.cache_clear()
    assert nbtc.matmul(a, a.T, threads=4).tobytes() == alone.tobytes()


def test_shares_cover_the_work_and_none_takes_long() -> None:
    for count, cost, threads in ((10, 1, 3), (1000, 10**7, 1), (7, 10**12, 4), (0, 5, 2), (5, 0, 9)):
        pieces = list(shares(3, 3 + count, cost, threads))
        assert [n for first, last in pieces for n in range(first, last)] == list(range(3, 3 + count))
        assert all(last - first == 1 or (last - first) * cost <= policy.PATIENCE for first, last in pieces)
    seen: list[tuple[int, int]] = []
    parallel_for(1000, 10**7, 1, lambda first, last: seen.append((first, last)))
    assert len(seen) == 200


def test_warps_of_the_general_path_come_in_short_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two shares Ctrl-C takes effect: also where vector code hands everything to the general kernel."""
    seen: list[int] = []
    general = product._general
    monkeypatch.setattr(product, "_general", lambda p, f, r, i, j: (seen.append(j - i), general(p, f, r, i, j)))
    monkeypatch.setattr(policy, "PATIENCE", 4 * product.prepare(nbtc.instruction(FORM).row, "sm_90").cost)
    nan = np.full((20, 32, 4), 0x7FFF7FFF, np.uint32)
    nbtc.ptx.mma_sync(FORM, nan, nan[..., :2], nan, threads=1)
    assert sum(seen) == 20 and max(seen) <= 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_waits_for_a_compilation_in_another_thread() -> None:
    """A child inherits the compilers' locks as they are, and nobody would ever release them there."""
    code = """
import os, threading, time, warnings
import nbtc.compiler.jit
from nbtc.compiler.machine_code.native import LOCK
from numba.core.compiler_lock import global_compiler_lock
warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what is tested
held = threading.Event()
def compile_something():
    with global_compiler_lock, LOCK:
        held.set()
        time.sleep(0.5)
threading.Thread(target=compile_something).start()
held.wait()
child = os.fork()
if child == 0:
    with global_compiler_lock, LOCK:
        os._exit(0)
for _ in range(100):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        print("done", status)
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
    print("hangs")
"""
    assert output(forked(code)).split() == ["done", "0"]


def test_threads_that_ask_for_code_at_once_share_it() -> None:
    """What one of them got must not be unloaded when another one's takes its place."""

    class Arguments(NamedTuple):
        count: int

    def write(v: VectorBuilder, given: Named) -> Any:
        return v.b.add(given["count"], v.int(1))

    together = threading.Barrier(8)
    found: list[Any] = []

    def ask() -> None:
        together.wait()
        found.append(machine_code({"f": Emitted(Arguments, write)}, "test_threads", str(lowering.host())))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(x is found[0] for x in found)
