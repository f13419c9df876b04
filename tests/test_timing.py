import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.latency import (
    Fixed,
    Jittered,
    Lossy,
    OnScaleOf,
    PerEpisode,
    PerStep,
    Sampled,
    Trace,
    as_latency,
)
from midstride.latency_text import latency_text, parse_latency
from midstride.seconds import finer_tick_s, parse_s, to_ticks
from midstride.timing import Schedule, Timing

PAPER_S = (0.0, 0.005, 0.01, 0.025, 0.05)


def draw(timing: Timing, steps: int, seed: int = 0):
    return timing.episode(np.random.default_rng(seed))(steps)


# --- Seconds and ticks


@given(ticks=st.integers(0, 100_000), tick_us=st.integers(1, 20_000))
def test_every_multiple_of_the_tick_fits(ticks, tick_us):
    tick_s = tick_us * 1e-6
    assert to_ticks(ticks * tick_s, tick_s, "latency") == ticks


@given(ticks=st.integers(0, 1000), share=st.floats(0.001, 0.999))
def test_what_lies_between_two_ticks_is_rejected(ticks, share):
    with pytest.raises(ValueError, match="not a whole number of physics ticks"):
        to_ticks((ticks + share) * 0.005, 0.005, "latency")


def test_long_times_are_checked_as_closely_as_short_ones():
    with pytest.raises(ValueError, match="not a whole number"):
        to_ticks(100_000.09 * 0.005, 0.005, "period")


def test_the_error_names_the_nearest_valid_times():
    with pytest.raises(ValueError, match=r"latency of 7 ms .* nearest valid times are 5 ms and 10"):
        to_ticks(0.007, 0.005, "latency")


@pytest.mark.parametrize("bad", [-0.005, math.nan, math.inf])
def test_negative_and_nan_times_are_rejected(bad):
    for make in (
        lambda: Fixed(bad),
        lambda: PerEpisode((0.0, bad)),
        lambda: Trace((0.0, bad)),
        lambda: Sampled(lambda rng, n: np.zeros(n), 0.0, bad),
        lambda: Timing(Fixed(0.0), period_s=bad),
        lambda: Timing(Fixed(0.0), execution_s=bad),
        lambda: Timing(Fixed(0.0), period_s=0.05, tick_s=bad),
    ):
        with pytest.raises(ValueError, match="must be a finite time of at least 0 s"):
            make()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("25ms", 0.025), ("0.025", 0.025), ("0.5s", 0.5), ("500us", 5e-4), (" 2 s ", 2.0), ("0", 0)],
)
def test_times_on_the_command_line(text, seconds):
    assert parse_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "5 minutes", "1e", "--3"])
def test_what_is_not_a_time(text):
    with pytest.raises(ValueError, match="is not a time"):
        parse_s(text)


# --- Latency models


def test_fixed():
    latency, period, _ = draw(Timing(Fixed(0.025), period_s=0.05), 4)
    assert latency.tolist() == [5, 5, 5, 5]
    assert period.tolist() == [10, 10, 10, 10]


def test_execution_makes_the_period_follow_the_latency():
    latency, period, _ = draw(Timing(PerStep(PAPER_S), execution_s=0.025), 50)
    assert set(latency) == {0, 1, 2, 5, 10}
    assert (period - latency == 5).all()


def test_per_episode_keeps_its_latency_and_reaches_every_choice():
    timing = Timing(PerEpisode(PAPER_S), period_s=0.05)
    episodes = [draw(timing, 20, seed)[0] for seed in range(60)]
    assert all((e == e[0]).all() for e in episodes)
    assert {int(e[0]) for e in episodes} == {0, 1, 2, 5, 10}


def test_probabilities_are_honoured():
    timing = Timing(PerStep((0.0, 0.05), (0.25, 0.75)), period_s=0.05)
    latency, _, _ = draw(timing, 4000)
    # 5 standard deviations of a binomial share
    assert abs((latency == 10).mean() - 0.75) < 5 * math.sqrt(0.25 * 0.75 / 4000)


