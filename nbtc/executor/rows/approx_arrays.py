"""Approximate functions on arrays: the code of programs in a loop, compiled once a form."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.builder import I64, VectorBuilder, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu import lowering
from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.machine_code.emitted import Emitted, Named, machine_code
from nbtc.compiler.machine_code.native import Loaded
from nbtc.compiler.threads import parallel_for, thread_count
from nbtc.errors import ParseError, ShapeError, shown
from nbtc.executor.emit.form import WIDTHS, Form, Op
from nbtc.executor.rows.forms import find
from nbtc.executor.scalar import approx as rows
from nbtc.numerics.special_functions import tables
from nbtc.ops.convert import register_words

LANES = 32
NANOSECONDS = 100  # of 32 words, for the choice of threads
WORKS = 'for example nbtc.ptx.approx("ex2.approx.ftz.f32", x.view(np.uint32))'


class _Arguments(NamedTuple):
    """Addresses of operands and results, and how many words there are, a multiple of 32."""

    a: NDArray[Any]
    b: NDArray[Any]
    out: NDArray[Any]
    words: int


class _Function(NamedTuple):
    """A form's loop: `run(a, b, out, words)` on addresses; loaded keeps its code."""

    form: Form
    bits: int
    run: Callable[..., int]
    loaded: Loaded


def approx(mnemonic: str, *words: ArrayLike, threads: int | None = None) -> NDArray[Any]:
    """An approximate function on register words, with the bits of the special function unit.

    (PTX ISA, "Floating Point Instructions", forms with `.approx` and `.full`.)  mnemonic: a form of rcp, sqrt, rsqrt,
    ex2, lg2, sin, cos, tanh or div.  words: one array for each source operand (two for div), uint32 for f32, f16x2 and
    bf16x2, uint16 for f16 and bf16, uint64 for f64, of any shapes that broadcast.  Returns words of the same dtype and
    the broadcast shape.  The bits are those that an H200 returned for every input
    (tests/golden/special_functions.npz).  Raises ParseError for text that is no such form, ShapeError and FormatError
    for operands that don't fit.

    >>> import numpy as np
    >>> x = np.array([0.0, 1.0, 0.1, np.nan], np.float32)
    >>> [hex(w) for w in approx("ex2.approx.ftz.f32", x.view(np.uint32))]
    ['0x3f800000', '0x40000000', '0x3f892fdf', '0x7fffffff']
    """
    found = _function(mnemonic) if isinstance(mnemonic, str) else None
    if found is None:
        raise ParseError(f"{shown(mnemonic)} is not an approximate function of the PTX ISA; {WORKS}")
    count = len(found.form.sources)
    if len(words) != count:
        raise ShapeError(f"{mnemonic} takes {count} source operands, {len(words)} were given; {WORKS}")
    given = [register_words(w, found.bits, i, mnemonic, WORKS) for i, w in enumerate(words)]
    try:
        given = list(np.broadcast_arrays(*given))
    except ValueError:
        shapes = ", ".join(str(g.shape) for g in given)
        raise ShapeError(f"operands of {mnemonic} have shapes {shapes}, which do not broadcast; {WORKS}") from None
    thread_count(threads)
    return _run(found, given, threads)[()]


def _run(found: _Function, given: list[NDArray[Any]], threads: int | None) -> NDArray[Any]:
    shape, size = given[0].shape, given[0].size
    whole = -(-size // LANES) * LANES
    sources = [np.zeros(whole, x.dtype) for x in given]
    for to, x in zip(sources, given, strict=True):
        to[:size] = x.reshape(-1)
    out = np.empty(whole, given[0].dtype)
    step = out.itemsize * LANES

    @in_default_float_mode
    def work(first: int, last: int) -> None:
        at = [x.ctypes.data + first * step for x in (sources[0], sources[-1], out)]
        found.run(*at, (last - first) * LANES)

    parallel_for(whole // LANES, NANOSECONDS, threads, work)
    return out[:size].reshape(shape)


@cache
def _function(mnemonic: str) -> _Function | None:
    """The loop of a form, compiled or found on disk."""
    found = find(mnemonic)
    if found is None or found[0] not in rows.FORMS:
        return None
    form, op = found
    emitted = Emitted(_Arguments, lambda v, named: _body(v, form, op, named))
    data = hashlib.sha256(repr(tables()).encode()).hexdigest()  # which is no source
    texts = source_digest(Path(rows.__file__)), data, "approx", mnemonic, str(lowering.host())
    loaded = in_default_float_mode(machine_code)({"run": emitted}, *texts)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    return _Function(form, WIDTHS[form.sources[0]], kind(loaded.address("run")), loaded)


def _body(v: VectorBuilder, form: Form, op: Op, named: Named) -> None:
    """A form on 32 words after the other."""
    bits = WIDTHS[form.sources[0]]
    size, row = bits // 8, vector(ir.IntType(bits), LANES)
    with cgutils.for_range_slice(v.b, v.int(0), named["words"], v.int(LANES), I64) as (index, _):
        at = v.b.mul(index, v.int(size))
        sources = [v.load(named[name], row, size, at) for name in ("a", "b")[: len(form.sources)]]
        v.store(form.emit(v, op, *sources), named["out"], size, at)
