"""Boots one replica: finds its live files, how far they are whole, and what that means.

Live files: file sequences only rise. A file makes void what older files hold at or above its first
index (all of it, if it carries the reset flag). So the live chain is read from the youngest file
downwards.

Whole: every live file but the last must lead exactly to the next one's header, by index, offset,
term and chain. A header becomes durable only after everything below it, so a gap there is damage,
with or without a mark. In the last file the first invalid byte begins a torn tail, and is cut, if
it lies at or behind the mark; before the mark it is damage.

Damage is never cut. The replica comes up with its valid prefix and knows what it once held. The
first entry that it is sent begins a new file whose header says so, until the log is whole again. A
replica whose beginning is lost (head header, head snapshot) cannot say what it promised: it is
LOST, and needs a new id.
"""

import enum
from typing import NamedTuple, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.ports import Disk
from raftlog.base.probes import probe
from raftlog.records.chain import chain_start
from raftlog.storage.boot.salvage import SalvagingDisk
from raftlog.storage.boot.walked_log import WalkedLog, walk_log
from raftlog.storage.files import name_again, parent_of, put_back, remove_if_there, write_whole
from raftlog.storage.log_end import LogParts, Mended
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.replica import (
    AWAY_SUFFIX,
    HEAD_FILE,
    MOVING_FILE,
    TEMPORARY_SUFFIX,
    LogOptions,
    Mark,
    ReplicaSpec,
    segment_name,
)
from raftlog.storage.segments.cold import ProducerReplay
from raftlog.storage.segments.jobs import ReplayOrder, replay_producers
from raftlog.storage.segments.live_files import LiveFile, LiveFiles, find_live_files
from raftlog.storage.segments.segment import before_header
from raftlog.storage.segments.segment_header import SegmentHeader, write_segment_header


@final
class ReplicaState(enum.Enum):
    """The result of a boot."""

    INTACT = "intact"
    DAMAGED = "damaged"
    LOST = "lost"


@final
@attrs.define(eq=False, kw_only=True)
class RecoveredReplica:
    """A replica as its files are. `log` and `producers` are None only when it is LOST.

    * `memberships`: ascending; the first is in force at `log.first_index - 1`.
    * `claimed`: (index, term) that a DAMAGED replica once held. It compares candidates with that,
      and never campaigns, until its durable log is as far again.
    * `commit_hint`: at most the log's end. `log_starts`: the markers in the log, (index, offset).
    * `obsolete`: void files, for `remove_files`. A damaged log removes its own.
    * `why`: the damage or loss, for the operator; names the file.
    * `mended`: the repairs that this boot made by itself, for the operator.
    """

    state: ReplicaState
    log: PartitionLog | None = None
    memberships: tuple[tuple[RaftIndex, Membership], ...] = ()
    claimed: tuple[RaftIndex, Term] | None = None
    commit_hint: RaftIndex = RaftIndex(0)
    log_starts: tuple[tuple[RaftIndex, Offset], ...] = ()
    producers: ProducerReplay | None = None
    obsolete: tuple[str, ...] = ()
    why: str = ""
    mended: tuple[Mended, ...] = ()


def create_replica(
    disk: Disk, spec: ReplicaSpec, membership: Membership, options: LogOptions
) -> RecoveredReplica:
    """Job: make an empty log with its first membership, durable.

    It first removes leftovers of an attempt that was never registered. The caller has made sure
    that the replica is not registered.
    """
    delete_replica(disk, spec.path)
    groups = parent_of(spec.path)
    disk.make_dir(spec.path)
    disk.sync_dir(groups)
    disk.sync_dir(parent_of(groups))
    header = SegmentHeader(
        cluster=spec.cluster,
        group=spec.group,
        replica=spec.replica,
        file_sequence=1,
        first_index=RaftIndex(1),
        base_offset=Offset(0),
        term_before=Term(0),
        term=Term(0),
        chain_before=chain_start(spec.cluster, spec.group),
        log_start=Offset(0),
        membership=membership,
        membership_index=RaftIndex(0),
    )
    name = segment_name(header.first_index, header.file_sequence)
    write_whole(disk, f"{spec.path}/{name}", write_segment_header(header))
    return recover_replica(disk, spec, None, options)


