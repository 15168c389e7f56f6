"""All tests, on two cores: what needs no server in one process, the stores of a cluster in another.
Further arguments go to a single pytest instead."""

from __future__ import annotations

import subprocess
import sys
import tempfile

PYTEST = (sys.executable, "-m", "pytest", "-q")
ALONE = ("--stores=embedded", "--ignore=tests/cluster", "--ignore=tests/index", "tests")
CLUSTER = ("--stores=cluster", "-p", "no:cacheprovider", "tests/index", "tests/cluster",
           "tests/conformance")  # fmt: skip


def main(further: list[str]) -> int:
    if further:
        return subprocess.call([*PYTEST, *further])
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen([*PYTEST, *CLUSTER], stdout=said, stderr=subprocess.STDOUT) as cluster,
    ):
        try:
            alone = subprocess.call([*PYTEST, *ALONE])
            print("── the same promises on the stores of a cluster ──", flush=True)
            code = cluster.wait()
        finally:
            cluster.terminate()
        said.seek(0)
        sys.stdout.write(said.read().decode(errors="replace"))
    return alone or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
