"""TOML from outside: what is too large or too deep is refused before the parser takes its time over it."""

import subprocess
import sys
import tomllib

import pytest

from eunomia.errors import InputError
from eunomia.platform.layers import parse_setting, read_setting, read_toml
from eunomia.platform.toml_bounds import LARGE, parse_toml
from eunomia_testbed.spec.cluster_file import parse_cluster

MANY = 120_000
DOTS = ".".join("a" * MANY)

HOSTILE = {
    "dots": (f"{DOTS}=1", "keys of at most 32 parts"),
    "dots with spaces": (" . ".join("a" * 40_000) + "=1", "keys of at most 32 parts"),
    "dots between quotes": (".".join(['"a"'] * 40_000) + "=1", "keys of at most 32 parts"),
    "a header of dots": (f"[{DOTS}]", "keys of at most 32 parts"),
    "lists": ("a=" + "[" * MANY, "at most 32 lists and tables in each other"),
    "inline tables": ("a=" + "{a=" * 60_000, "at most 32 lists and tables in each other"),
    "depth in parts": (
        f"[{'.'.join('a' * 20)}]\n{'.'.join('b' * 20)} = 1",
        "at most 32 lists and tables in each other, but got 33 or more",
    ),
    "a number": ("a=" + "1" * MANY, "names and numbers of at most 1000 characters"),
    "a hexadecimal number": ("a=0x" + "f" * MANY, "names and numbers of at most 1000 characters"),
    "keys": ("\n".join(f"a{number}=1" for number in range(3000)), "at most 2000 keys"),
    "headers": ("\n".join(f"[a.b{number}]" for number in range(3000)), "at most 2000 keys"),
    "indented headers": (" [[a]]\n" * 3000, "at most 2000 keys"),
    "size": ("# " + "x" * 300_000, "at most 256 KiB, but got 293 KiB"),
    "no end of a string": ('a="""' + "x\n" * 100, "must be TOML"),
}


@pytest.mark.parametrize("text,said", HOSTILE.values(), ids=HOSTILE)
def test_toml_that_is_too_large_or_too_deep_is_refused_with_the_limit(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_toml(text, "an app file", place="a.toml")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_key_of_too_many_parts_is_refused_before_it_is_parsed() -> None:
    """In a process of its own with a limit on its CPU time: the parser alone takes minutes."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from eunomia.platform.layers import read_toml\n"
        f"read_toml('.'.join('a' * {MANY}) + '=1', place='p.toml')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1, "killed by the limit"
    assert "a profile must have keys of at most 32 parts, but got 33 parts (p.toml, line 1)" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        'a = "x[[[[.=,#" # [[[[[',
        "a = '''\n" + "[" * 100 + "'''",
        'a = """""x\\"""" # ' + "[" * 100,
        'a = """x"""""\nb = "[' + "." * 100 + '"',
        "a = ''''" + "[" * 100 + "'''''",
        "a = [" + "1.5, " * 500 + "]",
        "a = [\n  1,\n  [2, 3], # " + "[" * 40 + "\n]",
        "[a.b]\nc.d = {e = 1979-05-27T07:32:00Z}",
    ],
)
def test_strings_and_comments_do_not_count_towards_the_limits(text: str) -> None:
    assert parse_toml(text, "an app file", place="a.toml") == tomllib.loads(text)


def test_the_limits_hold_for_profiles_settings_and_cluster_files() -> None:
    with pytest.raises(InputError, match="a profile must have keys of at most 32 parts"):
        read_toml(f"{DOTS}=1", place="p.toml")
    with pytest.raises(InputError, match="a cluster file must have keys of at most 32 parts"):
        parse_cluster(f"{DOTS}=1", place="c.toml")
    with pytest.raises(InputError, match="a setting must be a dotted key"):
        read_setting(DOTS, 1)
    number = "9" * 5000  # Python reads no decimal number of so many digits
    assert parse_setting(f"a={number}") == ("a", number)
    for reads in (lambda text: read_toml(text, place="p"), lambda text: parse_cluster(text, place="c")):
        with pytest.raises(InputError):
            reads(f"a={number}")


def test_a_cluster_file_may_have_a_row_for_each_of_3000_machines() -> None:
    rows = "\n".join(f'  {{ names = "m{number}", gpus = "8xV100" }},' for number in range(3000))
    assert (
        len(parse_toml(f"machines = [\n{rows}\n]", "a cluster file", place="c.toml", bounds=LARGE)["machines"]) == 3000
    )
