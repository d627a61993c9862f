"""Where rows of `models` come from that no recording of nbtc decides: a publication, and what in it decides.

Three publications, the first two with data or code that decide a row, the third with the forms that exist:

* F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004, with recordings of V100, A100,
  A2, L40S, RTX 1000 Ada, H100, H200 and B200 (github.com/north-numerical-computing/MATLAB-tensor-core, folder
  `model_validation`): 5,000 inner products a GPU and format.  Inputs are near one, so they decide the number of
  products in a block, the places of the alignment and the rounding; not the exponent that a zero counts as, nor NaN.
* P. Xie, Y. Wang, F. Yang, M. Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores",
  arXiv:2511.10909 (github.com/microsoft/MMA-Sim, `mmasim/simulator/nv.py`): `arch_accum_fractional_bits` decides the
  places, `is_split_k` the products in a block, the branches of `MMASim` and `TCGen05MMASim` which sum a form has.
* NVIDIA, "PTX ISA", for what a unit is: not for how it rounds.
"""

from __future__ import annotations

_RECORDED = "arXiv:2512.07004, model_validation: 5,000 inner products of "
_SIM = "arXiv:2511.10909, mmasim/simulator/nv.py: "
_PLACES = _SIM + "arch_accum_fractional_bits and is_split_k"
_NO_UNIT = (
    "no publication: recorded on an H200 (sm_90), which does this form on other units than the tensor core; taken to "
    "hold wherever the PTX ISA says that m8n8k4 of f16 is for sm_70"
)

_BY_UNIT: dict[tuple[str, str], str] = {
    ("sm_70", "mma"): _RECORDED + "a V100, f16",
    ("sm_70", "quad"): _RECORDED + "a V100, f16",
    ("sm_75", "mma"): _PLACES + ", Turing",
    ("sm_75", "quad"): "no publication: the row of sm_70, for which the PTX ISA says that m8n8k4 is",
    ("sm_80", "mma"): _RECORDED + "an A100 and an A2",
    ("sm_89", "mma"): _RECORDED + "an L40S and an RTX 1000 Ada",
    ("sm_100", "mma"): _RECORDED + "a B200",
    (
        "sm_100",
        "wmma",
    ): "arXiv:2512.07004 (tf32 came through WMMA at K = 4); two blocks, as an H200 has them",
    ("sm_100", "tcgen05"): _SIM + "TCGen05MMASim",
    ("sm_120", "mma"): _PLACES + ", RTX Blackwell",
    ("sm_120", "wmma"): "no publication of WMMA here: blocks as an H200 has them, places as of sm_120's mma",
    ("sm_100", "scaled"): _SIM + "TCGen05MMASim, kind mxf8f6f4",
    ("sm_120", "scaled"): _SIM + "MMASim, kind mxf8f6f4",
    ("sm_100", "grouped"): _SIM + "TCGen05MMASim, kinds mxf4 and mxf4nvf4 (35 places, groups of 16)",
    ("sm_120", "grouped"): _SIM + "MMASim, kinds mxf4 and mxf4nvf4 (35 places, groups of 16)",
    ("sm_80", "quad"): _NO_UNIT,
    ("sm_89", "quad"): _NO_UNIT,
    ("sm_100", "quad"): _NO_UNIT,
    ("sm_120", "quad"): _NO_UNIT,
}
_INTEGERS = "integers: the PTX ISA (tcgen05.mma, kind::i8), which leaves no rounding open"


def of(arch: str, unit: str, kind: str) -> str:
    """What decides the rows of an architecture's unit; empty where that is a recording.  kind: "INTEGER", "FUSED", ...

    >>> of("sm_89", "mma", "FUSED")
    'arXiv:2512.07004, model_validation: 5,000 inner products of an L40S and an RTX 1000 Ada'
    """
    return _INTEGERS if kind == "INTEGER" else _BY_UNIT.get((arch, unit), "")
