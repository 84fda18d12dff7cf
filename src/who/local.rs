//! What the daemon of this host knows: its lockspaces, what it has seen of other hosts, and the processes that hold leases here.

use super::disk::is_other_place;
use super::judge::{Age, Later, Seen, Silence};
use super::report::{Mode, ProcessReport};
use crate::json::Text;
use sanlock_client::wire::flags::{HostState, LockspaceFlags, ResourceFlags};
use sanlock_client::wire::{Attachment, Host, Lockspace, ResourceSpec, StateRecord, StateType};
use sanlock_client::{Client, ClientError};
use sanlock_lease::name::Name;
use sanlock_lease::text::DiskSpec;
use sanlock_lease::timing::IoTimeout;
use sanlock_sys::clock::boottime_seconds;
use std::time::Duration;

/// For each question. The daemon answers them from memory, whatever its disks do.
const PATIENCE: Duration = Duration::from_secs(10);
/// For one that the daemon reads the disks for.
const READING: Duration = Duration::from_secs(60);

/// The daemon's answers to STATUS and GET_LOCKSPACES.
pub(super) struct Local {
    client: Client,
    lockspaces: Vec<Lockspace>,
    records: Vec<StateRecord>,
}

impl Local {
    /// # Errors
    /// No daemon, or it does not answer.
    pub(super) fn ask() -> Result<Self, ClientError> {
        let client = Client::new().within(PATIENCE);
        let lockspaces = client.get_lockspaces()?;
        let records = client.status(0)?;
        Ok(Self { client, lockspaces, records })
    }

    /// The daemon, for what it has to read disks for.
    pub(super) fn reading(&self) -> Client {
        self.client.clone().within(READING)
    }

    /// Place and own host id of a lockspace that the daemon is in; one that is still being joined has seen nobody yet.
    pub(super) fn lockspace(&self, name: Name) -> Option<(DiskSpec, u64)> {
        let joining = |lockspace: &Lockspace| {
            LockspaceFlags::from_bits_truncate(lockspace.flags.get()).contains(LockspaceFlags::ADD)
        };
        let mut joined = self.lockspaces.iter().filter(|lockspace| !joining(lockspace));
        let found = joined.find(|lockspace| name.matches(lockspace.name.as_raw()))?;
        Some((place(&found.host_id_disk), found.host_id.get()))
    }

    /// The disks of a resource that is held here.
    pub(super) fn disks_of(&self, lockspace: Name, resource: Name) -> Option<Vec<DiskSpec>> {
        let held = self.resources().find(|(_, spec)| is(spec, lockspace, Some(resource)))?;
        Some(held.1.disks().iter().map(place).collect())
    }

    fn resources(&self) -> impl Iterator<Item = (&StateRecord, &ResourceSpec)> {
        self.records.iter().filter_map(|record| match &record.attachment {
            Attachment::Resource(spec) if record.state_type() == Some(StateType::Resource) => {
                Some((record, spec.as_ref()))
            }
            _ => None,
        })
    }

    /// The processes of this host that hold, acquire or release the resource, or anything in the lockspace. A copy of the resource, elsewhere
    /// than on `disks`, is another one.
    pub(super) fn processes(
        &self,
        lockspace: Name,
        resource: Option<(Name, &[DiskSpec])>,
    ) -> Vec<ProcessReport> {
        let asked = |spec: &ResourceSpec| {
            let Some((name, disks)) = resource else { return is(spec, lockspace, None) };
            let elsewhere = |held: &DiskSpec| disks.iter().all(|disk| is_other_place(held, disk));
            is(spec, lockspace, Some(name)) && !spec.disks().iter().map(place).all(|held| elsewhere(&held))
        };
        let held = self.resources().filter(|(_, spec)| asked(spec));
        held.map(|(record, spec)| {
            let list = record.get("list").unwrap_or(b"held");
            let pid = i32::from_ne_bytes(record.data32.to_ne_bytes());
            let pid = (list != b"orphan" && pid > 0).then_some(pid);
            let shared = ResourceFlags::from_bits_truncate(spec.resource().flags.get())
                .contains(ResourceFlags::SHARED);
            ProcessReport {
                pid,
                name: Text(pid.map(program).unwrap_or_default()),
                resource: Text::from(spec.resource().name.name_bytes()),
                mode: if shared { Mode::Shared } else { Mode::Exclusive },
                list: Text::from(list),
                lease_version: record.data64,
            }
        })
        .collect()
    }

