"""Jobs that need an engine's package but measure nothing."""
