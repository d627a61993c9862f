"""PTX programs on the CPU: a warp in lock-step, 32 lanes wide.

`form` says what a row is, `forms` finds the row of an instruction's text, one file a family holds the rows and emits
their arithmetic; `values` holds what the emitters share.
"""
