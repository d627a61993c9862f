"""What docs/speed.md has lines for, by names that every version has: an older one's times can be compared."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import nbtc
from nbtc.testing.program_speed import compile_seconds, empty_launch, programs

FORMATS = {
    "f16": {},
    "bf16": {},
    "tf32": {},
    "f16 acc": {"acc": "f16"},
    "e4m3": {"instruction": "wgmma"},
    "e4m3 mma.sync": {"instruction": "mma"},
    "s8": {},
    "s4": {},
    "b1": {},
    "f64": {},
}
PROGRAMS = os.environ.get("NBTC_PROGRAMS")  # a folder of recorded programs
FORM = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FIRST = "import numpy as np, nbtc, time; x = np.ones((64, 64), np.{}); nbtc.matmul(x, x); print(time.process_time())"


def product(name, size, threads=1):
    """A call that multiplies random operands."""
    fmt, rng = nbtc.as_format(name.split()[0]), np.random.default_rng(0)
    if fmt.kind == "float":
        a, b = (rng.standard_normal((size, size)).astype(fmt.dtype) for _ in range(2))
    else:
        low = -(1 << fmt.bits - 1) if fmt.signed else 0
        a, b = (rng.integers(low, low + (1 << fmt.bits), (size, size)).astype(fmt.dtype) for _ in range(2))
    if fmt.bits == 1:
        a, b = nbtc.pack(a, fmt), nbtc.pack(b, fmt, axis=0)
    options = {"a_format": fmt, "b_format": fmt, "threads": threads, **FORMATS[name]}
    return lambda: nbtc.matmul(a, b, **options)


class Timed:
    """Short enough for many repetitions, of which asv takes the median."""

    rounds, repeat, warmup_time, timeout = 1, (5, 12, 1.0), 0.1, 120

    def time_call(self, *_):
        self.call()


class Products(Timed):
    params = (list(FORMATS), [1024])
    param_names = ("format", "size")

    def setup(self, name, size):
        self.call = product(name, size)
        self.call()


class SmallProducts(Timed):
    params = (["f16", "e4m3", "s8", "f64"], [64, 128, 256])
    param_names = ("format", "size")

    def setup(self, name, size):
        self.call = product(name, size)
        for _ in range(4):
            self.call()


class TwoThreads(Timed):
    params = ["f16", "e4m3", "s8", "f64"]
    param_names = ("format",)

    def setup(self, name):
        if len(os.sched_getaffinity(0)) < 2:
            raise NotImplementedError("one processor here")
        self.call = product(name, 2048, 2)
        self.call()


class OneWarp(Timed):
    def setup(self):
        rng = np.random.default_rng(0)
        images = [rng.standard_normal((32, n)).astype(np.float16).view(np.uint32) for n in (8, 4)]
        c, instruction = np.zeros((32, 4), np.uint32), nbtc.instruction(FORM)
        self.call = lambda: instruction(*images, c, threads=1)
        self.call()


class Programs(Timed):
    params = [timed.name for timed in programs(PROGRAMS)] if PROGRAMS else ["no programs"]
    param_names = ("program",)

    def setup(self, name):
        if not PROGRAMS:
            raise NotImplementedError("NBTC_PROGRAMS names no folder of recorded programs")
        launch = next(timed.launch for timed in programs(PROGRAMS) if timed.name == name)
        self.call = lambda: launch(1)
        self.call()


class EmptyLaunch(Timed):
    def setup(self):
        self.call = empty_launch()
        self.call()  # asv counts on the first one for how often to repeat it


class Compile:
    """Processor seconds of Triton's f16 product until it can be launched."""

    def track_compile(self):
        if not PROGRAMS:
            raise NotImplementedError("NBTC_PROGRAMS names no folder of recorded programs")
        cold = (compile_seconds(PROGRAMS)[0] for _ in range(3))
        return min(getattr(x, "processor", x) for x in cold)  # older versions give that alone

    track_compile.unit = "seconds"


class FirstCalls:
    """Processor seconds of a new process with empty caches, the start of Python included."""

    params = ["float16", "int8"]
    param_names = ("dtype",)
    timeout = 120

    def track_first_product(self, dtype):
        tree = str(Path(nbtc.__file__).resolve().parents[1])
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "PYTHONPATH": tree, "NUMBA_CACHE_DIR": cache, "NBTC_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", FIRST.format(dtype)], env=environment, capture_output=True, text=True, check=True
            )
        return float(done.stdout)

    track_first_product.unit = "seconds"
