"""Hazards of registers: each has a minimal broken program and a correct twin."""

import pytest

N16 = "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16"  # four registers a thread, as the default of programs


def no_fence(p):
    p.go()
    p.done()


def with_fence(p):
    p.product()


def write_then_go(p):
    p.product()
    p.d[:, 2] = 0
    p.go()
    p.done()


def write_fence_go(p):
    p.product()
    p.d[:, 2] = 0
    p.s.fence()
    p.go()
    p.done()


def fragment_written_then_go(p):
    p.s.fence()
    p.f[5, 1] = 0
    p.go(a=p.f)
    p.done()


def fragment_written_fence_go(p):
    p.f[5, 1] = 0
    p.s.fence()
    p.go(a=p.f)
    p.done()


def read_before_wait(p):
    p.s.fence()
    p.go()
    p.s.commit_group()
    p.d[...]
    p.s.wait_group(0)


def read_after_wait(p):
    p.product()
    p.d[...]


def write_before_wait(p):
    p.s.fence()
    p.go()
    p.d[:, 3] = 1
    p.done()


def write_other_before_wait(p):
    p.s.fence()
    p.go()
    p.e[:, 3] = 1
    p.done()


def two_groups(p):
    p.s.fence()
    p.go(p.d)
    p.s.commit_group()
    p.go(p.e)
    p.done(1)


def read_newest(p):
    two_groups(p)
    p.e[...]
    p.s.wait_group(0)


def read_oldest(p):
    two_groups(p)
    p.d[...]
    p.s.wait_group(0)


def change_fragment_early(p):
    p.s.fence()
    p.go(a=p.f)
    p.f[0, 0] = 7
    p.done()


def change_fragment_late(p):
    p.s.fence()
    p.go(a=p.f)
    p.done()
    p.f[0, 0] = 7


def read_fragment_early(p):
    p.s.fence()
    p.go(a=p.f)
    p.f[0, 0]
    p.done()


def other_shape_pending(p):
    p.s.fence()
    p.go()
    p.go(name=N16)
    p.done()


def same_shape_pending(p):
    p.s.fence()
    p.go()
    p.go()
    p.done()


def other_shape_unfenced(p):
    p.product()
    p.go(name=N16)
    p.done()


def other_shape_fenced(p):
    p.product()
    p.s.fence()
    p.go(name=N16)
    p.done()


def accumulator_as_fragment(p):
    p.s.fence()
    p.go(p.e)
    p.go(p.d, a=p.e)
    p.done()


def accumulator_as_fragment_in_turn(p):
    p.s.fence()
    p.go(p.e)
    p.done()
    p.s.fence()
    p.go(p.d, a=p.e)
    p.done()


def accumulator_as_fragment_unfenced(p):
    p.s.fence()
    p.go(p.e)
    p.done()
    p.go(p.d, a=p.e)
    p.done()


def fragment_as_accumulator(p):
    p.s.fence()
    p.go(p.d, a=p.f)
    p.go(p.f)
    p.done()


def fragment_as_accumulator_unfenced(p):
    p.s.fence()
    p.go(p.d, a=p.f)
    p.done()
    p.go(p.f)
    p.done()


def fragment_as_accumulator_in_turn(p):
    p.s.fence()
    p.go(p.d, a=p.f)
    p.done()
    p.s.fence()
    p.go(p.f)
    p.done()


PAIRS = [
    ("first-fence", no_fence, with_fence, "every register"),
    ("fence", write_then_go, write_fence_go, "d[2]"),
    ("fence", fragment_written_then_go, fragment_written_fence_go, "f[1]"),
    ("accumulator-read", read_before_wait, read_after_wait, "d[0]"),
    ("accumulator-write", write_before_wait, write_other_before_wait, "d[3]"),
    ("accumulator-read", read_newest, read_oldest, "e[0]"),
    ("fragment-write", change_fragment_early, change_fragment_late, "f[0]"),
    ("fragment-read", read_fragment_early, change_fragment_late, "f[0]"),
    ("shape-pending", other_shape_pending, same_shape_pending, "d[0]"),
    ("shape", other_shape_unfenced, other_shape_fenced, "d[0]"),
    ("accumulator-read", accumulator_as_fragment, accumulator_as_fragment_in_turn, "e[0]"),
    ("fence", accumulator_as_fragment_unfenced, accumulator_as_fragment_in_turn, "e[0]"),
    ("fragment-write", fragment_as_accumulator, fragment_as_accumulator_in_turn, "f[0]"),
    ("fence", fragment_as_accumulator_unfenced, fragment_as_accumulator_in_turn, "f[0]"),
]
IDS = [f"{rule}:{broken.__name__}" for rule, broken, _, _ in PAIRS]


@pytest.mark.parametrize("rule, broken, correct, where", PAIRS, ids=IDS)
def test_pairs(judge, rule, broken, correct, where):
    judge(rule, broken, correct, where)
