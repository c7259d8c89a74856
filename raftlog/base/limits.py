"""Every bound of the system, with its reason. Relations between them are asserted at import.

A bound is a promise about memory and time under the worst input; a floor adds its own section here
rather than a number in its code.
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
"""The most that one batch may become: as much as the largest batch that may be stored
uncompressed. A broker refuses one that may become more (MESSAGE_TOO_LARGE), and every reader of
ours takes as much."""
CODEC_BLOCKS_MAX: Final = 16_384
"""Blocks of a compressed batch whose heads are looked at: 64 MiB in blocks of 4 KiB, the smallest
that a client of Kafka makes."""
RECORD_HEADERS_MAX: Final = 1 << 20
"""Headers of one record: as many as a batch of the default size has bytes. A header takes two bytes
at least, so that a lying count allocates nothing."""

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
"""In one group: DeleteRecords that wait, and markers for them that are not committed. Where nothing
is committed, both would grow with whoever asks again and again."""
INSTALL_CHUNK_BYTES: Final = 256 * KIB
"""One piece of a snapshot being installed: a heartbeat must not wait behind more."""
INSTALL_BYTES_MAX: Final = 256 * MIB
"""A snapshot is assembled in memory: group 0's image of a very large cluster."""
CLOCKS_APART_MS_MAX: Final = 60_000
"""Wall clocks that differ by no more agree: synchronised clocks differ by milliseconds, and a
heartbeat may have waited behind a stalled disk. A leader deletes by age only while most voters
agree with its clock."""
CLOCK_HEARD_MS_MAX: Final = 10_000
"""A wall clock that was heard of longer ago counts as not known: its node may be paused or gone."""
ROLL_MS_MIN: Final = 1_000
"""The least age at which a segment rolls: a partition begins at most one file a second for its age.
"""
ROLL_AFTER_BOOT_MS_MAX: Final = 3_600_000
"""A boot does not know how old the active segment is. It rolls at the latest after this time, or a
broker that restarts often would never roll it; restarts in quick succession roll nothing."""
PROMOTE_LAG_MAX: Final = 64
"""Entries by which a learner may lag, durably, when it becomes a voter: some rounds of a busy
leader."""
THROTTLE_RATE_MIN: Final = KIB
"""The lowest rate of a throttled move, in bytes a second: less would be a move that never ends."""
UNCOMMITTED_BYTES_MAX: Final = 16 * MIB
"""Proposed and not yet committed bytes per group; beyond it producers to this group are paused,
beyond twice as much what others bring is refused."""

# --- connections ----------------------------------------------------------------------------------
UNANSWERED_BYTES_MAX: Final = 8 * MIB
UNANSWERED_REQUESTS_MAX: Final = 256
"""Per connection; it pauses at the limit and resumes at half. A producer of small batches has as
many under way as fill rounds on disk and followers at once."""
PINNED_BYTES_MAX: Final = 64 * MIB
"""Receive slabs pinned by views, per process; beyond it connections pause."""
WAITING_BYTES_MAX: Final = 128 * MIB
"""The weight of requests without an answer, over all connections: sixteen that may have no more.
Beyond it those whose requests weigh much pause; beyond twice as much, who holds most of it for
longest is hung up on, for thousands that wait for an hour would else fill the memory."""
WAITING_BYTES_MIN: Final = 16 * KIB
"""Whose requests weigh less is never hung up on for it: a fetch of sixty partitions."""
FRAME_BYTES_PREAUTH_MAX: Final = 8 * KIB
FRAME_BYTES_SMALL_MAX: Final = 4 * MIB
"""Every request but Produce."""
PEER_FRAME_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
PEER_FRAME_PREAUTH_BYTES_MAX: Final = 4 * KIB

