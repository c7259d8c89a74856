"""Kafka's error codes: number, whether a client may retry, and the meaning in our words.

A retriable code for a permanent condition makes clients loop without end; the reverse makes them
give up. So each condition is given its code where it arises, by the names below. Numbers and
retriable flags are Kafka's; tests compare them with two other implementations.
"""

from enum import IntEnum, unique
from typing import Final, final

R: Final = True
"""Marks a retriable code in the table below."""
P: Final = False
"""Marks a permanent code in the table below."""


@final
@unique
class ErrorCode(IntEnum):
    """One error code: an int on the wire, with `retriable` and `message`."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool, message: str) -> "ErrorCode":
        """Make a member, which equals its number."""
        self = int.__new__(cls, code)
        self._value_ = code
        self.retriable = retriable
        self.message = message
        return self

    UNKNOWN_SERVER_ERROR = -1, P, "the broker failed in a way that it did not expect"
    NONE = 0, P, "no error"
    OFFSET_OUT_OF_RANGE = 1, P, "the offset is below the log start or above the log end"
    CORRUPT_MESSAGE = 2, R, "a batch fails its checksum or its length"
    UNKNOWN_TOPIC_OR_PARTITION = 3, R, "this cluster has no such topic or partition"
    INVALID_FETCH_SIZE = 4, P, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, R, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, R, "this broker does not lead the partition"
    REQUEST_TIMED_OUT = 7, R, "the request was not done in its time; its outcome is unknown"
    BROKER_NOT_AVAILABLE = 8, P, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, R, "the replica is not available on this broker"
    MESSAGE_TOO_LARGE = 10, P, "the batch is larger than max.message.bytes"
    STALE_CONTROLLER_EPOCH = 11, P, "the controller epoch is older than the known one"
    OFFSET_METADATA_TOO_LARGE = 12, P, "the metadata of a committed offset is too large"
    NETWORK_EXCEPTION = 13, R, "the connection ended before the answer"
    COORDINATOR_LOAD_IN_PROGRESS = 14, R, "the coordinator is loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, R, "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, R, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, P, "the topic name is not valid or the topic is reserved"
    RECORD_LIST_TOO_LARGE = 18, P, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, R, "fewer replicas are in sync than min.insync.replicas"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, R, "written, but fewer replicas hold it than asked"
    INVALID_REQUIRED_ACKS = 21, P, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, P, "the generation is not the group's present one"
    INCONSISTENT_GROUP_PROTOCOL = 23, P, "no protocol is common to all members"
    INVALID_GROUP_ID = 24, P, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, P, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, P, "the session timeout is outside the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, P, "the group is rebalancing; join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, P, "the committed offset's data is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, P, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, P, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, P, "not allowed on the cluster"
    INVALID_TIMESTAMP = 32, P, "the batch's timestamp is outside the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, P, "the SASL mechanism is not offered"
    ILLEGAL_SASL_STATE = 34, P, "the request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, P, "this version of the API is not served"
    TOPIC_ALREADY_EXISTS = 36, P, "a topic of this name exists"
    INVALID_PARTITIONS = 37, P, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, P, "the replication factor is not valid here"
    INVALID_REPLICA_ASSIGNMENT = 39, P, "the replica assignment is not valid"
    INVALID_CONFIG = 40, P, "a configuration is not valid"
    NOT_CONTROLLER = 41, R, "this broker is not the controller"
    INVALID_REQUEST = 42, P, "the request parses but makes no sense here"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, P, "the message format does not support the request"
    POLICY_VIOLATION = 44, P, "the request is against a policy of the topic or cluster"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, P, "the producer's sequence has a gap"
    DUPLICATE_SEQUENCE_NUMBER = 46, P, "the producer's sequence was seen before"
    INVALID_PRODUCER_EPOCH = 47, P, "the producer epoch is older than the known one"
    INVALID_TXN_STATE = 48, P, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, P, "the producer id belongs to another transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, P, "the transaction timeout is above the broker's maximum"
    CONCURRENT_TRANSACTIONS = 51, R, "another transaction of this producer is being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, P, "a newer transaction coordinator exists"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, P, "not allowed on this transactional id"
    SECURITY_DISABLED = 54, P, "access control is switched off"
    OPERATION_NOT_ATTEMPTED = 55, P, "not attempted, since an earlier part failed"
    KAFKA_STORAGE_ERROR = 56, R, "the disk or data directory of this replica has failed"
    LOG_DIR_NOT_FOUND = 57, P, "there is no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, P, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, P, "nothing is known of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, P, "a reassignment of this partition is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, P, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, P, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, P, "the delegation token has another owner"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, P, "tokens cannot be asked for on this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, P, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, P, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, P, "the principal's type is not supported"
    NON_EMPTY_GROUP = 68, P, "the group has members"
    GROUP_ID_NOT_FOUND = 69, P, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, R, "there is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, R, "the fetch session's epoch is not valid"
    LISTENER_NOT_FOUND = 72, R, "the leader has no listener of the kind that was asked"
    TOPIC_DELETION_DISABLED = 73, P, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, R, "the leader epoch is older than the partition's"
    UNKNOWN_LEADER_EPOCH = 75, R, "the leader epoch is newer than the partition's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, P, "the compression codec is not supported here"
    STALE_BROKER_EPOCH = 77, P, "the broker epoch is older than the known one"
    OFFSET_NOT_AVAILABLE = 78, R, "the new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, P, "join again with the member id that this answer gives"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, R, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, P, "the group is full"
    FENCED_INSTANCE_ID = 82, P, "another member has taken this static instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, R, "no replica that may lead is available"
    ELECTION_NOT_NEEDED = 84, R, "the preferred leader leads already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, P, "no reassignment is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, P, "the group is subscribed to this topic"
    INVALID_RECORD = 87, P, "the batch or one of its records is not valid"
    UNSTABLE_OFFSET_COMMIT = 88, R, "committed offsets wait for a transaction to end"
    THROTTLING_QUOTA_EXCEEDED = 89, R, "a quota is exhausted; wait and ask again"
    PRODUCER_FENCED = 90, P, "a newer producer of this transactional id exists"
    RESOURCE_NOT_FOUND = 91, P, "there is no such resource or user"
    DUPLICATE_RESOURCE = 92, P, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, P, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, P, "the voter sets of sender and receiver differ"
    INVALID_UPDATE_VERSION = 95, P, "the update version is not valid"
    FEATURE_UPDATE_FAILED = 96, P, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, P, "the forwarded principal does not parse"
    SNAPSHOT_NOT_FOUND = 98, P, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, P, "the position is beyond the end of the snapshot"
    UNKNOWN_TOPIC_ID = 100, R, "this cluster has no topic of this id"
    DUPLICATE_BROKER_REGISTRATION = 101, P, "another broker is registered under this id"
    BROKER_ID_NOT_REGISTERED = 102, P, "no broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, R, "the topic id is not the one of the log"
    INCONSISTENT_CLUSTER_ID = 104, P, "the cluster id is another cluster's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, P, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, R, "the fetch session mixes topic ids and names"
    INELIGIBLE_REPLICA = 107, P, "the replica may not be in sync"
    NEW_LEADER_ELECTED = 108, P, "the change elected a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, P, "the offset lies in tiered storage"
    FENCED_MEMBER_EPOCH = 110, P, "the member epoch is older; rejoin the group"
    UNRELEASED_INSTANCE_ID = 111, P, "another member still uses this instance id"
    UNSUPPORTED_ASSIGNOR = 112, P, "the assignor is not supported by the group"
    STALE_MEMBER_EPOCH = 113, P, "the member epoch is older; ask again with the newer one"
    MISMATCHED_ENDPOINT_TYPE = 114, P, "the request went to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, P, "this kind of endpoint is not known"
    UNKNOWN_CONTROLLER_ID = 116, P, "there is no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, P, "the telemetry subscription is not known"
    TELEMETRY_TOO_LARGE = 118, P, "the telemetry is too large"
    INVALID_REGISTRATION = 119, P, "the controller refuses the broker's registration"
    TRANSACTION_ABORTABLE = 120, P, "the transaction can go no further; abort it"
    INVALID_RECORD_STATE = 121, P, "the record's state does not allow this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, R, "there is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, R, "the share session's epoch is not valid"
    FENCED_STATE_EPOCH = 124, P, "the share state epoch is older than the known one"
    INVALID_VOTER_KEY = 125, P, "the voter key is not the receiver's"
    DUPLICATE_VOTER = 126, P, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, P, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, P, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, P, "forget what is known and begin at the bootstrap list"
    STREAMS_INVALID_TOPOLOGY = 130, P, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, P, "the streams topology epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, P, "the streams topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, R, "the broker has no room for another share session"


def error_name(code: int) -> str:
    """The name of a code for people; the number itself when it is not known."""
    known = _BY_CODE.get(code)
    return known.name if known is not None else f"error {code}"


def is_retriable(code: int) -> bool:
    """Whether a client may try again; codes that we do not know are permanent."""
    known = _BY_CODE.get(code)
    return known is not None and known.retriable


_BY_CODE: Final[dict[int, ErrorCode]] = {code.value: code for code in ErrorCode}
