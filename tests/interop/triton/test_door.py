"""`emulated` itself: what it takes, what it puts back, and Triton's autotuner and hooks through it."""

import sys
from importlib import import_module
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
import triton
from triton import knobs, runtime
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

import nbtc
from nbtc import errors
from tests.interop.triton import kernels


def test_everything_is_put_back():
    before = [runtime.driver._active, triton.JITFunction.run, knobs.runtime.add_stages_inspection_hook]
    before.append(TensorDescriptor.__post_init__)
    with nbtc.triton.emulated("sm_80"):
        with pytest.raises(ZeroDivisionError), nbtc.triton.emulated("sm_90"):
            assert runtime.driver.active.get_current_target().arch == 90
            raise ZeroDivisionError
        assert runtime.driver.active.get_current_target().arch == 80
    after = [runtime.driver._active, triton.JITFunction.run, knobs.runtime.add_stages_inspection_hook]
    assert before == [*after, TensorDescriptor.__post_init__]


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.int64])
def test_element_types(dtype):
    x, out = np.arange(100).astype(dtype), np.zeros(100, dtype)
    with nbtc.triton.emulated():
        kernels.add[(1,)](x, x, out, 100, BLOCK=128)
    assert (out == x + x).all()


class Pair(NamedTuple):
    x: np.ndarray
    y: np.ndarray


def test_tuples():
    x, y, z, out = np.arange(256, dtype=np.int32).reshape(4, 64) ** 2 % 23
    with nbtc.triton.emulated():
        kernels.tuples[(1,)](Pair(x, y), (z, 5), out, BLOCK=64)
    assert (out == (x - y) * 5 + z).all()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_descriptors_that_pad_with_nan(dtype):
    x, out = np.arange(256).reshape(16, 16).astype(dtype), np.zeros((16, 16), dtype)
    with nbtc.triton.emulated():
        kernels.corner[(1,)](TensorDescriptor.from_tensor(x, [16, 16], padding="nan"), out, BLOCK=16)
        with pytest.raises(AssertionError, match="floating point"):
            TensorDescriptor.from_tensor(x.astype(np.int32), [16, 16], padding="nan")
    assert (out[:8, :8] == x[8:, 8:]).all() and np.isnan(out[8:]).all() and np.isnan(out[:, 8:]).all()


def test_scalars():
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    with nbtc.triton.emulated():
        for factor in (-3, 2**40, 0.1, True, 1):
            kernels.scaled[(1,)](x, out, 100, factor, BLOCK=128)
            assert (out == x * np.float32(factor)).all()


def test_grids():
    x = np.zeros(100, np.int32)
    with nbtc.triton.emulated():
        kernels.add_in_place[lambda options: (triton.cdiv(100, options["BLOCK"]),)](x, 100, BLOCK=32, num_warps=1)
        kernels.add_in_place[(0,)](x, 100, BLOCK=32, num_warps=1)
        compiled = kernels.add_in_place.warmup(x, 100, BLOCK=32, num_warps=1, grid=(1,))
        assert (x == 1).all()
        compiled[(1, 1, 1)](x, 100, 32)
        with pytest.raises(nbtc.errors.OptionError, match=r"takes 3 arguments.*; 2 were given"):
            compiled[(1, 1, 1)](x, 100)
    assert (x[:32] == 2).all() and (x[32:] == 1).all()
    assert ".target sm_90a" in compiled.asm["ptx"]


def test_the_tuner_chooses_for_each_device():
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 64)]
    tuned = triton.autotune(configs, key=["n"], reset_to_zero=["x"])(kernels.add_in_place)
    x = np.full(64, 5, np.int32)
    for arch in ("sm_80", "sm_90"):
        x[:] = 5
        with nbtc.triton.emulated(arch):
            tuned[lambda options: (triton.cdiv(64, options["BLOCK"]),)](x, 64)
        assert tuned.best_config in configs and (x == 1).all()
    assert not tuned.cache


def test_the_first_configuration_without_timing(monkeypatch):
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (16, 32, 64)]
    pruned = {"early_config_prune": lambda configs, named, **_: [c for c in configs if c.kwargs["BLOCK"] >= named["n"]]}
    tuned = triton.autotune(configs, key=["n"], prune_configs_by=pruned)(kernels.add_in_place)
    monkeypatch.setattr(tuned, "_bench", lambda *_, **__: pytest.fail("a configuration was timed"))
    x = np.zeros(64, np.int32)
    with nbtc.triton.emulated(autotune="first"):
        for n, expected in ((20, 1), (64, 2)):
            tuned[lambda options: (triton.cdiv(64, options["BLOCK"]),)](x[:64], n)
            assert tuned.best_config is configs[expected]
    assert (x[:20] == 2).all() and (x[20:] == 1).all() and tuned.configs is configs


