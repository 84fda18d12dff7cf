//! The request record: sector 1 of a resource area (disk-format.md 7.3), and what follows from one that was read
//! (lease-algorithms.md 8.1). Who reads and writes it is elsewhere: it takes no lease.

use super::RawLeader;
use crate::code::ReturnCode;
use core::mem::size_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Magic of a request record.
pub const REQUEST_MAGIC: u32 = 0x0829_2011;
/// Version 1.1.
pub const REQUEST_VERSION: u32 = 0x0001_0001;

/// Another host's wish to get a lease. No checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub struct RequestRecord {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// [`REQUEST_VERSION`]; only the major part matters.
    pub version: U32,
    /// Lease version asked for, 0 = no request.
    pub lver: U64,
    /// 0 none, 1 force, 2 graceful.
    pub force_mode: U32,
    /// Written as zero, ignored when read: the original leaves memory contents here.
    pub padding: U32,
}

const _: () = assert!(size_of::<RequestRecord>() == 24);

impl RequestRecord {
    /// No request.
    #[must_use]
    pub fn none() -> Self {
        Self {
            magic: REQUEST_MAGIC.into(),
            version: REQUEST_VERSION.into(),
            lver: 0.into(),
            force_mode: 0.into(),
            padding: 0.into(),
        }
    }

    /// Decodes a request sector.
    #[must_use]
    pub fn from_sector(sector: &[u8]) -> Self {
        super::prefix(sector)
    }

    /// Writes a whole sector, zeros in all padding.
    pub fn encode(&self, sector: &mut [u8]) {
        sector.fill(0);
        let record = Self { padding: 0.into(), ..*self };
        sector[..size_of::<Self>()].copy_from_slice(record.as_bytes());
    }

    /// Whether it is a request record.
    ///
    /// # Errors
    /// No record, or one of an unknown version.
    pub fn check(&self) -> Result<(), RequestError> {
        let (magic, version) = (self.magic.get(), self.version.get());
        if magic != REQUEST_MAGIC {
            return Err(RequestError::Magic { found: magic });
        }
        if version >> 16 != REQUEST_VERSION >> 16 {
            return Err(RequestError::Version { found: version });
        }
        Ok(())
    }
}

/// What somebody asks of the owner of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wish {
    /// The version wanted; 0 with [`Wish::next`]: the one after the owner's.
    pub lver: u64,
    /// How the owner's process is to be told.
    pub force_mode: u32,
    /// `SANLK_REQUEST_NEXT_LVER`.
    pub next: bool,
}

impl Wish {
    /// Whether it takes back what was asked for, whoever owns the lease: no leader is looked at.
    #[must_use]
    pub fn clears(&self) -> bool {
        self.lver == 0 && self.force_mode == 0
    }

    /// The version to ask for, as the leader is a good one; `None`: nobody owns the lease, there is nothing to ask for.
    ///
    /// # Errors
    /// The lease has that version already.
    pub fn version(&self, leader: &RawLeader) -> Result<Option<u64>, RequestError> {
        if leader.timestamp.get() == 0 {
            return Ok(None);
        }
        let held = leader.lver.get();
        let wanted = if self.next && self.lver == 0 { held.saturating_add(1) } else { self.lver };
        if held >= wanted { Err(RequestError::Old { wanted, held }) } else { Ok(Some(wanted)) }
    }

    /// The record that asks for this version, in the place of the one found.
    ///
    /// # Errors
    /// What was found is no request record, or asks for a later version.
    pub fn record(&self, version: u64, found: &RequestRecord) -> Result<RequestRecord, RequestError> {
        found.check()?;
        if !self.clears() && found.lver.get() > version {
            return Err(RequestError::Later { wanted: version, found: found.lver.get() });
        }
        let (version, force_mode) = (version.into(), self.force_mode.into());
        Ok(RequestRecord { version: REQUEST_VERSION.into(), lver: version, force_mode, ..*found })
    }
}

/// Why a request cannot be made, or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestError {
    /// No request record where one is expected.
    #[error("no request record: magic is {found:#x}, expected {REQUEST_MAGIC:#x}; is the sector size right?")]
    Magic {
        /// On disk.
        found: u32,
    },
    /// A request record of an unknown version.
    #[error("request record of version {found:#x}, expected {REQUEST_VERSION:#x}")]
    Version {
        /// On disk.
        found: u32,
    },
    /// The lease has the version asked for, or a later one.
    #[error("version {wanted} was asked for, the lease has {held} already")]
    Old {
        /// Asked for.
        wanted: u64,
        /// On disk.
        held: u64,
    },
    /// Somebody asked for a later version.
    #[error("version {wanted} was asked for, somebody has asked for {found} already")]
    Later {
        /// Asked for.
        wanted: u64,
        /// On disk.
        found: u64,
    },
}

impl From<&RequestError> for ReturnCode {
    fn from(e: &RequestError) -> Self {
        match e {
            RequestError::Magic { .. } => Self::REQUEST_MAGIC,
            RequestError::Version { .. } => Self::REQUEST_VERSION,
            RequestError::Old { .. } => Self::REQUEST_OLD,
            RequestError::Later { .. } => Self::REQUEST_LVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(lver: u64, timestamp: u64) -> RawLeader {
        RawLeader { lver: lver.into(), timestamp: timestamp.into(), ..RawLeader::zeroed() }
    }

    #[test]
    fn a_request_is_for_a_later_version_than_its_owner_has() {
        let wish = |lver, next| Wish { lver, force_mode: 1, next };
        for (lver, next, expected) in [
            (8, false, Ok(Some(8))),
            (9, true, Ok(Some(9))),
            (0, true, Ok(Some(8))),
            (7, true, Err(RequestError::Old { wanted: 7, held: 7 })),
            (0, false, Err(RequestError::Old { wanted: 0, held: 7 })),
        ] {
            assert_eq!(wish(lver, next).version(&leader(7, 99)), expected, "{lver} {next}");
            assert_eq!(wish(lver, next).version(&leader(7, 0)), Ok(None), "nobody owns it");
        }
    }

    #[test]
    fn only_a_later_request_stands_and_clearing_takes_any_back() {
        let found = RequestRecord { lver: 8.into(), force_mode: 2.into(), ..RequestRecord::none() };
        let written = |wish: Wish, version| {
            wish.record(version, &found).map(|record| (record.lver.get(), record.force_mode.get()))
        };
        let force = Wish { lver: 0, force_mode: 1, next: true };
        assert_eq!(written(force, 7), Err(RequestError::Later { wanted: 7, found: 8 }));
        assert_eq!(written(force, 8), Ok((8, 1)), "the last one to ask says how");
        assert_eq!(written(force, 9), Ok((9, 1)));
        let clear = Wish { lver: 0, force_mode: 0, next: false };
        assert!(clear.clears() && !force.clears());
        assert_eq!(written(clear, 0), Ok((0, 0)));
        let magic = RequestRecord { magic: 1.into(), ..found };
        assert_eq!(clear.record(0, &magic), Err(RequestError::Magic { found: 1 }));
        let version = RequestRecord { version: 0x0002_0000.into(), ..found };
        assert_eq!(version.check(), Err(RequestError::Version { found: 0x0002_0000 }));
        let minor = RequestRecord { version: 0x0001_0007.into(), ..found };
        assert_eq!(minor.check(), Ok(()));
        assert_eq!(force.record(9, &minor).map(|record| record.version.get()), Ok(REQUEST_VERSION));
    }
}
