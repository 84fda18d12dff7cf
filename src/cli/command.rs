//! Everything the command can be asked to do, as plain values (command-line.md 2, 7, 8, 9).

use super::doctor::{CheckArgs, FsckArgs, UNKNOWN};
use super::exporter::ExporterArgs;
use super::given::Sizes;
use super::top::TopArgs;
use super::who::WhoArgs;
use crate::output::FAILURE;
use clap::Parser;
use sanlock_client::wire::flags::ConfigCommand;
use sanlock_daemon::config::Overrides;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::name::Name;
use sanlock_lease::text::strict::DumpRange;
use sanlock_lease::text::{DiskSpec, LockspaceSpec, RentrySpec, ResourceSpec, RindexSpec};
use std::path::PathBuf;

/// Seconds of io timeout when none, or 0, is given (command-line.md 3.4, `-o`).
pub(crate) const DEFAULT_IO_TIMEOUT: u32 = 10;
/// The pid that stands for "none given".
pub(crate) const NO_PID: i32 = -1;

/// Everything the command can be asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the usage text; a missing action makes that a failure.
    Help {
        /// `client` or `direct` stood alone.
        action_missing: bool,
    },
    /// Print the version.
    Version,
    /// Print the name the program was called by, its version and where that comes from.
    BuildInfo {
        /// The program's name as invoked.
        program: Vec<u8>,
    },
    /// Run the lock manager.
    Daemon(Box<Overrides>),
    /// Show two hosts at work.
    Demo(DemoArgs),
    /// Say who holds a lease.
    Who(Box<WhoArgs>),
    /// Show this host's lockspaces on the terminal, kept up to date.
    Top(TopArgs),
    /// Say what a result means.
    Explain(ExplainArgs),
    /// Say what is wrong with leases on storage.
    Fsck(FsckArgs),
    /// Say what is wrong with this host and its storage.
    Check(CheckArgs),
    /// Show the daemon's state to Prometheus.
    Exporter(ExporterArgs),
    /// Ask the daemon.
    Client(ClientAction),
    /// Look at, or format, storage.
    Direct(DirectAction),
}

impl Command {
    /// The exit status of one that has succeeded, but whose results could not be printed. Where 1 says something of what was looked at, it is
    /// another one.
    pub(crate) const fn output_lost(&self) -> u8 {
        match self {
            Self::Fsck(_) | Self::Check(_) => UNKNOWN,
            _ => FAILURE,
        }
    }
}

/// `sanlock demo`: two daemons on one scratch file, locking each other out.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "sanlock demo", disable_version_flag = true)]
pub(crate) struct DemoArgs {
    /// Directory for the scratch lease file; any file system with O_DIRECT will do, NFS too
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    pub(crate) dir: Option<PathBuf>,
    /// Leave out the last step, which waits about a minute for a dead host
    #[arg(long)]
    pub(crate) quick: bool,
    /// Block device to use instead of a file; everything at its start is overwritten
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<PathBuf>,
    /// Confirm that the contents of --device may be destroyed
    #[arg(long, requires = "device")]
    pub(crate) yes_overwrite: bool,
}

/// `sanlock explain`: what a result number or error name means, what usually causes it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "sanlock explain", disable_version_flag = true)]
pub(crate) struct ExplainArgs {
    /// Result as printed or logged: -243, 243, SANLK_ACQUIRE_IDLIVE, EAGAIN; none lists all
    #[arg(value_name = "CODE|NAME", allow_negative_numbers = true)]
    pub(crate) codes: Vec<String>,
}

/// Order of `status` (command-line.md 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusOrder {
    /// As the daemon sends it.
    Unsorted,
    /// Resources under their process.
    ByProcess,
    /// Resources under their lockspace.
    ByLockspace,
}

/// What `init` is to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InitTarget {
    /// Neither a lockspace with a path nor a resource was given.
    Nothing,
    /// A lockspace.
    Lockspace {
        /// Its name and place; the host id means nothing here.
        spec: LockspaceSpec,
        /// Seconds.
        io_timeout: u32,
    },
    /// A resource.
    Resource {
        /// Its names and place.
        spec: ResourceSpec,
        /// Highest host id that may use it; 0: as many as fit.
        num_hosts: u32,
        /// Write a cleared lease, which reads as none.
        clear: bool,
    },
}