# --- files ----------------------------------------------------------------------------------------
SEGMENT_HEADER_BYTES: Final = 4 * KIB
SEGMENT_BYTES_MIN: Final = 64 * KIB
"""A segment must hold its header and some batches; tests may go below through their own options."""
SEGMENT_BYTES_DEFAULT: Final = 1024 * MIB
SEGMENT_BYTES_MAX: Final = 2048 * MIB
"""Kafka's own bound; positions then fit everywhere."""
INDEX_ROWS_MAX: Final = 1 << 22
"""Rows of one table of an index file: Raft's own entries of a segment that holds little else."""
INDEX_FILE_BYTES_MAX: Final = 512 * MIB
"""INDEX_ROWS_MAX rows of each table."""
RECOVERED_WINDOW_BYTES: Final = 16 * KIB
"""Log bytes that a boot keeps in memory per replica: a thousand idle ones must stay small."""
SLICE_BYTES_MIN: Final = 32 * KIB
"""A shorter range near the end of the log is answered from memory: a file slice costs two calls."""
SCANNED_RANGES_MAX: Final = 8
"""Exact places of cold ranges remembered per log, one for each slow consumer or so."""
WALK_CHUNK_BYTES: Final = MIB
"""Read size of a walk; one larger batch is read whole."""
SCRUB_JOB_BYTES: Final = MIB
"""Log bytes that one job of the scrubber walks, about: tens of milliseconds of small batches."""
SCRUB_PAUSE_SHARE: Final = 4
"""The scrubber rests so many times as long as its last job took: at most a fifth of one core."""
SCRUB_FIRST_MS_MAX: Final = 60_000
"""The first pass of the scrubber begins so long after the boot, or after half an interval."""
RECHECKS_REMEMBERED_MAX: Final = 4096
"""Offsets that connections were given last, and places that were checked for one that asked again:
the oldest is forgotten. A few hundred kilobytes."""
TIMES_SCAN_BYTES: Final = 4 * MIB
"""Log bytes of which one job computes timestamps, beyond its first stretch: tens of milliseconds,
so that jobs of other partitions get their turn."""
TIMES_SCAN_RECORDS: Final = 500_000
"""Records of such a job, beyond its first stretch: a tenth of a second."""
LOG_READ_FAILURES_MAX: Final = 4
"""Reads of one place that fail in a row before a leader calls it damage, or for clients hands over:
an error may pass, but a sector that cannot be read would keep them waiting for ever."""
LOG_READ_HANDOVER_MS: Final = 10_000
"""How often a leader may hand over because clients cannot be sent what they ask for."""
LOG_READ_PLACES_MAX: Final = 16
"""Places whose failed reads are counted at one time: one for each follower that is far behind, a
few that followers have left; and apart from those, as many of reads for clients."""
REMOVAL_PAUSE_MS: Final = 10_000
"""When removing old segments has failed, how long until it is tried again."""
STORE_BYTES_INITIAL: Final = MIB
"""Each of the two store files is written full of zeros at format, so that votes need no new
space on a full disk."""
STORE_RECORD_BYTES_MAX: Final = 4 * KIB
STORE_FRAME_BYTES_MAX: Final = 256 * MIB
"""A full image: a registration, vote and mark of every group in one frame."""
REPLICA_PATH_BYTES_MAX: Final = 255
LOG_DIRECTORIES_MAX: Final = 64
"""For one broker: disks in one machine are fewer. Each costs an open file and a place in
answers."""
OPEN_FILES_MAX: Final = 512
"""Files that one log thread keeps open for writing, whatever a round writes; the least recently
used is closed. A process may often have 1,024 descriptors, and sockets need some."""

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
"""In one message of a response; it may quote a client, whose strings may have 32,767 bytes."""
FRAME_ITEMS_MAX: Final = 20_000
"""Array elements and tagged fields of one request: a fetch of 10,000 topics with a partition each.
Reading so many takes at most 40 ms, working them 30 to 170 ms, by API (measured on one core)."""
TURN_ITEMS_MAX: Final = 5_000
"""The same of all requests of a turn. One more request is taken while there is room, so a turn has
less than 25,000 of them: 210 ms at most. The rest goes on in later turns."""
DESCRIBED_RESOURCES_MAX: Final = 1_000
"""Topics and brokers of one DescribeConfigs: each has some forty settings in the answer, 130 us.
More are refused with INVALID_REQUEST."""
TURN_SMALL_FRAME_BYTES: Final = 256
"""A frame that a turn takes all the same: it names at most some fifty things, in 1 ms."""
RESPONSE_ITEMS_MAX: Final = 200_000
"""The same of a response that our client reads: 3-byte elements became 25 MB of objects from
300 KB without it."""
REQUEST_ITEM_BYTES: Final = 256
"""The weight of an element of a request's arrays, beside its bytes, until the request is answered:
three bytes become an object of 63, a partition that a fetch waits for one of 212."""
FRAME_BYTES_MAX: Final = 100 * MIB
"""Kafka's default of `socket.request.max.bytes`; what a Produce request may have at most."""
FRAME_BYTES_MIN: Final = 8
"""Key, version and correlation id: what every request begins with."""
RESPONSE_BYTES_MAX: Final = 256 * MIB
"""The most that our client accepts from a broker: fetch.max.bytes is soft by one largest batch."""
CLIENT_REQUESTS_IN_FLIGHT_MAX: Final = 256
"""Requests of one client connection without an answer; more is a client that has lost its way."""

