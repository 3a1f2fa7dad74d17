"""Verification: the recorded decisions of every process are repeated, or justified, from the log itself."""
