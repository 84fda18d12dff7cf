//! What the daemon says at one moment, as numbers and names that can be shown.

use sanlock_client::wire::flags::{HostState, ResourceFlags};
use sanlock_client::wire::{self, Attachment, Name, StateRecord, StateType};
use sanlock_client::{Client, ClientError, Renewal, state_as_looked_at};
use sanlock_lease::timing::IoTimeout;

/// Everything that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    pub(crate) host_name: String,
    /// Version of the daemon, as it names it.
    pub(crate) version: String,
    /// Its monotonic clock, in seconds.
    pub(crate) monotime: u64,
    /// Whether the daemon uses the watchdog.
    pub(crate) watchdog: bool,
    /// Registered processes.
    pub(crate) processes: Vec<Process>,
    pub(crate) lockspaces: Vec<Lockspace>,
    pub(crate) leases: Vec<Lease>,
}

/// A registered process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
}

/// A lockspace that this host is in, joins or leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lockspace {
    pub(crate) name: String,
    pub(crate) host_id: u64,
    pub(crate) generation: u64,
    /// `PATH:OFFSET`
    pub(crate) place: String,
    pub(crate) stage: Stage,
    /// Seconds; `None` where the daemon's is none that a lockspace can have.
    pub(crate) io_timeout: Option<IoTimeout>,
    /// Seconds since the last good renewal when the daemon answered.
    pub(crate) age: u64,
    /// Its lease is lost: its users are stopped for that.
    pub(crate) failed: bool,
    /// It comes to an end, for that or because it is removed.
    pub(crate) ending: bool,
    /// Oldest first.
    pub(crate) renewals: Vec<Renewal>,
    /// `None` while they are not known.
    pub(crate) hosts: Option<Vec<Host>>,
}

/// Where a lockspace stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    #[default]
    Joined,
    Joining,
    Leaving,
}

/// A host of a lockspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) host_id: u64,
    /// Empty if it is not known.
    pub(crate) name: String,
    pub(crate) generation: u64,
    /// As far as its record has been looked at. `None` for a state of a later release.
    pub(crate) state: Option<HostState>,
    pub(crate) io_timeout: u32,
    /// Seconds since its record was seen to change; `None` if it never was.
    pub(crate) silent: Option<u64>,
}

/// A resource that is held on this host, or that something is done to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lease {
    pub(crate) lockspace: String,
    pub(crate) resource: String,
    pub(crate) shared: bool,
    pub(crate) version: u64,
    /// 0 or below: none.
    pub(crate) pid: i32,
    /// `held`, `add`, `rem`, `orphan`.
    pub(crate) list: String,
}

/// Asks the daemon.
///
/// # Errors
/// It cannot be reached, or refuses. A lockspace that goes away in between is shown without hosts and renewals.
pub(crate) fn gather(client: &Client) -> Result<Snapshot, ClientError> {
    let records = client.status(0)?;
    let mut snapshot = listed(&records);
    for (lockspace, name) in snapshot.lockspaces.iter_mut().zip(names(&records)) {
        if lockspace.stage == Stage::Joining {
            continue;
        }
        if let Ok((_, records)) = client.renewal(name) {
            lockspace.renewals = records.iter().map(Renewal::from).collect();
        }
        // The states are in one answer, names and times in the other.
        if let (Ok(hosts), Ok(records)) = (client.get_hosts(name, 0), client.host_status(name)) {
            let in_use = hosts.iter().filter(|host| host.timestamp.get() != 0);
            lockspace.hosts = Some(in_use.map(|wire| host(wire, &records, snapshot.monotime)).collect());
        }
    }
    Ok(snapshot)
}

/// The lockspaces' names as they travel, in the order of [`listed`].
fn names(records: &[StateRecord]) -> impl Iterator<Item = Name> {
    records
        .iter()
        .filter(|record| matches!(record.attachment, Attachment::Lockspace(_)))
        .map(|record| record.name)
}

