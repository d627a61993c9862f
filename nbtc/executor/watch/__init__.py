"""The checked mode: what a program must not do, though it may run here and on some GPU.

`words` lays out what is remembered, `order` says which accesses come before which, `touch` looks at each access,
`events` at barriers, fences and asynchronous groups, `hooks` puts the calls into a program's code, `memory` holds the
words of a launch, `report` tells what was found.  Nothing of it is in the code of a launch that is not checked.
"""
