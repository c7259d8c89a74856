"""Every bound of the system, with its reason. Relations between them are asserted at import.

A bound is a promise about memory and time under the worst input. Each floor adds its own section
here rather than a number in its code.
"""

from typing import Final

from raftlog.base.units import KIB, MIB

# --- numbers --------------------------------------------------------------------------------------
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
"""The most that Kafka's number fields hold."""
RECORD_TIMESTAMP_MS_MAX: Final = INT64_MAX // 1000
"""The largest timestamp that our client gives a record. Spark counts microseconds in 64 bits, and
the difference of two timestamps in a batch has to fit into 64 bits as well."""

# --- the turn -------------------------------------------------------------------------------------
TURN_EVENTS_MAX: Final = 64
"""Events in one turn: completions must not wait behind a flood of requests."""
TURN_BYTES_MAX: Final = 2 * MIB
"""Request bytes in one turn: one sync round should not grow without end."""

# --- record batches -------------------------------------------------------------------------------
BATCH_HEADER_BYTES: Final = 61
BATCH_BYTES_MAX: Final = 64 * MIB
"""No topic may raise `max.message.bytes` above this; every file and peer bound derives from it."""
BATCH_BYTES_DEFAULT: Final = MIB + 12
"""Kafka's default of `max.message.bytes`."""
RECORD_COPY_BYTES_MAX: Final = 64 * KIB
"""A record field smaller than this is copied once at propose; a larger one stays a view."""
CONTROL_BATCH_BYTES_MAX: Final = 64 * KIB
"""Raft's own entries: the largest is a membership of a few dozen replica ids."""
DECOMPRESSED_BYTES_MAX: Final = 64 * MIB
"""The most bytes that one batch may have when decompressed: as many as the largest batch that may
be stored uncompressed. A broker refuses a larger one with MESSAGE_TOO_LARGE. Each of our readers
accepts this much."""
CODEC_BLOCKS_MAX: Final = 16_384
"""Blocks of a compressed batch whose heads the broker reads: 64 MiB in blocks of 4 KiB, the
smallest that a Kafka client makes."""
RECORD_HEADERS_MAX: Final = 1 << 20
"""Headers of one record: as many as a batch of the default size has bytes. A header takes at least
two bytes, so a reader refuses a false count before it allocates anything."""

# --- raft -----------------------------------------------------------------------------------------
VOTERS_MAX: Final = 7
LEARNERS_MAX: Final = 64
"""Group 0 has every other broker as a learner."""
APPEND_BYTES_MAX: Final = MIB
"""Bytes of one append message beyond its first batch: a heartbeat must not wait behind more."""
APPENDS_IN_FLIGHT_MAX: Final = 4
"""Small windows let batches grow (HashiCorp Raft went from 130 to 2 for that reason)."""
INFLIGHT_BYTES_MAX: Final = 4 * MIB
"""Unacknowledged append bytes per follower and group; one batch of any size is always admitted."""
RECENT_WINDOW_BYTES_MAX: Final = 4 * MIB
"""Log bytes kept in memory per group behind the durable and committed end."""
READS_PENDING_MAX: Final = 1024
"""Read-index requests waiting in one group; beyond it the caller is refused at once."""
DELETES_PENDING_MAX: Final = 1024
"""DeleteRecords requests of one group that wait, and their markers that are not committed. While
the group commits nothing, clients that ask again and again would make both grow."""
INSTALL_CHUNK_BYTES: Final = 256 * KIB
"""One piece of a snapshot being installed: a heartbeat must not wait behind more."""
INSTALL_BYTES_MAX: Final = 256 * MIB
"""Size of a snapshot that a follower assembles in memory: group 0's image of a very large cluster.
"""
CLOCKS_APART_MS_MAX: Final = 60_000
"""The most by which two wall clocks that agree may differ. Synchronised clocks differ by
milliseconds, but a heartbeat may have waited behind a stalled disk. A leader deletes by age only
while most voters agree with its clock."""
CLOCK_HEARD_MS_MAX: Final = 10_000
"""How long a reported wall clock counts. After that its node may be paused or gone."""
ROLL_MS_MIN: Final = 1_000
"""The least age at which a segment rolls, so that age makes a partition begin at most one file a
second."""
ROLL_AFTER_BOOT_MS_MAX: Final = 3_600_000
"""The longest time from a boot until the active segment rolls. A booted broker does not know how
old that segment is; without this bound, one that restarts often would never roll it. Restarts in
quick succession roll nothing."""
PROMOTE_LAG_MAX: Final = 64
"""Entries by which a learner's durable log may lag when it becomes a voter: some rounds of a busy
leader."""
THROTTLE_RATE_MIN: Final = KIB
"""The lowest rate of a throttled move, in bytes a second: less would be a move that never ends."""
DIRECTORY_COPY_JOB_BYTES: Final = MIB
"""Log bytes that one job copies to another log directory: cold reads and other jobs of the broker
wait no longer than for that, and its sync."""
DIRECTORY_COPY_TAIL_BYTES: Final = 16 * MIB
"""Log bytes that a copy may still lack when the replica stops, so that the rest takes a moment: a
disk of 100 MB/s writes them in 160 ms."""
UNCOMMITTED_BYTES_MAX: Final = 16 * MIB
"""Proposed bytes of a group that are not yet committed. Beyond this the broker pauses producers to
the group; beyond twice as much it refuses all other proposals."""

