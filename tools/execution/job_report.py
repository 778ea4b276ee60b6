"""What results tell of background jobs, in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.execution.jobs import Job, JobStatus
from tools.execution.report_text import code_and_signal, command_facts

JOB_PROPERTIES: Mapping[str, Any] = {
    "job_id": {"type": "string"},
    "status": {"enum": [status.value for status in JobStatus]},
    "exit_code": {"type": ["integer", "null"]},
    "signal": {"type": ["string", "null"]},
}
"""JSON Schema of what `structured_job` tells."""


def structured_job(job: Job) -> dict[str, Any]:
    """How a job stands, as structured content."""
    code, signal = code_and_signal(job.exit)
    return {"job_id": job.id, "status": job.status.value, "exit_code": code, "signal": signal}


def job_facts(job: Job) -> dict[str, Any]:
    """What programs are told of it."""
    running, spill = job.running, job.running.output.spill
    file = spill.path if spill is not None and spill.kept else None
    pid, total = running.process.pid, running.output.total
    facts = command_facts(running.confined, job.exit, pid=pid, seconds=job.seconds, total=total, file=file)
    return {**facts, "jobId": job.id, "status": job.status.value}


def status_text(job: Job) -> str:
    """A job's status with how its shell ended."""
    if job.exit is None:
        return job.status.value
    ended = f"exit code {job.exit.code}" if job.exit.signal is None else f"signal {job.exit.signal}"
    if job.status is JobStatus.RUNNING:
        return f"running; its shell has ended, {ended}"
    return f"{job.status.value}, {ended}"
