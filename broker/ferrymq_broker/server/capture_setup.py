"""Makes the capture service from the configuration."""

from __future__ import annotations

from pathlib import Path

from ferrymq_broker.broker import Broker
from ferrymq_broker.capture.options import CaptureOptions
from ferrymq_broker.capture.service import CaptureService
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.capture import Capture as Settings


def make_capture(settings: Settings, broker: Broker, clock: Clock) -> CaptureService | None:
    """Make the capture service of a broker, not yet started; None if no directory is configured."""
    directory = settings.directory
    if directory is None:
        return None
    options = CaptureOptions(
        str(Path(directory).absolute()),
        settings.max_records,
        settings.max_bytes,
        settings.max_age,
        settings.raw,
    )
    return CaptureService(broker, options, clock.now)
