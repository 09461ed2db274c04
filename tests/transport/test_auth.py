import pytest

from gateway.ports import LOCAL, Identity
from gateway.protocol.errors import Unauthorized
from gateway.transport.auth import Unauthenticated, require_standing


class Expired(Unauthenticated):
    def holds(self, identity):
        return False


async def test_everybody_is_the_local_owner():
    everybody = Unauthenticated()
    await everybody.start()
    everybody.refresh()
    assert everybody.recall(None) == await everybody.authenticate(b"anything") == LOCAL
    require_standing(everybody, LOCAL)
    await everybody.close()


@pytest.mark.parametrize(("key_id", "code"), [(None, "invalid_token"), ("ada000000001", "invalid_api_key")])
def test_whoever_counts_no_more_is_told_what_to_renew(key_id, code):
    with pytest.raises(Unauthorized) as caught:
        require_standing(Expired(), Identity(principal="ada", key_id=key_id))
    assert (caught.value.status, caught.value.code) == (401, code)
    assert "connect again" in caught.value.message
