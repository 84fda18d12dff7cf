//! The answer: what `--json` shows (docs/json.md), and what the text is made of. Times are seconds.

use super::judge::Outlook;
use crate::json::Text;
use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) source: Source,
    /// The lockspace; `None` when only a resource was found and its lockspace's place is not known.
    pub(super) lockspace: Option<LockspaceReport>,
    /// The resource that was asked for.
    pub(super) resource: Option<ResourceReport>,
    /// Holders of the resource, or all hosts of the lockspace.
    pub(super) hosts: Vec<HostReport>,
    /// Processes of this host that hold, acquire or release it.
    pub(super) processes: Vec<ProcessReport>,
}

/// Where the answer comes from.
#[derive(Debug, Serialize)]
pub(super) struct Source {
    /// Whether hosts were judged by what the daemon of this host has seen of them.
    pub(super) daemon: bool,
    /// Why not, where that is an error.
    pub(super) daemon_error: Option<String>,
    /// Whether the lease was read from its disks by this command; otherwise the daemon read it, and the request is not known.
    pub(super) disk: bool,
    /// Seconds for which the disk was watched, where the daemon could not judge.
    pub(super) watched_s: Option<u64>,
}

/// A lockspace.
#[derive(Debug, Serialize)]
pub(super) struct LockspaceReport {
    pub(super) name: Text,
    pub(super) path: Text,
    pub(super) offset: u64,
    /// This host's id in it, if its daemon is in it.
    pub(super) our_host_id: Option<u64>,
    /// Ids whose record is damaged: of all hosts, or of the holders of the resource. `None`: not looked at.
    pub(super) damaged: Option<Vec<u64>>,
    /// Why its records could not be looked at on the disk.
    pub(super) error: Option<String>,
}

/// A resource.
#[derive(Debug, Serialize)]
pub(super) struct ResourceReport {
    pub(super) lockspace: Text,
    pub(super) name: Text,
    pub(super) disks: Vec<DiskReport>,
    /// Whether it was found by its name, on one disk; a lease does not say whether it has others.
    pub(super) found_by_name: bool,
    pub(super) lease_version: u64,
    /// Bytes; `None` when the daemon read the lease.
    pub(super) sector_size: Option<u32>,
    /// Whether a majority of its disks has the leader that counts.
    pub(super) agreed: bool,
    pub(super) mode: Mode,
    /// Id of the host that the leader still names although it has given the lease up.
    pub(super) released_by: Option<u64>,
    /// Ids of hosts that try, or tried, to acquire it.
    pub(super) contenders: Vec<u64>,
    /// What somebody has asked the holder for.
    pub(super) request: Option<RequestReport>,
    /// Ids of hosts whose ballot record is damaged.
    pub(super) damaged: Vec<u64>,
}

/// One disk of a resource.
#[derive(Debug, Serialize)]
pub(super) struct DiskReport {
    pub(super) path: Text,
    pub(super) offset: u64,
    /// Why it could not be read.
    pub(super) error: Option<String>,
}

/// How a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// By nobody.
    Free,
    /// By one host.
    Exclusive,
    /// By any number of hosts.
    Shared,
}

/// A request that is recorded on disk.
#[derive(Debug, Serialize)]
pub(super) struct RequestReport {
    pub(super) lease_version: u64,
    pub(super) force_mode: u32,
}

/// A host: a holder of the resource, or a member of the lockspace.
#[derive(Debug, Serialize)]
pub(super) struct HostReport {
    pub(super) host_id: u64,
    /// The one that holds the lease; of a member, the present one.
    pub(super) generation: u64,
    /// Empty if its record is not known.
    pub(super) name: Text,
    pub(super) this_host: bool,
    /// How it holds the resource.
    pub(super) mode: Option<Mode>,
    pub(super) state: State,
    pub(super) io_timeout_s: Option<u64>,
    /// Since a renewal of it was last seen.
    pub(super) last_renewal_s: Option<u64>,
    /// Until what it holds could be taken by another host if it did not renew any more: 0 at once. `None`: not known.
    pub(super) takeover_s: Option<u64>,
    /// What is wrong with its record on the disk.
    pub(super) damage: Option<String>,
    /// What the state and the times rest on.
    #[serde(skip)]
    pub(super) outlook: Outlook,
}

/// How a host is, as far as this one can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum State {
    /// Renewing.
    Live,
    /// Silent for so long that its own daemon stops the users of its leases.
    Fail,
    /// Silent for so long that its watchdog has reset it.
    Dead,
    /// Has left the lockspace, or joined it again, since it took the lease.
    Gone,
    /// Not seen renewing, and not for long enough; or its record is damaged, or not known.
    Unknown,
}

/// A process of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ProcessReport {
    /// `None` for an orphan.
    pub(super) pid: Option<i32>,
    /// Its name as the system has it; empty if it is gone.
    pub(super) name: Text,
    pub(super) resource: Text,
    pub(super) mode: Mode,
    /// `held`, `add` while it is acquired, `rem` while it is released, `orphan`.
    pub(super) list: Text,
    pub(super) lease_version: u64,
}
