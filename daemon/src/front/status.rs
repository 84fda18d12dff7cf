//! What commands show: state records (socket-protocol.md 8), hosts and lockspaces. Keys and their order are an interface.

use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::hosts::HostStatus;
use sanlock_lease::timing::MonoTime;
use sanlock_manager::{
    Conn as Client, ConnId, Dead, Lockspace, LockspaceId, LockspaceList, Resource, ResourceId, ResourceList,
    Work,
};
use sanlock_sys::clock;
use sanlock_wire::flags::LockspaceFlags;
use sanlock_wire::limits::PROTOCOL_VERSION;
use sanlock_wire::types::Host;
use sanlock_wire::{Name, StateRecord, StateText, code, types};
use std::collections::HashMap;

use super::requests::VERSION;
use super::slots::Slot;
use super::{Front, convert};
use crate::config::MaxSectorsKb;

/// Records up to this type are sent by STATUS with the same number (7.5).
const LAST_TYPES: [u32; 3] = [1, 2, 3];

/// By their connections: there may be a thousand, each with many leases.
type Clients<'a> = HashMap<ConnId, &'a Client>;

/// The records of STATUS, up to the type asked for.
pub(super) fn all(front: &Front, last_type: u32) -> Vec<StateRecord> {
    let wanted = |kind: u32| !LAST_TYPES.contains(&last_type) || kind <= last_type;
    let mut records = vec![daemon(front)];
    let known: Clients<'_> = front.manager.conns().collect();
    if wanted(2) {
        clients(front, &known, &mut records);
    }
    if wanted(3) {
        for list in [LockspaceList::Spaces, LockspaceList::Add, LockspaceList::Rem] {
            let of_list = front.manager.lockspaces().filter(|(_, ls)| ls.list == list);
            records.extend(of_list.map(|(id, ls)| lockspace(front, id, ls)));
        }
    }
    if wanted(4) {
        for list in [ResourceList::Held, ResourceList::Add, ResourceList::Rem, ResourceList::Orphan] {
            let of_list = front.manager.resources().filter(|(_, resource)| resource.list() == list);
            records
                .extend(of_list.flat_map(|(id, resource)| resource_records(front, &known, id.0, resource)));
        }
    }
    records
}

fn daemon(front: &Front) -> StateRecord {
    let config = &front.global.config;
    let (ignore, align, kib) = match config.max_sectors_kb {
        MaxSectorsKb::Ignore => (1, 0, 0),
        MaxSectorsKb::Align => (0, 1, 0),
        MaxSectorsKb::Kib(kib) => (0, 0, kib),
    };
    let [major, minor, patch, _] = VERSION.to_be_bytes();
    let name = convert::wire_name(&front.global.host_name);
    let text = StateText::new()
        .item("our_host_name", front.global.host_name)
        .item("use_watchdog", config.use_watchdog)
        .item("high_priority", config.high_priority)
        .item("mlock_level", config.mlock_level)
        .item("quiet_fail", config.quiet_fail)
        .item("debug_renew", config.debug_renew)
        .item("debug_clients", config.debug_clients)
        .item("debug_cmds", format_args!("{:#x}", config.debug_cmds))
        .item("renewal_history_size", config.renewal_history_size)
        .item("gid", front.account.group.0)
        .item("uid", front.account.user.0)
        .item("sh_retries", config.sh_retries)
        .item("max_sectors_kb_ignore", ignore)
        .item("max_sectors_kb_align", align)
        .item("max_sectors_kb_num", kib)
        .item("max_worker_threads", config.max_worker_threads)
        .item("write_init_io_timeout", config.write_init_io_timeout)
        .item("use_aio", config.use_aio)
        .item("kill_grace_seconds", config.kill_grace_seconds())
        .item("helper_pid", front.helper.pid())
        .item("helper_kill_fd", front.helper.raw_fd())
        .item("helper_full_count", front.helper.full_count())
        .item("helper_last_status", front.helper.last_seen())
        .item("monotime", clock::boottime_seconds())
        .item("version_str", env!("CARGO_PKG_VERSION"))
        .item("version_num", format_args!("{major}.{minor}.{patch}"))
        .item("version_hex", format_args!("{VERSION:08x}"))
        .item("smproto_hex", format_args!("{PROTOCOL_VERSION:08x}"));
    StateRecord::daemon(name, text)
}

