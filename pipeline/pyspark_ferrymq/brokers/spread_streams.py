"""Streams whose partitions are on several brokers: one URL leads to all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark_ferrymq.errors import AmqpSourceError

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions
    from pyspark_ferrymq.stream_metadata import StreamRanges


def with_placement(settings: BrokerOptions, found: Iterable[StreamRanges]) -> BrokerOptions:
    """Return the options with the URLs of all brokers that have partitions of these streams, with
    the user and the password of the first URL; the same object if all these URLs are there.

    Raises `AmqpSourceError` if there is no URL for a partition that is like the others, with TLS or
    without.
    """
    from ferrymq.url import parse_url, split_urls

    texts = split_urls(settings.url)
    first = urlsplit(texts[0])
    secure = parse_url(texts[0]).secure
    known = {parse_url(text).place[1:3] for text in texts}
    places = [settings.place]
    for stream in found:
        for number, urls in stream.elsewhere.items():
            usable = [url for url in map(parse_url, urls) if url.secure == secure]
            if not usable:
                raise AmqpSourceError(
                    f"partition {number} of the stream {stream.name!r} is at {', '.join(urls)}, and"
                    f" the option 'url' {'uses' if secure else 'does not use'} TLS"
                )
            for url in usable:
                if (url.host, url.port) in known:
                    continue
                known.add((url.host, url.port))
                login, at, _ = first.netloc.rpartition("@")
                place = urlsplit(str(url)).netloc
                texts.append(first._replace(netloc=f"{login}{at}{place}").geturl())
                places.append(str(url))
    if len(places) == 1:
        return settings
    return replace(settings, url=",".join(texts), place=", ".join(places))


def expect_here(found: Iterable[StreamRanges], place: str) -> None:
    """Raise `AmqpSourceError` if other brokers have partitions of these streams, for work that uses
    one broker."""
    for stream in found:
        for number, urls in stream.elsewhere.items():
            raise AmqpSourceError(
                f"partition {number} of the stream {stream.name!r} is at {urls[0]}, and this works"
                f" with the partitions at {place} only"
            )
