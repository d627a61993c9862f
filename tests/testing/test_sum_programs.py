"""Random programs of products and sums: that they have what decides about fusing, and what nbtc makes of it."""

import re
from collections import Counter

import numpy as np
import pytest

import nbtc
from nbtc.testing.sum_programs import KINDS, ROW, STORES, VALUES, random_sum_program

SEEDS = 200


def results(seed, **options):
    """What a program leaves in four blocks of rows."""
    program = random_sum_program(seed)
    words = program.words(np.random.default_rng(seed), 4)
    nbtc.load(program.text)["k"].launch(4, 32, [words], **options)
    return words[..., -STORES:]


def test_a_seed_gives_one_program():
    assert random_sum_program(7) == random_sum_program(7) != random_sum_program(8)


def test_programs_differ_in_what_decides():
    programs = [random_sum_program(seed) for seed in range(SEEDS)]
    opcodes = Counter(re.findall(r"(?:^|\b)([a-z]+)\.[a-z0-9.]+[ ;]", "\n".join(p.text for p in programs)))
    assert min(opcodes[x] for x in ("mul", "add", "sub", "neg", "abs", "fma", "max", "selp", "membar", "bar")) >= 10
    assert {p.kind.name for p in programs} == KINDS.keys()
    assert sum("bra" in p.text for p in programs) > SEEDS // 4


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_numbers_are_near_one(kind):
    """Products of products neither overflow nor vanish, and predicates hold in some lanes."""
    program = next(p for p in map(random_sum_program, range(SEEDS)) if p.kind == kind)
    words = program.words(np.random.default_rng(1), 64)
    assert words.shape == (64, 32, ROW)
    if kind.name in ("f32", "f64"):
        numbers = words[..., :VALUES].copy().view(kind.name.replace("f", "float"))[..., :: 64 // kind.bits]
        assert (abs(numbers) >= 0.5).all() and (abs(numbers) < 2).all()
        assert (numbers < 0).any() and (numbers > 0).any()
    assert 0.4 < (words[..., VALUES].view(np.int64) < 0).mean() < 0.6


def test_fusing_changes_results():
    """Of most programs: a comparison of them can fail."""
    changed = sum(bool((results(seed) != results(seed, contract="off")).any()) for seed in range(16))
    assert changed >= 3
