"""Buckets, against a server on this machine that speaks as the Hub does (``fake_hub``)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from foretrace.errors import InputError
from foretrace.knowledge import sharing as facts
from foretrace.knowledge.sharing import Kind
from foretrace.view.sharing import Hub, Item, SharingError
from view.sharing.fake_hub import TOKEN, Bucket, FakeHub, hub

__all__ = ["hub"]  # the fixture

pytest.importorskip("huggingface_hub")


@pytest.fixture
def bucket(hub: FakeHub) -> Iterator[Hub]:
    """The bucket ada/b, which is not there yet."""
    with Hub("b") as opened:
        opened.look()
        yield opened


def item(folder: Path, path: str, data: bytes = b"{}") -> Item:
    source = folder / path.replace("/", "_")
    source.write_bytes(data)
    return Item(source, path, len(data), Kind.TRACE)


def test_a_file_arrives_byte_by_byte(hub: FakeHub, bucket: Hub, tmp_path: Path):
    data = bytes(range(256)) * 700

    assert bucket.create(private=False) is False
    bucket.upload([item(tmp_path, "traces/a b#?.json", data)])

    assert hub.content("ada/b", "traces/a b#?.json") == data


def test_a_name_without_a_namespace_is_the_users_own(bucket: Hub):
    assert bucket.bucket == "ada/b"
    assert bucket.page.endswith("/buckets/ada/b")


def test_a_bucket_is_private_only_when_asked(hub: FakeHub, bucket: Hub):
    assert bucket.create(private=True) is True
    assert hub.buckets["ada/b"].private


def test_what_is_there_is_told_by_content(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    for path, data in {"same": b"aaaa", "other": b"bbbb", "longer": b"c" * 9, "elsewhere": b"d"}.items():
        hub.put("ada/b", path, data, tmp_path)
    here = {"same": b"aaaa", "other": b"BBBB", "longer": b"c", "new": b"n"}
    mine = [item(tmp_path, path, data) for path, data in here.items()]

    standing = bucket.compare(mine, bucket.look())

    assert [one.path for one in standing.same] == ["same"]
    assert [one.path for one in standing.other] == ["other", "longer"]
    assert [one.path for one in standing.new] == ["new"]


def test_a_long_list_is_read_page_by_page(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    for number in range(7):
        hub.put("ada/b", f"t/{number}", b"x", tmp_path)
    hub.page = 3

    assert len(bucket.look().files) == 7


def test_only_what_is_below_the_prefix_is_looked_at(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    for path in ("run/a", "runs/b", "c"):
        hub.put("ada/b", path, b"x", tmp_path)

    assert list(bucket.look("run/").files) == ["run/a"]


def test_batches_are_small(hub: FakeHub, bucket: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(facts, "BATCH_FILES", 2)
    monkeypatch.setattr(facts, "BATCH_BYTES", 10)
    seen: list[tuple[int, int]] = []
    bucket.create(private=False)

    bucket.upload(
        [item(tmp_path, name, name.encode() * size) for name, size in (("a", 1), ("b", 2), ("c", 3), ("d", 20))],
        lambda *counts: seen.append(counts),
    )

    assert seen == [(0, 4), (2, 4), (3, 4), (4, 4)]
    assert len(hub.asked("/batch")) == 3


def test_links_quote_the_path_and_keep_its_slashes(bucket: Hub):
    path = "traces/64 % #1/ü&x=?.json"

    assert (
        bucket.url(path) == f"{bucket.page}/resolve/traces/{quote('64 % #1', safe='')}/{quote('ü&x=?.json', safe='')}"
    )


def test_deleting_deletes_what_is_named(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    bucket.upload([item(tmp_path, "a"), item(tmp_path, "b", b"[]")])

    bucket.delete(["a"])

    assert list(hub.buckets["ada/b"].files) == ["b"]


@pytest.mark.parametrize("name", ["", "a/b/c", "-x", "a b", "../x", "a/"])
def test_a_name_no_bucket_can_have_is_refused(name: str):
    if name == "a/":
        assert Hub(name).bucket == "a"
        return
    with pytest.raises(InputError, match="is no name of a bucket"):
        Hub(name)


@pytest.mark.parametrize("name", ["hf://buckets/ada/b", "buckets/ada/b", "ada/b"])
def test_the_hubs_own_ways_to_write_a_bucket_are_taken(name: str):
    assert Hub(name).bucket == "ada/b"


FAILURES = {
    # part of the path, status, what the server says → what the sentence says
    "invalid token": ("/api/", 401, "Invalid username or password.", "does not accept the token.*hf auth login"),
    "no permission": ("/batch", 403, "not yours", r"may not write to ada/b \(it says: not yours\)"),
    "no permission to the store": ("xet-write-token", 403, "", "may not write to ada/b"),
    "quota by the Hub's words": ("/batch", 403, "Private repository storage limit reached", "has no room"),
    "quota of the store": ("/cas/v1/xorbs", 413, "", "has no room"),
    "no space": ("/cas/v1/xorbs", 507, "", "has no room"),
    "payment": ("/batch", 402, "pay", r"has no room for this \(it says: pay\)"),
    "conflict": ("/batch", 409, "busy", r"reports a conflict in ada/b \(it says: busy\)"),
    "gone": ("/batch", 404, "", "the bucket ada/b is gone"),
    "the Hub's own fault": ("/batch", 500, "", r"an error of its own \(500\).*run the same command again"),
    "too often": ("/batch", 429, "", "limits how often it may be asked"),
    "refused": ("/batch", 418, "teapot", r"refuses the request \(418\) \(it says: teapot\)"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_goes_wrong_is_one_sentence_and_never_the_token(
    case: str, hub: FakeHub, bucket: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    part, status, said, sentence = FAILURES[case]
    monkeypatch.setattr(facts, "RATE_LIMIT_PATIENCE_S", 2 * facts.RATE_LIMIT_WAIT_S)
    bucket.create(private=False)
    hub.fail(part, status, said)

    with pytest.raises(SharingError, match=sentence) as caught:
        bucket.upload([item(tmp_path, f"{case}.json", case.encode())])

    assert TOKEN not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert bucket.uploaded == []


@pytest.mark.parametrize("part", ["/batch", "xet-write-token"])
@pytest.mark.parametrize("status", [401, 403, 409, 418, 507])
@pytest.mark.parametrize(
    "said", ["no rights for {token}", f"{'long ' * 57}{{token}} is cut", "hf_someoneElses0123456789 is not {token}"]
)
def test_a_token_that_the_server_says_again_is_not_shown(
    said: str, status: int, part: str, hub: FakeHub, bucket: Hub, tmp_path: Path
):
    bucket.create(private=False)
    hub.fail(part, status, said.format(token=TOKEN))

    with pytest.raises(SharingError) as caught:
        bucket.upload([item(tmp_path, "t.json", f"{part}{status}{said}".encode())])

    assert TOKEN[:6] not in str(caught.value)
    assert "someoneElses" not in str(caught.value)


def test_a_token_of_no_known_form_is_not_shown_either(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "ownHubsToken/42")
    hub.fail("/api/", 403, "ownHubsToken/42 (ownHubsToken%2F42) may not")

    with Hub("ada/b") as bucket, pytest.raises(SharingError, match=r"\(it says: \*\*\* \(\*\*\*\) may not\)"):
        bucket.look()


@pytest.mark.parametrize(
    "login", ["ada:hunter2pw", "hunter2pw", "ada:p@hunter2pw", "ada:hunter2pw%2F", "a:hunter2pw/x"], ids=range(5)
)
@pytest.mark.parametrize("scheme", ["http://", "https://", ""])
def test_a_login_in_the_address_is_nowhere_to_be_read(login: str, scheme: str, hub: FakeHub):
    with Hub("ada/b", endpoint=f"{scheme}{login}@127.0.0.1:9") as bucket:
        with pytest.raises(SharingError) as caught:
            bucket.look()
        said = f"{caught.value} {bucket.page} {bucket.url('t.json')} {bucket.endpoint}"

    assert "hunter2pw" not in said
    assert "127.0.0.1:9" in str(caught.value)


def test_a_place_that_cannot_be_named_is_told_before_anything_is_sent(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    odd.mkdir()
    hub.requests.clear()

    with pytest.raises(InputError, match=r"odd\?: the name of this folder is not valid UTF-8.*rename it"):
        bucket.upload([item(odd, "t.json")])

    assert hub.requests == []


def test_files_that_the_hub_refuses_one_by_one_do_not_hide_the_others(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    failed = {"success": False, "failed": [{"path": "a", "error": "bad name"}]}
    hub.fail("/batch", 200)
    hub.rules[0].body = failed

    with pytest.raises(SharingError, match=r"\(it says: bad name\)"):
        bucket.upload([item(tmp_path, "a"), item(tmp_path, "b", b"[]")])

    assert [one.path for one in bucket.uploaded] == ["b"]


@pytest.mark.parametrize(
    ("headers", "waited"),
    [({"ratelimit": '"api";r=0;t=55'}, 56), ({"Retry-After": "12"}, 13), ({}, facts.RATE_LIMIT_WAIT_S)],
)
def test_it_waits_as_long_as_the_hub_asks(
    headers: dict[str, str], waited: float, hub: FakeHub, bucket: Hub, tmp_path: Path
):
    bucket.create(private=False)
    hub.fail("/batch", 429, headers=headers, times=1)

    bucket.upload([item(tmp_path, "a", str(headers).encode())])

    assert hub.waits == [waited]
    assert list(hub.buckets["ada/b"].files) == ["a"]


def test_it_does_not_wait_for_hours(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    hub.fail("/batch", 429, headers={"Retry-After": "7200"})

    with pytest.raises(SharingError, match="asks to wait 7200 s; run the same command again later"):
        bucket.upload([item(tmp_path, "a")])

    assert hub.waits == []


def test_without_a_token_it_says_where_to_get_one(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_TOKEN")

    with (
        Hub("ada/b") as bucket,
        pytest.raises(SharingError, match="there is no token for the Hub; log in with `hf auth"),
    ):
        bucket.look()

    assert hub.requests == []


@pytest.mark.parametrize("token", ["hf_two words", "hf_ünicode", "hf_\x01control"])
def test_a_token_that_cannot_be_sent_is_not_shown(token: str, hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", token)

    with Hub("ada/b") as bucket, pytest.raises(SharingError, match="characters that no token has") as caught:
        bucket.look()

    assert token not in str(caught.value)
    assert hub.requests == []


def test_offline_mode_is_respected(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with Hub("ada/b") as bucket, pytest.raises(SharingError, match="HF_HUB_OFFLINE is set"):
        bucket.look()


def test_without_a_network_it_says_so_at_once(hub: FakeHub):
    refused = pytest.raises(SharingError, match=r"http://127\.0\.0\.1:9 cannot be reached .*check the network")

    with Hub("ada/b", endpoint="http://127.0.0.1:9") as bucket, refused:
        bucket.look()

    assert hub.waits == []


def test_a_name_that_does_not_resolve_is_told(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    def no_name(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)

    refused = pytest.raises(SharingError, match=r"hub\.invalid cannot be reached \(.*Name or service not known\)")

    with Hub("ada/b", endpoint="http://hub.invalid") as bucket, refused:
        bucket.look()


def test_an_endpoint_that_is_no_address_is_told(hub: FakeHub):
    with Hub("ada/b", endpoint="hub") as bucket, pytest.raises(SharingError, match="HF_ENDPOINT is hub, which is no"):
        bucket.look()


def test_a_network_that_goes_away_is_told(hub: FakeHub, bucket: Hub, tmp_path: Path):
    bucket.create(private=False)
    bucket.api.endpoint = "http://127.0.0.1:9"

    with pytest.raises(SharingError, match=r"cannot be reached.*run the same command again"):
        bucket.upload([item(tmp_path, "away", b"away")])


def test_a_server_that_does_not_answer_is_not_waited_for(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    gate = threading.Event()
    monkeypatch.setattr(facts, "RESPONSE_TIMEOUT_S", 0.05)
    hub.fail("/api/buckets", 200, before=lambda: gate.wait(5))

    try:
        with Hub("ada/b") as bucket, pytest.raises(SharingError, match="does not answer in time"):
            bucket.look()
    finally:
        gate.set()


def test_a_server_that_is_no_hub_is_told(hub: FakeHub):
    hub.fail("/api/buckets", 200)

    with Hub("ada/b") as bucket, pytest.raises(SharingError, match="does not answer as the Hub's buckets do"):
        bucket.look()


def test_somebody_elses_bucket_is_found_and_not_written_to(hub: FakeHub, tmp_path: Path):
    hub.buckets["eve/b"] = Bucket(private=False)
    hub.fail("/batch", 403, "no write access")

    with Hub("eve/b") as bucket:
        assert bucket.look().exists
        with pytest.raises(SharingError, match="may not write to eve/b"):
            bucket.upload([item(tmp_path, "a")])


def test_a_namespace_that_is_not_ones_own_is_refused(hub: FakeHub):
    with Hub("eve/b") as bucket:
        assert not bucket.look().exists
        with pytest.raises(SharingError, match="may not write to eve/b"):
            bucket.create(private=False)


def test_huggingface_hub_is_left_as_it_was(hub: FakeHub):
    from huggingface_hub.utils import _http as http

    before = http._GLOBAL_CLIENT_FACTORY

    with Hub("b") as bucket:
        bucket.look()
        assert before is not http._GLOBAL_CLIENT_FACTORY

    assert before is http._GLOBAL_CLIENT_FACTORY
