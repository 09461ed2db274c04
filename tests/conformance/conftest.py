"""Failed tests of this folder show the log of their gateway."""

from harness.reports import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
