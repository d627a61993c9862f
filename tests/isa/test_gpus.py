"""GPUs as rows: every spelling of `arch=` finds one, and a wrong row can't be made."""

import dataclasses

import numpy as np
import pytest

import nbtc
from nbtc.isa import gpus
from nbtc.isa.archs import ARCHS, arch, gpu, target

NAMES = {
    "H100": "sm_90", "h 100 sxm": "sm_90", "H100 PCIe": "sm_90", "NVIDIA H200": "sm_90", "a100": "sm_80",
    "A100-40GB": "sm_80", "L40S": "sm_89", "RTX 4090": "sm_89", "rtx4090": "sm_89", "GeForce RTX 5090": "sm_120",
    "B200": "sm_100", "Tesla T4": "sm_75", "v100": "sm_70", "compute_90": "sm_90", "SM_90A": "sm_90", "sm90": "sm_90",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_spellings(name):
    assert arch(name).name == NAMES[name]
    assert gpu(name).arch == NAMES[name]


def test_every_architecture_has_a_gpu_and_its_limits():
    for name in ARCHS:
        assert gpu(name).capability.arch == name
    assert gpu("sm_90").name == "NVIDIA H100 80GB HBM3" and gpu("sm_90a") is gpu(90)
    assert gpu(gpu("T4")) is gpu("T4")


def test_a_gpu_has_all_forms_of_its_architecture():
    assert str(target("H200")) == "sm_90a" and str(target("A100")) == "sm_80"


def test_wherever_an_architecture_is_taken():
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8).astype(np.float16)
    nbtc.testing.assert_bits_equal(nbtc.matmul(x, x, arch="A100"), nbtc.matmul(x, x, arch="sm_80"))
    m = nbtc.load(".version 8.0 .target sm_80 .address_size 64 .visible .entry k() { ret; }", arch="RTX 4090")
    assert m["k"].arch == "sm_89" and m["k"].on("h100").arch == "sm_90"
    assert nbtc.instructions(arch="H100") == nbtc.instructions(arch="sm_90a")


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(nbtc.errors.ArchError, match="the GPUs 'V100'"):
        arch("H999")


@pytest.mark.parametrize(
    "change", [{"l2": 0}, {"bus_width": 100}, {"clock": 1980}, {"arch": "sm_91"}, {"sources": (("colour", "?"),)}]
)
def test_a_wrong_row_cannot_be_made(change):
    with pytest.raises(ValueError):
        dataclasses.replace(gpu("H100"), **change)
    with pytest.raises(ValueError):
        dataclasses.replace(gpus.CAPABILITIES["sm_90"], shared_block_optin=229 << 10)
