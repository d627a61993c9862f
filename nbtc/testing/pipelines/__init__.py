"""Random programs of producers and consumers: stages of shared memory that one warpgroup fills and others multiply.

As in CUTLASS: mbarriers for full and empty stages, tiles of swizzled tensors, in clusters halves that go to both
blocks, products that are in flight when the next stage is looked at, registers that the producer gives to the
consumers, and results that bulk copies bring to memory.
"""