/// The values of a client record that differ from those of an unused slot.
#[derive(Default)]
struct ClientRow {
    ci: u32,
    fd: i32,
    pid: i32,
    flags: u32,
    restricted: u32,
    cmd_active: u32,
    cmd_last: u32,
    pid_dead: bool,
    kill_count: u32,
    kill_last: u64,
    suspend: bool,
}

impl ClientRow {
    fn record(&self, name: Name) -> StateRecord {
        let text = StateText::new()
            .item("ci", self.ci)
            .item("fd", self.fd)
            .item("pid", self.pid)
            .item("flags", self.flags)
            .item("restricted", format_args!("{:x}", self.restricted))
            .item("cmd_active", self.cmd_active)
            .item("cmd_last", self.cmd_last)
            .item("pid_dead", u32::from(self.pid_dead))
            .item("kill_count", self.kill_count)
            .item("kill_last", self.kill_last)
            .item("suspend", u32::from(self.suspend))
            .item("need_free", 0);
        StateRecord::client(name, self.pid, text)
    }
}

fn clients(front: &Front, known: &Clients<'_>, records: &mut Vec<StateRecord>) {
    use std::os::fd::AsRawFd;
    let fixed = |ci, fd| ClientRow { ci, fd, pid: -1, ..ClientRow::default() };
    records.push(fixed(0, front.helper.raw_fd()).record(Name::truncated("helper")));
    records.push(fixed(1, front.listener.as_raw_fd()).record(Name::truncated("listener")));
    for slot in front.slots.iter() {
        records.push(client_record(front, slot, known.get(&slot.id).copied()));
    }
}

fn client_record(front: &Front, slot: &Slot, client: Option<&Client>) -> StateRecord {
    let conn = slot.conn.as_ref();
    let registered = client.and_then(|client| client.pid);
    let mut name = conn.map_or(Name::EMPTY, |conn| conn.owner_name);
    let mut row = ClientRow {
        ci: slot.ci,
        fd: conn.map_or(-1, super::conn::Conn::raw_fd),
        pid: registered.unwrap_or(-1),
        cmd_last: conn.map_or(0, |conn| conn.cmd_last),
        suspend: conn.is_some_and(|conn| conn.suspended),
        pid_dead: client.is_some_and(|client| client.closed),
        ..ClientRow::default()
    };
    if let Some(client) = client {
        if let (Some(_), Some(owner)) = (client.pid, client.owner_name) {
            name = convert::wire_name(&owner);
        }
        row.flags = u32::from(client.killpath_pid) | u32::from(client.killpath_run) << 1;
        row.restricted = client.restricted;
        row.kill_count = client.kill_count;
        row.kill_last = client.kill_last.map_or(0, MonoTime::secs);
        if client.is_busy() {
            row.cmd_active = active_command(front, slot, client.pid);
        }
    }
    row.record(name)
}

/// The command that works on this client's leases: its own, or one that names its pid.
fn active_command(front: &Front, slot: &Slot, pid: Option<i32>) -> u32 {
    use sanlock_wire::Target;
    let targeted = |slot: &&Slot| {
        slot.request.is_some_and(|header| header.command().is_some_and(sanlock_wire::Command::is_targeted))
    };
    let own = Some(slot)
        .filter(targeted)
        .filter(|slot| slot.request.is_some_and(|header| header.target() == Target::Connection));
    let named = || {
        front.slots.iter().filter(targeted).find(|other| {
            other.request.is_some_and(|header| pid.is_some_and(|pid| header.target() == Target::Pid(pid)))
        })
    };
    own.or_else(named).and_then(|slot| slot.request).map_or(0, |header| header.cmd)
}

