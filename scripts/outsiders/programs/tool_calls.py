"""The calls of Kafka's command-line tools beside the features of every client.

In the flags, `{filled}` and `{work}` stand for topics, `{prefix}` for the prefix of their names,
and `{plan}` for a file that holds `plan`, which is JSON. `{bootstrap}` is for tools that have a
flag of their own for it; the others get theirs. `{producing}` and `{count}` are flags that 4.2
renamed.
"""

from typing import NamedTuple


class Call(NamedTuple):
    """One call of a tool: its class, its flags, and what its output must show. With `refused`, the
    tool must fail, and show that in its error. An `endless` tool is ended after a while."""

    tool: str
    flags: str
    shows: str = ""
    refused: str = ""
    plan: str = ""
    endless: bool = False


MOVE = '{"version":1,"partitions":[{"topic":"{work}","partition":0,"replicas":[2,3,1]}]}'
WHICH = '{"version":1,"topics":[{"topic":"{work}"}]}'
REASSIGN = "ReassignPartitionsCommand"
GROUPS = "ConsumerGroupCommand"

CALLS = {
    "topics-list": Call("TopicCommand", "--list", shows="{filled}"),
    "topics-under-min-isr": Call("TopicCommand", "--describe --under-min-isr-partitions"),
    "topics-create-assigned": Call(
        "TopicCommand",
        "--create --topic {prefix}-assigned --replica-assignment 1:2,2:3,3:1",
        shows="Created topic",
    ),
    "topics-bad-setting": Call(
        "TopicCommand", "--create --topic {prefix}-bad --config no.such=1", refused=r"no\.such"
    ),
    "topics-bad-replicas": Call(
        "TopicCommand",
        "--create --topic {prefix}-bad --replication-factor 5",
        refused="[Rr]eplication factor",
    ),
    "topics-bad-name": Call(
        "TopicCommand", "--create --topic a!b", refused="InvalidTopicException"
    ),
    "topics-describe-unknown": Call(
        "TopicCommand", "--describe --topic {prefix}-no", refused="{prefix}-no"
    ),
    "topics-unknown": Call("TopicCommand", "--delete --topic {prefix}-no", refused="{prefix}-no"),
    "offsets-latest": Call("GetOffsetShell", "--topic {filled}", shows="{filled}:0:20"),
    "offsets-earliest": Call(
        "GetOffsetShell", "--topic {filled} --time earliest", shows="{filled}:0:0"
    ),
    "offsets-max-timestamp": Call(
        "GetOffsetShell", "--topic {filled} --time max-timestamp", shows="{filled}:0:19"
    ),
    "offsets-time": Call(
        "GetOffsetShell", "--topic {filled} --time 1700000005000", shows="{filled}:0:5"
    ),
    "offsets-earliest-local": Call(
        "GetOffsetShell", "--topic {filled} --time earliest-local", shows="{filled}:0:0"
    ),
    "offsets-latest-tiered": Call("GetOffsetShell", "--topic {filled} --time latest-tiered"),
    "configs-topic-all": Call(
        "ConfigCommand", "--describe --topic {filled} --all", shows="retention.ms=-1"
    ),
    "configs-all-topics": Call(
        "ConfigCommand", "--describe --entity-type topics", shows="{filled}"
    ),
    "configs-all-groups": Call("ConfigCommand", "--describe --entity-type groups"),
    "configs-topic-delete": Call(
        "ConfigCommand", "--alter --topic {work} --delete-config retention.ms", shows="Completed"
    ),
    "configs-broker-all": Call(
        "ConfigCommand", "--describe --broker 1 --all", shows="log.retention.ms="
    ),
    # Records of the work topic are old, and another call takes its own retention away. Any other
    # value would delete them.
    "configs-broker-alter": Call(
        "ConfigCommand",
        "--alter --broker 1 --add-config log.retention.ms=-1",
        shows="Completed",
    ),
    "configs-broker-dynamic": Call(
        "ConfigCommand", "--describe --broker 1", shows="DYNAMIC_BROKER_CONFIG:log.retention.ms="
    ),
    "configs-broker-fixed": Call(
        "ConfigCommand",
        "--alter --broker 1 --add-config log.cleaner.threads=2",
        refused="Cannot update these configs dynamically",
    ),
    "configs-brokers-default": Call(
        "ConfigCommand", "--describe --entity-type brokers --entity-default"
    ),
    "configs-loggers": Call(
        "ConfigCommand", "--describe --broker-logger 1", shows="broker-logger 1"
    ),
    "configs-users": Call("ConfigCommand", "--describe --entity-type users"),
    "configs-scram": Call(
        "ConfigCommand",
        "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[password=x]",
        shows="Completed",
    ),
    "configs-quota": Call(
        "ConfigCommand",
        "--alter --entity-type clients --entity-name c --add-config producer_byte_rate=1024",
        shows="Completed",
    ),
    "groups-describe": Call(
        GROUPS, "--describe --group {prefix}-g", refused="does not exist|NotFound"
    ),
    "groups-reset": Call(
        GROUPS,
        "--reset-offsets --group {prefix}-g --topic {filled} --to-earliest --execute",
        shows="{filled}",
    ),
    # The reset before this call has created the group.
    "groups-delete": Call(GROUPS, "--delete --group {prefix}-g", shows="was successful"),
    "groups-tool": Call("GroupsCommand", "--list"),
    "log-dirs": Call("LogDirsCommand", "--describe", shows="partitions"),
    "reassign-list": Call(REASSIGN, "--list", shows="[Rr]eassign"),
    "reassign-generate": Call(
        REASSIGN,
        "--generate --broker-list 1,2,3 --topics-to-move-json-file {plan}",
        shows="Proposed",
        plan=WHICH,
    ),
    "reassign-throttle": Call(
        REASSIGN,
        "--execute --throttle 1000000 --reassignment-json-file {plan}",
        shows="Successfully started",
        plan=MOVE,
    ),
    "reassign-verify": Call(
        REASSIGN,
        "--verify --preserve-throttles --reassignment-json-file {plan}",
        shows="Status of",
        plan=MOVE,
    ),
    "reassign-cancel": Call(
        REASSIGN,
        "--cancel --preserve-throttles --reassignment-json-file {plan}",
        plan=MOVE,
    ),
    "elect-leaders": Call(
        "LeaderElectionCommand", "--election-type preferred --all-topic-partitions"
    ),
    "quorum-status": Call("MetadataQuorumCommand", "describe --status", shows="LeaderId"),
    "quorum-replication": Call("MetadataQuorumCommand", "describe --replication", shows="Leader"),
    "api-versions": Call("BrokerApiVersionsCommand", "", shows="Produce"),
    "features": Call("FeatureCommand", "describe", shows="raftlog.version"),
    "features-upgrade": Call(
        "FeatureCommand", "upgrade --feature raftlog.version=1", shows="was upgraded to 1"
    ),
    "cluster-id": Call("ClusterTool", "cluster-id", shows="Cluster ID"),
    "unregister": Call("ClusterTool", "unregister --id 9", refused="ID 9|id 9|NotRegistered"),
    "endpoints": Call("ClusterTool", "list-endpoints", shows="127.0.0.1"),
    "client-metrics": Call("ClientMetricsCommand", "--list"),
    "acls-list": Call("AclCommand", "--list"),
    "acls-add": Call(
        "AclCommand",
        "--add --allow-principal User:a --operation Read --topic {work}",
        shows="Adding ACLs",
    ),
    "transactions-list": Call("TransactionsCommand", "list", shows="TransactionalId"),
    "transactions-producers": Call(
        "TransactionsCommand",
        "describe-producers --topic {work} --partition 0",
        shows="ProducerId",
    ),
    "transactions-hanging": Call("TransactionsCommand", "find-hanging --broker-id 1"),
    "delete-records-all": Call(
        "DeleteRecordsCommand",
        "--offset-json-file {plan}",
        shows="{work}-1",
        plan='{"version":1,"partitions":[{"topic":"{work}","partition":1,"offset":-1}]}',
    ),
    "delete-records-beyond": Call(
        "DeleteRecordsCommand",
        "--offset-json-file {plan}",
        refused="OffsetOutOfRange",
        plan='{"version":1,"partitions":[{"topic":"{work}","partition":1,"offset":99999}]}',
    ),
    "producer-perf": Call(
        "ProducerPerformance",
        "--topic {work} --num-records 2000 --record-size 200 --throughput -1"
        " {producing} bootstrap.servers={bootstrap} acks=all compression.type=zstd",
        shows="2000 records sent",
    ),
    "producer-perf-transactional": Call(
        "ProducerPerformance",
        "--topic {work} --num-records 200 --record-size 200 --throughput -1"
        " --transactional-id {prefix}-perf --transaction-duration-ms 100"
        " {producing} bootstrap.servers={bootstrap} max.block.ms=8000",
        shows="200 records sent",
    ),
    "consumer-latest": Call(
        "ConsoleConsumer",
        "--topic {filled} --partition 0 --offset latest --timeout-ms 3000",
        refused="TimeoutException",
    ),
    "consumer-offset": Call(
        "ConsoleConsumer",
        "--topic {filled} --partition 0 --offset 5 --max-messages 2 --timeout-ms 10000",
        shows="0:5\n0:6\n",
    ),
    "consumer-read-committed": Call(
        "ConsoleConsumer",
        "--topic {filled} --partition 0 --offset earliest --max-messages 2 --timeout-ms 10000"
        " --isolation-level read_committed",
        shows="0:0\n0:1\n",
    ),
    "consumer-no-group": Call(
        "ConsoleConsumer",
        "--topic {filled} --from-beginning --max-messages 60 --timeout-ms 15000",
        shows="2:19\n",
    ),
    "consumer-perf": Call(
        "ConsumerPerformance",
        "--topic {filled} --group {prefix}-perf {count} 60 --timeout 15000",
        shows=r"\n[^,]+, [^,]+, [^,]+, [^,]+, 60, ",
    ),
    "replica-verification": Call(
        "ReplicaVerificationTool",
        "--broker-list {bootstrap} --topics-include {filled} --report-interval-ms 1000",
        shows="max lag is 0 ",
        endless=True,
    ),
    "verifiable-producer": Call(
        "VerifiableProducer", "--topic {work} --max-messages 5", shows="producer_send_success"
    ),
    "verifiable-consumer": Call(
        "VerifiableConsumer",
        "--topic {filled} --group-id {prefix}-v --max-messages 5",
        shows="records_consumed",
    ),
    "share-consumer": Call(
        "ConsoleShareConsumer", "--topic {filled} --max-messages 3 --timeout-ms 12000"
    ),
}
