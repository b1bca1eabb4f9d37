"""The features part: every case goes through, and is set beside the plain queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.parts import features
from bench.parts.features import FEATURES, FeatureBench
from bench.process import broker
from bench.tree import Trees


@pytest.mark.slow
def test_every_feature_is_measured_beside_a_plain_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "PROBE", 50)
    monkeypatch.setattr(features, "HELD_QUICKLY", 50)
    config = tmp_path / "features.toml"
    config.write_text(features.CONFIGURATION, "utf-8")
    trees = Trees(pure=True)
    with broker(trees, config) as server:
        report = FeatureBench(trees, server, rounds=1, seconds=0.0).measure()
    assert not report.failures
    rated = {figure.case for figure in report.figures if figure.unit == features.MESSAGES}
    assert rated == {feature.name for feature in FEATURES}
    assert all(figure.median > 0 for figure in report.figures if figure.unit == features.MESSAGES)


def test_a_feature_that_loses_messages_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker is not told of an exchange, so the address is a queue that nobody reads.
    monkeypatch.setattr(features, "PROBE", 50)
    monkeypatch.setattr(features, "HELD_QUICKLY", 50)
    astray = [feature for feature in FEATURES if feature.address == "exchange"]
    plain = FEATURES[0]
    monkeypatch.setattr(features, "FEATURES", (plain, astray[0]._replace(
        options=(*astray[0].options, "--idle=0.3")
    )))  # fmt: skip
    trees = Trees(pure=True)
    with broker(trees) as server:
        report = FeatureBench(trees, server, rounds=1, seconds=0.0).measure()
    assert len(report.failures) == 1
    assert astray[0].name in report.failures[0]
    measured = {figure.case for figure in report.figures}
    assert plain.name in measured and astray[0].name not in measured