fn lockspace(front: &Front, id: LockspaceId, ls: &Lockspace) -> StateRecord {
    let list = match ls.list {
        LockspaceList::Spaces => "spaces",
        LockspaceList::Add => "add",
        LockspaceList::Rem => "rem",
    };
    let geometry = ls.joined.as_ref().map(|joined| joined.geometry);
    let joined_at = ls.joined.as_ref().map_or(0, |joined| joined.last_good.secs());
    // What is waited, not what is configured.
    let extend = front.global.config.renewal_read_extend_sec;
    let extend = extend.map_or(ls.io_timeout.secs(), u64::from).min(ls.io_timeout.read_extend_secs_max());
    let text = StateText::new()
        .item("list", list)
        .item("space_id", id.0)
        .item("io_timeout", ls.io_timeout.secs())
        .item("sector_size", geometry.map_or(0, |g| g.sector().bytes()))
        .item("align_size", geometry.map_or(0, |g| g.align().bytes()))
        .item("host_generation", ls.generation())
        .item("renew_fail", u32::from(ls.dead == Some(Dead::Failed)))
        .item("space_dead", u32::from(ls.dead.is_some()))
        .item("killing_pids", ls.killing)
        .item("used_retries", 0)
        .item("external_used", u32::from(ls.used))
        .item("used_by_orphans", u32::from(ls.used_by_orphans))
        .item("renewal_read_extend_sec", extend)
        .item("set_max_sectors_kb", 0)
        .item("corrupt_result", ls.corrupt)
        .item("acquire_last_result", u32::from(ls.joined.is_some()))
        .item("renewal_last_result", ls.last_result)
        .item("acquire_last_attempt", joined_at)
        .item("acquire_last_success", joined_at)
        .item("renewal_last_attempt", ls.last_attempt)
        .item("renewal_last_success", ls.last_good.map_or(0, MonoTime::secs));
    StateRecord::lockspace(convert::wire_lockspace(&ls.spec), text)
}

/// One record for each token, with the pid of its holder; of a resource without tokens one, with the last exclusive owner's.
fn resource_records(front: &Front, known: &Clients<'_>, id: u64, resource: &Resource) -> Vec<StateRecord> {
    if !resource.is_granted() {
        let taker = (resource.list() == ResourceList::Add).then(|| front.manager.taker(resource)).flatten();
        return resource_record(front, id, resource, taker.unwrap_or(resource.pid)).into_iter().collect();
    }
    let pid = |conn| known.get(&conn).and_then(|client| client.pid).unwrap_or(0);
    // Like everything in the listing, the newest first.
    let granted = resource.tokens().iter().rev().filter(|t| t.granted);
    granted.filter_map(|t| resource_record(front, id, resource, pid(t.conn))).collect()
}

fn resource_record(front: &Front, id: u64, resource: &Resource, pid: i32) -> Option<StateRecord> {
    let (list, token) = match resource.list() {
        ResourceList::Held => ("held", id),
        ResourceList::Add => ("add", id),
        ResourceList::Rem => ("rem", 0),
        ResourceList::Orphan => ("orphan", 0),
    };
    let joined = || {
        let ls = front.manager.lockspaces().find(|(ls, _)| *ls == resource.ls);
        ls.and_then(|(_, ls)| ls.joined.as_ref().map(|joined| joined.geometry))
    };
    let geometry: Option<Geometry> = match &resource.work {
        Work::Held { held, .. } => Some(held.geometry),
        _ => joined(),
    };
    // Of a shared hold too, although its version names no ownership: the one at which it was entered.
    let lver = match &resource.work {
        Work::Held { held, .. } => held.lver(),
        _ => resource.lver,
    };
    let flags = front.manager.flags(ResourceId(id), resource);
    let text = StateText::new()
        .item("list", list)
        .item("flags", format_args!("{flags:x}"))
        .item("sector_size", geometry.map_or(0, |g| g.sector().bytes()))
        .item("align_size", geometry.map_or(0, |g| g.align().bytes()))
        .item("lver", lver)
        .item("reused", 0)
        .item("res_id", id)
        .item("token_id", token);
    let wire = convert::wire_resource(&resource.spec).ok()?;
    Some(StateRecord::resource(wire, pid, lver, text))
}

