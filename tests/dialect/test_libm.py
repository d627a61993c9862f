"""Elementary functions: as Python they are compared with 80-bit arithmetic, and in kernels they have the same bits."""

import math
from fractions import Fraction

import numpy as np
import pytest

import nbtc
from nbtc.dialect.libm import elementary, gamma, trigonometric
from nbtc.dialect.libm.constants import HALF_PI_EXACT

EXTENDED = np.finfo(np.longdouble).nmant >= 63
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, 2.0**-1030, 1e308, -1e308, 0.5, 3.0, -2.0]
FAR = [1e10, 2.0**40, 6381956970095103 * 2.0**797, 1e22, 2.0**1023, 3.0**40, 1e300, 2.0**25, 33554433.5]


def fma(x, y, z):
    x, y, z = float(x), float(y), float(z)
    if not all(map(math.isfinite, (x, y, z))):
        return np.float64(x) * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return np.float64(x * y + z if exact == 0 else float(exact))
    except OverflowError:
        return np.float64(math.inf if exact > 0 else -math.inf)


@pytest.fixture
def in_python(monkeypatch):
    """The four words of kernels that Python lacks."""
    for module in (elementary, trigonometric, gamma):
        monkeypatch.setattr(module, "fma", fma)
    for module in (elementary, trigonometric):
        monkeypatch.setattr(module, "bits_of", lambda x: np.float64(x).view(np.int64))
    monkeypatch.setattr(elementary, "of_bits", lambda x: np.int64(x).view(np.float64))
    monkeypatch.setattr(trigonometric, "high_product", lambda x, y: np.uint64(int(x) * int(y) >> 64))
    with np.errstate(all="ignore"):
        yield


def units(found, exact):
    """How far results are off, in units of their last place."""
    spacing = np.spacing(np.abs(exact.astype(np.float64))).astype(np.longdouble)
    return np.abs((found.astype(np.longdouble) - exact) / spacing).max()


def same(found, wanted):
    """Zeros, infinities and NaNs agree, and the rest nearly."""
    exact = np.isnan(wanted) | np.isinf(wanted) | (wanted == 0)
    bits = (found.view(np.uint64) == wanted.view(np.uint64)) | (np.isnan(found) & np.isnan(wanted))
    return bits[exact].all() and np.allclose(found[~exact], wanted[~exact], rtol=1e-15, atol=0)


# name, reference, interval, units in the last place that it may be off
ONE = [
    ("exp", np.exp, (-740, 709), 1),
    ("exp2", np.exp2, (-1070, 1023), 1),
    ("expm1", np.expm1, (-3, 3), 2),
    ("log", np.log, (0, 4), 0.51),
    ("log2", np.log2, (0, 4), 0.51),
    ("log10", np.log10, (0, 4), 0.51),
    ("log1p", np.log1p, (-1, 3), 1),
    ("sin", np.sin, (-100, 100), 1),
    ("cos", np.cos, (-100, 100), 1),
    ("tan", np.tan, (-100, 100), 2),
    ("asin", np.arcsin, (-1, 1), 2),
    ("acos", np.arccos, (-1, 1), 2),
    ("atan", np.arctan, (-5, 5), 1),
    ("sinh", np.sinh, (-5, 5), 3),
    ("cosh", np.cosh, (-5, 5), 2),
    ("tanh", np.tanh, (-3, 3), 3),
    ("asinh", np.arcsinh, (-3, 3), 2),
    ("acosh", np.arccosh, (1, 4), 2),
    ("atanh", np.arctanh, (-1, 1), 2),
]
MODULES = (elementary, trigonometric, gamma)


def found_in(name):
    """The function of a name."""
    return next(getattr(room, name) for room in MODULES if hasattr(room, name))


@pytest.mark.skipif(not EXTENDED, reason="needs 80-bit long double as the reference")
@pytest.mark.parametrize("name, reference, interval, most", ONE, ids=[row[0] for row in ONE])
def test_functions_of_one_argument(name, reference, interval, most, in_python):
    function = found_in(name)
    x = np.random.default_rng(7).uniform(*interval, 200)
    found = np.array([function(v) for v in x], np.float64)
    assert units(found, reference(x.astype(np.longdouble))) <= most
    special = np.array(SPECIAL)
    assert same(np.array([function(v) for v in special], np.float64), reference(special))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles(name, in_python):
    exact = []
    for v in FAR:  # not by the system's functions, some of which are off
        quarters = round(Fraction(v) / HALF_PI_EXACT)
        rest = float(Fraction(v) - quarters * HALF_PI_EXACT)
        s, c = math.sin(rest), math.cos(rest)
        s, c = [(s, c), (c, -s), (-s, -c), (-c, s)][quarters % 4]
        exact.append({"sin": s, "cos": c, "tan": s / c}[name])
    found = np.array([getattr(trigonometric, name)(np.float64(v)) for v in FAR])
    assert units(found, np.array(exact, np.longdouble)) <= 3


