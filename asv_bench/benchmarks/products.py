"""Large products by format and size: seconds, also relative to NumPy float32 on as many threads, packing, memory."""

import os
from collections import deque

import numpy as np
from threadpoolctl import threadpool_limits

import nbtc
from nbtc.gemm import repeated
from nbtc.gemm.engines.engines import ALONE
from nbtc.gemm.engines.words_engine import WordsProduct, scheme
from nbtc.kernels.words import words as micro
from nbtc.report import alternate, random_operand
from nbtc.testing import kernel_cycles
from nbtc.testing.kernel_code import CPUS, PACKED, SHAPES, WORDS, packing_operations, words_operations
from nbtc.testing.kernel_code import operations as compiled_operations
from nbtc.testing.thread_simulation import Machine, efficiency

FORMATS = {
    "f16": {},
    "bf16": {},
    "tf32": {},
    "f16 acc": {"acc": "f16"},
    "e4m3": {"instruction": "wgmma"},
    "e5m2": {"instruction": "wgmma"},
    "e4m3 mma.sync": {"instruction": "mma"},
    "s8": {},
    "u8": {},
    "s4": {},
    "b1": {},
    "f64": {},
}
ROUNDS, LARGE = 5, 1024


def operands(name: str, size: int) -> tuple[np.ndarray, np.ndarray, dict]:
    """a, b and the keywords of a row; single bits travel packed."""
    fmt = nbtc.as_format(name.split()[0])
    rng = np.random.default_rng(0)
    a, b = (random_operand(rng, (size, size), fmt) for _ in range(2))
    if fmt.bits == 1:
        a, b = nbtc.pack(a, fmt), nbtc.pack(b, fmt, axis=0)
    return a, b, {"a_format": fmt, "b_format": fmt, "threads": 1, **FORMATS[name]}