def test_sampled_is_rounded_up_and_kept_within_its_bounds():
    tape = np.array([-1.0, 0.0, 0.0001, 0.005, 0.0051, 9.0])
    model = Sampled(lambda rng, n: tape[:n], 0.0, 0.02)
    assert draw(Timing(model, period_s=0.05), 6)[0].tolist() == [0, 0, 1, 1, 2, 4]
    nearest = Sampled(lambda rng, n: tape[:n], 0.0, 0.02, rounding="nearest")
    assert draw(Timing(nearest, period_s=0.05), 6)[0].tolist() == [0, 0, 0, 1, 1, 4]


def test_sampled_draws_from_its_distribution():
    model = Sampled(lambda rng, n: rng.lognormal(math.log(0.02), 0.3, n), 0.0, 0.1)
    latency, _, _ = draw(Timing(model, period_s=0.1, tick_s=0.001), 4000)
    assert abs(np.median(latency) - 20) <= 1.5
    assert latency.std() > 3


def test_trace_replays_in_order_and_over_again():
    trace = Trace((0.0, 0.005, 0.01), start="first")
    assert draw(Timing(trace, period_s=0.05), 7)[0].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_trace_goes_on_where_it_was():
    following = Timing(Trace((0.0, 0.005, 0.01), start="first"), period_s=0.05).episode(
        np.random.default_rng(0)
    )
    assert [int(following(1)[0][0]) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_trace_starts_anywhere():
    timing = Timing(Trace((0.0, 0.005, 0.01)), period_s=0.05)
    starts = {int(draw(timing, 1, seed)[0][0]) for seed in range(30)}
    assert starts == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.005\n0.01\n", (0.005, 0.01)),
        ("latency_ms\n5\n10\n", (0.005, 0.01)),
        ("\ufeffLatency_ms\n5\n10\n", (0.005, 0.01)),  # as spreadsheets save it
        ("time,latency_s\n0,0.005\n1,0.01\n\n", (0.005, 0.01)),
    ],
)
def test_trace_from_csv(tmp_path, text, expected):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert Trace.from_csv(path).latencies_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("latency_s\n", "header and no latencies"),
        ("0.005\nslow\n", "row 2 .* has no latency$"),
        ("a,b\n1,2\n", "none is named latency_s or latency_ms$"),
        ("a,latency_s\n1,2\n3\n", "row 3 .* has no latency"),
        ("latency_s\n-0.005\n", "at least 0 s"),
        ("latency_s\nnan\n", "at least 0 s"),
    ],
)
def test_malformed_trace(tmp_path, text, message):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Trace.from_csv(path)


def test_missing_trace(tmp_path):
    with pytest.raises(ValueError, match="cannot read the latency trace"):
        Trace.from_csv(tmp_path / "none.csv")


def test_a_trace_is_not_rounded_unless_told():
    with pytest.raises(ValueError, match="not a whole number of physics ticks"):
        Timing(Trace((0.0123,)), period_s=0.05)
    assert draw(Timing(Trace((0.0123,), rounding="up"), period_s=0.05), 1)[0].tolist() == [3]


@given(seed=st.integers(0, 1000), model=st.sampled_from([PerEpisode, PerStep]))
def test_same_seed_same_latencies(seed, model):
    timing = Timing(model(PAPER_S), period_s=0.05)
    assert (draw(timing, 30, seed)[0] == draw(timing, 30, seed)[0]).all()


def test_different_seeds_differ():
    timing = Timing(PerStep(PAPER_S), period_s=0.05)
    assert (draw(timing, 30, 0)[0] != draw(timing, 30, 1)[0]).any()


# --- Timing


@given(
    latency=st.integers(0, 40),
    other=st.integers(0, 40),
    unit=st.sampled_from(["period", "execution"]),
)
def test_a_period_is_as_given_or_latency_plus_execution(latency, other, unit):
    model = PerStep((latency * 0.005, 0.01))
    valid = other > 0 if unit == "period" else other + min(latency, 2) > 0
    arguments = {f"{unit}_s": other * 0.005}
    if not valid:
        with pytest.raises(ValueError, match="would last 0 s"):
            Timing(model, **arguments)
        return
    ticks, periods, _ = draw(Timing(model, **arguments), 20)
    assert (periods > 0).all()
    if unit == "period":
        assert (periods == other).all()
    else:
        assert (periods - ticks == other).all()


