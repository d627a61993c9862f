"""Warpgroup products."""
