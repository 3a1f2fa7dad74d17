"""The snapshotter: snapshots, their verification, the feed."""
