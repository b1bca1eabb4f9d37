"""Patterns of words with dots between them: ``usd.*``, ``#.stock.#`` (Apache filters §1.2)."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.errors import BrokerError

# The highest number of characters. A word of the key costs one step for each 62 words of the
# pattern.
MAX_PATTERN: Final = 2048
# The highest number of words of a key. Any client can send a longer key; its last word then
# contains the rest.
MAX_WORDS: Final = 16_384


@final
class TopicPattern:
    """A pattern in which ``*`` stands for one word and ``#`` for any number of words, even none.

    An empty key has no words; ``a..b`` has three, one of which is empty. `literal` is True for a
    pattern without wildcards, which matches only an equal key. `everything` is True for a pattern
    that matches every key. Raises `BrokerError` if the pattern is longer than 2048 characters.
    """

    __slots__ = ("pattern", "literal", "everything", "_masks", "_any", "_stay", "_done")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise BrokerError(
                "amqp:invalid-field",
                f"a topic pattern of {len(pattern)} characters; at most {MAX_PATTERN} are allowed",
            )
        self.pattern: str = pattern
        # Matching has a set of bits. Bit n says that the key so far matches the first n words of
        # the pattern, not counting #. Each word of the key moves a bit to the next place if it
        # matches the next word of the pattern. At a # the bit also stays.
        masks: dict[str, int] = {}
        anything = 0
        stay = 0
        at = 0
        for word in split(pattern):
            if word == "#":
                stay |= 1 << at
                continue
            at += 1
            if word == "*":
                anything |= 1 << at
            else:
                masks[word] = masks.get(word, 0) | (1 << at)
        for word in masks:
            masks[word] |= anything
        self._masks = masks
        self._any = anything
        self._stay = stay
        self._done = 1 << at
        self.literal: bool = stay == 0 and anything == 0
        self.everything: bool = at == 0 and stay != 0

    def matches(self, key: str) -> bool:
        """Return whether the words of the key match, in time proportional to their number."""
        if self.literal:
            return key == self.pattern
        if self.everything:
            return True
        return self.matches_words(split(key))

    def matches_words(self, words: list[str]) -> bool:
        """Return whether a key matches that `split` has cut into words."""
        masks = self._masks
        anything = self._any
        stay = self._stay
        states = 1
        for word in words:
            mask = masks.get(word, anything)
            states = ((states << 1) & mask) | (states & stay)
            if states == 0:
                return False
        return (states & self._done) != 0


def split(key: str) -> list[str]:
    """Cut a key into its words."""
    return key.split(".", MAX_WORDS - 1) if key else []
