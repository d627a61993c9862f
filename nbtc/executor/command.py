"""`nbtc ptx FILE --run NAME`: arguments from the command line, and what the launch left in them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nbtc.errors import OptionError, SourceError
from nbtc.executor.program import Program
from nbtc.executor.text.names import full_name
from nbtc.formats.table import FORMATS

FIRST = 6  # elements of an array that are printed


class Launch(NamedTuple):
    """How the command line launches a kernel."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    check: bool = False  # watch for hazards


def argument(text: str, seed: int) -> Any:
    """An argument of a kernel from its text."""
    kind, _, rest = text.partition(":")
    if kind in ("zeros", "random"):
        name, _, count = rest.partition(":")
        dtype = _dtype(name)
        if dtype is None or not count.isdecimal():
            raise OptionError(f"{text!r}: write {kind}:f32:1024, a format or a NumPy dtype and a number of elements")
        return np.zeros(int(count), dtype) if kind == "zeros" else _random(dtype, int(count), seed)
    file, _, name = text.rpartition(":")
    if text.endswith(".npy") or file.endswith(".npy"):
        return _loaded(text if text.endswith(".npy") else file, "" if text.endswith(".npy") else name)
    for number in (partial(int, base=0), float):
        try:
            return number(text)
        except ValueError:
            continue
    legal = "a number, FILE.npy, FILE.npy:FORMAT, zeros:FORMAT:COUNT or random:FORMAT:COUNT"
    raise OptionError(f"{text!r} is not an argument: pass {legal}")


def _dtype(name: str) -> np.dtype[Any] | None:
    """By nbtc's name (f16 is half precision), or by NumPy's."""
    if name in FORMATS:
        return FORMATS[name].dtype
    try:
        return np.dtype(name)
    except TypeError:
        return None


def _loaded(file: str, name: str) -> Any:
    """An array; types that NumPy's files do not know come back as raw bytes, and are named."""
    try:
        with open(file, "rb") as opened:
            x = np.load(opened, allow_pickle=False)
    except OSError as error:
        raise SourceError(
            f"--arg {file} cannot be read ({error.strerror or error}): pass a file that numpy.save(path, array) wrote, "
            "or zeros:f32:1024"
        ) from None
    except ValueError as error:
        raise OptionError(
            f"{file} is not a .npy file of numbers ({error}): write it with numpy.save(path, array)"
        ) from None
    dtype = _dtype(name) if name else x.dtype
    if dtype is None or (dtype.kind == "V" and not name) or dtype.itemsize != x.dtype.itemsize:
        raise OptionError(f"{file} has elements of {x.dtype.itemsize} bytes: name their format, such as {file}:bf16")
    return x.view(dtype)


def _random(dtype: np.dtype[Any], size: int, seed: int) -> Any:
    """Standard normal floats, and integers of the whole range."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 2, size).astype(dtype)
    fmt = next((f for f in FORMATS.values() if f.dtype == dtype), None)
    if fmt is not None and fmt.kind == "int":
        return rng.integers(fmt.low, fmt.high + 1, size).astype(dtype)
    return rng.standard_normal(size).astype(dtype)


def names_of(program: Program) -> tuple[str, ...]:
    """What a kernel's source calls its parameters where that is known, else the PTX text."""
    own = program.module.parameters.get(program.name, ())
    return own if len(own) == len(program.params) else tuple(p.name for p in program.params)


def outputs(program: Program, texts: Sequence[str]) -> dict[int, str]:
    """Which parameters are written to which files: "2=out.npy" or "name=out.npy"."""
    own = names_of(program)
    names = {name: n for n, p in enumerate(program.params) for name in (own[n], p.name, str(n))}
    found = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not file or name not in names:
            raise OptionError(f"--out {text}: write PARAMETER=FILE.npy, PARAMETER one of {', '.join(names) or 'none'}")
        found[names[name]] = file
    return found


def run(program: Program, launch: Launch, texts: Sequence[str], out: Sequence[str] = ()) -> dict[str, Any]:
    """Launch a kernel; its time, and of each array argument a digest and the first elements."""
    if len(texts) != len(program.params):
        wanted = ", ".join(names_of(program)) or "none"
        raise OptionError(
            f"{full_name(program.name)} takes {len(program.params)} arguments ({wanted}), and --arg gives "
            f"{len(texts)}: write --arg once for each of them, in order, such as --arg zeros:f32:1024 --arg 3"
        )
    files = outputs(program, out)
    args = [argument(text, seed) for seed, text in enumerate(texts)]
    for n, file in files.items():
        if n >= len(args) or not isinstance(args[n], np.ndarray):
            raise OptionError(
                f"--out {n}={file}: argument {n} is not an array: pass a file, zeros: or random: as --arg"
            )
    start = time.perf_counter()
    program.launch(launch.grid, launch.block, args, shared=launch.shared, checked=launch.check)
    seconds = time.perf_counter() - start
    for n, file in files.items():
        with open(file, "wb") as opened:  # np.save would append .npy to other names
            np.save(opened, args[n])
    arrays = [
        {
            "parameter": name,
            "sha256": hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest(),
            "first": x.reshape(-1)[:FIRST].tolist(),
            "written": files.get(n),
        }
        for n, (name, x) in enumerate(zip(names_of(program), args, strict=True))
        if isinstance(x, np.ndarray)
    ]
    return {"kernel": program.name, "arch": program.arch, "seconds": seconds, "arrays": arrays}


def text_of_run(data: dict[str, Any]) -> str:
    """The same to read."""
    head = f"{data['kernel']} on {data['arch']}: {data['seconds']:.4g} s with compilation"
    rows = [f"  {a['parameter']}: sha256 {a['sha256'][:16]}..., first {a['first']}" for a in data["arrays"]]
    return "\n".join([head, *rows])