@pytest.mark.skipif(not EXTENDED, reason="needs 80-bit long double as the reference")
@pytest.mark.parametrize(
    "name, reference, most", [("power", np.power, 1), ("atan2", np.arctan2, 2), ("hypot", np.hypot, 1)]
)
def test_functions_of_two_arguments(name, reference, most, in_python):
    function = getattr(elementary, name, None) or getattr(trigonometric, name)
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2, 200)) * 10
    if name == "power":
        x, y = np.abs(x) + 0.1, y * 5
    found = np.array([function(*p) for p in zip(x, y, strict=True)], np.float64)
    assert units(found, reference(x.astype(np.longdouble), y.astype(np.longdouble))) <= most
    a, b = np.array([(a, b) for a in SPECIAL for b in SPECIAL]).T
    assert same(np.array([function(*p) for p in zip(a, b, strict=True)], np.float64), reference(a, b))


def test_remainder_is_exact(in_python):
    rng = np.random.default_rng(9)
    x, y = rng.integers(0, 0x7FF0 << 48, (2, 300)).view(np.float64)
    special = [(a, b) for a in SPECIAL for b in SPECIAL]
    pairs = [*zip(x, y, strict=True), *zip(-x, y, strict=True), *special]
    for a, b in pairs:
        found, wanted = np.float64(elementary.fmod(np.float64(a), np.float64(b))), np.fmod(a, b)
        assert found.tobytes() == wanted.tobytes() or (np.isnan(found) and np.isnan(wanted)), (a, b)


def test_erf(in_python):
    x = np.random.default_rng(10).uniform(-6.5, 6.5, 200)
    found = np.array([elementary.erf(v) for v in x])
    assert units(found, np.array([math.erf(v) for v in x], np.longdouble)) <= 6
    assert elementary.erf(np.inf) == 1 and elementary.erf(-np.inf) == -1 and np.isnan(elementary.erf(np.nan))


def test_erfc(in_python):
    x = np.concatenate([np.random.default_rng(10).uniform(-6, 26, 300), np.linspace(0.4, 2.5, 100)])
    found = np.array([gamma.erfc(v) for v in x])
    assert units(found, np.array([math.erfc(v) for v in x], np.longdouble)) <= 7
    assert gamma.erfc(np.inf) == 0 and gamma.erfc(-np.inf) == 2 and np.isnan(gamma.erfc(np.nan))
    assert gamma.erfc(np.float64(27.0)) == pytest.approx(math.erfc(27.0), abs=2e-323)  # among subnormal numbers


ROOT_PI = Fraction(math.isqrt(round(HALF_PI_EXACT * 2 * (1 << 400))), 1 << 200)


def halves(n):
    """gamma(n + 1/2), n below 0 too: sqrt(pi) by the recurrence."""
    found = ROOT_PI
    for k in range(n):
        found *= Fraction(2 * k + 1, 2)
    for k in range(-n):
        found /= Fraction(-2 * k - 1, 2)
    return found


def test_gamma_of_whole_numbers_and_halves(in_python):
    x = [np.float64(n) for n in range(1, 172)] + [np.float64(n + 0.5) for n in range(-170, 171)]
    exact = [Fraction(math.factorial(n)) for n in range(171)] + [halves(n) for n in range(-170, 171)]
    for v, wanted in zip(x, exact, strict=True):
        off = abs(Fraction(float(gamma.gamma(v))) - wanted) / Fraction(float(np.spacing(abs(float(wanted)))))
        assert off <= 3, (v, float(off))


def test_gamma_everywhere(in_python):
    rng = np.random.default_rng(12)
    x = np.concatenate([rng.uniform(-30, 30, 200), rng.uniform(-1, 1, 100), [1e-300, -1e-20, 171.62, 1e-310]])
    found = np.array([gamma.gamma(v) for v in x])
    wanted = np.array([math.gamma(v) if abs(v) > 1e-308 else np.inf for v in x])
    assert np.allclose(found, wanted, rtol=3e-15, atol=0)
    assert [gamma.gamma(np.float64(v)) for v in (0.0, -0.0, np.inf, 172.0)] == [np.inf, -np.inf, np.inf, np.inf]
    assert all(np.isnan(gamma.gamma(np.float64(v))) for v in (-1.0, -2.0, -1e17, -np.inf, np.nan))
    assert [math.copysign(1, gamma.gamma(np.float64(v))) for v in (-401.5, -402.5)] == [1, -1]


