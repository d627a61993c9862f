"""What a new process pays: the import, the first product of a fresh install, the first with a warm cache."""

import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbtc

# the nbtc under test, installed or not
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(nbtc.__file__).resolve().parents[1])}
IMPORT = "import numpy, time; t = time.perf_counter(); import nbtc; print(time.perf_counter() - t)"
FIRST = """
import time, numpy as np, nbtc
a = np.ones((64, 64), np.{dtype})
t = time.perf_counter()
nbtc.matmul(a, a)
print(time.perf_counter() - t)
"""


def seconds(code: str, cache: str) -> float:
    """What a fresh process printed, with its compiled code kept in the folder `cache`."""
    environment = {**ENVIRONMENT, "NUMBA_CACHE_DIR": cache, "NBTC_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


class FirstCalls:
    """Processor seconds of first calls with empty caches, of scripts/first_calls.py; the start of Python included."""

    script = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "first_calls.py"))
    params = [one.name for one in script["CALLS"]]
    param_names = ("call",)
    timeout = 300

    def track_first(self, name):
        one = next(one for one in self.script["CALLS"] if one.name == name)
        with tempfile.TemporaryDirectory() as folder:
            return self.script["measured"](one, Path(folder))[0]

    track_first.unit = "seconds"


class Import:
    def track_import(self):
        with tempfile.TemporaryDirectory() as cache:
            return min(seconds(IMPORT, cache) for _ in range(3))

    def time_command_line_help(self):
        subprocess.run([sys.executable, "-m", "nbtc", "--help"], env=ENVIRONMENT, capture_output=True, check=True)

    track_import.unit = "seconds"


class FirstProduct:
    params = ["float16", "int8", "float64"]
    param_names = ("dtype",)
    timeout = 300

    def setup(self, dtype):
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self, dtype):
        self.folder.cleanup()

    def track_fresh_install(self, dtype):
        return seconds(FIRST.format(dtype=dtype), self.folder.name)

    def track_warm_cache(self, dtype):
        seconds(FIRST.format(dtype=dtype), self.folder.name)
        return min(seconds(FIRST.format(dtype=dtype), self.folder.name) for _ in range(2))

    def track_whole_process_warm(self, dtype):
        code = FIRST.format(dtype=dtype)
        seconds(code, self.folder.name)
        start = time.perf_counter()
        seconds(code, self.folder.name)
        return time.perf_counter() - start

    track_fresh_install.unit = track_warm_cache.unit = track_whole_process_warm.unit = "seconds"
