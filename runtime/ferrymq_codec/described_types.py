"""Described types that a Reader decodes into their classes where any value may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ferrymq_codec.composite import Composite

if TYPE_CHECKING:
    from ferrymq_codec.reader import Reader

Decoder: TypeAlias = "Callable[[Reader], Composite]"
"""A function that reads a value whose descriptor has been read already."""


class TypeTables(Protocol):
    """The tables of generated types; the module `registry` of each generated package has them."""

    @property
    def DECODERS(self) -> dict[int, Decoder]:  # noqa: N802
        """The decoder of each type by its numeric descriptor."""

    @property
    def CODES(self) -> dict[str, int]:  # noqa: N802
        """The numeric descriptor of each type by its symbolic one."""


class DescribedTypes:
    """Decoders of described types by their descriptors.

    `decoders` are by numeric descriptor; `codes` has the numeric descriptor of each symbolic one.
    """

    __slots__ = ("codes", "decoders")

    def __init__(self, decoders: dict[int, Decoder], codes: dict[str, int]) -> None:
        self.decoders: dict[int, Decoder] = decoders
        self.codes: dict[str, int] = codes

    @staticmethod
    def of(registries: TypeTables | Iterable[TypeTables]) -> DescribedTypes:
        """Return the types of one registry, or of several.

        If two types have the same descriptor, the type of the first registry is used. Raises
        TypeError for anything that is not a registry.
        """
        found = list(registries) if isinstance(registries, Iterable) else [registries]
        decoders: dict[int, Decoder] = {}
        codes: dict[str, int] = {}
        for registry in found:
            if not (hasattr(registry, "DECODERS") and hasattr(registry, "CODES")):
                raise TypeError(
                    "types takes the module `registry` of a generated package, or several, "
                    f"not {registry!r}"
                )
            decoders = {**registry.DECODERS, **decoders}
            codes = {**registry.CODES, **codes}
        return DescribedTypes(decoders, codes)
