"""Mistakes on the command line: one line, exit code 2, and what to do instead."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.cli import cell
from headgate.cli.disk import FULL_BYTES, ROOM_BYTES, DiskWatch
from headgate.cli.main import COMMANDS, load
from headgate.cli.output import CliError

MISTAKES = {
    ("frobnicate",): "No such command 'frobnicate'",
    ("exlpain", "x"): "Did you mean 'explain'",
    ("state", "--tabel", "x"): "No such option: --tabel",
    ("explain",): "Missing argument",
    ("run", "schduler"): "there is no process 'schduler'",
    ("run", "scheduler", "--config", "none.yaml"): "none.yaml: there is no such file",
    ("run", "scheduler", "--port", "80"): "for `headgate run cluster`",
    ("run", "scheduler", "--data", "d"): "for `headgate run cluster`",
    ("up", "--cell", "Main!"): "cell 'Main!' is not a DNS label",
    ("up", "--kubeconfig", "nowhere"): "--kubeconfig nowhere: there is no such file",
    ("up", "-f", "nowhere.yaml"): "the path 'nowhere.yaml' does not exist",
    ("up", "--sync-interval", "banana"): "--sync-interval banana: write `always` or a time, for example 100ms, 10s, 2m",
    ("get", "job", "../../etc"): "the name '../../etc' may not contain '/'",
    ("get", "jobs", "-n", ".."): "the name '..' may not be '..'",
    ("delete", "job", "a%2fb"): "the name 'a%2fb' may not contain '%'",
    ("audit",): "no cell found in ./.headgate: start one with `headgate up`",
    ("audit", "--cell", "x"): "no cell found 'x' in ./.headgate",
    ("audit", "--log", "nowhere.gz"): "nowhere.gz cannot be read",
    ("audit", "--log", "x", "--nats", "nats://h"): "leave out --nats and --data",
    ("apply",): "name what to apply",
    ("delete", "job"): "name the job to delete",
    ("delete",): "name what to delete",
    ("events", "--export", "x", "--follow"): "--export writes the whole log",
    ("events", "--type", "nothing.*"): "no event type matches 'nothing.*'",
    ("state", "--log", "x.gz"): "x.gz cannot be read",
}


@pytest.mark.parametrize("args", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_exit_code_2(headgate: Callable, args: tuple[str, ...]) -> None:
    """The line names what is wrong; nothing was done."""
    answer = headgate(*args)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("headgate: ")
    assert MISTAKES[args] in answer.err


@pytest.mark.parametrize("below", ["", "below"])
def test_a_data_directory_that_is_a_file_is_said_in_one_line(headgate: Callable, tmp_path: Path, below: str) -> None:
    """Nothing is started."""
    (tmp_path / "file").write_text("")
    answer = headgate("up", "--data", tmp_path / "file" / below)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "is a file, or below one: name a directory with --data" in answer.err


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_what_the_system_refuses_is_no_bug(
    headgate: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A full disk and the like: one line with the path and the remedy."""

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code), "somewhere/file")

    monkeypatch.setattr("headgate.cli.manifests._texts", refused)
    answer = headgate("apply", "-f", "x")
    assert answer.code == 1
    assert answer.err.startswith(f"headgate: somewhere/file: {os.strerror(code)}: ")
    assert "bug" not in answer.err


def test_settings_that_are_nested_without_end_are_refused(headgate: Callable, tmp_path: Path) -> None:
    """In the file of the processes and in that of Kueue; the parser's stack is not tried."""
    for text in ("a: " + "[" * 100_000, "\n".join("  " * depth + "a:" for depth in range(300))):
        (tmp_path / "deep.yaml").write_text(text)
        for command in (("run", "scheduler"), ("up",)):
            answer = headgate(*command, "--config", "deep.yaml")
            assert answer.code == 2
            assert "it is nested more than 200 levels deep" in answer.err


def test_a_wrong_key_in_the_settings_is_named_with_its_file(headgate: Callable, tmp_path: Path) -> None:
    """Strict: a slip in a key is not a setting that silently does nothing."""
    (tmp_path / "h.yaml").write_text("nats:\n  ulr: nats://h\n")
    answer = headgate("run", "scheduler", "--config", "h.yaml")
    assert answer.code == 2
    assert "h.yaml: nats.ulr: there is no such key; did you mean url?" in answer.err


CONFIGURATION = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def test_a_mistake_in_kueues_configuration_is_told_before_anything_starts(headgate: Callable, tmp_path: Path) -> None:
    """By `run` and by `up`: file, field, and what to write instead."""
    (tmp_path / "kueue.yaml").write_text(f"{CONFIGURATION}fairSharin: {{}}\n")
    for command in (("run", "informer-bridge"), ("up",)):
        answer = headgate(*command, "--config", "kueue.yaml")
        assert answer.code == 2
        assert answer.err == "headgate: kueue.yaml: fairSharin: Kueue has no such field: did you mean 'fairSharing'?\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "kueue.yaml"]


