import pytest
from property.profiles import load_profile
from transport.oidc.setting import Setting

load_profile()


@pytest.fixture
def setting():
    """Return a setting with default bounds."""
    return Setting()


@pytest.fixture
def make_setting():
    """Return what makes a setting with other bounds."""
    return Setting
