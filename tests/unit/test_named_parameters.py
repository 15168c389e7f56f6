"""Named parameters become PostgreSQL's numbered ones."""

import pytest

from fairlane.ledger.postgres.named_parameters import Statement, table


def test_names_are_numbered_by_their_first_place_and_repeated_ones_keep_their_number() -> None:
    statement = Statement("SELECT :b::text[], :a WHERE x = :b")
    assert statement(a=1, b=2) == ("SELECT $1::text[], $2 WHERE x = $1", 2, 1)


def test_text_in_quotes_is_no_parameter() -> None:
    assert Statement("SELECT tenant || ':u:' || :name").names == ("name",)


@pytest.mark.parametrize("values", [{"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_a_missing_or_unknown_parameter_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="missing or unknown parameters"):
        Statement("SELECT :a, :b")(**values)


def test_rows_fill_a_table_column_by_column() -> None:
    statement = Statement(table("id text, rev bigint"))
    sql = "unnest($1::text[], $2::bigint[]) v (id, rev)"
    assert statement.rows([("x", 1), ("y", 2)]) == (sql, ("x", "y"), (1, 2))


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(TypeError, match="3 values for 2 columns"):
        Statement(table("id text, rev bigint")).rows([("x", 1, 2)])
