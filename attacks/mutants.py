"""How files are mutated: in their bytes, and in their structure."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors

from attacks.specimens import Specimen
from midstride.disk.tensors import sealed

Generator = np.random.Generator
CANARY = "canary_module"
SECRET = "root:x:0:0:root"  # how /etc/passwd begins
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 1e300, -1e300, 0.5, float("nan"),
    float("inf"), "", " ", "x", "25ms", "-5ms", "1e9", "nan", "\0", "\u2028", "a\nb", "é" * 50,
    "x" * 5000, [], {}, [[]], [{}], [0], [1, 2], ["a"], {"a": 1}, [1e300, -1e300], [[1], [2, 3]],
    f"gym:{CANARY}:X-v0", f"gym:{CANARY}:", "gym:CartPole-v1", "gym:Nope-v0", "dmc:walker/fly",
    "dmc:a/b", "cartpole", "pointmass", "grasp", "pendulum", "dqn", "drqn", "qtopt", "cem", "q",
    "trace:/etc/passwd", "trace:/etc/passwd,up", "trace:../../../../etc/passwd,up", "trace:.",
    "trace:/dev/zero", "trace:/dev/stdin,up", "lost:0.1:trace:/etc/passwd", "replay:", "trace:",
    "replay:1ms,up", "replay:nan,up", "lost:0.5:" * 3000, "episode:", "episode:0,25ms", "step:1",
    "concurrent", "blocking", "vector_to_go", "state", "image", "done", "failed",
)  # fmt: skip
TOKENS = (
    b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"9" * 5000, b"\0", b"\xff", b"inf",
    b"\xef\xbb\xbf", b"[" * 2000, b'{"a":' * 2000, b"null", b"true", b"[]", b"{}", b'"', b"\\",
    b"\\ud800", b"\n", b"\r", b",", b":", b"=", b"-", b"nan", b"0x" + b"f" * 6000, b"1979-05-27",
    b"'''", b'"""', b"[[a]]", f'"gym:{CANARY}:X-v0"'.encode(), b'"trace:/etc/passwd"',
    b"{choices=[]}", b"{low=0,high=1}", b"{low=-1e308,high=1e308}", b"\xe2\x80\xa8",
    b"{low=1,high=1e300,integer=true}", b"a." * 500 + b"b=1",
)  # fmt: skip


def mutant(one: Specimen, rng: Generator) -> tuple[bytes, bool]:
    """A mutated content of a specimen's file, and whether checksums are to be made right again."""
    before = one.content
    kind = int(rng.integers(3))
    if kind == 0:
        return in_bytes(before, rng), False
    if one.format == "json":
        return in_json(before, rng), kind == 1
    if one.format == "lines":
        lines = before.split(b"\n")
        at = int(rng.integers(len(lines) - 1))
        lines[at] = in_json(lines[at], rng)
        return b"\n".join(lines), False
    if one.format == "tensors":
        return in_tensors(before, rng), False
    return in_text(before, rng), False


# --- Bytes ---------------------------------------------------------------------------------------


def in_bytes(before: bytes, rng: Generator) -> bytes:
    """Flip bits, cut, insert, repeat, or swap; once, or a few times."""
    data = bytearray(before)
    for _ in range(1 if rng.random() < 0.7 else int(rng.integers(2, 6))):
        start, stop = sorted(rng.integers(len(data) + 1, size=2).tolist())
        match int(rng.integers(7)):
            case 0 if data:
                at = int(rng.integers(len(data)))
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                del data[start:]
            case 2:
                del data[start : min(stop, start + 20)]
            case 3:
                data[start:start] = rng.bytes(int(rng.integers(1, 9)))
            case 4:
                data[start:start] = TOKENS[int(rng.integers(len(TOKENS)))]
            case 5:
                data[start : start + int(rng.integers(12))] = TOKENS[int(rng.integers(len(TOKENS)))]
            case _:
                data[start:start] = data[start : min(stop, start + 200)]
    return bytes(data)


# --- JSON ----------------------------------------------------------------------------------------


def in_json(before: bytes, rng: Generator) -> bytes:
    """Other values, other names, names left out, doubled or too many."""
    tree = json.loads(before)
    for _ in range(1 if rng.random() < 0.7 else int(rng.integers(2, 4))):
        tree = _mutated(tree, rng)
    text = json.dumps(tree)
    if rng.random() < 0.05:  # the first name twice
        text = re.sub(r'("[^"]+": )', r"\1null, \1", text, count=1)
    return text.encode()


