"""The options of Spark's Kafka connector that this data source does not have, and what to use.

Options for the same purpose have the same names here (`startingOffsets`, `failOnDataLoss`, …).
"""

from __future__ import annotations

from typing import Final

_TLS: Final = "a URL that starts with amqps:// connects with TLS"
_USER: Final = (
    "give the user with the options 'username' and 'passwordFile' (or 'passwordEnv', 'password')"
)
_TIMEOUT: Final = "the option 'connectTimeoutMs' limits the wait for each answer of the broker"
_CHUNK: Final = (
    "the options 'maxRecordsPerBatch' and 'maxBytesPerBatch' say how much is received at a time"
)
_BYTES: Final = "keys and values are bytes; convert them with cast(), to_json() or from_json()"
_SINK: Final = (
    "the option 'delivery' of the sink chooses exactly-once, transactional, at-least-once"
)
_RETRY: Final = "the option 'write.retryTimeoutMs' says how long a sink waits for its broker"
_NOT_NEEDED: Final = "leave it out: the sink puts rows together itself"

# By the names in lower case. A name that ends with a dot stands for all names that begin with it.
_SENTENCES: Final = {
    "groupidprefix": "the option 'groupId' names the connections of a query at the broker",
    "kafkaconsumer.polltimeoutms": _TIMEOUT,
    "kafka.bootstrap.servers": "the option 'url' names the broker, such as amqps://broker.example",
    "kafka.group.id": "the option 'groupId' names the connections of a query at the broker; each"
    " query reads all that it subscribes to, whatever the name",
    "kafka.client.id": "the option 'groupId' names the connections of a query at the broker",
    "kafka.security.protocol": f"{_TLS}, and the option 'username' logs in with SASL",
    "kafka.sasl.mechanism": "the option 'sasl.mechanism' chooses the mechanism",
    "kafka.sasl.jaas.config": _USER,
    "kafka.sasl.kerberos.": f"there is no Kerberos; {_USER}",
    "kafka.sasl.oauthbearer.": "with 'sasl.mechanism' = OAUTHBEARER the password is the token:"
    " give it with 'passwordFile'",
    "kafka.sasl.": f"{_USER}, and the mechanism with the option 'sasl.mechanism'",
    "kafka.ssl.truststore.": "the option 'tls.ca' names a PEM file with certificate authorities",
    "kafka.ssl.keystore.": "the options 'tls.cert' and 'tls.key' name PEM files with the client's"
    " certificate and its key",
    "kafka.ssl.key.": "the option 'tls.key' names a PEM file with the client's key",
    "kafka.ssl.endpoint.identification.algorithm": "the option 'tls.verify' = false accepts any"
    " certificate and any name",
    "kafka.ssl.": f"{_TLS}, set up with the options 'tls.ca', 'tls.cert', 'tls.key', 'tls.verify'",
    "kafka.auto.offset.reset": "the option 'startingOffsets' says where a query starts, and"
    " 'failOnDataLoss' what happens if records are gone",
    "kafka.enable.auto.commit": "leave it out: Spark keeps the offsets in the checkpoint",
    "kafka.isolation.level": "leave it out: records of a transaction come when it is committed",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.key.serializer": _BYTES,
    "kafka.value.serializer": _BYTES,
    "kafka.interceptor.classes": "there are no interceptors; change rows in the query",
    "kafka.max.poll.records": _CHUNK,
    "kafka.fetch.": _CHUNK,
    "kafka.max.partition.fetch.bytes": _CHUNK,
    "kafka.request.timeout.ms": _TIMEOUT,
    "kafka.session.timeout.ms": _TIMEOUT,
    "kafka.default.api.timeout.ms": _TIMEOUT,
    "kafka.max.request.size": "the broker limits the size of a message with max-message-size",
    "kafka.partitioner.class": "the column 'partition' names the partition of a row; otherwise the"
    " broker chooses it by the key",
    "kafka.acks": _SINK,
    "kafka.enable.idempotence": _SINK,
    "kafka.transactional.id": _SINK,
    "kafka.retries": _RETRY,
    "kafka.delivery.timeout.ms": _RETRY,
    "kafka.max.block.ms": _RETRY,
    "kafka.compression.": "leave it out: bodies are sent as they are; compress them in the query",
    "kafka.batch.size": _NOT_NEEDED,
    "kafka.linger.ms": _NOT_NEEDED,
    "kafka.buffer.memory": _NOT_NEEDED,
    "kafka.": "options that begin with 'kafka.' configure Kafka's client, which is not used here;"
    " the options for connecting begin with 'url'",
}


def instead_of(name: str) -> str | None:
    """Return what to use instead of an option of Kafka's connector; None for any other name."""
    name = name.lower()
    found = _SENTENCES.get(name)
    if found is not None:
        return found
    prefixes = [key for key in _SENTENCES if key.endswith(".") and name.startswith(key)]
    return _SENTENCES[max(prefixes, key=len)] if prefixes else None