# --- connections ----------------------------------------------------------------------------------
UNANSWERED_BYTES_MAX: Final = 8 * MIB
UNANSWERED_REQUESTS_MAX: Final = 256
"""Requests of one connection without an answer. The broker pauses the connection at the limit and
resumes it at half. A producer of small batches needs enough requests in flight to fill the rounds
of disk and followers at the same time."""
PINNED_BYTES_MAX: Final = 64 * MIB
"""Receive slabs pinned by views, per process; beyond it connections pause."""
WAITING_BYTES_MAX: Final = 128 * MIB
"""The weight of requests without an answer, over all connections: sixteen connections at their
own limit. Beyond it the broker pauses the connections with heavy requests. Beyond twice as much it
closes the one that has held most for longest; else thousands of requests that wait for an hour
would fill the memory."""
WAITING_BYTES_MIN: Final = 16 * KIB
"""The weight of requests below which the broker never closes a connection for them: a fetch of
sixty partitions."""
FRAME_BYTES_PREAUTH_MAX: Final = 8 * KIB
FRAME_BYTES_SMALL_MAX: Final = 4 * MIB
"""Size of a frame of any request but Produce."""
PEER_FRAME_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
PEER_FRAME_PREAUTH_BYTES_MAX: Final = 4 * KIB

