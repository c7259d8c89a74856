"""Every (message, version, direction) against kio and kafka-python: three codecs must agree.

Method: a body drawn from the table is encoded by us. Our bytes must be kafka-python's bytes for the
same fields; kio and kafka-python must read them and write the same bytes again; we must read back
what we wrote. kio sees only bytes that our own decoder accepted first.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftlog.base.errors import ProtocolError
from raftlog.base.limits import FRAME_ITEMS_MAX
from raftlog.kafka.compile import compile_decoder, compile_encoder
from raftlog.kafka.messages.api_versions import ApiVersionsResponse
from raftlog.kafka.shape import MessageTable
from raftlog.kafka.source import has_views
from raftlog.kafka.tables import named_table
from tests.kafka import oracles
from tests.kafka.bodies import PAIRS, bodies, encoded, pair_id

QUICK = {"ApiVersions", "Produce", "Fetch", "Metadata", "CreateTopics", "JoinGroup", "OffsetFetch"}
EXAMPLES = max(4, settings().max_examples // 8)


def pairs(quick: bool) -> list[tuple[MessageTable, int]]:
    """The first and last version of some APIs for every check, all others for the full run."""
    chosen = [
        (table, version)
        for table, version in PAIRS
        if version in table[3]
        and table[1].removesuffix("Request").removesuffix("Response") in QUICK
    ]
    return chosen if quick else [pair for pair in PAIRS if pair not in chosen]


def agree(table: MessageTable, version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(table, version))
    ours = encoded(compile_encoder(table, version), body)
    assert read(table, version, ours) == body
    if oracles.known_to_kio(table):
        assert oracles.kio_reencode(table, version, ours) == ours
    if oracles.known_to_kafka_python(table):
        assert oracles.kafka_python_encode(table, version, body) == ours
    if oracles.known_to_kafka_python(table) and not falls_back(body):
        theirs = oracles.kafka_python_decode(table, version, ours)
        assert theirs == oracles.plain(table, version, body)


def falls_back(body: object) -> bool:
    """kafka-python takes an ApiVersions answer with any error for version 0, not only with 35."""
    return isinstance(body, ApiVersionsResponse) and body.error_code != 0


def read(table: MessageTable, version: int, encoding: bytes) -> object:
    decode = compile_decoder(table, version)
    shown = memoryview(encoding) if has_views(table[5], version) else encoding
    body, position, _ = decode(shown, 0, FRAME_ITEMS_MAX)
    assert position == len(encoding)
    return body


@pytest.mark.parametrize(("table", "version"), pairs(quick=True), ids=pair_id)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_codecs_agree(table, version, data):
    agree(table, version, data)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "version"), pairs(quick=False), ids=pair_id)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_codecs_agree_on_everything_else(table, version, data):
    agree(table, version, data)


def test_every_message_of_the_schemas_is_compared():
    assert len(pairs(quick=True)) + len(pairs(quick=False)) == len(PAIRS) == 509


def test_what_no_oracle_knows_is_named():
    """The records of __consumer_offsets; their bytes are written by hand in test_embedded."""
    alone = {table[1] for table, _ in PAIRS if not oracles.known_to_kio(table)}
    assert alone == {
        "OffsetCommitKey",
        "OffsetCommitValue",
        "GroupMetadataKey",
        "GroupMetadataValue",
    }
    served = {table[1] for table, _ in PAIRS if table[0] >= 0}
    theirs = {table[1] for table, _ in PAIRS if oracles.known_to_kafka_python(table)}
    assert served - theirs == {
        "ConsumerGroupHeartbeatRequest",
        "ConsumerGroupHeartbeatResponse",
        "ShareGroupHeartbeatRequest",
        "ShareGroupHeartbeatResponse",
        "AddRaftVoterRequest",
        "AddRaftVoterResponse",
        "RemoveRaftVoterRequest",
        "RemoveRaftVoterResponse",
        "UnregisterBrokerRequest",
        "UnregisterBrokerResponse",
    }


def test_the_frame_that_aborts_kio_is_an_error_of_ours():
    """Why kio is never shown what we did not accept: it dies without an exception (0.6.5)."""
    frame = "ffffffff0f0000"
    code = (
        "from kio.schema.metadata.v12.request import MetadataRequest\n"
        "from kio.serial import entity_reader\n"
        f"entity_reader(MetadataRequest)(bytes.fromhex('{frame}'), 0)\n"
    )
    assert oracles.kio_in_child(code) != 0
    table = named_table("MetadataRequest")
    with pytest.raises(ProtocolError, match="elements"):
        compile_decoder(table, 12)(bytes.fromhex(frame), 0, FRAME_ITEMS_MAX)
