import pickle
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Cluster, Profile, Stage
from eunomia.contract.stages import DEFAULT_TRIGGERS
from eunomia.errors import InputErrors
from eunomia.platform.layers import NOTHING, merge, parse_setting
from eunomia.platform.profile_resolver import FALLBACK
from eunomia.platform.profiles import preset_keys_left_out
from eunomia.platform.registry import Registry
from eunomia.units import Cause, Scope

CLUSTER = Cluster.parse("2x4 V100 16cpu 64GiB")

STRANGERS = '''
from eunomia import *


class Afs:
    """Needs many sizes, and gives shares."""

    name = "needy"
    api = 1
    contracts = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.MANY_SIZES, Feature.ONE_GPU_TYPE}), gives=frozenset({Feature.GRANTS})
        )
    }

    @hookimpl
    def eunomia_allocation(self, snapshot): ...


class Sharer:
    name = "sharer"
    api = 1
    contracts = {Stage.ALLOCATION: Contract(gives=frozenset({Feature.TIME_SHARES}))}

    @hookimpl
    def eunomia_allocation(self, snapshot): ...


class Rounding:
    name = "whole"
    api = 1
    contracts = {
        Stage.REFINE: Contract(needs=frozenset({Feature.TIME_SHARES}), gives=frozenset({Feature.GRANTS}))
    }

    @hookimpl
    def eunomia_refine(self, allocation): ...


class Pinner:
    name = "pinner"
    api = 1
    contracts = {Stage.ALLOCATION: Contract(gives=frozenset({Feature.GRANTS, Feature.PINNED}))}

    @hookimpl
    def eunomia_allocation(self, snapshot): ...


class Tuned:
    name = "tuned"
    api = 1
    contracts = {
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.CPUS_AND_MEMORY, Feature.EQUAL_MACHINES}))
    }

    @hookimpl
    def eunomia_placement(self, snapshot): ...


class Modest:
    name = "modest"
    api = 1

    @hookimpl
    def eunomia_allocation(self, snapshot): ...


class Watcher:
    name = "watcher"
    api = 1

    def __init__(self):
        self.seen = []

    @hookimpl
    def eunomia_round_finished(self, decision):
        self.seen.append(decision)


class Failing:
    name = "failing"
    api = 1

    def __init__(self):
        raise RuntimeError("no licence")

    @hookimpl
    def eunomia_placement(self, snapshot): ...
'''


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path = tmp_path_factory.mktemp("strangers") / "strangers.py"
    path.write_text(STRANGERS)
    return Registry.find(paths=[path], installed=False)


def write(tmp_path: Path, body: str, name: str = "mixed.toml") -> Path:
    path = tmp_path / name
    path.write_text(dedent(body))
    return path


