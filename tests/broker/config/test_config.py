"""The configuration file: what it may say, and how mistakes are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from ferrymq_broker.config import Config, Http, Listener, Queue, load_config
from ferrymq_broker.config.errors import ConfigError, ConfigMistakes
from ferrymq_broker.config.model import Limits, Nodes, Security
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.url import parse_listen_url
from tests.broker.config.files import complaint, load

EVERYTHING = """
container-id = "harbour"

[[listener]]
url = "amqp://127.0.0.1:5672"

[[listener]]
url = "amqp://[::]:5673"

[limits]
max-frame-size = 131072
max-message-size = 1048576
channel-max = 7
handle-max = 15
incoming-window = 100
credit = 50
idle-time-out = 0
handshake-timeout = 3.5
close-timeout = 2

[nodes]
auto-create = false
limit = 10

[[queue]]
name = "orders"

[[queue]]
name = "invoices"

[security]
anonymous = false

[security.users]
alice = "sésame"

[log]
level = "debug"
format = "json"
"""


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING)
    assert config.container_id == "harbour"
    assert [listener.address.port for listener in config.listener] == [5672, 5673]
    assert config.limits.credit == 50
    assert config.limits.idle_time_out == 0
    assert not config.nodes.auto_create
    assert [queue.name for queue in config.queue] == ["orders", "invoices"]
    assert config.security.users["alice"].get_secret_value() == "sésame"
    assert "sésame" not in repr(config)
    assert config.log.format == "json"


def test_an_empty_file_is_the_friendly_local_broker(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert [listener.address.url for listener in config.listener] == ["amqp://127.0.0.1:5672"]
    assert config.nodes.auto_create


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = ", "ferrymq.toml: Invalid value"),
        ("a = 1\nb = = 2", "ferrymq.toml:2: Invalid value"),
        (
            "[limits]\nclose_timeout = 2",
            "ferrymq.toml:2: unknown key 'close_timeout'; did you mean",
        ),
        ("\n\ncontainer_id = 'x'", "ferrymq.toml:3: unknown key 'container_id'; did you mean"),
        ("[limits]\ncredits = 5", "ferrymq.toml:2: unknown key 'credits'; did you mean 'credit'?"),
        ("[limit]\ncredit = 5", "ferrymq.toml:1: unknown key 'limit'; did you mean 'limits'?"),
        ("[limits]\n\ncredit = 0", "ferrymq.toml:3: limits.credit: Input should be greater"),
        ("[limits]\ncredit = 'x'", "ferrymq.toml:2: limits.credit: Input should be a valid int"),
        (
            "[[queue]]\nname='a'\n[[queue]]\nnam='b'",
            "ferrymq.toml:4: unknown key 'nam'; did you mean 'name'?",
        ),
        (
            "[[queue]]\nname='a'\n[[queue]]\nname='a'",
            "ferrymq.toml:4: queue.name: 'a' is declared twice; the other is on line 2",
        ),
        ("[[queue]]\nname=''", "ferrymq.toml:2: queue.name: String should have at least 1"),
        ("[[listener]]\nurl = 'http://x'", "ferrymq.toml:2: listener.url: http://x: a listener is"),
        ("[[listener]]\n", "ferrymq.toml:1: listener.url: Field required"),
        ("[log]\nlevel = 'loud'", "ferrymq.toml:2: log.level: Input should be 'debug'"),
        ("[security.users]\n'' = 'x'", "a user name cannot be empty"),
        (
            "[[listener]]\nurl = 'amqp://0.0.0.0:5672'",
            "amqp://0.0.0.0:5672 is open to other machines, but [security] names no users",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[limits]\ncredit = 0\n[log]\ncolour = 1\n")
    assert len(text.splitlines()) == 2


def test_a_password_is_not_told(tmp_path: Path) -> None:
    assert "geheim" not in complaint(tmp_path, '[security.users]\na = "geheim\\u0000"\n')


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "missing.toml")
    (tmp_path / "latin").write_bytes(b"# \xe4")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "latin")


@pytest.mark.parametrize("security", [{"anonymous": True}, {"users": {"a": "b"}}])
def test_listening_to_the_world_takes_a_word_about_security(security: dict[str, object]) -> None:
    config = Config.model_validate(
        {"listener": [{"url": "amqp://0.0.0.0:5672"}], "security": security}
    )
    assert not config.listener[0].address.is_loopback


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("amqp://127.0.0.1:5672", "127.0.0.1", 5672),
        ("amqp://localhost", "localhost", 5672),
        ("amqp://127.0.0.1:0", "127.0.0.1", 0),
        ("amqp://[::1]:7/", "::1", 7),
        ("amqps://127.0.0.1", "127.0.0.1", 5671),
        ("amqps://[::1]:7", "::1", 7),
        ("ws://localhost", "localhost", 5673),
        ("ws://127.0.0.1:80", "127.0.0.1", 80),
        ("wss://localhost", "localhost", 5674),
        ("wss://[::1]:443/", "::1", 443),
    ],
)
def test_listener_urls(url: str, host: str, port: int) -> None:
    address = parse_listen_url(url)
    assert (address.host, address.port) == (host, port)
    assert address.is_loopback
    assert parse_listen_url(address.url) == address


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:5672",
        "amqp+tls://127.0.0.1",
        "https://127.0.0.1",
        "amqp://",
        "wss://",
        "amqp://127.0.0.1:70000",
        "amqp://127.0.0.1:x",
        "amqp://me:secret@127.0.0.1",
        "amqps://me:secret@127.0.0.1",
        "http://me:secret@127.0.0.1",
        "amqp://me:secret@127.0.0.1:x",
        "amqp://me:secret@[::1",
        "amqp://me:secret@\u2100",
        "amqp://127.0.0.1/path",
        "amqp://127.0.0.1?x=1",
    ],
)
def test_listener_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_listen_url(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError):
        Listener(url=url)
    with pytest.raises(ValidationError) as refused:
        Http(url=url.replace("amqp", "http"))
    assert "secret" not in str(refused.value)


def test_a_container_id_that_no_open_has_room_for(tmp_path: Path) -> None:
    assert "300 bytes" in complaint(tmp_path, f'container-id = "{"é" * 151}"\n')


def test_a_configuration_made_in_a_program_is_checked_like_a_file() -> None:
    config = Config(queue=[Queue(name="a", message_ttl="1h"), Queue(name="b", message_ttl=2)])
    assert [queue.message_ttl for queue in config.queue] == [3_600_000, 2000]
    with pytest.raises(ValidationError, match="'a' is declared twice"):
        Config(queue=[Queue(name="a"), Queue(name="a")])


def _with_defaults(table: type[Section]) -> Iterator[type[Section]]:
    """Yield the tables that are made of defaults when the file has none, below `table`."""
    for sub in table.__subclasses__():
        for field in sub.model_fields.values():
            made_by = getattr(field.default_factory, "__self__", None)
            if isinstance(made_by, type) and issubclass(made_by, Section):
                yield made_by
        yield from _with_defaults(sub)


def test_defaults_are_what_a_file_without_the_table_gives() -> None:
    tables = {Config, *_with_defaults(Section)}
    assert {Limits, Nodes, Security} < tables
    for table in tables:
        defaults, validated = table.defaults(), table()
        assert defaults == validated, table.__name__
        assert defaults.model_fields_set == validated.model_fields_set, table.__name__


def test_replaced_settings_are_checked_with_the_others() -> None:
    config = Config.defaults()
    changed = config.replaced({"listener": [Listener(url="amqp://127.0.0.1:0")]})
    assert changed == Config(listener=[Listener(url="amqp://127.0.0.1:0")])
    with pytest.raises(ConfigMistakes, match="is open to other machines"):
        config.replaced({"listener": [Listener(url="amqp://0.0.0.0:0")]})
