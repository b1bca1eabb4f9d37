"""Three implementations as servers without I/O, to whom the same script is played.

`ferrymq`, `proton` and `rhea_all` take what a client sends and return what the server answers, each
with the same obliging user: whatever is opened, begun or attached is answered in kind, receivers
get `CREDIT`, and deliveries are left alone. `verdict` boils an answer down to what the
implementation thought of the last thing it was sent.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

from proton import Collector, Event, Transport
from proton import Connection as ProtonConnection

from ferrymq.engine import Connection, ConnectionSettings, ReceiverLink
from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    CloseReceived,
    DetachReceived,
    EndReceived,
    OpenReceived,
)
from ferrymq_types.transport import Close, Detach, End
from tests.interop.rhea_client import FOLDER, TIMEOUT
from tests.support.script import On, Raw, encoded, parse

CREDIT = 2
MAX_FRAME_SIZE = 4096
CHANNEL_MAX = 10

# What the server wrote for each thing it was sent, and whether it ended the transport then.
Answer = tuple[list[bytes], bool]


def ferrymq(script: Sequence[object]) -> Answer:
    """Our engine."""
    settings = ConnectionSettings(
        container_id="server",
        initiator=False,
        max_frame_size=MAX_FRAME_SIZE,
        channel_max=CHANNEL_MAX,
    )
    engine = Connection(settings, 0.0)
    answers = []
    for item in script:
        engine.receive_data(encoded(item), 0.0)
        for event in engine.take_events():
            if isinstance(event, OpenReceived):
                engine.open()
            elif isinstance(event, BeginReceived):
                event.session.accept()
            elif isinstance(event, AttachReceived):
                event.link.accept()
                if isinstance(event.link, ReceiverLink):
                    event.link.set_credit(CREDIT)
            elif isinstance(event, DetachReceived):
                event.link.detach(closed=event.closed)
            elif isinstance(event, EndReceived):
                event.session.end()
            elif isinstance(event, CloseReceived):
                engine.close()
        answers.append(engine.data_to_send())
    return answers, engine.finished


def proton(script: Sequence[object]) -> Answer:
    """Proton's engine, through its Python binding."""
    transport = Transport(mode=Transport.SERVER)
    transport.max_frame_size = MAX_FRAME_SIZE
    transport.channel_max = CHANNEL_MAX
    connection = ProtonConnection()
    connection.container = "server"
    collector = Collector()
    connection.collect(collector)
    transport.bind(connection)
    answers = []
    for item in script:
        data = encoded(item)
        while data and transport.capacity() > 0:
            taken = data[: transport.capacity()]
            transport.push(taken)
            data = data[len(taken) :]
        output = b""
        while event := collector.peek():
            _oblige(event)
            collector.pop()
            output += _pull(transport)
        answers.append(output + _pull(transport))
    ended = transport.pending() < 0
    transport.unbind()
    return answers, ended


def _pull(transport: Transport) -> bytes:
    output = b""
    while (pending := transport.pending()) > 0:
        output += transport.peek(pending)
        transport.pop(pending)
    return output


def _oblige(event: Event) -> None:
    kind = event.type
    if kind == Event.CONNECTION_REMOTE_OPEN:
        event.connection.open()
    elif kind == Event.SESSION_REMOTE_OPEN:
        event.session.open()
    elif kind == Event.LINK_REMOTE_OPEN:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        if link.is_receiver:
            link.flow(CREDIT)
    elif kind == Event.LINK_REMOTE_DETACH:
        event.link.detach()
    elif kind == Event.LINK_REMOTE_CLOSE:
        event.link.close()
    elif kind == Event.SESSION_REMOTE_CLOSE:
        event.session.close()
    elif kind == Event.CONNECTION_REMOTE_CLOSE:
        event.connection.close()


def rhea_all(scripts: Mapping[str, Sequence[object]]) -> dict[str, Answer]:
    """rhea, to which all scripts are played in one process, each on a connection of its own."""
    plays = {name: [encoded(item).hex() for item in script] for name, script in scripts.items()}
    settings = {"credit": CREDIT, "maxFrameSize": MAX_FRAME_SIZE, "channelMax": CHANNEL_MAX}
    done = subprocess.run(
        ["node", "oracle.js"],
        cwd=FOLDER,
        input=json.dumps({"settings": settings, "plays": plays}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: ([bytes.fromhex(part) for part in answer["output"]], answer["ended"])
        for name, answer in json.loads(done.stdout).items()
    }


def verdict(answer: Answer) -> str:
    """What came in answer to the last thing sent.

    `close`, `end` or `detach` with the condition if there is one; `header` if only the header of
    what the server would speak; `answered` or `silent` if the conversation just goes on. `, gone`
    if the transport was ended without a close.
    """
    output, ended = answer
    items = parse(output[-1])
    gone = ", gone" if ended else ""
    for item in items:
        if isinstance(item, On) and isinstance(item.body, (Close, End, Detach)):
            kind = type(item.body).__name__.lower()
            error = item.body.error
            return kind if error is None else f"{kind} {error.condition}"
    if items and all(isinstance(item, Raw) for item in items):
        return f"header{gone}"
    return f"{'answered' if items else 'silent'}{gone}"