def delete_replica(disk: Disk, *paths: str) -> None:
    """Job: remove a replica's directory, in whichever log directory it lies.

    It is done when the directory lies nowhere. The caller unregisters the replica first.

    The file `moving` goes last, when the removals before it are durable. Power may fail after one
    removal reached the disk and before another did, and nothing else explains what then remains.
    """
    for path in paths:
        names = disk.list(path)
        others = [name for name in names if name != MOVING_FILE]
        for name in others:
            disk.remove(f"{path}/{name}")
        if len(others) < len(names):
            disk.sync_dir(path)
            disk.remove(f"{path}/{MOVING_FILE}")
        if disk.exists(path):
            disk.sync_dir(path)
            disk.remove(path)
            disk.sync_dir(parent_of(path))


def salvage_replica(
    disk: Disk, spec: ReplicaSpec, mark: Mark | None, options: LogOptions
) -> RecoveredReplica:
    """Job: do as `recover_replica`, but take unreadable sectors before the mark for damage.

    It reads all of them: no index file vouches for a segment. The caller uses it for a disk whose
    read has failed the same way a few times.
    """
    return recover_replica(SalvagingDisk(disk, mark), spec, mark, options, trust_indexes=False)


def recover_replica(
    disk: Disk,
    spec: ReplicaSpec,
    mark: Mark | None,
    options: LogOptions,
    *,
    trust_indexes: bool = True,
) -> RecoveredReplica:
    """Job: read a registered replica from its files; cuts a torn tail. `mark` is the store's."""
    _tidy_names(disk, spec.path)
    try:
        files = find_live_files(disk, spec)
        _check_head(spec, files)
    except CorruptData as damage:
        probe("replica-files-lost")
        return RecoveredReplica(state=ReplicaState.LOST, why=str(damage))
    _name_in_doubt_again(disk, spec, files, mark)
    files = _without_what_a_lost_file_cut(files, mark)
    attempt = _walk_and_replay(disk, spec, files, mark, options, trust_indexes=trust_indexes)
    walked, log, producers = attempt
    if producers is None:
        probe("head-snapshot-lost")
        why = f"no whole snapshot of the state before entry {log.first_index}"
        return RecoveredReplica(state=ReplicaState.LOST, why=walked.fault or why)
    fault = walked.fault
    state = ReplicaState.INTACT if log.damaged_until is None else ReplicaState.DAMAGED
    hint = _hint(log, walked, mark)
    log.set_commit(hint)
    return RecoveredReplica(
        state=state,
        log=log,
        memberships=tuple(log.memberships),
        claimed=log.damaged_until,
        commit_hint=hint,
        log_starts=tuple(walked.log_starts),
        producers=producers,
        obsolete=() if fault else tuple(files.void),
        why=fault or "; ".join(gap.why for gap in log.gaps),
        mended=walked.mended,
    )


def _without_what_a_lost_file_cut(files: LiveFiles, mark: Mark | None) -> LiveFiles:
    """Limit the files to the mark, when the younger file in which the mark was made is lost.

    That file is missing or cannot be read, so its first index may not be known. Still, entries of
    older files behind the mark, or of a later term, were void, else the mark would speak of them.
    So the older files never claim more than the mark does.
    """
    if mark is None:
        return files
    if mark.file_sequence > files.sequence_max:
        probe("marked-file-lost")
    live = list(files.live)
    while len(live) > 1 and _is_void(live[-1], mark):
        probe("void-file-beside-a-lost-one")
        live.pop()
    last = live[-1]
    if last.header.file_sequence < mark.file_sequence and not _is_void(last, mark):
        end = RaftIndex(mark.raft_index + 1)
        stop = end if last.stop is None else min(last.stop, end)
        term_max = mark.term if last.term_max is None else min(last.term_max, mark.term)
        live[-1] = last._replace(stop=stop, term_max=term_max)
    beyond = [file for file in files.beyond if file.header.file_sequence >= mark.file_sequence]
    return files._replace(live=live, beyond=beyond)


