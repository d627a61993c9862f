"""Where lanes read and write: addresses to checked places, loads, stores, atomics, the stack."""
