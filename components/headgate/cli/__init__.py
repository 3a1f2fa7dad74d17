"""The headgate command, for operators."""