def errors_of(path: Path | str, registry: Registry | None = None, settings: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(InputErrors) as caught:
        Profile.load(path, registry=registry, settings=settings)
    return [str(error) for error in caught.value.errors]


def test_every_preset_loads_and_creates_its_stages() -> None:
    registry = Registry.find(installed=False)
    presets = registry.presets()
    assert {"default", "demo", "las", "themis"} <= set(presets)
    for name in presets:
        stages = Profile.load(name, registry=registry).stages(CLUSTER)
        assert stages.profile == name
        assert set(stages.names) == set(FALLBACK_STAGES)


FALLBACK_STAGES = (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)


def test_the_themis_preset_has_the_documented_values() -> None:
    profile = Profile.load("themis")
    rounds = profile.rounds
    assert rounds.on == {Cause.FREED, Cause.LEASE_ENDED, Cause.ARRIVED, Cause.CLUSTER_CHANGED}
    assert (rounds.lease, rounds.bid_deadline, rounds.suspend_grace) == (600.0, 2.0, 30.0)
    assert profile.plugins[Stage.ALLOCATION] == "themis"
    assert profile.merged.tree["plugins"]["themis"]["fairness_knob"] == 0.8


def test_the_demo_preset_extends_themis_key_by_key() -> None:
    profile = Profile.load("demo")
    assert profile.merged.tree["plugins"]["themis"]["fairness_knob"] == 0.25
    assert profile.merged.tree["plugins"]["themis"]["slowdown"] == {"machine": 1.0, "rack": 1.1, "cluster": 1.3}
    assert 6.0 <= (profile.rounds.lease or 0.0) <= 10.0


def test_a_single_plugin_serves_its_stages_and_the_default_profile_the_others() -> None:
    profile = Profile.load("spread")
    assert profile.plugins == {
        Stage.ELASTICITY: "fixed",
        Stage.VALUATION: "fifo",
        Stage.ALLOCATION: "ordered",
        Stage.PLACEMENT: "spread",
    }


def test_a_policy_of_two_plugins_names_the_settings_of_their_presets_that_it_omits() -> None:
    registry = Registry.find(installed=False)
    left_out = preset_keys_left_out("las+spread", registry)
    assert left_out.keys() == {"las"}
    assert "plugins.ordered.preemptive" in left_out["las"]
    assert not [key for key in left_out["las"] if key.startswith("stages.") or key == "summary"]
    assert preset_keys_left_out("edf+spread", registry) == preset_keys_left_out("las", registry) == {}


def test_the_built_in_fallback_profile_has_the_expected_stages() -> None:
    profile = Profile.fallback()
    assert {stage.value: name for stage, name in profile.plugins.items()} == FALLBACK
    assert profile.stages(CLUSTER).rounds.lease is None


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    assert errors_of("themsi") == [
        'a policy must be a preset, a profile file or a plugin, but got "themsi"; did you mean "themis"? (--policy)'
    ]
    assert errors_of("nowhere.toml") == ['a profile must be a file that exists, but got "nowhere.toml" (--policy)']


def test_all_errors_of_a_file_are_reported_together_with_rule_value_and_place(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "themis"
        stages.placement = "packd"
        stages.vluation = "fifo"
        rounds.lease = "-5s"
        rounds.on = ["freed", "arived"]
        rounds.when_unprotected = "never"
        rounds.faults_allowed = 0
        plugins.themis.fairness_knob = 1.4
        plugins.themis.fairness = 1
        plugins.themes.fairness_knob = 0.5
        colour = "blue"
        """,
    )
    assert errors_of(path) == [
        "the top of a profile must hold summary, paper, paper_default, stages, rounds, plugins, observers, "
        'but got "colour" (mixed.toml, colour)',
        "on must be a list of arrived, left, freed, lease_ended, cluster_changed, adapted, reported, "
        'but got "arived"; did you mean "arrived"? (mixed.toml, [rounds].on)',
        'lease must be a positive duration with a unit, such as "10m", but got "-5s" (mixed.toml, [rounds].lease)',
        'when_unprotected must be true or false, but got "never" (mixed.toml, [rounds].when_unprotected)',
        "faults_allowed must be a whole number between 1 and 1000, but got 0 (mixed.toml, [rounds].faults_allowed)",
        "[stages] must hold elasticity, valuation, allocation, placement, refiners, "
        'but got "vluation"; did you mean "valuation"? (mixed.toml, [stages].vluation)',
        'options must be of a plugin that is there, but got "themes"; did you mean "themis"? '
        "(mixed.toml, [plugins.themes])",
        "fairness_knob must be between 0 and 1, but got 1.4 (mixed.toml, [plugins.themis].fairness_knob)",
        'an option must be one that the plugin has, but got "fairness"; did you mean "fairness_knob"? '
        "(mixed.toml, [plugins.themis].fairness)",
        'placement must name a plugin that answers placement, but got "packd"; did you mean "packed"? '
        "(mixed.toml, [stages].placement)",
    ]


def test_an_error_in_a_value_of_a_preset_names_the_preset(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "default"\nrounds.lease = "soon"', "base.toml")
    path = write(tmp_path, 'extends = "base.toml"\nrounds.settle = "1s"')
    assert errors_of(path) == [
        'lease must be a positive duration with a unit, such as "10m", but got "soon" (base.toml, [rounds].lease)'
    ]


def test_an_error_in_a_setting_names_its_flag() -> None:
    assert errors_of("default", settings=("rounds.lease=5",)) == [
        'lease must be a positive duration with a unit, such as "10m", but got 5 (--set rounds.lease)'
    ]
    assert errors_of("default", settings=("rounds.lease",)) == [
        'a setting must be written KEY=VALUE, but got "rounds.lease" (--set)'
    ]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('extends = "mixed.toml"', "extends must come to an end"),
        ('extends = "nowhere.toml"', "extends must name a preset or a file"),
        ("extends = 3", "extends must name a preset or a file"),
        ("stages = 3", "stages must be a table"),
        ("[stages\n", "a profile must be TOML"),
        ('stages.elasticity = "fixed"', "valuation must be named in [stages], or extends must name a preset"),
        ('extends = "default"\nstages.refiners = "whole"', "refiners must be a list of plugins"),
        ('extends = "default"\nstages.placement = "fifo"', '"fifo", which answers valuation'),
        ('extends = "default"\nplugins.packed.depth = 3', 'plugin "packed" has no options, but got "depth"'),
        ('extends = "default"\nplugins.packed = 3', "options of a plugin must be a table"),
        ('extends = "default"\nrounds.scope = "some"', 'scope must be "free" or "all"'),
    ],
)
def test_a_bad_profile_is_refused(tmp_path: Path, body: str, error: str) -> None:
    assert error in "\n".join(errors_of(write(tmp_path, body)))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_bytes(b'summary = "\xff\xfe"')
    (error,) = errors_of(path)
    assert error.startswith("a file must be readable text, but got")


def test_two_profiles_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "mixed.toml"', "other.toml")
    (error,) = errors_of(write(tmp_path, 'extends = "other.toml"'))
    assert error.startswith("extends must come to an end")


def test_an_unmet_need_is_refused_with_both_plugins_and_a_remedy(tmp_path: Path, strangers: Registry) -> None:
    path = write(tmp_path, 'extends = "default"\nstages.allocation = "needy"', "afs_fixed.toml")
    (error,) = errors_of(path, strangers)
    assert error.startswith(
        'allocation "needy" needs rates at many sizes, but elasticity "fixed" gives one size a job; take '
    )
    assert error.endswith("(afs_fixed.toml, [stages])")
    Profile.load(path, registry=strangers, settings={"stages.elasticity": "range"})


def test_shares_without_a_refiner_are_refused_and_a_refiner_is_suggested(tmp_path: Path, strangers: Registry) -> None:
    path = write(tmp_path, 'extends = "default"\nstages.allocation = "sharer"')
    (error,) = errors_of(path, strangers)
    assert 'allocation "sharer" gives shares of time by GPU type; add refiner' in error
    assert '"whole"' in error
    refined = Profile.load(path, registry=strangers, settings={"stages.refiners": ["whole"]})
    assert refined.stages(CLUSTER).refiner_names == ("whole",)
    assert len(refined.stages(CLUSTER).refiners) == 1


def test_a_refiner_that_divides_is_refused_where_nothing_needs_to_be_divided(tmp_path: Path) -> None:
    path = write(tmp_path, 'extends = "default"\nstages.refiners = ["divide"]', "twice.toml")
    assert errors_of(path) == [
        'refiner "divide" has nothing to divide, for allocation "ordered" gives whole GPUs and claims of jobs; '
        "leave it out (twice.toml, [stages])"
    ]
    Profile.load("themis", settings={"stages.refiners": ["divide"], "rounds.bid_deadline": "1s"})


def test_a_profile_in_which_no_stage_chooses_among_sizes_is_refused(tmp_path: Path) -> None:
    body = 'extends = "max_min_time"\nstages.elasticity = "range"'
    assert errors_of(write(tmp_path, body, "idle.toml")) == [
        'nothing chooses among the sizes of elasticity "range", for allocation "max_min_time" gives claims of jobs and '
        'shares of time by GPU type at one size a job; take "fixed", "optimistic", "profiled_types" or '
        '"shockwave_forecast" (idle.toml, [stages])'
    ]


def test_a_valuation_that_no_stage_reads_is_refused_unless_it_is_the_default(tmp_path: Path) -> None:
    path = write(tmp_path, 'extends = "allox"\nstages.valuation = "las"', "vain.toml")
    assert errors_of(path) == [
        'nothing reads valuation "las", for allocation "allox" needs none of what it gives; leave it out '
        "(vain.toml, [stages])"
    ]
    assert Profile.load("allox").plugins[Stage.VALUATION] == FALLBACK["valuation"]


def test_an_allocation_without_declarations_may_grant_whole_gpus(strangers: Registry) -> None:
    assert Profile.load("modest", registry=strangers).plugins[Stage.ALLOCATION] == "modest"


def test_pins_need_a_placement_that_honours_them(tmp_path: Path, strangers: Registry) -> None:
    path = write(tmp_path, 'extends = "default"\nstages.allocation = "pinner"\nstages.placement = "spread"')
    (error,) = errors_of(path, strangers)
    assert error.startswith('placement "spread" must honour pins, but does not, and allocation "pinner" gives')
    assert '"packed"' in error


def test_bids_need_a_separable_valuation() -> None:
    (error,) = errors_of("default", settings=("rounds.bid_deadline=2s",))
    assert error.startswith('valuation "fifo" must value each app by itself where app masters bid')
    assert error.endswith("(--set rounds.bid_deadline)")


def test_an_auction_needs_values_of_bundles_and_a_placement_that_honours_pins() -> None:
    settings = ("stages.valuation=fifo", "rounds.bid_deadline=none")
    assert 'allocation "themis" needs values of bundles' in "\n".join(errors_of("themis", settings=settings))
    assert "must honour pins" in "\n".join(errors_of("themis", settings=("stages.placement=spread",)))


def test_the_cluster_is_checked_against_the_needs_of_the_plugins(tmp_path: Path, strangers: Registry) -> None:
    body = 'extends = "default"\nstages.elasticity = "range"\nstages.allocation = "needy"\nstages.placement = "tuned"'
    profile = Profile.load(write(tmp_path, body), registry=strangers)
    with pytest.raises(InputErrors) as caught:
        profile.stages(Cluster.parse("4x8 V100, 2x4 P100"))
    assert [str(error) for error in caught.value.errors] == [
        'allocation "needy" needs one GPU type, but got P100 and V100 (--cluster)',
        'cpus must be given for placement "tuned", but got machine "m01" has none (--cluster)',
        'memory must be given for placement "tuned", but got machine "m01" has none (--cluster)',
        'placement "tuned" needs machines of one size, but got machines of 4 to 8 GPUs (--cluster)',
    ]
    profile.stages(Cluster.parse("4x8 V100 24cpu 500GB"))


def test_a_profile_can_name_one_plugin_twice_with_different_options(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "default"
        stages.valuation = "fast"
        [plugins.fast]
        use = "las"
        attained = "seconds"
        """,
    )
    profile = Profile.load(path)
    stages = profile.stages(CLUSTER)
    assert stages.names[Stage.VALUATION] == "fast"
    assert 'use = "las"' in profile.resolved()
    again = Profile.parse(profile.resolved(), name="again")
    assert again.resolved() == profile.resolved()


@pytest.mark.parametrize("name", ["default", "las", "themis", "demo", "spread"])
def test_a_resolved_profile_parses_back_to_itself(name: str) -> None:
    profile = Profile.load(name, settings={"rounds.settle": "250ms"})
    again = Profile.parse(profile.resolved(), name=name)
    assert again.resolved() == profile.resolved()
    assert again.rounds.settle == profile.rounds.settle == 0.25
    assert again.plugins == profile.plugins


def test_every_line_of_a_resolved_profile_has_its_origin() -> None:
    profile = Profile.load("demo", settings=["rounds.lease=7s"])
    lines = {text: origin for text, origin in profile.origins() if "=" in text}
    assert lines["fairness_knob = 0.25"] == "demo.toml"
    assert lines['lease = "7s"'] == "--set rounds.lease"
    assert lines['placement = "packed"'] == "themis.toml"
    assert lines["faults_allowed = 3"] == "default"
    assert lines['sizes = "all"'] == "default of range"
    assert all(lines.values())


def test_replacing_values_of_a_profile_returns_another_and_leaves_it_unchanged() -> None:
    profile = Profile.load("themis")
    softer = profile.replace(name="themis-0.4", settings={"plugins.themis.fairness_knob": 0.4})
    assert softer.name == "themis-0.4"
    assert profile.merged.tree["plugins"]["themis"]["fairness_knob"] == 0.8
    assert softer.merged.tree["plugins"]["themis"]["fairness_knob"] == 0.4


def test_each_call_creates_new_plugin_instances() -> None:
    profile = Profile.load("default")
    first, second = profile.stages(CLUSTER), profile.stages(CLUSTER)
    assert first.allocation.__self__ is not second.allocation.__self__  # type: ignore[attr-defined]


def test_only_observers_that_the_profile_allows_are_created(tmp_path: Path, strangers: Registry) -> None:
    assert Profile.load("default", registry=strangers).observers() == ()
    profile = Profile.load(write(tmp_path, 'observers = ["watcher"]\nextends = "default"'), registry=strangers)
    ((name, call),) = profile.observers()
    assert name == "watcher"
    call("a decision")  # type: ignore[arg-type]
    assert call.__self__.seen == ["a decision"]  # type: ignore[attr-defined]


def test_a_plugin_whose_creation_fails_is_an_error_of_the_profile(tmp_path: Path, strangers: Registry) -> None:
    (error,) = errors_of(write(tmp_path, 'extends = "default"\nstages.placement = "failing"'), strangers)
    assert error.startswith('plugin "failing" must be made without an error, but got no licence')
    assert error.endswith("(mixed.toml, [stages].placement)")


def test_a_profile_can_be_sent_to_another_process() -> None:
    profile = Profile.load("themis", settings={"rounds.lease": "5m"})
    again = pickle.loads(pickle.dumps(profile))
    assert again.resolved() == profile.resolved()


def test_settings_of_rounds_override_those_that_the_allocation_declares() -> None:
    every = Profile.load("default", settings={"rounds.every": "2m"}).rounds.triggers(DEFAULT_TRIGGERS)
    assert (every.on, every.every) == (frozenset(), 120.0)
    everything = Profile.load("default", settings={"rounds.scope": "all"}).rounds
    assert everything.scope is Scope.ALL
    assert everything.triggers(DEFAULT_TRIGGERS).all_on == frozenset(Cause)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=0.6", 0.6),
        ("a.b=las", "las"),
        ('a.b="x=y"', "x=y"),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b=true", True),
        ("a.b=", ""),
    ],
)
def test_a_setting_is_a_toml_value_or_a_bare_word(text: str, value: object) -> None:
    assert parse_setting(text) == ("a.b", value)


_TABLES = st.recursive(
    st.integers(0, 3), lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3), max_leaves=8
)


@given(
    st.dictionaries(st.sampled_from("abc"), _TABLES, max_size=3),
    st.dictionaries(st.sampled_from("abc"), _TABLES, max_size=3),
)
def test_merged_tables_have_the_upper_layer_on_top_and_an_origin_for_every_value(lower: dict, upper: dict) -> None:  # type: ignore[type-arg]
    merged = merge(merge(NOTHING, lower, "lower"), upper, "upper")

    def check(tree: object, low: object, up: object, path: tuple[str, ...]) -> None:
        if isinstance(tree, dict) and tree:
            for key, item in tree.items():
                of_low = low.get(key) if isinstance(low, dict) else None
                of_up = up.get(key) if isinstance(up, dict) else None
                check(item, of_low, of_up, (*path, key))
        elif path and not isinstance(tree, dict):
            expected = ("upper", up) if up is not None else ("lower", low)
            assert (merged.origin(path), tree) == expected

    check(merged.tree, lower, upper, ())
