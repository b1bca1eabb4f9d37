"""Values of every class of the package survive the wire."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from librt.strings import BytesWriter
from shop_types import registry

from ferrymq.testing.strategies import composites
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader


def check(cls: type[Composite]) -> None:
    @settings(database=None, max_examples=50, suppress_health_check=list(HealthCheck))
    @given(composites(cls))
    def survives(value: Composite) -> None:
        w = BytesWriter()
        value.encode(w)
        data = w.getvalue()
        assert registry.decode_any(Reader(data, 0, len(data)), "value") == value

    survives()


for each in registry.DESCRIPTORS:
    check(each)
print(len(registry.DESCRIPTORS), "classes")
