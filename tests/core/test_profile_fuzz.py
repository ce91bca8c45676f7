"""Whatever stands in a file, it is read or refused with an error of the input; nothing else escapes."""

import contextlib
import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia import Profile
from eunomia.errors import InputError
from eunomia.platform.registry import Registry
from eunomia.platform.rounds import KEYS as ROUND_KEYS
from eunomia.platform.toml_text import toml_value
from eunomia_testbed.spec.cluster_file import KEYS as MACHINE_KEYS
from eunomia_testbed.spec.cluster_file import parse_cluster

REGISTRY = Registry.find(installed=False)
WORDS = [
    *REGISTRY.names,
    "default",
    "10m",
    "-5s",
    "0s",
    "freed",
    "all",
    "none",
    "unlimited",
    "8xV100",
    "a[1-3]",
    "1GB/s",
    "",
]
_plain = st.one_of(
    st.sampled_from(WORDS),
    st.integers(-3, 10**12),
    st.floats(),
    st.booleans(),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5),
)
KEYS = ["stages", "rounds", "plugins", "summary", "observers", "elasticity", "valuation", "allocation", "placement"]
KEYS += ["refiners", "use", "fairness_knob", "slowdown", "queues", "on_misfit", *ROUND_KEYS, *REGISTRY.names]


def _trees(keys: list[str]) -> st.SearchStrategy[dict[str, object]]:
    values = st.recursive(
        _plain,
        lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.sampled_from(keys), below, max_size=4)),
        max_leaves=12,
    )
    return st.dictionaries(st.sampled_from(keys), values, max_size=5)


def _text(tree: dict[str, object]) -> str:
    return "\n".join(f"{key} = {toml_value(item)}" for key, item in tree.items())


@settings(deadline=None)
@given(_trees(KEYS))
def test_toml_that_was_written_reads_back_the_same(tree: dict[str, object]) -> None:
    assert repr(tomllib.loads(_text(tree))) == repr(tree)


@settings(deadline=None)
@given(_trees(KEYS), _trees(["stages", "rounds", "plugins", "observers"]))
def test_any_profile_is_either_parsed_or_refused_as_bad_input(
    upper: dict[str, object], lower: dict[str, object]
) -> None:
    for tree in (upper, {"extends": "themis", **upper}, {"extends": "default", **lower}):
        with contextlib.suppress(InputError):
            Profile.parse(_text(tree), name="fuzz", registry=REGISTRY).resolved()


@settings(deadline=None)
@given(st.sampled_from(ROUND_KEYS), _plain, st.sampled_from(REGISTRY.names), st.sampled_from(KEYS))
def test_any_setting_is_either_accepted_or_refused_as_bad_input(
    key: str, given_value: object, plugin: str, option: str
) -> None:
    for path in (
        f"rounds.{key}",
        f"plugins.{plugin}.{option}",
        f"stages.{option}",
        f"plugins.themis.slowdown.{option}",
    ):
        with contextlib.suppress(InputError):
            Profile.load("themis", settings={path: given_value}, registry=REGISTRY)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(MACHINE_KEYS), _plain, max_size=5), max_size=3), _trees(["island", "rack"])
)
def test_any_cluster_file_is_either_parsed_or_refused_as_bad_input(
    rows: list[dict[str, object]], bandwidth: dict[str, object]
) -> None:
    with contextlib.suppress(InputError):
        parse_cluster(_text({"machines": rows, "bandwidth": bandwidth}), place="fuzz")
