"""The one table of a job's columns fits what is read into it and written from it."""

from fairlane.ledger.job_columns import COLUMNS, READ
from fairlane.ledger.messages import Common
from fairlane.model.job import Job

NAMES = [column.name for column in COLUMNS]


def test_a_column_stands_in_the_table_once() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_every_field_of_a_job_is_read() -> None:
    read = [column.name for column in READ]
    assert {"error_code", "error_message", *Job._fields} - {"error"} == set(read)


def test_everything_that_jobs_have_in_common_is_written_but_their_quota() -> None:
    sources = {column.source or column.name for column in COLUMNS}
    assert set(Common._fields) - sources == {"quota"}
