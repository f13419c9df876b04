"""Table 1 from episodes alone, by hand and by made-up trainings."""

import numpy as np
import pytest

from midstride.paper.table1_report import (
    comparison,
    read_episodes,
    recovered,
    smoothness,
    verdicts,
    write_episodes,
)


def training(share, duration_s, jerk=30.0, completion=0.5, episodes=20):
    won = (np.arange(episodes) < share * episodes).astype(float)
    return {
        "success": won.tolist(),
        "duration_s": [duration_s] * episodes,
        "policy_duration_s": [duration_s] * episodes,
        "completion": [completion] * episodes,
        "completion_until_switch": [completion] * episodes,
        "jerk": [jerk] * episodes,
        "squared_jerk": [jerk**2 * duration_s] * episodes,
    }


def rows(spread=0.0, seeds=8):
    """Blocking 95 %, unaware 70 %, vector-to-go 95 %; `spread` from training to training."""
    rng = np.random.default_rng(0)

    def several(share, duration_s, jerk, completion):
        return [
            training(
                np.clip(share + spread * rng.normal(), 0, 1), duration_s + 0.1 * rng.normal(),
                jerk + 0.1 * rng.normal(), completion + 0.01 * rng.normal(), 200,
            )
            for _ in range(seeds)
        ]  # fmt: skip

    return {
        "2": several(0.95, 7.0, 20, 0.99),
        "4": several(0.7, 4.0, 40, 0.4),
        "5": several(0.95, 3.0, 30, 0.5),
    }


def test_recovering_needs_an_interval_within_the_margin():
    assert recovered("5", rows(spread=0.01)) == "yes"
    assert recovered("4", rows(spread=0.01)) == "no"
    assert recovered("5", rows(spread=0.1)) == "not decided"
    assert recovered("5", rows(spread=0.0, seeds=1)) == "not decided"


def test_success_in_equal_time_beside_equal_decisions():
    line = comparison("2", rows())
    assert line["success within 6 s"].startswith("0.0%")  # all took about 7 s
    assert comparison("5", rows())["success within 6 s"].startswith("95.0%")


def test_smoothness_is_told_whichever_way_it_falls():
    line = next(one for one in smoothness(rows()) if one["row"].startswith("5"))
    assert line["jerk against unaware"].endswith("smoother")
    assert "less" not in line["jerk against unaware"]
    assert line["jerk against blocking"].endswith("less smooth")
    assert line["squared jerk against blocking"].endswith("smoother")  # 30^2 3 s, 20^2 7 s
    assert line["path, m"] == "-"  # was not measured


def test_claims_come_out_as_they_do():
    found = {one.claim: one.so for one in verdicts(rows(spread=0.01))}
    assert found["5: vector-to-go: recovers blocking control's success"] == "reproduced"
    assert found["unaware has less success than blocking control"] == "reproduced"
    assert found["vector-to-go completes more than unaware"] == "reproduced"
    assert found["vector-to-go has less jerk than blocking control"] == "contradicted"
    assert "sketch" in verdicts(rows(seeds=3))[0].line()["so"]
    assert "sketch" not in verdicts(rows())[0].line()["so"]


def test_episodes_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "episodes.csv"
    made = rows(seeds=2)
    for one in (one for group in made.values() for one in group):
        del one["squared_jerk"]  # as in earlier results
    write_episodes(path, made, 10)
    again = read_episodes(path)
    assert [len(group) for group in again.values()] == [2, 2, 2]
    first = again["5"][0]
    assert first["success"] == rows(seeds=2)["5"][0]["success"]
    assert first["squared_jerk"][0] == pytest.approx(first["jerk"][0] ** 2 * first["duration_s"][0])
