"""Wrong input on the command line: one sentence, exit code 2, no traceback."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from midstride.cli import main
from midstride.disk.runs import Run
from midstride.disk.tensors import write_tensors
from midstride.learn.agents import Training


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders to stumble over: a run that has only begun, a damaged one, an empty one."""
    here = tmp_path_factory.mktemp("folders")
    training = Training.of("cartpole", "dqn", latency="50ms")
    Run(here / "begun", training.to_dict(), training.hash).start()
    for name, text in (("damaged", '{"environment": {"task"'), ("foreign", '{"a": 1}')):
        (here / name).mkdir()
        (here / name / "config.json").write_text(text)
    (here / "empty").mkdir()
    for name, text in (("list", "[1, 2]"), ("null", "null"), ("deep", "[" * 100_000)):
        (here / name).mkdir()
        (here / name / "config.json").write_text(text)
    (here / "binary").mkdir()
    (here / "binary" / "config.json").write_bytes(b"\xff\xfe")
    agents = {**training.to_dict(), "hash": "", "agent": {"agent": ["dqn"]}}
    (here / "agents").mkdir()
    (here / "agents" / "config.json").write_text(json.dumps(agents))
    for name, kind in (("cem", "cem"), ("weightless", "q")):
        shutil.copytree(here / "begun", here / name)
        (here / name / "policy.json").write_text(json.dumps({"kind": kind}))
        (here / name / "policy.safetensors").write_bytes(save({"a.weight": np.zeros((3, 3), "f")}))
    for name, text in (("metrics", "[1]\n"), ("stepless", "{}\n")):
        shutil.copytree(here / "begun", here / name)
        (here / name / "metrics.jsonl").write_text(text)
    shutil.copytree(here / "begun", here / "results")
    (here / "results" / "result.json").write_text("null")
    for name, about in (("nameless", "[]"), ("hashless", "{}")):
        shutil.copytree(here / "begun", here / name)
        file = here / name / "checkpoint" / "000000000100.safetensors"
        write_tensors(file, {"a": np.zeros(3)}, {"about": about})
    for name, text in (("swept", "[]"), ("unspecified", '{"name": "x", "swept": []}')):
        (here / name).mkdir()
        (here / name / "sweep.json").write_text(text)
        lines = [f"{arm},{draw},done,1.5" for arm in "ab" for draw in range(3)]
        (here / name / "table.csv").write_text("\n".join(["arm,draw,status,mean_return", *lines]))
    (here / "long.csv").write_text("9" * 200_000)
    shutil.copy(Path(__file__).parents[1] / "policies" / "fixtures" / "sac.zip", here / "sac.zip")
    for ending in ("zip", "onnx", "pkl", "pth", "pt"):
        (here / f"text.{ending}").write_text("text")
    (here / "range.toml").write_text("[common]\ntask = {low = 1, high = 2}\n")
    return here


