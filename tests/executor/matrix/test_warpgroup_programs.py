"""Programs of warpgroups' products against the same products on arrays, one after the other."""

import numpy as np
import pytest

import nbtc
from nbtc.fragments.smem_descriptors import Descriptor
from nbtc.testing import assert_bits_equal
from nbtc.testing.warpgroup_programs import random_warpgroup_program, results
from nbtc.verify.hardware.programs import draw_warpgroups


@pytest.mark.parametrize("seed", [2, 4, 6, 7, 10, 13, 31])
def test_products_in_flight(seed):
    program, rng = random_warpgroup_program(seed), np.random.default_rng(seed)
    kernel = nbtc.load(program.text)["k"]
    for _ in range(2):
        inputs, (shown,) = draw_warpgroups(program, rng, program.blocks)
        kernel.launch(program.blocks, program.threads, (*inputs, shown))
        assert_bits_equal(shown, results(program, *inputs))


def test_programs_differ_repeat_and_have_everything():
    programs = [random_warpgroup_program(seed) for seed in range(200)]
    assert len({p.text for p in programs}) == 200 and random_warpgroup_program(7).text == programs[7].text
    for construct in (
        "mma_async.sp", "wait_group.sync.aligned 1", "wait_group.sync.aligned 3", "reqnctapercluster", "tf32", "e4m3",
        "s32.s8", ".b1.", "bar.sync %bar", "nanosleep",
    ):  # fmt: skip
        assert sum(construct in p.text for p in programs) >= 5, construct
    products = [s.product for p in programs for s in p.steps if s.product]
    assert {p.b.swizzle for p in products} == {"none", "32B", "64B", "128B"}
    assert 0.3 < sum(isinstance(p.a, Descriptor) for p in products) / len(products) < 0.7
    assert any(p.b.base_offset and p.b.start % 1024 for p in products)


def test_nothing_changes_what_a_product_in_flight_uses():
    """Accumulators of other forms, those shown ones, registers of A that are filled: all have been waited for."""
    several = 0
    for seed in range(200):
        flying, group = [], []
        for step in random_warpgroup_program(seed).steps:
            pending = [p for g in flying for p in g]
            if step.product:
                assert all(p.d != step.product.d or p.form is step.product.form for p in pending + group), seed
                several += len({p.d for p in pending + group} | {step.product.d}) > 1
                group.append(step.product)
            elif step.kind == "commit":
                flying, group = [*flying, group], []
            elif step.kind == "wait":
                flying = flying[len(flying) - step.number :] if step.number else []
            elif step.kind == "fill":
                assert all(p.a != step.number for p in pending), seed
            elif step.kind == "show":
                assert all(p.d != step.number for p in pending), seed
        assert not flying and not group
    assert several > 100
