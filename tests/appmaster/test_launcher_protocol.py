"""The committed protocol code is what the compiler makes, and tokens open one door each."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_appmaster.protocol import generate, tokens

SECRET = b"secret of sixteen bytes and more"
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)
Lease = tuple[str, str, int, int]
leases = st.tuples(names, names, st.integers(0, 9), st.integers(0, 99))


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    protocols = generate.generate(tmp_path)
    assert generate.HERE / "launcher.proto" in protocols
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(made) == 4 * len(protocols)
    for path in made:
        committed = generate.ROOT / path
        rule = f"{path} must be generated again: python -m eunomia_appmaster.protocol.generate"
        assert committed.read_text() == (tmp_path / path).read_text(), rule


@given(leases, leases)
def test_a_container_token_is_valid_only_for_its_own_lease(one: Lease, other: Lease) -> None:
    token = tokens.container_token(SECRET, *one)
    tokens.check_container_token(token, SECRET, *one)
    assert (tokens.container_token(SECRET, *other) == token) == (one == other)
    assert tokens.node_token(SECRET, one[0], one[1]) != token


@pytest.mark.parametrize("token", ["", "0" * 64, "ü"])
def test_the_error_for_a_refused_token_names_what_the_token_must_be_signed_for(token: str) -> None:
    with pytest.raises(tokens.WrongTokenError, match="signed for app ana, node box7, slot 1, epoch 2"):
        tokens.check_container_token(token, SECRET, "ana", "box7", 1, 2)
    with pytest.raises(tokens.WrongTokenError, match="app ana and node box7"):
        tokens.check_node_token(token, SECRET, "ana", "box7")
