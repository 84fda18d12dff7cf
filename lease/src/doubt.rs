//! Which errors leave it open whether a write takes effect (lease-algorithms.md 13.2, assumption A7, which is not relied on).
//!
//! A client of storage may give up a write that the storage has, and will carry out: a soft NFS mount whose server is away, a path to a
//! SAN that was lost. The kernel says so with the same errors as of what never happened. So every error counts as doubtful that is not
//! known to be the answer of whoever would have had to write, or of this host before it asked. What a target of a SAN refuses is such an answer, but
//! perhaps not to the first attempt: several paths to it are used in turn, and the one that was lost may still carry out what it was given.

use crate::machine::IoFailure;

/// What Linux refuses before it asks the storage, or a file server says of a write that it did not, and will not, carry out.
const DEFINITE: &[i32] = &[
    1,   // EPERM
    6,   // ENXIO, the operation was never given to a device
    9,   // EBADF
    11,  // EAGAIN, nobody to carry it out
    12,  // ENOMEM
    13,  // EACCES
    14,  // EFAULT
    22,  // EINVAL
    24,  // EMFILE
    27,  // EFBIG
    28,  // ENOSPC, which mostly is a file system's
    30,  // EROFS
    95,  // EOPNOTSUPP
    116, // ESTALE
    122, // EDQUOT
];

impl IoFailure {
    /// Whether a write that ended with this may still take effect. A timeout is no end.
    #[must_use]
    pub fn leaves_doubt(self) -> bool {
        match self {
            Self::Os(errno) => !DEFINITE.contains(&errno),
            Self::Short | Self::TimedOut | Self::NotOpen(_) => false,
        }
    }

    /// Whether a write that was told this may still take effect: it ended in doubt, or has not ended.
    #[must_use]
    pub fn may_still_land(self) -> bool {
        self == Self::TimedOut || self.leaves_doubt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_networks_say_leaves_doubt_and_refusals_do_not() {
        // EINTR, EIO, ENODEV, EBADE, ENODATA, ENOLINK, ETIMEDOUT, EHOSTDOWN, EREMOTEIO, and what nobody knows.
        for errno in [4, 5, 19, 52, 61, 67, 110, 112, 121, 4000] {
            assert!(IoFailure::Os(errno).leaves_doubt(), "{errno}");
            assert!(IoFailure::Os(errno).may_still_land(), "{errno}");
        }
        for errno in DEFINITE {
            assert!(!IoFailure::Os(*errno).leaves_doubt(), "{errno}");
            assert!(!IoFailure::Os(*errno).may_still_land(), "{errno}");
        }
        for other in [IoFailure::Short, IoFailure::TimedOut, IoFailure::NotOpen(5)] {
            assert!(!other.leaves_doubt(), "{other:?}");
            assert_eq!(other.may_still_land(), other == IoFailure::TimedOut);
        }
    }
}
