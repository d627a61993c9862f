"""Which instruction a product is a chain of."""

from __future__ import annotations

from functools import lru_cache

from nbtc.errors import OptionError, UnsupportedInstructionError, shown
from nbtc.formats.table import FORMATS, Format
from nbtc.isa import parse
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Row
from nbtc.isa.tcgen05 import KINDS, product

FAMILIES = {"mma": "mma", "wgmma": "wgmma.mma_async", "wmma": "wmma.mma", "tcgen05": "tcgen05.mma"}
LISTED = ("mma", "wgmma", "wmma")  # families whose rows name the formats of their operands
WIDEST = {"float": "f32", "int": "s32", "bit": "s32"}


def accumulator(fmt: Format) -> Format:
    """The widest accumulator a multiplicand format has."""
    return FORMATS["f64" if fmt.name == "f64" else WIDEST[fmt.kind]]


@lru_cache(maxsize=2048)
def row_for(
    arch: str,
    instruction: str | None,
    a: str,
    b: str,
    acc: str,
    op: str | None,
    saturate: bool,
    step: int | None = None,
    kind: str | None = None,
) -> Row:
    """The instruction row of a product: the one named, or the form of a family with the largest K (or K = step).

    kind: of the form, such as "f8f6f4".  Raises UnsupportedInstructionError where the architecture has none,
    OptionError where a named one does not fit.
    """
    if kind is not None and kind not in KINDS:
        raise OptionError(f"kind={kind!r} does not exist: kinds of products are {', '.join(KINDS)}; or leave it out")
    if instruction is not None and instruction not in FAMILIES:
        if "." not in instruction:
            raise OptionError(
                f"instruction={shown(instruction)} names no family of products: pass {', '.join(FAMILIES)}, or a "
                'mnemonic such as "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"'
            )
        plain_line(instruction)
        row = _named(parse.row(instruction), arch_row(arch), a, b, acc, op, saturate)
        if step not in (None, _size(row)[0]):
            raise OptionError(
                f"instruction={row.mnemonic!r} has K = {_size(row)[0]}, but the order is one of steps of {step}: drop "
                'one of the two, or pass instruction="mma"'
            )
        return row
    names = [instruction] if instruction else ["wgmma", "mma", "tcgen05"]
    for name in names:
        found = _best(arch, FAMILIES[name], a, b, acc, op, saturate, step, kind)
        if found is not None:
            return found
    alike = [
        r
        for name in names
        if name in LISTED
        for r in parse.rows(None, FAMILIES[name], a=a, b=b, c=acc, d=acc, executable=True, sparse=False, rounding="rn")
        if r.saturate == saturate and step in (None, _size(r)[0]) and not r.scale
    ]
    hint = (
        _where([r for r in alike if r.op in (None, op)]) or f"no architecture multiplies {a} by {b} into {acc} that way"
    )
    others = [r for r in alike if r.op not in (None, op)]
    if others and hint.startswith("no"):
        hint = f"its forms are .{others[0].op}, not .{op}, and {_where(others)}: pass op={others[0].op!r}"
    raise UnsupportedInstructionError(
        f"{arch} has no {instruction or 'wgmma, mma or tcgen05'} instruction{f' of kind {kind}' if kind else ''} for "
        f"{a} x {b} with {acc} accumulators"
        f"{' and .satfinite' if saturate else ''}{f' and K = {step}' if step else ''}; {hint}: "
        "choose other formats, acc=, instruction= or arch="
    )


def _where(rows: list[Row]) -> str:
    first = min(rows, key=lambda r: r.since, default=None)
    return f"it exists from {first.min_arch} on" if first is not None else ""


def _best(
    arch: str, family: str, a: str, b: str, acc: str, op: str | None, saturate: bool, step: int | None,
    kind: str | None,
) -> Row | None:  # fmt: skip
    """The form with the largest K (or K = step), then the largest tile."""
    if family == FAMILIES["tcgen05"]:
        rows = parse.rows(arch, family, executable=True, unit="tcgen05")
        fits = [product(r) for r in rows if kind in (None, r.kind) and KINDS[r.kind].takes(a, b, acc)]
        return next((r for r in fits if step in (None, _size(r)[0])), None)
    found = [
        r
        for r in parse.rows(arch, family, a=a, b=b, d=acc, c=acc, executable=True, sparse=False)
        if r.rounding == "rn" and r.saturate == saturate and (r.op is None or r.op == op)
        if step in (None, _size(r)[0]) and kind in (None, r.kind) and not r.scale
    ]
    return max(found, key=_size) if found else None


def _size(r: Row) -> tuple[int, int]:
    m, n, k = r.shape or (0, 0, 0)
    return k, m * n


def plain_line(instruction: object) -> None:
    """Raise OptionError for a whole PTX line whose immediates a matrix product would have to leave out."""
    for name, value in parse.immediates(instruction).items():
        if name.startswith("scale") and value != 1:
            raise OptionError(
                f"the line given as instruction= has {name} = {value}, but a matrix product adds what it multiplies: "
                "negate a or b themselves, and pass the mnemonic without operands"
            )


def _named(row: Row, arch: Arch, a: str, b: str, acc: str, op: str | None, saturate: bool) -> Row:
    if row.family == FAMILIES["tcgen05"] and row.executable:
        return _tensor_memory(row, arch, a, b, acc)
    if row.family not in FAMILIES.values() or row.a is None or row.b is None or row.c is None or row.d is None:
        raise OptionError(
            f"instruction={row.mnemonic!r} is not a dense matrix product: matmul takes mma, wgmma and wmma.mma forms, "
            'for example instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"'
        )
    if not row.executable:
        raise UnsupportedInstructionError(
            f"{row.mnemonic}: no recorded arithmetic, so nbtc parses it but cannot run it"
        )
    row.require(arch)
    want = (row.a.format.name, row.b.format.name, row.c.format.name, row.d.format.name)
    if want != (a, b, acc, acc):
        raise OptionError(
            f"instruction={row.mnemonic!r} multiplies {want[0]} x {want[1]} + {want[2]} into {want[3]}, but the "
            f"operands are {a} x {b} and the accumulator {acc}: pass arrays of its formats, or acc={want[3]!r} "
            "(a chain needs c and d of one type)"
        )
    if saturate and not row.saturate:
        raise OptionError(
            f"saturate=True, but instruction={row.mnemonic!r} has no .satfinite: name the form that has it"
        )
    if row.op is not None and op is not None and row.op != op:
        raise OptionError(f"op={op!r}, but instruction={row.mnemonic!r} is the {row.op} form: drop one of the two")
    return row


def _tensor_memory(row: Row, arch: Arch, a: str, b: str, acc: str) -> Row:
    """A tcgen05.mma row that was named, which leaves the formats open."""
    row.require(arch)
    kind = KINDS[row.kind]
    if not kind.takes(a, b, acc):
        raise OptionError(
            f"instruction={row.mnemonic!r} takes {' or '.join(kind.formats)} with {' or '.join(kind.accumulators)} "
            f"accumulators, but the operands are {a} x {b} and the accumulator {acc}: pass arrays of its formats"
        )
    return product(row)
