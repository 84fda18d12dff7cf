//! What the daemon shows, as objects of docs/json.md: `status`, `host_status`, `gets`, `renewal`, `inquire`, `read`.

use super::convert::{self, path_bytes, sizes_of};
use super::status::pid_of;
use super::{explain, reason, silent_failure, tell_cut};
use crate::cli::command::{ClientAction, NO_PID, ReadTarget};
use crate::cli::given::Sizes;
use crate::json::{Place, Text, print_document, print_failure};
use crate::output::SUCCESS;
use crate::subject;
use sanlock_client::wire::flags::{HostState, LockspaceFlags, ResourceFlags};
use sanlock_client::wire::{Attachment, Disk, Host, Lockspace, StateRecord, StateType, code};
use sanlock_client::{Client, ClientError};
use sanlock_lease::name::Name;
use sanlock_lease::text::{LockspaceSpec, ResourceSpec, library};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Carries out an action that shows something; `None` for others.
pub(super) fn run(client: &Client, action: &ClientAction) -> Option<u8> {
    Some(match action {
        ClientAction::Status { .. } => answer("status", "", status(client)),
        ClientAction::HostStatus { lockspace, .. } => {
            answer("host_status", &subject::lockspace_name(*lockspace), host_status(client, *lockspace))
        }
        ClientAction::Gets { hosts } => answer("gets", "", gets(client, *hosts)),
        ClientAction::Renewal { lockspace, .. } => {
            answer("renewal", &subject::lockspace_name(*lockspace), renewal(client, *lockspace))
        }
        ClientAction::Inquire { pid, .. } => {
            let object = if *pid == NO_PID { String::new() } else { format!("pid {pid}") };
            answer("inquire", &object, inquire(client, *pid))
        }
        ClientAction::Read { target, sizes, owners, .. } => {
            answer("read", &target.subject(), read(client, target, *sizes, *owners))
        }
        _ => return None,
    })
}

/// Prints an object, or the one that stands for the failure, which is explained on stderr as without JSON.
fn answer<T: Serialize>(command: &str, object: &str, outcome: Result<T, ClientError>) -> u8 {
    match outcome {
        Ok(body) => {
            print_document(command, &body);
            SUCCESS
        }
        Err(error) => {
            print_failure(command, error.result_code(), &reason(&error));
            silent_failure(command, object, &error)
        }
    }
}

/// A record's words, in their order. A few are text whatever they look like, the rest numbers.
struct Details<'a>(&'a StateRecord);

/// Words that are text.
const TEXT: [&[u8]; 10] = [
    b"our_host_name",
    b"debug_cmds",
    b"version_str",
    b"version_num",
    b"version_hex",
    b"smproto_hex",
    b"flags",
    b"restricted",
    b"list",
    b"owner_name",
];

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in self.0.items().filter(|(key, _)| !key.is_empty()) {
            let text = std::str::from_utf8(value).ok().filter(|_| !TEXT.contains(&key));
            match (
                text.and_then(|text| text.parse::<u64>().ok()),
                text.and_then(|text| text.parse::<i64>().ok()),
            ) {
                (Some(number), _) => map.serialize_entry(&Text::from(key), &number)?,
                (None, Some(number)) => map.serialize_entry(&Text::from(key), &number)?,
                (None, None) => map.serialize_entry(&Text::from(key), &Text::from(value))?,
            }
        }
        map.end()
    }
}

fn place(disk: &Disk) -> Place {
    Place { path: Text::from(path_bytes(&disk.path)), offset: disk.offset.get() }
}

fn mode(flags: u32) -> &'static str {
    if ResourceFlags::from_bits_truncate(flags).contains(ResourceFlags::SHARED) {
        "shared"
    } else {
        "exclusive"
    }
}

#[derive(Serialize)]
struct Status<'a> {
    /// Why these are not all.
    cut: Option<&'a str>,
    daemon: Option<DaemonStatus<'a>>,
    clients: Vec<ClientStatus<'a>>,
    lockspaces: Vec<LockspaceStatus<'a>>,
    resources: Vec<ResourceStatus<'a>>,
    others: Vec<OtherStatus<'a>>,
}

#[derive(Serialize)]
struct DaemonStatus<'a> {
    host_name: Text,
    details: Details<'a>,
}

#[derive(Serialize)]
struct ClientStatus<'a> {
    /// `None` for a connection that is not registered.
    pid: Option<i32>,
    name: Text,
    details: Details<'a>,
}

#[derive(Serialize)]
struct LockspaceStatus<'a> {
    name: Text,
    host_id: u64,
    #[serde(flatten)]
    place: Place,
    list: Text,
    details: Details<'a>,
}

