"""How packers read a float format's bits, and the range of a matrix's exponents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.formats.table import Format

# entries of the parameter vector of a packer
MANTISSA, BIAS, SIGN_SHIFT, FIELD_SHIFT, SPECIAL, REFERENCE, BASE, LEAST = range(8)


def float_params(fmt: Format, reference: int = 0, base: int = 0, least: int | None = None) -> NDArray[np.int64]:
    """How to read a float format's bits.

    reference: exponent that is stored as `base`.  least: smaller ones count as this one (default: the format's, which
    its subnormals have).
    """
    sign = fmt.bits - 1
    field = sign - fmt.exponent
    special = fmt.special << (field - fmt.mantissa)
    lowest = fmt.emin if least is None else least
    return np.array([fmt.mantissa, fmt.bias, sign, field, special, reference, base, lowest + fmt.bias], np.int64)


@jit
def magnitude_range(x, kept, special, seen):
    """Widen seen = [least less one, greatest] to the magnitudes of the finite non-zero elements of flat bits.

    kept: a magnitude's bits.  Zero less one is the greatest word, so it is never the least; `x`'s own type throughout,
    since wider words halve the speed.
    """
    kind = x.dtype.type
    low, high = kind(seen[0]), kind(seen[1])
    kept, special, one, zero = kind(kept), kind(special), kind(1), kind(0)
    for i in range(x.size):
        m = kind(x[i] & kept)
        low = min(low, kind(m - one) if m < special else kind(zero - one))
        high = max(high, m if m < special else zero)
    seen[0], seen[1] = low, high
