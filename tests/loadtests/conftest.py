import pytest
from plan import Plan, load_plan


@pytest.fixture
def plan() -> Plan:
    return load_plan()
