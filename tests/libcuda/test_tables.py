"""The tables of functions, and the libraries that are written from them."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess

import pytest
from clients import python

from nbtc.libcuda.command import environment
from nbtc.libcuda.library import elf
from nbtc.libcuda.library.boot import python_library
from nbtc.libcuda.library.files import folder
from nbtc.libcuda.rows import SONAMES, rows


def implementations(which):
    import nbtc.libcuda.driver
    import nbtc.libcuda.runtime  # noqa: F401
    from nbtc.libcuda.compilers.linker import LINKER
    from nbtc.libcuda.compilers.nvrtc import NVRTC
    from nbtc.libcuda.registry import DRIVER, RUNTIME

    return {"driver": DRIVER, "runtime": RUNTIME, "nvrtc": NVRTC, "nvjitlink": LINKER}[which]


@pytest.mark.parametrize("which", SONAMES)
def test_every_implementation_has_a_row_and_takes_what_that_says(which):
    known = {row.name: row for row in rows(which)}
    for name, function in implementations(which).items():
        row = known[name]
        inspect.signature(function).bind(*row.arguments)


@pytest.mark.parametrize("which", SONAMES)
def test_the_variants_for_threads_streams_take_the_same(which):
    from nbtc.libcuda.registry import implementation

    for row in rows(which):
        found = implementation(implementations(which), row.name)
        if found is not None:
            inspect.signature(found).bind(*row.arguments)


def test_libraries_export_every_row_and_looking_starts_nothing():
    python("""
from nbtc.libcuda.rows import rows
for library, which in ((cu, "driver"), (rt, "runtime")):
    for row in rows(which):
        library[row.name]
assert "nbtc.libcuda.attach" not in sys.modules
try:
    cu.nothing
except AttributeError:
    pass
else:
    sys.exit("a function that isn't there was found")
""")


def test_hashes_are_those_of_the_abi():
    assert elf.gnu_hash("printf") == 0x156B2BB8  # of the GNU hash table's description
    assert elf.sysv_hash("printf") == 0x077905A6


def test_a_library_is_the_same_each_time():
    from nbtc.libcuda.library.boot import IMPORTS, boot_object

    names = [row.name for row in rows("driver")]
    first, second = (
        elf.Library("x.so", names, IMPORTS, boot_object("driver", names, "/x"), None).write() for _ in "ab"
    )
    assert first == second


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a linker")
@pytest.mark.skipif(python_library() is None, reason="this Python has no shared library")
def test_programs_are_linked_with_the_libraries(tmp_path):
    source, program, env = tmp_path / "x.c", tmp_path / "x", environment(os.environ)
    source.write_text("int cuInit(unsigned), cudaDeviceSynchronize(void);\nint main() { return cuInit(0) + 8 * WHAT; }")
    versioned = ["-DWHAT=cudaDeviceSynchronize()", f"-L{folder()}", "-lcudart"]
    for options in (["-DWHAT=0"], versioned):  # libcuda.so is found by the environment
        subprocess.run(["gcc", "-o", program, source, *options, "-lcuda"], check=True, env=env)
        assert subprocess.run([program], env=env).returncode == 0
    assert os.listdir(folder() / "stubs") == ["libcuda.so"]  # and no other library instead of the toolkit's
