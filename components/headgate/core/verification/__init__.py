"""Verification: what every process has recorded is decided, or justified, again from the log itself."""