/// The records of HOST_STATUS: every host that was ever seen alive or has an owner, ascending.
pub(super) fn hosts(front: &Front, (id, ls): (LockspaceId, &Lockspace)) -> Vec<StateRecord> {
    let Some(table) = front.shared(id).and_then(|shared| shared.hosts()) else { return Vec::new() };
    let now = monotonic_now();
    let known = |status: &HostStatus| status.seen.last_live.is_some() || status.seen.owner_id != 0;
    let all = (0..table.max_hosts()).filter_map(HostId::from_index);
    all.filter_map(|host| table.status(host, now))
        .filter(known)
        .map(|status| host_record(ls, &status))
        .collect()
}

fn host_record(ls: &Lockspace, status: &HostStatus) -> StateRecord {
    let seen = &status.seen;
    let text = StateText::new()
        .item("last_check", seen.last_check.secs())
        .item("last_live", seen.last_live.map_or(0, MonoTime::secs))
        .item("last_req", ls.last_request(status.host).map_or(0, MonoTime::secs))
        .item("owner_id", seen.owner_id)
        .item("owner_generation", seen.owner_generation)
        .item("timestamp", seen.timestamp)
        .item("io_timeout", seen.io_timeout.secs())
        .last_item("owner_name", status.name.as_bytes());
    StateRecord::host(u32::try_from(status.host.get()).unwrap_or(0), seen.timestamp, text)
}

/// The records of RENEWAL, with the lockspace's io timeout.
pub(super) fn renewals(front: &Front, ls: LockspaceId) -> (u32, Vec<StateRecord>) {
    let Some((_, ls)) = front.manager.lockspaces().find(|(id, _)| *id == ls) else { return (0, Vec::new()) };
    let record = |entry: &sanlock_manager::RenewalEntry| {
        let text = StateText::new()
            .item("timestamp", entry.timestamp)
            .item("read_ms", entry.read_ms)
            .item("write_ms", entry.write_ms)
            .item("next_timeouts", entry.next_timeouts)
            .item("next_errors", entry.next_errors);
        StateRecord::renewal(entry.timestamp, text)
    };
    (u32::try_from(ls.io_timeout.secs()).unwrap_or(0), ls.history.iter().map(record).collect())
}

/// GET_LOCKSPACES: joined, then being removed, then being added.
pub(super) fn lockspaces(front: &Front) -> Vec<types::Lockspace> {
    let lists = [
        (LockspaceList::Spaces, LockspaceFlags::empty()),
        (LockspaceList::Rem, LockspaceFlags::REM),
        (LockspaceList::Add, LockspaceFlags::ADD),
    ];
    let mut all = Vec::new();
    for (list, flags) in lists {
        for (_, ls) in front.manager.lockspaces().filter(|(_, ls)| ls.list == list) {
            let mut wire = convert::wire_lockspace(&ls.spec);
            wire.flags = flags.bits().into();
            all.push(wire);
        }
    }
    all
}

/// GET_HOSTS (7.22).
///
/// # Errors
/// -ENOENT: not joined. -EAGAIN: the hosts have not been looked at yet.
pub(super) fn get_hosts(front: &Front, wire: &types::Lockspace) -> Result<Vec<Host>, i32> {
    let (id, _) = front.named(wire).filter(|(_, ls)| ls.list == LockspaceList::Spaces).ok_or(code::ENOENT)?;
    let table = front.shared(id).and_then(|shared| shared.hosts()).filter(|table| table.is_complete());
    let (table, now) = (table.ok_or(code::EAGAIN)?, monotonic_now());
    let row = |status: HostStatus| Host {
        host_id: status.host.get().into(),
        generation: status.seen.owner_generation.into(),
        timestamp: status.seen.timestamp.into(),
        io_timeout: u32::try_from(status.seen.io_timeout.secs()).unwrap_or(0).into(),
        flags: u32::from(status.state as u8).into(),
    };
    Ok(match wire.host_id.get() {
        0 => table.list(now).map(row).collect(),
        one => HostId::new(one).and_then(|host| table.status(host, now)).map(row).into_iter().collect(),
    })
}