# --- files ----------------------------------------------------------------------------------------
SEGMENT_HEADER_BYTES: Final = 4 * KIB
SEGMENT_BYTES_MIN: Final = 64 * KIB
"""A segment must hold its header and some batches; tests may go below through their own options."""
SEGMENT_BYTES_DEFAULT: Final = 1024 * MIB
SEGMENT_BYTES_MAX: Final = 2048 * MIB
"""Kafka's own bound: positions in a segment fit into 32 bits."""
INDEX_ROWS_MAX: Final = 1 << 22
"""Rows of one table of an index file: Raft's own entries of a segment that holds little else."""
INDEX_FILE_BYTES_MAX: Final = 512 * MIB
"""Size of an index file with INDEX_ROWS_MAX rows in each table."""
RECOVERED_WINDOW_BYTES: Final = 16 * KIB
"""Log bytes that a boot keeps in memory per replica: a thousand idle ones must stay small."""
SLICE_BYTES_MIN: Final = 32 * KIB
"""A shorter range near the end of the log is answered from memory: a file slice costs two calls."""
SCANNED_RANGES_MAX: Final = 8
"""Exact places of cold ranges that each log remembers, about one for each slow consumer."""
WALK_CHUNK_BYTES: Final = MIB
"""Read size of a walk; one larger batch is read whole."""
SCRUB_JOB_BYTES: Final = MIB
"""Log bytes that one job of the scrubber walks, about: tens of milliseconds of small batches."""
SCRUB_PAUSE_SHARE: Final = 4
"""How many times as long as its last job took the scrubber rests: it uses at most a fifth of one
core."""
SCRUB_FIRST_MS_MAX: Final = 60_000
"""The longest time from the boot to the first pass of the scrubber; half an interval when shorter.
"""
RECHECKS_REMEMBERED_MAX: Final = 4096
"""Offsets that the broker sent to connections last, and places that it checked for a client that
asked again. The oldest is forgotten. They take a few hundred kilobytes."""
TIMES_SCAN_BYTES: Final = 4 * MIB
"""Log bytes of which one job computes timestamps, beyond its first stretch: tens of milliseconds,
so that jobs of other partitions get their turn."""
TIMES_SCAN_RECORDS: Final = 500_000
"""Records of such a job, beyond its first stretch: a tenth of a second."""
LOG_READ_FAILURES_MAX: Final = 4
"""Reads of one place that fail in a row before a leader calls it damage, or hands over when the
reads were for clients. An error may pass, but an unreadable sector would never let clients go on.
"""
LOG_READ_HANDOVER_MS: Final = 10_000
"""How often a leader may hand over because it cannot send what clients or followers ask for."""
LOG_READ_PLACES_MAX: Final = 16
"""Places whose failed reads a leader counts at one time: one for each follower that is far behind,
and a few that followers have left. Reads for clients have as many places of their own."""
REMOVAL_PAUSE_MS: Final = 10_000
"""The wait after a failed removal of old segments, until the next try."""
STORE_BYTES_INITIAL: Final = MIB
"""Size of each of the two store files at format, which writes them full of zeros. So votes need no
new space on a full disk."""
STORE_RECORD_BYTES_MAX: Final = 4 * KIB
STORE_FRAME_BYTES_MAX: Final = 256 * MIB
"""A full image: a registration, vote and mark of every group in one frame."""
REPLICA_PATH_BYTES_MAX: Final = 255
LOG_DIRECTORIES_MAX: Final = 64
"""Log directories of one broker; a machine has fewer disks. Each costs an open file and a place in
answers."""
OPEN_FILES_MAX: Final = 512
"""Files that one log thread keeps open for writing; beyond it the least recently used is closed. A
process may often have only 1,024 descriptors, and sockets need some."""

# --- verification ---------------------------------------------------------------------------------
HISTORY_LINE_CHARS_MAX: Final = 64 * MIB
"""One line of a history: a last read of a whole partition is the longest that makes sense."""
SEARCH_STEPS_DEFAULT: Final = 10_000_000
"""Steps of the general search before it says unknown: about half a minute."""
HOLE_STEPS_DEFAULT: Final = 1_000_000
"""Steps of tiling holes with unresolved batches before the answer is unknown."""
EDN_DEPTH_MAX: Final = 64
"""Nesting of an EDN value; Jepsen's operations need six."""
REPORT_BYTES_MAX: Final = 2_000_000
"""The report is one file that people mail to each other."""

assert RECORD_COPY_BYTES_MAX <= APPEND_BYTES_MAX <= INFLIGHT_BYTES_MAX
assert CONTROL_BATCH_BYTES_MAX <= RECORD_COPY_BYTES_MAX
assert BATCH_BYTES_MAX <= DECOMPRESSED_BYTES_MAX
assert BATCH_BYTES_DEFAULT <= BATCH_BYTES_MAX < PEER_FRAME_BYTES_MAX
assert FRAME_BYTES_PREAUTH_MAX < FRAME_BYTES_SMALL_MAX

