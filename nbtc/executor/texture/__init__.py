"""Textures and surfaces: their descriptors, what texture units compute, and the instructions that ask them."""
