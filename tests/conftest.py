"""Shared by all tests: where the data written by others lies, where it is present."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: neither a slow example nor slow drawing of examples.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def shared_data() -> Path:
    """The folder of real games and traces; skips the test where there is none."""
    default = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("PIVOTUNE_SHARED_DATA", default))
    if not path.is_dir():
        pytest.skip("needs the shared data folder (PIVOTUNE_SHARED_DATA)")
    return path
