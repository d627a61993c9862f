"""What a kernel says about its launches: block sizes, clusters."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import OptionError

TEXT = """.version 8.0 .target sm_90 .address_size 64
.visible .entry rank(.param .u64 out) {directives} {{
 .reg .b32 %r<4>; .reg .b64 %d<3>; ld.param.u64 %d1, [out]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %d2, %r1, 4;
 add.u64 %d1, %d1, %d2; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank;
 shl.b32 %r3, %r3, 8; or.b32 %r2, %r2, %r3; st.global.u32 [%d1], %r2; ret;
}}"""


def ranks(directives, grid, **options):
    """(blocks of the cluster, rank) of each block."""
    out = np.zeros(16, np.uint32)
    block = options.pop("block", 32)
    nbtc.load(TEXT.format(directives=directives))["rank"].launch(grid, block, (out,), **options)
    return [(int(x) >> 8, int(x) & 255) for x in out if x]


def test_clusters_of_the_kernel():
    assert ranks(".reqnctapercluster 2, 1, 1", 4) == [(2, 0), (2, 1), (2, 0), (2, 1)]
    assert ranks(".explicitcluster .reqnctapercluster 4", 4, cluster=4) == [(4, i) for i in range(4)]
    assert ranks(".blocksareclusters .reqntid 32 .reqnctapercluster 2", 2) == [(2, 0), (2, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("directives", "options", "says"),
    [
        (".reqnctapercluster 2", {"cluster": 4}, "reqnctapercluster"),
        (".reqnctapercluster 3", {}, "not a multiple"),
        (".explicitcluster", {}, "explicitcluster"),
        (".maxclusterrank 2", {"cluster": 4}, "2 is the most"),
        (".reqntid 64", {}, "reqntid"),
        (".maxntid 16, 2", {"block": 64}, "32 threads at most"),
    ],
)
def test_launches_that_the_kernel_does_not_take(directives, options, says):
    with pytest.raises(OptionError, match=says):
        ranks(directives, 4, **options)


def test_blocks_of_fewer_threads_than_the_most():
    assert ranks(".maxntid 128, 1, 1", 2, block=64) == [(1, 0), (1, 0)]


@pytest.mark.parametrize("target", ["sm_30", "sm_52, texmode_independent", "sm_61"])
def test_targets_from_before_tensor_cores_run_on_the_oldest_with_them(target):
    text = TEXT.replace("sm_90", target)
    text = text.replace("%cluster_ctarank", "WARP_SZ").replace("%cluster_nctarank", "%nctaid.x")
    module, out = nbtc.load(text.format(directives="")), np.zeros(2, np.uint32)
    assert (module.target, module.arch) == (target.split(",")[0], "sm_70")
    module["rank"][2, 1](out)
    assert out.tolist() == [2 << 8 | 32] * 2