/// The records of STATUS.
fn listed(records: &[StateRecord]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    if let Some(daemon) = records.iter().find(|record| record.state_type() == Some(StateType::Daemon)) {
        snapshot.host_name = shown(daemon.name.name_bytes());
        snapshot.version = shown(daemon.get("version_str").unwrap_or_default());
        snapshot.watchdog = number(daemon, "use_watchdog") != 0;
        snapshot.monotime = number(daemon, "monotime");
    }
    for record in records {
        match (&record.attachment, record.state_type()) {
            (Attachment::Lockspace(wire), _) => {
                let path = &wire.host_id_disk.path;
                let path = path.path().unwrap_or_else(|_| path.as_raw());
                snapshot.lockspaces.push(Lockspace {
                    name: shown(record.name.name_bytes()),
                    host_id: wire.host_id.get(),
                    generation: number(record, "host_generation"),
                    place: format!("{}:{}", shown(path), wire.host_id_disk.offset.get()),
                    stage: match record.get("list") {
                        Some(b"add") => Stage::Joining,
                        Some(b"rem") => Stage::Leaving,
                        _ => Stage::Joined,
                    },
                    io_timeout: u32::try_from(number(record, "io_timeout"))
                        .ok()
                        .and_then(|seconds| IoTimeout::new(seconds).ok()),
                    age: snapshot.monotime.saturating_sub(number(record, "renewal_last_success")),
                    failed: number(record, "renew_fail") != 0 || number(record, "corrupt_result") != 0,
                    // Of one that failed, too.
                    ending: number(record, "space_dead") != 0 || number(record, "killing_pids") != 0,
                    renewals: Vec::new(),
                    hosts: None,
                });
            }
            (Attachment::Resource(spec), _) => {
                let resource = spec.resource();
                snapshot.leases.push(Lease {
                    lockspace: shown(resource.lockspace_name.name_bytes()),
                    resource: shown(resource.name.name_bytes()),
                    shared: ResourceFlags::from_bits_truncate(resource.flags.get())
                        .contains(ResourceFlags::SHARED),
                    version: record.data64,
                    pid: pid_of(record),
                    list: shown(record.get("list").unwrap_or_default()),
                });
            }
            (Attachment::None, Some(StateType::Client)) if pid_of(record) > 0 => {
                let (pid, name) = (pid_of(record), shown(record.name.name_bytes()));
                snapshot.processes.push(Process { pid, name });
            }
            (Attachment::None, _) => {}
        }
    }
    snapshot
}

fn host(wire: &wire::Host, records: &[StateRecord], now: u64) -> Host {
    let record = records.iter().find(|record| u64::from(record.data32) == wire.host_id.get());
    let io_timeout = u16::try_from(wire.io_timeout.get()).unwrap_or(u16::MAX);
    let fail_secs = IoTimeout::from_disk(io_timeout, IoTimeout::DEFAULT).renewal_fail_secs();
    Host {
        host_id: wire.host_id.get(),
        name: shown(record.and_then(|record| record.get("owner_name")).unwrap_or_default()),
        generation: wire.generation.get(),
        state: state_as_looked_at(wire, record, fail_secs),
        io_timeout: wire.io_timeout.get(),
        silent: record
            .map(|record| number(record, "last_live"))
            .filter(|seen| *seen > 0)
            .map(|seen| now.saturating_sub(seen)),
    }
}

fn pid_of(record: &StateRecord) -> i32 {
    i32::from_ne_bytes(record.data32.to_ne_bytes())
}

/// What is missing, or no number, counts as 0.
fn number(record: &StateRecord, key: &str) -> u64 {
    record
        .get(key)
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Bytes from a disk or a program, for a terminal: whatever could move its cursor is written out.
fn shown(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { out.extend(c.escape_unicode()) } else { out.push(c) }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::wire::{Disk, Resource, ResourceSpec, StateText};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn the_records_of_a_daemon() {
        let disk = Disk::new("/leases", 1 << 20).unwrap();
        let spec = ResourceSpec::new(Resource::new(name("LS"), name("a\nb")), vec![disk]).unwrap();
        let daemon = StateText::new().item("use_watchdog", 1).item("monotime", 100).item("version_str", "1");
        let space = StateText::new()
            .item("list", "spaces")
            .item("io_timeout", 10)
            .item("host_generation", 3)
            .item("renewal_last_success", 90);
        let records = [
            StateRecord::daemon(name("host1"), daemon),
            StateRecord::client(name("libvirt"), 77, StateText::new()),
            StateRecord::client(name("helper"), -1, StateText::new()),
            StateRecord::lockspace(wire::Lockspace::new(name("LS"), 4, disk), space),
            StateRecord::resource(spec, 77, 9, StateText::new().item("list", "held")),
        ];
        let snapshot = listed(&records);
        assert_eq!((snapshot.host_name.as_str(), snapshot.watchdog), ("host1", true));
        assert_eq!(snapshot.processes, [Process { pid: 77, name: "libvirt".to_owned() }]);
        let lockspace = &snapshot.lockspaces[0];
        assert_eq!((lockspace.host_id, lockspace.generation, lockspace.age), (4, 3, 10));
        assert_eq!((lockspace.place.as_str(), lockspace.stage), ("/leases:1048576", Stage::Joined));
        let lease = &snapshot.leases[0];
        assert_eq!((lease.resource.as_str(), lease.version, lease.pid), ("a\\u{a}b", 9, 77));
        assert_eq!(names(&records).collect::<Vec<_>>(), [name("LS")]);
    }

    #[test]
    fn hosts_have_names_and_ages_where_they_are_known() {
        let wire = wire::Host {
            host_id: 2.into(),
            generation: 3.into(),
            timestamp: 7.into(),
            io_timeout: 10.into(),
            flags: 3.into(),
        };
        let text = StateText::new().item("last_live", 88).last_item("owner_name", b"\x1b[2J\xff");
        let known = host(&wire, &[StateRecord::host(2, 7, text)], 100);
        assert_eq!((known.name.as_str(), known.silent), ("\\u{1b}[2J\\xff", Some(12)));
        assert_eq!(known.state, Some(HostState::Live));
        let unknown = host(&wire, &[], 100);
        assert_eq!((unknown.name.as_str(), unknown.silent), ("", None));
    }
}
