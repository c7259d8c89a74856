"""The cluster's metadata as a pure state machine (floor 4).

apply(image, command) -> image is total and reads no clock, configuration or dice: a command
carries every input it needs. Deltas between images tell a broker what to start and stop.

Laws: no I/O; equal command sequences give equal image bytes on every replica and release.
May be imported by: partition and above. Imports: floor 3 and below.
"""
