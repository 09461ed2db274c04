"""Why a gateway cannot be built or started."""


class StartError(Exception):
    """The gateway cannot start as it is configured; the text says what to do."""
