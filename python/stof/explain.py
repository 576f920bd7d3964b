"""Which GPU kernels could run an attention, and how long each would take."""

from __future__ import annotations

import ctypes
import inspect
from dataclasses import dataclass
from typing import Any

from ._native import json_of, library, structs
from .arrays import int64_array
from .errors import InvalidArgument, Unsupported
from .values import whole
from .native_plan import FULL_ALIGNMENT
from .planning import Plan, mask_of, plan
from .problem import Problem


@dataclass(frozen=True)
class Candidate:
    """A kernel that can run. predicted_us is the cost model's time of one call in microseconds;
    only_by_name says why it runs only when named, or is empty."""

    kernel: str
    predicted_us: float
    only_by_name: str


@dataclass(frozen=True)
class Infeasible:
    """A kernel that cannot, and why."""

    kernel: str
    reason: str


@dataclass(frozen=True)
class Explanation:
    """Candidates in the cost model's order: the first is what a plan picks. Prints as a table."""

    problem: str
    mask: str
    candidates: tuple[Candidate, ...]
    infeasible: tuple[Infeasible, ...]

    def __str__(self) -> str:
        lines = [f"problem  {self.problem}", f"mask     {self.mask}", ""]
        names = [c.kernel for c in self.candidates] + [c.kernel for c in self.infeasible]
        width = max(map(len, names), default=0)
        for candidate in self.candidates:
            note = f"  only by name: {candidate.only_by_name}" if candidate.only_by_name else ""
            lines.append(f"{candidate.kernel:{width}}  {candidate.predicted_us:10.1f} us{note}")
        for refused in self.infeasible:
            lines.append(f"{refused.kernel:{width}}  infeasible: {refused.reason}")
        return "\n".join(lines)


#: Arguments that plan() has no defaults for.
_REQUIRED = ("batch", "num_heads", "seq_q", "head_dim", "dtype")


def _problem_of(arguments: dict[str, Any]) -> Problem:
    missing = [name for name in _REQUIRED if name not in arguments]
    if missing:
        raise InvalidArgument(
            f"explain: expected {', '.join(f'{name}=' for name in missing)} as plan() takes, got none"
        )
    known = inspect.signature(plan).parameters.keys() - {"mask", "device", "kernel", "others"}
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise InvalidArgument(
            f"explain: expected arguments of plan() other than device and kernel, got "
            f"{', '.join(f'{name}=' for name in unknown)}"
        )
    return Problem.make(**arguments)


def explain(
    mask: Any,
    *,
    compute_capability: int = 90,
    num_sms: int = 132,
    pointer_alignment: int = FULL_ALIGNMENT,
    **problem: Any,
) -> Explanation:
    """What would run for plan(mask, **problem) on a GPU, without needing one; or for a Plan.

    mask: a Plan, a stof.Mask, its text or None. problem: the arguments of plan() but device and
    kernel; none beside a Plan. compute_capability (major * 10 + minor), num_sms: of the GPU, by
    default an H200. pointer_alignment: bytes that divide addresses and strides.

    Raises InvalidArgument naming the argument; Unsupported where no kernel takes the problem at
    all, as with float32, or for a Plan from a boolean tensor on a GPU.
    """
    if isinstance(mask, Plan):
        if problem:
            raise InvalidArgument(
                f"explain: expected a plan alone, got {', '.join(problem)} beside it"
            )
        if mask.mask is None:
            raise Unsupported(
                "explain: a plan from a boolean tensor on a GPU has one kernel; see Plan.facts()"
            )
        described, asked = mask.mask, mask.problem
    else:
        found = mask_of(mask)
        if found is None:
            raise InvalidArgument(
                f"mask: expected a stof.Plan, a stof.Mask, its text or None, got "
                f"{type(mask).__name__}"
            )
        described, asked = found, _problem_of(problem)
    model = structs.GpuModel(
        compute_capability=whole(compute_capability, "compute_capability", bits=32),
        num_sms=whole(num_sms, "num_sms", bits=32),
        alignment=whole(pointer_alignment, "pointer_alignment", bits=32),
    )
    native = asked.native()
    if asked.cu_seqlens_q is not None and asked.cu_seqlens_kv is not None:
        facts = json_of(
            library().stof_explain_varlen_attention,
            ctypes.byref(native),
            described._handle,
            len(asked.cu_seqlens_q) - 1,
            int64_array(asked.cu_seqlens_q),
            int64_array(asked.cu_seqlens_kv),
            ctypes.byref(model),
        )
    else:
        facts = json_of(
            library().stof_explain_attention,
            ctypes.byref(native),
            described._handle,
            ctypes.byref(model),
        )
    return Explanation(
        facts["problem"],
        facts["mask"],
        tuple(Candidate(**candidate) for candidate in facts["candidates"]),
        tuple(Infeasible(**refused) for refused in facts["infeasible"]),
    )


def gpu_info() -> dict[str, Any]:
    """The driver, GPUs, run-time compiler and matrix library of this machine, empty for what is
    missing; "problem" says why no plan for a GPU can be made, or is empty."""
    info: dict[str, Any] = json_of(library().stof_gpu_info)
    return info
