"""Rows that decide who runs: branches, calls, barriers, votes and shuffles, requests to the host."""
