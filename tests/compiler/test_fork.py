"""A child that is forked while other threads compile takes none of their locks with it."""

import os
import signal
import threading
import time

import pytest
from llvmlite import binding
from llvmlite.binding import ffi

from nbtc import forks
from nbtc.compiler import garbage
from nbtc.compiler.machine_code import emission, native

SECONDS = 20  # that a child may take; one that waits for a lock would take for ever


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "lock", [ffi.lib._lock._lock, native.LOCK, emission.UNDER_WAY.one_more(), forks.IMPORTS, garbage._RARELY.lock]
)
def test_a_child_holds_no_lock_of_a_thread_it_does_not_have(lock):
    held = threading.Event()

    def compiling():
        with lock:
            held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=compiling)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        try:
            with native.LOCK, forks.IMPORTS:
                os._exit(0 if binding.get_default_triple() and not emission.UNDER_WAY.count else 1)
        finally:
            os._exit(2)
    thread.join()
    until = time.monotonic() + SECONDS
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done == (child, 0)
