"""The checked mode: what a program must not do, though it may run here and on some GPU.

`words` lays out what is remembered, `shadow` finds it for an address, `order` says which accesses come before which.
`accesses` takes each access lane by lane, `races` says what is wrong between two of them, `events` follows barriers,
fences and asynchronous groups.  `hooks` puts the calls into a program's code, `memory` holds the words of a launch, and
`launch.hazards` makes sentences of what was found.  Nothing of it is in the code of a launch that is not checked.
"""
