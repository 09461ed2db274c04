"""Tools that the gateway runs itself: a package for each kind, joined by the registry, bounded by the gate."""
