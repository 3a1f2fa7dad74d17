"""A child process ends when its parent is killed, and a program that cannot be started is told in one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from headgate.adapters.ends_with_parent import ends_with_us

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel tells a child of its parent's end")

PARENT = """
import signal, subprocess, sys, time
from headgate.adapters.ends_with_parent import ends_with_us
print(subprocess.Popen(ends_with_us(["sleep", "600"], signal.SIGTERM)).pid, flush=True)
time.sleep(600)
"""


@on_linux
@pytest.mark.anyio
async def test_a_child_ends_when_its_parent_is_killed() -> None:
    """The parent gets SIGKILL, which it cannot handle; its child is gone soon after."""
    parent = await anyio.open_process([sys.executable, "-c", PARENT])
    assert parent.stdout is not None
    child = int(await parent.stdout.receive())
    os.kill(child, 0)
    parent.kill()
    await parent.aclose()
    with anyio.fail_after(20):
        while _runs(child):  # noqa: ASYNC110 - it is not our child, so there is nothing to wait for
            await anyio.sleep(0.01)


def test_a_child_has_the_arguments_and_files_that_it_was_given() -> None:
    """Arguments with spaces and quotes arrive as they are, and an inherited file stays open."""
    reading, writing = os.pipe()
    words = "two words 'and' \"quotes\""
    program = [
        sys.executable,
        "-c",
        "import os, sys; os.write(int(sys.argv[1]), sys.argv[2].encode())",
        str(writing),
        words,
    ]
    subprocess.run(ends_with_us(program, signal.SIGTERM), check=True, pass_fds=(writing,))
    assert os.read(reading, 100).decode() == words
    os.close(writing)
    os.close(reading)


@on_linux
def test_a_program_that_is_missing_is_told_in_one_line(tmp_path: Path) -> None:
    """The exit code is that of a shell for a command not found; stderr names the file."""
    missing = str(tmp_path / "no-such-program")
    ended = subprocess.run(ends_with_us([missing], signal.SIGTERM), check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (127, f"{missing} cannot be started: No such file or directory\n")


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for by anybody does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
