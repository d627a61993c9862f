"""The arithmetic of one dot product, and nothing else."""
