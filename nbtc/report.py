"""What the command line reports: the machine, a measured product, a plan.  Plain data in, plain data out."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import nbtc
from nbtc.accuracy import accuracy
from nbtc.compiler.placement import allowed_processors
from nbtc.compiler.threads import thread_count
from nbtc.errors import FormatError, MissingExtraError, OptionError, shown
from nbtc.formats.arrays import as_format, unpack
from nbtc.formats.table import Format
from nbtc.isa.archs import ARCHS

Array = NDArray[Any]
T = TypeVar("T")
LARGEST = 1 << 62  # products of sizes that address arithmetic still holds
_PATIENCE = 4.0  # seconds of timed runs, at least one


def information() -> dict[str, Any]:
    """Versions, processor features that choose kernels, threads, and each architecture's backing."""
    import llvmlite
    import ml_dtypes
    import numba

    from nbtc.compiler.cpu.host import AMX, features, has_avx512

    kernels = "AVX-512" if has_avx512() else "AVX2" if "avx2" in features() else "generic"
    return {
        "nbtc": nbtc.__version__,
        "python": platform.python_version(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "kernels": kernels,
        "amx": features() >= AMX,
        "threads": nbtc_threads(),
        "nvrtc": _nvrtc(),
        "architectures": {
            a.name: "recordings or public vectors"
            if a.validated
            else f"unvalidated, from {'published models' if a.numerics == a.name else a.numerics}"
            for a in ARCHS.values()
        },
    }


def product(
    shape: tuple[int, int, int],
    files: dict[str, str],
    formats: dict[str, str | None],
    *,
    seed: int,
    threads: int | None,
    **keywords: Any,
) -> dict[str, Any]:
    """Run one product and say everything `nbtc gemm` prints.

    shape: M, N, K of random operands.  files: paths of "a", "b", "c" (read) and "out" (written).  formats: names for
    "a" and "b", None to go by the dtype of a file, or f16.  keywords: matmul's.
    """
    if ("a" in files) != ("b" in files):
        raise OptionError("one of a and b came from a file, the other did not: give both, as in --a A.npy --b B.npy")
    if seed < 0:
        raise OptionError(f"--seed {shown(seed)} is negative: seeds are 0 or more, for example --seed 0")
    out = files.get("out")
    if out is not None and not Path(out).resolve().parent.is_dir():
        raise OptionError(f"--out {out}: there is no such folder; make it first, or write to --out ./{Path(out).name}")
    (a, fa), (b, fb) = _operands(shape, files, formats, seed)
    c = _load(files["c"], None)[0] if "c" in files else None
    call = {"a_format": fa.name, "b_format": fb.name, "threads": threads, **keywords}
    plan = nbtc.plan(a, b, c, **call)
    first, d = timed(lambda: nbtc.matmul(a, b, c, **call))
    if out is not None:
        with open(out, "wb") as file:  # np.save would append .npy to other names
            np.save(file, d)
    m, n, k = _sizes(a, d, fa)
    work = d.size * k
    x, y = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    # one after the other, not in turns: two pools of spinning threads would disturb each other
    seconds = _median(lambda: nbtc.matmul(a, b, c, **call))
    with _blas(threads) as blas_threads:
        numpy_seconds = _median(lambda: x @ y)
    numpy_seconds *= d.size / max(1, m * n)  # a batch is as many products
    distance = _distance(d, a, b, c, (fa, fb), keywords)
    return {
        "shape": [m, n, k],
        "a_format": fa.name,
        "b_format": fb.name,
        "acc": str(as_format(d.dtype)),
        "arch": str(keywords["arch"]),
        "instruction": str(plan.instruction),
        "seconds": seconds,
        "first_call_seconds": first,
        "gmas_per_s": work / seconds / 1e9,
        "threads": thread_count(threads),
        "numpy_float32": {"seconds": numpy_seconds, "threads": blas_threads, "ratio": numpy_seconds / seconds},
        "sha256": hashlib.sha256(d.astype(d.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest(),
        "correctly_rounded": distance,
        "out": out,
    }


def planned(shape: tuple[int, int, int], formats: tuple[str, str], **keywords: Any) -> tuple[dict[str, Any], str]:
    """The plan of a product of that shape as data and as text; no memory is touched."""
    m, n, k = shape
    if max(m, 1) * max(n, 1) * max(k, 1) >= LARGEST:
        raise OptionError(f"a product of {m} x {n} x {k} is larger than any machine: sizes multiply to less than 2**62")
    fa, fb = (as_format(f) for f in formats)
    a, b = np.broadcast_to(np.zeros((), fa.dtype), (m, k)), np.broadcast_to(np.zeros((), fb.dtype), (k, n))
    plan = nbtc.plan(a, b, a_format=fa.name, b_format=fb.name, **keywords)
    data = {
        "shape": [m, n, k],
        "formats": [str(f) for f in plan.formats],
        "arch": str(plan.arch),
        "instruction": str(plan.instruction),
        "engine": str(plan.engine),
        "model": _model(plan.model),
        "steps": plan.steps,
        "peak_bytes": plan.peak_bytes,
    }
    return data, str(plan.explain() or plan)


def _model(model: Any) -> dict[str, Any]:
    """A numerics row as plain data."""
    return {name: getattr(x, "name", x) for name, x in asdict(model).items()}


def _nvrtc() -> str:
    """Which compiler `nbtc.cuda.compile` takes."""
    from nbtc.interop.toolkit import compiler

    try:
        found = compiler()
    except MissingExtraError:
        return "not installed (nbtc[nvrtc])"
    return f"{found.version[0]}.{found.version[1]}, {found.path}"


def nbtc_threads() -> int:
    """Threads that a product uses when none are asked for."""
    return thread_count(None)


@contextmanager
def _blas(threads: int | None) -> Iterator[int | None]:
    """Hold NumPy's matrix product to `threads`, where threadpoolctl is installed; gives the number it really has."""
    if threads is not None and importlib.util.find_spec("threadpoolctl"):
        from threadpoolctl import threadpool_limits

        with threadpool_limits(threads, "blas"):
            yield threads
        return
    asked = (os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"))
    yield next((int(text) for text in asked if text.isdigit()), allowed_processors())


def random_operand(rng: np.random.Generator, shape: tuple[int, int], fmt: Format) -> Array:
    """Standard normal numbers (floats, rounded to the format) or uniform integers or bits."""
    if fmt.kind == "float":
        x = rng.standard_normal(shape, np.float32) if fmt.name != "f64" else rng.standard_normal(shape)
        return nbtc.convert(x, "tf32", rounding="rna") if fmt.name == "tf32" else x.astype(fmt.dtype)
    return rng.integers(fmt.low, fmt.high + 1, shape, np.int16).astype(fmt.dtype)


def _operands(
    shape: tuple[int, int, int], files: dict[str, str], formats: dict[str, str | None], seed: int
) -> tuple[tuple[Array, Format], tuple[Array, Format]]:
    if "a" in files:
        return _load(files["a"], formats["a"]), _load(files["b"], formats["b"])
    m, n, k = shape
    fa, fb = (as_format(formats[name] or "f16") for name in ("a", "b"))
    for f in (fa, fb):
        if f.bits > 8 and f.kind != "float":
            raise OptionError(
                f"--format {f}: no instruction multiplies {f}; multiplicands are f16 bf16 tf32 e4m3 s8 ..."
            )
    _check_memory(8 * (m * k + k * n + m * n), shape)
    rng = np.random.default_rng(seed)
    return (random_operand(rng, (m, k), fa), fa), (random_operand(rng, (k, n), fb), fb)


def _check_memory(size: int, shape: tuple[int, int, int]) -> None:
    """Raise before numbers are drawn that this machine cannot hold: it would kill the process instead."""
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 46
    if size > have:
        sizes = " x ".join(map(shown, shape))
        raise OptionError(
            f"random operands of {sizes} need about {shown(size >> 30)} GiB, this machine has {have >> 30}: "
            "pass smaller --m, --n and --k; nbtc explain M N K says what a product would take"
        )


def _load(path: str, name: str | None) -> tuple[Array, Format]:
    """An array of a .npy file; ml_dtypes arrays come back as raw bytes there and need their format named."""
    try:
        with open(path, "rb") as file:  # np.load would leave a broken file open
            x = np.load(file, allow_pickle=False)
    except ValueError as error:
        raise OptionError(
            f"{path} is not a .npy file of numbers ({error}): write it with numpy.save(path, array)"
        ) from None
    if not isinstance(x, np.ndarray):
        raise OptionError(f"{path} holds several arrays: write the one that is meant with numpy.save(path, array)")
    if x.dtype.kind == "V":
        if name is None or as_format(name).dtype.itemsize != x.dtype.itemsize:
            raise FormatError(
                f"{path} holds elements of {x.dtype.itemsize} raw bytes, as numpy.save writes ml_dtypes arrays: "
                "say which format they are in, for example --a-format bf16 --b-format bf16"
            )
        x = x.view(as_format(name).dtype)
    return x, as_format(name if name is not None else "tf32" if x.dtype == np.float32 else x.dtype)


def _sizes(a: Array, d: Array, fmt: Format) -> tuple[int, int, int]:
    packed = fmt.packed and a.dtype != fmt.dtype
    return d.shape[-2], d.shape[-1], a.shape[-1] * (fmt.per_word if packed else 1)


def _distance(d: Array, a: Array, b: Array, c: Array | None, formats: tuple[Format, Format], keywords: Any) -> Any:
    """Accuracy as data; None for products that round on purpose somewhere else (saturation)."""
    if keywords["saturate"]:
        return None
    x, y = (_values(v, f, axis) for v, f, axis in zip((a, b), formats, (-1, -2), strict=True))
    found = accuracy(d, x, y, c, op=keywords["op"] or "xor")
    return dict(vars(found))


def _values(x: Array, fmt: Format, axis: int) -> Array:
    if fmt.name == "tf32":  # what the hardware reads of a float32
        return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return unpack(x, fmt, axis) if fmt.packed and x.dtype != fmt.dtype else x


def _median(call: Callable[[], Any]) -> float:
    """Median seconds of up to seven runs; of a single one where that takes longer than anyone waits."""
    once, _ = timed(call)
    rounds = min(7, int(_PATIENCE / (once + 1e-6)))
    return once if rounds < 2 else alternate(rounds, call)[0]


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds of one call, and what it returned."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def alternate(rounds: int, *calls: Callable[[], Any], inner: int = 1) -> list[float]:
    """Median seconds of each call, all of them taking turns `rounds` times; one more turn first is not counted.

    inner: how often a call is repeated within one turn, for calls too short to time alone.

    >>> len(alternate(3, lambda: sum(range(10)), lambda: None, inner=10))
    2
    """
    for call in calls:
        call()
    turns = [[timed(partial(_repeat, call, inner))[0] / inner for call in calls] for _ in range(rounds)]
    return [median(column) for column in zip(*turns, strict=True)]


def _repeat(call: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        call()
