"""Settings for all tests: bounded property tests, and no test may depend on the machine's speed."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Deadlines per example measure the machine, not the code. "soak" is for long runs: HYPOTHESIS_PROFILE=soak.
_HEALTH_CHECKS_OFF = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("normal", max_examples=60, deadline=None, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))
