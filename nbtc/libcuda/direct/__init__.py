"""Calls that need no Python: launches that were made before, copies between known places, questions with one answer.

Compiled into the libraries when they are written (`emit`, `launches`, `copies`, `calls`); what the compiled code may
take for granted, Python writes into memory that both see (`layout`, `shared`).  Whatever it can't answer goes on to
Python's function with the caller's arguments, so there is one place for every rule.
"""
