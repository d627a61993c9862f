"""PTX programs on the CPU: a warp in lock-step, 32 lanes wide.

A folder for each step of a program's way: `text` reads it, `rows` finds the row of each instruction, whose emitters
stand in `scalar`, `memory`, `control`, `transfer` and `matrix` and are written in the words of `emit`; `kernel`
prepares one kernel, `code` emits it, `launch` runs it, `watch` and `profile` observe it.  `program` is what users see
of all that.
"""
