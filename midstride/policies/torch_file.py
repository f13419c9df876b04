"""State dicts that PyTorch saved, read without PyTorch and without running anything in them.

Such a file is a zip of raw numbers and of a pickle that says which are which. A pickle is a program
that may call any function; ours is never run. A small reader follows the instructions that a state
dict consists of, builds strings, whole numbers, tuples and descriptions of tensors from them, calls
nothing, and stops at any other instruction.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.policies.archive import Archive, first_line

_MIB = 2**20
_LARGEST_PICKLE, LARGEST_TENSOR = _MIB, 256 * _MIB
_DTYPES = {
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
}
_DICT, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"
_CALLED = (_DICT, _TENSOR, _PARAMETER)
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINUNICODE", "SHORT_BINUNICODE")
_MARK = object()


class NotAStateDict(ValueError):
    """A file of PyTorch that holds something else than names and tensors."""


@dataclass(frozen=True)
class _Name:
    """A function or class that the pickle names."""

    name: str


@dataclass(frozen=True)
class Tensor:
    """Where the numbers of a tensor are: all in items, not bytes."""

    storage: str
    kind: str
    items: int  # of the storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class StateDict(Mapping[str, Tensor]):
    """Names and tensors of a state dict; `array` reads the numbers of one."""

    def __init__(self, content: bytes) -> None:
        self._archive = Archive(content)
        tables = [name for name in self._archive.names if name.endswith("/data.pkl")]
        if len(tables) != 1:
            raise NotAStateDict("it is no file of a state dict that torch.save wrote")
        self._folder = tables[0].removesuffix("data.pkl")
        if f"{self._folder}constants.pkl" in self._archive.names:
            raise NotAStateDict("it is a TorchScript program, not a state dict")
        order = f"{self._folder}byteorder"
        if order in self._archive.names and self._archive.read(order, 64) != b"little":
            raise ValueError("its numbers are stored with the large end first")
        self._tensors = _tensors(self._archive.read(tables[0], _LARGEST_PICKLE))

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Any:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def array(self, name: str) -> NDArray[np.float32]:
        """The numbers of a tensor, finite, as float32."""
        tensor = self[name]
        if tensor.kind not in _DTYPES:
            raise ValueError(f"{name} is of {tensor.kind}, which is not read")
        dtype = np.dtype(_DTYPES[tensor.kind])
        size = math.prod(tensor.shape)
        last = tensor.offset + sum(
            (n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True)
        )
        if not 0 < size <= tensor.items or last >= tensor.items:
            raise ValueError(f"{name} has shape {tensor.shape} but not the numbers for it")
        content = self._archive.read(f"{self._folder}data/{tensor.storage}", LARGEST_TENSOR)
        if len(content) != tensor.items * dtype.itemsize:
            raise ValueError(f"{name} has {len(content)} bytes for {tensor.items} numbers")
        flat = np.frombuffer(content, dtype)[tensor.offset :]
        strides = tuple(step * dtype.itemsize for step in tensor.stride)
        found = np.lib.stride_tricks.as_strided(flat, tensor.shape, strides).astype(np.float32)
        if not np.isfinite(found).all():
            raise ValueError(f"{name} has numbers that are not finite")
        return found


def _tensors(pickle: bytes) -> dict[str, Tensor]:
    """Names and descriptions of tensors, from the instructions of a pickle."""
    try:
        found = _followed(pickle)
    except NotAStateDict:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotAStateDict(f"its table of tensors is damaged ({first_line(error)})") from None
    if not isinstance(found, dict):
        raise NotAStateDict("it holds no names and tensors")
    return {
        name: value
        for name, value in found.items()
        if isinstance(name, str) and isinstance(value, Tensor)
    }


def _followed(pickle: bytes) -> Any:
    """What the instructions build; an error for any that a state dict has no need of."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    value: Any
    for opcode, value, _ in pickletools.genops(pickle):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack[-1]
            case "BINPUT" | "LONG_BINPUT":
                memo[value] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[value])
            case "GLOBAL":
                stack.append(_named(value))
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case "NONE":
                stack.append(None)
            case name if name in _NUMBERS:
                stack.append(value)
            case "MARK":
                stack.append(_MARK)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE":
                stack.append(tuple(_since_mark(stack)))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                _fold(stack, int(opcode.name[-1]))
            case "SETITEM":
                _put(stack[-3], stack[-2:])
                del stack[-2:]
            case "SETITEMS":
                items = _since_mark(stack)
                _put(stack[-1], items)
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_built(stack.pop(), arguments))
            case "BUILD":  # versions of the modules, beside the tensors: nothing that we need
                stack.pop()
            case other:
                raise NotAStateDict(f"it has the pickle instruction {other}, which is not followed")
    raise NotAStateDict("its table of tensors has no end")


def _named(value: str) -> _Name:
    module, _, name = value.partition(" ")
    if value not in _CALLED and not (module == "torch" and name.endswith("Storage")):
        named = f"{module}.{name}"[:80]
        raise NotAStateDict(f"it names {named!r}, which a state dict has no need of")
    return _Name(value)


def _since_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise NotAStateDict("its table of tensors is damaged")
    found = stack[at + 1 :]
    del stack[at:]
    return found


def _fold(stack: list[Any], n: int) -> None:
    """The last n values become one tuple."""
    found = tuple(stack[-n:])
    if len(found) != n:
        raise NotAStateDict("its table of tensors is damaged")
    stack[-n:] = [found]


def _put(target: Any, items: list[Any]) -> None:
    """Names and values into a dict. Other keys could take for ever to hash."""
    if not isinstance(target, dict) or not all(isinstance(key, str) for key in items[::2]):
        raise NotAStateDict("it holds something else than names and tensors")
    target.update(zip(items[::2], items[1::2], strict=True))


def _storage(value: Any) -> Tensor:
    """The whole of a storage; 'storage', its kind, its name, its device and its length."""
    word, kind, name, _, items = value
    kind = kind.name.removeprefix("torch ")
    if word != "storage" or not isinstance(name, str) or not _is_count(items):
        raise NotAStateDict("a storage of it is not described as torch.save does")
    return Tensor(name, kind, items, 0, (items,), (1,))


def _built(function: Any, arguments: Any) -> Any:
    """What one of the known functions makes of its arguments."""
    if function == _Name(_DICT) and arguments == ():
        return {}
    if function == _Name(_PARAMETER) and isinstance(arguments[0], Tensor):
        return arguments[0]
    if function != _Name(_TENSOR) or not isinstance(arguments[0], Tensor):
        raise NotAStateDict("it calls something that a state dict has no need of")
    whole, offset, shape, stride = arguments[:4]
    counts = (offset, *shape, *stride)
    if not all(map(_is_count, counts)) or len(shape) != len(stride) or len(shape) > 8:
        raise NotAStateDict("a tensor of it is not described as torch.save does")
    return Tensor(whole.storage, whole.kind, whole.items, offset, shape, stride)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
