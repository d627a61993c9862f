"""What is said while something is compiled, and when nothing is."""

import time

import pytest

from nbtc import warmup
from nbtc.compiler import announce
from tests.processes import fresh, output


@pytest.fixture
def said(monkeypatch):
    """The lines of an announcer whose two seconds are a tenth of one."""
    monkeypatch.setattr(announce, "PATIENCE", 0.1)
    monkeypatch.setattr(announce, "IDLE", 0.2)
    monkeypatch.delenv("NBTC_QUIET", raising=False)
    lines = []
    monkeypatch.setattr(announce, "ANNOUNCER", announce._Announcer(lines.append))
    return lines


work = announce.announced(time.sleep)


def test_a_long_compilation_is_announced_while_it_runs(said):
    @announce.announced
    def outer():
        work(0.4)
        return list(said)

    [line] = outer()
    assert "compiling for a first use" in line and "nbtc warmup" in line and "NBTC_QUIET=1" in line
    work(0.3)
    assert len(said) == 1  # once a process


def test_short_ones_add_up(said):
    for _ in range(6):
        work(0.04)
    assert len(said) == 1


def test_short_ones_far_apart_do_not(said):
    for _ in range(3):
        work(0.05)
        time.sleep(0.3)
    assert not said


def test_nothing_is_said_that_nobody_wants(said, monkeypatch):
    monkeypatch.setenv("NBTC_QUIET", "1")
    work(0.3)
    assert not said


def test_warming_up_does_not_recommend_itself(said, monkeypatch):
    monkeypatch.setattr(warmup, "_job", lambda name, arch: lambda: work(0.3))
    assert [done.what for done in warmup.warm(["f16"])] == ["f16"]
    assert not said
    work(0.3)
    assert len(said) == 1  # what comes later is announced


def test_an_exception_ends_it_too(said):
    with pytest.raises(TypeError):
        work("long")
    assert announce.ANNOUNCER.depth == 0


def test_a_forked_process_begins_anew():
    code = """
import os
from nbtc.compiler import announce
announce.ANNOUNCER.begin()
child = os.fork()
if not child:
    os._exit(announce.ANNOUNCER.depth)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert output(fresh(code)) == "0"
