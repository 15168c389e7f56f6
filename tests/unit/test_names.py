"""What tiers, services and the rest may be called."""

import pytest

from fairlane.errors import InvalidInput
from fairlane.model.catalog import checked_name


@pytest.mark.parametrize("name", ["image_gen", "a", "A.b-c_9", "x" * 100])
def test_a_name_is_short_and_plain(name: str) -> None:
    assert checked_name("service", name) == name


@pytest.mark.parametrize("name", ["", "x" * 101, "image gen", "image|gen", "bild_ü", "image_gen\n"])
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="a name is"):
        checked_name("service", name)
