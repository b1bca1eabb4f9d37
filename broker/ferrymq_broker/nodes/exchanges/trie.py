"""A trie of word patterns, all matched at once: the bindings of a topic exchange.

Each edge of the trie is a word of a pattern; ``*`` and ``#`` are edges of their own. A key is read
word by word, with the set of places that the words so far can lead to. Each place is in the set
once. So matching a key costs at most its words times the places, whatever the patterns are.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.exchanges.binding import Destination


@final
class _Place:
    """A place in the trie: what patterns that begin with the same words have in common. `stays`
    marks the place behind a ``#``."""

    __slots__ = ("above", "word", "stays", "words", "one", "many", "targets", "mark")

    def __init__(self, above: _Place | None, word: str) -> None:
        self.above = above
        self.word = word
        self.stays = word == "#" and above is not None
        self.words: dict[str, _Place] = {}
        self.one: _Place | None = None
        self.many: _Place | None = None
        # The targets of patterns that end here.
        self.targets: list[Destination] = []
        self.mark: i64 = 0


@final
class Trie:
    """The patterns of one exchange. An empty key has no words."""

    __slots__ = ("_root", "_mark")

    def __init__(self) -> None:
        self._root = _Place(None, "")
        self._mark: i64 = 0

    def add(self, pattern: str, target: Destination) -> None:
        """Add a target for keys that match the pattern."""
        place = self._root
        for word in _split(pattern):
            following: _Place | None
            if word == "#":
                # Two ``#`` in a row mean the same as one.
                if place.stays:
                    continue
                following = place.many
            elif word == "*":
                following = place.one
            else:
                following = place.words.get(word)
            if following is None:
                following = _Place(place, word)
                if word == "#":
                    place.many = following
                elif word == "*":
                    place.one = following
                else:
                    place.words[word] = following
            place = following
        place.targets.append(target)

    def remove(self, pattern: str, target: Destination) -> None:
        """Undo one `add`, and remove the places that are no longer needed."""
        place = self._root
        for word in _split(pattern):
            following: _Place | None
            if word == "#":
                if place.stays:
                    continue
                following = place.many
            elif word == "*":
                following = place.one
            else:
                following = place.words.get(word)
            if following is None:
                return
            place = following
        place.targets.remove(target)
        while not (place.targets or place.words or place.one or place.many):
            above = place.above
            if above is None:
                return
            if place.stays:
                above.many = None
            elif place.word == "*":
                above.one = None
            else:
                del above.words[place.word]
            place = above

    def match(self, key: str, number: i64, found: list[Destination]) -> None:
        """Append the targets of the key that are not marked with the number, and mark them."""
        mark = self._mark + 1
        places: list[_Place] = []
        _enter(self._root, mark, places)
        if key:
            for word in key.split("."):
                mark += 1
                following: list[_Place] = []
                for place in places:
                    if place.stays:
                        _enter(place, mark, following)
                    if place.words:
                        known = place.words.get(word)
                        if known is not None:
                            _enter(known, mark, following)
                    if place.one is not None:
                        _enter(place.one, mark, following)
                if not following:
                    self._mark = mark
                    return
                places = following
        self._mark = mark
        for place in places:
            for target in place.targets:
                if target.seen != number:
                    target.seen = number
                    found.append(target)


def _enter(place: _Place, mark: i64, places: list[_Place]) -> None:
    """Add the place that the words so far lead to, and the place behind a ``#``, which may stand
    for no word."""
    if place.mark == mark:
        return
    place.mark = mark
    places.append(place)
    many = place.many
    if many is not None and many.mark != mark:
        # A second # cannot follow the first one directly.
        many.mark = mark
        places.append(many)


def _split(pattern: str) -> list[str]:
    return pattern.split(".") if pattern else []
