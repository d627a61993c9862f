"""Asynchronous copies: cp.async, bulk copies, tensor maps, and the mbarriers that tell of their end."""