def test_latency_may_fill_the_period():
    latency, period, _ = draw(Timing(Fixed(0.05), period_s=0.05), 1)
    assert latency.tolist() == period.tolist() == [10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"latency": Fixed(0.0), "period_s": 0.0}, "shortest valid period is 5 ms"),
        ({"latency": Fixed(0.0), "period_s": 0.05, "thinker": "fast"}, "pipelined or serial, got"),
        ({"latency": Fixed(0.0), "execution_s": 0.0}, "would last 0 s"),
        ({"latency": PerEpisode((0.0, 0.05)), "execution_s": 0.0}, "would last 0 s"),
        ({"latency": Fixed(0.0)}, "either a period or an execution"),
        ({"latency": Fixed(0.0), "period_s": 1.0, "execution_s": 1.0}, "either a period or"),
        ({"latency": Fixed(0.0), "period_s": 0.012}, "period of 12 ms .* 10 ms and 15 ms"),
        ({"latency": Fixed(0.003), "period_s": 0.05}, "latency of 3 ms .* 0 ms and 5 ms"),
        ({"latency": Fixed(0.0), "period_s": 1.0, "tick_s": 0.0}, "longer than 0 s"),
    ],
)
def test_bad_timing(arguments, message):
    with pytest.raises(ValueError, match=message):
        Timing(**arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PerEpisode(()), "at least one latency"),
        (lambda: Trace(()), "at least one latency"),
        (lambda: PerStep((0.0, 0.1), (0.5,)), "sum to 1, one per latency"),
        (lambda: PerStep((0.0, 0.1), (0.7, 0.7)), "sum to 1, one per latency"),
        (lambda: Sampled(lambda rng, n: np.zeros(n), 0.2, 0.1), "must not exceed"),
        (lambda: Sampled(lambda rng, n: np.zeros(n), 0, 1, "exact"), "rounding='up'"),
        (lambda: PerEpisode(0.01), "sequence of seconds"),  # type: ignore[arg-type]
        (lambda: PerEpisode((True,)), "must be a number of seconds"),
        (lambda: Sampled(0.02, 0, 1), "draw must be a function"),  # type: ignore[arg-type]
        (lambda: Fixed(0.01, "UP"), "rounding must be one of 'exact', 'up', 'nearest'"),  # type: ignore[arg-type]
        (lambda: PerStep((0.01,), rounding="down"), "rounding must be"),  # type: ignore[arg-type]
        (lambda: Trace((0.01,), start="last"), "start must be"),  # type: ignore[arg-type]
        (lambda: Timing(Fixed(1e8), execution_s=0.1), "too long"),
        (lambda: Timing(Trace((1e8,), "up"), execution_s=0.1), "too long"),
        (lambda: as_latency(True), "must be a number of seconds"),
        (lambda: as_latency("25ms"), "must be seconds"),  # type: ignore[arg-type]
        (lambda: as_latency(None), "must be seconds"),  # type: ignore[arg-type]
        (lambda: parse_latency("sometimes:1ms"), "is not a latency"),
        (lambda: parse_latency("step:"), "at least one latency"),
        (lambda: parse_latency("jitter:25ms"), "needs a mean and a spread: write jitter:25ms,10ms"),
        (lambda: parse_latency("jitter:25ms,30ms"), "must not exceed its mean"),
        (lambda: parse_latency("lost:25ms"), "write lost:0.1:25ms"),
        (lambda: parse_latency("lost:some:25ms"), "write lost:0.1:25ms"),
        (lambda: parse_latency("lost:0.1:lost:0.1:25ms"), "loses decisions already"),
        (lambda: parse_latency("lost:1.5:25ms"), "from 0 to 1, got 1.5"),
        (lambda: parse_latency("lost:nan:25ms"), "from 0 to 1, got nan"),
        (lambda: Lossy(0.025, True), "from 0 to 1, got True"),
        (lambda: Lossy(0.025, "0.1"), "from 0 to 1, got '0.1'"),  # type: ignore[arg-type]
        (lambda: Jittered(0.025, 0.01, "exact"), "rounding='up'"),
    ],
)
def test_bad_latency_models(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_latency_on_the_command_line(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("0.0123\n")
    assert parse_latency("25ms") == Fixed(0.025)
    assert parse_latency("episode:0,5ms") == PerEpisode((0.0, 0.005))
    assert parse_latency("step:0,5ms") == PerStep((0.0, 0.005))
    assert parse_latency(f"trace:{path}") == Trace((0.0123,)) == Trace.from_csv(path)
    assert parse_latency(f"trace:{path},exact") == Trace((0.0123,), rounding="exact")
    assert parse_latency(f"trace:{path},up") == Trace((0.0123,), rounding="up")
    assert parse_latency(f"trace:{path},nearest") == Trace((0.0123,), rounding="nearest")
    odd = tmp_path / "arm,left.csv"
    odd.write_text("0.01\n")
    assert parse_latency(f"trace:{odd}") == Trace((0.01,))
    assert parse_latency(f"trace:{odd},up") == Trace((0.01,), rounding="up")
    with pytest.raises(ValueError, match=r"'down' is no rounding: write .*csv,up or .*csv,nearest"):
        parse_latency(f"trace:{path},down")


def test_a_trace_that_does_not_fit_is_refused_with_the_remedy(tmp_path):
    """The same rule on the command line and in Python, and the remedy is accepted."""
    path = tmp_path / "trace.csv"
    path.write_text("0.0123\n")
    for trace in (parse_latency(f"trace:{path}"), Trace.from_csv(path)):
        with pytest.raises(ValueError, match=r"rounding='up' or 'nearest', .*csv,up or .*nearest"):
            Timing(trace, period_s=0.05)
    for rounding, ticks in (("up", 3), ("nearest", 2)):
        timing = Timing(parse_latency(f"trace:{path},{rounding}"), period_s=0.05)
        assert draw(timing, 1)[0].tolist() == [ticks]


# --- What errors recommend


def error_of(**arguments):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Timing(**arguments)
    return str(caught.value)


def recommended_s(message):
    """The times that an error names as valid, read as a user would type them."""
    said = message.rpartition(": ")[2]
    return [parse_s(text) for text in re.findall(r"\d[-+.0-9e]* ?(?:ms|s)\b", said)]


def test_an_error_names_no_time_that_the_next_one_refuses():
    message = error_of(latency=Fixed(0.035), period_s=0.02, tick_s=0.002)
    assert recommended_s(message) == pytest.approx([0.034, 0.036])
    assert recommended_s(error_of(latency=Fixed(0.0), period_s=0.003)) == [0.005]
    assert recommended_s(error_of(latency=Fixed(0.02), period_s=0.012)) == [0.01, 0.015]
    assert recommended_s(error_of(latency=Fixed(0.003), execution_s=0.0)) == [0.005]
    assert recommended_s(error_of(latency=Fixed(0.0), execution_s=0.003)) == [0.005]


@settings(max_examples=500)
@given(
    tick_us=st.one_of(st.integers(1, 20_000), st.fractions(1, 20_000, max_denominator=7)),
    latency=st.floats(0, 30),
    other=st.floats(0, 30),
    whole=st.sampled_from(["latency", "other", "both", "neither"]),
    unit=st.sampled_from(["period_s", "execution_s"]),
)
def test_every_time_that_an_error_names_is_accepted(tick_us, latency, other, whole, unit):
    """Put in the place of the refused one, what is named brings on no complaint about itself."""
    tick_s = float(tick_us) * 1e-6
    latency = round(latency) if whole in ("latency", "both") else latency
    other = round(other) if whole in ("other", "both") else other
    times = {"latency": latency * tick_s, unit: other * tick_s}

    def complaint(times):
        try:
            Timing(Fixed(times["latency"]), **{unit: times[unit]}, tick_s=tick_s)
        except ValueError as error:
            return str(error)
        return None

    message = complaint(times)
    if message is None:
        return
    subject = "latency" if re.match(r"(a )?latency", message) else unit
    named = recommended_s(message)
    assert named
    for time_s in named:
        following = complaint({**times, subject: time_s})
        if following is not None:  # then it is the other's turn
            other = unit[:-2] if subject == "latency" else "latency"
            assert re.match(rf"(a )?{other} of", following)


@pytest.mark.parametrize(
    ("latency", "asked"),
    [
        (parse_latency("60"), "did you mean 60ms?"),
        (parse_latency("step:0,5,60"), "did you mean 60ms?"),
        (as_latency(75), "did you mean 75ms?"),
        (as_latency(62), None),  # 62 ms would not fit either
    ],
)
def test_a_latency_of_very_many_periods_is_a_mistake(latency, asked):
    message = error_of(latency=latency, period_s=0.05)
    assert "is longer than 1000 periods of 50 ms" in message
    if asked is None:
        assert "did you mean" not in message
        assert recommended_s(message) == [50]
    else:
        assert message.endswith(f": {asked}")


def test_a_finer_tick_for_times_that_do_not_fit():
    assert finer_tick_s((0.005,), 0.01) == 0.005
    assert finer_tick_s((0.005, 0.002), 0.01) == 0.001
    assert finer_tick_s((0.0123,), 0.01) == pytest.approx(0.0001)
    assert finer_tick_s((0.01234567,), 0.01) is None


def test_the_bounds_of_periods_are_those_of_latencies_after_rounding():
    timing = Timing(PerStep((0.01, 0.03)), execution_s=0.02)
    assert timing.shortest_period_ticks == 6
    assert timing.longest_period_s == pytest.approx(0.05)
    sampled = Timing(Sampled(lambda rng, n: np.full(n, 0.012), 0.0, 0.012), period_s=0.05)
    assert sampled.latency_high_s == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("latencies_ms", "thinker", "slots", "shortest", "longest_s"),
    [
        ((0,), "pipelined", 0, 10, 0.05),
        ((50,), "pipelined", 0, 10, 0.05),
        ((55,), "pipelined", 1, 10, 0.05),
        ((100,), "pipelined", 1, 10, 0.05),
        ((5, 125), "pipelined", 2, 10, 0.05),
        ((5, 125), "serial", 0, 10, 0.15),
        ((55, 100), "serial", 0, 20, 0.1),
    ],
)
def test_the_most_that_can_be_pending(latencies_ms, thinker, slots, shortest, longest_s):
    """Period 50 ms. By hand: at a capture, those are pending that were made less than t_AS ago."""
    model = PerStep(tuple(ms / 1000 for ms in latencies_ms))
    timing = Timing(model, period_s=0.05, thinker=thinker)
    assert (timing.pending_slots, timing.most_pending) == (slots, slots + 1)
    assert timing.shortest_period_ticks == shortest
    assert timing.longest_period_s == pytest.approx(longest_s)
    with_execution = Timing(model, execution_s=0.005, thinker=thinker)
    assert with_execution.pending_slots == 0


def test_a_serial_thinker_observes_when_it_is_free():
    timing = Timing(Trace((0.0, 0.05, 0.055, 0.12), start="first"), 0.05, thinker="serial")
    latency, interval, _ = draw(timing, 4)
    assert latency.tolist() == [0, 10, 11, 24]
    assert interval.tolist() == [10, 10, 20, 30]


# --- Lost decisions and jitter


@given(seed=st.integers(0, 1000), model=st.sampled_from([Fixed(0.1), PerStep(PAPER_S)]))
def test_more_is_lost_at_a_larger_share_and_latencies_stay(seed, model):
    few, many, all_of_them = (
        draw(Timing(Lossy(model, share), period_s=0.05), 50, seed) for share in (0.2, 0.6, 1.0)
    )
    assert (few[0] == many[0]).all()
    assert (few[2] <= many[2]).all()
    assert all_of_them[2].all()
    assert not draw(Timing(Lossy(model, 0.0), period_s=0.05), 50, seed)[2].any()


def test_the_share_that_is_lost():
    lost = draw(Timing(Lossy(0.025, 0.3), period_s=0.05), 4000)[2]
    assert abs(lost.mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 4000)
    apart = [draw(Timing(Lossy(0.025, 0.3), period_s=0.05), 50, seed)[2] for seed in (0, 1)]
    assert (apart[0] != apart[1]).any()
    on_scale = Timing(OnScaleOf(Fixed(0.05), Lossy(0.025, 0.3)), period_s=0.05)
    assert draw(on_scale, 50)[2].any()
    assert (on_scale.latency_high_s, on_scale.selection_scale_s) == (0.025, 0.05)


def test_the_scale_is_that_of_training_whatever_it_is_run_at():
    """Rounded as in training; what is run now may fit the tick, or be longer than all of then."""
    trained = Trace((0.012, 0.017), rounding="up")
    for latency in (Fixed(0.02), Jittered(0.06, 0.04), PerStep((0.04, 0.08))):
        timing = Timing(OnScaleOf(trained, latency), period_s=0.05)
        assert timing.selection_scale_ticks == 4
    with pytest.raises(ValueError, match="17 ms is not a whole number"):
        Timing(OnScaleOf(trained, Fixed(0.017)), period_s=0.05)


@given(seed=st.integers(0, 1000))
def test_what_is_lost_does_not_depend_on_how_many_are_asked_for(seed):
    timing = Timing(Lossy(PerStep(PAPER_S), 0.5), period_s=0.05)
    following = timing.episode(np.random.default_rng(seed))
    assert [bool(following(1)[2][0]) for _ in range(20)] == draw(timing, 20, seed)[2].tolist()


@given(spread=st.integers(0, 25), seed=st.integers(0, 100))
def test_jitter_spreads_the_same_draws(spread, seed):
    """Rounded to the nearest tick, so off by half a tick at most."""
    wide = draw(Timing(Jittered(0.025, 0.025), period_s=0.05, tick_s=0.001), 100, seed)[0] - 25
    ours = draw(Timing(Jittered(0.025, spread / 1e3), 0.05, tick_s=0.001), 100, seed)[0] - 25
    assert np.abs(ours - wide * spread / 25).max() <= 0.5 + 0.5 * spread / 25 + 1e-9
    assert wide.min() < -15 < 15 < wide.max()


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("lost:0.1:25ms", Lossy(Fixed(0.025), 0.1)),
        ("lost:0.1:episode:0,25ms", Lossy(PerEpisode((0.0, 0.025)), 0.1)),
        ("lost:1:jitter:25ms,10ms", Lossy(Jittered(0.025, 0.01), 1.0)),
        ("jitter:25ms,10ms", Jittered(0.025, 0.01)),
        ("step:0,100ms", PerStep((0.0, 0.1))),
    ],
)
def test_latencies_as_text_and_back(text, model):
    assert parse_latency(text) == model
    assert parse_latency(latency_text(model)) == model


