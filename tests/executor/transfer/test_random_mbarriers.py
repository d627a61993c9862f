"""Random programs of mbarriers against a model, in a block and in clusters, right ones and some with a hazard."""

import random

import numpy as np
import pytest

import nbtc
from tests.executor.transfer.mbarrier_programs import HAZARDS, Program, drawn, expected, hazards, text

SHAPES = [(1, 4), (2, 2)]


def _run(program: Program, checked: bool) -> np.ndarray:
    out = np.zeros(32 * len(program.everyone), np.uint32)
    kernel, cluster = nbtc.load(text(program))["k"], program.blocks if program.blocks > 1 else None
    kernel.launch(program.blocks, 32 * program.warps, [out], checked=checked, cluster=cluster, timeout=60)
    return out


@pytest.mark.parametrize(("blocks", "warps"), SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_random_phases_of_a_few_mbarriers_are_those_of_a_model(seed: int, blocks: int, warps: int) -> None:
    program = drawn(seed, blocks, warps)
    for checked in (False, True) if seed < 1 else (False,):
        np.testing.assert_array_equal(_run(program, checked), expected(program))


@pytest.mark.parametrize(("blocks", "warps"), SHAPES)
@pytest.mark.parametrize("what", HAZARDS)
def test_hazards_in_random_phases_are_found(what: str, blocks: int, warps: int) -> None:
    broken = [x for seed in range(12) for x in hazards(drawn(seed, blocks, warps), what)]
    with pytest.raises(nbtc.errors.ProgramError):
        _run(random.Random(what).choice(broken), checked=True)
