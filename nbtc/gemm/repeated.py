"""Products that are asked for again: from the third of one signature on, a product is one native call.

A signature is all that decides what a product is but the operands' elements: dtypes, shapes, strides, options, threads,
tables.  The first product of one is checked and planned, the second (of a few thousand multiply-adds the thousandth,
`PATIENCE`) also leaves behind its call, in which only three addresses are new each time.  What a call does not vouch
for is computed as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from nbtc.compiler.cache.added_rows import CHANGES
from nbtc.compiler.machine_code.emitted import as_words, caller_in_words
from nbtc.compiler.machine_code.prepared_calls import PreparedCall
from nbtc.compiler.machine_code.python_calls import prepared
from nbtc.compiler.pools.workspace_pool import Arrays, Key, aligned
from nbtc.compiler.threads import thread_count
from nbtc.formats.table import Format
from nbtc.gemm.engines.exponent_ranges import Range
from nbtc.gemm.problem import Problem
from nbtc.kernels.repeated import DONE, OUTSIDE, Operands
from nbtc.numerics.models import changes

Ranges = tuple[Range, Range] | None
NAMES = (str, Format)
BARE = (*(None,) * 6, False, False)  # of what `matmul` takes else: c, k_split, order, scales, out; saturate, progress
# Multiply-adds: f16 products of 2^21 take 0.1 ms, in which Python's 25 microseconds are a fifth, int8 ones of 2^24 take
# as long.  Calls of the largest are few, since their packed operands are more than MOST_BYTES unless they are bytes.
MOST = 1 << 24
# Planned products of a few thousand multiply-adds, each output by itself, before a call that needs the kernels of large
# ones: 20 to 100 microseconds are saved each time; loading those takes 16 milliseconds, compiling them half a second.
PATIENCE = 1000
MOST_BYTES, SIGNATURES = 1 << 19, 16  # of a call's memory, for each thread at once; how many are kept: 8 MiB at most


class Call:
    """A product of one signature.

    address: of a function of `kernels.repeated.Operands`, which fills the result, whatever it held.  arguments: those
    it finds in its words, of some memory.  whole: whether a and b lie in C order, and are passed as they are.  ranges:
    of exponents that the operands may have.
    """

    def __init__(
        self, address: int, key: Key, arguments: Callable[[Arrays], Any], result: tuple[tuple[int, int], Any],
        whole: tuple[bool, bool], ranges: Ranges = None,
    ) -> None:  # fmt: skip
        self.address, self.key, self.arguments, self.ranges = address, key, arguments, ranges
        (self.shape, self.dtype), (self.whole_a, self.whole_b) = result, whole
        self.run = caller_in_words(Operands)
        # threads take a workspace each; appending and popping are atomic
        self.free: list[tuple[NDArray[np.int64], Arrays]] = []

    def __call__(self, a: NDArray[Any], b: NDArray[Any]) -> tuple[int, NDArray[Any]]:
        """(one of the results of `kernels.repeated`, the product)."""
        try:
            own = self.free.pop()
        except IndexError:
            own = self._workspace()
        if not self.whole_a:
            a = np.ascontiguousarray(a)
        if not self.whole_b:
            b = np.ascontiguousarray(b)
        d = np.empty(self.shape, self.dtype)
        code = self.run(self.address, (own[0], a, b, d))
        self.free.append(own)
        return code, d

    def prepared(self, a: NDArray[Any], b: NDArray[Any], engines: list[Any], *options: object) -> Callable[..., Any]:
        """The same of operands like these as one native call, with a workspace of its own; options: what `matmul` has.

        Making a signature, hashing it and looking for it takes a microsecond; memory and the call, in Python, half.
        """
        own = self._workspace()
        words = np.array([own[0].ctypes.data, *[0] * len(Operands._fields[1:])], np.int64)
        whole = self.whole_a, self.whole_b
        call = PreparedCall(self.address, words, self.shape, np.dtype(self.dtype), whole, DONE, locked=True, kept=own)
        return prepared(call, (engines, CHANGES), _blank(a), _blank(b), engines, *options)

    def _workspace(self) -> tuple[NDArray[np.int64], Arrays]:
        arrays = tuple(aligned(*x) for x in self.key)
        for x in arrays:
            x[:] = 0
        return as_words(self.arguments(arrays)).words, arrays


class Waiting(NamedTuple):
    """A signature without a call: planned products until it gets one (0: never), and what its last call covered."""

    products: int
    ranges: Ranges = None


class Recent(NamedTuple):
    """A call and its signature: product makes it as one native call (`prepared`)."""

    product: Callable[..., Any]
    of: Hashable
    call: Call


_CALLS: dict[Hashable, Call | Waiting] = {}
LATEST: list[Recent] = []  # the newest calls, the last one first
_LOCK = Lock()
MOST_LATEST = 4  # each that is looked at in vain costs a tenth of a microsecond


def cache_clear() -> None:
    """Forget all calls."""
    _CALLS.clear()
    LATEST.clear()


def signature(a: Any, b: Any, names: tuple[Any, ...], threads: Any, engines: Sequence[Any]) -> Hashable | None:
    """Of a product without c, scales, orders and progress; None where there is none.

    names: arch, and options that are None, a name or a format; among others unequal ones can be equal, as 1 is True.
    """
    if type(a) is not np.ndarray or type(b) is not np.ndarray or not (threads is None or type(threads) is int):
        return None
    for name in names:
        if name is not None and type(name) not in NAMES:
            return None
    count = thread_count(None) if threads is None else threads  # which planning has checked where there is a call
    return a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides, names, count, changes(), *engines


def product(of: Hashable, a: Any, b: Any) -> NDArray[Any] | None:
    """The product of a signature, if it has a call that vouches for it."""
    call = _CALLS.get(of)
    if type(call) is not Call:
        return None
    code, d = call(a, b)
    return d if code == DONE else refuse(of, call, code)


def refuse(of: Hashable, call: Call, code: int) -> NDArray[Any] | None:
    """Nothing, as a call did not vouch for its result; of elements out of its range the next one has a wider range."""
    if code == OUTSIDE:
        _keep(of, Waiting(1, call.ranges))
    return None


def remember(of: Any, a: Any, b: Any, threads: Any, problem: Problem, engines: list[Any]) -> None:
    """Note that a product was planned and computed; if enough of its signature were, make a call for the next."""
    macs, found = prod(problem.plan.shape), _CALLS.get(of)
    if found is None:
        if macs <= MOST and _as_given((a, b), problem):
            _keep(of, Waiting(PATIENCE if problem.plan.engine == "chain" else 1))
    elif type(found) is Waiting and found.products > 1:
        _CALLS[of] = Waiting(found.products - 1)
    elif type(found) is Waiting and found.products:
        engine = next(x for x in engines if x.serves(problem.plan.params))
        call = engine.call(problem, found.ranges) if hasattr(engine, "call") else None
        if call is None or sum(np.dtype(kind).itemsize * size for size, kind in call.key) > MOST_BYTES:
            call = Waiting(0)
        _keep(of, call)
        if type(call) is Call:
            product = call.prepared(a, b, engines, of[7], *of[6], *BARE)  # watches the rows that there are now
            if of == signature(a, b, of[6], threads, engines):  # which were no others when the call was made
                with _LOCK:
                    LATEST[:] = [Recent(product, of, call), *LATEST[: MOST_LATEST - 1]]


def _blank(x: NDArray[Any]) -> NDArray[Any]:
    """An array like x without its elements."""
    blank = as_strided(np.empty(1, f"V{x.itemsize}"), x.shape, x.strides)  # which takes no dtypes but NumPy's
    return blank.view(x.dtype)


def _keep(of: Hashable, what: Call | Waiting) -> None:
    """In place of the oldest if need be."""
    with _LOCK:
        _CALLS.pop(of, None)
        while len(_CALLS) >= SIGNATURES:
            del _CALLS[next(iter(_CALLS))]
        _CALLS[of] = what
        LATEST[:] = [x for x in LATEST if _CALLS.get(x.of) is x.call]


def _as_given(given: tuple[NDArray[Any], NDArray[Any]], problem: Problem) -> bool:
    """Whether the operands are what was given, whatever it holds: neither converted nor rid of bits."""
    return all(
        (fmt.bits >= 8 or packed) and x.dtype.isnative and x.itemsize == y.itemsize
        and x.ctypes.data == y.ctypes.data and x.strides == y.strides
        for x, y, fmt, packed in zip(
            given, (problem.a, problem.b), (problem.a_format, problem.b_format), problem.packed, strict=True
        )
    )  # fmt: skip