def _is_void(file: LiveFile, mark: Mark) -> bool:
    """Whether an older file than the mark's begins behind the mark, or in a later term."""
    header = file.header
    behind = header.first_index > mark.raft_index + 1 or header.term_before > mark.term
    return behind and header.file_sequence < mark.file_sequence


def _tidy_names(disk: Disk, path: str) -> None:
    """Remove files that never got their name, and put back names that were given again."""
    for name in disk.list(path):
        if name.endswith(TEMPORARY_SUFFIX):
            remove_if_there(disk, f"{path}/{name}")
        elif name.endswith(AWAY_SUFFIX):
            probe("name-put-back-at-boot")
            put_back(disk, f"{path}/{name.removesuffix(AWAY_SUFFIX)}")


def _name_in_doubt_again(
    disk: Disk, spec: ReplicaSpec, files: LiveFiles, mark: Mark | None
) -> None:
    """Give files their names once more, durably, before anything is built on them.

    A sync of the directory may have failed before this boot. The kernel then shows names that go at
    the next power failure. Three kinds of files are not in doubt:

    * a file that the mark, or one before the mark, was made in, since nothing is acknowledged in a
      file before its name is durable;
    * the first file, since a replica is registered after that name is durable;
    * the head file, once something was removed on its word.
    """
    known = max(1, mark.file_sequence if mark else 0)
    doubtful = [
        file.path for file in files.live + files.beyond if file.header.file_sequence > known
    ]
    if files.head is not None and files.void:
        doubtful.append(f"{spec.path}/{HEAD_FILE}")
    if not doubtful:
        return
    probe("names-in-doubt-made-again")
    for path in doubtful:
        name_again(disk, path)
    disk.sync_dir(spec.path)


def _check_head(spec: ReplicaSpec, files: LiveFiles) -> None:
    """Check that the first live file is one that may begin a log."""
    if not files.live:
        raise CorruptData("the replica has no segment that can be read", on=spec.path)
    header = files.live[0].header
    if header.reset or header.first_index in (1, files.head):
        return
    raise CorruptData(
        f"the log begins with entry {header.first_index}, and no record says that it should",
        on=files.live[0].path,
        do="the segments before it are lost; the replica needs a new id",
    )


def _claimed(
    walked: WalkedLog, mark: Mark | None, files: LiveFiles
) -> tuple[RaftIndex, Term] | None:
    """The furthest place that the replica once held, when it lies beyond the valid prefix.

    The mark, the headers (each vouches for everything below it) and an unfinished repair tell it.
    """
    claims = [(walked.end.end.term, walked.end.end.raft_index)]
    if walked.fault is not None:
        claims += [
            (file.header.term_before, RaftIndex(file.header.first_index - 1))
            for file in files.live + files.beyond
        ]
        claims.append((walked.seen.term, walked.seen.raft_index))
        if mark is not None:
            claims.append((mark.term, mark.raft_index))
    repair = files.repair
    if repair is not None:
        claims.append((repair[1], repair[0]))
    term, index = max(claims)
    if (term, index) <= (walked.end.end.term, walked.end.end.raft_index) and not walked.fault:
        return None
    return RaftIndex(index), Term(term)


def _hint(log: PartitionLog, walked: WalkedLog, mark: Mark | None) -> RaftIndex:
    """The index up to which entries are known to be committed.

    The place before the first entry is committed, since retention and installs go by commit. The
    mark's hint does not count when a lost file may have replaced the prefix.
    """
    hint = mark.commit if mark is not None and walked.hint_counts else RaftIndex(0)
    return RaftIndex(max(log.first_index - 1, min(hint, log.last_index)))


