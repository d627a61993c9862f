"""Warpgroup products that are asked for again: all but their arrays was checked and worked out for the first one.

Of a lone warpgroup's m64n8k16 of f16, checks, tables and Python between them took 100 of 108
microseconds (Zen 3, by hand).
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.fragments.smem_descriptors import Descriptor
from nbtc.isa.spec import Row
from nbtc.numerics.models import changes
from nbtc.ops.wgmma.general import Accumulators, Sources, WarpgroupTask
from nbtc.ops.wgmma.operands import is_registers

# Products that are kept, and warpgroups of one: each takes 49 bytes of memory, 12 MiB in all.
MOST, MOST_GROUPS = 64, 4096
_WORD, _OCTET = np.dtype(np.uint32), np.dtype(np.uint8)


class Known(NamedTuple):
    """A product of one signature: its task without arrays of operands and results; the shape of results; the loop over
    warpgroups with its steps, if there is vector code.
    """

    task: WarpgroupTask
    shape: tuple[int, ...]
    kernel: tuple[Any, Any] | None

    @classmethod
    def from_first(cls, task: WarpgroupTask, shape: tuple[int, ...], kernel: tuple[Any, Any] | None) -> Known:
        """Of the first product's task."""
        words = None if task.geometry.a_registers else task.sources.a_words
        sources, accumulators = task.sources._replace(smem=None, a_words=words), task.accumulators
        return cls(task._replace(sources=sources, accumulators=accumulators._replace(d=None, out=None)), shape, kernel)

    def of(self, d: NDArray[Any], a: Any, smem: NDArray[Any], out: NDArray[Any]) -> WarpgroupTask:
        """The task of arrays like those."""
        geometry, numbers, (_, images, a_units, a_which, words, *rest), metadata, (_, which, keep, _) = self.task
        words = a.reshape(-1) if words is None else words
        sources = Sources(smem.reshape(-1), images, a_units, a_which, words, *rest)
        results = Accumulators(d.reshape(-1), which, keep, out.reshape(-1))
        return WarpgroupTask(geometry, numbers, sources, metadata, results)


_KNOWN: dict[Hashable, Known] = {}
_LOCK = Lock()


def signature(
    row: Row, d: Any, a: Any, b_desc: Any, smem: Any, scale_d: Any, arch: Any, given: dict[str, Any]
) -> Hashable | None:
    """All that a dense product depends on but its arrays' elements; None where they would be converted or copied.

    Numbers are whole ones alone: 1.0 and True are equal to 1, but refused.
    """
    if not (_plain(d, _WORD) and _plain(smem, _OCTET) and type(scale_d) is int and type(arch) is str):
        return None
    words: list[Any] = [b_desc] if is_registers(a) and _plain(a, _WORD) else [a, b_desc]
    words = [x.encode() if isinstance(x, Descriptor) else x for x in words]
    for x in (*words, *given.values()):
        if type(x) is not int:
            return None
    of_a = a.shape if len(words) == 1 else None
    return row, arch, of_a, *words, d.shape, smem.shape, scale_d, *given.items(), changes()


def _plain(x: Any, dtype: np.dtype[Any]) -> bool:
    """Whether the product reads x where it lies."""
    if type(x) is not np.ndarray or x.dtype != dtype:
        return False
    flags = x.flags
    return bool(flags.c_contiguous and flags.writeable)


def known(of: Hashable | None) -> Known | None:
    """What is known of a signature."""
    return None if of is None else _KNOWN.get(of)


def remember(of: Hashable, product: Known) -> None:
    """Keep a product that was checked, in place of the oldest if need be."""
    with _LOCK:
        while len(_KNOWN) >= MOST:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[of] = product


def cache_clear() -> None:
    """Forget all."""
    _KNOWN.clear()