assert FRAME_BYTES_SMALL_MAX <= FRAME_BYTES_MAX
assert BATCH_BYTES_MAX < FRAME_BYTES_MAX < RESPONSE_BYTES_MAX

# --- the broker -----------------------------------------------------------------------------------
OUTPUT_BYTES_MAX: Final = 8 * MIB
"""Answer bytes of one connection that have not left the process; beyond it the connection pauses.
One answer of any size is always admitted."""
HELD_BYTES_MAX: Final = 128 * MIB
"""Answer bytes in memory that have not left the process, over all connections: sixteen that take
nothing at all. Beyond it those who hold much pause; beyond twice as much, who took nothing for
longest is hung up on, for thousands that each hold a little would else fill the memory."""
HELD_BYTES_MIN: Final = 4 * KIB
"""Less on one connection is not looked at: nearly every answer is gone before the next turn."""
HELD_SHARES: Final = 256
"""Beyond this bound, or that of what waits, who holds more than this part of it (512 KiB)
pauses."""
BROKER_GROUPS_MAX: Final = 100_000
"""Groups named in one node heartbeat: every list of them is bounded by this."""
CONTROLLER_BODY_BYTES_MAX: Final = 4 * MIB
"""One request to the controller or its answer: a CreateTopics frame is at most as long."""
CONTROLLER_REQUESTS_MAX: Final = 10_000
"""Clients' requests to the controller in flight per broker; beyond it the caller is refused at
once."""
CONTROLLER_OWN_REQUESTS_MAX: Final = 10_000
"""Registrations, heartbeats and reports that may be in flight beyond those, so that no flood of
wishes has their broker fenced. A few of the former, and a partition stands in one report."""
PERFORMED_MAX: Final = CONTROLLER_REQUESTS_MAX
"""Performed requests of one broker that the metadata image remembers; beyond it those that come
wait until the oldest has been answered."""
CONTROLLER_TEXT_BYTES_MAX: Final = 4 * KIB
PEER_MESSAGES_MAX: Final = 100_000
"""Messages in one peer frame; a turn that sends more makes more frames."""
PEER_FRAME_BYTES_AIM: Final = MIB
"""Messages of a turn are put into frames of about this size: a bounded piece to receive
and check."""
REOPEN_BACKOFF_MS_MAX: Final = 10_000
"""A replica whose disk failed is reopened after 100 ms, then half as often each time, up to
this."""

