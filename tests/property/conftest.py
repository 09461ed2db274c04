import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("CI", settings.get_profile("default"), max_examples=400)
settings.load_profile("CI" if os.environ.get("CI") else "default")
