"""`make lint` names long source files: each may hold two concepts. This is only a warning."""

from __future__ import annotations

from tests.repo.test_files import shown, source_files

MAX_LINES = 400


def main() -> None:
    for path in source_files():
        lines = len(path.read_text("utf-8").splitlines())
        if lines > MAX_LINES:
            print(f"warning: {shown(path)} has {lines} lines; is it one concept?")


if __name__ == "__main__":
    main()
