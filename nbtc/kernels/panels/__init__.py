"""Fused sums of panels that stream through whole matrices."""
