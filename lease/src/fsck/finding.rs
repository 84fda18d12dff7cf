//! One thing that is wrong: where, what was seen, what was expected, and whether it can be mended.

use super::problem::Problem;
use crate::geometry::HostId;
use crate::name::Name;

/// A place in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spot {
    /// Sector, counted from the start of the area, in sectors of the area's size.
    pub sector: u64,
    /// Bytes from the start of the area to the field in question.
    pub at: u64,
}

/// How something can be mended. Applied by [`super::mend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fix {
    /// Write the record of this host id as free, with at least this generation.
    FreeHost {
        /// Whose record.
        host: HostId,
        /// The largest generation known.
        generation: u64,
    },
    /// Give the leader the number of hosts that its sizes hold.
    LeaderNumHosts,
    /// Give the leader the ballot stride of its sizes.
    LeaderMaxHosts,
    /// Free the leader of an owner that cannot exist.
    LeaderFree,
    /// Bring the leader forward, as free and nobody's.
    LeaderForward {
        /// To this version: the one after the largest of any ballot record.
        lver: u64,
    },
    /// Write a request record without a request.
    Request,
    /// Forget the ballot record of this host; its shared hold stays.
    Ballot(HostId),
    /// Forget the shared hold of this host; its ballot record stays.
    Mode(HostId),
    /// Enter the lease of this entry's area under its own name.
    Enter {
        /// Zero-based number of the entry.
        slot: u32,
        /// The name in the lease.
        name: Name,
    },
    /// Clear this entry.
    Remove {
        /// Zero-based number of the entry.
        slot: u32,
    },
}

/// Who must not be alive while something is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    /// This host.
    Host(HostId),
    /// Every host of the lockspace.
    Everybody,
}

impl Fix {
    /// Who must be gone.
    #[must_use]
    pub fn gone(&self) -> Gone {
        match self {
            Self::FreeHost { host, .. } => Gone::Host(*host),
            _ => Gone::Everybody,
        }
    }

    /// What it does, in words that follow "repair:".
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::FreeHost { host, generation } => {
                format!("host id {host} becomes free, its next generation is above {generation}")
            }
            Self::LeaderNumHosts => "the number of hosts becomes what the sizes hold".to_owned(),
            Self::LeaderMaxHosts => "the ballot stride becomes that of the sizes".to_owned(),
            Self::LeaderFree => "the lease becomes free, its version stays".to_owned(),
            Self::LeaderForward { lver } => format!("the lease becomes free, with version {lver}"),
            Self::Request => "there is no request any more".to_owned(),
            Self::Ballot(host) => format!("the ballot record of host id {host} is forgotten"),
            Self::Mode(host) => format!("host id {host} does not hold the lease shared any more"),
            Self::Enter { name, .. } => format!("the lease is entered as \"{name}\""),
            Self::Remove { .. } => "the entry is removed".to_owned(),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// What.
    pub problem: Problem,
    /// Where.
    pub spot: Spot,
    /// The record in question, in words.
    pub what: String,
    /// What was seen.
    pub found: String,
    /// What was expected.
    pub expected: String,
    /// How it can be mended, if that is safe.
    pub fix: Option<Fix>,
}
