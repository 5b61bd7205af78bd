"""The keys of a log: what makes an entry, a snapshot or a tick authentic.

Without a key the chain of entries is a plain SHA-1, which anyone can compute. With a key it is a keyed BLAKE2b
(RFC 7693), so only a process that has the key can continue the chain. A key also signs snapshots and ticks. Each of the
three uses has a key of its own, derived from the secret, so that a signature for one use is none for another.

A process has a list of keys. The first one signs, and every one is accepted. So a key can be exchanged while all
processes run. The word `none` in the list stands for entries that nobody signed: with it a running log gets its first
key.
"""

import hashlib
import hmac
from collections.abc import Sequence
from enum import IntEnum

from arranger.errors import DamagedEntry, ForgedEntry
from arranger.events.log import Position

#: In a list of keys: no key.
NO_KEY = "none"
#: The least number of characters of a key: a shorter one can be guessed.
KEY_CHARS = 32
#: A chain has as many bytes with a key as without one, so it fits into the same records.
_CHAIN_BYTES = 20
_DERIVED_BYTES = 32
_SIGNATURE_BYTES = 20


def next_chain(previous: str, payload: bytes) -> str:
    """The chain after an entry: SHA-1 in hex over the chain before it and its payload. It guards against accidents
    and lost tails, not against forgery."""
    return hashlib.sha1(previous.encode() + payload, usedforsecurity=False).hexdigest()


class Authenticity(IntEnum):
    """What is known of who wrote a log, the least first."""

    #: Entries are not signed.
    NONE = 0
    #: Entries are signed, and the reader has no key.
    UNCHECKED = 1
    #: Signatures are checked, and entries without one are accepted too.
    PARTLY = 2
    #: Every entry is signed with a key of the reader.
    CHECKED = 3


class _Key:
    """The three keys that are derived from one secret."""

    def __init__(self, secret: str) -> None:
        self._entries = _keyed(secret, b"arranger entry", _CHAIN_BYTES)
        self._snapshots = _keyed(secret, b"arranger snap", _SIGNATURE_BYTES)
        self._ticks = _keyed(secret, b"arranger tick", _SIGNATURE_BYTES)

    def chain(self, before: Position, count: int, payload: bytes) -> str:
        # The epoch and the offset are covered, so an entry is authentic at its own place only.
        hashed = self._entries.copy()
        hashed.update(f"{before.epoch}:{before.offset}:{count}:{before.chain}:".encode())
        hashed.update(payload)
        return hashed.hexdigest()

    def snapshot(self, position: Position, content: bytes) -> str:
        hashed = self._snapshots.copy()
        hashed.update(f"{position.epoch}:{position.offset}:{position.chain}:".encode())
        hashed.update(content)
        return hashed.hexdigest()

    def tick(self, *parts: str) -> str:
        hashed = self._ticks.copy()
        hashed.update("\x00".join(parts).encode())
        return hashed.hexdigest()


def _keyed(secret: str, use: bytes, size: int) -> "hashlib.blake2b":
    """A hash with the key that is derived from a secret for one use, which is the `person` of the derivation."""
    derived = hashlib.blake2b(secret.encode(), digest_size=_DERIVED_BYTES, person=use).digest()
    return hashlib.blake2b(key=derived, digest_size=size)


class LogKeys:
    """The keys that a process has, the signing one first. Without any, entries have the plain chain.

    With `unchecked` the log was signed with keys that this process doesn't have: everything is accepted unread.
    """

    def __init__(self, secrets: Sequence[str] = (), *, unchecked: bool = False) -> None:
        named = tuple(dict.fromkeys(secrets)) or (NO_KEY,)
        self._keys = [_Key(secret) if secret != NO_KEY else None for secret in named]
        #: Whether entries can't be checked, because this process lacks the key.
        self.unchecked = unchecked

    @property
    def present(self) -> bool:
        """Whether there is a key at all."""
        return any(key is not None for key in self._keys)

    @property
    def signs(self) -> bool:
        """Whether what this process writes is signed."""
        return self._keys[0] is not None

    @property
    def strict(self) -> bool:
        """Whether nothing is accepted without a signature."""
        return None not in self._keys

    @property
    def signed(self) -> bool:
        """Whether the log that these keys check may have signed entries."""
        return self.present or self.unchecked

    @property
    def authenticity(self) -> Authenticity:
        """What is known of the entries that these keys accepted."""
        if not self.present:
            return Authenticity.UNCHECKED if self.unchecked else Authenticity.NONE
        return Authenticity.CHECKED if self.strict else Authenticity.PARTLY

    def of_file(self, *, signed: bool) -> "LogKeys":
        """The keys that check a file. Nothing acts on a file, so one that isn't signed is read by its plain chain."""
        if not signed:
            return UNKEYED
        return self if self.present else UNCHECKED

    def chain(self, before: Position, count: int, payload: bytes) -> str:
        """The chain of an entry of `count` events that this process appends after a position."""
        return _chain(self._keys[0], before, count, payload)

    def follows(self, before: Position, count: int, chain: str, payload: bytes) -> bool:
        """Whether a chain is that of an entry after a position, by any of the keys."""
        return self.unchecked or any(_same(_chain(key, before, count, payload), chain) for key in self._keys)

    def snapshot_signature(self, position: Position, content: bytes) -> str:
        """The signature of a snapshot; empty if this process doesn't sign."""
        key = self._keys[0]
        return key.snapshot(position, content) if key is not None else ""

    def accepts_snapshot(self, position: Position, content: bytes, signature: str) -> bool:
        """Whether a snapshot has a signature by any of the keys."""
        return self.unchecked or any(
            key is None or _same(key.snapshot(position, content), signature) for key in self._keys
        )

    def tick_signature(self, *parts: str) -> str:
        """The signature of a tick; empty if this process doesn't sign."""
        key = self._keys[0]
        return key.tick(*parts) if key is not None else ""

    def accepts_tick(self, signature: str, *parts: str) -> bool:
        """Whether a tick has a signature by any of the keys."""
        return any(key is None or _same(key.tick(*parts), signature) for key in self._keys)

    def refusal(self, offset: int, reason: str) -> DamagedEntry:
        """The error for an entry or a snapshot at an offset that isn't what was written there. With a key it may be
        forged, and without one it can only be damaged."""
        return ForgedEntry(offset, reason) if self.present else DamagedEntry(offset, reason)


def _same(computed: str, given: str) -> bool:
    """Whether a signature is the computed one. The time that this takes doesn't tell where they differ."""
    return hmac.compare_digest(computed.encode(), given.encode())


def _chain(key: _Key | None, before: Position, count: int, payload: bytes) -> str:
    return key.chain(before, count, payload) if key is not None else next_chain(before.chain, payload)


#: No key: the plain chain.
UNKEYED = LogKeys()
#: For logs that were signed, in a process without the key.
UNCHECKED = LogKeys(unchecked=True)
