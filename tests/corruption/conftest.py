"""Says at the end of many random damages how many there were of each kind, and what became of them."""

import pytest
from tests.corruption.test_random import COUNTS

MANY = 200


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a kind."""
    if sum(COUNTS.values()) < MANY:
        return
    terminalreporter.section("random damage")
    for kind in dict.fromkeys(kind for kind, _ in COUNTS):
        counts = ", ".join(f"{count} {outcome}" for (each, outcome), count in sorted(COUNTS.items()) if each == kind)
        terminalreporter.write_line(f"{kind:>10}: {counts}")