assert OUTPUT_BYTES_MAX <= PINNED_BYTES_MAX
assert OUTPUT_BYTES_MAX < HELD_BYTES_MAX
assert UNANSWERED_BYTES_MAX < WAITING_BYTES_MAX
assert FRAME_BYTES_MAX + FRAME_ITEMS_MAX * REQUEST_ITEM_BYTES < 2 * WAITING_BYTES_MAX
assert PEER_FRAME_BYTES_AIM <= PEER_FRAME_BYTES_MAX
assert BROKER_GROUPS_MAX * 64 < PEER_FRAME_BYTES_MAX

# --- the partition --------------------------------------------------------------------------------
PRODUCERS_MAX: Final = 4_096
"""Idempotent producers remembered per partition, about 600 bytes each: every restart of a producer
makes a new one, and they expire after a day. Beyond it the quarter that was silent longest goes."""
PRODUCER_SPANS_MAX: Final = 5
"""Batches remembered per producer: Kafka's clients keep at most five in flight (KIP-98)."""
PRODUCER_SNAPSHOT_BYTES_MAX: Final = 64 + PRODUCERS_MAX * (19 + PRODUCER_SPANS_MAX * 16)
"""Header and digest, then per producer 19 bytes and 16 for each batch remembered."""
MACHINE_SNAPSHOT_BYTES_MAX: Final = 32 * MIB
"""The state of an applied machine, held in memory whole: about 300,000 committed offsets. The
snapshot of a larger one is not written, and its log is not trimmed."""
MACHINE_REPLAY_BYTES: Final = 256 * KIB
"""Log bytes that a machine is fed in one turn while it replays: about ten milliseconds of the
loop."""
MACHINE_REPLAY_PAUSE_MS: Final = 100
"""When a read for a replay has failed, how long until it is tried again."""
PARKED_BYTES_MAX: Final = 16 * MIB
"""Produced bytes that wait for a new leader's first commit, per group; one batch is always
admitted."""
IDLE_WINDOW_BYTES: Final = 64 * KIB
"""Log bytes kept in memory by a group that nobody writes to: a thousand of them must stay small."""
IDLE_AFTER_MS: Final = 2_000
"""A group is idle when nothing was appended for so long."""
PRODUCE_WAIT_MS_MAX: Final = 3_600_000
"""No produce or fetch waits longer, whatever a client asks for."""

assert PARKED_BYTES_MAX <= UNCOMMITTED_BYTES_MAX
assert IDLE_WINDOW_BYTES <= RECENT_WINDOW_BYTES_MAX