    /// What this host has seen of the hosts of a lockspace that it is in: id and record, of those whose id is in use.
    ///
    /// # Errors
    /// The daemon has left the lockspace meanwhile, or does not answer.
    pub(super) fn hosts(&self, lockspace: Name) -> Result<Vec<(u64, Seen)>, ClientError> {
        let name = crate::client::wire_name(lockspace);
        let records = self.client.host_status(name)?;
        // Not ready just after the join (-11): then the ages alone must do.
        let judged = self.client.get_hosts(name, 0).unwrap_or_default();
        let now = boottime_seconds();
        Ok(records.iter().filter_map(|record| seen(record, &judged, now)).collect())
    }
}

fn place(disk: &sanlock_client::wire::Disk) -> DiskSpec {
    let path = disk.path.path().unwrap_or_else(|_| disk.path.as_raw()).to_vec();
    DiskSpec { path, offset: disk.offset.get() }
}

fn is(spec: &ResourceSpec, lockspace: Name, resource: Option<Name>) -> bool {
    let found = spec.resource();
    lockspace.matches(found.lockspace_name.as_raw())
        && resource.is_none_or(|name| name.matches(found.name.as_raw()))
}

/// The name that the system has for a process; empty if there is none.
fn program(pid: i32) -> Vec<u8> {
    let mut name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.truncate(name.trim_ascii_end().len());
    name
}

/// What a record of HOST_STATUS says; `now` is this host's monotonic clock, as the daemon's times are.
fn seen(record: &StateRecord, judged: &[Host], now: u64) -> Option<(u64, Seen)> {
    let number = |key: &str| -> Option<u64> { std::str::from_utf8(record.get(key)?).ok()?.parse().ok() };
    let host_id = u64::from(record.data32);
    let io_timeout = u16::try_from(number("io_timeout")?).unwrap_or(u16::MAX);
    let judged = judged.iter().find(|host| host.host_id.get() == host_id);
    let unknown = judged.and_then(|host| HostState::from_flags(host.flags.get())) == Some(HostState::Unknown);
    let checked = number("last_check").unwrap_or(0);
    let age = |at: u64| Age { secs: now.saturating_sub(at), confirmed: checked.saturating_sub(at) };
    let silence = match number("last_live")? {
        0 => Silence::Unknown,
        at if unknown => Silence::Watched(age(at)),
        at => Silence::Since(age(at)),
    };
    let seen = Seen {
        name: record.get("owner_name").unwrap_or_default().to_vec(),
        generation: number("owner_generation")?,
        timestamp: number("timestamp")?,
        io_timeout: IoTimeout::from_disk(io_timeout, IoTimeout::DEFAULT),
        silence,
        // Of a daemon of 5.1.1.
        later: Later {
            no_timeout: number("no_timeout").is_some_and(|set| set != 0),
            declared_dead: number("dead_ext").is_some_and(|set| set != 0),
        },
    };
    Some((host_id, seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::wire::StateText;

    fn record(last_live: u64) -> StateRecord {
        let mut record = StateRecord::host(2, 500, StateText::default());
        record.text = format!(
            "last_check=999 last_live={last_live} last_req=0 owner_id=2 owner_generation=3 timestamp=500 io_timeout=10 \
             owner_name=host two"
        )
        .into_bytes();
        record
    }

    fn host(state: u32) -> Host {
        Host {
            host_id: 2.into(),
            generation: 3.into(),
            timestamp: 500.into(),
            io_timeout: 10.into(),
            flags: state.into(),
        }
    }

    #[test]
    fn host_records_are_understood() {
        let expected = |silence| Seen {
            name: b"host two".to_vec(),
            generation: 3,
            timestamp: 500,
            io_timeout: IoTimeout::new(10).unwrap(),
            silence,
            later: Later::default(),
        };
        for (last_live, judged, silence) in [
            (996, vec![host(3)], Silence::Since(Age { secs: 4, confirmed: 3 })),
            (996, vec![], Silence::Since(Age { secs: 4, confirmed: 3 })),
            (990, vec![host(1)], Silence::Watched(Age { secs: 10, confirmed: 9 })),
            (0, vec![host(1)], Silence::Unknown),
        ] {
            assert_eq!(seen(&record(last_live), &judged, 1000), Some((2, expected(silence))));
        }
        assert_eq!(seen(&StateRecord::host(2, 500, StateText::default()), &[], 1000), None);
    }
}
