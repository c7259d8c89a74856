"""Access control lists are refused as Kafka without an authorizer refuses them."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from raftlog.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raftlog.kafka.messages.describe_acls import DescribeAclsRequest
from raftlog.kafka.versions import SERVED, ApiKey
from tests.broker.cluster import Cluster

TOPIC, LITERAL, ANY, READ, ALLOW = 2, 3, 1, 3, 3
WHY = "No Authorizer is configured: access control lists are not served"
REFUSED = (ErrorCode.SECURITY_DISABLED, WHY)


@pytest.fixture(scope="module")
def one():
    return Cluster(brokers=1, encode=True).ready()


def test_the_three_requests_are_offered_in_all_versions_of_their_tables():
    """A tool that finds none of them takes the cluster for one that is too old."""
    for key in (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS):
        assert (SERVED[key].advertised_min, SERVED[key].max) == (1, 3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_list_is_shown_made_or_deleted(one, version):
    everything = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    shown = one.ask(1, ApiKey.DESCRIBE_ACLS, everything, version)
    assert (shown.error_code, shown.error_message, len(shown.resources)) == (*REFUSED, 0)

    wanted = [AclCreation(TOPIC, name, LITERAL, "User:a", "*", READ, ALLOW) for name in "ab"]
    made = one.ask(1, ApiKey.CREATE_ACLS, CreateAclsRequest(wanted), version)
    assert [tuple(each) for each in made.results] == [REFUSED, REFUSED]

    filters = [DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)]
    deleted = one.ask(1, ApiKey.DELETE_ACLS, DeleteAclsRequest(filters), version)
    assert [tuple(each)[:2] for each in deleted.filter_results] == [REFUSED]
    assert [len(each.matching_acls) for each in deleted.filter_results] == [0]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_request_for_nothing_hears_of_nothing(one, version):
    made = one.ask(1, ApiKey.CREATE_ACLS, CreateAclsRequest(), version)
    deleted = one.ask(1, ApiKey.DELETE_ACLS, DeleteAclsRequest(), version)
    assert (len(made.results), len(deleted.filter_results)) == (0, 0)
