"""Functions that programs share: a body depends on its name and on the setting, never on the program it was met in."""

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.build import instrument_named
from nbtc.executor.code import helpers
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse
from tests.executor.hazard_programs import hazards

SHAPE = BlockShape.of((128, 1, 1))
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
ATOMICS = """.visible .entry k(.param .u64 p) {{ .reg .b64 d; .reg .b32 a; .shared .b32 s[32]; ld.param.u64 d, [p];
atom{0}.global.add.f32 a, [d], 0f3F800000; atom{0}.shared.add.f32 a, [s], 0f3F800000; red{0}.global.add.f32 [d], a;
atom{0}.global.cas.b32 a, [d], 1, 2; ret; }}"""

ADD = """.visible .entry k(.param .u64 p) {{ .reg .b64 d; .reg .b32 a; ld.param.u64 d, [p];
atom.global.add.u32 a, [d], {}; ret; }}"""


def bodies(text, instrument, arch="sm_90"):
    """(setting, name) and text of the functions that a program calls, as if it were the first of the process."""
    helpers._HELPERS.clear()
    machine = Machine(link(parse(text), "k"), SHAPE, Options(arch, instrument=instrument), instrument_named(instrument))
    ((setting, made),) = helpers._HELPERS.items()
    assert made is machine.helpers
    said = [str(x).split(" = ")[1] for x in made.module.metadata]
    for f in made.module.functions:
        yield (setting, f.name), re.sub(r"!(\d+)\b", lambda found: said[int(found[1])], str(f))


@pytest.fixture
def first(monkeypatch):
    """A process that has met no program."""
    monkeypatch.setattr(helpers, "_HELPERS", {})


@pytest.mark.parametrize("instrument", ["", "watch", "profile"])
def test_bodies_are_the_same_in_every_program(instrument, first):
    texts = list({hazard.kind: hazard.text(True) for hazard in hazards()}.values())  # one of each kind
    texts += [HEAD + ATOMICS.format(x) for x in ("", ".relaxed.gpu", ".release.cta")]
    known, again = {}, 0
    for text in texts:
        for key, body in bodies(text, instrument):
            again += key in known
            assert known.setdefault(key, body) == body, key
    assert again > 50


def test_programs_of_a_setting_call_the_same_functions(first):
    texts = [HEAD + ATOMICS.format(x) for x in ("", ".relaxed.gpu")]
    machines = [Machine(link(parse(x), "k"), SHAPE, Options("sm_90")) for x in texts]
    assert machines[0].helpers is machines[1].helpers
    assert machines[0].helpers is not Machine(link(parse(texts[0]), "k"), SHAPE, Options("sm_80")).helpers


def test_half_a_function_is_forgotten(first, monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    real = helpers.Helpers.function

    def broken(self, name, result, arguments, build):
        def half(v, args):
            build(v, args)
            raise ProgramError("in the middle")

        return real(self, name, result, arguments, half if "nbtc_atom" in name else build)

    x = np.zeros(1, np.uint32)
    text = HEAD + ADD.format(2)
    with monkeypatch.context() as m:
        m.setattr(helpers.Helpers, "function", broken)
        with pytest.raises(ProgramError, match="in the middle"):
            nbtc.load(text)["k"][1, 1](x)
    assert not helpers._HELPERS
    nbtc.load(text)["k"][1, 1](x)
    assert x[0] == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_waits_for_no_thread(first):
    begun, end = threading.Event(), threading.Event()

    def emit():
        with helpers.emitting():
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=emit)
    thread.start()
    begun.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if helpers._STATE.lock.acquire(timeout=1) else 1)
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_threads_compile_programs_of_one_setting(first, monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))

    def run(n):
        x = np.zeros(1, np.uint32)
        nbtc.load(HEAD + ADD.format(n))["k"][1, 32](x)
        return int(x[0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [32 * n for n in range(8)]
