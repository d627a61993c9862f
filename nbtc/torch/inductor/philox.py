"""CUDA's random integers, from which inductor seeds its kernels: Philox 4x32-10 as cuRAND deals it to threads."""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray

from nbtc.torch.inductor import private

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEYS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
THREADS = 256  # of a block of PyTorch's kernels of random numbers
WORDS = 4  # that a thread takes from one counter


def philox(seed: int, subsequence: NDArray[np.uint64], offset: int) -> NDArray[np.uint32]:
    """The four words (..., 4) of each subsequence at an offset (in fours), as `curand4` gives them.

    Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.

    >>> philox(0, np.zeros(1, np.uint64), 0).tolist()
    [[1713891541, 3781805453, 3159862348, 2600524760]]
    """
    shape = subsequence.shape
    counter = [
        np.full(shape, offset & 0xFFFFFFFF, np.uint64),
        np.full(shape, offset >> 32, np.uint64),
        subsequence & _LOW,
        subsequence >> np.uint64(32),
    ]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        first = counter[0] * np.uint64(_MULTIPLIERS[0])
        second = counter[2] * np.uint64(_MULTIPLIERS[1])
        counter = [
            (second >> np.uint64(32)) ^ counter[1] ^ np.uint64(keys[0]),
            second & _LOW,
            (first >> np.uint64(32)) ^ counter[3] ^ np.uint64(keys[1]),
            first & _LOW,
        ]
        keys = [(k + step) & 0xFFFFFFFF for k, step in zip(keys, _KEYS, strict=True)]
    return np.stack(counter, axis=-1).astype(np.uint32)


class Generator:
    """The GPU's default generator: seeded whenever PyTorch is, its offset grows by what each call takes.

    Where PyTorch has begun to use a GPU of its own, that one's generator is it: programs here and there take turns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seeded_by: object = None
        self._seed, self._offset = torch.initial_seed(), 0

    def _take(self, amount: int) -> tuple[int, int]:
        """(seed, offset) of the next numbers."""
        with self._lock:
            own = private.gpu_generator()
            if own is not None:
                offset = own.get_offset()
                own.set_offset(offset + amount)
                return own.initial_seed(), offset
            pending = private.pending_seed()
            if pending is not None and pending[0] is not self._seeded_by:
                self._seeded_by, self._seed, self._offset = *pending, 0
            offset = self._offset
            self._offset += amount
            return self._seed, offset

    def integers(self, low: int, high: int, out: torch.Tensor) -> torch.Tensor:
        """Fill int64 `out` as `torch.randint(low, high)` does on CUDA: one thread an element, where a GPU holds them.

        A range of 2**32 or more takes two words an element (the first is the high one), another one word.
        """
        count = out.numel()
        seed, offset = self._take(WORDS)
        words = philox(seed, np.arange(count, dtype=np.uint64), offset // WORDS).astype(np.uint64)
        span = high - low
        wide = span >= 1 << 32
        value = (words[:, 0] << np.uint64(32)) | words[:, 1] if wide else words[:, 0]
        value = value % np.uint64(span)
        flat = (value + np.uint64(low & 0xFFFFFFFFFFFFFFFF)).view(np.int64)
        return out.copy_(torch.from_numpy(flat).reshape(out.shape))


generator = Generator()