def _log_of(
    spec: ReplicaSpec,
    options: LogOptions,
    files: LiveFiles,
    walked: WalkedLog,
    mark: Mark | None,
    claimed: tuple[RaftIndex, Term] | None,
) -> PartitionLog:
    head = files.live[0].header
    parts = LogParts(
        before=before_header(head),
        end=walked.end,
        segments=walked.segments,
        window=walked.window,
        terms=walked.terms,
        memberships=walked.memberships,
        log_start=max(head.log_start, head.base_offset),
        file_sequence=max(files.sequence_max, mark.file_sequence if mark else 0),
        repair=claimed,
        repair_file_due=walked.fault is not None,
        new_file_resets=not walked.segments and head.reset,
        obsolete=_behind_the_fault(files, walked),
    )
    return PartitionLog(spec, options, parts)


def _behind_the_fault(files: LiveFiles, walked: WalkedLog) -> tuple[str, ...]:
    """The files that hold nothing of the valid prefix.

    They are the evidence of what the replica once held, until the file that begins behind the
    prefix is durable. That file is the youngest and begins at or before all of them (or is a
    reset), so it makes them void. Its header carries what they were evidence of, so they go then: a
    repair would otherwise need the room of the log once more.
    """
    if walked.fault is None:
        return ()
    held = {segment.path for segment in walked.segments}
    return tuple(path for path in files.paths if path not in held)


class _Attempt(NamedTuple):
    walked: WalkedLog
    log: PartitionLog
    producers: ProducerReplay | None


def _walk_and_replay(
    disk: Disk,
    spec: ReplicaSpec,
    files: LiveFiles,
    mark: Mark | None,
    options: LogOptions,
    *,
    trust_indexes: bool,
) -> _Attempt:
    """The log, and the producer state at its end; None when the snapshot that it needs is missing.

    The replay may be the first to read a segment that an index file vouched for. If it meets damage
    there, everything is walked, and the valid prefix ends at the damage. Where the walk does not
    reach the mark's file, the mark's commit hint says nothing about the entries that were found.
    """
    hint_counts = files.vouch_for(mark)
    while True:
        attempt = _attempt(disk, spec, files, mark, options, trust_indexes, hint_counts)
        if attempt.walked.fault and _is_sole_voter(spec, files, attempt.walked):
            with_gaps = _attempt(
                disk, spec, files, mark, options, trust_indexes, hint_counts, past_gaps=True
            )
            if with_gaps.walked.fault is None and with_gaps.producers is not None:
                return with_gaps
        if hint_counts and not _reaches(attempt.walked, mark):
            hint_counts = False
        elif attempt.producers is None and trust_indexes:
            probe("damage-met-by-the-replay")
            trust_indexes = False
        else:
            return attempt


def _is_sole_voter(spec: ReplicaSpec, files: LiveFiles, walked: WalkedLog) -> bool:
    """Whether no other replica can repair this one, by every membership that is known.

    The memberships of the valid prefix count, and those of every file behind it. Such a replica
    serves reads of what is whole.
    """
    if not spec.serves_gaps or files.unreadable is not None:
        return False
    known = [membership for _, membership in walked.memberships[-1:]]
    known += [file.header.membership for file in files.live[len(walked.segments) :]]
    return files.repair is None and all(
        each.decides_alone and spec.replica in each.voters for each in known
    )


def _reaches(walked: WalkedLog, mark: Mark | None) -> bool:
    """Whether the walk came to the file that the mark was made in.

    A missing file between may have replaced entries of the files before it.
    """
    if mark is None or walked.fault is None:
        return True
    return any(one.header.file_sequence == mark.file_sequence for one in walked.segments)


def _attempt(
    disk: Disk,
    spec: ReplicaSpec,
    files: LiveFiles,
    mark: Mark | None,
    options: LogOptions,
    trust_indexes: bool,
    hint_counts: bool,
    past_gaps: bool = False,
) -> _Attempt:
    walked = walk_log(
        disk,
        spec,
        files,
        mark,
        options,
        trust_indexes=trust_indexes,
        hint_counts=hint_counts,
        past_gaps=past_gaps,
    )
    claimed = _claimed(walked, mark, files)
    log = _log_of(spec, options, files, walked, mark, claimed)
    (order,) = log.plan_producer_replay().args
    assert isinstance(order, ReplayOrder), order
    try:
        return _Attempt(walked, log, replay_producers(disk, order))
    except CorruptData:
        return _Attempt(walked, log, None)