def _mutated(tree: Any, rng: Generator) -> Any:
    """The tree with one node changed, chosen evenly among all."""
    holders = [(holder, key) for holder in _holders(tree) for key in _keys(holder)]
    if not holders or rng.random() < 0.01:
        return VALUES[int(rng.integers(len(VALUES)))]
    holder, key = holders[int(rng.integers(len(holders)))]
    match int(rng.integers(8)):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[str(VALUES[int(rng.integers(len(VALUES)))])] = holder.pop(key)
        case 2:
            other, place = holders[int(rng.integers(len(holders)))]
            holder[key] = json.loads(json.dumps(other[place]))
        case 3:
            holder[key] = [holder[key]]
        case 4 if isinstance(holder[key], (int, float)) and abs(holder[key]) < 1e200:
            scale = float(rng.choice([-1.0, 0.0, 1e-9, 0.5, 2.0, 1e3, 1e9, 1e18]))
            changed = holder[key] * scale
            holder[key] = round(changed) if isinstance(holder[key], int) else changed
        case 5 if isinstance(holder, list):
            holder *= 2
        case _:
            holder[key] = json.loads(json.dumps(VALUES[int(rng.integers(len(VALUES)))]))
    return tree


def _holders(tree: Any) -> list[Any]:
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (dict, list)):
            found.append(node)
            waiting += node.values() if isinstance(node, dict) else node
    return found


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


# --- TOML and CSV --------------------------------------------------------------------------------


def in_text(before: bytes, rng: Generator) -> bytes:
    """Other words in place of words, lines left out, doubled or moved."""
    lines = before.decode().split("\n")
    for _ in range(1 if rng.random() < 0.7 else int(rng.integers(2, 5))):
        at = int(rng.integers(len(lines)))
        match int(rng.integers(6)):
            case 0:
                del lines[at]
                lines = lines or [""]
            case 1:
                lines.insert(at, lines[int(rng.integers(len(lines)))])
            case 2:
                other = int(rng.integers(len(lines)))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                words = [m.span() for m in re.finditer(r'[^\s,=\[\]{}"]+|"[^"]*"', lines[at])]
                if words:
                    start, stop = words[int(rng.integers(len(words)))]
                    lines[at] = lines[at][:start] + _word(rng) + lines[at][stop:]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _word(rng: Generator) -> str:
    if rng.random() < 0.4:
        return TOKENS[int(rng.integers(len(TOKENS)))].decode(errors="ignore")
    value = VALUES[int(rng.integers(len(VALUES)))]
    return json.dumps(value) if rng.random() < 0.7 else str(value)


# --- Tensors -------------------------------------------------------------------------------------


def in_tensors(before: bytes, rng: Generator) -> bytes:
    """Other arrays, other names, other texts, with a checksum that is right."""
    length = int.from_bytes(before[:8], "little")
    about = json.loads(before[8 : 8 + length]).get("__metadata__", {})
    about.pop("sha256", None)
    arrays = load_tensors(before)
    names = sorted(arrays)
    name = names[int(rng.integers(len(names)))]
    array = arrays[name]
    match int(rng.integers(9)):
        case 0:
            del arrays[name]
        case 1:
            arrays[str(VALUES[int(rng.integers(len(VALUES)))])] = arrays.pop(name)
        case 2:
            kinds = (np.float64, np.float16, np.int8, np.int64, np.uint8, np.bool_, np.float32)
            with np.errstate(all="ignore"):
                changed = array.astype(kinds[int(rng.integers(len(kinds)))])
            arrays[name] = np.nan_to_num(changed)
        case 3:
            arrays[name] = array[..., None] if rng.random() < 0.5 else array[None]
        case 4:
            arrays[name] = array.ravel()[: int(rng.integers(array.size + 1))]
        case 5:
            changed = array.ravel().copy()
            if changed.size:
                bad = [np.nan, np.inf, -np.inf, 1e30, -1, 2**31 - 1]
                with np.errstate(all="ignore"):
                    value = np.array(bad[int(rng.integers(len(bad)))]).astype(changed.dtype)
                changed[int(rng.integers(changed.size))] = value
            arrays[name] = changed.reshape(array.shape)
        case 6:
            arrays[name] = arrays[names[int(rng.integers(len(names)))]]
        case 7:
            arrays[name] = np.concatenate([array, array]) if array.ndim else array
        case _:
            about = {
                k: in_json(v.encode(), rng).decode() if v[:1] == "{" else v
                for k, v in about.items()
            }
            if rng.random() < 0.1:
                about = {}
    return sealed(arrays, about)
