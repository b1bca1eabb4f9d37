"""A line for every header and frame of a connection, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from ferrymq.tracing.redaction import shown
from ferrymq.tracing.rendering import plain, safe, text
from ferrymq.tracing.scanner import Broken, FrameScanner, Item, TracedFrame, TracedHeader
from ferrymq.tracing.traced_messages import TracedMessages, sections
from ferrymq_types.transport import Transfer

_PROTOCOLS: Final = {0: "AMQP", 2: "TLS", 3: "SASL"}


class Trace:
    """Trace of one connection. `label` stands in front of every line, if there are several
    connections.

    `full` shows the messages themselves; `as_json` makes lines of JSON. `joined` says that the
    trace may begin inside a frame. Secrets are never shown.
    """

    def __init__(
        self, label: str = "", full: bool = False, as_json: bool = False, joined: bool = False
    ) -> None:
        self._label = safe(label)
        self._full = full
        self._as_json = as_json
        self._joined = joined
        self._ways: dict[str, tuple[FrameScanner, TracedMessages]] = {}

    def feed(self, arrow: str, data: bytes, time: float | None = None) -> Iterator[str]:
        """Yield lines for the headers and frames that these bytes of the direction `arrow`
        complete. `time` is in seconds since the epoch, if it is known."""
        scanner, messages = self._way(arrow)
        for item in scanner.feed(data):
            yield self._line(arrow, messages, item, time)

    def finish(self, time: float | None = None) -> Iterator[str]:
        """Yield lines for the remaining data when both directions have ended."""
        for arrow, (scanner, messages) in self._ways.items():
            for item in scanner.finish():
                yield self._line(arrow, messages, item, time)

    def _way(self, arrow: str) -> tuple[FrameScanner, TracedMessages]:
        way = self._ways.get(arrow)
        if way is None:
            way = self._ways[arrow] = (FrameScanner(self._joined), TracedMessages())
        return way

    def _line(self, arrow: str, messages: TracedMessages, item: Item, time: float | None) -> str:
        facts: dict[str, object] = {}
        if self._label:
            facts["connection"] = self._label
        if time is not None:
            moment = datetime.fromtimestamp(time, UTC)
            facts["time"] = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        facts["direction"] = arrow
        facts["offset"] = item.offset
        if isinstance(item, TracedHeader):
            words = self._header(item, facts)
        elif isinstance(item, Broken):
            facts["error"] = item.reason
            facts["skipped"] = item.skipped
            skipped = f", {item.skipped} bytes skipped" if item.skipped else ""
            words = f"! {item.reason}, at byte {item.offset}{skipped}"
        else:
            words = self._frame(item, messages, facts)
        if self._as_json:
            return json.dumps(facts, ensure_ascii=True)
        clock = str(facts["time"])[11:23] + " " if "time" in facts else ""
        label = f"{self._label} " if self._label else ""
        return f"{label}{clock}{arrow} {words}"

    def _header(self, header: TracedHeader, facts: dict[str, object]) -> str:
        protocol = _PROTOCOLS.get(header.protocol, f"protocol {header.protocol}")
        version = ".".join(map(str, header.version))
        facts["header"] = protocol
        facts["version"] = version
        return f"header {protocol} {version}"

    def _frame(self, frame: TracedFrame, messages: TracedMessages, facts: dict[str, object]) -> str:
        facts["channel"] = frame.channel
        facts["size"] = frame.size
        place = "[sasl]" if frame.sasl else f"[{frame.channel}]"
        if frame.error:
            facts["error"] = frame.error
            return f"{place} ! not a performative: {safe(frame.error)}"
        if frame.body is None:
            facts["frame"] = "empty"
            return f"{place} empty"
        body = shown(frame.body)
        facts["frame"] = body.name
        facts["fields"] = {name: plain(value) for name, value in body.fields.items()}
        words = f"{place} {text(body)}"
        if frame.payload_size:
            facts["payload"] = frame.payload_size
            words += f" + {frame.payload_size} bytes"
        if isinstance(frame.body, Transfer):
            return words + self._message(frame, frame.body, messages, facts)
        messages.meet(frame.channel, frame.body)
        return words

    def _message(
        self,
        frame: TracedFrame,
        transfer: Transfer,
        messages: TracedMessages,
        facts: dict[str, object],
    ) -> str:
        whole = messages.add(frame.channel, transfer, frame.payload, frame.payload_size)
        if whole is None or whole[0] == 0:
            return ""
        size, data = whole
        facts["message-size"] = size
        if transfer.message_format:
            return ""
        secret = messages.is_secret(frame.channel, transfer)
        found, error = sections(data, self._full, secret)
        facts["message"] = [plain(section, self._full) for section in found]
        words = "".join([f"\n      {text(section, self._full)}" for section in found])
        if error:
            facts["message-error"] = error
            words += f"\n      ! {safe(error)}"
        return words
