"""Floor 1: the words, units, bounds, errors and ports that every other floor speaks.

Nothing here decides anything and nothing here is worth simulating. Every package of raftlog may
import this one; it imports only the standard library, attrs and the checksum library.
"""
