"""The demo on a real control plane: what a user sees who runs `make demo-kube`."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.testing.control_plane import Assets

pytestmark = pytest.mark.kube

JOBS = 20


def test_the_demo_ends_by_itself_with_every_job_complete_and_a_story(all_assets: Assets, tmp_path: Path) -> None:
    """The API server's own count, kubectl's tables, the proofs, and the story of a job; nothing stays but the log."""
    ran = subprocess.run(
        [sys.executable, "-m", "headgate.testing.control_plane", "demo", "--jobs", str(JOBS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout
    assert f"the API server has {JOBS} of {JOBS} Jobs with the condition Complete, {JOBS} Workloads" in said
    assert "CLUSTERQUEUE   PENDING WORKLOADS   ADMITTED WORKLOADS" in said
    assert "RESERVED IN   ADMITTED   FINISHED" in said
    assert "no findings" in said
    assert "no differences" in said
    assert "The job that waited longest" in said
    data = tmp_path / ".headgate/demo-kube"
    assert (data / "cell.json").exists()
    assert not (data / "control-plane").exists()
