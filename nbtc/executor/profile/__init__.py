"""What a launch did, counted: warp instructions, lanes that took part, bank conflicts, sectors of memory.

`hooks` puts the counting into a program's code, `result` holds what came of it, `picture` draws it.  Nothing of it is
in the code of a launch that is not profiled.
"""