# --- metadata -------------------------------------------------------------------------------------
BROKERS_MAX: Final = 64
"""Every broker is a voter or learner of group 0."""
TOPICS_MAX: Final = 20_000
PARTITIONS_PER_TOPIC_MAX: Final = 10_000
PARTITIONS_MAX: Final = 100_000
"""In the whole cluster: the image is held in memory by every broker, about 1 KiB a partition."""
REPLICATION_FACTOR_MAX: Final = 5
"""Below VOTERS_MAX, so that a joint change always has room for its newcomers."""
REPLICAS_PER_PARTITION_MAX: Final = 64
"""Replica ids known for one partition: wanted ones and those not yet known to be gone."""
TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's bound: a name with a partition number must fit into a file name."""
CONFIGS_PER_TOPIC_MAX: Final = 64
CONFIG_NAME_BYTES_MAX: Final = 255
CONFIG_VALUE_BYTES_MAX: Final = 4096
LISTENERS_MAX: Final = 16
HOST_BYTES_MAX: Final = 255
RACK_BYTES_MAX: Final = 255
FORMER_DIRECTORIES_MAX: Final = 64
"""Directories of a node that may never take part again; a node is not wiped more often than
that."""
REMOVALS_MAX: Final = 10_000
"""Removed replicas confirmed by one command."""
REMOVALS_WAITING_MAX: Final = 10_000
"""Removed replicas that wait for a broker that is away: with so many it is given no new ones."""
REPORTS_MAX: Final = 2_000
"""Partitions that one report of a broker may speak of: of 480 bytes each, at the most."""
COMMAND_BYTES_MAX: Final = 48 * MIB
"""A snapshot of PARTITIONS_MAX partitions of three replicas in TOPICS_MAX topics takes 44 MiB; of
partitions of five replicas 73,000 fit, and as many of three that are all on the move. The command
is one batch, so it stays below BATCH_BYTES_MAX. All other commands are smaller than
CONTROLLER_BODY_BYTES_MAX."""
SNAPSHOT_BYTES_MAX: Final = COMMAND_BYTES_MAX - KIB
"""A metadata image, or the state of a partition, each held in memory whole. A larger image is not
put into the log, which then is not trimmed."""
assert MACHINE_SNAPSHOT_BYTES_MAX + PRODUCER_SNAPSHOT_BYTES_MAX + KIB <= SNAPSHOT_BYTES_MAX
METADATA_SEGMENT_BYTES: Final = 4 * MIB
"""Segments of the metadata log: small, so that what a snapshot makes superfluous soon goes."""
PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids are handed to a broker in blocks of this size, as Kafka does."""
CONTROLLER_CALLS_MAX: Final = 4096
"""Calls waiting for an answer at a controller; beyond it the answer is BUSY."""
CONTROLLER_BROKER_CALLS_MAX: Final = 1024
"""Registrations and reports that may wait beyond those, so that no flood of wishes keeps a broker
out. Each boot has one registration open, and a partition stands in one open report."""
ENCODED_METADATA_MAX: Final = 8
"""Answers about all topics that are kept encoded: clients of a few versions on a few listeners. One
has about 100 bytes a partition."""

assert LISTENERS_MAX * (HOST_BYTES_MAX + 64) < COMMAND_BYTES_MAX
assert PARTITIONS_PER_TOPIC_MAX * (4 + REPLICATION_FACTOR_MAX * 12) < COMMAND_BYTES_MAX
assert COMMAND_BYTES_MAX < BATCH_BYTES_MAX
assert REPLICATION_FACTOR_MAX < VOTERS_MAX
assert BROKERS_MAX <= LEARNERS_MAX

# --- recordings of brokers ------------------------------------------------------------------------
RECORDING_BYTES_MAX: Final = 256 * MIB
"""Rows of one boot, without payloads: minutes of a busy broker. A test rarely lives as long; beyond
it the recording ends, says so, and what is there can be replayed."""
RECORDED_PAYLOADS_BYTES_MAX: Final = 1024 * MIB
"""Records that one cluster's recordings keep beside their rows, once each."""
RECORDED_PAYLOAD_BYTES_MIN: Final = 256
"""Smaller byte strings lie in the rows: a reference costs 18 bytes and a hash."""
RECORDING_BEHIND_BYTES_MAX: Final = 64 * MIB
"""Bytes that recordings have handed out and the disk has not taken; beyond it they end."""
RECORDED_BOOTS_MAX: Final = 8
"""Boots of a broker with a process of its own whose recordings stay; before the next boot the
oldest goes."""
RECORDED_DEPTH_MAX: Final = 64
"""Values inside values; those of the broker are ten deep at most."""
RECORDED_JOBS_MAX: Final = 100_000
"""Jobs that were handed out and have not come back, whose arguments are kept until they do."""

# --- exports of topics ----------------------------------------------------------------------------
EXPORT_MANIFEST_BYTES_MAX: Final = 16 * MIB
"""The size of `manifest.json`, and of `SHA256SUMS`. Both are read into memory whole: a partition
takes about 100 bytes in the one and at most 350 in the other."""
EXPORT_PARTITIONS_MAX: Final = 10_000
"""All topics of one export together: each partition is a file. One topic may have as many."""

assert EXPORT_PARTITIONS_MAX * 350 < EXPORT_MANIFEST_BYTES_MAX
assert PARTITIONS_PER_TOPIC_MAX <= EXPORT_PARTITIONS_MAX

