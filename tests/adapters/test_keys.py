"""The file of keys beside a log, and the ring of keys that a running server accepts (D-18)."""

import hashlib
import hmac
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnlog.adapters.keys import KeyFile, KeyRing
from turnlog.domain.errors import InvalidRequestError, NotFoundError, StorageError
from turnlog.domain.owners import Caller, Role

NOW_S = 1_795_000_000
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    """The key file of a log that has none yet."""
    return KeyFile(tmp_path / "turnlog.db")


# ── the file ──────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_long_random_and_nowhere_in_the_file(file: KeyFile) -> None:
    """D-18: 256 random bits, of which the file has the SHA-256."""
    made = [file.add("alice", Role.CLIENT, now_s=NOW_S) for _ in range(20)]

    texts = [text for _, text in made]
    content = file.path.read_text()
    assert len({text.removeprefix("tl_") for text in texts}) == 20
    assert {len(text) for text in texts} == {len("tl_") + 43}
    assert [key.sha256 for key, _ in made] == [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    assert not any(text.removeprefix("tl_")[:8] in content for text in texts)


def test_keys_are_listed_in_the_order_they_were_made(file: KeyFile) -> None:
    assert file.read() is None

    made = [
        file.add(owner, role, now_s=NOW_S + number)[0]
        for number, (owner, role) in enumerate(
            [("bob", Role.CLIENT), ("ada", Role.AUDITOR), ("alice@x.example", Role.OPERATOR)]
        )
    ]

    assert file.read() == tuple(made)
    assert [(key.owner, key.role, key.made_s - NOW_S) for key in made] == [
        ("bob", Role.CLIENT, 0),
        ("ada", Role.AUDITOR, 1),
        ("alice@x.example", Role.OPERATOR, 2),
    ]
    assert len({key.id for key in made}) == 3


def test_a_key_that_is_not_there_cannot_be_revoked(file: KeyFile) -> None:
    with pytest.raises(NotFoundError, match="Key 'key_0' not found"):
        file.revoke("key_0")
    kept, _ = file.add("alice", Role.CLIENT, now_s=NOW_S)

    with pytest.raises(NotFoundError, match="Key 'key_0' not found"):
        file.revoke("key_0")

    assert file.read() == (kept,)
    assert file.revoke(kept.id) == (kept, 0)
    assert file.read() == ()


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a\n", ".", "-x", "é", "x" * 65])
def test_what_is_no_name_owns_no_key(file: KeyFile, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="Invalid owner"):
        file.add(name, Role.CLIENT, now_s=NOW_S)

    assert file.read() is None


def test_keys_that_are_made_at_once_are_all_kept(file: KeyFile) -> None:
    """Each through a file of its own, as commands that run at the same time have it."""

    def add(number: int) -> str:
        return KeyFile(file.path.with_suffix("")).add(f"o{number}", Role.CLIENT, now_s=NOW_S)[0].id

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(add, range(40)))

    assert {key.id for key in file.read() or ()} == made
    assert len(made) == 40
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_keys_of_another_user_are_not_believed(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may put a file there could make keys with it; root may do that anyway."""
    file.add("alice", Role.CLIENT, now_s=0)
    owner = file.path.stat().st_uid
    os.chown(file.path, owner + 1 if os.getuid() == 0 else owner, -1)
    if os.getuid() != 0:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(StorageError, match="is another user's"):
        file.read()


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_only_its_owner_reads_the_file_whatever_the_umask(file: KeyFile, umask: int) -> None:
    before = os.umask(umask)
    try:
        file.add("alice", Role.CLIENT, now_s=NOW_S)
    finally:
        os.umask(before)

    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(file: KeyFile, mode: int) -> None:
    file.add("alice", Role.CLIENT, now_s=NOW_S)
    file.path.chmod(mode)

    with pytest.raises(StorageError, match="is writable by others"):
        file.read()
    with pytest.raises(StorageError, match="is writable by others"):
        file.add("mallory", Role.OPERATOR, now_s=NOW_S)
    with pytest.raises(StorageError, match="is writable by others"):
        KeyRing(file)


def test_a_file_behind_a_link_is_refused(file: KeyFile, tmp_path: Path) -> None:
    elsewhere = KeyFile(tmp_path / "other.db")
    elsewhere.add("mallory", Role.OPERATOR, now_s=NOW_S)
    file.path.symlink_to(elsewhere.path)

    with pytest.raises(StorageError, match="could not be read"):
        file.read()
    with pytest.raises(StorageError, match="could not be read"):
        file.add("alice", Role.CLIENT, now_s=NOW_S)


def test_a_link_to_a_log_leads_to_the_keys_of_the_log(file: KeyFile, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file.path.with_suffix(""))

    assert KeyFile(link).path == file.path


def kept(**fields: object) -> str:
    """The content of a file with one key, whole but for these fields."""
    key = {"id": "key_1", "owner": "a", "role": "client", "made_s": 0, "sha256": "0" * 64}
    return json.dumps({"keys": [key | fields]})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        kept(sha256=EMPTY),
        '{"keys":[{"id":"k","owner":"a","role":"client","made_s":0,"sha256":""}]}',
        kept(role="admin"),
        kept(owner=""),
    ],
)
def test_a_damaged_file_or_an_empty_key_is_refused(file: KeyFile, content: str) -> None:
    """D-18: also a key that is the hash of nothing, which every request without a key would have."""
    file.path.write_text(content)
    file.path.chmod(0o600)

    with pytest.raises(StorageError, match="are damaged"):
        file.read()
    with pytest.raises(StorageError, match="are damaged"):
        file.add("alice", Role.CLIENT, now_s=NOW_S)
    with pytest.raises(StorageError, match="are damaged"):
        KeyRing(file)
    assert file.path.read_text() == content


def test_a_whole_file_is_read(file: KeyFile) -> None:
    """The one that the files above are but for one field."""
    file.path.write_text(kept())
    file.path.chmod(0o600)

    assert [key.id for key in file.read() or ()] == ["key_1"]


# ── the ring ──────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_known_from_the_moment_it_is_made_to_the_moment_it_is_revoked(file: KeyFile) -> None:
    ring = KeyRing(file)
    assert (ring.in_use, ring.find("")) == (False, None)

    alice, alices = file.add("alice", Role.CLIENT, now_s=NOW_S)
    assert ring.in_use
    assert ring.find(alices) == Caller("alice", frozenset({Role.CLIENT}), alice.id)
    ada, adas = file.add("ada", Role.AUDITOR, now_s=NOW_S)
    assert ring.find(adas) == Caller("ada", frozenset({Role.AUDITOR}), ada.id)
    assert ring.find("") is None
    assert ring.find(f"{alices}x") is None
    assert ring.find(alice.sha256) is None
    assert (ring.holds(alice.id), ring.holds(ada.id)) == (True, True)

    file.revoke(alice.id)
    assert ring.find(alices) is None
    assert (ring.holds(alice.id), ring.holds(ada.id)) == (False, True)
    file.revoke(ada.id)
    assert (ring.find(adas), ring.holds(ada.id), ring.in_use) == (None, False, True)


def test_a_log_in_memory_has_no_keys() -> None:
    ring = KeyRing(None)

    assert (ring.in_use, ring.find(""), ring.holds("")) == (False, None, False)


def test_keys_stay_in_use_when_their_file_is_gone(file: KeyFile) -> None:
    """Closed for good (decision 12): who can delete the file does not open the server by that."""
    key, text = file.add("alice", Role.CLIENT, now_s=NOW_S)
    ring = KeyRing(file)

    file.path.unlink()

    assert (ring.find(text), ring.holds(key.id), ring.in_use) == (None, False, True)
    _, another = file.add("alice", Role.CLIENT, now_s=NOW_S)
    assert ring.find(another)


def test_keys_that_were_all_revoked_before_the_start_are_in_use(file: KeyFile) -> None:
    file.revoke(file.add("alice", Role.CLIENT, now_s=NOW_S)[0].id)

    assert KeyRing(file).in_use


def test_a_file_that_cannot_be_read_any_more_lets_nobody_in_and_is_told_once(
    file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    key, text = file.add("alice", Role.CLIENT, now_s=NOW_S)
    ring = KeyRing(file)

    file.path.write_text("{}")

    for _ in range(3):
        assert (ring.find(text), ring.holds(key.id), ring.in_use) == (None, False, True)
    (told,) = caplog.messages
    assert str(file.path) in told
    assert told.endswith("Rejecting every request until this is fixed.")


def test_a_file_that_others_may_write_from_now_on_lets_nobody_in(file: KeyFile) -> None:
    _, text = file.add("alice", Role.CLIENT, now_s=NOW_S)
    ring = KeyRing(file)
    assert ring.find(text)

    file.path.chmod(0o622)

    assert (ring.find(text), ring.in_use) == (None, True)


def test_the_same_work_is_done_for_every_key(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-18: every hash is compared in constant time, whether and wherever one fits."""
    texts = [file.add(f"o{number}", Role.CLIENT, now_s=NOW_S)[1] for number in range(5)]
    ring = KeyRing(file)
    compared: list[tuple[str, str]] = []
    compare = hmac.compare_digest

    def counting(one: str, other: str) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]

    for text in (*texts, "tl_unknown", "", "\udce4"):
        compared.clear()
        ring.find(text)
        sent = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        assert compared == [(known, sent) for known in hashes]
