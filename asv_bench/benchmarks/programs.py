"""PTX programs: launches relative to NumPy (or plain Numba) in the same run, and what every launch costs.

The texts come from a folder of recorded programs, which NBTC_PROGRAMS names; without it all but the empty launch is
skipped.
"""

import os

from threadpoolctl import threadpool_limits

from nbtc.report import alternate
from nbtc.testing.program_speed import COMPILED, PROGRAMS, SUMS, checked_sum, compile_seconds, empty_launch, programs

ROUNDS = 5


def folder():
    """Where recorded programs lie; NotImplementedError, by which asv skips a benchmark, where none is named."""
    if "NBTC_PROGRAMS" not in os.environ:
        raise NotImplementedError("NBTC_PROGRAMS names no folder")
    return os.environ["NBTC_PROGRAMS"]


class Programs:
    params = (list(PROGRAMS), [1, 2])
    param_names = ("program", "threads")
    timeout = 300

    def setup(self, name, threads):
        self.timed = next(t for t in programs(folder()) if t.name == name)

    def track_relative_to_reference(self, name, threads):
        """Seconds for each second of the reference on one thread."""
        with threadpool_limits(1, "blas"):
            ours, other = alternate(ROUNDS, lambda: self.timed.launch(threads), self.timed.reference)
        return ours / other

    track_relative_to_reference.unit = "of the reference's seconds"


class CheckedSums:
    """Vector sums that are watched: nothing but accesses, side by side or each lane's in a granule of its own."""

    params = list(SUMS)
    param_names = ("elements a thread",)

    def setup(self, each):
        self.checked, self.plain = checked_sum(folder(), each)

    def track_relative_to_unchecked(self, each):
        """Seconds for each second of the same launch unchecked, on one thread."""
        ours, other = alternate(ROUNDS, self.checked, self.plain)
        return ours / other

    track_relative_to_unchecked.unit = "of the unchecked launch's seconds"


class Launch:
    def setup(self):
        self.launch = empty_launch()
        self.launch()

    def time_empty_kernel(self):
        self.launch()


class Compile:
    """Seconds until one of Triton's kernels can be launched: of processors, and those that a user waits."""

    params = list(COMPILED)
    param_names = ("program",)

    def setup(self, name):
        self.folder = folder()

    def track_cold(self, name):
        return compile_seconds(self.folder, name)[0].processor

    def track_cold_wait(self, name):
        return compile_seconds(self.folder, name)[0].waited

    def track_cached(self, name):
        return compile_seconds(self.folder, name)[1].processor

    track_cold.unit = track_cold_wait.unit = track_cached.unit = "seconds"
