"""Builds what seals."""

import logging
from pathlib import Path

from gateway.config.schema import GatewayConfig
from gateway.config.seal_keys import list_seal_keys
from gateway.ports import Sealer
from gateway.storage.sealing import FernetSealer, GivenKeys, OwnKeyFile
from gateway.storage.settings import database_url, is_sqlite
from gateway.telemetry.names import LOGGER_SERVER

_logger = logging.getLogger(LOGGER_SERVER)
_SUFFIX = ".seal-keys"


def build_sealer(config: GatewayConfig) -> Sealer | None:
    """Build the sealer of a configuration; None where there are no keys that every process would have.

    Raises:
        StorageNotReady: the database's URL is malformed.
    """
    given = config.security.seal_keys
    if given is not None:
        return FernetSealer(GivenKeys(list_seal_keys(given)))
    url = database_url(config.storage.url.reveal())
    if not is_sqlite(url):
        if config.compaction.mode == "auto":
            _logger.info("histories are not compacted: there are no sealing keys (see `gateway keys seal-key`)")
        if config.multi_agent.enabled and config.multi_agent.message_visibility == "opaque":
            _logger.info(
                "requests with multi_agent are refused: there are no sealing keys (see `gateway keys seal-key`, "
                "or set multi_agent.message_visibility to plain)"
            )
        return None
    return FernetSealer(OwnKeyFile(Path(f"{url.database}{_SUFFIX}")))
