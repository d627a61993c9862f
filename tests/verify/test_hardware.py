"""The comparison with hardware, run on nbtc's executor in the place of a GPU; with --hw on the GPU, every form.

Both come to the same results by different ways: the executor runs the kernel's text, the other side is what nbtc's
functions on arrays give.
"""

import json
import re

import numpy as np
import pytest

from nbtc.cli import main
from nbtc.errors import DeviceError, OptionError
from nbtc.executor.scalar.approx import MNEMONICS
from nbtc.instructions import instructions
from nbtc.isa.archs import target
from nbtc.verify.hardware import campaign, draws, products, sweeps
from nbtc.verify.hardware.families import FAMILIES, PROGRAMS, SWEEPS, rows
from nbtc.verify.hardware.trial import Emulated, Gpu, Trial, compare

TARGET = target("sm_90a")
# a few forms of each family, by their numbers in it: compiling a kernel for the executor takes about a second
SAMPLE = {
    "mma": (40,), "mma.sp": (0,), "wgmma": (768,), "wgmma.sp": (1024,), "wmma.load": (100,), "wmma.mma": (0,),
    "wmma.store": (1,), "ldmatrix": (5,), "stmatrix": (2,), "movmatrix": (0,), "cvt": (61,), "shfl": (2,),
    "redux": (2,), "vote": (3,), "match": (1,), "elect": (0,), "dpx": (33,), PROGRAMS: (4, 410, 503, 707),
    "approx": (16,),
}  # fmt: skip


@pytest.fixture(scope="module")
def machine(request):
    return Gpu() if request.config.getoption("--hw") else Emulated()


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, machine, request):
    """Every form on a GPU; on the executor some of them."""
    all_of_them = request.config.getoption("--hw")
    trials = list(FAMILIES[family](target(machine.target)))
    picked = range(len(trials)) if all_of_them else SAMPLE[family]
    assert picked
    failures = []
    for i in picked:
        outcome = compare(trials[i], machine, np.random.default_rng(i), trials[i].most or (64 if all_of_them else 3))
        if outcome.mismatches or not outcome.outputs:
            failures.append((trials[i].form, outcome))
    assert not failures


def test_f64_products_keep_their_rounding(machine):
    """A directed rounding of the longest chain: the sums of a program run in the mode of the form."""
    for row in rows(TARGET, "mma"):
        if "m16n8k16" in row.mnemonic and row.rounding == "rp":
            assert compare(products.product(row, 0, TARGET), machine, np.random.default_rng(1), 8).mismatches == 0


def test_every_form_of_the_target_has_a_trial():
    """What nbtc knows the arithmetic of, apart from barriers, fences and what has no result."""
    without = {"wgmma.sync", "fence", "bar.warp.sync", "nanosleep", "activemask", "dpx"}
    for family in {r.row.family for r in instructions(arch="sm_90")} - without:
        names = {r.mnemonic for r in rows(TARGET, family)}
        name = family.removesuffix(".sync").replace(".mma_async", "")
        tried = {t.form.split(",")[0] for t in FAMILIES[name](TARGET)}
        assert names == tried, family


def test_every_mixture_covers_its_format():
    """Drawn elements are of the format's words, and not all alike."""
    rng = np.random.default_rng(0)
    for row in rows(TARGET, "mma"):
        for kind in {k for m in draws.MIXTURES for k in m}:
            image = draws.register_image(rng, 4, row.a, kind)
            assert image.shape == (4, 32, row.a.registers) and image.dtype == np.uint32
            assert len(np.unique(image)) > 2, (row.mnemonic, kind)


class Wrong:
    """A machine that flips one bit of what the executor gives."""

    name, target, arch, driver_version = "a wrong machine", "sm_90a", "sm_90", "none"

    def __init__(self):
        self.right = Emulated()

    def run(self, body, blocks, threads, shared, inputs, outputs, maps=()):
        self.right.run(body, blocks, threads, shared, inputs, outputs, maps)
        outputs[0].reshape(-1)[5] ^= outputs[0].dtype.type(1)


def test_one_wrong_bit_is_found_and_named():
    trial = next(iter(FAMILIES["movmatrix"](TARGET)))
    outcome = compare(trial, Wrong(), np.random.default_rng(0), 2)
    assert outcome.mismatches == 1 and outcome.outputs == 64 and "array 0 at (0, 5)" in outcome.first


