"""Hazards of shared memory, descriptors and the end of a kernel: broken programs and correct twins."""

import numpy as np
import pytest

from nbtc.wgmma import Descriptor


def with_fence(p):
    p.product()


def store_without_proxy_fence(p):
    p.s.store(0, p.image)
    p.product()


def store_with_proxy_fence(p):
    p.s.store(0, p.image)
    p.s.fence_proxy_async()
    p.product()


def store_by_tma(p):
    p.s.store(0, p.image, proxy="async")
    p.product()


def store_under_a_product(p):
    p.s.fence()
    p.go()
    p.s.store(p.b_at + 3, np.zeros(1, np.uint8))
    p.done()


def store_after_a_product(p):
    p.s.fence()
    p.go()
    p.done()
    p.s.store(p.b_at + 3, np.zeros(1, np.uint8))


def tma_under_a_product(p):
    p.s.fence()
    p.go()
    p.s.commit_group()
    p.s.store(0, np.zeros(16, np.uint8), proxy="async")
    p.s.wait_group(0)


def store_beside_a_product(p):
    p.s.fence()
    p.go()
    p.s.store(p.b_at + 128, np.zeros(16, np.uint8))  # the columns 8..15, which n8 does not read
    p.done()


def leave_uncommitted(p):
    p.s.fence()
    p.go()


def leave_pending(p):
    p.s.fence()
    p.go()
    p.s.commit_group()


def leave_after_waiting_for_nothing(p):
    p.s.fence()
    p.s.wait_group(0)
    p.go()
    p.s.wait_group(0)


def descriptors_differ(p):
    p.s.fence()
    w = p.b.encode()
    p.go(b=np.array([w, w, w + 8, w], np.uint64))
    p.done()


def descriptors_agree(p):
    p.s.fence()
    p.go(b=np.full(128, p.b.encode(), np.uint64))
    p.done()


def pattern_misaligned(p):
    p.s.fence()
    p.go(b=Descriptor(256, 16, 1024, swizzle="128B"))
    p.done()


def pattern_aligned(p):
    p.s.fence()
    p.go(b=Descriptor(32, 16, 1024, swizzle="128B"))
    p.done()


def pattern_with_base_offset(p):
    p.s.fence()
    p.go(b=Descriptor(256, 16, 1024, 2, "128B"))
    p.done()


PAIRS = [
    ("proxy-fence", store_without_proxy_fence, store_with_proxy_fence, "shared byte 0"),
    ("proxy-fence", store_without_proxy_fence, store_by_tma, "shared byte 0"),
    ("smem-pending", store_under_a_product, store_after_a_product, "shared byte 2051"),
    ("smem-pending", tma_under_a_product, store_beside_a_product, "shared byte 0"),
    ("exit-uncommitted", leave_uncommitted, with_fence, "d[0]"),
    ("exit-pending", leave_pending, with_fence, "d[0]"),
    ("exit-uncommitted", leave_after_waiting_for_nothing, with_fence, "d[0]"),
    ("descriptors", descriptors_differ, descriptors_agree, "descriptor B"),
    ("pattern", pattern_misaligned, pattern_aligned, "descriptor B"),
    ("pattern", pattern_misaligned, pattern_with_base_offset, "descriptor B"),
]
IDS = [f"{rule}:{broken.__name__}" for rule, broken, _, _ in PAIRS]


@pytest.mark.parametrize("rule, broken, correct, where", PAIRS, ids=IDS)
def test_pairs(judge, rule, broken, correct, where):
    judge(rule, broken, correct, where)
