"""DPX on arrays, alignments and shortest paths built on it, warp functions: seconds, also relative to NumPy."""

from time import perf_counter

import numpy as np

from nbtc import dpx, warp
from nbtc.examples import alignment, shortest_paths, timing

FUNCTIONS = ("vimax3_s32", "viaddmax_s32_relu", "viaddmin_u32", "viaddmax_s16x2", "vimin3_u16x2")
ALIGNMENTS = ("smith_waterman", "needleman_wunsch")


class Functions:
    """Seconds of a call with out=, one core."""

    params = (list(FUNCTIONS), [1 << 12, 1 << 16, 1 << 20])
    param_names = ("function", "elements")

    def setup(self, name, elements):
        dtype = np.int32 if "_s32" in name else np.uint32
        words = np.random.default_rng(0).integers(0, 2**32, (3, elements), dtype=np.uint32)
        self.operands, self.out = words.view(dtype), np.empty(elements, dtype)

    def track_seconds(self, name, elements):
        function = getattr(dpx, name)
        return timing.best_time(lambda: function(*self.operands, out=self.out), 50)

    track_seconds.unit = "seconds"


class Alignment:
    """64 pairs of 1000 x 1000 residues on one thread; NumPy on all pairs at once."""

    params = (list(ALIGNMENTS),)
    param_names = ("algorithm",)
    timeout = 120

    def setup(self, name):
        self.a, self.b = timing.residues(64)
        self.fast, self.plain = getattr(alignment, name), getattr(alignment, f"plain_{name}")

    def track_seconds(self, name):
        return timing.best_time(lambda: self.fast(self.a, self.b, threads=1))

    track_seconds.unit = "seconds"

    def track_seconds_relative_to_numpy(self, name):
        seconds = timing.best_time(lambda: self.fast(self.a, self.b, threads=1))
        start = perf_counter()
        self.plain(self.a, self.b)
        return seconds / (perf_counter() - start)

    track_seconds_relative_to_numpy.unit = "of NumPy's"


class ShortestPaths:
    params = ([256, 512, 1024],)
    param_names = ("nodes",)
    timeout = 120

    def setup(self, nodes):
        self.weights = timing.weights(nodes)

    def track_seconds(self, nodes):
        return timing.best_time(lambda: shortest_paths.floyd_warshall(self.weights), 3)

    track_seconds.unit = "seconds"

    def track_seconds_relative_to_numpy(self, nodes):
        seconds = timing.best_time(lambda: shortest_paths.floyd_warshall(self.weights))
        start = perf_counter()
        shortest_paths.plain_floyd_warshall(self.weights)
        return seconds / (perf_counter() - start)

    track_seconds_relative_to_numpy.unit = "of NumPy's"


class Warps:
    """Seconds of a batch of 10,000 warps, and of one call on one warp."""

    params = (["shfl_xor_sync", "reduce_add_sync", "ballot_sync", "match_any_sync"],)
    param_names = ("function",)

    def setup(self, name):
        self.values = np.random.default_rng(0).integers(0, 9, (10_000, 32), dtype=np.int32)
        self.function, self.more = getattr(warp, name), (1,) if name.startswith("shfl") else ()
        self.function(0xFFFFFFFF, self.values, *self.more)

    def track_seconds(self, name):
        return timing.best_time(lambda: self.function(0xFFFFFFFF, self.values, *self.more), 5)

    track_seconds.unit = "seconds"

    def time_one_warp(self, name):
        self.function(0xFFFFFFFF, self.values[0], *self.more)
