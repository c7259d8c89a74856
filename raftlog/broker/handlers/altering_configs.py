"""The common part of IncrementalAlterConfigs and AlterConfigs: a resource and its outcome.

Settings go through the controller, which makes one command of all changes of a resource. The answer
waits until this broker's image shows them. A running replica acts upon them as soon as its broker
has applied the command.

A broker's settings change while it runs where `metadata.broker_settings` names them: defaults of
topics, and the rates of throttled moves. The broker reads all others from its file at the start. So
a change of one of those is refused like Kafka's read-only settings. Deleting their dynamic value,
which none has, succeeds at once: Kafka's reassignment tool does that after every move.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from raftlog.base.amounts import amount
from raftlog.base.limits import (
    CONFIG_NAME_BYTES_MAX,
    CONFIG_VALUE_BYTES_MAX,
    CONFIGS_PER_TOPIC_MAX,
)
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.handlers.attempts import gone_by_name
from raftlog.broker.handlers.each_named import EachNamed
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.requests import AlterBrokerRequest, AlterTopicRequest
from raftlog.metadata.rules.topic_names import topic_name_problem
from raftlog.metadata.settings.broker_settings import CHANGEABLE, EVERY_BROKER
from raftlog.metadata.settings.config_changes import ConfigChange, ConfigOperation
from raftlog.metadata.settings.topic_configs import nearest

TOPIC: Final = 2
BROKER: Final = 4
_TWICE: Final = "Each resource must appear at most once."
_NOT_ALTERED: Final = {
    8: "this broker has no loggers of which a level could be set",
    16: "client metrics are not served",
    32: (
        "settings of groups are not served: Kafka's act upon its newer group protocols alone. Set "
        "session.timeout.ms at the members of a group; group.min.session.timeout.ms and "
        "group.max.session.timeout.ms in the brokers' files bound it"
    ),
}


class Changes(NamedTuple):
    """The changes that a request asks of one resource. `operations` are Kafka's numbers."""

    resource_type: int
    resource_name: str
    names: Sequence[str]
    operations: Sequence[int]
    values: Sequence[str | None]
    replace: bool

    @property
    def resource(self) -> tuple[int, str]:
        return self.resource_type, self.resource_name


class NotAltered(NamedTuple):
    """The reason why a resource is not altered."""

    code: ErrorCode
    message: str


def _no_timeout(body: Any) -> int:
    """No bound of the client's: neither request has one, so the broker's own bound counts."""
    return 2**31 - 1


def _is_known(context: Context, asked: Changes) -> bool:
    """Whether this broker's image is enough to judge the changes of the resource."""
    if asked.resource_type != TOPIC or topic_name_problem(asked.resource_name) is not None:
        return True
    return context.router.topic(asked.resource_name) is not None


def _alter(context: Context, calls: ControllerCalls, body: Any, asked: Changes) -> None:
    """Ask the controller for one resource, or refuse it at once."""
    changes = _checked(asked)
    refused = changes if isinstance(changes, NotAltered) else _refusal(context, asked, changes)
    if refused is not None:
        calls.known(*refused)
        return
    assert not isinstance(changes, NotAltered), changes
    if asked.resource_type == BROKER:
        _alter_broker(context, calls, body, asked, changes)
    else:
        topic = context.router.topic(asked.resource_name)
        assert topic is not None, asked.resource_name
        calls.add(
            AlterTopicRequest(
                topic_id=topic.topic_id,
                changes=changes,
                replace=asked.replace,
                validate_only=body.validate_only,
            )
        )


def _alter_broker(
    context: Context,
    calls: ControllerCalls,
    body: Any,
    asked: Changes,
    changes: tuple[ConfigChange, ...],
) -> None:
    """Ask for changes of dynamic settings; other names may only be deleted, and have no value."""
    known = tuple(each for each in changes if each.name in CHANGEABLE)
    if not known and not asked.replace:
        calls.known(ErrorCode.NONE)
        return
    calls.add(
        AlterBrokerRequest(
            owner=context.node if asked.resource_name else EVERY_BROKER,
            changes=known,
            replace=asked.replace,
            validate_only=body.validate_only,
        )
    )


