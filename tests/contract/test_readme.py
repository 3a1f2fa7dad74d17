"""The list of cases is that of the sources."""

from tests.contract.__main__ import README, text


def test_the_list_of_cases_is_up_to_date():
    """`python -m tests.contract` writes it."""
    assert README.read_text() == text()