#[derive(Serialize)]
struct ResourceStatus<'a> {
    lockspace: Text,
    name: Text,
    disks: Vec<Place>,
    lease_version: u64,
    mode: &'static str,
    /// `None` for an orphan, or one that is being released.
    pid: Option<i32>,
    list: Text,
    details: Details<'a>,
}

/// A record of a later release.
#[derive(Serialize)]
struct OtherStatus<'a> {
    r#type: u32,
    name: Text,
    details: Details<'a>,
}

fn status(client: &Client) -> Result<impl Serialize, ClientError> {
    let arrived = client.status_arrived(0)?;
    // The records live as long as the object that shows them.
    Ok(Owned { cut: cut("status", arrived.cut.as_ref()), records: arrived.items })
}

/// Records that are shown as [`Status`].
struct Owned {
    cut: Option<String>,
    records: Vec<StateRecord>,
}

impl Serialize for Owned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let status = Status { cut: self.cut.as_deref(), ..listed(&self.records) };
        status.serialize(serializer)
    }
}

/// Why what is shown is not all, which is told on stderr too.
fn cut(command: &str, error: Option<&ClientError>) -> Option<String> {
    tell_cut(command, error);
    error.map(reason)
}

/// Why the hosts of a lockspace could not be asked for, which is told on stderr too.
fn hosts_error(command: &str, lockspace: &Text, error: &ClientError) -> String {
    explain(command, &format!("hosts of lockspace {}", lockspace.plain()), error);
    reason(error)
}

