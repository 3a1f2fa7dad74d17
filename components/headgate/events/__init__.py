"""The contract: the events of the log, their encoding, their subjects."""
