"""Builds the store of a configuration."""

from gateway.config.schema import StorageConfig
from gateway.ports import Store
from gateway.storage.cache import CachedStore
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from gateway.telemetry.metrics import Metrics


def build_store(storage: StorageConfig, metrics: Metrics) -> Store:
    """Build the database's store, with histories in memory in front of it where these are configured.

    Raises:
        StorageNotReady: the database's driver or its folder is not there.
    """
    store = SqlStore(_store_settings(storage), metrics)
    if not storage.history_cache_bytes:
        return store
    return CachedStore(
        store,
        max_bytes=storage.history_cache_bytes,
        revalidate_seconds=storage.history_revalidate_seconds,
        history_max_responses=storage.history_max_responses,
        history_max_bytes=storage.history_max_bytes,
        metrics=metrics,
    )


def _store_settings(storage: StorageConfig) -> StoreSettings:
    return StoreSettings(
        url=database_url(storage.url.reveal()),
        auto_migrate=storage.auto_migrate,
        sqlite_synchronous=storage.sqlite_synchronous,
        busy_timeout_seconds=storage.busy_timeout_seconds,
        statement_timeout_seconds=storage.statement_timeout_seconds,
        probe_timeout_seconds=storage.probe_timeout_seconds,
        verify_after_seconds=storage.verify_after_seconds,
        readers=storage.readers,
        reader_max_entries=storage.reader_max_entries,
        writer_max_entries=storage.writer_max_entries,
        writer_max_bytes=storage.writer_max_bytes,
        writer_batch_entries=storage.writer_batch_entries,
        history_max_responses=storage.history_max_responses,
        history_max_bytes=storage.history_max_bytes,
        retention_seconds=storage.retention_seconds,
        retention_interval_seconds=storage.retention_interval_seconds,
        retention_batch_responses=storage.retention_batch_responses,
    )