def told(outcome: CallOutcome) -> tuple[int, str | None]:
    """The error code and message of a resource's result."""
    return gone_by_name(outcome.error), outcome.message or None


def _checked(asked: Changes) -> tuple[ConfigChange, ...] | NotAltered:
    """The changes as values, when the request is well formed."""
    code = ErrorCode.INVALID_REQUEST
    if len(asked.names) > CONFIGS_PER_TOPIC_MAX:
        what = f"{amount(len(asked.names), 'setting')}, at most {CONFIGS_PER_TOPIC_MAX} at a time"
        return NotAltered(code, what)
    if any(times > 1 for times in Counter(asked.names).values()):
        return NotAltered(code, "Error due to duplicate config keys")
    changes = []
    empty = []
    for name, number, value in zip(asked.names, asked.operations, asked.values, strict=True):
        if number not in ConfigOperation.__members__.values():
            return NotAltered(code, f"Unknown operation type {number}")
        operation = ConfigOperation(number)
        if len(name.encode()) > CONFIG_NAME_BYTES_MAX:
            what = f"the name of a setting is longer than {CONFIG_NAME_BYTES_MAX} bytes"
            return NotAltered(ErrorCode.INVALID_CONFIG, what)
        if len((value or "").encode()) > CONFIG_VALUE_BYTES_MAX:
            what = f"the value of {name} is longer than {CONFIG_VALUE_BYTES_MAX} bytes"
            return NotAltered(ErrorCode.INVALID_CONFIG, what)
        if operation is ConfigOperation.DELETE:
            changes.append(ConfigChange(operation, name))
        elif value is None:
            empty.append(name)
        else:
            changes.append(ConfigChange(operation, name, value))
    if empty:
        return NotAltered(code, f"Null value not supported for : {', '.join(empty)}")
    return tuple(changes)


def _refusal(
    context: Context, asked: Changes, changes: tuple[ConfigChange, ...]
) -> NotAltered | None:
    """The reason why this resource is not altered, as far as this broker can say; else None."""
    if asked.resource_type == TOPIC:
        return _topic_refusal(context, asked.resource_name)
    if asked.resource_type == BROKER:
        return _broker_refusal(context, asked.resource_name, changes)
    why = _NOT_ALTERED.get(asked.resource_type)
    what = why or f"Unknown resource type {asked.resource_type}"
    return NotAltered(ErrorCode.INVALID_REQUEST, what)


def _topic_refusal(context: Context, name: str) -> NotAltered | None:
    if not name:
        return NotAltered(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = topic_name_problem(name)
    if problem is not None:
        return NotAltered(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if context.router.topic(name) is None:
        what = f"The topic '{name}' does not exist."
        return NotAltered(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    return None


def _broker_refusal(
    context: Context, name: str, changes: tuple[ConfigChange, ...]
) -> NotAltered | None:
    code = ErrorCode.INVALID_REQUEST
    if name not in ("", str(context.node)):
        return NotAltered(
            code, f"Unexpected broker id, expected {context.node}, but received {name}"
        )
    asked = [
        each.name
        for each in changes
        if each.operation is not ConfigOperation.DELETE and each.name not in CHANGEABLE
    ]
    if not asked:
        return None
    unknown = _unknown(context, asked)
    what = (
        f"Cannot update these configs dynamically: {', '.join(asked)}. A broker reads its settings "
        f"from its file when it starts: change the file and restart it{unknown}"
    )
    return NotAltered(code, what)


def _unknown(context: Context, asked: Sequence[str]) -> str:
    """The text to add about the first name that is none of a broker's settings."""
    known = [each.name for each in context.config.told]
    wrong = next((name for name in asked if known and name not in known), None)
    if wrong is None:
        return ""
    near = nearest(wrong, known)
    return f"; {wrong} is no setting of a broker" + (f", did you mean {near}?" if near else "")


def altering(
    asked: Callable[[Any], list[Changes]], respond: Callable[[Any, list[CallOutcome]], Any]
) -> EachNamed:
    """The handler of a request, made of its resources and of the response to their outcomes."""
    return EachNamed(
        asked=asked,
        key=attrgetter("resource"),
        twice=_TWICE,
        fits=_is_known,
        ask=_alter,
        respond=respond,
        timeout_ms=_no_timeout,
    )
