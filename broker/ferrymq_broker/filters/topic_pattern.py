"""Patterns of words with dots between them: ``usd.*``, ``#.stock.#`` (Apache filters §1.2)."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.errors import BrokerError

# In characters. A word of the key costs a step for each 62 words of the pattern.
MAX_PATTERN: Final = 2048
# A key of more words than this ends with a word that has dots in it: keys come from anybody.
MAX_WORDS: Final = 16_384


@final
class TopicPattern:
    """A pattern in which ``*`` stands for one word and ``#`` for any number of words, even none.

    An empty key has no words; ``a..b`` has three, of which one is empty. `literal` is whether the
    pattern has no wildcards, so that only the key that equals it matches; `everything` is whether
    every key does. Raises `BrokerError` if the pattern is longer than 2048 characters.
    """

    __slots__ = ("pattern", "literal", "everything", "_masks", "_any", "_stay", "_done")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise BrokerError(
                "amqp:invalid-field",
                f"a topic pattern of {len(pattern)} characters; {MAX_PATTERN} are the most",
            )
        self.pattern = pattern
        # The pattern without its # as a row of words, and a set of bits in which bit n says that
        # the key so far may be the first n of them. A word of the key moves each bit one on if the
        # next word of the pattern allows it; a bit where a # stands also stays.
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
        self.literal = stay == 0 and anything == 0
        self.everything = at == 0 and stay != 0

    def matches(self, key: str) -> bool:
        """Whether the words of the key match, in time proportional to their number."""
        if self.literal:
            return key == self.pattern
        if self.everything:
            return True
        return self.matches_words(split(key))

    def matches_words(self, words: list[str]) -> bool:
        """The same for a key that has been taken apart by `split`, for those with many patterns."""
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
    """The words of a key."""
    return key.split(".", MAX_WORDS - 1) if key else []
