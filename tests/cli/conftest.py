from collections.abc import Iterator

import pytest
from harness.logs import restored_logging


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands set up the log of the process."""
    with restored_logging():
        yield