/// What `read`, `read_leader` and `examine` are to look at; a lockspace wins when its string has a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadTarget {
    /// Neither was given.
    Nothing,
    /// A lockspace.
    Lockspace(LockspaceSpec),
    /// A resource.
    Resource(ResourceSpec),
}

/// An acquire for this or another process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AcquireArgs {
    /// At most eight.
    pub(crate) resources: Vec<ResourceSpec>,
    /// `-O`: an orphan may be taken over.
    pub(crate) orphan: bool,
    /// `-P`: the lease becomes an orphan when the process ends.
    pub(crate) persistent: bool,
    /// `-n`: num_hosts to write into the lease, 0 for no change.
    pub(crate) num_hosts: u32,
}

/// What can be done to a resource index through the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexAction {
    /// Make it.
    Format,
    /// Format a resource and enter it.
    Create,
    /// Take a resource out and clear it.
    Delete,
    /// Look at an entry.
    Lookup,
    /// Set or clear an entry.
    Update,
    /// Make all entries anew.
    Rebuild,
}

/// What can be done to a resource index without the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfflineIndexAction {
    /// Make it.
    Format,
    /// Look at an entry.
    Lookup,
    /// Set or clear an entry.
    Update,
    /// Make all entries anew.
    Rebuild,
}

/// Which index, and which of its entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IndexArgs {
    /// `-x`
    pub(crate) index: RindexSpec,
    /// `-e`
    pub(crate) entry: RentrySpec,
    /// `-Z`, `-A`
    pub(crate) sizes: Sizes,
    /// `-z` with any value: the entry is to be cleared.
    pub(crate) clear: bool,
    /// `-n`: highest host id that may use a new resource, 0: as many as fit.
    pub(crate) num_hosts: u32,
}

/// Requests to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientAction {
    /// 7.1
    Status {
        /// `-o`
        order: StatusOrder,
        /// `-D`
        debug: bool,
    },
    /// 7.2; an empty name means all lockspaces.
    HostStatus {
        /// Name of `-s`.
        lockspace: Name,
        /// `-D`
        debug: bool,
    },
    /// 7.3
    Gets {
        /// `-h`
        hosts: bool,
    },
    /// 7.4
    Renewal {
        /// Name of `-s`.
        lockspace: Name,
        /// `--plot`: the picture's file.
        plot: Option<PathBuf>,
    },
    /// 7.5
    LogDump,
    /// 7.6
    Shutdown {
        /// `-f`, printed as given; anything but 0 is on.
        force: u32,
        /// `-w`, likewise.
        wait: u32,
    },
    /// 7.7, 7.8
    Init {
        /// What to write.
        target: InitTarget,
        /// `-Z`, `-A`
        sizes: Sizes,
    },
    /// 7.10
    Read {
        /// What to look at.
        target: ReadTarget,
        /// `-Z`, `-A`
        sizes: Sizes,
        /// `-h`: name the owners.
        owners: bool,
        /// `-D`
        debug: bool,
    },
    /// 7.21
    Align {
        /// Path of `-s`.
        disk: DiskSpec,
    },
    /// 7.11
    AddLockspace {
        /// `-s`
        spec: LockspaceSpec,
        /// Seconds, never 0, if they are said.
        io_timeout: Option<u32>,
    },
    /// 7.12
    InqLockspace {
        /// `-s`
        spec: LockspaceSpec,
    },
    /// 7.13
    RemLockspace {
        /// `-s`
        spec: LockspaceSpec,
    },
    /// 7.17
    Request {
        /// `-r`, the first one.
        resource: Option<ResourceSpec>,
        /// `-f`
        force_mode: u32,
    },
    /// 7.17
    Examine {
        /// Whose requests to look for.
        target: ReadTarget,
    },
    /// 7.18
    SetEvent {
        /// Name of `-s`.
        lockspace: Name,
        /// `-i`
        host_id: u64,
        /// `-g`
        generation: u64,
        /// `-e`
        event: u64,
        /// `-d`
        data: u64,
    },
    /// 7.19
    SetConfig {
        /// Name of `-s`.
        lockspace: Name,
        /// `-O`, else `-u`; the daemon refuses a request without.
        config: Option<ConfigCommand>,
    },
    /// 7.14
    Command {
        /// What to hold.
        acquire: AcquireArgs,
        /// What to run, empty: sleep.
        argv: Vec<Vec<u8>>,
    },
    /// 7.16
    Acquire {
        /// `-p`
        pid: i32,
        /// What to acquire.
        acquire: AcquireArgs,
    },
    /// 7.16
    Release {
        /// `-p`
        pid: i32,
        /// What to release.
        resources: Vec<ResourceSpec>,
        /// Name of `-s`: with `-O` and no `-r`, all orphans of it.
        lockspace: Name,
        /// `-a`: everything the process holds.
        all: bool,
        /// `-O`: orphans.
        orphan: bool,
    },
    /// 7.16
    Convert {
        /// `-p`
        pid: i32,
        /// The first `-r`: which, and `SH` for the mode wanted.
        resource: Option<ResourceSpec>,
    },
    /// 7.16
    Inquire {
        /// `-p`
        pid: i32,
        /// `-D`
        debug: bool,
    },
    /// 7.22
    Index {
        /// What to do.
        action: IndexAction,
        /// To which entry of which index.
        args: IndexArgs,
    },
    /// 6
    Version,
}