def test_the_first_configuration_that_the_device_can_run():
    configs = [triton.Config({"BLOCK": 64}, num_warps=warps) for warps in (64, 32, 1)]  # 2,048 threads are too many
    tuned = triton.autotune(configs, key=["n"])(kernels.add_in_place)
    x = np.zeros(64, np.int32)
    with nbtc.triton.emulated(autotune="first"):
        tuned[(1,)](x, 64)
        assert tuned.best_config is configs[1] and (x == 1).all()
        tuned.configs = configs[:1]
        with pytest.raises(OutOfResources, match="2048"):
            tuned[(1,)](x, 64)
    assert (x == 1).all()


def test_the_first_configuration_that_fits():
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (16, 32, 64)]
    tuned = triton.autotune(configs, key=["n"])(kernels.add_in_blocks_of_32)
    x = np.zeros(64, np.int32)
    with nbtc.triton.emulated(autotune="first"):
        tuned[lambda options: (triton.cdiv(64, options["BLOCK"]),)](x, 64)
        assert tuned.best_config is configs[1] and (x == 1).all()
        none = triton.autotune([configs[0], configs[2]], key=["n"])(kernels.add_in_blocks_of_32)
        with pytest.raises(CompileTimeAssertionFailure):
            none[(1,)](x, 64)
    assert (x == 1).all()


class OwnRun(triton.runtime.Autotuner):
    """As libraries have them: `run` is their own, and times what pruning leaves."""

    def run(self, *args, **options):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        timed = {c: self._bench(*args, config=c, **options) for c in self.prune_configs(options)}
        self.best_config = min(timed, key=timed.get)
        return self.fn.run(*args, **options, **self.best_config.all_kwargs())


def test_the_first_configuration_of_tuners_of_other_kinds(monkeypatch):
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (16, 32, 64)]
    tuned = triton.autotune(configs, key=["n"])(kernels.add_in_place)
    monkeypatch.setattr(tuned, "__class__", OwnRun)
    x = np.zeros(64, np.int32)
    with nbtc.triton.emulated(autotune="first"):
        tuned[lambda options: (triton.cdiv(64, options["BLOCK"]),)](x, 64)
    assert tuned.best_config is configs[0] and (x == 1).all()
    with nbtc.triton.emulated():
        tuned[lambda options: (triton.cdiv(64, options["BLOCK"]),)](x, 64)
    assert (x > 2).all()  # timed too


def test_bad_autotune():
    with pytest.raises(errors.OptionError, match=r"autotune='best'.*first"), nbtc.triton.emulated(autotune="best"):
        pass


def test_slices_reach_their_allocation_and_no_further():
    x = np.zeros(128, np.int32)
    with nbtc.triton.emulated():
        kernels.add_in_place[(1,)](x[:32], 64, BLOCK=64, num_warps=2)
        assert (x[:64] == 1).all() and (x[64:] == 0).all()
        with pytest.raises(errors.ProgramError, match="outside"):
            kernels.add_in_place[(1,)](x, 129, BLOCK=256)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    x, out = torch.arange(100, dtype=torch.bfloat16), torch.zeros(200, dtype=torch.bfloat16)
    with nbtc.triton.emulated():
        kernels.add[(1,)](x, x, out[50:], 100, BLOCK=128)
        assert triton.runtime.driver.active.get_active_torch_device() == x.device
    assert torch.equal(out[50:150], x + x) and not out[:50].any()


def test_an_array_as_a_tensor():
    x = np.zeros((3, 4), np.float32)
    y = nbtc.triton.tensor(x)
    assert y.stride() == (4, 1) and y.stride(1) == 1 and y.data_ptr() == x.ctypes.data and y.element_size() == 4
    y.copy_(np.ones(4))
    assert x.all() and y.clone().zero_().sum() == 0 and x.all() and y.numel() == 12


def test_bad_architecture():
    with pytest.raises(errors.ArchError, match="sm_70"), nbtc.triton.emulated("sm_70"):
        pass


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [m for m in sys.modules if m == "nbtc.triton" or m.startswith("nbtc.triton")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(errors.MissingExtraError, match=r"nbtc\[triton\]"):
        import_module("nbtc.triton")


def test_a_race_names_the_array_that_a_table_of_addresses_leads_to():
    """What the table leads to is the whole mapping around the array."""
    x = np.ones(128, np.float32)
    with nbtc.triton.emulated("sm_80", checked=True), pytest.raises(errors.ProgramError, match=r"byte 12 of x\b"):
        kernels.marked[(1,)](np.array([x.ctypes.data, 3]), x, 128)


def test_launches_are_checked_or_counted():
    x, found = np.arange(128, dtype=np.float32), []
    with nbtc.triton.emulated("sm_80", checked=True), pytest.raises(errors.ProgramError, match="data race"):
        kernels.reversed_in_place[(1,)](x, N=128)
    with nbtc.triton.emulated("sm_80", profiles=found):
        kernels.reversed_in_place[(2,)](x, N=128)
    assert len(found) == 1
    assert found[0].opcodes["st"] == 8
