"""What checked launches remember of memory."""

import pytest

from nbtc.executor.memory.ranges import Memory
from nbtc.executor.watch.memory import WatchedLaunch


def test_memory_that_the_host_has_not_is_refused_with_what_it_would_be_for():
    with pytest.raises(MemoryError, match=r"18 bytes of memory for each byte .* smaller arrays"):
        WatchedLaunch([Memory("x", 1 << 44, 1 << 50, False, None)])