# --- kafka codec ----------------------------------------------------------------------------------
ERROR_MESSAGE_CHARS_MAX: Final = 1_000
"""Length of an error message in a response. A message may quote a client, whose strings may have
32,767 bytes."""
FRAME_ITEMS_MAX: Final = 20_000
"""Array elements and tagged fields of one request: a fetch of 10,000 topics with a partition each.
Reading so many takes at most 40 ms on one core; handling them takes 30 to 170 ms, by API."""
TURN_ITEMS_MAX: Final = 5_000
"""Array elements and tagged fields of all requests of a turn. The turn takes one more request while
there is room, so it has less than 25,000 of them: 210 ms at most. Later turns take the rest."""
DESCRIBED_RESOURCES_MAX: Final = 1_000
"""Topics and brokers of one DescribeConfigs. Each has some forty settings in the answer and costs
130 us. A request with more is refused with INVALID_REQUEST."""
TURN_SMALL_FRAME_BYTES: Final = 256
"""Size of a frame that a turn takes even beyond TURN_ITEMS_MAX: it has about fifty elements at
most, which take 1 ms."""
RESPONSE_ITEMS_MAX: Final = 200_000
"""Array elements and tagged fields of a response that our client reads. Without this bound, a
response of 300 KB in 3-byte elements became 25 MB of objects."""
REQUEST_ITEM_BYTES: Final = 256
"""The weight of an array element of a request, beside its bytes, until the request is answered.
Three bytes become an object of 63 bytes; a partition that a fetch waits for takes 212 bytes."""
FRAME_BYTES_MAX: Final = 100 * MIB
"""The largest Produce request: Kafka's default of `socket.request.max.bytes`."""
FRAME_BYTES_MIN: Final = 8
"""The API key, version and correlation id with which every request begins."""
RESPONSE_BYTES_MAX: Final = 256 * MIB
"""The most that our client accepts from a broker: fetch.max.bytes is soft by one largest batch."""
CLIENT_REQUESTS_IN_FLIGHT_MAX: Final = 256
"""Requests of one client connection without an answer; a correct client stays below it."""

assert FRAME_BYTES_SMALL_MAX <= FRAME_BYTES_MAX
assert BATCH_BYTES_MAX < FRAME_BYTES_MAX < RESPONSE_BYTES_MAX

# --- the broker -----------------------------------------------------------------------------------
OUTPUT_BYTES_MAX: Final = 8 * MIB
"""Answer bytes of one connection that have not left the process. Beyond it the broker pauses the
connection. One answer of any size is always admitted."""
HELD_BYTES_MAX: Final = 128 * MIB
"""Answer bytes in memory that have not left the process, over all connections: sixteen clients
that read nothing at all. Beyond it the broker pauses the connections that hold much. Beyond twice
as much it closes the one whose client has read nothing for longest; else thousands that each hold
a little would fill the memory."""
HELD_BYTES_MIN: Final = 4 * KIB
"""Held answer bytes of one connection below which the broker ignores them: nearly every answer has
left before the next turn."""
HELD_SHARES: Final = 256
"""The share of HELD_BYTES_MAX or WAITING_BYTES_MAX (1/256, 512 KiB) that counts as much. Beyond
either bound, the broker pauses the connections that hold more than this."""
BROKER_GROUPS_MAX: Final = 100_000
"""Groups named in one node heartbeat: every list of them is bounded by this."""
CONTROLLER_BODY_BYTES_MAX: Final = 4 * MIB
"""Size of one request to the controller, or of its answer; no CreateTopics frame is longer."""
CONTROLLER_REQUESTS_MAX: Final = 10_000
"""Client requests that one broker has in flight to the controller; beyond it the caller is refused
at once."""
CONTROLLER_OWN_REQUESTS_MAX: Final = 10_000
"""Registrations, heartbeats and reports that a broker may have in flight beyond those, so that a
flood of client requests does not get the broker fenced. There are only a few registrations and
heartbeats, and a partition stands in one report."""
PERFORMED_MAX: Final = CONTROLLER_REQUESTS_MAX
"""Performed requests of one broker that the metadata image remembers. Beyond it new ones wait until
the oldest has been answered."""
CONTROLLER_TEXT_BYTES_MAX: Final = 4 * KIB
PEER_MESSAGES_MAX: Final = 100_000
"""Messages in one peer frame; a turn that sends more makes more frames."""
PEER_FRAME_BYTES_AIM: Final = MIB
"""The size of frame that the messages of a turn are packed into, so that the receiver has a bounded
piece to receive and check."""
REOPEN_BACKOFF_MS_MAX: Final = 10_000
"""The longest wait before a replica whose disk failed is reopened. The first wait is 100 ms, and
each later one is twice as long."""

