//! The options of `sanlock fsck` and `sanlock check`, which the original does not have.

use super::UsageError;
use crate::output::FAILURE;
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit status where nothing can be said: the arguments make no sense, or the storage cannot be read.
pub(crate) const UNKNOWN: u8 = 3;

/// `sanlock fsck`: verifies lockspaces, leases and indexes as they lie on storage, and repairs what is provably safe.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "sanlock fsck",
    disable_version_flag = true,
    after_help = "Exit status: 0 nothing is wrong, 1 damage was found and is still there, 2 all damage was repaired, \
                  3 the storage or the arguments cannot be used, 4 a repair was refused because a host may be alive."
)]
pub(crate) struct FsckArgs {
    /// Where to look: a file or device, from OFFSET (0), SIZE bytes (to the end); offsets may end in M
    #[arg(value_name = "PATH[:OFFSET[:SIZE]]", required = true)]
    pub(crate) places: Vec<OsString>,
    /// The lockspace that the leases belong to, if it is none of the places
    #[arg(long, value_name = "PATH[:OFFSET]")]
    pub(crate) lockspace: Option<OsString>,
    /// Repair what can be repaired safely; without it nothing is written
    #[arg(long)]
    pub(crate) repair: bool,
    /// New file for what a repair overwrites [default: sanlock-fsck-TIME.saved in the current directory]
    #[arg(long, value_name = "FILE", requires = "repair")]
    pub(crate) save: Option<PathBuf>,
    /// Refuse a repair instead of waiting until silent hosts must be dead
    #[arg(long, requires = "repair")]
    pub(crate) no_wait: bool,
    /// Longest io timeout that any host uses, for hosts whose records cannot be read
    #[arg(long, value_name = "SECONDS", default_value_t = 255, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub(crate) io_timeout: u32,
    /// Watchdog fire timeout of the hosts [default: that of sanlock.conf, or 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(4..=3600))]
    pub(crate) fire_timeout: Option<u32>,
    /// Print an object of docs/json.md
    #[arg(long, conflicts_with = "repair")]
    pub(crate) json: bool,
}

/// `sanlock check`: is this host, and this storage, fit for leases?
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "sanlock check",
    disable_version_flag = true,
    after_help = "Exit status: 0 nothing is wrong, 1 warnings, 2 problems: something does not work, or does not protect, \
                  3 the arguments make no sense."
)]
pub(crate) struct CheckArgs {
    /// Storage for leases: a device, a file, or a directory; without it only the host is looked at
    #[arg(value_name = "PATH[:OFFSET]")]
    pub(crate) place: Option<OsString>,
    /// How long lease I/O is measured: reads only, but in a directory on a scratch file
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) seconds: u32,
    /// Io timeout that is to be used [default: that of sanlock.conf]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) io_timeout: Option<u32>,
    /// Read the files of /proc, /sys, /etc and /run below this directory
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Print an object of docs/json.md
    #[arg(long)]
    pub(crate) json: bool,
}

/// An exit status of 1 says something about the storage here, so mistakes in the arguments have another.
pub(crate) fn usage(error: UsageError) -> UsageError {
    let status = if error.status == FAILURE { UNKNOWN } else { error.status };
    UsageError { status, ..error }
}
