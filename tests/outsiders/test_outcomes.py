"""The one rule from what a client said to a cell."""

import pytest
from outsiders.outcomes import cell_of, lasting, outcome_of


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("GroupAuthorizationFailedError: [Error 30]", "clear error"),
        ('KafkaError{code=GROUP_AUTHORIZATION_FAILED,val=30,str="x"}', "clear error"),
        ("GroupAuthorizationException: FindCoordinator: authorization failure", "clear error"),
        ("Not authorized to access group: g", "clear error"),
        ("FindCoordinator: consumer groups are not served yet", "clear error"),
        ("SECURITY_DISABLED: Security features are disabled.", "clear error"),
        ("The node does not support ALTER_CONFIGS", "not yet"),
        ("UNSUPPORTED_VERSION: The version of API is not supported.", "not yet"),
        ("kafka server: The version of API is not supported", "not yet"),
        ("first: broker is too old", "not yet"),
        ("IncompatibleBrokerVersion: AlterConfigsRequest", "not yet"),
        ("silent for 15 s: no record came, and no error", "hang"),
        ("silent for 15 s: GROUP_AUTHORIZATION_FAILED in its log", "hang"),
        ("UNSUPPORTED_VERSION; groups are not served yet", "clear error"),
        ("records: expected 60, got 59", "wrong"),
        ("Timed out waiting for a node assignment", "wrong"),
        ("", "wrong"),
    ],
)
def test_an_error_has_one_outcome(said, outcome):
    assert outcome_of(said) == outcome


def test_a_line_of_a_program_becomes_a_cell():
    assert cell_of({"feature": "create"}) == ("works", "")
    assert cell_of({"feature": "create", "absent": "none"}) == ("absent", "none")
    assert cell_of({"feature": "create", "error": "two\n lines"}) == ("wrong", "two lines")


def test_what_differs_from_run_to_run_is_left_out():
    said = "%1|179567.302|TXNERR|rdkafka#producer-1| at 127.0.0.1:5623/3: File /some/where/x.py"
    assert lasting(said) == "TXNERR|rdkafka#producer-1| at BROKER: File x.py"
