"""Ray asks for a token, and a cluster that is started here is not to be reached from elsewhere."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from midstride.scale import ray as ours

ASKED = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")


@pytest.fixture
def before_ray(monkeypatch, tmp_path):
    """As in a process that has not imported Ray, of a user without a token."""
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in (*ASKED, "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def test_a_cluster_of_our_own_has_a_token_that_is_written_nowhere(before_ray, tmp_path):
    ours._close_doors(starts=True)
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert not list(tmp_path.iterdir())


def test_what_the_user_says_counts(before_ray, monkeypatch, tmp_path):
    ours._close_doors(starts=False)
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in os.environ  # that of the cluster is not ours to make
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    ours._close_doors(starts=True)
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]) == ("disabled", "mine")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("kept")
    ours._close_doors(starts=True)
    assert "RAY_AUTH_TOKEN" not in os.environ


STARTED = """
import os, subprocess, sys
from midstride.scale.ray import connect
connect(None, workers=1)
import ray
address = ray.get_runtime_context().gcs_address
mark, sockets = os.environ["RAY_AUTH_TOKEN"], set()
for process in filter(str.isdigit, os.listdir("/proc")):
    try:
        if mark in open(f"/proc/{process}/environ").read() or int(process) == os.getpid():
            for number in os.listdir(f"/proc/{process}/fd"):
                sockets.add(os.readlink(f"/proc/{process}/fd/{number}")[8:-1])
    except OSError:
        continue
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
        cells = line.split()
        if cells[3] == "0A" and cells[9] in sockets:
            print("listens", cells[1].partition(":")[0])
reach = f"import ray; ray.init({address!r}); print('inside')"
wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
for others in ({"RAY_AUTH_MODE": "disabled"}, wrong):
    outside = {k: v for k, v in os.environ.items() if k != "RAY_AUTH_TOKEN"} | others
    command = [sys.executable, "-c", reach]
    ended = subprocess.run(command, env=outside, capture_output=True, text=True)
    print("others", ended.returncode, "inside" in ended.stdout)
print("ours", ray.get(ray.remote(lambda: 7).remote()))
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="looks at sockets in /proc")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_a_cluster_of_our_own_is_closed_to_others():
    clean = {name: value for name, value in os.environ.items() if name not in ASKED}
    ended = subprocess.run(
        [sys.executable, "-c", STARTED], env=clean, capture_output=True, text=True, check=True
    )
    lines = ended.stdout.splitlines()
    listens = {line.split()[1] for line in lines if line.startswith("listens")}
    assert listens <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1
    assert listens
    assert [line for line in lines if line.startswith("others")] == ["others 1 False"] * 2
    assert "ours 7" in lines
