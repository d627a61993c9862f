"""Names of kernels' parameters in their source."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError, ProgramError
from nbtc.interop.signatures import parameter_names, pointees


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("__global__ void k(float *x, int n) {}", ("x", "n")),
        ("__global__ void k(float *x, // first, one\n int n /* (b */) {}", ("x", "n")),
        ("template <class T> __global__ void __launch_bounds__(8, 2) k(T const *__restrict__ a, T b[4]);", ("a", "b")),
        ("__global__ __launch_bounds__(64) void k(Two<int, float> p, int (&f)[2], int d = g(1, 2));", ("p", "", "d")),
        ("__global__ void k(void) {}", ()),
        ("__device__ void k(int other); __global__ void k2(int y);", None),
        ("__global__ void k(int a) {} __global__ void k(float b) {}", None),
        ("namespace n { __global__ void k(int a) {} } void f() { k<<<1, 2>>>(3); }", ("a",)),
    ],
)  # fmt: skip
def test_names_of_parameters(source, names):
    assert parameter_names(source, ["_Z1kPfi"]) == ({} if names is None else {"_Z1kPfi": names})


def test_messages_of_a_launch_take_them():
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry _Z1kPf(.param .u64 _Z1kPf_param_0)
{ .reg .b64 %rd<2>; ld.param.u64 %rd1, [_Z1kPf_param_0]; st.global.u32 [%rd1 + 40], 1; ret; }
"""
    module = nbtc.load(text)
    with pytest.raises(ProgramError, match=r"args\[0\]"):
        module["k"][1, 1](np.zeros(4, np.float32))
    module.parameters["_Z1kPf"] = ("values",)
    with pytest.raises(ProgramError, match="values"):
        module["k"][1, 1](np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("const float *x, float const* __restrict__ y, double* const z", ("float", "float", "double")),
        ("unsigned long long *a, float4 *b, float **c, T *d, int e, void *f", ("unsigned long long", *[""] * 5)),
        ("float *x[4], float (*f)(int), int &r", ("", "", "")),
    ],
)
def test_what_pointers_point_to(parameters, found):
    assert pointees(f"__global__ void k({parameters}) {{}}", ["_Z1kv"]) == {"_Z1kv": found}


def test_elements_of_another_size_than_the_sources_are_refused():
    text = ".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 k_param_0) { ret; }"
    module = nbtc.load(text)
    module.parameters["k"], module.pointees["k"] = ("x",), ("float",)
    for wrong in (np.zeros(4), np.zeros(4, np.int64), np.zeros(4, np.float16)):
        with pytest.raises(
            FormatError, match=rf"x is an array of {wrong.dtype}, .* float \*: .*x.astype\(np.float32\)"
        ):
            module["k"][1, 1](wrong)
    for right in (
        np.zeros(4, np.float32),
        np.zeros(4, np.uint32),
        np.zeros(16, np.uint8),
        np.zeros(2, np.complex64),
        0,
    ):
        module["k"][1, 1](right)
