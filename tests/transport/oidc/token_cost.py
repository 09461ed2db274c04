"""Measures what a token costs: `cd tests && ../.venv/bin/python -m transport.oidc.token_cost`."""

import asyncio
import time

from transport.oidc.setting import Setting

_ROUNDS = 2000


def measure(act):
    """Return the microseconds of one call, the best of five runs."""
    runs = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(_ROUNDS):
            act()
        runs.append(time.perf_counter() - start)
    return min(runs) / _ROUNDS * 1e6


async def main():
    setting = Setting()
    keys_of, reader = setting.keeper.keys, setting.authenticator._reader
    for algorithm in ("RS256", "ES256", "Ed25519"):
        setting.issuer.add_key(algorithm, algorithm)
    keys = await keys_of()
    for algorithm in ("RS256", "ES256", "Ed25519"):
        credential = setting.bearer(kid=algorithm)
        token = credential.split()[1]
        await setting.authenticator.authenticate(credential)
        checked = measure(lambda token=token: reader.identify(reader.open(token), keys))
        recalled = measure(lambda credential=credential: setting.authenticator.recall(credential))
        print(f"{algorithm}: {checked:.0f} µs to check {len(token)} bytes, {recalled:.1f} µs to recall")


if __name__ == "__main__":
    asyncio.run(main())
