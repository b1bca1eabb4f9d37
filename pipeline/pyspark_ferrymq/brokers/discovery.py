"""The discovery of brokers: each URL is asked for the identity of the broker that it leads to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.brokers.grouping import (
    Answer,
    KnownBroker,
    Unreached,
    group,
    may_be_failovers,
    must_be_reached,
)
from pyspark_ferrymq.options import BrokerOptions, connect
from pyspark_ferrymq.options.broker_identity import BrokerIdentity, identity_of
from pyspark_ferrymq.options.connection import AmqpUnreachableError

if TYPE_CHECKING:
    from ferrymq.blocking import Connection

LOGGER: Final = logging.getLogger("pyspark_ferrymq")

# Seconds between two requests to URLs that have not answered.
_AGAIN: Final = 30.0
# The most URLs asked at a time.
_AT_A_TIME: Final = 16


def ask_identity(
    settings: BrokerOptions, question: Callable[[Connection], None] | None = None
) -> Answer:
    """Connect to a URL and return what the broker there says of itself. `question` asks it
    something else over the same connection.

    Raises `AmqpSourceError` if the broker refuses the login.
    """
    from ferrymq import ConnectionClosed, SessionEnded

    try:
        connection = connect(settings, "driver/identity")
    except AmqpUnreachableError as error:
        return Unreached(str(error))
    try:
        if question is not None:
            question(connection)
        return identity_of(connection.remote_properties)
    except (ConnectionClosed, SessionEnded, TimeoutError) as error:
        return Unreached(f"{settings.place} gives no answer: {error}")
    finally:
        connection.close()


class BrokerDiscovery:
    """The brokers that the URLs of `settings` lead to.

    `ask` returns the answer of one URL, `clock` the monotonic time, and `start` runs a function in
    the background.
    """

    def __init__(
        self,
        settings: BrokerOptions,
        ask: Callable[[BrokerOptions], Answer] = ask_identity,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._settings = settings
        self._ask = ask
        self._clock = clock
        self._start = _in_background if start is None else start
        # The answers so far, by the text of the URL.
        self._answers: dict[str, Answer] = {}
        self._brokers: list[KnownBroker] = []
        # The URLs that lead to no known broker.
        self._silent: list[BrokerOptions] = []
        self._asked = 0.0
        self._is_asking = threading.Lock()
        self._warned: set[str] = set()

    def find(self) -> list[KnownBroker]:
        """Return the known brokers, sorted by id. The first call asks all URLs; later calls ask
        those that have not answered, in the background and not more often than every 30 s.

        Raises `AmqpUnreachableError` if no URL can be reached, `AmqpOptionError` as `group` does,
        and `AmqpSourceError` if a broker refuses the login.
        """
        if not self._brokers:
            self._ask_all(self._settings.each())
        elif self._silent and self._clock() - self._asked >= _AGAIN:
            if self._is_asking.acquire(blocking=False):
                # A host that does not answer would stop the query for the connect timeout.
                silent = self._silent
                self._asked = self._clock()
                self._start(lambda: self._ask_again(silent))
        self._group()
        return self._brokers

    def identities(self) -> dict[tuple[str, int], str]:
        """Return the ids of the brokers that have answered, by host and port of their URLs."""
        from ferrymq.url import parse_url

        found: dict[tuple[str, int], str] = {}
        for text, answer in self._answers.items():
            if isinstance(answer, BrokerIdentity):
                url = parse_url(text)
                found[url.host, url.port] = answer.id
        return found

    def extend(self, settings: BrokerOptions) -> None:
        """Use options with more URLs, and ask these. Raises as `find`."""
        known = {one.url for one in self._settings.each()}
        self._settings = settings
        self._ask_all([one for one in settings.each() if one.url not in known])

    def require_all(self) -> None:
        """Check, for a new query, that URLs without an answer can only be fail-overs, and warn of
        them. Raises `AmqpUnreachableError`."""
        if may_be_failovers(self._settings, self._brokers):
            self.accept_silent()
        elif reason := self.first_silent():
            raise AmqpUnreachableError(reason)

    def accept_silent(self) -> None:
        """Warn, once for each URL, that the query goes on without its answer."""
        for one in self._silent:
            if one.url not in self._warned:
                self._warned.add(one.url)
                LOGGER.warning(
                    "the query goes on without %s, which is asked again later: %s",
                    one.place,
                    self._reason(one),
                )

    def first_silent(self) -> str:
        """Return why the first URL without an answer has to be reached; "" if all have one."""
        if not self._silent:
            return ""
        first = self._silent[0]
        return must_be_reached(first.place, self._reason(first))

    def _reason(self, one: BrokerOptions) -> str:
        answer = self._answers.get(one.url)
        return answer.reason if isinstance(answer, Unreached) else "it was not asked yet"

    def _ask_all(self, urls: list[BrokerOptions]) -> None:
        with ThreadPoolExecutor(min(len(urls), _AT_A_TIME), "amqp-identity") as pool:
            answers = list(pool.map(self._ask, urls))
        self._asked = self._clock()
        self._answers |= {one.url: answer for one, answer in zip(urls, answers, strict=True)}
        if not any(isinstance(answer, BrokerIdentity) for answer in self._answers.values()):
            reasons = "; ".join(str(self._reason(one)) for one in urls)
            raise AmqpUnreachableError(reasons)

    def _ask_again(self, urls: list[BrokerOptions]) -> None:
        try:
            for one in urls:
                self._answers[one.url] = self._ask(one)
        except Exception as error:
            LOGGER.warning("a broker could not be asked who it is: %s", error)
        finally:
            self._is_asking.release()

    def _group(self) -> None:
        each = self._settings.each()
        answers = [self._answers.get(one.url, Unreached("it was not asked yet")) for one in each]
        self._brokers, self._silent = group(self._settings, answers)


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="amqp-identity", daemon=True).start()
