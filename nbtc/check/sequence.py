"""A program of wgmma instructions, run in order: what is visible when, and what it may not rely on.

A `Sequence` is one warpgroup (or a batch of independent ones in step).  Results reach registers when a wait covers
them, generic stores reach the tensor core when a proxy fence follows them, and every access that PTX leaves undefined
is a hazard, reported with its instruction and register.  (PTX ISA, "Asynchronous Multiply-and-Accumulate Operations".)
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.check.hazards import Check, Hazard, IssuedProduct, Registers, Watch
from nbtc.errors import BoundsError, FormatError, OptionError, ShapeError, shown, whole_number
from nbtc.formats.arrays import as_array
from nbtc.fragments.smem_descriptors import UNIT, Descriptor
from nbtc.isa.parse import row as parse
from nbtc.isa.spec import Row
from nbtc.ops.wgmma.operands import descriptor_words, form

THREADS = 128
MOST = 1 << 20  # more bytes than any shared memory has


class Sequence:
    """A program of one warpgroup: register arrays, shared memory, and the instructions that order them.

    smem: uint8 (..., bytes), already visible to the tensor core, or a number of bytes of zeros; leading axes are
    independent warpgroups in step.  check: True raises HazardError at the first hazard, "record" collects them in
    `.hazards` and goes on, False checks nothing (results still become visible only when the hardware guarantees it).
    first_warp: rank of the group's first warp in its block.

    >>> import numpy as np
    >>> from nbtc.wgmma import Sequence, tile_to_smem
    >>> a, da = tile_to_smem(np.eye(64, 16, dtype=np.float16), "f16")
    >>> b, db = tile_to_smem(np.ones((8, 16), np.float16), "f16")
    >>> with Sequence(4096) as s:
    ...     d = s.registers(4, "d")
    ...     s.store(0, a)
    ...     s.store(2048, b)
    ...     s.fence_proxy_async()
    ...     s.fence()
    ...     s.wgmma("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", d, da, db.encode() + (2048 >> 4), scale_d=0)
    ...     s.commit_group()
    ...     s.wait_group(0)
    ...     d[0].view(np.float32).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self, smem: int | ArrayLike = 0, *, check: Check = True, first_warp: int = 0, arch: object = "sm_90"
    ) -> None:
        if not isinstance(check, bool | str) or check not in (True, False, "raise", "record"):
            raise OptionError(
                f'check={shown(check)} is not a checking mode: True raises, "record" collects, False skips; '
                "try Sequence(4096)"
            )
        image = np.zeros(_bytes(smem), np.uint8) if isinstance(smem, int | np.integer) else np.array(as_array(smem))
        if image.dtype != np.uint8 or image.ndim < 1:
            raise FormatError(
                f"smem is a uint8 array (..., bytes) or a number of bytes, not {image.dtype}: try Sequence(4096)"
            )
        self._generic, self._async = image, image.copy()
        self._arch, self._first_warp = arch, first_warp
        self._watch = Watch(check, image.shape[-1])

    @property
    def hazards(self) -> list[Hazard]:
        """What was found so far."""
        return self._watch.hazards

    def registers(self, values: int | ArrayLike, name: str = "r") -> Registers:
        """A register array: uint32 (..., 128, count), or a count of zeros.  Setting it up counts as touching it."""
        batch = self._generic.shape[:-1]
        if isinstance(values, int | np.integer):
            v: NDArray[Any] = np.zeros((*batch, THREADS, _bytes(values)), np.uint32)
        else:
            v = np.array(as_array(values))
        if v.dtype != np.uint32:
            raise FormatError(f"registers are uint32 words, not {v.dtype}: pass the bits, values.view(np.uint32)")
        if v.ndim < 2 or v.shape[-2] != THREADS:
            raise ShapeError(f"registers of a warpgroup have shape (..., 128, count), not {v.shape}: try registers(4)")
        made = Registers(self._watch, v, name)
        self._watch.registers.append(made)
        return made

    def store(self, offset: int, data: ArrayLike, *, proxy: Literal["generic", "async"] = "generic") -> None:
        """Write bytes to shared memory: st.shared and the like, or through the async proxy (a finished TMA copy)."""
        if not isinstance(proxy, str) or proxy not in ("generic", "async"):
            raise OptionError(
                f'proxy={shown(proxy)}: stores go through "generic" (st.shared) or "async" (TMA); try "generic"'
            )
        v = np.ascontiguousarray(as_array(data))
        if v.dtype.kind not in "biufV":
            raise FormatError(f"stored data is {v.dtype}, no bytes: pass an array of numbers, data.view(np.uint8)")
        v = v.view(np.uint8)
        span, lead = self._span(offset, v.shape[-1]), self._generic.shape[:-1]
        if v.shape[:-1] not in (lead, ()):
            raise ShapeError(
                f"stored data has leading axes {v.shape[:-1]}, the memory {lead}: give it the same or none"
            )
        self._watch.begin(f"{proxy} store to shared bytes {span.start}-{span.stop - 1}")
        self._watch.store(span.start, span.stop, proxy)
        self._generic[..., span] = v
        if proxy == "async":
            self._async[..., span] = v

    def load(self, offset: int, count: int) -> NDArray[np.uint8]:
        """Read bytes of shared memory as ordinary loads do."""
        span = self._span(offset, count)
        self._watch.begin(f"load from shared bytes {span.start}-{span.stop - 1}")
        return np.array(self._generic[..., span])

    def _span(self, offset: int, count: int) -> slice:
        size, offset, count = self._generic.shape[-1], _whole(offset, "offset"), _whole(count, "count")
        if offset < 0 or count < 0 or offset + count > size:
            raise BoundsError(
                f"{shown(count)} bytes from {shown(offset)} leave the shared memory of {size} bytes: "
                f"offsets and counts are 0 or more, Sequence({shown(max(offset, 0) + max(count, 0))}) would hold them"
            )
        return slice(offset, offset + count)

    def fence(self) -> None:
        """wgmma.fence.sync.aligned: register accesses so far are ordered before the wgmma that follow."""
        self._watch.begin("wgmma.fence")
        self._watch.fence()

    def fence_proxy_async(self) -> None:
        """fence.proxy.async: generic writes to shared memory so far become visible to the wgmma that follow.

        Where another thread wrote the bytes, the program also needs a barrier; threads are not told apart here.
        """
        self._watch.begin("fence.proxy.async")
        written = self._watch.dirty[: self._generic.shape[-1]]
        self._async[..., written] = self._generic[..., written]
        self._watch.dirty[:] = False

    def commit_group(self) -> None:
        """wgmma.commit_group.sync.aligned: products issued since the last commit form a group (it may be empty)."""
        self._watch.begin("wgmma.commit_group")
        groups = self._watch.groups
        groups.committed.append(groups.open)
        groups.open = []

    def wait_group(self, n: int) -> None:
        """wgmma.wait_group.sync.aligned n: at most the n newest groups stay pending; other results are visible."""
        if (whole_number(n) or 0) < 0 or whole_number(n) is None:
            raise OptionError(
                f"wait_group({shown(n)}): the operand is a number of groups, 0 or more; try wait_group(0)"
            )
        self._watch.begin(f"wgmma.wait_group {shown(n)}")
        committed = self._watch.groups.committed
        while len(committed) > n:
            for op in committed.pop(0):
                op.d.visible = op.result.copy()
                op.d.writers.remove(op)
                if op.a is not None:
                    op.a.readers.remove(op)

    def wgmma(self, mnemonic: str, d: Registers, a: Any, b_desc: Any, **operands: Any) -> None:
        """Issue a product: d and a are `Registers`, a may be a descriptor; keywords as `nbtc.ptx.wgmma`.

        Descriptors may also be four (one a warp) or 128 words (one a thread), which must agree.  The result is computed
        from what the tensor core sees now and becomes visible in `d` after the wait_group that covers it.
        """

        from nbtc.ops.wgmma.product import LINE_NAMES, execute, line_operands

        if not isinstance(d, Registers):
            raise FormatError(f"d={shown(d)} is not a register array of this sequence: make one with registers(4, 'd')")
        row, watch = parse(mnemonic), self._watch
        operands |= line_operands(mnemonic, {name: operands.get(name) for name in LINE_NAMES})
        watch.begin(row.mnemonic)
        fragment = a if isinstance(a, Registers) else None
        a_word = None if fragment is not None else self._uniform("A", a)
        b_word = self._uniform("B", b_desc)
        source = a_word if fragment is None else fragment.latest
        result = execute(row, d.latest, source, b_word, self._async, arch=self._arch, **operands)
        units = _units(row, a_word, b_word, operands)
        shape = "m{}n{}k{}".format(*form(row).shape)
        watch.warpgroup(self._first_warp)
        watch.accumulate(d, shape)
        if fragment is not None:
            watch.multiply(fragment)
        watch.fetch(units)
        op = IssuedProduct(watch.number, shape, d, fragment, units, result)
        d.writers.append(op)
        d.shape = shape
        if fragment is not None:
            fragment.readers.append(op)
            fragment.fragment = True
        watch.groups.open.append(op)

    def _uniform(self, operand: str, desc: Any) -> int:
        words = descriptor_words(operand, desc).reshape(-1)
        if words.size not in (1, 4, THREADS):
            raise ShapeError(
                f"descriptor {operand} is {words.size} words: pass one, four (one a warp) or 128 (one a thread)"
            )
        self._watch.descriptor(operand, words)
        return int(words[0])

    def exit(self) -> None:
        """The end of the kernel: every product must have been committed and waited for."""
        self._watch.exit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.exit()


def _whole(x: Any, name: str) -> int:
    value = whole_number(x)
    if value is None:
        raise FormatError(
            f"{name}={shown(x)} is not an integer: offsets and counts are whole numbers of bytes, such as 64"
        )
    return value


def _bytes(x: Any) -> int:
    """A size: of shared memory (227 KiB on sm_90), or a count of registers."""
    if not 0 <= x <= MOST:
        raise BoundsError(
            f"{shown(x)} is not a size of shared memory or of registers: pass 0 to {MOST}, as in Sequence(4096)"
        )
    return int(x)


def _units(row: Row, a_word: int | None, b_word: int, operands: dict[str, Any]) -> NDArray[np.int64]:
    """Numbers of the 16-byte units of shared memory that a product reads."""
    f = form(row)
    m, n, k = f.shape
    parts = [(b_word, n, k, f.b.format, operands.get("trans_b", 0))]
    if a_word is not None:
        parts.append((a_word, m, f.stored, f.a.format, operands.get("trans_a", 0)))
    found = [
        Descriptor.decode(word).unit_addresses(rows, cols, fmt, "mn" if trans else "k").reshape(-1)
        for word, rows, cols, fmt, trans in parts
    ]
    return np.unique(np.concatenate(found) // UNIT)
