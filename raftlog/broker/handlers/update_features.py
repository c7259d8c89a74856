"""UpdateFeatures: the cluster goes to a newer feature level, once all its brokers know it.

There is one feature, `raftlog.version`. Its level says what brokers may write, so it never falls.
All updates of a request are judged first: if one is refused, nothing is done. Codes and sentences
are Kafka's. Up to version 1 each feature has a result; from 2 on the answer has one.
"""

from functools import partial
from typing import Final, NamedTuple

from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import deadline_of
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from raftlog.metadata.commands import RaiseFeatureLevel
from raftlog.metadata.features import FEATURE_NAME
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.requests import SubmitCommand

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3
_FIRST_TYPED: Final = 1
"""From this version on a request says what kind of change it wants."""
_FIRST_WHOLE: Final = 2
"""From this version on an answer has no results of its own for each feature."""


class _Refused(NamedTuple):
    error: ErrorCode
    message: str


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: UpdateFeaturesRequest = request.body
    refused = _refusal(context, request)
    calls = ControllerCalls(
        context.controller, deadline_of(context, body.timeout_ms), partial(_decided, request)
    )
    if refused is not None:
        calls.known(*refused)
    elif body.validate_only or not body.feature_updates:
        calls.known(ErrorCode.NONE)
    else:
        level = body.feature_updates[0].max_version_level
        calls.add(SubmitCommand(command=RaiseFeatureLevel(level=level)))
    calls.begin()


def _refusal(context: Context, request: KafkaRequest) -> _Refused | None:
    """The reason why nothing is done, as far as this broker can say; else None."""
    body: UpdateFeaturesRequest = request.body
    names = [each.feature for each in body.feature_updates]
    if len(dict.fromkeys(names)) != len(names):
        return _Refused(ErrorCode.INVALID_REQUEST, "the request names a feature twice")
    for each in body.feature_updates:
        why = _problem(context, each, _kind(request.version, each))
        if why is not None:
            what = f"Invalid update version {each.max_version_level} for feature {each.feature}."
            return _Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{what} {why}")
    return None


def _kind(version: int, each: FeatureUpdateKey) -> int:
    """The kind of change: version 0 only says whether a level may fall."""
    if version >= _FIRST_TYPED:
        return each.upgrade_type
    return _SAFE_DOWNGRADE if each.allow_downgrade else _UPGRADE


def _problem(context: Context, each: FeatureUpdateKey, kind: int) -> str | None:
    release, level = context.config.release, each.max_version_level
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if each.feature != FEATURE_NAME:
        return f"Broker {context.node} does not support this feature; there is {FEATURE_NAME}."
    if not release.level_min <= level <= release.level_max:
        versions = f"versions {release.level_min}-{release.level_max}"
        return f"Broker {context.node} only supports {versions}."
    present = context.image.feature_level
    if level < present and kind == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level < present:
        return f"The cluster is at {present}, and this feature never goes back."
    if level > present and kind != _UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _decided(request: KafkaRequest, outcomes: list[CallOutcome]) -> None:
    if request.dead:
        return
    (outcome,) = outcomes
    error, message = outcome.error, outcome.message or None
    if error == kafka_code(Refusal.FEATURE_UNSUPPORTED):
        # A registered broker cannot go to this level; the request itself was understood.
        error = ErrorCode.INVALID_UPDATE_VERSION
    if request.version >= _FIRST_WHOLE:
        request.answer(UpdateFeaturesResponse(error_code=error, error_message=message))
        return
    results = [
        UpdatableFeatureResult(each.feature, error, message)
        for each in request.body.feature_updates
    ]
    request.answer(UpdateFeaturesResponse(error_message=None, results=results))
