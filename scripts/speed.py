"""Measure the speed table of the README and write it as JSON.

    python scripts/speed.py [--size 2048] [--rounds 7] [--only NAME ...] [--host avx2] [--out benchmarks/speed.json]
    python scripts/speed.py --programs FOLDER --only-programs [--rounds 7] [--host avx2]

Every figure is end to end from NumPy arrays (packing included) and beside NumPy's float32 `@` of the same shape, in the
same process: the two run alternately, and each ratio is between their medians.  One thread unless the row says two; the
two-thread rows are a block of their own, after the others, because two pools of spinning threads disturb each other.
--host runs nbtc's kernels for a plainer processor (NumPy keeps its own), against that processor's floors.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from threadpoolctl import threadpool_limits

import nbtc
from nbtc.report import alternate, information, random_operand
from nbtc.testing.hosts import HOSTS
from nbtc.testing.program_speed import compile_seconds, empty_launch, programs

OUT = Path(__file__).resolve().parents[1] / "benchmarks" / "speed.json"
SMALL = 128
EMPTY_SECONDS, COLD_SECONDS, CACHED_SECONDS = 30e-6, 2.5, 0.05  # of programs: what launches and compilations may take


class Product(NamedTuple):
    """One row of the table of products; `floor` is the ratio no release may fall below (AVX-512)."""

    name: str
    format: str
    keywords: dict[str, Any]
    floor: float
    k: int | None = None
    avx2: float = 0.0  # the floor with AVX2


PRODUCTS = (
    Product("f16 → f32", "f16", {}, 0.30, avx2=0.2),
    Product("f16 → f32, sm_80", "f16", {"arch": "sm_80"}, 0.30, avx2=0.15),
    Product("bf16 → f32", "bf16", {}, 0.30, avx2=0.2),
    Product("bf16 → f32, sm_80", "bf16", {"arch": "sm_80"}, 0.30, avx2=0.15),
    Product("tf32 → f32", "tf32", {}, 0.27, avx2=0.15),
    Product("f16 → f16", "f16", {"acc": "f16"}, 0.25, avx2=0.15),
    Product("e4m3 → f32, fp8 unit", "e4m3", {"instruction": "wgmma"}, 0.60, avx2=0.3),
    Product("e5m2 → f32, fp8 unit", "e5m2", {"instruction": "wgmma"}, 0.60, avx2=0.3),
    Product("e4m3 → f32, mma.sync", "e4m3", {"instruction": "mma"}, 0.25, avx2=0.15),
    Product("s8 → s32", "s8", {}, 3.0, avx2=1.0),
    Product("u8 → s32", "u8", {}, 3.0, avx2=1.0),
    Product("s4 → s32", "s4", {}, 2.5, avx2=0.8),
    Product("b1 → s32, packed", "b1", {}, 14.0, 8192, avx2=4.0),
    Product("f64", "f64", {}, 0.40, avx2=0.3),
    Product("mxfp8 → f32, sm_120", "mxfp8", {"arch": "sm_120"}, 0.40, avx2=0.2),
    Product("mxfp4 → f32, sm_120", "mxfp4", {"arch": "sm_120"}, 0.50, avx2=0.3),
    Product("nvfp4 → f32, sm_120", "nvfp4", {"arch": "sm_120"}, 0.50, avx2=0.3),
)
BLOCKS = ("mxfp8", "mxfp4", "nvfp4")  # elements and scales instead of elements
SCALED = ("f16 → f32", "e4m3 → f32, fp8 unit", "s8 → s32", "f64")  # rows timed on two threads and at the small size


def product(row: Product, size: int, threads: int) -> Callable[[], Any]:
    """A call that multiplies random operands of a row."""
    rng = np.random.default_rng(0)
    k = row.k or size
    if row.format in BLOCKS:
        (a, sa, *_), (b, sb, *_) = (
            nbtc.mx.quantize(rng.standard_normal((size, size), np.float32), row.format, axis=axis) for axis in (-1, -2)
        )
        return partial(nbtc.matmul, a, b, scale_a=sa, scale_b=sb, threads=threads, **row.keywords)
    fmt = nbtc.as_format(row.format)
    a, b = random_operand(rng, (size, k), fmt), random_operand(rng, (k, size), fmt)
    if fmt.bits == 1:
        a, b = nbtc.pack(a, fmt), nbtc.pack(b, fmt, axis=0)
    return partial(nbtc.matmul, a, b, a_format=row.format, b_format=row.format, threads=threads, **row.keywords)


def against_numpy(row: Product, size: int, threads: int, rounds: int) -> dict[str, float]:
    """Seconds of nbtc and of NumPy float32 on the same shape and threads, and what follows from them."""
    k = row.k or size
    x, y = np.ones((size, k), np.float32), np.ones((k, size), np.float32)
    inner = max(1, (1024 // size) ** 3)
    with threadpool_limits(threads, "blas"):
        ours, numpy = alternate(rounds, product(row, size, threads), lambda: x @ y, inner=inner)
    return {"seconds": ours, "numpy": numpy, "rate": size * size * k / ours / 1e9, "ratio": numpy / ours}


def products(size: int, rounds: int, only: list[str], host: str) -> dict[str, Any]:
    rows = [row for row in PRODUCTS if not only or any(text in row.name for text in only)]
    table: dict[str, Any] = {}
    for row in rows:
        floor = {"host": row.floor, "avx2": row.avx2}.get(host)
        table[row.name] = {**against_numpy(row, size, 1, rounds), "floor": floor, "k": row.k or size}
        print(f"{row.name:<24}{table[row.name]['ratio']:>7.2f}x numpy  (floor {floor})", flush=True)
    for row in rows:
        if row.name in SCALED:
            small = against_numpy(row, SMALL, 1, rounds)
            table[row.name]["small"] = small["rate"] / table[row.name]["rate"]
            print(f"{row.name:<24}{table[row.name]['small']:>7.2f}x its own rate at {SMALL}^3", flush=True)
    if numba.config.NUMBA_NUM_THREADS >= 2:
        for row in rows:
            if row.name in SCALED:
                table[row.name]["two_threads"] = two_threads(row, size, rounds)
                print(f"{row.name:<24}{table[row.name]['two_threads']:>7.2f}x on two threads", flush=True)
    return table


def two_threads(row: Product, size: int, rounds: int) -> float:
    """How much faster two threads are than one: nbtc alone, NumPy's pool asleep."""
    one, two = alternate(rounds, *(product(row, size, threads) for threads in (1, 2)))
    return one / two


