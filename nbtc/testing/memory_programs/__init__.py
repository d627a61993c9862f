"""Random PTX programs of registers of all widths, memory of all spaces, atomics, warp instructions and calls.

No schedule changes what they do: between two barriers each thread writes bytes of its own alone, and reads those or
what nobody writes.
"""

from nbtc.testing.memory_programs.program import MemoryProgram, random_memory_program

__all__ = ["MemoryProgram", "random_memory_program"]