def test_a_campaign_counts_and_reports():
    report = campaign.campaign(["movmatrix", "elect"], outputs=2000, machine=Emulated())
    assert report.ok and report.total.outputs >= 2000 and report.total.forms == 2
    assert re.search(r"\| movmatrix \| 1 \| 1,\d+ \| 0 \|", report.table())
    data = json.loads(json.dumps(report.as_dict()))
    assert data["ok"] and data["families"]["elect"]["mismatches"] == 0 and data["seed"] == 0
    wrong = campaign.campaign(["movmatrix"], outputs=100, machine=Wrong())
    assert not wrong.ok and wrong.total.mismatches == 1 and "movmatrix" in wrong.failures[0]


def test_what_a_machine_refuses_is_a_failure_not_an_end():
    class Broken(Wrong):
        def run(self, *arguments):
            raise DeviceError("no such instruction")

    report = campaign.campaign(["movmatrix", "elect"], outputs=100, machine=Broken())
    assert not report.ok and len(report.failures) == 2 and "no such instruction" in report.failures[0]


def test_exhaustive_parts_are_all_inputs():
    """Parts of a conversion put together are every input once; both operands of a form with two are complete."""
    parts = [t for t in campaign.exhaustive_tasks(["mma", "cvt"], "sm_90a") if t.number == 0]
    assert sum(t.outputs for t in parts) == 1 << 32 and parts[1].start == parts[0].outputs
    words = np.arange(1 << 16, dtype=np.uint16) * np.uint16(sweeps.FACTOR & 0xFFFF) + np.uint16(1)
    assert len(np.unique(words)) == 1 << 16  # an odd factor permutes the words of any size


@pytest.mark.parametrize("number", [1])
def test_an_exhaustive_part(number, machine):
    task = next(t for t in campaign.exhaustive_tasks(["cvt"], "sm_90a") if t.number == number)
    start = min(task.outputs, 0x7F7FF000) if task.outputs > 1 << 16 else 0
    answer = campaign.run_task(task._replace(start=start, outputs=1 << 13), machine)
    assert (answer.outputs, answer.mismatches, answer.error) == (1 << 13, 0, "")


def test_every_sweep_of_a_family_is_every_form():
    conversions = {s.name for s in SWEEPS["cvt"](TARGET)}
    assert len(conversions) == 54 and not {t.form for t in FAMILIES["cvt"](TARGET)} < conversions
    functions = [s.name for s in SWEEPS["approx"](TARGET)]
    assert functions == [t.form for t in FAMILIES["approx"](TARGET)] == list(MNEMONICS)
    assert {s.name for s in SWEEPS["approx"](target("sm_80"))} == {n for n in MNEMONICS if "bf16" not in n}
    values = {s.name: s.values for s in SWEEPS["approx"](TARGET)}
    assert values["rcp.approx.ftz.f64"] == values["div.full.f32"] == 1 << 32 and values["tanh.approx.f16"] == 1 << 16


@pytest.mark.parametrize("name", ["div.full.f32", "rsqrt.approx.f64", "ex2.approx.f16"])
def test_a_sweep_of_words_of_each_width(name, machine):
    """Operands that the kernel makes are those that nbtc computes with: a pair, upper words, 16 bits."""
    sweep = next(s for s in SWEEPS["approx"](TARGET) if s.name == name)
    outcome = compare(sweep.trial(0x3F7FF000 % sweep.values), machine, np.random.default_rng(0), 32)
    assert (outcome.outputs, outcome.mismatches) == (1 << 13, 0)


def test_unknown_families_and_wrong_counts():
    with pytest.raises(OptionError, match="is not a family"):
        campaign.families(["tensor"])
    assert main(["verify", "--hw", "--only", "nothing"]) == 2
    for text in ("0", "1e99", "many", "-3"):
        with pytest.raises(SystemExit):
            main(["verify", "--hw", "--outputs", text])


def test_the_command_writes_its_report(tmp_path, monkeypatch, capsys):
    found = campaign.campaign(["movmatrix"], outputs=100, machine=Emulated())
    monkeypatch.setattr(campaign, "campaign", lambda *given, **more: found)
    assert main(["verify", "--hw", "--outputs", "1e3", "--report", str(tmp_path / "r.md")]) == 0
    assert "| movmatrix |" in capsys.readouterr().out and "| movmatrix |" in (tmp_path / "r.md").read_text()
    assert main(["verify", "--hw", "--json", "--report", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["ok"]


def test_trials_are_named_once():
    """A form's name is the key of its line in a report."""
    names = [t.form for make in (FAMILIES["mma.sp"], FAMILIES["wgmma"], FAMILIES["wmma.load"]) for t in make(TARGET)]
    assert len(set(names)) == len(names) and isinstance(next(iter(FAMILIES["cvt"](TARGET))), Trial)
