"""The products of `nbtc.ops.mma` as functions of flat images that compiled code can call, one warp at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from nbtc.compiler.cpu.float_mode import call_in_default_mode
from nbtc.compiler.jit import jit
from nbtc.ops.mma import general
from nbtc.ops.mma.product import Prepared

NO_WORDS = np.zeros(1, np.uint32)


@cache
def product(plan: Prepared) -> Callable[..., Any]:
    """compute(a, b, c, meta, d) of flat uint32 images: vector code where there is some, else the general kernel.

    For compiled functions alone; `meta` of a dense form is any array.
    """
    slow = _general(plan)
    if plan.vector is None:
        return slow
    one_warp = plan.vector.one_warp
    if plan.tiles:
        return _tiled(plan, one_warp, slow)
    return (_sparse if plan.row.sparse else _dense)(plan, one_warp, slow)


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = jit(function, expanded=True)
    return found


def _general(plan: Prepared) -> Callable[..., Any]:
    places, geometry, params = plan.places, plan.geometry, plan.params
    na, nb, ns = plan.scratch
    word, run = plan.word.type, general.run

    def compute(a, b, c, meta, d):
        images = general.Images(a, b, c, meta, d)
        scratch = general.ElementBuffers(np.empty(na, word), np.empty(nb, word), np.empty(ns, word))
        call_in_default_mode(run, (images, np.zeros(4, np.int64), 0, 1, places, geometry, params, scratch))

    return _expanded(compute)


def _dense(plan: Prepared, one_warp: Any, slow: Any) -> Callable[..., Any]:
    numbers = plan.numbers

    def compute(a, b, c, meta, d):
        if call_in_default_mode(one_warp, ((a, b, c, d), numbers)):
            slow(a, b, c, meta, d)

    return _expanded(compute)


def _sparse(plan: Prepared, one_warp: Any, slow: Any) -> Callable[..., Any]:
    numbers, skipped = plan.numbers, plan.skipped

    def compute(a, b, c, meta, d):
        own = meta[skipped:]
        if call_in_default_mode(one_warp, ((a, b, c, own, d), numbers)):
            slow(a, b, c, meta, d)

    return _expanded(compute)


@jit
def _move(source, size, first, target, to_size, to, count):
    """`count` registers of each of 32 lanes, from register `first` of `size` to register `to` of `to_size`."""
    for lane in range(32):
        for n in range(count):
            target[lane * to_size + to + n] = source[lane * size + first + n]


def _tiled(plan: Prepared, one_warp: Any, slow: Any) -> Callable[..., Any]:
    """A wmma form as several m16n8 products; a tile of 8x32 is a 32x8 one transposed."""
    numbers = plan.numbers
    firsts = np.array([[way.start for way in tile] for tile in plan.tiles])
    ca, cb, cc = (way.stop - way.start for way in plan.tiles[0])
    ra, rb, rc, rd = plan.registers
    swapped, count = plan.operands[1].cols == 32, len(plan.tiles)
    if swapped:
        ra, rb = rb, ra

    def compute(a, b, c, meta, d):
        left, right = (b, a) if swapped else (a, b)
        pa, pb = np.empty(32 * ca, np.uint32), np.empty(32 * cb, np.uint32)
        pc, pd = np.empty(32 * cc, np.uint32), np.empty(32 * cc, np.uint32)
        needs_fallback = False
        for n in range(count):
            _move(left, ra, firsts[n, 0], pa, ca, 0, ca)
            _move(right, rb, firsts[n, 1], pb, cb, 0, cb)
            _move(c, rc, firsts[n, 2], pc, cc, 0, cc)
            if call_in_default_mode(one_warp, ((pa, pb, pc, pd), numbers)):
                needs_fallback = True
            _move(pd, cc, 0, d, rd, firsts[n, 2], cc)
        if needs_fallback:
            slow(a, b, c, meta, d)

    return _expanded(compute)