/// How much of a dump is wanted (command-line.md 8.5, `-f`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DumpDetail {
    /// Owners.
    Owners,
    /// Also requests and bitmaps.
    Requests,
    /// Also ballot records.
    Ballots,
}

/// Taking or giving up a resource without a lockspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DirectLease {
    /// The first `-r`.
    pub(crate) resource: Option<ResourceSpec>,
    /// `-i`
    pub(crate) host_id: Option<u64>,
    /// `-g`
    pub(crate) generation: Option<u64>,
    /// `-o`: seconds for each transfer.
    pub(crate) io_timeout: u32,
    /// `-Z`, `-A`
    pub(crate) sizes: Sizes,
}

/// Taking, renewing or giving up a host id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DirectHostId {
    /// `-s`
    pub(crate) lockspace: LockspaceSpec,
    /// `-e`
    pub(crate) host_name: Option<Name>,
    /// `-o`: seconds, also written into the lease.
    pub(crate) io_timeout: u32,
    /// `-Z`, `-A`
    pub(crate) sizes: Sizes,
}

/// Changing fields of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteLeader {
    /// Which record.
    pub(crate) target: ReadTarget,
    /// `-F`: the file with the values.
    pub(crate) file: Option<Vec<u8>>,
    /// `-f`: the checksum in the file counts.
    pub(crate) keep_checksum: bool,
    /// `-Z`, `-A`
    pub(crate) sizes: Sizes,
}

/// Actions on storage, without a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectAction {
    /// 8.1
    Init {
        /// What to write.
        target: InitTarget,
        /// `-Z`, `-A`
        sizes: Sizes,
    },
    /// 8.3
    ReadLeader {
        /// What to look at.
        target: ReadTarget,
        /// `-Z`, `-A`
        sizes: Sizes,
        /// `-r` was given, whatever is looked at: the last three fields have the names of a resource's.
        resource: bool,
    },
    /// 8.4
    Read {
        /// What to look at.
        target: ReadTarget,
        /// `-Z`, `-A`
        sizes: Sizes,
    },
    /// 8.7
    WriteLeader(WriteLeader),
    /// 8.8
    Acquire(DirectLease),
    /// 8.8
    Release(DirectLease),
    /// 8.9
    AcquireId(DirectHostId),
    /// 8.9
    RenewId(DirectHostId),
    /// 8.9
    ReleaseId(DirectHostId),
    /// 8.5; without a range nothing is said and the exit status is 1.
    Dump {
        /// Where.
        range: Option<DumpRange>,
        /// How much.
        detail: DumpDetail,
        /// `-Z` with `-A`.
        geometry: Option<Geometry>,
    },
    /// 7.22
    Index {
        /// What to do.
        action: OfflineIndexAction,
        /// To which entry of which index.
        args: IndexArgs,
    },
    /// 8.6; likewise.
    NextFree {
        /// Where to begin.
        start: Option<DiskSpec>,
        /// `-Z` with `-A`.
        geometry: Option<Geometry>,
    },
}