assert OUTPUT_BYTES_MAX <= PINNED_BYTES_MAX
assert OUTPUT_BYTES_MAX < HELD_BYTES_MAX
assert UNANSWERED_BYTES_MAX < WAITING_BYTES_MAX
assert FRAME_BYTES_MAX + FRAME_ITEMS_MAX * REQUEST_ITEM_BYTES < 2 * WAITING_BYTES_MAX
assert PEER_FRAME_BYTES_AIM <= PEER_FRAME_BYTES_MAX
assert BROKER_GROUPS_MAX * 64 < PEER_FRAME_BYTES_MAX

# --- the partition --------------------------------------------------------------------------------
PRODUCERS_MAX: Final = 4_096
"""Idempotent producers that a partition remembers, about 600 bytes each. Every restart of a
producer makes a new one, and they expire after a day. Beyond it the partition forgets the quarter
that was silent longest."""
PRODUCER_SPANS_MAX: Final = 5
"""Batches remembered per producer: Kafka's clients keep at most five in flight (KIP-98)."""
PRODUCER_SNAPSHOT_BYTES_MAX: Final = 64 + PRODUCERS_MAX * (19 + PRODUCER_SPANS_MAX * 16)
"""Size of a snapshot of producers: header and digest, then per producer 19 bytes and 16 for each
remembered batch."""
MACHINE_SNAPSHOT_BYTES_MAX: Final = 32 * MIB
"""Size of the state of an applied machine, which memory holds whole: about 300,000 committed
offsets. A larger state gets no snapshot, so its log is not trimmed."""
MACHINE_REPLAY_BYTES: Final = 256 * KIB
"""Log bytes that a machine replays in one turn: about ten milliseconds of the loop."""
MACHINE_REPLAY_PAUSE_MS: Final = 100
"""The wait after a failed read for a replay, until the next try."""
PARKED_BYTES_MAX: Final = 16 * MIB
"""Produced bytes that wait for a new leader's first commit, per group; one batch is always
admitted."""
IDLE_WINDOW_BYTES: Final = 64 * KIB
"""Log bytes that a group keeps in memory while no client writes to it: a thousand such groups must
stay small."""
IDLE_AFTER_MS: Final = 2_000
"""The time without an append after which a group is idle."""
PRODUCE_WAIT_MS_MAX: Final = 3_600_000
"""The longest wait of a produce or fetch, even when the client asks for more."""

assert PARKED_BYTES_MAX <= UNCOMMITTED_BYTES_MAX
assert IDLE_WINDOW_BYTES <= RECENT_WINDOW_BYTES_MAX