class Products:
    params = (list(FORMATS), [128, 512, 1024])
    param_names = ("format", "size")
    timeout = 600

    def setup(self, name, size):
        self.a, self.b, self.keywords = operands(name, size)
        self.x = np.ones((size, size), np.float32)
        self.inner = max(1, (256 // size) ** 3)
        self.run()

    def run(self):
        return nbtc.matmul(self.a, self.b, **self.keywords)

    def track_seconds(self, name, size):
        return alternate(ROUNDS, self.run, inner=self.inner)[0]

    def track_seconds_relative_to_numpy_float32(self, name, size):
        with threadpool_limits(1, "blas"):
            ours, numpy = alternate(ROUNDS, self.run, lambda: self.x @ self.x, inner=self.inner)
        return ours / numpy

    track_seconds.unit = "seconds"
    track_seconds_relative_to_numpy_float32.unit = "of NumPy's"


class TileRegisters:
    """Integers by AMX and by VPDPBUSD on one thread, without what Python does around them."""

    params = (["s8", "u8"], [64, 256, 1024, 2048])
    param_names = ("format", "size")
    timeout = 600

    def setup(self, name, size):
        fmt = nbtc.as_format(name)
        if micro.dot_of_bytes() != micro.AMX:
            raise NotImplementedError("no tile registers here")
        a, b, _ = operands(name, size)
        d = np.zeros((size, size), np.int32)
        amx, dot = (WordsProduct(scheme(op, fmt, fmt), ALONE) for op in (micro.AMX, micro.DOT))
        self.amx, self.dot = lambda: amx.run(a, b, d, True), lambda: dot.run(a, b, d, True)
        self.inner = max(1, (512 // size) ** 2)

    def track_seconds(self, name, size):
        return alternate(ROUNDS, self.amx, inner=self.inner)[0]

    def track_seconds_relative_to_vpdpbusd(self, name, size):
        amx, dot = alternate(ROUNDS, self.amx, self.dot, inner=self.inner)
        return amx / dot

    track_seconds.unit = "seconds"
    track_seconds_relative_to_vpdpbusd.unit = "of VPDPBUSD's"


class Small:
    """Where a call takes as long as its arithmetic: of products that are asked for again, and of others."""

    params = (["f16", "e4m3", "s8", "s4", "f64"], [16, 64, 128, 256])
    param_names = ("format", "size")

    def setup(self, name, size):
        self.a, self.b, self.keywords = operands(name, size)
        self.run()

    def run(self):
        nbtc.matmul(self.a, self.b, **self.keywords)

    def time_call(self, name, size):
        self.run()

    def time_call_that_is_planned(self, name, size):
        repeated.cache_clear()
        self.run()


class SmallRates:
    """A multiply-add of a small product that is asked for again, relative to one of a large product."""

    params = (["f16", "e4m3", "s8", "u8", "f64"], [64, 128, 256])
    param_names = ("format", "size")
    timeout = 300

    def setup(self, name, size):
        self.small, self.large = (self.product(name, n) for n in (size, LARGE))
        for run in (self.small, self.small, self.small, self.large):
            run()

    def product(self, name, size):
        a, b, keywords = operands(name, size)
        return lambda: nbtc.matmul(a, b, **keywords)

    def track_seconds_relative_to_large_product(self, name, size):
        times = (LARGE // size) ** 3
        small, large = alternate(ROUNDS, lambda: deque((self.small() for _ in range(times)), 0), self.large)
        return small / large

    track_seconds_relative_to_large_product.unit = "of a large product's"


class Operations:
    """Vector operations of a large product's loop, as LLVM compiles it for processors that need not be here."""

    params = (list(CPUS), [*SHAPES, *WORDS])
    param_names = ("processor", "kernel")

    def track_operations_relative_to_multiply_adds(self, cpu, kernel):
        found = words_operations(cpu, kernel) if kernel in WORDS else compiled_operations(cpu, kernel)
        return found.vector / found.multiply_adds

    track_operations_relative_to_multiply_adds.unit = "of multiply-adds"


class PackingOperations:
    """Vector operations that pack 64 elements of A or B, as LLVM compiles them for processors that need not be here."""

    params = (list(CPUS), list(PACKED), ["A", "B"])
    param_names = ("processor", "format", "operand")

    def track_operations(self, cpu, name, operand):
        return packing_operations(cpu, name, operand == "B").vector

    track_operations.unit = "of packing 64 elements"


class Bound:
    """The loops of large products, without packing, and the least that the processor's ports take for them."""

    params = [*kernel_cycles.FLOATS, *kernel_cycles.INTEGERS]
    param_names = ("kernel",)

    def setup(self, kernel):
        if kernel_cycles.processor_name() is None:
            raise NotImplementedError("no kernels are counted for this processor")

    def track_time_relative_to_bound(self, kernel):
        found = kernel_cycles.cycles(kernel)
        return found.took / found.bound

    track_time_relative_to_bound.unit = "of the bound"


class TwoThreads:
    params = ["f16", "e4m3", "s8", "f64"]
    param_names = ("format",)
    timeout = 600

    def track_seconds_relative_to_one_thread(self, name):
        a, b, keywords = operands(name, 1024)
        calls = [lambda n=n: nbtc.matmul(a, b, **{**keywords, "threads": n}) for n in (1, 2)]
        one, two = alternate(ROUNDS, *calls)
        return two / one

    track_seconds_relative_to_one_thread.unit = "of one thread's"


class ManyThreads:
    """What threads take together for a product of 4096^3, relative to one alone: 1 if none ever waits."""

    params = [4, 16]
    param_names = ("threads",)
    timeout = 900

    def setup(self, threads):
        if len(os.sched_getaffinity(0)) < threads:
            raise NotImplementedError(f"fewer than {threads} processors here")
        self.a, self.b, self.keywords = operands("f16", 4096)

    def track_seconds_relative_to_one_thread(self, threads):
        calls = [lambda n=n: nbtc.matmul(self.a, self.b, **{**self.keywords, "threads": n}) for n in (1, threads)]
        one, many = alternate(ROUNDS, *calls)
        return many * threads / one

    track_seconds_relative_to_one_thread.unit = "of one thread's"


class Packing:
    """What is paid for every element of the operands, whatever K does with it: a product with one row or column."""

    params = ["f16", "bf16", "tf32", "e4m3", "s8", "f64"]
    param_names = ("format",)

    def setup(self, name):
        self.a, b, self.keywords = operands(name, 1024)
        self.b = b[:, :1]
        nbtc.matmul(self.a, self.b, **self.keywords)

    def time_thin_product(self, name):
        nbtc.matmul(self.a, self.b, **self.keywords)


class Memory:
    params = ["f16", "e4m3", "s8", "f64"]
    param_names = ("format",)
    timeout = 600

    def setup(self, name):
        self.a, self.b, self.keywords = operands(name, 2048)

    def peakmem_product(self, name):
        nbtc.matmul(self.a, self.b, **self.keywords)


class Words:
    """Sub-byte packing and conversions, in elements of 2^20."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal(2**20, np.float32)
        self.nibbles = rng.integers(-8, 8, 2**20, np.int8)
        self.bits = rng.integers(0, 2, 2**20, np.int8).astype(bool)
        for name in ("e4m3", "bf16"):
            nbtc.convert(self.x, name)

    def time_pack_s4(self):
        nbtc.pack(self.nibbles, "s4")

    def time_pack_b1(self):
        nbtc.pack(self.bits, "b1")

    def time_convert_e4m3(self):
        nbtc.convert(self.x, "e4m3")

    def time_convert_bf16(self):
        nbtc.convert(self.x, "bf16")


class Shares:
    """The time that more threads than there are here have together, over what a product's sums take one.

    Simulated: packing, Python, the last-level cache and memory, waiting, and when the last thread ends.
    """

    params = ([2, 16, 64], [2048, 4096, 8192], [0.0, 0.3])
    param_names = ("threads", "size", "slowest thread behind")

    def track_time_relative_to_sums(self, threads, size, uneven):
        return 1 / efficiency(size, threads, Machine(uneven=uneven))

    track_time_relative_to_sums.unit = "of the sums' time"
