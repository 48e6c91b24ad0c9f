"""What goes wrong between here and the Hub, in one sentence each that says what to do."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote, unquote

from foretrace.errors import SharingError
from foretrace.knowledge import sharing as facts

__all__ = ["RateLimitedError", "explained", "no_token", "secrets_of", "status_of", "without_login"]

_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token that may write (huggingface.co/settings/tokens)"

_MASK = "***"
_SHORTEST_SECRET = 4


class RateLimitedError(Exception):
    """The Hub asks to wait; ``seconds`` is how long, None where it does not say."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__("rate limited")
        self.seconds = seconds


def status_of(error: BaseException) -> int | None:
    """The HTTP status an error carries, from huggingface_hub or in the words of hf_xet; None for none."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return status
    found = facts.HTTP_STATUS.search(str(error))
    return int(found["status"]) if found else None


def no_token() -> SharingError:
    """There is nothing to log in with."""
    return SharingError(f"there is no token for the Hub; {_LOG_IN}")


def without_login(endpoint: str) -> str:
    """The address without NAME:PASSWORD@, and without what follows a question mark."""
    scheme, mark, rest = endpoint.partition("://")
    if not mark:
        scheme, rest = "", endpoint
    rest = rest.partition("?")[0].partition("#")[0]
    return f"{scheme}{mark}{rest.rpartition('@')[2]}".rstrip("/")


def secrets_of(endpoint: str) -> frozenset[str]:
    """The login in an address, whole and in its parts, as far as it is long enough to be one."""
    login = (endpoint.partition("://")[2] or endpoint).rpartition("@")[0]
    name, _, password = login.partition(":")
    return frozenset(part for part in (login, password or name) if len(part) >= _SHORTEST_SECRET)


def explained(error: Exception, bucket: str, endpoint: str, secrets: Collection[str] = ()) -> SharingError:
    """The error as one sentence about ``bucket``, without any of the ``secrets``, nor what looks like one.

    Of huggingface_hub's own message it holds nothing but the words of the server, which may say the token again.
    """
    return SharingError(_masked(_sentence(error, bucket, endpoint, secrets), secrets))


def _masked(text: str, secrets: Collection[str]) -> str:
    forms = {form for one in secrets for form in (one, quote(one, safe=""), unquote(one)) if form}
    for secret in sorted(forms, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    text = facts.URL_LOGIN.sub(f"{_MASK}@", text)
    return facts.CREDENTIAL.sub(_MASK, text)


def _sentence(error: Exception, bucket: str, endpoint: str, secrets: Collection[str]) -> str:
    kind = type(error).__name__
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    status = status_of(error)
    said = _words_of_server(error, secrets)
    if isinstance(error, RateLimitedError) or status == 429:
        wait = getattr(error, "seconds", None)
        told = f" and asks to wait {wait:.0f} s" if wait else ""
        return f"the Hub limits how often it may be asked{told}; run the same command again later"
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set, so nothing is sent to the Hub; unset it to share"
    if status in facts.QUOTA_STATUSES or (status in (400, 403, 422) and facts.QUOTA_WORDS.search(said or str(error))):
        return (
            f"the storage of {bucket} has no room for this{_quoted(said)}; delete something in it, share fewer files "
            "(--include), or use another namespace"
        )
    if status == 401:
        return f"the Hub does not accept the token{_quoted(said)}; {_LOG_IN}"
    if status == 403:
        return (
            f"the token may not write to {bucket}{_quoted(said)}; use one with write access, or a bucket of your own "
            "(--bucket NAME)"
        )
    if status == 404:
        return (
            f"the bucket {bucket} is gone, or this token may not see it; check its name at {endpoint}/buckets/{bucket}"
        )
    if status == 409:
        return f"the Hub reports a conflict in {bucket}{_quoted(said)}: something else writes there; run it again"
    if status is not None and status >= 500:
        return f"the Hub answers with an error of its own ({status}); run the same command again later"
    if status is not None:
        return f"the Hub refuses the request ({status}){_quoted(said)}"
    if kind in ("UnsupportedProtocol", "InvalidURL"):
        return f"HF_ENDPOINT is {endpoint}, which is no address; write it with https://, or unset it"
    if _is_timeout(error):
        return f"{endpoint} does not answer in time; check the network, then run the same command again"
    if _is_network(error):
        why = _reason(error, secrets)
        return f"{endpoint} cannot be reached ({why}); check the network, then run the same command again"
    return f"{endpoint} does not answer as the Hub's buckets do ({kind}); check HF_ENDPOINT and update huggingface_hub"


def _words_of_server(error: Exception, secrets: Collection[str]) -> str:
    """What the server says about its refusal, on one line; "" where it says nothing."""
    failures = getattr(error, "failures", None)
    if failures:
        return _masked(" ".join(str(failures[0].get("error", "")).split()), secrets)
    response = getattr(error, "response", None)
    said = getattr(error, "server_message", None)
    if not said and response is not None:
        said = response.headers.get("X-Error-Message")
    # Masked before it is cut: a part of a token is one as well.
    return _masked(" ".join(str(said or "").split()), secrets)[:300].rstrip(".")


def _quoted(said: str) -> str:
    return f" (it says: {said})" if said else ""


def _is_timeout(error: BaseException) -> bool:
    return any("Timeout" in one.__name__ for one in type(error).__mro__) or "timed out" in str(error).lower()


def _is_network(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or any(
        one.__name__ in ("NetworkError", "TransportError", "ProxyError") for one in type(error).__mro__
    )


def _reason(error: BaseException, secrets: Collection[str]) -> str:
    text = _masked(" ".join(str(error).split()), secrets)
    # hf_xet puts the whole address into its message, which says nothing that is not said already.
    return (
        text.partition(" for url")[0].removeprefix("Network error: ").removeprefix("Request middleware error: ")[:160]
    )
