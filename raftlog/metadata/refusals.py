"""Why the metadata group did not do what it was asked, each with the code that Kafka clients know.

A refusal is a value, never an exception: a refused command was committed like any other, and every
replica refuses it alike. The numbers are part of the peer format and never change their meaning.
"""

import enum
from typing import Final, final


@final
class Refusal(enum.IntEnum):
    """The reason why a request was refused; the message beside it names the thing concerned."""

    NOT_CONTROLLER = 1
    """Ask the controller; the answer names it when it is known. Nothing was proposed, or its
    outcome is unknown: ask again with the same ids."""
    BUSY = 2
    """Too much is waiting to be done; ask again later."""
    TIMED_OUT = 3
    """No controller answered in time; the outcome is unknown."""
    NOT_FOUNDED = 10
    ALREADY_FOUNDED = 11
    MALFORMED = 12
    """The command contradicts itself; also what a bound forbids."""
    STALE = 13
    """It speaks of an older state than the image has; nothing is wrong with the asker."""
    UNKNOWN_BROKER = 20
    NODE_ID_IN_USE = 21
    """A live broker has this node id on another data directory."""
    ROLLED_BACK = 22
    """The boot number is not above the last one seen: an old copy of the directory was restored."""
    CONDEMNED_DIRECTORY = 23
    """The directory was rolled back or replaced; it may never take part again."""
    FEATURE_UNSUPPORTED = 24
    BROKER_IN_USE = 25
    """The broker is not fenced, or still has replicas, or is a controller."""
    TOO_FEW_BROKERS = 26
    UNKNOWN_TOPIC = 30
    UNKNOWN_TOPIC_ID = 31
    TOPIC_EXISTS = 32
    INVALID_TOPIC_NAME = 33
    RESERVED_TOPIC = 34
    INVALID_PARTITIONS = 35
    INVALID_ASSIGNMENT = 36
    INVALID_CONFIG = 37
    UNKNOWN_REPLICA = 38
    NO_REASSIGNMENT = 39
    INVALID_REPLICATION_FACTOR = 40
    UNKNOWN_PARTITION = 41
    DUPLICATE_VOTER = 42
    VOTER_NOT_FOUND = 43
    QUORUM_AT_RISK = 44
    """The controllers that would be left have no majority that is alive."""
    DIGEST_DIFFERS = 50
    """The image of this replica is not the one that the controller had at the same place: stop."""


_KAFKA_CODES: Final[dict[Refusal, int]] = {
    Refusal.NOT_CONTROLLER: 41,
    Refusal.BUSY: 7,
    Refusal.TIMED_OUT: 7,
    Refusal.NOT_FOUNDED: 41,
    Refusal.ALREADY_FOUNDED: 42,
    Refusal.MALFORMED: 42,
    Refusal.STALE: 42,
    Refusal.UNKNOWN_BROKER: 39,
    Refusal.NODE_ID_IN_USE: 101,
    Refusal.ROLLED_BACK: 42,
    Refusal.CONDEMNED_DIRECTORY: 42,
    Refusal.FEATURE_UNSUPPORTED: 35,
    Refusal.BROKER_IN_USE: 42,
    Refusal.TOO_FEW_BROKERS: 38,
    Refusal.UNKNOWN_TOPIC: 3,
    Refusal.UNKNOWN_TOPIC_ID: 100,
    Refusal.TOPIC_EXISTS: 36,
    Refusal.INVALID_TOPIC_NAME: 17,
    Refusal.RESERVED_TOPIC: 29,
    Refusal.INVALID_PARTITIONS: 37,
    Refusal.INVALID_ASSIGNMENT: 39,
    Refusal.INVALID_CONFIG: 40,
    Refusal.UNKNOWN_REPLICA: 42,
    Refusal.NO_REASSIGNMENT: 85,
    Refusal.INVALID_REPLICATION_FACTOR: 38,
    Refusal.UNKNOWN_PARTITION: 3,
    Refusal.DUPLICATE_VOTER: 126,
    Refusal.VOTER_NOT_FOUND: 127,
    Refusal.QUORUM_AT_RISK: 42,
    Refusal.DIGEST_DIFFERS: 56,
}

assert set(_KAFKA_CODES) == set(Refusal)


def kafka_code(refusal: Refusal) -> int:
    """The error code of Kafka's protocol that comes nearest."""
    return _KAFKA_CODES[refusal]
