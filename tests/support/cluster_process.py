"""The simulated cluster as a process of its own."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running_cluster(folder: Path, *options: str) -> Iterator[Path]:
    """A cluster as `headgate run cluster` starts it with these options, ended by SIGTERM; its kubeconfig."""
    file = folder / "kubeconfig"
    args = [sys.executable, "-m", "headgate.cli.main", "run", "cluster", "--kubeconfig", str(file), *options]
    with subprocess.Popen(args, stdout=subprocess.PIPE) as process:
        while not file.exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield file
        process.terminate()
        assert process.wait(10) == 0
