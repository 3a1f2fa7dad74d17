"""The ungater process."""
