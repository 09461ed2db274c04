"""How long hypothesis searches: briefly at home, longer where `CI` is set; a slow machine is no fault."""

import os

from hypothesis import HealthCheck, settings


def load_profile() -> None:
    """Make the profile of this environment the default."""
    settings.register_profile("home", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("longer", settings.get_profile("home"), max_examples=150)
    settings.load_profile("longer" if os.environ.get("CI") else "home")