def test_kueues_configuration_is_for_the_bridge(headgate: Callable, tmp_path: Path) -> None:
    """Every other process has it from the log; two of a kind contradict each other."""
    for name in ("kueue.yaml", "other.yaml"):
        (tmp_path / name).write_text(CONFIGURATION)
    answer = headgate("run", "scheduler", "--config", "kueue.yaml")
    assert answer.code == 2
    assert "comes to the scheduler through the log: give it to `headgate run informer-bridge`" in answer.err
    answer = headgate("up", "--config", "kueue.yaml", "--config", "other.yaml")
    assert answer.code == 2
    assert "--config other.yaml: kueue.yaml holds Kueue's Configuration already" in answer.err


def test_a_moment_that_is_none_is_refused(headgate: Callable, demo_log: Path) -> None:
    """Position, time or span ago: the line shows one of each."""
    answer = headgate("state", "--at", "yesterday", "--log", demo_log)
    assert answer.code == 2
    assert "-5m" in answer.err


def test_a_workload_that_is_not_there_is_answered_with_near_ones(headgate: Callable, demo_log: Path) -> None:
    """Exit code 2, one line."""
    answer = headgate("explain", "vison-001", "--log", demo_log)
    assert answer.code == 2
    assert "did you mean vision/vision-001" in answer.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_what_help_says_and_has_examples(headgate: Callable, name: str) -> None:
    """The table that help is made from and the commands agree; each --help shows how it is used."""
    assert load(name).name == name
    answer = headgate(name, *(["status"] if name == "queue" else []), "--help")
    assert answer.code == 0
    assert "Examples:" in answer.out
    assert name in headgate("--help").out


def test_help_imports_nothing_heavy() -> None:
    """`headgate --help` and completion answer at once: no client library is loaded for them."""
    program = (
        "import sys; from headgate.cli.main import run; run(['--help']); "
        "heavy = {'nats', 'aiohttp', 'kubernetes_asyncio', 'headgate.core.fold'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_installed_command_exits_with_the_code() -> None:
    """As a shell sees it."""
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "state", "--hlp"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert (
        done.stderr == "headgate: No such option: --hlp (Possible options: --help, --log) (see headgate state --help)\n"
    )


def test_completion_knows_the_commands() -> None:
    """The shell calls the program itself, without loading any command."""
    done = subprocess.run(
        [sys.executable, "-c", "from headgate.cli.main import main; main()"],
        env={"_HEADGATE_COMPLETE": "complete_bash", "COMP_WORDS": "headgate e", "COMP_CWORD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["explain", "events"]


# --- finding a cell ------------------------------------------------------------------------------------------------


def a_cell(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True)
    cell.write(directory, cell.CellInfo(cell=name, nats_url="nats://127.0.0.1:1"))
    return directory


def test_the_only_cell_there_is_is_found_by_itself(tmp_path: Path) -> None:
    """From the working directory, from its own directory, from the one above."""
    data = a_cell(tmp_path / ".headgate" / "main", "main")
    for where in (None, data, tmp_path / ".headgate"):
        assert cell.find(where).data.resolve() == data.resolve()


def test_of_several_cells_the_running_one_is_meant(tmp_path: Path) -> None:
    """A lock says which runs; with none running the question is put back."""
    a_cell(tmp_path / ".headgate" / "one", "one")
    data = a_cell(tmp_path / ".headgate" / "two", "two")
    with pytest.raises(CliError, match=r"several cells found .* choose one with --cell or --data"):
        cell.find()
    lock = cell.DataLock(data)
    lock.take()
    try:
        assert cell.find().info.cell == "two"
        assert cell.find(cell="one").info.cell == "one"
    finally:
        lock.release()


def test_a_directory_belongs_to_one_at_a_time(tmp_path: Path) -> None:
    """The second one gets the holder's name; when the first is gone it starts."""
    first, second = cell.DataLock(tmp_path), cell.DataLock(tmp_path)
    first.take()
    with pytest.raises(CliError, match=r"runs already \(process \d+\)"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_disk_that_was_full_has_room_again_once(tmp_path: Path) -> None:
    """Reported when it is full and when it no longer is; a little room does not count yet."""
    free = iter([ROOM_BYTES, FULL_BYTES - 1, 0, FULL_BYTES, ROOM_BYTES - 1, ROOM_BYTES, ROOM_BYTES, 0, ROOM_BYTES])
    news: list[str] = []
    disk = DiskWatch(tmp_path, news.append, lambda _: next(free))
    assert [disk.look() for _ in range(9)] == [False, False, False, False, False, True, False, False, True]
    assert ["is full:" in text for text in news] == [True, False, True, False]
