"""Contexts in which every launch looks for hazards, or counts."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import OptionError, ProgramError
from nbtc.executor.launch.process_wide import launches

TEXT = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 x) { .reg .b32 t; .reg .b64 p, q;
 ld.param.u64 p, [x]; mov.u32 t, %tid.x; and.b32 t, t, 31; mul.wide.u32 q, t, 4; add.u64 p, p, q;
 mov.u32 t, %tid.x; st.global.u32 [p], t; ret; }"""


def run(checked=False):
    return nbtc.load(TEXT)["k"].launch(1, 64, (np.zeros(32, np.uint32),), checked=checked)


def test_checked():
    run()
    with launches(True, None):
        with pytest.raises(ProgramError, match="data race"):
            run()
        run("off")
        with launches(False, None), pytest.raises(ProgramError, match="data race"):
            run()
    run()


def test_profiles():
    found = []
    with launches(False, found):
        run()
        run("off")
        with pytest.raises(ProgramError, match="data race"):
            run(True)
    run()
    assert [p.total.executed for p in found] == [16, 16]


@pytest.mark.parametrize(("checked", "profiles", "says"), [(1, None, "True"), (False, {}, "list"), (True, [], "both")])
def test_bad_wishes(checked, profiles, says):
    with pytest.raises(OptionError, match=says), launches(checked, profiles):
        pass