# --- metadata -------------------------------------------------------------------------------------
BROKERS_MAX: Final = 64
"""Every broker is a voter or learner of group 0."""
TOPICS_MAX: Final = 20_000
PARTITIONS_PER_TOPIC_MAX: Final = 10_000
PARTITIONS_MAX: Final = 100_000
"""Partitions of the whole cluster. Every broker holds the image in memory, about 1 KiB a partition.
"""
REPLICATION_FACTOR_MAX: Final = 5
"""Below VOTERS_MAX, so that a joint change always has room for its newcomers."""
REPLICAS_PER_PARTITION_MAX: Final = 64
"""Replica ids known for one partition: the assigned ones, and those that may not be gone yet."""
TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's bound: a name with a partition number must fit into a file name."""
CONFIGS_PER_TOPIC_MAX: Final = 64
CONFIG_NAME_BYTES_MAX: Final = 255
CONFIG_VALUE_BYTES_MAX: Final = 4096
LISTENERS_MAX: Final = 16
HOST_BYTES_MAX: Final = 255
RACK_BYTES_MAX: Final = 255
FORMER_DIRECTORIES_MAX: Final = 64
"""Directories of a node that may never take part again; no node is wiped more often than that."""
REMOVALS_MAX: Final = 10_000
"""Removed replicas confirmed by one command."""
REMOVALS_WAITING_MAX: Final = 10_000
"""Removed replicas that wait for an absent broker; with so many the broker gets no new replicas."""
REPORTS_MAX: Final = 2_000
"""Partitions in one report of a broker; each takes at most 480 bytes."""
COMMAND_BYTES_MAX: Final = 48 * MIB
"""Size of the largest command, a snapshot. With PARTITIONS_MAX partitions of three replicas in
TOPICS_MAX topics it takes 44 MiB. 73,000 partitions fit when each has five replicas, or three that
are all on the move. The command is one batch, so it stays below BATCH_BYTES_MAX. All other commands
are smaller than CONTROLLER_BODY_BYTES_MAX."""
SNAPSHOT_BYTES_MAX: Final = COMMAND_BYTES_MAX - KIB
"""Size of a metadata image or of the state of a partition; memory holds each whole. A larger image
is not put into the log, which then is not trimmed."""
assert MACHINE_SNAPSHOT_BYTES_MAX + PRODUCER_SNAPSHOT_BYTES_MAX + KIB <= SNAPSHOT_BYTES_MAX
METADATA_SEGMENT_BYTES: Final = 4 * MIB
"""Segment size of the metadata log: small, so that entries that a snapshot covers are soon removed.
"""
PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids are handed to a broker in blocks of this size, as Kafka does."""
CONTROLLER_CALLS_MAX: Final = 4096
"""Calls waiting for an answer at a controller; beyond it the answer is BUSY."""
CONTROLLER_BROKER_CALLS_MAX: Final = 1024
"""Registrations and reports that may wait beyond those, so that a flood of client requests keeps no
broker out. Each boot has one registration open, and a partition stands in one open report."""
ENCODED_METADATA_MAX: Final = 8
"""Answers about all topics that a broker keeps encoded, for clients of a few versions on a few
listeners. Each has about 100 bytes a partition."""

assert LISTENERS_MAX * (HOST_BYTES_MAX + 64) < COMMAND_BYTES_MAX
assert PARTITIONS_PER_TOPIC_MAX * (4 + REPLICATION_FACTOR_MAX * 12) < COMMAND_BYTES_MAX
assert COMMAND_BYTES_MAX < BATCH_BYTES_MAX
assert REPLICATION_FACTOR_MAX < VOTERS_MAX
assert BROKERS_MAX <= LEARNERS_MAX

# --- recordings of brokers ------------------------------------------------------------------------
RECORDING_BYTES_MAX: Final = 256 * MIB
"""Size of the rows of one boot, without payloads: minutes of a busy broker. Few tests live as long.
Beyond it the recording ends and says so, and the recorded part can be replayed."""
RECORDED_PAYLOADS_BYTES_MAX: Final = 1024 * MIB
"""Records that one cluster's recordings keep beside their rows, once each."""
RECORDED_PAYLOAD_BYTES_MIN: Final = 256
"""Smaller byte strings lie in the rows: a reference costs 18 bytes and a hash."""
RECORDING_BEHIND_BYTES_MAX: Final = 64 * MIB
"""Bytes that recordings have handed out and the disk has not taken; beyond it the recordings end.
"""
RECORDED_BOOTS_MAX: Final = 8
"""Boots whose recordings stay, of a broker with a process of its own. The next boot removes the
oldest."""
RECORDED_DEPTH_MAX: Final = 64
"""Nesting of recorded values; the broker's own values are at most ten deep."""
RECORDED_JOBS_MAX: Final = 100_000
"""Jobs whose results are still out; the recording keeps their arguments until they come back."""

# --- exports of topics ----------------------------------------------------------------------------
EXPORT_MANIFEST_BYTES_MAX: Final = 16 * MIB
"""The size of `manifest.json`, and of `SHA256SUMS`. Import reads both into memory whole. A
partition takes about 100 bytes in the one and at most 350 in the other."""
EXPORT_PARTITIONS_MAX: Final = 10_000
"""Partitions of one export over all its topics: each partition is a file. One topic may have all.
"""

assert EXPORT_PARTITIONS_MAX * 350 < EXPORT_MANIFEST_BYTES_MAX
assert PARTITIONS_PER_TOPIC_MAX <= EXPORT_PARTITIONS_MAX

