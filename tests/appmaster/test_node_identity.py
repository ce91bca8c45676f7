"""Machines that join with a token: identity of nodes, their certificates, and attacks on both."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from tests.appmaster.service_lab import NODE, PATIENCE_SECONDS, Arbiter, eventually

from eunomia.errors import InputError, UnreachableError
from eunomia.journal.journal import read_journal
from eunomia_appmaster.commands import join_tokens as join_commands
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher import joining
from eunomia_appmaster.launcher.access import TokenFileAccess, check_token_file
from eunomia_appmaster.launcher.files import read_json, write_json
from eunomia_appmaster.launcher.folder_user import ARBITER_CA, EPOCHS, JOINED, NODE_CA, FolderUser
from eunomia_appmaster.launcher.joining import CERTIFICATE, KEY, OwnJoin
from eunomia_appmaster.launcher.listening import ListenAddress, not_bound
from eunomia_appmaster.launcher.own_machine import OwnMachine
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol import launcher_pb2_grpc as lrpc
from eunomia_appmaster.protocol.connecting import Address
from eunomia_appmaster.protocol.join_text import JoinText, fingerprint
from eunomia_appmaster.protocol.node_names import tls_name
from eunomia_appmaster.protocol.tokens import node_token
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION
from eunomia_appmaster.service.certificates import Certificates, certificates_of, make, names_of, public_key_of
from eunomia_appmaster.service.join_tokens import JOIN_NOTE
from eunomia_appmaster.service.joined_nodes import JOINED_NOTE, JoinedNodes
from eunomia_appmaster.service.node_authority import NodeAuthority


class Cluster:
    """An arbiter under TLS; its own machine has registered unless it has none."""

    def __init__(self, folder: Path, certificates: Certificates, *, has_slots: bool = True) -> None:
        self.folder, self.certificates = folder, certificates
        self.arbiter = Arbiter(folder / "state", certificates=certificates)
        self.channel = Address(target=self.arbiter.address, ca_file=certificates.ca).channel()
        if has_slots:
            self.register(self.bearer(self.arbiter.service.tokens.launcher), NODE)
            eventually(self.arbiter.service.ready.is_set)

    @staticmethod
    def bearer(token: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {token}"),)

    def registration(self, node: str) -> lpb.RegisterNodeRequest:
        return lpb.RegisterNodeRequest(
            version=VERSION,
            python=PYTHON,
            protocol=PROTOCOL,
            node=node,
            host=node,
            container_manager_address="127.0.0.1:1",
            slots=[lpb.Slot(index=0, gpu_type="cpu", cpus=1, memory_gib=2)],
            cpus=1.0,
            memory_gib=2.0,
            launcher_id=f"{node}'s first",
            storage_hash=self.arbiter.service.storage.hash,
        )

    def register(self, metadata: tuple[tuple[str, str], ...], node: str, **more: Any) -> lpb.RegisterNodeResponse:
        request = self.registration(node)
        request.MergeFrom(lpb.RegisterNodeRequest(**more))
        tracker = lrpc.ResourceTrackerStub(self.channel)
        return tracker.RegisterNode(request, metadata=metadata, timeout=PATIENCE_SECONDS)

    def client(self, method: str, request: Any) -> Any:
        call = getattr(rpc.ClientProtocolStub(self.channel), method)
        return call(request, metadata=self.bearer(self.arbiter.service.tokens.operator), timeout=PATIENCE_SECONDS)

    def token(self, **more: Any) -> JoinText:
        made = self.client("MakeJoinToken", pb.MakeJoinTokenRequest(**more))
        return JoinText.parse(made.text, "answer")

    def node(self, name: str, folder: str = "") -> OwnJoin:
        own = self.folder / (folder or name)
        own.mkdir(exist_ok=True)
        return OwnJoin(own, name, self.arbiter.address)

    def accept(self, node: OwnJoin, **more: Any) -> None:
        """Register a node that has joined, whose launcher answers under its certificate."""
        server = grpc.server(futures.ThreadPoolExecutor(1))
        port = server.add_secure_port("127.0.0.1:0", node.credentials())
        server.start()
        try:
            address = {"container_manager_address": f"127.0.0.1:{port}"}
            self.register(node.metadata(), node.node, **(address | more))
        finally:
            server.stop(None)

    def restart(self) -> None:
        self.channel.close()
        self.arbiter.close(checkpoint=False)
        self.arbiter = Arbiter(self.arbiter.settings.state_dir, certificates=self.certificates)
        self.channel = Address(target=self.arbiter.address, ca_file=self.certificates.ca).channel()
        self.register(self.bearer(self.arbiter.service.tokens.launcher), NODE)
        eventually(self.arbiter.service.ready.is_set)

    def close(self) -> None:
        self.channel.close()
        self.arbiter.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, make(tmp_path / "tls"))
    yield made
    made.close()


def test_a_new_machine_needs_only_a_token_to_join(cluster: Cluster) -> None:
    token = cluster.token()
    node = cluster.node("b08")
    assert not node.is_joined
    node.join(token)
    assert node.is_joined
    assert names_of(node.certificate) == [tls_name("b08", 1), "127.0.0.1"]
    assert {path.stat().st_mode & 0o777 for path in node.folder.iterdir()} == {0o600}
    assert cluster.node("b08").is_joined, "the next launcher on this folder needs no token"
    secret = cluster.arbiter.service.tokens.container_secret
    assert len({secret("b08"), secret(NODE), secret("b09")}) == 2, "a node that joined has a secret of its own"


def test_the_first_machine_of_an_arbiter_without_slots_joins_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    cluster = Cluster(tmp_path, make(tmp_path / "tls"), has_slots=False)
    node = cluster.node("b08")
    eventually(cluster.arbiter.settings.apps.is_dir, "the launcher finds it before it registers")
    service = cluster.arbiter.service
    with monkeypatch.context() as full:
        full.setattr(service.journal, "note", refuse)
        with pytest.raises(grpc.RpcError) as unwritten:
            cluster.token()
    assert "must be able to write its journal, but got database or disk is full" in unwritten.value.details()
    token = cluster.token()
    node.join(token)
    with pytest.raises(grpc.RpcError) as refused:
        cluster.client("DrainNode", pb.DrainNodeRequest(node="b08"))
    assert "must decide to change nodes, but got the arbiter waits for its machines" in refused.value.details()
    with monkeypatch.context() as full:
        full.setattr(service.journal, "note", refuse)
        with pytest.raises(grpc.RpcError) as unaccepted:
            cluster.accept(node)
    assert "must be able to write its journal" in unaccepted.value.details()
    cluster.accept(node)
    with pytest.raises(InputError, match="node b08 has used it"):
        cluster.node("b09").join(token)
    cluster.arbiter.close(checkpoint=False)
    kept = Arbiter(cluster.arbiter.settings.state_dir, certificates=cluster.certificates).service
    assert kept.joined.join_of("b08") == 1, "both are in the journal"
    assert [one.used_by for one in kept.join_tokens] == [("b08",)]


def test_a_certificate_has_the_key_of_the_launcher_and_only_names_that_the_arbiter_knows(cluster: Cluster) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key = ec.generate_private_key(ec.SECP256R1())
    lie = x509.SubjectAlternativeName([x509.DNSName(tls_name("a01", 1)), x509.DNSName("head")])
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(lie, critical=False)
    text = request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    admission = lrpc.NodeAdmissionStub(cluster.channel)
    metadata = cluster.bearer(cluster.token().text())
    answer = admission.JoinNode(lpb.JoinNodeRequest(node="b08", signing_request=text), metadata=metadata)
    made = x509.load_pem_x509_certificate(answer.certificate)
    assert made.public_key() == key.public_key()
    assert names_of(made) == [tls_name("b08", 1), "127.0.0.1"]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(answer.authority))
    assert timedelta(days=30) <= made.not_valid_after_utc - made.not_valid_before_utc < timedelta(days=31)


@pytest.mark.parametrize("request_text", [b"", b"-----BEGIN CERTIFICATE REQUEST-----\nMII\n", b"\xff" * 400])
def test_a_malformed_signing_request_changes_nothing(cluster: Cluster, request_text: bytes) -> None:
    token = cluster.token()
    with pytest.raises(grpc.RpcError) as refused:
        lrpc.NodeAdmissionStub(cluster.channel).JoinNode(
            lpb.JoinNodeRequest(node="b08", signing_request=request_text), metadata=cluster.bearer(token.text())
        )
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "signing request must be one in PEM" in refused.value.details()
    cluster.node("b08").join(token)  # the token is not used up


def test_a_join_token_is_valid_for_a_year_at_most(cluster: Cluster) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        cluster.token(ends_in_seconds=400.0 * 86400.0)
    assert "a number must be from 1 to 3.16224e+07" in str(caught.value.details())


def test_a_token_can_be_used_only_once_unless_it_is_reusable(cluster: Cluster) -> None:
    once = cluster.token()
    first = cluster.node("b08")
    first.join(once)
    cluster.accept(first)
    with pytest.raises(InputError, match=r"must be valid .*, but got number 1: node b08 has used it"):
        cluster.node("b09").join(once)
    several = cluster.token(reusable=True)
    for name in ("b09", "b10"):
        node = cluster.node(name)
        node.join(several)
        cluster.accept(node)
    known = cluster.client("ListJoinTokens", pb.ListJoinTokensRequest()).tokens
    assert [(token.number, [*token.used_by]) for token in known] == [(1, ["b08"]), (2, ["b09", "b10"])]


MENDABLE: list[tuple[dict[str, Any], str]] = [
    ({"container_manager_address": "127.0.0.1:1"}, "the arbiter did not reach the node"),
    ({"storage_hash": "0" * 64}, "apps"),
    ({"version": "0.0.1"}, "must have the arbiter's Eunomia"),
    ({"python": "2.7"}, "Python 2.7"),
    ({"rack": "/"}, "a rack must have a name"),
    ({"slot_states": [lpb.SlotState(slot=0, highest_epoch=10_000)]}, "must have seen no order of another arbiter"),
    ({"slots": [lpb.Slot(index=1, gpu_type="cpu", cpus=-1.0)]}, "cpus"),
]
"""What is wrong with a registration, and what the refusal says."""


def test_a_refused_join_leaves_its_token_unused(cluster: Cluster) -> None:
    token = cluster.token()
    for number, (wrong, why) in enumerate(MENDABLE):
        node = cluster.node("b08", f"try-{number}")  # on a folder of its own: the same token serves
        node.join(token)
        with pytest.raises(grpc.RpcError) as refused:
            cluster.accept(node, **wrong)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert why in refused.value.details()
        assert cluster.arbiter.service.nodes.get("b08") is None
        (known,) = cluster.client("ListJoinTokens", pb.ListJoinTokensRequest()).tokens
        assert [*known.used_by] == []
    cluster.restart()
    again = cluster.node("b08", "mended")
    again.join(token)
    cluster.accept(again)
    (known,) = cluster.client("ListJoinTokens", pb.ListJoinTokensRequest()).tokens
    assert [*known.used_by] == ["b08"]
    with pytest.raises(InputError, match="node b08 has used it"):
        cluster.node("b09").join(token)
    with read_journal(cluster.arbiter.settings.journal) as journal:
        assert journal.notes(JOIN_NOTE)["1"]["used_by"] == ["b08"]
        assert journal.notes(JOINED_NOTE)["b08"]["token"] == 0


def test_a_node_whose_registration_was_refused_needs_no_second_token(cluster: Cluster) -> None:
    node = cluster.node("b08")
    node.join(cluster.token())
    with pytest.raises(grpc.RpcError):
        cluster.accept(node, version="0.0.1")
    cluster.accept(cluster.node("b08"))
    assert [node.name for node in cluster.arbiter.service.nodes] == [NODE, "b08"]
    assert [token.used_by for token in cluster.arbiter.service.join_tokens] == [("b08",)]


def test_of_several_machines_with_one_token_only_one_becomes_a_node(cluster: Cluster) -> None:
    token = cluster.token()
    nodes = [cluster.node(f"b{number:02}") for number in range(8, 14)]

    def come(node: OwnJoin) -> str:
        try:
            node.join(token)
            cluster.accept(node)
        except InputError as error:
            return str(error)
        except grpc.RpcError as error:
            return str(error.details())
        return ""

    with futures.ThreadPoolExecutor(len(nodes)) as at_once:
        said = list(at_once.map(come, nodes))
    service = cluster.arbiter.service
    (accepted,) = [node.node for node, why in zip(nodes, said, strict=True) if not why]
    assert sorted(node.name for node in service.nodes) == sorted([NODE, accepted])
    assert [token.used_by for token in service.join_tokens] == [(accepted,)]
    for node in nodes:
        if node.node != accepted and node.is_joined:
            assert service.tokens.removed(node.metadata()) == node.node, "its credential is refused"


def test_a_second_machine_with_the_same_token_replaces_one_that_never_registered(
    cluster: Cluster,
) -> None:
    token, first, second = cluster.token(), cluster.node("b08"), cluster.node("b09")
    first.join(token)
    second.join(token)
    with pytest.raises(grpc.RpcError) as refused:
        cluster.accept(first)
    assert refused.value.code() is grpc.StatusCode.ABORTED
    assert refused.value.details().endswith("but got number 1: another machine has joined with it")
    cluster.accept(second)
    with pytest.raises(grpc.RpcError) as refused:
        cluster.accept(first)
    assert refused.value.details().endswith("but got number 1: node b09 has used it")
    with read_journal(cluster.arbiter.settings.journal) as journal:
        kept = JoinedNodes(journal.notes(JOINED_NOTE))
    assert (kept.get("b08"), kept.join_of("b09")) == (None, 1)


def test_a_token_lists_only_the_nodes_whose_latest_join_used_it(cluster: Cluster) -> None:
    several = cluster.token(reusable=True)
    for name in ("b08", "b09"):
        node = cluster.node(name)
        node.join(several)
        cluster.accept(node)
    again, once = cluster.node("b08", "again"), cluster.token()
    again.join(once)
    assert members(cluster) == [["b08", "b09"], []], "its launcher is not accepted yet"
    cluster.accept(again, launcher_id="b08's second")
    assert members(cluster) == [["b09"], ["b08"]]
    cluster.client("RemoveNode", pb.RemoveNodeRequest(node="b09", now=True))
    assert members(cluster) == [[], ["b08"]]
    with read_journal(cluster.arbiter.settings.journal) as journal:
        assert JoinedNodes(journal.notes(JOINED_NOTE)).members(2, ["b08", "b09"]) == ["b08"], "so after a restart"
    rows = [join_commands._row(token) for token in cluster.client("ListJoinTokens", pb.ListJoinTokensRequest()).tokens]
    assert [(state, nodes) for _, state, _, nodes in rows] == [("reusable", "-"), ("used", "b08")]
    assert [join_commands._staying(some) for some in ((), ("n1",), ("n1", "n2"))] == ["", "; n1 stays", "; n1, n2 stay"]


def members(cluster: Cluster) -> list[list[str]]:
    return [[*token.members] for token in cluster.client("ListJoinTokens", pb.ListJoinTokensRequest()).tokens]


def test_a_token_without_a_ca_is_refused_beyond_loopback(tmp_path: Path) -> None:
    node = OwnJoin(tmp_path, "b08", "head.example:7720")
    with pytest.raises(InputError, match=r"must carry its CA .* one without a CA \(head.example:7720\)") as refused:
        node.join(JoinText(number=1, secret="0" * 48, authority=b""))
    assert "address file" not in str(refused.value)


def test_expired_revoked_and_foreign_tokens_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    ended = cluster.token(ends_in_seconds=1.0)
    revoked = cluster.token()
    cluster.client("RevokeJoinToken", pb.RevokeJoinTokenRequest(number=2))
    with pytest.raises(InputError, match="number 2: the operator has revoked it"):
        cluster.node("b08").join(revoked)
    foreign = JoinText(number=1, secret="0" * 48, authority=cluster.certificates.ca.read_bytes())
    with pytest.raises(InputError, match="must be one of this arbiter, but got number 1 of another one"):
        cluster.node("b08").join(foreign)
    elsewhere = JoinText(number=1, secret="0" * 48, authority=make(tmp_path / "other").ca.read_bytes())
    with pytest.raises(UnreachableError, match="the arbiter's certificate must be signed by the CA"):
        cluster.node("b08").join(elsewhere)
    eventually(lambda: cluster.client("ListJoinTokens", pb.ListJoinTokensRequest()).tokens[0].ends_in_seconds == 0.0)
    with pytest.raises(InputError, match="number 1: it has ended"):
        cluster.node("b08").join(ended)
    with pytest.raises(grpc.RpcError) as refused:
        cluster.client("RevokeJoinToken", pb.RevokeJoinTokenRequest(number=7))
    assert "a join token must have been made; there are: 1, 2, but got 7" in refused.value.details()


def test_the_rate_of_join_attempts_is_limited(cluster: Cluster) -> None:
    codes = []
    for guess in range(25):
        text = JoinText(number=1, secret=f"{guess:048x}", authority=b"").text()
        with pytest.raises(grpc.RpcError) as refused:
            lrpc.NodeAdmissionStub(cluster.channel).JoinNode(
                lpb.JoinNodeRequest(node="b08"), metadata=cluster.bearer(text)
            )
        codes.append(refused.value.code())
    assert codes[:20] == [grpc.StatusCode.UNAUTHENTICATED] * 20
    assert codes[-1] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_credential_is_valid_only_for_one_node_and_its_latest_join(cluster: Cluster) -> None:
    first = cluster.node("b08")
    first.join(cluster.token())
    with pytest.raises(grpc.RpcError) as refused:
        cluster.register(first.metadata(), "a01")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "a node may speak for itself alone" in refused.value.details()
    before = cluster.arbiter.service.tokens.container_secret("b08")
    again = cluster.node("b08", "reinstalled")
    again.join(cluster.token())
    with pytest.raises(grpc.RpcError) as ended:
        cluster.register(first.metadata(), "b08")
    assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert cluster.arbiter.service.tokens.container_secret("b08") != before
    assert names_of(again.certificate)[0] != names_of(first.certificate)[0]


def test_the_credential_of_a_removed_node_is_refused_also_after_a_restart(cluster: Cluster) -> None:
    node = cluster.node("b08")
    node.join(cluster.token())
    service = cluster.arbiter.service
    removed = service.joined.without("b08")
    assert removed is not None
    cluster.arbiter.run(service.driver.fold([], [removed.note()]))
    service.joined.keep(removed)
    cluster.restart()
    node = cluster.node("b08")
    with pytest.raises(grpc.RpcError) as refused:
        cluster.register(node.metadata(), "b08")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(InputError):
        node.renew()
    node.join(cluster.token())  # the operator may let it in again
    assert names_of(node.certificate)[0] == tls_name("b08", 2)


def test_join_numbers_are_not_reused_even_if_the_note_of_a_node_is_lost(cluster: Cluster) -> None:
    service = cluster.arbiter.service
    first, second = cluster.node("b08"), cluster.node("b08", "second")
    first.join(cluster.token())
    service.joined._nodes["b09"] = service.joined._nodes.pop("b08")  # as where its note is lost
    second.join(cluster.token())
    assert second.number == 1, "it was never a part of the cluster"
    assert service.nodes.layout is not None
    _, (machine,) = service.nodes.layout.joined(
        lpb.RegisterNodeRequest(node="b08", slots=[lpb.Slot(index=0, gpu_type="cpu")], cpus=1.0)
    )
    service.journal.note(machine.note(1))
    del service.joined._nodes["b08"]
    third = cluster.node("b08", "third")
    third.join(cluster.token())
    assert third.number > 2
    assert service.joined.is_over("b08", 1), "the credentials of former joins are refused"


def test_a_node_that_forgot_its_join_can_join_with_another_token(cluster: Cluster) -> None:
    node = cluster.node("b08")
    node.join(cluster.token())
    node.forget()
    again = cluster.node("b08")
    assert not again.is_joined, "no older copy brings the credential back"
    again.join(cluster.token())
    assert names_of(again.certificate)[0] == tls_name("b08", 2)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_used_with_another_arbiter_is_refused_before_anything_is_written(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = cluster.node("n2")
    node.join(cluster.token())
    (node.folder / EPOCHS).write_text("{}")
    other = Cluster(tmp_path / "other", make(tmp_path / "other" / "tls"))
    try:
        whose = {False: f"node n2 of the arbiter at {cluster.arbiter.address}", True: "a node that has left another"}
        for forgotten, words in whose.items():  # with its credential, and once that is removed with the node
            if forgotten:
                node.forget()
            before = files_of(node.folder)
            thief = OwnJoin(node.folder, "b2", other.arbiter.address)
            with pytest.raises(InputError, match=rf"--node-dir of its own.*, but got the folder of {words}"):
                thief.join(other.token())
            assert files_of(node.folder) == before
            assert not other.arbiter.service.joined.knows("b2"), "nothing was sent"
    finally:
        other.close()


def test_another_arbiter_at_the_same_address_is_detected_by_its_answer(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.node("n2")
    node.join(cluster.token())
    record = read_json(node.folder / JOINED)
    (node.folder / NODE_CA).write_bytes(make(tmp_path / "elsewhere").ca.read_bytes())
    (node.folder / ARBITER_CA).unlink()
    before = files_of(node.folder)
    with pytest.raises(InputError, match="a node's folder must serve one arbiter"):
        OwnJoin(node.folder, "b2", cluster.arbiter.address).join(cluster.token())
    assert (read_json(node.folder / JOINED), files_of(node.folder)) == (record, before)
    (node.folder / JOINED).unlink()
    (node.folder / (JOINED + ".old")).unlink()
    fresh = OwnJoin(node.folder, "b2", cluster.arbiter.address)
    fresh.join(cluster.token())
    assert fresh.is_joined, "without a credential or an order there is nothing to keep"


def test_a_node_folder_records_its_node_name_and_its_arbiter(tmp_path: Path) -> None:
    write_json(tmp_path / JOINED, {"node": "n2", "join": 1, "credential": "x", "arbiter": "127.0.0.1:7720"})
    (tmp_path / ARBITER_CA).write_bytes(b"a CA")
    user = FolderUser.of(tmp_path)
    user.check_arbiter("localhost:7720", b"another CA")  # its CA may be another one: the answer decides
    user.check_arbiter("head:7720", b"a CA")  # it has moved
    with pytest.raises(InputError, match=r"arbiter at 127\.0\.0\.1:7720"):
        user.check_arbiter("head:7720", b"another CA")
    with pytest.raises(InputError, match=r'must be used under its name .*"b2", in the folder of node n2'):
        user.check_name("b2")
    user.check_name("n2")


def test_the_token_file_of_a_launcher_must_contain_a_launcher_token(cluster: Cluster, tmp_path: Path) -> None:
    tokens, file = cluster.arbiter.service.tokens, tmp_path / "given"
    with pytest.raises(InputError, match=r"run/launcher\.token .*, but got No such file"):
        check_token_file(file)
    texts = {
        "a token of role operator": tokens.operator,
        "a token of role app": tokens.app("ana"),
        "a token of role user": "eu1.ana.1.00",
        "a join token": cluster.token().text(),
    }
    for what, text in texts.items():
        file.write_text(text)
        with pytest.raises(InputError, match=rf"run/launcher\.token .*, but got {what}"):
            check_token_file(file)
    for text in (tokens.launcher, "", "damaged"):  # the arbiter writes its file again
        file.write_text(text)
        check_token_file(file)


def test_joined_nodes_and_join_tokens_survive_a_restart_of_the_arbiter(cluster: Cluster) -> None:
    node, unused = cluster.node("b08"), cluster.token()
    node.join(cluster.token())
    secret = cluster.arbiter.service.tokens.container_secret("b08")
    cluster.restart()
    assert cluster.arbiter.service.tokens.container_secret("b08") == secret
    assert cluster.token().number == 3
    cluster.node("b09").join(unused)


def test_a_certificate_is_renewed_for_the_same_key(cluster: Cluster) -> None:
    node = cluster.node("b08")
    node.join(cluster.token())
    key, before = (node.folder / KEY).read_bytes(), (node.folder / CERTIFICATE).read_bytes()
    made = node.certificate.not_valid_before_utc
    assert not node.is_due(datetime.now(UTC))
    assert not node.is_due(made + timedelta(days=19.9))
    assert node.is_due(made + timedelta(days=20.1))
    node.renew()
    assert (node.folder / KEY).read_bytes() == key
    assert (node.folder / CERTIFICATE).read_bytes() != before


@pytest.mark.parametrize("name", [KEY, CERTIFICATE, NODE_CA])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nMII", b"\xff" * 40])
def test_a_damaged_certificate_file_is_replaced_by_the_arbiter(
    cluster: Cluster, name: str, content: bytes | None
) -> None:
    cluster.node("b08").join(cluster.token())
    path = cluster.folder / "b08" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    node = cluster.node("b08")
    with structlog.testing.capture_logs() as logs:
        node.mend()
    assert [line["event"] for line in logs] == ["node.certificate_damaged", "node.certificate_renewed"]
    assert names_of(node.certificate)[0] == tls_name("b08", 1), "it is the same join"
    assert node.certificate.public_key() == public_key_of(node.folder / KEY)
    with structlog.testing.capture_logs() as logs:
        node.mend()
    assert logs == []


def test_a_full_disk_delays_the_renewal_of_a_certificate(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    node = cluster.node("b08")
    node.join(cluster.token())
    tried: list[str] = []

    def refused() -> None:
        tried.append("renewal")
        raise OSError("No space left on device")

    monkeypatch.setattr(node, "is_due", lambda now: True)
    monkeypatch.setattr(node, "renew", refused)
    monkeypatch.setattr(joining, "LOOK_SECONDS", 0.01)

    async def watched() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            keeping = asyncio.create_task(node.keep_renewed())
            while len(tried) < 3:
                assert not keeping.done()
                await asyncio.sleep(0.01)
            keeping.cancel()

    asyncio.run(watched())


def test_a_launcher_serves_a_renewed_certificate_without_a_restart(cluster: Cluster) -> None:
    import ssl

    node = cluster.node("b08")
    node.join(cluster.token())
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", node.credentials())
    server.start()
    try:
        first = ssl.get_server_certificate(("127.0.0.1", port))
        node.renew()
        second = ssl.get_server_certificate(("127.0.0.1", port))
        assert first != second
        assert second.strip() == (node.folder / CERTIFICATE).read_text().strip()
        context = ssl.create_default_context(cafile=str(node.folder / NODE_CA))
        import socket

        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname=tls_name("b08", 1)),
        ):
            pass
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            context.wrap_socket(plain, server_hostname=tls_name("b08", 2))
    finally:
        server.stop(None)


def test_a_join_token_is_parsed_whole_or_refused_without_being_printed(tmp_path: Path) -> None:
    token = JoinText(number=3, secret="ab" * 24, authority=b"-----BEGIN CERTIFICATE-----\n")
    path = tmp_path / "token"
    path.write_text(f"  {token.text()}\n")
    assert JoinText.read(str(path)) == token
    assert JoinText.read("-", standard_input=path) == token
    for text in (
        "",
        "ej1.3",
        token.text()[:30],
        token.text().replace("ej1", "eu1"),
        token.text() + " more",
        "x" * 30_000,
    ):
        path.write_text(text)
        with pytest.raises(InputError, match="the whole line that `eunomia nodes token` printed") as refused:
            JoinText.read(str(path))
        assert "abab" not in str(refused.value)
    with pytest.raises(InputError, match="a file that can be read, or come from standard input"):
        JoinText.read(str(tmp_path / "none"))
    assert fingerprint(b"") == ""


def test_the_fingerprint_of_a_ca_is_that_of_its_first_certificate(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import hashes

    made = make(tmp_path / "tls")
    whole = made.ca.read_bytes() + made.cert.read_bytes()
    digest = certificates_of(made.ca)[0].fingerprint(hashes.SHA256()).hex(":").upper()
    assert fingerprint(whole) == digest


def test_the_files_of_the_node_ca_are_private_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    authority = NodeAuthority(tmp_path)
    assert authority.pem() == authority.pem()
    files = sorted(tmp_path.glob("node-authority/*"))
    assert [path.name for path in files] == ["ca.pem", "key.pem"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    files[0].write_text("none")
    with pytest.raises(InputError, match="restore it from a backup, or delete its folder"):
        authority.pem()
    assert [path.name for path in tmp_path.iterdir()] == ["node-authority"]


# --- the launcher as a process ---------------------------------------------------------------------------------------


class Machine:
    """A launcher that joins with a token from standard input; its folder is its own."""

    def __init__(
        self, cluster: Cluster, node: str, token: str = "", *options: str, folder: str = "", log: str = ""
    ) -> None:
        self.folder = cluster.folder / (folder or node)
        self.folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(self.folder)]
        command += ["--apps", str(cluster.arbiter.settings.apps)]
        command += ["--node-dir", str(self.folder), "--node", node, "--slots", "1", "--cpu-only", "--no-zygote"]
        command += ["--arbiter", cluster.arbiter.address, *(["--join", "-"] if token else []), *options]
        self.log = cluster.folder / f"{log or node}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        assert self.process.stdin is not None
        self.process.stdin.write(token.encode())
        self.process.stdin.close()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)

    def refused(self) -> str:
        assert self.process.wait(PATIENCE_SECONDS) == 2
        return self.log.read_text()


def test_a_launcher_reads_its_token_from_standard_input_and_serves_tls(cluster: Cluster) -> None:
    service = cluster.arbiter.service
    token = cluster.token().text()
    machine = Machine(cluster, "b08", token)
    try:
        eventually(lambda: (node := service.nodes.get("b08")) is not None and node.registered, "it registered")
        address = service.nodes.get("b08").container_manager_address  # type: ignore[union-attr]
        assert token.encode() not in Path(f"/proc/{machine.process.pid}/cmdline").read_bytes()
        assert not [
            path for path in machine.folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()
        ]
        authority = (machine.folder / NODE_CA).read_bytes()
        name = tls_name("b08", 1)
        options = (("grpc.ssl_target_name_override", name),)
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options) as channel:
            call = lrpc.ContainerManagerStub(channel).WatchContainers
            request = lpb.WatchContainersRequest(
                app="ana", node_token=node_token(service.tokens.container_secret("b08"), "ana", "b08")
            )
            assert call(request, timeout=PATIENCE_SECONDS).launcher_id
            forged = node_token(service.tokens.container_secret(NODE), "ana", "b08")
            with pytest.raises(grpc.RpcError) as refused:
                call(lpb.WatchContainersRequest(app="ana", node_token=forged), timeout=PATIENCE_SECONDS)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        machine.end()
        machine = Machine(cluster, "b08")  # it needs no token again
        eventually(lambda: service.nodes.get("b08").registered and not service.nodes.get("b08").left)  # type: ignore[union-attr]
    finally:
        machine.end()


def test_a_launcher_whose_token_another_machine_used_first_exits(cluster: Cluster) -> None:
    token = cluster.token()
    loser, winner = cluster.node("b08"), cluster.node("b09")
    loser.join(token)
    winner.join(token)
    cluster.accept(winner)
    said = Machine(cluster, "b08").refused()
    assert "error: a join token must be valid (`eunomia nodes token` makes another), but got number 1" in said
    assert "node b09 has used it" in said and "removed" not in said
    assert not cluster.node("b08").is_joined, "it joins with the next token that it gets"


def test_a_wrong_token_file_ends_a_launcher_at_once(cluster: Cluster) -> None:
    file = cluster.folder / "operator"
    file.write_text(cluster.arbiter.service.tokens.operator)
    said = Machine(cluster, "b08", "", "--token-file", str(file)).refused()
    assert "run/launcher.token" in said and "a token of role operator" in said
    assert "removed" not in said


def test_a_second_launcher_with_the_name_of_a_live_node_is_refused(cluster: Cluster) -> None:
    service = cluster.arbiter.service
    first = Machine(cluster, "b08", cluster.token().text())
    try:
        eventually(lambda: (node := service.nodes.get("b08")) is not None and node.registered, "it registered")
        thief = Machine(cluster, "b08", cluster.token().text(), folder="thief")
        assert 'a node must have a name of its own (--node; without it the host\'s), but got "b08"' in thief.refused()
        assert service.joined.join_of("b08") == 1
    finally:
        first.end()


def test_a_launcher_without_a_token_or_with_a_wrong_address_is_refused(cluster: Cluster) -> None:
    assert "a launcher must have a token: --join FILE" in Machine(cluster, "b08").refused()
    elsewhere = Machine(cluster, "b09", cluster.token().text(), "--announce", "127.0.0.99", "--listen", "127.0.0.1:0")
    said = elsewhere.refused()
    assert "the node reached the arbiter, the arbiter did not reach the node" in said
    assert "127.0.0.99:" in said
    assert cluster.arbiter.service.nodes.get("b09") is None, "nothing was changed"


def test_a_refused_join_leaves_no_folder_and_a_world_readable_token_file_is_reported(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(cluster.token().text())
    file.chmod(0o644)
    own = tmp_path / "nodes" / "bad"
    command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(own), "--node-dir", str(own)]
    command += ["--apps", str(cluster.arbiter.settings.apps), "--node", "no name", "--slots", "1", "--cpu-only"]
    command += ["--no-zygote", "--arbiter", cluster.arbiter.address, "--join", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 2
    assert "a node's name must be 1 to 100 letters" in ended.stderr
    assert '"join_token.open_to_others"' in ended.stderr and f"chmod 600 {file}" in ended.stderr
    assert not own.exists()
    own.mkdir()
    subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert own.exists(), "a folder that was there before stays"


def test_the_launcher_on_the_machine_of_the_arbiter_gets_a_certificate_with_its_token(
    cluster: Cluster, tmp_path: Path
) -> None:
    service = cluster.arbiter.service
    token = tmp_path / "launcher.token"
    token.write_text(service.tokens.launcher)
    (tmp_path / "address").write_text(f"{cluster.arbiter.address}\n{cluster.certificates.ca}\n")
    access = TokenFileAccess(cluster.arbiter.address, token)
    own = tmp_path / "launcher"
    own.mkdir()
    first = OwnMachine(own, NODE, cluster.arbiter.address, access)
    name = tls_name(NODE, first.number)
    assert names_of(first.certificate)[0] == name
    assert service.joined.join_of(NODE) == first.number
    assert not first.is_joined, "it has no credential: its calls keep the arbiter's token"
    cluster.accept(first, certificate_name=name)
    assert service.joined.certificate_name(NODE) == name
    again = OwnMachine(own, NODE, cluster.arbiter.address, access)
    assert again.number == first.number, "the next launcher is of the same join"
    with pytest.raises(grpc.RpcError) as refused:
        cluster.register(first.metadata(), NODE, certificate_name=name)
    assert "the arbiter did not reach the node" in refused.value.details()
    # Started without --announce, it serves on loopback without TLS again.
    cluster.register(first.metadata(), NODE)
    assert service.joined.certificate_name(NODE) == ""
    # While the arbiter is away, the certificate of before serves; without one there is none.
    token.write_text(service.tokens.launcher)
    gone = "127.0.0.1:1"
    away = TokenFileAccess(gone, token)
    assert OwnMachine(own, NODE, gone, away).shown()["certificate_name"] == name
    (own / CERTIFICATE).unlink()
    with pytest.raises(UnreachableError):
        OwnMachine(own, NODE, gone, away)


def test_tokens_of_apps_and_invalid_tokens_get_no_certificate(cluster: Cluster) -> None:
    admission = lrpc.NodeAdmissionStub(cluster.channel)
    for token in (cluster.arbiter.service.tokens.app("ana"), "launcher:x:00", ""):
        with pytest.raises(grpc.RpcError) as refused:
            admission.JoinNode(lpb.JoinNodeRequest(node=NODE), metadata=cluster.bearer(token))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_slots_can_be_announced_only_if_the_arbiter_is_reachable_from_other_machines() -> None:
    beyond = {"announce": "10.0.0.1", "address": "0.0.0.0:7720"}
    options = ServeFlags(**beyond, port_range="7800-7809").launcher_options
    assert options[-4:] == ("--announce", "10.0.0.1", "--port-range", "7800-7809")
    assert "--announce" not in ServeFlags().launcher_options
    with pytest.raises(InputError, match="where other machines reach the arbiter"):
        _ = ServeFlags(announce="10.0.0.1").launcher_options
    with pytest.raises(InputError, match="must come with slots"):
        _ = ServeFlags(**beyond, no_launcher=True).launcher_options


def test_the_listening_address_of_a_launcher_follows_from_its_options(cluster: Cluster, tmp_path: Path) -> None:
    joined = OwnJoin(tmp_path, "b08", "127.0.0.1:7720")
    chosen = ListenAddress.chosen("127.0.0.1:7720", listen=None, announce="", ports="", joined=joined)
    assert (chosen.host, chosen.ports, chosen.announced) == ("127.0.0.1", (0,), "127.0.0.1")
    chosen = ListenAddress.chosen(
        "127.0.0.1:7720", listen="0.0.0.0:0", announce="b08.lab", ports="7800-7802", joined=joined
    )
    assert (chosen.host, chosen.ports, chosen.announced) == ("0.0.0.0", (7800, 7801, 7802), "b08.lab")
    assert chosen.addresses("b08.lab:7801") == ["0.0.0.0:7801", "0.0.0.0:7800", "0.0.0.0:7802"]
    assert chosen.addresses("b08.lab:9000") == chosen.addresses(None)
    for options, rule in (
        ({"listen": "10.0.0.1:0", "joined": None}, "must listen on a loopback address"),
        ({"listen": "here"}, "must be HOST:PORT"),
        ({"announce": "0.0.0.0"}, "must be of one machine"),
        ({"announce": "bad host"}, 'without a scheme or a port, but got "bad host"'),
        ({"announce": "http://x:1"}, "without a scheme or a port"),
        ({"announce": "10.0.0.1:7800"}, "without a scheme or a port"),
        ({"ports": "9-8"}, "a range of ports"),
        ({"ports": "7800"}, "a range of ports"),
        ({"ports": "1-2", "listen": "127.0.0.1:5"}, "by --listen or by --port-range"),
    ):
        given: dict[str, Any] = {"listen": None, "announce": "", "ports": "", "joined": joined, **options}
        with pytest.raises(InputError, match=rule):
            ListenAddress.chosen("127.0.0.1:7720", **given)


def test_the_error_for_an_address_that_cannot_be_bound_states_the_cause() -> None:
    def why(host: str, ports: tuple[int, ...] = (0,)) -> str:
        return str(not_bound(ListenAddress(host=host, ports=ports, announced=host)))

    assert why("192.0.2.1").startswith("an address to listen on must be one of this machine, but got 192.0.2.1: ")
    assert '"nosuch.invalid": ' in why("nosuch.invalid") and "knows" in why("nosuch.invalid")
    said = "a launcher must find a free port, but got none at 127.0.0.1, ports 7800 to 7801 (--port-range)"
    assert why("127.0.0.1", (7800, 7801)) == said
    for host in ("b08.lab", "10.0.0.1", "::1", "[fe80::1]"):
        chosen = ListenAddress.chosen("127.0.0.1:1", listen="127.0.0.1:0", announce=host, ports="", joined=None)
        assert chosen.announced == host
