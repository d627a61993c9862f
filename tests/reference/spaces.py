"""Memory of every space for the interpreter of threads: windows of generic addresses, each a few byte arrays."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW = 48  # bits of an address inside of its window
SHARED, LOCAL, CONST = (n << WINDOW for n in (2, 3, 4))  # of generic addresses
GLOBAL = 1 << WINDOW
APART = 40  # bits: global arrays lie so far from each other
WINDOWS = {"global": GLOBAL, "shared": SHARED, "local": LOCAL, "const": CONST}
NARROW = (1 << 32) - 1


class Spaces:
    """What one thread sees; all but `local` it shares with others."""

    def __init__(self, arrays: Sequence[bytearray], shared: bytearray, const: bytearray, local: int) -> None:
        self.arrays, self.shared, self.const, self.local = arrays, shared, const, bytearray(local)

    def place(self, space: str, address: int, size: int) -> tuple[bytearray, int]:
        """Memory, and the offset of an access in it, which has to be inside and aligned."""
        address %= 1 << 64
        if space in ("shared", "local", "const"):
            memory, at = {"shared": self.shared, "local": self.local, "const": self.const}[space], address & NARROW
        elif address >> WINDOW == GLOBAL >> WINDOW:
            inside = address - GLOBAL
            number, at = inside >> APART, inside & (1 << APART) - 1
            memory = self.arrays[number] if number < len(self.arrays) else bytearray()
        else:
            window = address >> WINDOW << WINDOW
            memory = {SHARED: self.shared, LOCAL: self.local, CONST: self.const}.get(window, bytearray())
            at = address - window
        if at % size or at + size > len(memory):
            raise IndexError(f"{size} bytes at {address:#x} of {space or 'any space'}, whose memory has {len(memory)}")
        return memory, at

    def load(self, space: str, address: int, size: int) -> int:
        """The number in so many bytes."""
        memory, at = self.place(space, address, size)
        return int.from_bytes(memory[at : at + size], "little")

    def store(self, space: str, address: int, size: int, number: int) -> None:
        """Store a number in so many bytes."""
        memory, at = self.place(space, address, size)
        memory[at : at + size] = number.to_bytes(size, "little")
