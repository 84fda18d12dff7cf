//! A client connection as a test source (specification 6).

use super::timing::Time;
use crate::protocol::Name;

/// The slot number of a connection, as log lines and the dump show it. The driver chooses it.
pub type SourceId = u32;

/// Who connected; only for texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The daemon's descriptor.
    pub fd: i32,
    /// The process that connected, 0 if unknown.
    pub pid: i32,
}

/// One client connection, or what a client left behind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    pub(super) peer: Peer,
    pub(super) pid: i32,
    pub(super) name: Name,
    pub(super) refcount: bool,
    pub(super) renewal: u64,
    pub(super) expire: u64,
    pub(super) dead: bool,
}

impl Source {
    pub(super) const fn new(peer: Peer) -> Self {
        Self { peer, pid: 0, name: Name::EMPTY, refcount: false, renewal: 0, expire: 0, dead: false }
    }

    /// The peer's process since it registered, else 0.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// The registered name.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Whether the daemon is asked to stay.
    #[must_use]
    pub const fn refcount(&self) -> bool {
        self.refcount
    }

    /// The renewal time it gave last.
    #[must_use]
    pub const fn renewal(&self) -> u64 {
        self.renewal
    }

    /// The expiry it gave last; 0: not supervised.
    #[must_use]
    pub const fn expire(&self) -> u64 {
        self.expire
    }

    /// Whether the connection has ended with an expiry pending. Nothing can extend or clear it any more.
    #[must_use]
    pub const fn dead(&self) -> bool {
        self.dead
    }

    /// The daemon's descriptor, -1 if there is none any more.
    #[must_use]
    pub const fn fd(&self) -> i32 {
        if self.dead { -1 } else { self.peer.fd }
    }

    pub(super) fn expires_at(&self) -> Option<Time> {
        (self.expire != 0).then(|| Time::from_seconds(self.expire))
    }

    /// Whether it relies on the device.
    pub(super) const fn needs_device(&self) -> bool {
        self.refcount || self.expire != 0
    }
}
