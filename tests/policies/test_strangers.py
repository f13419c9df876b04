"""Files of somebody who means harm: nothing in them runs, is written, or takes for ever."""

import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.policies import load
from midstride.policies.archive import Archive
from midstride.policies.torch_file import StateDict
from tests.policies.test_sb3 import FIXTURES, changed, data_with

MIB = 2**20


class Payload:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that must not be there afterwards, nor any other beside those that we made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    path = tmp_path / "canary"
    pickle.loads(pickle.dumps(Payload(path)))
    assert path.exists()  # it would sing
    path.unlink()
    yield path
    assert not path.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["made"]


def torch_file(table, order=b"little", **storages):
    """A file as torch.save writes it, with any pickle as its table."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", table)
        archive.writestr("archive/byteorder", order)
        for name, content in storages.items():
            archive.writestr(f"archive/data/{name.strip('_')}", content)
    return file.getvalue()


def protocols(thing):
    return [pickle.dumps(thing, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


def test_a_pickle_in_the_weights_does_not_run(canary):
    for table in protocols({"actor.mu.weight": Payload(canary)}):
        for policy in (torch_file(table), table):
            with pytest.raises(ValueError, match="cannot be read as a policy"):
                load(changed(canary.parent / "made" / "evil.zip", policy=policy))


def test_pickles_in_other_members_do_not_run(canary):
    """They are not even read: the policy acts."""
    import base64

    for table in protocols(Payload(canary)):
        text = base64.b64encode(table).decode()
        names = ("policy_class__:serialized:", "action_space__:serialized:",
                 "observation_space__:serialized:", "lr_schedule__:serialized:")  # fmt: skip
        path = changed(
            canary.parent / "made" / "evil.zip",
            data=data_with(**dict.fromkeys(names, text)),
            **{"pytorch_variables.pth": table, "actor.optimizer.pth": torch_file(table)},
        )
        assert load(path)(np.zeros(3)).shape == (2,)


def test_names_that_lead_elsewhere_are_not_followed(canary):
    outside = {"../canary": b"x", "/tmp/canary": b"x", "..\\canary": b"x", str(canary): b"x"}
    path = changed(canary.parent / "made" / "evil.zip", **outside)
    assert load(path)(np.zeros(3)).shape == (2,)


@pytest.mark.parametrize(
    "functions",
    [
        b"cposix\nsystem\n", b"cbuiltins\neval\n", b"cbuiltins\nexec\n", b"cos\nsystem\n",
        b"ctorch\nload\n", b"ctorch.hub\nload\n", b"ctorch._utils\n_rebuild_tensor_v2.__call__\n",
        b"ctorch.storage\nFloatStorage\n", b"ctorch._utils\n_rebuild_sparse_tensor\n",
    ],
)  # fmt: skip
def test_functions_that_a_state_dict_has_no_need_of(functions):
    for end in (b")R.", b"(X\x04\x00\x00\x00true0tR."):
        with pytest.raises(ValueError, match=r"which a state dict has no need of") as caught:
            StateDict(torch_file(b"\x80\x02" + functions + end))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        b"", b"\x80\x02", b".", b"\x80\x02.", b"\x80\x02t.", b"\x80\x02}s.", b"\x80\x02}u.",
        b"\x80\x02(u.", b"\x80\x02R.", b"\x80\x02Q.", b"\x80\x02b.", b"\x80\x02h\x05.",
        b"\x80\x02K\x01.", b"\x80\x02K\x01K\x02\x87.", b"\x80\x02}K\x01K\x02s.",
        b"\x80\x02}X\xff\xff\xff\xff", b"\x80\x02\x96" + b"\xff" * 8 + b".",  # giant strings
        b"\x80\x02}r\xff\xff\xff\x7f" + b"j\xff\xff\xff\x7e.",  # a giant number of a memo
        b"\x80\x02i" + b"os\nsystem\n.", b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b".",
    ],
)  # fmt: skip
def test_tables_that_are_no_tables(table):
    with pytest.raises(ValueError, match=r".") as caught:
        StateDict(torch_file(table))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_name_that_takes_for_ever_to_hash():
    """Tuples of themselves, 200 deep: their hash would need 2 ** 200 steps."""
    nested = b"K\x01" + b"".join(b"q%ch%c\x86" % (k, k) for k in range(200))
    with pytest.raises(ValueError, match="something else than names and tensors"):
        StateDict(torch_file(b"\x80\x02}" + nested + b"K\x01s."))


def a_tensor(items, offset, shape, stride, key="0", kind="FloatStorage"):
    """The table of one tensor, w."""

    def whole(n):
        return b"\x8a\x08" + struct.pack("<q", n)

    def text(words):
        return b"X" + struct.pack("<I", len(words)) + words.encode()

    def row(numbers):
        return b"(" + b"".join(map(whole, numbers)) + b"t"

    storage = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu")
    return (
        b"\x80\x02}" + text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + whole(items)
        + b"tQ" + whole(offset) + row(shape) + row(stride) + b"\x89ccollections\nOrderedDict\n)Rt"
        + b"Rs."
    )  # fmt: skip


def test_a_tensor_is_read():
    table = a_tensor(6, 1, (2, 2), (2, 1))
    found = StateDict(torch_file(table, _0=np.arange(6, dtype="<f4").tobytes())).array("w")
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "tensor",
    [
        (6, 0, (10**6, 10**6), (0, 0)),  # a giant made of one number
        (6, 0, (7,), (0,)),
        (6, 0, (3,), (3,)),  # beyond the end
        (6, 6, (1,), (1,)),
        (6, 0, (1,), (2**39,), "missing"),
        (2**39, 0, (2**38,), (1,)),  # numbers that are not there
        (6, -1, (2,), (1,)),  # before the beginning
        (6, 0, (-2, -3), (1, 1)),
        (6, 0, (2, 3), (1,)),
        (6, 0, (2,), (-1,)),
        (6, 0, (0,), (1,)),
        (5, 0, (5,), (1,)),
        (6, 0, (6,), (1,), "../../canary"),
        (6, 0, (6,), (1,), "0", "QInt8Storage"),
        (6, 0, (6,), (1,), "1"),  # not finite
    ],
)
def test_tensors_that_are_not_there(tensor):
    numbers = np.arange(6, dtype="<f4").tobytes()
    content = torch_file(a_tensor(*tensor), _0=numbers, _1=np.full(6, np.nan, "<f4").tobytes())
    with pytest.raises(ValueError, match=r".") as caught:
        StateDict(content).array("w")
    assert "\n" not in str(caught.value)


def test_numbers_with_the_large_end_first():
    with pytest.raises(ValueError, match="large end first"):
        StateDict(torch_file(a_tensor(1, 0, (1,), (1,)), order=b"big"))


def test_a_torchscript_program_in_place_of_weights_does_not_run(tmp_path):
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/constants.pkl", b"\x80\x02).")
    with pytest.raises(ValueError, match="it is a TorchScript program"):
        load(changed(tmp_path / "evil.zip", policy=file.getvalue()))


# --- Bombs ---------------------------------------------------------------------------------------


def bomb(mib, name):
    """Zeros, packed a thousand times smaller."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        for _ in range(mib):
            member.write(bytes(MIB))
    return file.getvalue()


