"""Quality checks in the SDK: call a function with the output of the checked step."""

from __future__ import annotations

from typing import Any

from fairlane.errors import SetupError
from fairlane.model.quality_check import check_service_name
from fairlane.model.step import RetryTerms
from fairlane.worker.context import TaskFailed
from fairlane.worker.handlers import Function, Handler
from fairlane.worker_protocol.messages import Task

RESULT, PARAMETERS = "result", "parameters"


class QualityCheckHandler(Handler):
    """A function that checks the output of a service. It gets the output as `result` and, if it
    has such an argument, the job's `parameters`."""

    loads_model = False
    """A check must not replace the model that the next task needs."""

    def __init__(self, service: str, function: Function, terms: RetryTerms) -> None:
        super().__init__(check_service_name(service), function, terms=terms)
        self._taken = {RESULT, PARAMETERS} & self.signature.parameters.keys()
        if RESULT not in self._taken:
            raise SetupError(f'the quality check of "{service}" needs an argument "{RESULT}"')

    def parameters(self, task: Task) -> dict[str, Any]:
        if task.checked_step is None:
            message = f"{task.type} is a quality check, and this job has no step before it"
            raise TaskFailed(message, code="invalid_input")
        output = task.context[task.checked_step]["data"]
        given = {RESULT: output, PARAMETERS: task.parameters}
        return {name: value for name, value in given.items() if name in self._taken}

    def output(self, returned: Any) -> Any:
        """A function may also return `(passed, reason)`."""
        if isinstance(returned, tuple) and len(returned) == 2:
            return dict(zip(("passed", "reason"), returned, strict=True))
        return returned
