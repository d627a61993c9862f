"""Programs of producers and consumers against NumPy and the products on arrays."""

import numpy as np
import pytest

from nbtc.isa.archs import target
from nbtc.testing.copies.tensors import Tensor
from nbtc.testing.pipelines.programs import random_pipeline_program
from nbtc.verify.hardware import programs
from nbtc.verify.hardware.trial import Emulated, compare


@pytest.mark.parametrize("seed", [2, 4, 6, 8, 9, 11])
def test_pipelines(seed):
    program = random_pipeline_program(seed)
    (trial,) = programs.pipeline_trials(1, target("sm_90a"), seed)
    judged = trial._replace(expect=program.results)
    for number in range(2):
        outcome = compare(judged, Emulated(), np.random.default_rng([seed, number]), program.blocks)
        assert outcome.mismatches == 0 and outcome.outputs == trial.outputs * program.blocks, outcome


def test_programs_differ_repeat_and_have_everything():
    drawn = [random_pipeline_program(seed) for seed in range(200)]
    assert len({p.text for p in drawn}) > 190 and random_pipeline_program(7).text == drawn[7].text
    for construct in (
        "multicast::cluster", "setmaxnreg.inc", "cp.async.mbarrier", "wait_group.sync.aligned 2", "stmatrix",
        "bar.sync %s", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", ".tf32.tf32", ".b1.",
        "tensor.2d", "mapa",
    ):  # fmt: skip
        assert sum(construct in p.text for p in drawn) >= 5, construct
    tensors = [x for p in drawn for x in (p.a, p.b) if isinstance(x, Tensor)]
    assert {t.swizzle for t in tensors} == {"32B", "64B", "128B"} and {t.oob for t in tensors} == {"zero", "nan"}
    assert max(p.turns / p.stages for p in drawn) >= 2  # stages are filled again