BAD = {
    # commands and options
    "juggle": "unknown command juggle (known: demo, train,",
    "trian cartpole": "unknown command trian; did you mean train?",
    "train cartpole --latncy 25ms": "has no option --latncy; did you mean --latency?",
    "train cartpole --lat 25ms": "has no option --lat; ",
    "train cartpole --gamma 0.9": "did you mean --gamma-per-s?",
    "train cartpole --lstm-size 8": "train cartpole dqn has no option --lstm-size",
    "train cartpole dqn further": "train cartpole dqn does not take 'further'",
    "train cartpole --latency": "--latency needs a value: a latency such as 25ms",
    "train cartpole --steps --seed 1": "--steps needs a value: a whole number",
    "train cartpole --video=yes": "--video takes no value, got 'yes'",
    "train --steps 100": "train needs a task first",
    "train": "train needs a task first",
    "describe": "describe needs a task first",
    "describe cartpole --steps 100": "describe cartpole has no option --steps",
    "evaluate": "evaluate needs POLICY: folders of finished runs, or policies of others",
    "evaluate {begun} --retry-failed": "evaluate has no option --retry-failed",
    "sweep": "sweep needs SPEC: a TOML file",
    "watch": "watch needs the folder of a finished run, grasp or catch",
    # tasks, agents, and what they take
    "train juggling": "unknown task 'juggling'",
    "train cartpole ppq": "unknown agent 'ppq': choose from dqn, drqn, qtopt",
    "train cartpole qtopt": "our tasks have them with --actions continuous",
    "train gym:Nope-v0": "unknown Gymnasium environment 'Nope-v0'",
    "train dmc:walker": "a task of others is gym:ID or dmc:DOMAIN/TASK, got 'dmc:walker'",
    "train dmc:walker/fly": "walker has the tasks run, stand, walk",
    "train gym:InvertedPendulum-v5 --knowledge vector_to_go": "needs position-controlled actuators",
    "train cartpole --steps many": "steps must be a whole number, got 'many'",
    "train cartpole --steps 1.5": "steps must be a whole number, got '1.5'",
    "train cartpole --steps 1e400": "steps must be a whole number, got '1e400'",
    "train cartpole --steps 123456789012345678901234": "number from 1 to 1e+12, got 12345678901",
    "train cartpole --steps -5": "steps must be a whole number from 1 to 1e+12, got -5",
    "train cartpole --gamma-per-s 2": "gamma_per_s must be a number from 1e-06 to 0.999999, got 2",
    "train cartpole --target both": "target must be one of full_period, concurrent, got 'both'",
    "train cartpole --hidden 16 x": "hidden must be a whole number, got 'x'",
    "train cartpole --hidden 0": "hidden layers need at least 1 unit",
    "train cartpole --seeds 0": "seeds must be a whole number of at least 1",
    "train cartpole --target concurrent": "needs a latency above 0",
    "describe juggling": "unknown task 'juggling'",
    "describe cartpole --actions few": "actions must be a whole number or continuous, got 'few'",
    "describe cartpole --actions 99": "actions must be from 3 to 8",
    "describe cartpole --knowledge magic": "unknown knowledge 'magic'",
    "describe cartpole --stack-actions 9": "stack_actions must be a whole number from 0 to 4",
    "describe grasp --objects 9": "a bin holds 1 to 5 objects, got 9",
    # time
    "train cartpole --latency 7ms": "nearest valid times are 5 ms and 10 ms",
    "train cartpole --latency 25": "did you mean 25ms?",
    "train grasp --latency 100": "did you mean 100ms?",
    "describe cartpole --latency 12s": "as long as an episode of 10 s",
    "describe cartpole --thinker quick": "thinker must be one of pipelined, serial, got 'quick'",
    "describe cartpole --latency lost:25ms": "write lost:0.1:25ms",
    "describe cartpole --latency jitter:5ms,25ms": "must not exceed its mean",
    "train cartpole --latency 75ms --target concurrent": "use target full_period",
    "train cartpole --latency lost:0.1:25ms --target concurrent": "use target full_period",
    "describe cartpole --latency 7ms": "nearest valid times are 5 ms and 10 ms",
    "describe cartpole --latency -5ms": "at least 0 s",
    "describe cartpole --latency nan": "at least 0 s",
    "describe cartpole --latency soon": "'soon' is not a time",
    "describe cartpole --latency trace:none.csv": "cannot read the latency trace",
    "describe cartpole --tick 0": "longer than 0 s",
    "describe cartpole --latency 1e300": "too long to be counted",
    "describe cartpole --period 1e9": "too long to be counted",
    "describe cartpole --tick 1e-9": "too long to be counted",
    "latency --latencies 100ms": "longer than the period of 60 ms",
    "latency --latencies": "at least one latency",
    "latency --seed -1": "seed must be a whole number of at least 0",
    "latency --output /dev/null": "/dev/null",
    "latency --episodes 0": "episodes must be a whole number of at least 2",
    # folders
    "evaluate nowhere": "is not the folder of a run",
    "evaluate {empty}": "is not the folder of a run: config.json is missing",
    "evaluate {damaged}": "config.json is damaged",
    "evaluate {foreign}": "config.json is damaged: it has no environment",
    "evaluate {begun}": "holds no trained policy",
    "evaluate {sac.zip}": "sac.zip does not say what its environment is: give it, --env ID",
    "evaluate {sac.zip} --env": "--env needs a value",
    "evaluate {sac.zip} --env InvertedPendulum-v5": "the policy observes 3 columns, the environ",
    "evaluate {sac.zip} --env NoSuch-v5": "unknown Gymnasium environment 'NoSuch-v5'",
    "evaluate {text.zip} --env InvertedPendulum-v5": "it is no readable zip file",
    "evaluate {text.onnx} --env InvertedPendulum-v5": "cannot be read as an ONNX policy",
    "evaluate {text.pkl} --env InvertedPendulum-v5": "is a pickle, which could run code",
    "evaluate {text.pth} --env InvertedPendulum-v5": "weights without the program that they",
    "evaluate {text.pt} --env InvertedPendulum-v5": "a TorchScript file is a program: if you trust",
    "evaluate this:fly --env InvertedPendulum-v5": "importing a module runs its code",
    "evaluate nowhere:fly --trust --env InvertedPendulum-v5": "No module named 'nowhere'",
    "evaluate nowhere.zip --env InvertedPendulum-v5": "there is no nowhere.zip: give the folder",
    "evaluate {sac.zip} --env InvertedPendulum-v5 --normalize {text.pkl}": "numpy.savez('stats",
    "evaluate {sac.zip} --env InvertedPendulum-v5 --normalize {no.npz}": "it is no regular file",
    "evaluate {begun} --step 20ms": "--step is of an environment that is named: give --env ID",
    "evaluate {sac.zip} --trust=yes": "--trust takes no value, got 'yes'",
    "evaluate {begun} --episodes 0": "episodes must be a whole number of at least 1, got 0",
    "train --resume nowhere": "is not the folder of a run",
    "train cartpole --resume nowhere": "there is no run to go on with in runs/nowhere",
    "train --resume {damaged}": "config.json is damaged",
    "train --resume {foreign}": "config.json is damaged: it has no environment",
    "watch {empty}": "is not the folder of a run",
    "watch grasp --policy scriptd": "unknown policy 'scriptd': choose from scripted, blind, random",
    "watch grasp --policy {begun} --objects 2": "brings its own environment: leave out --objects",
    "watch grasp --objects 9": "a bin holds 1 to 5 objects, got 9",
    "watch grasp --latency 10s": "as long as an episode of 6 s",
    "watch grasp --noise 2": "noise must be a number from 0 to 1, got 2",
    "watch grasp --episodes 0": "episodes must be a whole number of at least 1, got 0",
    "evaluate {list}": "config.json is damaged: it holds no names and values",
    "evaluate {null}": "config.json is damaged: it holds no names and values",
    "evaluate {deep}": "config.json is damaged: lists and tables are more than 32 deep",
    "evaluate {binary}": "config.json is damaged: byte 0 is not text",
    "evaluate {cem}": "cem cannot be read: it has no blocks",
    "evaluate {weightless}": "weightless cannot be read: it does not act: 'head.advantage.weight'",
    "train --resume {list}": "config.json is damaged: it holds no names and values",
    "train --resume {agents}": "unknown agent ['dqn']: choose from",
    "train cartpole --resume {empty}": "there is no run to go on with in",
    "train --resume {begun} --seeds 2": "there is no run to go on with in",
    "report {swept}": "sweep.json is damaged: it holds no names and values",
    "report {unspecified}": "sweep.json is damaged: it has no specification",
    "sweep {range.toml}": "[common]: task: it is drawn from choices, not from a range",
    "describe cartpole --latency trace:{long.csv}": "cannot read the latency trace",
    "describe cartpole --tick 1e-320": "a physics tick must be longer than 0 s",
    "describe gym:a:b:c": "a task of others is gym:ID or dmc:DOMAIN/TASK, got 'gym:a:b:c'",
    "describe gym:.:x": "a task of others is gym:ID or dmc:DOMAIN/TASK, got 'gym:.:x'",
    "describe gym:Ant-v2": "unknown Gymnasium environment 'Ant-v2': The mujoco v2 and v3",
    "sweep nowhere.toml": "neither a specification file nor one of ",
    "report nowhere": "nowhere",
    # many machines
    "train cartpole --collectors 2": "--collectors is for a training on many machines: add --eng",
    "train cartpole --address auto": "--address is for a training on many machines: add --engine",
    "train cartpole drqn --engine ray": "drqn is not spread over machines, qtopt, sac, dqn are",
    "train cartpole dqn --engine ray --updaters 2": "dqn labels where it fits: leave out updaters",
    "train grasp --engine ray --fitters 3": "batch_size is 64: use 2 fitters, or a batch_size of",
    "train grasp --engine ray --seeds 2": "spreads one training over machines: leave out --seeds",
    "train grasp --engine ray --lock-step --updaters 2": "lock_step is of one collector, one upd",
    "train grasp --engine ray --updaters 0": "updaters must be a whole number from 1 to 100000",
    "train grasp --engine ray --updaters 1_000": "at 1 core(s) each need 1002 cores, and there are",
    # experiments
    "reproduce": "reproduce needs an experiment before its options",
    "reproduce tabel1": "unknown experiment tabel1; did you mean table1?",
    "reproduce --seeds 2 table1": "write midstride reproduce table1 ...",
    "reproduce theory --seeds 2": "reproduce theory has no option --seeds",
}  # fmt: skip


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(folders, capsys, command):
    words = [re.sub(r"{(.*)}", lambda found: str(folders / found[1]), w) for w in command.split()]
    with pytest.raises(SystemExit) as end:
        main(words)
    out, err = capsys.readouterr()
    assert end.value.code == 2
    assert not out
    assert BAD[command] in err
    assert err.startswith("midstride: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command", ["train cartpole dqn --name begun --resume", "train --resume begun"]
)
def test_a_folder_that_holds_another_run(folders, capsys, command):
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--runs", str(folders), "--latency", "25ms"])
    _, err = capsys.readouterr()
    assert end.value.code == 2
    assert "holds a run of other settings (latency '50ms' and not '25ms')" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("metrics", "metrics.jsonl is damaged: line 1: it holds no names"),
        ("stepless", "metrics.jsonl is damaged: line 1: it has no steps"),
        ("results", "result.json is damaged: it holds no names and values"),
        ("nameless", "is damaged: it holds no names and values"),
        ("hashless", "is damaged: it has no hash"),
    ],
)
def test_a_run_that_is_damaged_is_not_gone_on_with(folders, capsys, name, message):
    with pytest.raises(SystemExit) as end:
        main(["train", "--resume", str(folders / name)])
    _, err = capsys.readouterr()
    assert end.value.code == 2
    assert message in err
    assert err.count("\n") == 1
