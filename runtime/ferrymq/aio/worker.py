"""Workers: a function that handles the messages of a queue, many at a time, until it is stopped."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ferrymq.aio.connect import connect
from ferrymq.aio.connection import Connection
from ferrymq.aio.delivery import Delivery
from ferrymq.aio.failover import may_come_up
from ferrymq.aio.outcomes import MODIFIED_SYMBOL
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.aio.waiting import Signal
from ferrymq.durations import Duration, check_duration, milliseconds, seconds
from ferrymq.errors import (
    AmqpError,
    ConnectionClosed,
    DecodeError,
    LinkDetached,
    PeerError,
    TransactionInDoubt,
)
from ferrymq.options import ReceiverArguments, ReceiverOptions, SenderOptions, check_timeout
from ferrymq.reconnect import ReconnectPolicy
from ferrymq.retries import (
    RETRIES,
    Reject,
    Retry,
    RetryDelay,
    backoff,
    delay_of,
    failures_of,
    note_of,
)
from ferrymq.signals import on_end
from ferrymq.url import parse_urls, shown_urls
from ferrymq_codec.scalars import UInt
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.session import Session
    from ferrymq.message import Message

LOGGER: Final = logging.getLogger("ferrymq.worker")

_DELAY: Final = "x-opt-delivery-delay"
# The other annotations that schedule a message come before the delay.
_SCHEDULES: Final = ("x-opt-delivery-time", "x-opt-scheduled-enqueue-time")
# A queue that schedules messages, and takes back as new ones what came from it.
_REQUEUE: Final = ["DELAYED_DELIVERY", "ferrymq:requeue"]

# Seconds that the broker may take for a message that is put off, and at the end for what is left.
_PATIENCE: Final = 5.0
# Messages per handler that wait here for their next attempt; then no further ones are fetched.
_WAITING: Final = 20
# Characters of an error in the reason of a rejection.
_TEXT: Final = 500


class Worker:
    """Worker that handles the messages of a queue or subscription with a coroutine function.

        async def handle(delivery: ferrymq.Delivery) -> None:
            print(delivery.message.body)

        await ferrymq.Worker("amqp://localhost", "orders", handle).run()

    The worker has at most `concurrency` messages in hand. When the handler returns, the message is
    accepted, unless the handler has given it an outcome. When the handler raises, or takes longer
    than `timeout`, the message is tried again after `retry_delay`: seconds, a timedelta, or a
    function of the number of failures; by default a second, doubled for each further failure up to
    five minutes, and shortened by up to half at random. After `retries` further attempts the
    message is rejected, so that its queue sends it to its dead letters. The handler may raise
    `Retry` with a delay of its own, and `Reject` for a message that no attempt can handle.

    `connection` is a URL, or a list of them, for a connection of the worker's own that is restored
    whenever it is lost, or a connection, which the worker leaves open. A broker that is not up yet
    is waited for; a refusal ends the worker at once. `receiver` has options for the link, such as
    `selector`, or `name` and `capabilities` of a subscription.

    No message is lost: each is delivered to this worker or to another until one has accepted or
    rejected it. A message may be handled more than once: when the connection or the process is
    lost meanwhile.
    """

    def __init__(
        self,
        connection: Connection | str | Sequence[str],
        address: str,
        handler: Callable[[Delivery], Awaitable[None]],
        *,
        concurrency: int = 10,
        retries: int = 5,
        retry_delay: RetryDelay = backoff,
        timeout: Duration | None = None,
        grace: Duration = 30.0,
        receiver: ReceiverArguments | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency {concurrency} is below 1")
        if retries < 0:
            raise ValueError(f"retries {retries} is negative")
        if inspect.isfunction(handler) and not inspect.iscoroutinefunction(handler):
            raise TypeError(
                "the handler is no coroutine function: use ferrymq.blocking.Worker for functions"
            )
        check_timeout(timeout)
        if not callable(retry_delay):
            check_duration(retry_delay, "retry_delay")
        given = ReceiverArguments(**(receiver or {}))
        if "credit" in given:
            raise ValueError("a worker fetches as many messages as it can handle: give concurrency")
        self._given = connection
        self._address = address
        self._handler = handler
        # Whether the handler runs in a span.
        self._traces = False
        self._concurrency = concurrency
        self._retries = retries
        self._retry_delay = retry_delay
        self._timeout = seconds(timeout)
        self._grace = check_duration(grace, "grace")
        given["credit"] = 0
        self._options = ReceiverOptions(**given)
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._receiver: Receiver | None = None
        # The link on which messages go back to their queue; None if they cannot.
        self._requeue: Sender | None = None
        self._requeues = asyncio.Lock()
        self._asked = False
        # How often the worker was told to stop, and what waits for that.
        self._stops = 0
        self._stopped = Signal()
        # Tasks of messages whose handler runs, and of those that wait for their next attempt.
        self._handling: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        # Messages that the peer may send; whether credit is given in the next turn of the loop.
        self._granted = 0
        self._renewing = False

    def __repr__(self) -> str:
        return f"<worker of {self._address!r}, {len(self._handling)} messages in hand>"

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def connection(self) -> Connection:
        """The connection, for handlers. Raises RuntimeError if the worker does not run."""
        if self._connection is None:
            raise RuntimeError("the worker does not run")
        return self._connection

    @staticmethod
    def attempt(delivery: Delivery) -> int:
        """Return the number of this attempt to handle the message, from 1 on."""
        return failures_of(delivery.message) + 1

    async def run(self) -> None:
        """Handle messages until `stop` is called.

        In the main thread SIGTERM and SIGINT call `stop`, if the program does not handle them
        itself. Then the worker fetches no more messages and waits for the handlers, at most for
        `grace`; handlers that still run are cancelled, and their messages released. A second
        `stop`, or signal, ends the wait at once, and so does cancelling `run`.

        Raises the errors of `connect` and `receiver`, and the error that ended the link or the
        connection.
        """
        if self._connection is not None:
            raise RuntimeError("the worker runs already")
        loop = asyncio.get_running_loop()
        with on_end(lambda: loop.call_soon_threadsafe(self.stop)):
            if isinstance(self._given, Connection):
                await self._run(self._given)
                return
            connection = await self._connect(self._given)
            if connection is not None:
                async with connection:
                    await self._run(connection)

    def stop(self) -> None:
        """Tell the worker to stop; `run` returns when the handlers have ended."""
        self._stops += 1
        self._stopped.wake()

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    async def _connect(self, url: str | Sequence[str]) -> Connection | None:
        """Connect, and wait for a broker that is not up yet. Returns None if the worker is told to
        stop meanwhile."""
        pauses = ReconnectPolicy().pauses()
        while True:
            try:
                return await connect(url, reconnect=True)
            except (AmqpError, TimeoutError) as error:
                pause = pause_before_next(url, error, pauses)
            if await self._told_within(pause):
                self._stops = 0
                return None

    async def _attach(self, session: Session) -> Receiver:
        while True:
            try:
                return await session.open_receiver(self._address, self._options)
            except ConnectionClosed:
                # A connection that is being restored takes the link then.
                if session.closed:
                    raise

    async def _run(self, connection: Connection) -> None:
        self._connection = connection
        self._traces = connection.options.tracer is not None
        try:
            self._session = session = await connection.session()
            try:
                receiver = await self._attach(session)
                self._receiver = receiver
                LOGGER.info("%s: handling %d messages of %r at a time",
                            connection.url, self._concurrency, self._address)  # fmt: skip
                self._granted = 0
                try:
                    self._renew()
                    try:
                        await self._fetch(receiver)
                    finally:
                        if not _is_cancelled():
                            await self._wait_for_handlers(receiver)
                finally:
                    await self._leave(receiver)
            finally:
                await session.close()
        finally:
            self._connection = self._session = self._receiver = self._requeue = None
            self._asked = False
            self._stops = 0
            # A task that is cancelled before its first step removes nothing.
            self._handling.clear()
            self._waiting.clear()

    async def _fetch(self, receiver: Receiver) -> None:
        """Start a task for each message that comes, until the worker is told to stop."""
        loop = asyncio.get_running_loop()
        fetching = loop.create_task(self._start_each(receiver))
        told = loop.create_task(self._told(1))
        try:
            await asyncio.wait([fetching, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            # A receive that is cancelled loses no message.
            fetching.cancel()
            await asyncio.wait([fetching])
        if not fetching.cancelled():
            # It ends by itself only with an error.
            fetching.result()

    async def _start_each(self, receiver: Receiver) -> None:
        while True:
            delivery = await receiver.receive()
            self._granted -= 1
            task = asyncio.get_running_loop().create_task(self._work_on(delivery))
            self._handling.add(task)

    async def _told(self, times: int) -> None:
        while self._stops < times:
            await self._stopped.wait()

    async def _told_within(self, seconds: float) -> bool:
        """Wait so long, or until the worker is told to stop; return whether it was."""
        try:
            async with asyncio.timeout(seconds):
                await self._told(1)
        except TimeoutError:
            return False
        return True

    async def _wait_for_handlers(self, receiver: Receiver) -> None:
        """Give back what was fetched and not begun, then wait for the handlers."""
        LOGGER.info("%r: stopping, with %d messages in hand", self._address, len(self._handling))
        # No further credit is given.
        self._stops = max(self._stops, 1)
        try:
            await receiver.drain(timeout=_PATIENCE)
            while receiver.queued:
                await (await receiver.receive()).release()
        except (AmqpError, TimeoutError):
            # The end of the link gives them back.
            pass
        told = asyncio.get_running_loop().create_task(self._told(2))
        try:
            async with asyncio.timeout(self._grace):
                while self._handling and not told.done():
                    await asyncio.wait([*self._handling, told], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            LOGGER.warning(
                "%r: %d handlers still run after %g s: they are cancelled, and their messages "
                "released", self._address, len(self._handling), self._grace,
            )  # fmt: skip
        finally:
            told.cancel()

    async def _leave(self, receiver: Receiver) -> None:
        """Cancel what still runs, and end the link; a subscription goes on."""
        tasks = self._handling | self._waiting
        for task in self._handling:
            task.cancel()
        self._stops = max(self._stops, 1)
        self._stopped.wake()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)
        await receiver.detach()
        LOGGER.info("%r: stopped", self._address)

    # ── One message ────────────────────────────────────────────────────────────────────────────

    async def _work_on(self, delivery: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None, "a worker starts a task for each message"
        try:
            delay = await self._handle(delivery)
            if delay is not None:
                self._handling.discard(task)
                self._waiting.add(task)
                self._give_credit()
                await self._hold(delivery, delay)
        except PeerError as lost:
            LOGGER.warning(
                "%r: the outcome of a message came too late, it is delivered again: %s",
                self._address,
                lost,
            )
        except AmqpError:
            LOGGER.exception("%r: a message could not be given an outcome", self._address)
        finally:
            self._handling.discard(task)
            self._waiting.discard(task)
            self._give_credit()

    async def _handle(self, delivery: Delivery) -> float | None:
        """Call the handler and give the message its outcome. Returns None, or the seconds to wait
        before the message is given back as failed."""
        try:
            failures = 0 if delivery.message_format else failures_of(delivery.message)
        except DecodeError as error:
            LOGGER.error("%r: a message is malformed: %s", self._address, error)
            await delivery.reject("amqp:decode-error", str(error)[:_TEXT])
            return None
        if failures > self._retries:
            # A message that kills its workers would do so for ever.
            await self._give_up(delivery, failures, "a worker or a connection that was lost")
            return None
        try:
            await self._call(delivery)
        except Reject as rejected:
            if delivery._given or delivery.gone:
                return await self._on_failure(delivery, failures, rejected)
            LOGGER.error("%r: %s was rejected: %s", self._address, _name(delivery), rejected)
            await delivery.reject(rejected.condition, str(rejected)[:_TEXT])
        except Exception as error:
            return await self._on_failure(delivery, failures + 1, error)
        except BaseException:
            # The handler was cancelled, or the process ends: it is nobody's failure.
            if not delivery._given:
                await delivery.release()
            raise
        else:
            if not delivery._given:
                await delivery.accept()
        return None

    async def _call(self, delivery: Delivery) -> None:
        try:
            async with asyncio.timeout(self._timeout) as bound:
                if self._traces:
                    from ferrymq.opentelemetry import processing

                    with processing(delivery):
                        await self._handler(delivery)
                else:
                    await self._handler(delivery)
        except TimeoutError as error:
            if bound.expired():
                raise TimeoutError(f"the handler took longer than {self._timeout:g} s") from error
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise RuntimeError("something that the handler waited for was cancelled") from error
            raise

    async def _on_failure(
        self, delivery: Delivery, failures: int, error: Exception
    ) -> float | None:
        if delivery._given:
            LOGGER.error(
                "%r: the handler of %s failed after it had given an outcome",
                self._address,
                _name(delivery),
                exc_info=error,
            )
            return None
        what = f"{type(error).__name__}: {error}"[:_TEXT]
        if delivery.gone:
            LOGGER.warning(
                "%r: the handler of %s failed, whose connection was lost: it is delivered again: "
                "%s", self._address, _name(delivery), what,
            )  # fmt: skip
            return None
        if failures > self._retries:
            await self._give_up(delivery, failures, what, error)
            return None
        delay = self._delay_after(failures, error)
        LOGGER.warning(
            "%r: attempt %d of %d to handle %s failed, the next one is in %.3g s: %s",
            self._address, failures, self._retries + 1, _name(delivery), delay, what,
            exc_info=None if isinstance(error, Retry) else error,
        )  # fmt: skip
        if delay and await self._put_off(delivery, failures, delay):
            return None
        return delay

    async def _give_up(
        self, delivery: Delivery, failures: int, what: str, error: Exception | None = None
    ) -> None:
        """Reject a message that has failed too often, at last with `what`."""
        times = "once" if failures == 1 else f"{failures} times"
        LOGGER.error(
            "%r: the handler of %s failed %s, the message is rejected: %s",
            self._address, _name(delivery), times, what, exc_info=error,
        )  # fmt: skip
        text = f"the handler failed {times}, at last with {what}"
        await delivery.reject(Error(condition="ferrymq:retries-exhausted", description=text))

    def _delay_after(self, failures: int, error: Exception) -> float:
        if isinstance(error, Retry) and error.delay is not None:
            return error.delay
        try:
            return delay_of(self._retry_delay, failures)
        except Exception:
            LOGGER.exception("retry_delay(%d) failed", failures)
            return backoff(failures)

    # ── Another attempt ────────────────────────────────────────────────────────────────────────

    async def _hold(self, delivery: Delivery, delay: float) -> None:
        """Keep the message for the delay, or until the worker stops, and give it back as failed."""
        await self._told_within(delay)
        message = delivery.message
        failures = failures_of(message) + 1
        note = note_of(message, failures, message.delivery_count + 1)
        granted = delivery.receiver.granted
        if granted is not None and MODIFIED_SYMBOL not in granted:
            # The failure cannot be counted.
            await delivery.release()
            return
        await delivery.modify(delivery_failed=True, message_annotations={RETRIES: note})

    async def _put_off(self, delivery: Delivery, failures: int, delay: float) -> bool:
        """Exchange the message, in one transaction, for a copy that becomes available after the
        delay. Returns whether that was done; if not, the message is as it was."""
        session = self._session
        sender = None if delivery.message_format else await self._link_back()
        if sender is None or session is None:
            return False
        again = _copy(delivery.message, failures, delay)
        try:
            async with session.transaction(timeout=_PATIENCE) as txn:
                await sender.send(again, transaction=txn, timeout=_PATIENCE)
                await delivery.accept(transaction=txn)
        except TransactionInDoubt as doubt:
            # The queue has either the message or the copy.
            LOGGER.debug("%r: a message was put off or not: %s", self._address, doubt)
            return True
        except (AmqpError, TimeoutError) as error:
            LOGGER.debug("%r: a message cannot be put off: %s", self._address, error)
            return False
        return True

    async def _link_back(self) -> Sender | None:
        """Return a link on which messages go back to their queue; None if the peer does not offer
        what that takes, or does not allow it."""
        async with self._requeues:
            if self._requeue is not None and self._requeue.closed:
                self._asked = False
            if not self._asked:
                self._requeue = await self._attach_back()
                self._asked = True
            sender = self._requeue
            # The queue may be another one since the connection was restored.
            return sender if sender is not None and _takes_back(sender) else None

    async def _attach_back(self) -> Sender | None:
        session = self._session
        if session is None:
            return None
        if session.connection.peer.ends_sessions:
            # A refusal of this link would end the session of the receiver.
            LOGGER.info("%r: retries wait in this process", self._address)
            return None
        options = SenderOptions(capabilities=["queue"], desired_capabilities=_REQUEUE)
        try:
            sender = await session.open_sender(self._address, options)
        except (LinkDetached, TimeoutError) as refused:
            LOGGER.info("%r: retries wait in this process: %s", self._address, refused)
            return None
        if not _takes_back(sender):
            LOGGER.info("%r: retries wait in this process", self._address)
            await sender.close()
            return None
        return sender

    # ── Credit ─────────────────────────────────────────────────────────────────────────────────

    def _give_credit(self) -> None:
        """Allow the peer to send as many messages as handlers have become free, in the next turn of
        the loop."""
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renewing = False
        receiver = self._receiver
        if receiver is None or receiver.closed or self._stops:
            return
        if len(self._waiting) >= _WAITING * self._concurrency:
            return
        free = self._concurrency - len(self._handling) - self._granted
        if free > 0:
            self._granted += free
            receiver.add_credit(free)


def pause_before_next(
    url: str | Sequence[str], error: AmqpError | TimeoutError, pauses: Iterator[float]
) -> float:
    """Return the seconds before the next attempt to connect, with a line in the log. Raises the
    error if a further attempt would meet it too."""
    if not may_come_up(error):
        raise error
    pause = next(pauses)
    LOGGER.warning(
        "%s: no connection yet, the next attempt is in %.3g s: %s",
        shown_urls(parse_urls(url)),
        pause,
        error,
    )
    return pause


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _name(delivery: Delivery) -> str:
    """Return a name of the message for the log."""
    id = None if delivery.message_format else delivery.message.message_id
    return f"delivery {delivery.tag.hex()}" if id is None else f"message {id!r}"


def _takes_back(sender: Sender) -> bool:
    return set(_REQUEUE) <= set(sender.offered_capabilities)


def _copy(message: Message, failures: int, delay: float) -> Message:
    """Return the message as it goes back to its queue: available after the delay, with its failures
    in an annotation in place of the header."""
    again = copy.copy(message)
    if again.header is not None:
        again.header = copy.copy(again.header)
        again.header.delivery_count = 0
        again.header.first_acquirer = False
    annotations = {
        key: value for key, value in message.message_annotations.items() if key not in _SCHEDULES
    }
    annotations[_DELAY] = UInt(milliseconds(delay, "delay"))
    annotations[RETRIES] = note_of(message, failures, 0)
    again.message_annotations = annotations
    again.delivery_annotations = {}
    return again
