"""The page that lists where a cell ends otherwise than Kueue is what the machines do, and each line has a reason."""

import pytest
from tests.conformance.differences import PAGE, page
from tests.support import conformance

pytestmark = pytest.mark.skipif(not conformance.SCENARIOS.is_dir(), reason="there are no recordings of Kueue")


@pytest.mark.timeout(300)
def test_the_page_of_differences_is_what_the_machines_do() -> None:
    """Scenario by scenario. A difference that no reason explains fails here, too."""
    assert page() == PAGE.read_text(), "write it anew with `python -m tests.conformance.differences`"