# --- consumer groups ------------------------------------------------------------------------------
GROUP_MEMBERS_MAX: Final = 5_000
"""Members of one group, and members without a first join beside them; `group.max.size` may be less.
A join phase ends in one turn, and the record of the group holds every member."""
GROUPS_STATE_BYTES_MAX: Final = 24 * MIB
"""Groups and committed offsets of one partition of the offsets topic. Beyond it what would add to
them is refused. Its snapshot has a few bytes more an entry, and must stay within its own bound."""
GROUPS_LIVE_BYTES_MAX: Final = 64 * MIB
"""Names and subscriptions of members, over all groups of such a partition, held by its leader only.
Beyond it a join is refused with GROUP_MAX_SIZE_REACHED."""
GROUP_PROTOCOLS_MAX: Final = 64
"""Assignors that one member may offer; clients have four. The end of a join phase looks through
those of every member. More are refused with INCONSISTENT_GROUP_PROTOCOL."""
GROUPS_DESCRIBED_BYTES_MAX: Final = 16 * MIB
"""Members that one answer to DescribeGroups shows, over all its groups; the first is always shown.
The others are refused with COORDINATOR_NOT_AVAILABLE, and clients ask for those again."""
OFFSETS_FETCHED_MAX: Final = 50_000
"""Offsets that one answer to OffsetFetch has, over all its groups; the first group has any number.
The others are refused with NOT_COORDINATOR, and clients ask for those again."""
GROUPS_BATCH_BYTES_MIN: Final = 128 * KIB
"""A proposal may always have so many bytes, whatever the topic's setting. The record of an empty
group fits, whose id and protocol type are as long as a string may be."""
GROUPS_UNDECIDED_UNITS_MAX: Final = 10_000
"""Requests of such a partition that wait for a record to be committed. Beyond it those that would
write more are refused with COORDINATOR_NOT_AVAILABLE, which clients try again."""
GROUPS_UNDECIDED_BYTES_MAX: Final = 8 * MIB
"""The same in bytes of records: half of what may be uncommitted in a partition."""
GROUP_WRITE_PAUSE_MS: Final = 1_000
"""When a record that no request waits for could not be written, how long until it is tried again;
and how long, at least, a join phase waits on for static members of which none has joined."""
GROUPS_EXPIRED_AT_ONCE: Final = 100
"""Groups whose offsets are looked through in one turn: tens of milliseconds when each has some
hundred."""
OFFSETS_EXPIRED_AT_ONCE: Final = 5_000
"""Offsets after which that turn looks at no further one, of this group or another."""
OFFSETS_SWEPT_AT_ONCE: Final = 1_000
"""Offsets of deleted topics, or of a deleted group, that are removed in one turn, in 10 ms; the
others in later turns."""
GROUP_CLIENT_ID_CHARS_MAX: Final = 255
"""The part of a client id that becomes part of a member id."""

assert GROUPS_STATE_BYTES_MAX + GROUPS_UNDECIDED_BYTES_MAX <= MACHINE_SNAPSHOT_BYTES_MAX
assert GROUPS_UNDECIDED_BYTES_MAX <= UNCOMMITTED_BYTES_MAX

# --- client -------------------------------------------------------------------------------------

PARTITIONER_KEYS_MAX: Final = 8_192
"""Keys whose partition is remembered (murmur2 in Python costs 2 us); a few MB at the very most."""
CLIENT_TOPICS_MAX: Final = 10_000
"""Topics that one client keeps metadata of."""
CLIENT_GROUPS_MAX: Final = 10_000
"""Groups whose coordinator one client remembers; beyond it the oldest is looked up again."""
GROUP_NOTICES_MAX: Final = 4
"""Notices of a group between two polls of one consumer: it loses partitions, and waits."""
CLIENT_CALLS_MAX: Final = 100_000
"""Calls without a result; beyond it a call is refused at once."""
FETCH_CORRUPT_RETRIES_MAX: Final = 3
"""A batch with a wrong CRC is fetched again this often: wires corrupt too. Then it is reported."""

assert BROKER_GROUPS_MAX >= PARTITIONS_MAX