def test_a_trace_with_lost_decisions_is_rounded_or_refused_as_without(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("0.0123\n0.2\n")
    timing = Timing(parse_latency(f"lost:0.5:trace:{path},up"), period_s=0.05)
    assert set(draw(timing, 50)[0]) == {3, 40}
    assert timing.pending_slots == 3
    with pytest.raises(ValueError, match=r"rounding='up' or 'nearest'"):
        Timing(parse_latency(f"lost:0.5:trace:{path}"), period_s=0.05)


def test_after_the_longest_episode_the_schedule_repeats_its_last_step():
    schedule = Schedule(Timing(Trace((0.01, 0.02), start="first"), period_s=0.05), n=1, steps=2)
    schedule.begin(0, np.random.default_rng(0))
    drawn = []
    for _ in range(4):
        drawn.append(schedule.coming()[0][0])
        schedule.steps += 1
    assert drawn == [2, 4, 4, 4]


@pytest.mark.parametrize("how", ["period_s", "execution_s"])
def test_a_robot_that_holds_executes_for_a_tick_at_least(how):
    with pytest.raises(ValueError, match=r"never move: .* is 5 ?ms"):
        Timing(Fixed(0.1), **{how: 0.0}, mode="hold")
    assert Timing(Fixed(0.1), **{how: 0.005}, mode="hold").shortest_period_ticks == 21
