"""The informer bridge process."""
