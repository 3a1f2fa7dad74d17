"""The binder process."""
