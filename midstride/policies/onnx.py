"""Policies in ONNX files. ONNX Runtime computes them; a file brings no code of its own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.extras import missing
from midstride.policies.archive import LARGEST_FILE, first_line

_DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_LONGEST_TRIAL_S = 20.0


class OnnxPolicy:
    """A network with one input, the observation; its first output is the action, or tells it.

    What the numbers of the output mean depends on the actions of an environment: see `fit`.
    """

    def __init__(self, session: Any, path: Path) -> None:
        (given,) = session.get_inputs()
        self.description: dict[str, Any] = {"kind": "onnx", "action": {"kind": "outputs"}}
        self._session, self._path = session, path
        self._name, self._dtype = given.name, _DTYPES[given.type]
        self._output = session.get_outputs()[0].name
        self._rank = len(given.shape)
        # A first axis of fixed length 1, or none, takes one observation at a time.
        self._by_rows = self._rank == 1 or given.shape[0] == 1
        columns = given.shape[-1]
        self.observation_size = columns if isinstance(columns, int) else None

    def __reduce__(self) -> Any:
        """Another process reads the file itself."""
        return read_onnx, (self._path,)

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """There is nothing to forget."""

    def __call__(self, observation: Any) -> NDArray[Any]:
        """The first output for an observation, or a row of it for each of a batch (n, columns)."""
        given = np.asarray(observation, self._dtype)
        if given.ndim not in (1, 2) or self.observation_size not in (None, given.shape[-1]):
            raise ValueError(
                f"this policy observes {self.observation_size} columns, got shape {given.shape}"
            )
        rows = np.atleast_2d(given)
        if not self._by_rows:
            found = self._run(rows)
        elif self._rank == 1:
            found = np.stack([self._run(row) for row in rows])
        else:
            found = np.concatenate([np.atleast_1d(self._run(row[None])) for row in rows])
        return found[0] if given.ndim == 1 else found

    def _run(self, given: NDArray[Any], options: Any = None) -> NDArray[Any]:
        try:
            (found,) = self._session.run([self._output], {self._name: given}, options)
        except Exception as error:  # the runtime's errors have no common public class
            raise ValueError(f"the ONNX policy cannot act: {first_line(error)}") from None
        return np.asarray(found)

    def try_once(self, runtime: Any) -> None:
        """Act on zeros; a file that takes for ever is stopped."""
        options = runtime.RunOptions()
        stop = threading.Timer(_LONGEST_TRIAL_S, setattr, (options, "terminate", True))
        stop.daemon = True
        stop.start()
        columns = self.observation_size or 1
        zeros = np.zeros((1, columns)[-self._rank :], self._dtype)
        try:
            if self.observation_size is not None:
                self._run(zeros, options)
        finally:
            stop.cancel()


def read_onnx(path: Path) -> OnnxPolicy:
    """The policy in an ONNX file; it thinks on one thread."""
    try:
        import onnxruntime as runtime
    except ModuleNotFoundError:
        raise missing(f"reading {path}", "onnxruntime") from None

    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"it is no file of at most {LARGEST_FILE // 2**20} MiB")
        policy = OnnxPolicy(_session(runtime, path), path.absolute())
        policy.try_once(runtime)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as an ONNX policy: {error}") from None
    return policy


def _session(runtime: Any, path: Path) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its errors come to us as exceptions
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no common public class
        raise ValueError(first_line(error)) from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(given.name for given in inputs)[:200]
        raise ValueError(
            f"it has {len(inputs)} inputs ({names}), a policy has one, the observation; a "
            "recurrent one is a module:callable that keeps its state"
        )
    if inputs[0].type not in _DTYPES or len(inputs[0].shape) not in (1, 2):
        raise ValueError(
            f"its input is a {inputs[0].type} of shape {inputs[0].shape}, not rows of numbers"
        )
    first = inputs[0].shape[0]
    if len(inputs[0].shape) == 2 and isinstance(first, int) and first != 1:
        raise ValueError(
            f"it takes batches of {first} only: export it with a batch axis that is free"
        )
    return session