# --- consumer groups ------------------------------------------------------------------------------
GROUP_MEMBERS_MAX: Final = 5_000
"""Members of one group; members that have not joined yet have as many places of their own.
`group.max.size` may be less. A join phase ends in one turn, and the record of the group holds every
member."""
GROUPS_STATE_BYTES_MAX: Final = 24 * MIB
"""Bytes of groups and committed offsets of one partition of the offsets topic. Beyond it the broker
refuses requests that would add to them. The snapshot has a few bytes more for each entry, and must
stay within its own bound."""
GROUPS_LIVE_BYTES_MAX: Final = 64 * MIB
"""Bytes of members' names and subscriptions, over all groups of such a partition; only its leader
holds them. Beyond it a join is refused with GROUP_MAX_SIZE_REACHED."""
GROUP_PROTOCOLS_MAX: Final = 64
"""Assignors that one member may offer; clients have four. The end of a join phase compares those of
all members. A member with more is refused with INCONSISTENT_GROUP_PROTOCOL."""
GROUPS_DESCRIBED_BYTES_MAX: Final = 16 * MIB
"""Bytes of members that one answer to DescribeGroups shows, over all its groups. The first group is
always shown. The others get COORDINATOR_NOT_AVAILABLE, and clients ask for those again."""
OFFSETS_FETCHED_MAX: Final = 50_000
"""Offsets in one answer to OffsetFetch, over all its groups. The first group may have any number.
The others get NOT_COORDINATOR, and clients ask for those again."""
GROUPS_BATCH_BYTES_MIN: Final = 128 * KIB
"""The size that a proposal may always have, even when the topic's setting is lower. The record of
an empty group fits, with an id and a protocol type as long as a string may be."""
GROUPS_UNDECIDED_UNITS_MAX: Final = 10_000
"""Requests of such a partition that wait for a record to be committed. Beyond it a request that
would write more is refused with COORDINATOR_NOT_AVAILABLE, which clients retry."""
GROUPS_UNDECIDED_BYTES_MAX: Final = 8 * MIB
"""Record bytes for which such requests wait: half of the bytes that may be uncommitted in a
partition."""
GROUP_WRITE_PAUSE_MS: Final = 1_000
"""The wait before the coordinator writes a record again that failed and that no request waits for.
A join phase also waits at least this much longer for static members when none has joined."""
GROUPS_EXPIRED_AT_ONCE: Final = 100
"""Groups whose offsets one turn checks for expiry: tens of milliseconds when each has some hundred.
"""
OFFSETS_EXPIRED_AT_ONCE: Final = 5_000
"""Offsets that one turn checks for expiry, over all groups."""
OFFSETS_SWEPT_AT_ONCE: Final = 1_000
"""Offsets of deleted topics, or of a deleted group, that one turn removes, in 10 ms. Later turns
remove the others."""
GROUP_CLIENT_ID_CHARS_MAX: Final = 255
"""The part of a client id that becomes part of a member id."""

assert GROUPS_STATE_BYTES_MAX + GROUPS_UNDECIDED_BYTES_MAX <= MACHINE_SNAPSHOT_BYTES_MAX
assert GROUPS_UNDECIDED_BYTES_MAX <= UNCOMMITTED_BYTES_MAX

# --- client -------------------------------------------------------------------------------------

PARTITIONER_KEYS_MAX: Final = 8_192
"""Keys whose partition a client remembers, since murmur2 in Python costs 2 us; a few MB at most."""
CLIENT_TOPICS_MAX: Final = 10_000
"""Topics whose metadata one client keeps."""
CLIENT_GROUPS_MAX: Final = 10_000
"""Groups whose coordinator one client remembers; beyond it the oldest is looked up again."""
GROUP_NOTICES_MAX: Final = 4
"""Notices of a group that one consumer may collect between two polls: lost partitions, and waits.
"""
CLIENT_CALLS_MAX: Final = 100_000
"""Calls without a result; beyond it a call is refused at once."""
FETCH_CORRUPT_RETRIES_MAX: Final = 3
"""How often a client fetches a batch with a wrong CRC again, since networks corrupt bytes too. Then
it reports the batch."""

assert BROKER_GROUPS_MAX >= PARTITIONS_MAX