def numpy_rate(rounds: int, size: int = 1024) -> float:
    """NumPy's float32 multiply-adds a second on one thread."""
    x = np.ones((size, size), np.float32)
    with threadpool_limits(1, "blas"):
        return size**3 / alternate(rounds, lambda: x @ x)[0]


def instructions(warps: int, groups: int, rounds: int) -> dict[str, Any]:
    """Register images in, register images out, on one thread."""
    rng = np.random.default_rng(0)
    base = numpy_rate(rounds)
    out: dict[str, Any] = {}

    def note(name: str, seconds: float, work: int, count: int) -> None:
        out[name] = {"rate": work / seconds / 1e9, "ratio": work / seconds / base, "ns": seconds / count * 1e9}
        print(f"{name:<40}{out[name]['ratio']:>7.3f}x numpy{out[name]['ns']:>12.0f} ns each", flush=True)

    i = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    for count in (1, warps):
        lead = (count,) if count > 1 else ()
        halves = [rng.standard_normal((*lead, 32, 2 * r)).astype(np.float16).view(np.uint32) for r in (4, 2)]
        c = rng.standard_normal((*lead, 32, 4)).astype(np.float32).view(np.uint32)
        seconds = alternate(rounds, partial(i, *halves, c, threads=1), inner=max(1, 200 // count))[0]
        note(f"m16n8k16 f16, {count:,} warp{'s' * (count > 1)}", seconds, 16 * 8 * 16 * count, count)
    a, b = (rng.standard_normal((n, 16)).astype(np.float16) for n in (64, 256))
    (sa, da), (sb, db) = (nbtc.wgmma.tile_to_smem(t, "f16", "k", "none") for t in (a, b))
    smem = np.broadcast_to(np.concatenate([sa, sb]), (groups, sa.size + sb.size))
    db = nbtc.wgmma.Descriptor(sa.size, db.leading, db.stride)
    d = np.zeros((groups, 128, 128), np.uint32)
    name = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
    seconds = alternate(rounds, lambda: nbtc.ptx.wgmma(name, d, da.encode(), db.encode(), smem, threads=1))[0]
    note(f"wgmma m64n256k16 f16, {groups:,} warpgroups", seconds, 64 * 256 * 16 * groups, groups)
    return out


def quantized(rounds: int, size: int = 4096) -> dict[str, float]:
    """G elements a second on one thread, from float32."""
    x, table = np.random.default_rng(0).standard_normal((size, size), np.float32), {}
    for scheme in BLOCKS:
        table[scheme] = size * size / alternate(rounds, lambda s=scheme: nbtc.mx.quantize(x, s, threads=1))[0] / 1e9
        print(f"quantize to {scheme:<12}{table[scheme]:>7.2f} G elements/s", flush=True)
    return table


def dpx(rounds: int, size: int = 2**16) -> dict[str, float]:
    """G results a second on one core, with `out=`."""
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-(2**30), 2**30, (3, size), np.int32)
    out = np.empty(size, np.int32)
    table = {}
    for name, arguments in (("vimax3_s32", (a, b, c)), ("viaddmax_s32_relu", (a, b, c)), ("vimax_s32_relu", (a, b))):
        call = getattr(nbtc.dpx, name)
        table[name] = size / alternate(rounds, lambda f=call, x=arguments: f(*x, out=out), inner=50)[0] / 1e9
        print(f"{name:<24}{table[name]:>7.2f} G results/s", flush=True)
    return table


FRESH = """
import time, numpy as np
start = time.perf_counter()
import nbtc
imported = time.perf_counter() - start
a = np.ones((64, 64), np.float16)
start = time.perf_counter()
nbtc.matmul(a, a)
print(imported, time.perf_counter() - start)
"""
# what the product itself adds to the resident memory of a process that has compiled before (Linux)
PEAK = """
import numpy as np, nbtc

def resident(name):
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(name))

small, a = np.ones((64, 64), np.float16), np.ones(({size}, {size}), np.float16)
b = a.copy()
nbtc.matmul(small, small)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts again from here
before = resident("VmRSS") - a.nbytes - b.nbytes
d = nbtc.matmul(a, b)
print((resident("VmHWM") - before) / (a.nbytes + b.nbytes + d.nbytes))
"""


def fresh(code: str, cache: str) -> list[float]:
    """The numbers that a new process prints."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "NBTC_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [float(text) for text in done.stdout.split()]


def startup(size: int) -> dict[str, float]:
    """Seconds a new process waits, and the peak memory of an f16 product over its operands and result."""
    with tempfile.TemporaryDirectory() as cache:
        first = fresh(FRESH, cache)[1]
        imported, again = (min(column) for column in zip(*(fresh(FRESH, cache) for _ in range(3)), strict=True))
        (peak,) = fresh(PEAK.format(size=size), cache)
    table = {"import": imported, "first_fresh": first, "first_cached": again, "peak": peak, "peak_size": size}
    print(", ".join(f"{key} {value:.3g}" for key, value in table.items()), flush=True)
    return table


def executed(folder: Path | None, rounds: int, host: str) -> dict[str, Any]:
    """PTX programs beside what does the same work without a warp, and what launches and compilations cost.

    A plainer processor is to be a third as fast at least.
    """
    out: dict[str, Any] = {}
    for timed in programs(folder) if folder else ():
        floor = timed.floor if host == "host" else timed.floor / 3
        with threadpool_limits(1, "blas"):
            ours, other = alternate(rounds, partial(timed.launch, 1), timed.reference)
        out[timed.name] = {"seconds": ours, "ratio": other / ours, "floor": floor}
        print(f"{timed.name:<40}{other / ours:>7.3f}x  (floor {floor:.2f})", flush=True)
        if timed.shared and numba.config.NUMBA_NUM_THREADS >= 2:  # by turns with each other alone, as of products
            one, two = alternate(rounds, *(partial(timed.launch, n) for n in (1, 2)))
            out[timed.name]["two_threads"] = one / two
            print(f"{timed.name:<40}{one / two:>7.2f}x on two threads", flush=True)
    out["empty launch"] = {"seconds": alternate(rounds, empty_launch(), inner=1000)[0], "most": EMPTY_SECONDS}
    if folder:
        cold, cached = compile_seconds(folder)
        out["compile f16 matmul"] = {"seconds": cold.waited, "most": COLD_SECONDS}
        out["compile f16 matmul, of processors"] = {"seconds": cold.processor, "most": COLD_SECONDS}
        out["f16 matmul from cache"] = {"seconds": cached.waited, "most": CACHED_SECONDS}
    for name, row in out.items():
        if "most" in row:
            print(f"{name:<40}{1e3 * row['seconds']:>9.3f} ms  (at most {1e3 * row['most']:g})", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warps", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="only products whose name contains this")
    parser.add_argument("--host", choices=HOSTS, default="host", help="kernels for this kind of processor")
    parser.add_argument("--programs", type=Path, help="a folder of recorded programs, to time some of them too")
    parser.add_argument("--only-programs", action="store_true", help="time these alone, and write no file")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    if HOSTS[args.host].items() - os.environ.items():  # Numba reads its settings once
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **HOSTS[args.host]})
    machine = {key: value for key, value in information().items() if key not in ("architectures", "threads", "nbtc")}
    if args.only_programs:
        print(json.dumps(executed(args.programs, args.rounds, args.host), indent=1))
        return
    machine |= {"processor": processor(), "numpy_gmas": round(numpy_rate(args.rounds, args.size) / 1e9, 1)}
    data = {"machine": machine, "size": args.size, "products": products(args.size, args.rounds, args.only, args.host)}
    if not args.only:
        data |= {"instructions": instructions(args.warps, args.groups, args.rounds), "dpx": dpx(args.rounds)}
        data |= {"quantize": quantized(args.rounds), "programs": executed(args.programs, args.rounds, args.host)}
        data["startup"] = startup(2 * args.size)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


if __name__ == "__main__":
    main()
