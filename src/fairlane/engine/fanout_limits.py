"""Fan-out limits (job matrix): checked before the cells are built."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fairlane.errors import InvalidInput

MAX_CELL_VALUE_CHARACTERS = 16 << 20
"""Characters of the values in all cells of one matrix. Each cell has its own copy of its values."""

Axes = Mapping[str, Sequence[str]]


def cells_of(axes: Axes) -> int:
    """The number of combinations; 0 for an empty matrix."""
    return math.prod(map(len, axes.values())) if axes else 0


def check_matrix(axes: Axes, most: int) -> None:
    """Raises InvalidInput for a matrix that is empty or too large."""
    cells = cells_of(axes)
    if not 1 <= cells <= most:
        raise InvalidInput(
            f"a matrix has 1 to {most} combinations, this one {cells}; "
            "use shorter lists, or split it into several jobs"
        )
    characters = sum(cells // len(values) * sum(map(len, values)) for values in axes.values())
    if characters > MAX_CELL_VALUE_CHARACTERS:
        raise InvalidInput(
            f"the values in the cells of a matrix have at most {MAX_CELL_VALUE_CHARACTERS} "
            f"characters together, this one {characters}; move long text to the input, "
            "or split the matrix into several jobs"
        )


class CellBudget:
    """How many cells the jobs of one batch may have together."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, axes: Axes) -> None:
        """Raises InvalidInput if this matrix has more cells than are left."""
        cells = cells_of(axes)
        if cells > self._left:
            raise InvalidInput(
                f"the jobs of one batch have at most {self._most} combinations together, and "
                f"{self._left} are left for this one; send it in another request"
            )
        self._left -= cells
