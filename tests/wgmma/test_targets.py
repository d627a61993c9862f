"""Processors without AVX-512, or without AVX2: recorded wgmma, every kernel of theirs once, in a process of its own.

Each form runs on one of the two, and with the slow tests on both: `gemm/test_targets.py` has the sums that these
kernels share with whole products on both in any case.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nbtc.testing.hosts import HOSTS, OTHERS
from tests.processes import fresh, output

# of each kernel a form: sums of products of f64 and of f32, bytes that saturate, bits, rows on plain vectors
FORMS = (
    "wg_m64n24k16_f16_f16_f16_ss",
    "wg_m64n24k32_f32_e4m3_e5m2_rs",
    "wg_m64n8k32_s32_s8_u8_sat_ss",
    "wg_m64n24k256_s32_b1_b1_and_ss",
    "wgsp_m64n8k32_f32_bf16_bf16_ss_sel1",
)
RUN = """
import json, sys
import numpy as np
from nbtc.compiler.cpu.host import features
from nbtc.ptx import wgmma

print("avx512f" in features())
with np.load(sys.argv[1]) as z:
    index = json.loads(z["index"].tobytes())
    for name in sys.argv[2:]:
        e, outputs = index[name], 0
        for head in {k.rsplit("__", 1)[0] for k in z.files if k.startswith(name + "__")}:
            x = {n: z[f"{head}__{n}"] for n in ("S", "desc", "A", "C", "D", "E") if f"{head}__{n}" in z.files}
            options = {"scale_a": e["sa"], "scale_b": e["sb"], "trans_a": e["ta"], "trans_b": e["tb"]}
            if e["sparse"]:
                options |= {"meta": x["E"], "selector": e["sel"]}
            if head.endswith("scd0"):
                options["scale_d"] = 0
            a = x["A"] if e["areg"] else x["desc"][:, 0]
            d = wgmma(e["op"], x["C"], a, x["desc"][:, 1], x["S"], **options)
            if d.tobytes() != x["D"].tobytes():
                raise SystemExit(f"{head}: {(d != x['D']).sum()} outputs differ")
            outputs += d.size
        print(name, outputs)
"""


CASES = [
    pytest.param(name, FORMS[(i + j) % 2 :: 2], marks=[pytest.mark.slow] * j, id=f"{name}-{(i + j) % 2}")
    for i, name in enumerate(("avx2", "generic"))
    for j in (0, 1)
    if name in OTHERS  # test_wgmma.py replays everything on this one
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "forms"), CASES)
def test_target(name: str, forms: tuple[str, ...]) -> None:
    golden = Path(__file__).parents[1] / "golden" / "wgmma.npz"
    wide, *lines = output(fresh(RUN, str(golden), *forms, **HOSTS[name]), timeout=600).splitlines()
    assert wide == "False"
    assert [(form, int(n) > 0) for form, n in (line.split() for line in lines)] == [(form, True) for form in forms]