fn listed(records: &[StateRecord]) -> Status<'_> {
    let mut status = Status {
        cut: None,
        daemon: None,
        clients: Vec::new(),
        lockspaces: Vec::new(),
        resources: Vec::new(),
        others: Vec::new(),
    };
    for record in records {
        let (name, details) = (Text::from(record.name.name_bytes()), Details(record));
        let list = Text::from(record.get("list").unwrap_or_default());
        match (&record.attachment, record.state_type()) {
            (Attachment::Lockspace(lockspace), _) => status.lockspaces.push(LockspaceStatus {
                name: Text::from(lockspace.name.name_bytes()),
                host_id: lockspace.host_id.get(),
                place: place(&lockspace.host_id_disk),
                list,
                details,
            }),
            (Attachment::Resource(spec), _) => status.resources.push(ResourceStatus {
                lockspace: Text::from(spec.resource().lockspace_name.name_bytes()),
                name: Text::from(spec.resource().name.name_bytes()),
                disks: spec.disks().iter().map(place).collect(),
                lease_version: record.data64,
                mode: mode(spec.resource().flags.get()),
                pid: Some(pid_of(record))
                    .filter(|pid| *pid > 0 && matches!(list.0.as_slice(), b"held" | b"add")),
                list,
                details,
            }),
            (Attachment::None, Some(StateType::Daemon)) => {
                status.daemon = Some(DaemonStatus { host_name: name, details });
            }
            (Attachment::None, Some(StateType::Client)) => {
                let pid = Some(pid_of(record)).filter(|pid| *pid != NO_PID);
                status.clients.push(ClientStatus { pid, name, details });
            }
            (Attachment::None, _) => {
                status.others.push(OtherStatus { r#type: record.kind, name, details });
            }
        }
    }
    status
}

#[derive(Serialize)]
struct HostStatus {
    lockspaces: Vec<LockspaceHosts>,
}

#[derive(Serialize)]
struct LockspaceHosts {
    name: Text,
    /// `None` if they could not be asked for.
    hosts: Option<Vec<HostRecord>>,
    /// Why.
    error: Option<String>,
}

#[derive(Serialize)]
struct HostRecord {
    host_id: u32,
    generation: Option<u64>,
    name: Text,
    timestamp: u64,
    io_timeout_s: Option<u64>,
    last_check: Option<u64>,
    last_live: Option<u64>,
    last_request: Option<u64>,
}

fn host_status(client: &Client, lockspace: Name) -> Result<HostStatus, ClientError> {
    if !lockspace.is_empty() {
        let hosts = client.host_status(convert::name(lockspace))?.iter().map(host_record).collect();
        let name = Text::from(lockspace.as_bytes());
        return Ok(HostStatus { lockspaces: vec![LockspaceHosts { name, hosts: Some(hosts), error: None }] });
    }
    let records = client.status(StateType::Lockspace as u32)?;
    let lockspaces = records.iter().filter(|record| record.state_type() == Some(StateType::Lockspace));
    let lockspaces = lockspaces.map(|record| {
        let name = Text::from(record.name.name_bytes());
        match client.host_status(record.name) {
            Ok(records) => {
                LockspaceHosts { name, hosts: Some(records.iter().map(host_record).collect()), error: None }
            }
            Err(e) => {
                let error = Some(hosts_error("host_status", &name, &e));
                LockspaceHosts { name, hosts: None, error }
            }
        }
    });
    Ok(HostStatus { lockspaces: lockspaces.collect() })
}

fn number(record: &StateRecord, key: &str) -> Option<u64> {
    std::str::from_utf8(record.get(key)?).ok()?.parse().ok()
}

fn host_record(record: &StateRecord) -> HostRecord {
    HostRecord {
        host_id: record.data32,
        generation: number(record, "owner_generation"),
        name: Text::from(record.get("owner_name").unwrap_or_default()),
        timestamp: record.data64,
        io_timeout_s: number(record, "io_timeout"),
        last_check: number(record, "last_check"),
        last_live: number(record, "last_live"),
        last_request: number(record, "last_req"),
    }
}

#[derive(Serialize)]
struct Gets {
    /// Why these are not all.
    cut: Option<String>,
    lockspaces: Vec<Joined>,
}

#[derive(Serialize)]
struct Joined {
    name: Text,
    host_id: u64,
    #[serde(flatten)]
    place: Place,
    state: &'static str,
    /// `None` when they were not asked for, could not be, or have not been looked at yet.
    hosts: Option<Vec<HostSeen>>,
    /// Why they could not be asked for.
    hosts_error: Option<String>,
}

#[derive(Serialize)]
struct HostSeen {
    host_id: u64,
    generation: u64,
    timestamp: u64,
    io_timeout_s: u32,
    state: &'static str,
}

fn gets(client: &Client, with_hosts: bool) -> Result<Gets, ClientError> {
    let arrived = client.lockspaces_arrived()?;
    let joined = |lockspace: &Lockspace| {
        let flags = LockspaceFlags::from_bits_truncate(lockspace.flags.get());
        let name = Text::from(lockspace.name.name_bytes());
        let (hosts, hosts_error) = match with_hosts.then(|| client.get_hosts(lockspace.name, 0)) {
            None => (None, None),
            Some(Ok(hosts)) => {
                let seen = hosts.iter().filter(|host| host.timestamp.get() != 0);
                (Some(seen.map(host_seen).collect()), None)
            }
            // Not looked at yet.
            Some(Err(error)) if error.result_code() == code::EAGAIN => (None, None),
            Some(Err(error)) => (None, Some(hosts_error("gets", &name, &error))),
        };
        Joined {
            name,
            host_id: lockspace.host_id.get(),
            place: place(&lockspace.host_id_disk),
            state: if flags.contains(LockspaceFlags::ADD) {
                "joining"
            } else if flags.contains(LockspaceFlags::REM) {
                "leaving"
            } else {
                "joined"
            },
            hosts,
            hosts_error,
        }
    };
    let lockspaces = arrived.items.iter().map(joined).collect();
    Ok(Gets { cut: cut("gets", arrived.cut.as_ref()), lockspaces })
}

fn host_seen(host: &Host) -> HostSeen {
    HostSeen {
        host_id: host.host_id.get(),
        generation: host.generation.get(),
        timestamp: host.timestamp.get(),
        io_timeout_s: host.io_timeout.get(),
        state: HostState::from_flags(host.flags.get()).map_or("ERROR", HostState::name),
    }
}

#[derive(Serialize)]
struct Renewals {
    lockspace: Text,
    io_timeout_s: u32,
    renewals: Vec<RenewalRecord>,
}

#[derive(Serialize)]
struct RenewalRecord {
    timestamp: u64,
    read_ms: Option<u64>,
    write_ms: Option<u64>,
    next_timeouts: Option<u64>,
    next_errors: Option<u64>,
}

fn renewal(client: &Client, lockspace: Name) -> Result<Renewals, ClientError> {
    if lockspace.is_empty() {
        return Err(ClientError::NoLockspace);
    }
    let (io_timeout_s, records) = client.renewal(convert::name(lockspace))?;
    let renewals = records.iter().map(|record| RenewalRecord {
        timestamp: number(record, "timestamp").unwrap_or(record.data64),
        read_ms: number(record, "read_ms"),
        write_ms: number(record, "write_ms"),
        next_timeouts: number(record, "next_timeouts"),
        next_errors: number(record, "next_errors"),
    });
    Ok(Renewals { lockspace: Text::from(lockspace.as_bytes()), io_timeout_s, renewals: renewals.collect() })
}

#[derive(Serialize)]
struct Inquired {
    pid: i32,
    resources: Vec<Held>,
}

#[derive(Serialize)]
struct Held {
    lockspace: Text,
    name: Text,
    disks: Vec<Place>,
    mode: &'static str,
    /// `None` for a shared one: the daemon does not tell.
    lease_version: Option<u64>,
}

fn inquire(client: &Client, pid: i32) -> Result<Inquired, ClientError> {
    let inquiry = client.inquire(pid)?;
    let held = if inquiry.state.is_empty() { Vec::new() } else { inquired(&inquiry.state)? };
    Ok(Inquired { pid, resources: held })
}

fn inquired(state: &[u8]) -> Result<Vec<Held>, ClientError> {
    // What cannot be read is no answer.
    let resources = library::state(state).map_err(|_| ClientError::Closed)?;
    let held = |spec: ResourceSpec| Held {
        lockspace: Text::from(spec.lockspace.as_bytes()),
        name: Text::from(spec.name.as_bytes()),
        disks: spec
            .disks
            .into_iter()
            .map(|disk| Place { path: Text(disk.path), offset: disk.offset })
            .collect(),
        mode: if spec.shared { "shared" } else { "exclusive" },
        lease_version: spec.lver,
    };
    Ok(resources.into_iter().map(held).collect())
}

#[derive(Serialize, Default)]
struct Read {
    lockspace: Option<LockspaceRead>,
    resource: Option<ResourceRead>,
    /// `None` unless asked for.
    owners: Option<Vec<Owner>>,
}

#[derive(Serialize)]
struct LockspaceRead {
    name: Text,
    host_id: u64,
    #[serde(flatten)]
    place: Place,
    io_timeout_s: u32,
    sector_size: u32,
    align_size: u64,
}

#[derive(Serialize)]
struct ResourceRead {
    lockspace: Text,
    name: Text,
    disks: Vec<Place>,
    lease_version: u64,
    sector_size: u32,
    align_size: u64,
}

#[derive(Serialize)]
struct Owner {
    host_id: u64,
    generation: u64,
    mode: &'static str,
    /// When it took the lease, by its own clock; `None` for a shared holder.
    timestamp: Option<u64>,
}

fn read(client: &Client, target: &ReadTarget, sizes: Sizes, owners: bool) -> Result<Read, ClientError> {
    match target {
        ReadTarget::Nothing => Err(ClientError::NoPath),
        ReadTarget::Lockspace(spec) => read_lockspace(client, spec, sizes),
        ReadTarget::Resource(spec) => read_resource(client, spec, sizes, owners),
    }
}

fn read_lockspace(client: &Client, spec: &LockspaceSpec, sizes: Sizes) -> Result<Read, ClientError> {
    let mut asked = convert::sized_lockspace(spec, sizes)?;
    if asked.host_id.get() == 0 {
        asked.host_id = 1.into();
    }
    let (found, io_timeout_s) = client.read_lockspace(&asked)?;
    let (sector_size, align_size) = sizes_of(found.flags.get());
    let lockspace = LockspaceRead {
        name: Text::from(found.name.name_bytes()),
        host_id: asked.host_id.get(),
        place: place(&asked.host_id_disk),
        io_timeout_s,
        sector_size,
        align_size,
    };
    Ok(Read { lockspace: Some(lockspace), ..Read::default() })
}

fn read_resource(
    client: &Client,
    spec: &ResourceSpec,
    sizes: Sizes,
    owners: bool,
) -> Result<Read, ClientError> {
    let asked = convert::sized_resource(spec, sizes)?;
    let (found, hosts) = if owners {
        let (found, hosts) = client.read_resource_owners(&asked)?;
        (found, Some(hosts))
    } else {
        (client.read_resource(&asked)?, None)
    };
    let (sector_size, align_size) = sizes_of(found.flags.get());
    let resource = ResourceRead {
        lockspace: Text::from(found.lockspace_name.name_bytes()),
        name: Text::from(found.name.name_bytes()),
        disks: asked.disks().iter().map(place).collect(),
        lease_version: found.lver.get(),
        sector_size,
        align_size,
    };
    let owner = |host: &Host| {
        let timestamp = Some(host.timestamp.get()).filter(|timestamp| *timestamp != 0);
        Owner {
            host_id: host.host_id.get(),
            generation: host.generation.get(),
            mode: if timestamp.is_some() { "exclusive" } else { "shared" },
            timestamp,
        }
    };
    let owners = hosts.map(|hosts| hosts.iter().map(owner).collect());
    Ok(Read { resource: Some(resource), owners, ..Read::default() })
}

#[cfg(test)]
mod tests;
