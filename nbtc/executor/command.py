"""`nbtc ptx FILE --run NAME`: arguments from the command line, and what the launch left in them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nbtc.errors import OptionError
from nbtc.executor.program import load

FIRST = 6  # elements of an array that are printed


class Launch(NamedTuple):
    """What the command line asks for."""

    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arch: str | None
    check: bool = False  # watch for hazards


def argument(text: str, seed: int) -> Any:
    """An argument of a kernel from its text."""
    kind, _, rest = text.partition(":")
    if text.endswith(".npy"):
        return np.load(text)
    if kind in ("zeros", "random"):
        name, _, count = rest.partition(":")
        try:
            dtype, size = np.dtype(name), int(count)
        except (TypeError, ValueError):
            raise OptionError(f"{text!r}: write {kind}:float32:1024, a NumPy dtype and a number of elements") from None
        return np.zeros(size, dtype) if kind == "zeros" else _random(dtype, size, seed)
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        legal = "a number, FILE.npy, zeros:DTYPE:COUNT or random:DTYPE:COUNT"
        raise OptionError(f"{text!r} is no argument: pass {legal}") from None


def _random(dtype: np.dtype[Any], size: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.kind == "f":
        return rng.standard_normal(size).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, size, dtype, endpoint=True)


def run(launch: Launch, texts: Sequence[str]) -> dict[str, Any]:
    """Launch a kernel; its time, and of each array argument a digest and the first elements."""
    program = load(launch.file, launch.arch)[launch.kernel]
    args = [argument(text, seed) for seed, text in enumerate(texts)]
    start = time.perf_counter()
    program.launch(launch.grid, launch.block, args, shared=launch.shared, checked=launch.check)
    seconds = time.perf_counter() - start
    arrays = [
        {
            "parameter": p.name,
            "sha256": hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest(),
            "first": x.reshape(-1)[:FIRST].tolist(),
        }
        for p, x in zip(program.params, args, strict=True)
        if isinstance(x, np.ndarray)
    ]
    return {"kernel": program.name, "arch": program.arch, "seconds": seconds, "arrays": arrays}


def text_of_run(data: dict[str, Any]) -> str:
    """The same to read."""
    head = f"{data['kernel']} on {data['arch']}: {data['seconds']:.4g} s with compilation"
    rows = [f"  {a['parameter']}: sha256 {a['sha256'][:16]}..., first {a['first']}" for a in data["arrays"]]
    return "\n".join([head, *rows])
