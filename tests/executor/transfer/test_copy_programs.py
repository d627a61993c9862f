"""Programs of copies in every way that there is against NumPy."""

import numpy as np
import pytest

from nbtc.isa.archs import target
from nbtc.testing.copies.programs import random_copy_program
from nbtc.testing.copies.tensors import Box
from nbtc.verify.hardware import programs
from nbtc.verify.hardware.trial import Emulated, compare


@pytest.mark.parametrize("seed", [3, 9, 10, 14, 16, 17, 22])
def test_copies(seed):
    program = random_copy_program(seed)
    (trial,) = programs.copy_trials(1, target("sm_90a"), seed)
    judged = trial._replace(expect=program.results)
    inputs, before = trial.draw(np.random.default_rng(seed), program.blocks)
    assert any((x != y).any() for x, y in zip(before, program.results(inputs, before), strict=True))
    for number in range(2):
        outcome = compare(judged, Emulated(), np.random.default_rng([seed, number]), program.blocks)
        assert outcome.mismatches == 0 and outcome.outputs == trial.outputs * program.blocks, outcome


def test_programs_differ_repeat_and_have_everything():
    programs_ = [random_copy_program(seed) for seed in range(200)]
    assert len({p.text for p in programs_}) == 200 and random_copy_program(7).text == programs_[7].text
    for construct in (
        "cp.async.mbarrier", "cp.async.ca", "cp.async.cg", "multicast::cluster", "cp.reduce.async.bulk.global",
        "cp.reduce.async.bulk.shared::cluster", "cp.reduce.async.bulk.tensor", "st.async", "red.async", "stmatrix",
        "ldmatrix", "ld.shared::cluster", "st.shared::cluster", "im2col", "tensor.1d", "tensor.5d", "noftz.bf16",
        "min.f16", "add.f64", "inc.u32", "wgmma.mma_async", "bulk.wait_group.read 3",
    ):  # fmt: skip
        assert sum(construct in p.text for p in programs_) >= 5, construct
    boxes = [m.of for p in programs_ for phase in p.phases for m in phase if isinstance(m, Box)]
    assert {t.swizzle for t in boxes} == {"none", "32B", "64B", "128B"} and {t.oob for t in boxes} == {"zero", "nan"}
    assert any(max(t.steps) > 1 for t in boxes)


def test_moves_of_a_phase_do_not_touch():
    """What one writes no other writes or reads, so that no order of them shows."""
    for seed in range(200):
        for phase in random_copy_program(seed).phases:
            for n, move in enumerate(phase):
                at, size = move.written
                for k, other in enumerate(phase):
                    for start, length in (other.read, *((other.written,) if k != n else ())):
                        assert not size or not length or at + size <= start or start + length <= at, (seed, move, other)
