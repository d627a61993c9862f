"""Do the recordings notice mistakes?  Each mutation of a plan must change bits that they hold; the plan itself none."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nbtc.isa.parse import row
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, OUT, OUTS, SATURATE
from nbtc.ops.mma import general as mma_kernel
from nbtc.ops.mma import product as mma
from nbtc.ops.mma.product import Prepared

HERE = runpy.run_path(str(Path(__file__).with_name("test_registers.py")))
spelled: Callable[[str], str] = HERE["spelled"]
Words = NDArray[np.uint32]
HALF, TF32 = "mma_m16n8k16_f32_f16_f16_f32", "mma_m16n8k8_f32_tf32_tf32_f32"
SPARSE, BYTES = "sp_m16n8k32_f32_f16_f16_f32", "mma_m16n8k32_s32_s8_s8_s32"


@cache
def recordings(prefix: str) -> list[tuple[dict[str, Any], dict[str, Words]]]:
    """The recordings of the forms whose name contains `prefix`."""
    every = [x for kind in HERE["recordings"]().values() for x in kind]
    found = [(form, x) for name, form, x in every if prefix in name.split("__")[0]]
    assert found
    return found


def wrong_bits(
    prefix: str, mutate: Callable[[Prepared], Prepared], change: Callable[[Words], Words] = lambda d: d
) -> int:
    """Words that differ from the recordings when a plan is changed (and its results, by `change`)."""
    count = 0
    for form, x in recordings(prefix):
        plan = mutate(mma.prepare(row(spelled(form["op"])), "sm_90", form["sel"]))
        got = change(mma.perform(plan, x["A"], x["B"], x["C"], x.get("E"), form["sel"]))
        count += int((got != x["D"]).sum())
    return count


def parameter(index: int, value: Callable[[int], int]) -> Callable[[Prepared], Prepared]:
    """A plan with another number in its model."""

    def mutate(plan: Prepared) -> Prepared:
        params = plan.params.copy()
        params[index] = value(int(params[index]))
        return replace(plan, params=params)

    return mutate


def general(mutate: Callable[[Prepared], Prepared]) -> Callable[[Prepared], Prepared]:
    """The same without vector code."""
    return lambda plan: replace(mutate(plan), shape=None)


def place(start: int | None, first: int, second: int) -> Callable[[Prepared], Prepared]:
    """A plan with two entries of a lane map (or of the metadata map) exchanged."""

    def mutate(plan: Prepared) -> Prepared:
        places, at = plan.places.copy(), 0 if start is None else int(plan.geometry[start])
        places[[at + first, at + second]] = places[[at + second, at + first]]
        return replace(plan, places=places, shape=None)

    return mutate


def same(plan: Prepared) -> Prepared:
    return plan


@pytest.mark.parametrize("prefix", [HALF, TF32, SPARSE, BYTES])
def test_no_mutation(prefix: str) -> None:
    assert wrong_bits(prefix, same) == 0
    assert wrong_bits(prefix, general(same)) == 0


MUTATIONS: dict[str, tuple[str, Callable[[Prepared], Prepared]]] = {
    "lane map of A": (HALF, place(None, 3, 35)),
    "lane map of B": ("m16n8k16_f32", place(mma_kernel.AT_B, 0, 17)),
    "lane map of C": (HALF, place(mma_kernel.AT_C, 5, 6)),
    "lane map of D": (HALF, place(mma_kernel.AT_D, 9, 17)),
    "metadata map": (SPARSE, place(mma_kernel.AT_E, 2, 3)),
    "F": (HALF, parameter(FRACTION, lambda f: f - 1)),
    "F, general path": (HALF, general(parameter(FRACTION, lambda f: f + 1))),
    "L": (HALF, general(parameter(BLOCK, lambda n: n // 2))),
    "L of tf32": (TF32, general(parameter(BLOCK, lambda n: n // 2))),
    "exponent of zero": ("f32_tf32_tf32_f32", parameter(FLOOR, lambda e: e + 30)),
    "rounding": (HALF, general(parameter(OUT, lambda _: OUTS["rz14"]))),
    "saturation": ("s32_s8_s8_s32_sat", general(parameter(SATURATE, lambda s: 1 - s))),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed(name: str) -> None:
    prefix, mutate = MUTATIONS[name]
    assert wrong_bits(prefix, mutate) > 0


def test_vector_code_of_another_block_is_noticed() -> None:
    def halved(plan: Prepared) -> Prepared:
        return plan if plan.shape is None else replace(plan, shape=replace(plan.shape, blocks=2))

    assert wrong_bits(HALF, lambda p: replace(halved(p), params=parameter(BLOCK, lambda n: n // 2)(p).params)) > 0


def test_zero_sign_is_noticed() -> None:
    """Positive zeros made negative."""
    assert wrong_bits("f32_f16_f16_f32", same, lambda d: np.where(d == 0, np.uint32(1 << 31), d)) > 0


def test_flipped_nibble_is_noticed() -> None:
    """One nibble of each supplying lane exchanges its two indices."""
    count = 0
    for form, x in recordings(SPARSE):
        nibble = x["E"] >> np.uint32(4) & np.uint32(15)
        swapped = (nibble >> np.uint32(2)) | (nibble & np.uint32(3)) << np.uint32(2)
        meta = x["E"] ^ (nibble ^ swapped) << np.uint32(4)
        got = mma.execute(row(form["op"]), x["A"], x["B"], x["C"], meta=meta, selector=form["sel"])
        count += int((got != x["D"]).sum())
    assert count > 0
