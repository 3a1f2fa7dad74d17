"""The benchmarks: `python -m tests.benchmarks` (`make bench`). They measure and print; they never judge a test run."""
