"""Fills the cache of machine code ahead: for images of containers, for CI, for a demonstration."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import nbtc
from nbtc.compiler.announce import expected
from nbtc.errors import NbtcWarning, OptionError, shown
from nbtc.formats.arrays import as_format
from nbtc.formats.table import FORMATS
from nbtc.report import random_operand

SIZE = 64
SCALED = ("mxfp8", "mxfp6", "mxfp4", "nvfp4")  # block formats, which sm_120 multiplies
USUAL = ("f16", "bf16", "tf32", "e4m3", "s8", "programs", "checked")
PROGRAM = """.version 8.0 .target sm_80 .address_size 64
.visible .entry reverse(.param .u64 out) {
  .shared .b32 s[64]; .reg .b32 t, a, b, x; .reg .b64 p; ld.param.u64 p, [out];
  mov.u32 t, %tid.x; shl.b32 a, t, 2; xor.b32 b, a, 252; mov.u32 x, s; add.u32 a, a, x; add.u32 b, b, x;
  st.shared.b32 [a], t; bar.sync 0; ld.shared.b32 x, [b]; mad.wide.u32 p, t, 4, p; st.global.b32 [p], x; ret; }
"""


class Warmed(NamedTuple):
    """What was compiled or found compiled, and how long that took."""

    what: str
    seconds: float


def warm(names: Sequence[str] = (), arch: object = "sm_90") -> Iterator[Warmed]:
    """Compile what products of these formats, and programs, need; one result each, as they are done.

    names: formats ("f16", "e4m3"), block formats ("mxfp4", on sm_120), "programs" and "checked" (launches); by default
    the usual ones.  arch: whose instructions.  Raises OptionError for other names, before any work.

    >>> [done.what for done in warm(["b1"])]
    ['b1']
    """
    jobs = [(name, _job(name, arch)) for name in names or USUAL]
    for name, job in jobs:
        start = time.perf_counter()
        with warnings.catch_warnings(), expected():
            warnings.simplefilter("ignore", NbtcWarning)
            job()
        yield Warmed(name, time.perf_counter() - start)


def _job(name: str, arch: object) -> Callable[[], Any]:
    if name in ("programs", "checked"):
        return lambda: _launch(arch, name == "checked")
    if name in SCALED:
        return lambda: _scaled(name)
    if name in FORMATS:
        return lambda: _product(name, arch)
    known = ", ".join((*FORMATS, *SCALED, "programs", "checked"))
    raise OptionError(f"{shown(name)} can't be warmed up: pass {known}")


def _launch(arch: object, checked: bool) -> None:
    program = nbtc.load(PROGRAM)["reverse"].on(arch)  # type: ignore[arg-type]
    (program.checked if checked else program)[1, 64](np.zeros(64, np.int32))


def _product(name: str, arch: object) -> None:
    """Small products, and one of many tiles, with and without c."""
    fmt, rng = as_format(name), np.random.default_rng(0)
    for size in (SIZE, 8 * SIZE):
        a, b = (random_operand(rng, (size, size), fmt) for _ in range(2))
        d = nbtc.matmul(a, b, arch=arch, a_format=fmt, b_format=fmt)
        nbtc.matmul(a, b, d, arch=arch, a_format=fmt, b_format=fmt)


def _scaled(name: str) -> None:
    rows, columns = np.random.default_rng(0).standard_normal((2, SIZE, 2 * SIZE), np.float32)
    a, scale_a = nbtc.mx.quantize(rows, name)[:2]
    b, scale_b = nbtc.mx.quantize(columns, name)[:2]
    nbtc.matmul(a, b.T, arch="sm_120", scale_a=scale_a, scale_b=scale_b.T)
