"""An operator of NATS with one account and one user: signed tokens and a file of credentials.

Formats: https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt and
https://github.com/nats-io/nkeys
"""

import base64
import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import nkeys

_OPERATOR, _ACCOUNT, _USER = 14 << 3, 0, 20 << 3
_SEED = 18 << 3
_LIMITS = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
_STORES = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
"""The limits of JetStream, which the system's account may not have."""


class _Key:
    """A new pair of keys of a kind."""

    def __init__(self, kind: int) -> None:
        raw = bytes([_SEED | kind >> 5, (kind & 31) << 3]) + os.urandom(32)
        self.seed = _base32(raw + _crc16(raw).to_bytes(2, "little"))
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public = bytes(self._pair.public_key).decode()

    def token(self, subject: str, kind: str, **claims: Any) -> str:
        """A token about the subject, signed with this key."""
        nats = {"type": kind, "version": 2, **claims}
        payload = {"iat": int(time.time()), "iss": self.public, "sub": subject, "nats": nats}
        payload["jti"] = _base32(sha256(json.dumps(payload).encode()).digest())
        parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, payload]
        signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_base64(bytes(self._pair.sign(signed.encode())))}"


def operator(credentials: Path) -> str:
    """What the server's configuration needs to let in only the user of the new credentials."""
    owner, account, system, user = (_Key(each) for each in (_OPERATOR, _ACCOUNT, _ACCOUNT, _USER))
    token = account.token(user.public, "user", subs=-1, data=-1, payload=-1)
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    limits = {**_LIMITS, "wildcards": True}
    accounts = "\n".join(
        f"{each.public}: {owner.token(each.public, 'account', limits=given)}"
        for each, given in ((account, {**limits, **_STORES}), (system, limits))
    )
    return (
        f"operator: {owner.token(owner.public, 'operator')}\nsystem_account: {system.public}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{accounts}\n}}"
    )


def _crc16(data: bytes) -> int:
    """CRC-16/XMODEM."""
    found = 0
    for byte in data:
        found ^= byte << 8
        for _ in range(8):
            found = (found << 1 ^ (0x1021 if found & 0x8000 else 0)) & 0xFFFF
    return found


def _base32(data: bytes) -> str:
    return base64.b32encode(data).rstrip(b"=").decode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
