"""What threads that want the same thing get: one, made by one of them."""

import os
import threading
import time

import pytest

from nbtc.compiler.machine_code.made_once import MadeOnce


def test_one_thread_makes_what_all_get():
    things, together, made, found = MadeOnce(), threading.Barrier(6), [], []

    def make():
        made.append(1)
        time.sleep(0.1)
        return object()

    def ask():
        together.wait()
        found.append(things.get("thing", make))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(found) == 6 and len({id(x) for x in found}) == 1
    assert things.get("another", make) is not found[0]


def test_what_failed_is_made_again():
    things = MadeOnce()
    with pytest.raises(ZeroDivisionError):
        things.get("thing", lambda: 1 // 0)
    assert things.get("thing", lambda: 3) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_that_it_has_not():
    things, begun, end = MadeOnce(), threading.Event(), threading.Event()

    def make():
        begun.set()
        return end.wait(20)

    thread = threading.Thread(target=things.get, args=("thing", make))
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        threading.Timer(10, os._exit, (1,)).start()
        os._exit(0 if things.get("thing", lambda: "its own") == "its own" else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    end.set()
    thread.join()
    assert things.get("thing", lambda: "new") is True
