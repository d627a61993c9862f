"""Names of kernels, as C++ and Numba mangle them, in the words of their source."""

import sys

import pytest

import nbtc
from nbtc import errors
from nbtc.executor.text.names import full_name, plain_name, signature

NUMBA = "_ZN8__main__3redB2v3B9cw51cXTLSE5ArrayIfLi1E1C7mutable7alignedE5ArrayIfLi1E1C7mutable7alignedE"
needs_library = pytest.mark.skipif(sys.platform == "win32", reason="its C++ library has another demangler")


@needs_library
@pytest.mark.parametrize(
    ("mangled", "types", "full", "plain"),
    [
        ("add", "add", "add", "add"),
        ("_Z3addPf", "add(float*)", "add", "add"),
        ("_Z4axpyIfEvT_PKS0_i", "axpy<float>(float, float const*, int)", "axpy<float>", "axpy"),
        ("_Z4callIFviEEvT_", "call<void (int)>(void (int))", "call<void (int)>", "call"),
        (NUMBA, "__main__::red(Array<float, 1, C>, Array<float, 1, C>)", "__main__::red", "red"),
        ("_Zno_name", "_Zno_name", "_Zno_name", "_Zno_name"),
    ],
)
def test_what_a_mangled_name_says(mangled, types, full, plain):
    assert (signature(mangled), full_name(mangled), plain_name(mangled)) == (types, full, plain)


@needs_library
def test_instances_of_a_template_are_told_apart():
    entries = "".join(f".visible .entry {name}() {{ ret; }}" for name in ("_Z1fIfEvv", "_Z1fIdEvv", "_Z1gv"))
    module = nbtc.load(f".version 8.0 .target sm_80 .address_size 64 {entries}")
    assert module["f<double>"].name == module["f<double>()"].name == "_Z1fIdEvv"
    assert module["g"].name == module["_Z1gv"].name == "_Z1gv"
    assert repr(module["f<float>"]) == "<kernel f<float> on sm_80, 0 parameters>"
    with pytest.raises(
        errors.ProgramError, match=r"'f' is ambiguous \(f<float>\(\), f<double>\(\)\); kernels: .*g\(\)"
    ):
        module["f"]


@needs_library
def test_errors_have_the_names_of_the_source():
    body = "{ .reg .b64 a; mov.b64 a, 64; st.global.b32 [a], 0; ret; }"
    module = nbtc.load(f".version 8.0 .target sm_80 .address_size 64 .visible .entry _Z1fIfEvv() {body}")
    with pytest.raises(errors.ProgramError, match=r"^f<float>: line 1: st\.global\.b32: writes outside"):
        module["f"][1, 1]()
