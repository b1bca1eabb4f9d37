"""Mistakes in what is declared: each is told with its line, and with what was probably meant."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.broker.config.files import complaint, load

SAID = [
    # Names and patterns.
    ("[[queue]]\n", "1: queue: a node has either a name or a pattern"),
    ("[[topic]]\nname = 'a'\npattern = 'b*'", "1: topic: a node has either a name or a pattern"),
    ("[[queue]]\nname = 'a*'", "1: queue: a name has no wildcards; write pattern = 'a*'"),
    ("[[stream]]\npattern = 'a'", "1: stream: a pattern has a * or a ?; write name = 'a'"),
    (
        "[[queue]]\nname = '$x'",
        "1: queue: names that begin with $ or dynamic. are reserved for the broker",
    ),
    ("[[alias]]\nname = '$x'\nto = 'a'", "2: alias.name: names that begin with $"),
    ("[[redirect]]\nname = '$x'\nhost = 'a'", "2: redirect.name: names that begin with $"),
    (
        "[[queue]]\nname = 'a'\n[[topic]]\nname = 'a'",
        "4: topic.name: 'a' is declared twice; the other is on line 2",
    ),
    (
        "[[alias]]\nname = 'a'\nto = 'b'\n[[queue]]\nname = 'a'\n",
        "2: alias.name: 'a' is declared twice; the other is on line 5",
    ),
    (
        "[[redirect]]\nname = 'a'\nhost = 'h'\n[[alias]]\nname = 'a'\nto = 'b'\n",
        "2: redirect.name: 'a' is declared twice; the other is on line 5",
    ),
    (
        "[[queue]]\npattern = 'a*'\n[[queue]]\npattern = 'a*'",
        "4: queue.pattern: the pattern 'a*' is declared twice; the other is on line 2",
    ),
    (
        "[[queue]]\npattern = 'a*b?'\n\n[[topic]]\npattern = 'a*?b'",
        "5: topic.pattern: 'a*?b' and 'a*b?' are equally specific and match",
    ),
    ("[nodes]\nlimit = 1\n[[queue]]\nname = 'a'\n[[queue]]\nname = 'b'", "2: nodes.limit: 2 nodes"),
    # Settings one by one.
    ("[[queue]]\nname = 'a'\npriorities = 11", "3: queue.priorities: Input should be less than"),
    ("[[queue]]\nname = 'a'\npriorities = 0", "3: queue.priorities: Input should be greater"),
    (
        "[[queue]]\nname = 'a'\nmax-lenght = 1",
        "3: unknown key 'max-lenght'; did you mean 'max-length'?",
    ),
    (
        "[[queue]]\nname = 'a'\nmax_length = 1",
        "3: unknown key 'max_length'; did you mean 'max-length'?",
    ),
    (
        "[[queue]]\nname = 'a'\nmax-length = true",
        "3: queue.max-length: Input should be a valid int",
    ),
    ("[[queue]]\nname = 'a'\ngroups = 1", "3: queue.groups: Input should be a valid boolean"),
    ("[[queue]]\nname = 'a'\noverflow = 'drop'", "3: queue.overflow: Input should be 'reject', "),
    (
        "[[queue]]\nname = 'a'\nmessage-ttl = '5 x'",
        "3: queue.message-ttl: a duration is a number of",
    ),
    ("[[queue]]\nname = 'a'\nmax-bytes = '5 x'", "3: queue.max-bytes: a size is a number of bytes"),
    ("[[queue]]\nname = 'a'\nauto-delete = true", "3: queue.auto-delete: a duration is a number"),
    ("[[stream]]\nname = 'a'\nmax-length = 1", "3: unknown key 'max-length'"),
    ("[[stream]]\nname = 'a'\npartitions = 0", "3: stream.partitions: Input should be greater"),
    ("[[exchange]]\nname = 'a'\nrouting = 'x'", "3: exchange.routing: Input should be 'direct', "),
    (
        "[[topic]]\nname = 'a'\n[topic.subscription]\nmax-lenght = 1",
        "4: unknown key 'max-lenght'; did you mean 'max-length'?",
    ),
    ("[[redirect]]\nname = 'a'\n", "1: redirect.host: Field required"),
    ("[[redirect]]\nname = 'a'\nhost = 'b'\nport = 0", "4: redirect.port: Input should be greater"),
    # Settings together.
    (
        "[[queue]]\nname = 'a'\noverflow = 'dead-letter'",
        "3: queue.overflow: dead-lettering needs",
    ),
    (
        "[[queue]]\nname = 'a'\nlast-value-key = 'k'\ngroups = true",
        "3: queue.last-value-key: a queue of last values has no groups",
    ),
    (
        "[[queue]]\nname = 'a'\nlast-value-key = 'k'\ndeferral = true",
        "3: queue.last-value-key: a queue of last values keeps no deferred",
    ),
    (
        "[[queue]]\nname = 'a'\nexclusive = true\nsingle-active = true",
        "4: queue.single-active: an ex",
    ),
    ("[[queue]]\nname = 'a'\nexclusive = true\nmax-consumers = 2", "4: queue.max-consumers: an ex"),
    (
        "[[topic]]\nname = 'a'\n[topic.subscription]\n\noverflow = 'dead-letter'",
        "5: topic.subscription.overflow: dead-lettering needs",
    ),
    # Policies.
    (
        "[policies.fast]\n[[queue]]\nname = 'a'\npolicy = 'fats'",
        "4: queue.policy: there is no policy 'fats'; did you mean 'fast'?",
    ),
    (
        "[[stream]]\nname = 'a'\npolicy = 'p'\n[policies.p]\nmax-length = 1",
        "3: stream.policy: the policy 'p' has 'max-length', which no stream has; the other is on "
        "line 5",
    ),
    ("[policies.p]\nmax-lenght = 1", "2: unknown key 'max-lenght'; did you mean 'max-length'?"),
    ("[policies.p]\nmax_length = 1", "2: unknown key 'max_length'; did you mean 'max-length'?"),
    (
        "[policies.p]\noverflow = 'dead-letter'\n[[queue]]\nname = 'a'\npolicy = 'p'",
        "3: queue.overflow: dead-lettering needs",
    ),
    # Capture.
    (
        "[[stream]]\nname = 'a'\n\ncapture = true",
        "4: stream.capture: 'a' is to be captured, but no directory is given",
    ),
    (
        "[policies.p]\ncapture = true\n[[stream]]\npattern = 'a*'\npolicy = 'p'",
        "2: policies.p.capture: 'a*' is to be captured, but no directory is given",
    ),
    (
        "[capture]\ndirectory = 'x'",
        "2: capture.directory: capture needs a store, to continue"
        " after a restart: set [store] path, or serve with --data",
    ),
    (
        "[[stream]]\nname = 'a'\ndurable = false\ncapture = true",
        "4: stream.capture: capture needs durable = true",
    ),
    ("[capture]\ndirectory = ''", "2: capture.directory: the path is empty"),
    ("[capture]\nmax-age = 0", "2: capture.max-age: Input should be greater"),
    # Tables that there are not.
    ("a = 1\n\n[qeue]\nname = 'a'", "3: unknown key 'qeue'; did you mean 'queue'?"),
    ("\n[[qeue]]\nname = 'a'\n[[qeue]]\nname = 'b'", "2: unknown key 'qeue'; did you mean"),
    ("\n\n[server.web]\nport = 1", "3: unknown key 'server'"),
    ("[limits]\n[limits.more]\nlinks = 1", "2: unknown key 'more'"),
    # Where addresses lead.
    (
        "[[queue]]\nname = 'a'\ndead-letter = 'a'",
        "3: queue.dead-letter: messages that leave 'a' cannot",
    ),
    (
        "[policies.p]\ndead-letter = '$x'\n[[queue]]\nname = 'a'\npolicy = 'p'\n"
        "[[topic]]\nname = 't'\n[topic.subscription]\npolicy = 'p'",
        "2: policies.p.dead-letter: '$x' names nothing",
    ),
    ("[[queue]]\nname = 'a'\ndead-letter = '$x'", "3: queue.dead-letter: '$x' names nothing"),
    ("[[queue]]\nname = 'a'\nexpired = 'x::y'", "3: queue.expired: 'x::y' names nothing"),
    (
        "[[queue]]\nname = 'a'\n[[queue]]\nname = 'b'\ndead-letter = 'a::y'",
        "5: queue.dead-letter: 'a::y' is a part of 'a'; a queue has no parts",
    ),
    (
        "[[queue]]\nname = 'a'\ndead-letter = 'far'\n[[redirect]]\nname = 'far'\nhost = 'h'",
        "3: queue.dead-letter: 'far' is in another container",
    ),
    (
        "[[alias]]\nname = 'a'\nto = 'b'\n[[alias]]\nname = 'b'\nto = 'a'",
        "3: alias.to: the alias 'a' leads in a circle",
    ),
    ("[[alias]]\nname = 'a'\nto = 'a'", "3: alias.to: the alias 'a' leads in a circle"),
    (
        "[[exchange]]\nname = 'a'\nalternate = 'a'",
        "3: exchange.alternate: an exchange cannot be its",
    ),
    (
        "[[exchange]]\nname = 'a'\nalternate = 'b::c'\n[[topic]]\nname = 'b'",
        "3: exchange.alternate: 'b::c' is a part of 'b'; a node is needed here",
    ),
    ("[[exchange]]\nname = 'a'\n[[exchange.binding]]\nto = 'a'", "4: exchange.binding.to: an exch"),
    (
        "[[exchange]]\nname = 'a'\n[[exchange.binding]]\nkey = 'a'",
        "3: exchange.binding.to: Field req",
    ),
    (
        "[[exchange]]\npattern = 'a*'\n[[exchange.binding]]\nto = 'q'",
        "3: exchange.binding: only an exchange with a name can have bindings",
    ),
    (
        "[[exchange]]\nname = 'a'\n[[exchange.binding]]\nto = 'q'\narguments = { x = 1 }",
        "5: exchange.binding.arguments: arguments are for an exchange with routing",
    ),
    (
        "[[exchange]]\nname = 'a'\nrouting = 'headers'\n[[exchange.binding]]\nto = 'q'\n"
        "arguments = { x-match = 'some' }",
        "4: exchange.binding: ",
    ),
    (
        "[[exchange]]\nname = 'a'\n[[exchange.binding]]\nto = 'q'\n[[exchange.binding]]\nto = 'q'",
        "5: exchange.binding: the same binding is declared twice; the other is on line 3",
    ),
    # Virtual hosts.
    ("[[virtual-host]]\nname = 'default'", "2: virtual-host.name: the default virtual host is"),
    (
        "[[virtual-host]]\nname = 'a'\n[[virtual-host]]\nname = 'b'\nhostnames = ['A']",
        "3: virtual-host: two virtual hosts have the hostname 'a'; the other is on line 1",
    ),
    (
        "[[virtual-host]]\nname = 'a'\nhostnames = ['Default']",
        "1: virtual-host: 'default' is the hostname of the default virtual host",
    ),
    (
        "[[virtual-host]]\nname = 'vhost:a'",
        "1: virtual-host: vhost: is for the hostname of an open",
    ),
    (
        "[[virtual-host]]\nname = 'a'\n[[virtual-host.queue]]\nname = 'q'\n"
        "[[virtual-host]]\nname = 'b'\n[[virtual-host.queue]]\nname = 'q'\nmax-lenght = 1",
        "9: unknown key 'max-lenght'; did you mean 'max-length'?",
    ),
    (
        "[[virtual-host]]\nname = 'a'\n[[virtual-host.queue]]\nname = 'q'\n"
        "[[virtual-host.queue]]\nname = 'q'",
        "6: virtual-host.queue.name: 'q' is declared twice; the other is on line 4",
    ),
    ("unknown-hostname = 'x'", "1: unknown-hostname: Input should be 'default' or 'refuse'"),
    # The rest.
    ("[nodes]\nauto-create = 'stream'", "2: nodes.auto-create: Input should be "),
    ("[alarms]\nmemory = '0%'", "2: alarms.memory: a share is above 0%"),
    ("[alarms]\nmemory = 'much'", "2: alarms.memory: a size is a number of bytes"),
    (
        "[alarms]\nmemory = 10\nlow-water = 11",
        "3: alarms.low-water: it must be below memory",
    ),
    ("[limits]\nidle-time-out = '1 moon'", "2: limits.idle-time-out: a duration is a number"),
    ("[limits]\nmax-frame-size = '1 moon'", "2: limits.max-frame-size: a size is a number"),
    (
        "[limits]\nmax-message-size = '2GiB'",
        "2: limits.max-message-size: a message has at most 2047MiB, not 2GiB",
    ),
    ("[limits]\nmax-message-size = 0", "2: limits.max-message-size: Input should be greater than"),
    ("[limits]\ntotal-credit = -1", "2: limits.total-credit: Input should be greater than or eq"),
    ("[limits]\nidle-time-out = inf", "2: limits.idle-time-out: Input should be "),
    ("[http]\nurl = 'amqp://127.0.0.1:1'", "2: http.url: amqp://127.0.0.1:1: the monitoring"),
    ("[http]\nurl = 'http://127.0.0.1'", "2: http.url: http://127.0.0.1: a port is missing"),
    ("[http]\nurl = 'http://h:99999'", "2: http.url: "),
    (
        "[http]\nurl = 'http://me:pw@h:1'",
        "2: http.url: h: the URL of the monitoring listener takes",
    ),
    (
        "[opentelemetry]\nendpoint = 'http://127.0.0.1:4318'",
        "1: opentelemetry: nothing is exported: set traces = true, or metrics = true",
    ),
    (
        "[opentelemetry]\ntraces = true\nendpoint = '127.0.0.1:4318'",
        "3: opentelemetry.endpoint: an endpoint is written http://HOST:PORT",
    ),
    (
        "[opentelemetry]\ntraces = true\nendpoint = 'http://me:pw@h:1'",
        "3: opentelemetry.endpoint: credentials belong into OTEL_EXPORTER_OTLP_HEADERS",
    ),
    (
        "[opentelemetry]\ntraces = true\nsampling-ratio = 2",
        "3: opentelemetry.sampling-ratio: Input should be less than or equal to 1",
    ),
    ("[shutdown]\ndrain-timeout = -1", "2: shutdown.drain-timeout: Input should be greater"),
]


@pytest.mark.parametrize(("text", "expected"), SAID)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    told = complaint(tmp_path, text)
    assert any(line.startswith(f"ferrymq.toml:{expected}") for line in told.splitlines()), told


STRICT = "[nodes]\nauto-create = false\n[[queue]]\nname = 'orders'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[[queue]]\nname = 'a'\ndead-letter = 'order'",
            "7: queue.dead-letter: 'order' names nothing",
        ),
        ("[[queue]]\npattern = 'a*'\nexpired = 'order'", "7: queue.expired: 'order' names nothing"),
        ("[[alias]]\nname = 'a'\nto = 'order'", "7: alias.to: 'order' names nothing"),
        ("[[exchange]]\nname = 'a'\nalternate = 'order'", "7: exchange.alternate: 'order' names"),
        (
            "[[exchange]]\nname = 'a'\n[[exchange.binding]]\nto = 'order'",
            "8: exchange.binding.to: 'order' names nothing",
        ),
        (
            "[[topic]]\nname = 'a'\n[topic.subscription]\ndead-letter = 'order'",
            "8: topic.subscription.dead-letter: 'order' names nothing",
        ),
    ],
)
def test_where_nothing_is_made_up_every_address_must_be_there(
    tmp_path: Path, text: str, expected: str
) -> None:
    told = complaint(tmp_path, STRICT + text)
    assert f"ferrymq.toml:{expected}" in told
    assert "did you mean 'orders'?" in told
    # With a queue of that name, or a pattern, or links that make it, it is good.
    for more in ("\n[[queue]]\nname = 'order'", "\n[[queue]]\npattern = 'o?der'"):
        load(tmp_path, STRICT + text + more)
    load(tmp_path, (STRICT + text).replace("false", "true"))


def test_a_virtual_host_does_not_see_the_names_of_another(tmp_path: Path) -> None:
    text = (
        STRICT + "[[virtual-host]]\nname = 'v'\n[[virtual-host.alias]]\nname = 'a'\nto = 'orders'"
    )
    assert "virtual-host.alias.to: 'orders' names nothing" in complaint(tmp_path, text)
    load(tmp_path, text + "\n[virtual-host.nodes]\nauto-create = true")


def test_all_collisions_are_told_at_once(tmp_path: Path) -> None:
    told = complaint(
        tmp_path,
        STRICT
        + "dead-letter = 'x'\nexpired = 'y'\n[[queue]]\nname = 'orders'\n"
        + "[[queue]]\nname = 'b'\npolicy = 'p'",
    )
    assert len(told.splitlines()) == 4


def test_an_alias_of_a_redirect_and_of_a_part(tmp_path: Path) -> None:
    load(
        tmp_path,
        "[nodes]\nauto-create = false\n[[topic]]\nname = 't'\n[[redirect]]\nname = 'far'\n"
        "host = 'h'\n[[alias]]\nname = 'a'\nto = 'far'\n[[alias]]\nname = 'b'\nto = 't::one'",
    )


def test_a_mistake_in_a_policy_is_told_once(tmp_path: Path) -> None:
    nodes = "".join(f"[[queue]]\nname = 'q{n}'\npolicy = 'p'\n" for n in range(50))
    told = complaint(tmp_path, "[policies.p]\ndead-letter = '$x'\n" + nodes)
    assert told == "ferrymq.toml:2: policies.p.dead-letter: '$x' names nothing"


def test_thousands_of_mistakes_are_told_in_a_moment(tmp_path: Path) -> None:
    """Among thousands of names nothing is looked for again and again; the first are told."""
    nodes = "".join(
        f"[[queue]]\nname = 'queue-{n}'\ndead-letter = 'quue-{n}'\n" for n in range(4000)
    )
    told = complaint(tmp_path, "[nodes]\nauto-create = false\n" + nodes).splitlines()
    assert len(told) == 101
    assert told[-1] == "ferrymq.toml: and 3900 more mistakes"
    assert told[0].endswith("'quue-0' names nothing; did you mean 'queue-0'?")


def test_capture_takes_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name)
    )
    said = complaint(tmp_path, "[store]\npath = 'x'\n[capture]\ndirectory = 'y'")
    assert "4: capture.directory: capture writes Parquet, which needs pyarrow: pip" in said
    assert "'ferrymq[arrow]'" in said