def test_lgamma(in_python):
    rng = np.random.default_rng(13)
    x = np.concatenate([rng.uniform(0, 40, 200), 10 ** rng.uniform(1, 305, 50), [2 + 1e-9, 1 - 1e-9, 1e-310]])
    for v in x:
        assert math.isclose(gamma.lgamma(v), math.lgamma(v), rel_tol=2e-15, abs_tol=2e-15), v
    for v, slope in ((2.0, 1 - np.euler_gamma), (1.0, -np.euler_gamma)):  # zeros, where it loses nothing
        for z in (2.0**-30, -(2.0**-30)):
            assert gamma.lgamma(np.float64(v + z)) == pytest.approx(slope * z, rel=2e-9)
    for v in rng.uniform(-50, 0, 200):  # it has zeros there, where the error stays what it is
        assert math.isclose(gamma.lgamma(v), math.lgamma(v), rel_tol=4e-15, abs_tol=4e-15), v
    whole = [0.0, -1.0, -7.0, -1e300, np.inf, -np.inf]
    assert all(gamma.lgamma(np.float64(v)) == np.inf for v in whole) and np.isnan(gamma.lgamma(np.float64(np.nan)))


@nbtc.kernel
def in_a_kernel(x, y, out):
    i = nbtc.grid(1)
    out[0, i] = math.exp(x[i])
    out[1, i] = math.log(y[i])
    out[2, i] = x[i] % y[i]


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
def test_kernels_compute_the_same_bits(dtype, request):
    rng = np.random.default_rng(11)
    with np.errstate(over="ignore"):
        x = np.concatenate([rng.normal(size=50) * 30, SPECIAL]).astype(dtype)
        y = np.concatenate([rng.normal(size=50) ** 2, SPECIAL]).astype(dtype)
    out = np.zeros((3, 64), dtype)
    in_a_kernel[2, 32](x, y, out)
    request.getfixturevalue("in_python")
    wide = x.astype(np.float64), y.astype(np.float64)
    for found, function, arguments in ((out[0], elementary.exp, wide[:1]), (out[1], elementary.log, wide[1:])):
        wanted = np.array([function(*p) for p in zip(*arguments, strict=True)], np.float64).astype(dtype)
        assert (found.view(f"u{x.itemsize}") == wanted.view(f"u{x.itemsize}"))[~np.isnan(wanted)].all()
        assert np.isnan(found[np.isnan(wanted)]).all()
    usual = slice(0, 50)
    assert (out[2, usual] == x[usual] % y[usual]).all()


@nbtc.kernel
def special_functions(x, out):
    i = nbtc.grid(1)
    out[0, i] = math.gamma(x[i])
    out[1, i] = np.float32(math.erfc(np.float32(x[i])))


def test_special_functions_of_kernels_have_the_same_bits(request):
    x = np.concatenate([np.random.default_rng(14).normal(size=50) * 8, SPECIAL])
    out = np.zeros((2, 64))
    special_functions[2, 32](x, out)
    request.getfixturevalue("in_python")
    wide = np.array([gamma.gamma(v) for v in x], np.float64)
    narrow = np.array([np.float32(gamma.erfc(np.float64(np.float32(v)))) for v in x], np.float64)
    for found, wanted in zip(out, (wide, narrow), strict=True):
        assert (found.view(np.uint64) == wanted.view(np.uint64))[~np.isnan(wanted)].all()
        assert np.isnan(found[np.isnan(wanted)]).all()


@nbtc.kernel
def exact_ones(x, out):
    i = nbtc.grid(1)
    out[0, i] = math.sqrt(x[i])
    out[1, i] = math.floor(x[i])
    out[2, i] = math.ceil(x[i])
    out[3, i] = abs(-x[i])
    out[4, i] = max(x[i], 2.0)
    out[5, i] = math.copysign(x[i], -1.0)
    out[6, i] = int(x[i]) % 3
    out[7, i] = int(x[i]) // 3


def test_exact_functions():
    x = np.abs(np.random.default_rng(9).normal(size=64)) * 1e6
    out = np.zeros((8, 64))
    exact_ones[1, 64](x, out)
    whole = x.astype(np.int64)
    assert (out == [np.sqrt(x), np.floor(x), np.ceil(x), x, np.maximum(x, 2), -x, whole % 3, whole // 3]).all()
