"""Security settings of Kafka's that this release does not serve: a broker that is told to be secure
and is not must not start.

Every listener of this release is plaintext, without authentication and without authorization. Each
setting below is accepted with the value that asks for nothing: its default, or no value. Any other
value stops the start, and so does a listener whose protocol is not served. A name may stand behind
a prefix (`listener.name.internal.ssl.keystore.location`), as in Kafka.
"""

from typing import Final

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOL: Final = "PLAINTEXT"
DEFAULT_PROTOCOL_MAP: Final = ",".join(f"{each}:{each}" for each in PROTOCOLS)
_LISTENER_PREFIX: Final = "listener.name."

NO_OPS: Final[dict[str, str]] = {
    "security.inter.broker.protocol": "PLAINTEXT",
    "security.providers": "",
    "ssl.client.auth": "none",
    "ssl.protocol": "TLSv1.3",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.cipher.suites": "",
    "ssl.provider": "",
    "ssl.engine.factory.class": "",
    "ssl.key.password": "",
    "ssl.keystore.type": "JKS",
    "ssl.keystore.location": "",
    "ssl.keystore.password": "",
    "ssl.keystore.key": "",
    "ssl.keystore.certificate.chain": "",
    "ssl.truststore.type": "JKS",
    "ssl.truststore.location": "",
    "ssl.truststore.password": "",
    "ssl.truststore.certificates": "",
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.trustmanager.algorithm": "PKIX",
    "ssl.secure.random.implementation": "",
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.principal.mapping.rules": "DEFAULT",
    "ssl.allow.dn.changes": "false",
    "ssl.allow.san.changes": "false",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "sasl.mechanism.controller.protocol": "GSSAPI",
    "sasl.jaas.config": "",
    "sasl.client.callback.handler.class": "",
    "sasl.server.callback.handler.class": "",
    "sasl.server.max.receive.size": "524288",
    "sasl.kerberos.service.name": "",
    "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": "60000",
    "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    "sasl.kerberos.ticket.renew.jitter": "0.05",
    "sasl.kerberos.ticket.renew.window.factor": "0.8",
    "sasl.login.class": "",
    "sasl.login.callback.handler.class": "",
    "sasl.login.connect.timeout.ms": "",
    "sasl.login.read.timeout.ms": "",
    "sasl.login.refresh.buffer.seconds": "300",
    "sasl.login.refresh.min.period.seconds": "60",
    "sasl.login.refresh.window.factor": "0.8",
    "sasl.login.refresh.window.jitter": "0.05",
    "sasl.login.retry.backoff.ms": "100",
    "sasl.login.retry.backoff.max.ms": "10000",
    "sasl.oauthbearer.allow.unverified.audience": "false",
    "sasl.oauthbearer.allow.unverified.issuer": "false",
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.claim.aud": "",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "300",
    "sasl.oauthbearer.assertion.claim.iss": "",
    "sasl.oauthbearer.assertion.claim.jti.include": "false",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "60",
    "sasl.oauthbearer.assertion.claim.sub": "",
    "sasl.oauthbearer.assertion.file": "",
    "sasl.oauthbearer.assertion.private.key.file": "",
    "sasl.oauthbearer.assertion.private.key.passphrase": "",
    "sasl.oauthbearer.assertion.template.file": "",
    "sasl.oauthbearer.client.credentials.client.id": "",
    "sasl.oauthbearer.client.credentials.client.secret": "",
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "sasl.oauthbearer.expected.audience": "",
    "sasl.oauthbearer.expected.issuer": "",
    "sasl.oauthbearer.header.urlencode": "false",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
    "sasl.oauthbearer.jwks.endpoint.url": "",
    "sasl.oauthbearer.jwt.retriever.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    ),
    "sasl.oauthbearer.scope": "",
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "sasl.oauthbearer.token.endpoint.url": "",
    "authorizer.class.name": "",
    "super.users": "",
    "allow.everyone.if.no.acl.found": "false",
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    ),
    "connections.max.reauth.ms": "0",
    "connection.failed.authentication.delay.ms": "100",
    "delegation.token.secret.key": "",
    "delegation.token.master.key": "",
    "delegation.token.max.lifetime.ms": "604800000",
    "delegation.token.expiry.time.ms": "86400000",
    "delegation.token.expiry.check.interval.ms": "3600000",
    "password.encoder.secret": "",
    "password.encoder.old.secret": "",
    "zookeeper.set.acl": "false",
    "zookeeper.ssl.client.enable": "false",
}
"""Name and the value that asks for nothing (Kafka 4's default, or 3.9's of what 4 has dropped)."""


def security_name(key: str) -> str | None:
    """The security setting that a key names, behind a listener's prefix or by itself; else None."""
    if key in NO_OPS:
        return key
    if not key.startswith(_LISTENER_PREFIX):
        return None
    # listener.name.<listener>.<setting>, and for some listener.name.<listener>.<mechanism>.<...>
    parts = key[len(_LISTENER_PREFIX) :].split(".")
    tails = (".".join(parts[at:]) for at in range(1, len(parts)))
    return next((tail for tail in tails if tail in NO_OPS), None)


def security_problem(key: str, value: str) -> str | None:
    """Why a security setting must stop the start; None where it asks for nothing."""
    name = security_name(key)
    assert name is not None, key
    if not value or _words(value) == _words(NO_OPS[name]):
        return None
    return f"{key} asks for security that this release does not serve"


def advice_for(key: str) -> str:
    """The advice for a security setting that stops the start."""
    name = security_name(key)
    assert name is not None, key
    default = NO_OPS[name]
    keep = f" or set it to {default}" if default else ""
    return f"leave it out{keep}; all listeners are plaintext, so keep them on a trusted network"


def protocol_of(listener: str, protocols: dict[str, str], controllers: list[str]) -> str | None:
    """The protocol of a listener by the map, in Kafka's order: what the map says; a name that is
    itself a protocol; PLAINTEXT for a controller's listener. None when nothing says it."""
    if listener in protocols:
        return protocols[listener]
    if listener in PROTOCOLS:
        return listener
    return SERVED_PROTOCOL if listener in controllers else None


def _words(value: str) -> list[str]:
    """A value as a list in any order and any case: `TLSv1.3, TLSv1.2` is the default too."""
    return sorted(word.strip().lower() for word in value.split(","))
