"""ApiVersions: the APIs and versions that this broker speaks (KIP-35, KIP-511)."""

import re
from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import Features, api_versions_response
from raftlog.metadata.features import FEATURE_NAME

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_FROM: Final = 3


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with the one table of APIs.

    From version 3 the client names itself. A malformed name is refused, because such names end up
    in operators' pages (KIP-511).
    """
    body = request.body
    names = (body.client_software_name, body.client_software_version)
    named = request.version < _NAMED_FROM or all(_SOFTWARE.fullmatch(name) for name in names)
    code = ErrorCode.NONE if named else ErrorCode.INVALID_REQUEST
    image, release = context.image, context.config.release
    features = Features(
        FEATURE_NAME, release.level_min, release.level_max, image.feature_level, image.version
    )
    request.answer(api_versions_response(error_code=code, features=features))