def test_a_bomb_is_not_unpacked(tmp_path):
    content = bomb(65, "data")
    assert len(content) < MIB
    (tmp_path / "bomb.zip").write_bytes(content)
    archive = Archive(content)
    with pytest.raises(ValueError, match="its data is larger than 64 MiB"):
        archive.read("data", 64 * MIB)


def test_a_bomb_that_says_that_it_is_small():
    content = bytearray(bomb(8, "data"))
    at = content.rfind(b"PK\x01\x02")
    struct.pack_into("<I", content, at + 24, 100)  # the unpacked size, in the table of contents
    with pytest.raises(ValueError, match=r"its data is (damaged|larger)"):
        Archive(bytes(content)).read("data", MIB)


def test_a_bomb_inside_the_weights():
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2 * MIB))
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        StateDict(file.getvalue())


def test_a_table_of_contents_that_is_very_long():
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for k in range(20_000):
            archive.writestr(f"{k:050d}", b"")
    with pytest.raises(ValueError, match="no readable zip file"):
        Archive(file.getvalue())


def test_two_members_of_one_name():
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("data", b"{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("data", b"[]")
    with pytest.raises(ValueError, match="same name"):
        Archive(file.getvalue())


def test_a_password(tmp_path):
    content = bytearray((FIXTURES / "sac.zip").read_bytes())
    with zipfile.ZipFile(FIXTURES / "sac.zip") as archive:
        at = archive.start_dir
    content[at + 8] |= 1  # the flag of encryption, of data
    (tmp_path / "locked.zip").write_bytes(content)
    with pytest.raises(ValueError, match="its data is damaged"):
        load(tmp_path / "locked.zip")


def test_what_is_no_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.zip")  # to open it would wait for ever
    with pytest.raises(ValueError, match="it is no regular file"):
        load(tmp_path / "pipe.zip")
    (tmp_path / "loop.zip").symlink_to(tmp_path / "loop.zip")
    with pytest.raises(ValueError, match="there is no"):
        load(tmp_path / "loop.zip")
    (tmp_path / "empty.zip").write_bytes(b"")
    with pytest.raises(ValueError, match="no readable zip file"):
        load(tmp_path / "empty.zip")


SPECIMENS = {name: (FIXTURES / f"{name}.zip").read_bytes() for name in ("ppo", "sac", "dqn")}


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(SPECIMENS)),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    kept=st.floats(0, 1),
    cut=st.booleans(),
)
def test_damaged_zips_are_read_or_refused_in_one_sentence(
    tmp_path_factory, name, changes, kept, cut
):
    content = bytearray(SPECIMENS[name])
    for where, value in changes:
        content[int(where * len(content))] = value
    path = tmp_path_factory.mktemp("damaged") / "policy.zip"
    path.write_bytes(content[: int(kept * len(content))] if cut else content)
    assert_read_or_refused(path)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(SPECIMENS)),
    member=st.sampled_from(["data", "policy.pth", "data.pkl"]),
    where=st.floats(0, 1, exclude_max=True),
    put=st.binary(max_size=12),
    skipped=st.integers(0, 12),
)
def test_damage_behind_a_right_checksum(tmp_path_factory, name, member, where, put, skipped):
    """What a zip's own checksum cannot find, because it was made after the damage."""

    def damaged(content):
        at = int(where * len(content))
        return content[:at] + put + content[at + skipped :]

    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        content = archive.read("policy.pth" if member == "data.pkl" else member)
    if member == "data.pkl":
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            members = {each: inner.read(each) for each in inner.namelist()}
        members["archive/data.pkl"] = damaged(members["archive/data.pkl"])
        with zipfile.ZipFile(file := io.BytesIO(), "w") as inner:
            for each, value in members.items():
                inner.writestr(each, value)
        member, content = "policy.pth", file.getvalue()
    else:
        content = damaged(content)
    path = tmp_path_factory.mktemp("damaged") / "policy.zip"
    assert_read_or_refused(changed(path, name, **{member: content}))


def assert_read_or_refused(path):
    try:
        policy = load(path)
    except ValueError as error:
        sentence = str(error)
    else:
        sentence = ""
        assert np.isfinite(policy(np.zeros((2, 3)))).all()
    assert "\n" not in sentence
    assert len(sentence) < 600
