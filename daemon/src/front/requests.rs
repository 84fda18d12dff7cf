//! What each command leads to (socket-protocol.md 6, 7).

use std::time::Instant;

use sanlock_blockio::drive::monotonic_now;
use sanlock_manager::{Command as Order, ConnId, Event, KillpathProgram, Setting};
use sanlock_sys::credentials::{peer_pid, peer_process};
use sanlock_wire::counters::StatusFlags;
use sanlock_wire::flags::{
    AddFlags, ConfigCommand, ConvertFlags, InqFlags, KillpathFlags, RemFlags, ResourceFlags, RestrictFlags,
};
use sanlock_wire::header::{Header, Target};
use sanlock_wire::types::{Killpath, Lockspace};
use sanlock_wire::{Command, Name, Refusal, Reply, Request, RequestBody, Unsupported, code};

use super::{Front, Message, convert, counters, status};
use crate::tools::{IndexJob, Job};

/// What VERSION answers: the release whose protocol this daemon speaks. lvmlockd and others compare it.
pub(super) const VERSION: u32 = 0x0308_0500;

impl Front {
    /// Carries out a request, or begins to.
    pub(super) fn request(&mut self, id: ConnId, request: Request) {
        let Request { header, body } = request;
        let Some(conn) = self.slots.conn_mut(id) else { return };
        if conn.restrict.contains(RestrictFlags::ALL) {
            let who = self.slots.describe(id);
            return self
                .global
                .log
                .debug(format_args!("client connection {who} is restricted, cmd {} ignored", header.cmd));
        }
        conn.cmd_last = header.cmd;
        if conn.registered.is_none() {
            if let Some(name) = owner_name(header.command()) {
                conn.owner_name = name;
            }
        }
        // VERSION changes nothing and tells nothing; the original does not log it either.
        let logged = header.cmd < u64::BITS && header.command() != Some(Command::Version);
        if logged && self.global.config.debug_cmds & (1 << header.cmd) != 0 {
            self.global.log.debug(format_args!("cmd {} {}", header.cmd, self.slots.describe(id)));
        }
        match body {
            RequestBody::Register => self.register(id),
            RequestBody::Restrict => {
                let flags = RestrictFlags::from_bits_truncate(header.cmd_flags);
                if let Some(conn) = self.slots.conn_mut(id) {
                    conn.restrict = flags;
                }
                self.command(id, header, Order::Restrict { flags: header.cmd_flags });
            }
            RequestBody::Version => self.finish(id, &Reply::version(&header, VERSION)),
            RequestBody::Shutdown => {
                if let Some(conn) = self.slots.conn_mut(id) {
                    conn.closing = conn.registered.is_none();
                }
                self.event(Event::Command { conn: id, command: Order::Shutdown { force: header.data != 0 } });
            }
            RequestBody::ShutdownWait => {
                self.command(id, header, Order::ShutdownWait { force: header.data != 0 });
            }
            RequestBody::Status
            | RequestBody::LogDump
            | RequestBody::HostStatus(_)
            | RequestBody::Renewal(_)
            | RequestBody::GetLockspaces
            | RequestBody::GetHosts(_) => {
                let reply = self.show(&header, &body);
                self.finish(id, &reply);
            }
            RequestBody::AddLockspace(_) | RequestBody::RemLockspace(_) | RequestBody::InqLockspace(_) => {
                self.lockspace_command(id, header, &body)
            }
            RequestBody::Acquire { .. }
            | RequestBody::Release(_)
            | RequestBody::Convert(_)
            | RequestBody::Inquire => {
                self.lease_command(id, header, body);
            }
            RequestBody::Align(disk) => self.tool(id, header, Job::Align(disk)),
            RequestBody::WriteLockspace(lockspace) => self.format(id, header, Job::WriteLockspace(lockspace)),
            RequestBody::WriteResource(resource) => self.format(id, header, Job::WriteResource(resource)),
            RequestBody::ReadLockspace(lockspace) => self.tool(id, header, Job::ReadLockspace(lockspace)),
            RequestBody::ReadResource(resource) => self.tool(id, header, Job::ReadResource(resource)),
            RequestBody::ReadResourceOwners(resource) => {
                self.tool(id, header, Job::ReadResourceOwners(resource));
            }
            RequestBody::Refused(refusal) => self.refused(id, header, refusal),
            RequestBody::Killpath(killpath) => self.killpath(id, header, &killpath),
            RequestBody::SetConfig(lockspace) => {
                let setting = match ConfigCommand::from_number(header.data) {
                    None => None,
                    Some(ConfigCommand::Used) => Some(Setting::Used(true)),
                    Some(ConfigCommand::Unused) => Some(Setting::Used(false)),
                    Some(ConfigCommand::UsedByOrphans) => Some(Setting::UsedByOrphans(true)),
                    Some(ConfigCommand::UnusedByOrphans) => Some(Setting::UsedByOrphans(false)),
                };
                let lockspace = convert::lease_name(&lockspace.name);
                self.command(id, header, Order::SetConfig { lockspace, setting });
            }
            RequestBody::FormatRindex(index) | RequestBody::RebuildRindex(index) => {
                self.index(id, IndexJob::new(header, index, None));
            }
            RequestBody::UpdateRindex(index, entry)
            | RequestBody::LookupRindex(index, entry)
            | RequestBody::CreateResource(index, entry)
            | RequestBody::DeleteResource(index, entry) => {
                self.index(id, IndexJob::new(header, index, Some(entry)));
            }
            RequestBody::Request(resource) => self.ask(id, header, resource),
            RequestBody::ExamineLockspace(lockspace) => {
                let lockspace = convert::lease_name(&lockspace.name);
                self.command(id, header, Order::Examine { lockspace, resource: None });
            }
            RequestBody::ExamineResource(resource) => {
                let lockspace = convert::lease_name(&resource.lockspace_name);
                let resource = Some(convert::lease_name(&resource.name));
                self.command(id, header, Order::Examine { lockspace, resource });
            }
            RequestBody::RegEvent { lockspace, .. } => self.reg_event(id, header, &lockspace),
            RequestBody::EndEvent(lockspace) => self.end_event(id, header, &lockspace),
            RequestBody::SetEvent { lockspace, event } => self.set_event(id, header, &lockspace, &event),
            RequestBody::SetLvb { resource, lvb } => {
                let (lockspace, name) = convert::resource_name(&resource);
                self.command(id, header, Order::SetLvb { lockspace, name, bytes: lvb });
            }
            RequestBody::GetLvb(resource) => {
                let (lockspace, name) = convert::resource_name(&resource);
                self.command(id, header, Order::GetLvb { lockspace, name, length: header.data2 });
            }
            RequestBody::Unsupported(Unsupported::UnknownCommand(_) | Unsupported::Command(_)) => {
                self.finish(id, &Reply::unsupported(&header));
            }
            RequestBody::Unsupported(reason @ Unsupported::ProtocolVersion(_)) => {
                // A reply would be in a version that the client does not know; the original sends none either.
                self.global
                    .log
                    .error(format_args!("client connection {}: {reason}", self.slots.describe(id)));
            }
        }
    }

    /// Sends a reply that needed nobody else, and closes the connection where the protocol says so (2.3).
    pub(super) fn finish(&mut self, id: ConnId, reply: &Reply) {
        let Some(conn) = self.slots.conn_mut(id) else { return };
        let command = Command::from_number(conn.cmd_last);
        let closes =
            command.is_some_and(Command::closes_plain_connection) || command == Some(Command::RegEvent);
        if closes {
            conn.closing = conn.registered.is_none();
            if conn.registered.is_some() {
                let who = self.slots.describe(id);
                self.global.log.error(format_args!(
                    "cmd {} on registered connection {who}, not closed",
                    reply.header.cmd
                ));
            }
        }
        if let Some(conn) = self.slots.conn_mut(id) {
            conn.reply(reply, monotonic_now());
        }
    }

    /// Gives the manager a command whose reply will come as an action.
    pub(super) fn command(&mut self, id: ConnId, header: Header, command: Order) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        (slot.request, slot.since) = (Some(header), Instant::now());
        if let Some(conn) = slot.conn.as_mut() {
            conn.suspended = true;
        }
        self.event(Event::Command { conn: id, command });
    }

    pub(super) fn tool(&mut self, id: ConnId, header: Header, job: Job) {
        if let Some(conn) = self.slots.conn_mut(id) {
            (conn.suspended, conn.only_answer) = (true, true);
        }
        let outbox = self.outbox.clone();
        // Before the manager is told anything: it could begin something else in the place of this. That the job is done comes by the mailbox, and later.
        self.tools.submit(id, header, job, move |reply| outbox.send(Message::JobDone(id, Box::new(reply))));
        self.event(Event::JobBegun);
    }

    /// A command on a resource index (7.33): at once if it needs no lockspace, else when the manager says so.
    fn index(&mut self, id: ConnId, job: IndexJob) {
        let header = job.header;
        if job.without_lockspace() {
            return self.format(id, header, Job::Index(job));
        }
        let lockspace = convert::lease_name(&job.index.lockspace_name);
        let lease = job.takes_lease();
        self.indexes.insert(id, job);
        self.command(id, header, Order::Index { lockspace, lease });
    }

    /// REGISTER (7.1): the process that called `connect` is behind this connection from now on.
    fn register(&mut self, id: ConnId) {
        let Some(conn) = self.slots.conn_mut(id) else { return };
        if conn.registered.is_some() {
            return self.event(Event::Command { conn: id, command: Order::Register { pid: -1 } });
        }
        let pid = match peer_pid(&conn.fd()) {
            Ok(pid) => pid,
            Err(error) => {
                self.global.log.error(format_args!("register: no peer pid: {error}"));
                return self.close(id);
            }
        };
        let process = peer_process(&conn.fd(), conn.accepted_ms);
        conn.registered = Some(pid);
        conn.owner_name = Name::truncated(pid.to_string());
        self.event(Event::Command { conn: id, command: Order::Register { pid } });
        match process.and_then(|process| self.slots.watch_pid(id, process, &self.poller)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.event(Event::PidGone { conn: id })
            }
            // A process of a pid namespace that is not visible here; every lease command of it is refused (2.4).
            Err(_) if pid <= 0 => {}
            Err(error) => {
                // Without the descriptor the process cannot be signalled safely, so it must not get leases.
                self.global.log.error(format_args!("register: pid {pid} cannot be watched: {error}"));
                self.close(id);
            }
        }
    }

    /// KILLPATH (7.16): for the own connection only.
    fn killpath(&mut self, id: ConnId, header: Header, killpath: &Killpath) {
        if header.target() != Target::Connection {
            return self.refuse_target(id, header, code::EINVAL);
        }
        let program = KillpathProgram { path: killpath.path().to_vec(), arguments: killpath.args().to_vec() };
        let pid = KillpathFlags::from_bits_truncate(header.cmd_flags).contains(KillpathFlags::PID);
        self.command(id, header, Order::Killpath { program, pid });
    }

    fn lockspace_command(&mut self, id: ConnId, header: Header, body: &RequestBody) {
        let (RequestBody::AddLockspace(wire)
        | RequestBody::RemLockspace(wire)
        | RequestBody::InqLockspace(wire)) = body
        else {
            return;
        };
        let Ok(spec) = convert::lockspace(wire) else {
            return self.finish(id, &Reply::result(&header, code::EINVAL));
        };
        let flags = AddFlags::from_bits_truncate(header.cmd_flags);
        let command = match body {
            RequestBody::AddLockspace(_) if self.manager.lacks_only_a_host_id(&spec, header.data) => {
                if flags.contains(AddFlags::ASYNC) {
                    // The answer comes before anything is tried, as to every request of this kind, and the join that would follow fails.
                    self.global.log.error(format_args!(
                        "add_lockspace {}:{} refused: {}: there is no such host id",
                        spec.name,
                        spec.host_id,
                        code::SANLK_ADDLS_INVALID_HOSTID
                    ));
                    return self.finish(id, &Reply::result(&header, 0));
                }
                return self.tool(id, header, Job::BeyondHosts(wire.clone()));
            }
            RequestBody::AddLockspace(_) => Order::AddLockspace {
                spec,
                io_timeout: header.data,
                asynchronous: flags.contains(AddFlags::ASYNC),
            },
            RequestBody::RemLockspace(_) => {
                let flags = RemFlags::from_bits_truncate(header.cmd_flags);
                Order::RemLockspace {
                    spec,
                    asynchronous: flags.contains(RemFlags::ASYNC),
                    unused: flags.contains(RemFlags::UNUSED),
                }
            }
            _ => {
                let wait = InqFlags::from_bits_truncate(header.cmd_flags).contains(InqFlags::WAIT);
                Order::InqLockspace { spec, wait }
            }
        };
        self.command(id, header, command);
    }

    fn lease_command(&mut self, id: ConnId, header: Header, body: RequestBody) {
        let target = convert::target(header.target());
        let command = match body {
            RequestBody::Acquire { resources, options } => {
                match resources.iter().map(convert::resource_request).collect::<Result<Vec<_>, _>>() {
                    Ok(resources) => Order::Acquire {
                        target,
                        owner_name: convert::lease_name(&options.owner_name),
                        resources,
                        flags: convert::acquire_flags(header.cmd_flags),
                    },
                    Err(_) => Order::Refused { target, acquire: true, code: code::EINVAL },
                }
            }
            RequestBody::Release(resources) => match convert::release_what(header.cmd_flags, &resources) {
                Ok(what) => Order::Release { target, what },
                Err(code) => Order::Refused { target, acquire: false, code },
            },
            RequestBody::Convert(wire) => Order::Convert {
                target,
                lockspace: convert::lease_name(&wire.lockspace_name),
                name: convert::lease_name(&wire.name),
                shared: ResourceFlags::from_bits_truncate(wire.flags.get()).contains(ResourceFlags::SHARED),
                owner_nowait: ConvertFlags::from_bits_truncate(header.cmd_flags)
                    .contains(ConvertFlags::OWNER_NOWAIT),
            },
            _ => Order::Inquire { target },
        };
        self.command(id, header, command);
    }

    /// A command on a target that cannot be carried out: first the target is judged, as always (2.6).
    fn refuse_target(&mut self, id: ConnId, header: Header, code: i32) {
        let acquire = header.command() == Some(Command::Acquire);
        let target = convert::target(header.target());
        self.command(id, header, Order::Refused { target, acquire, code });
    }

    fn refused(&mut self, id: ConnId, header: Header, refusal: Refusal) {
        let code = refusal.code();
        let reply = match (header.command(), refusal) {
            (Some(command), _) if command.is_targeted() => return self.refuse_target(id, header, code),
            (Some(Command::ReadResource), Refusal::DiskCount { resource }) => {
                Reply::read_resource(&header, code, resource)
            }
            (Some(Command::ReadResourceOwners), Refusal::DiskCount { resource }) => {
                Reply::read_resource_owners(&header, code, resource, Vec::new())
            }
            _ => Reply::result(&header, code),
        };
        self.finish(id, &reply);
    }

    /// Commands that only look.
    fn show(&self, header: &Header, body: &RequestBody) -> Reply {
        match body {
            RequestBody::Status => {
                let mut records = status::all(self, header.data);
                if StatusFlags::from_bits_truncate(header.cmd_flags).contains(StatusFlags::COUNTERS) {
                    records.extend(counters::records(self));
                }
                Reply::status(header, records)
            }
            RequestBody::LogDump => Reply::log_dump(header, self.global.log.dump()),
            RequestBody::GetLockspaces => Reply::get_lockspaces(header, status::lockspaces(self)),
            RequestBody::HostStatus(wire) => match self.named(wire) {
                Some(found) => Reply::host_status(header, status::hosts(self, found)),
                None => Reply::result(header, code::ENOSPC),
            },
            RequestBody::Renewal(wire) => match self.named(wire) {
                Some((ls, _)) => {
                    let (io_timeout, records) = status::renewals(self, ls);
                    Reply::renewal(header, io_timeout, records)
                }
                None => Reply::result(header, code::ENOSPC),
            },
            RequestBody::GetHosts(wire) => match status::get_hosts(self, wire) {
                Ok(hosts) => Reply::get_hosts(header, hosts),
                Err(code) => Reply::result(header, code),
            },
            _ => Reply::unsupported(header),
        }
    }

    /// The lockspace of this name in any state.
    pub(super) fn named(
        &self,
        wire: &Lockspace,
    ) -> Option<(sanlock_manager::LockspaceId, &sanlock_manager::Lockspace)> {
        self.manager.lockspace_named(&convert::lease_name(&wire.name))
    }

    /// The lockspace's spec and shared state.
    pub(super) fn shared(&self, ls: sanlock_manager::LockspaceId) -> Option<&crate::lockspace::Shared> {
        self.lockspaces.get(&ls).map(|lockspace| &*lockspace.shared)
    }
}

/// What STATUS shows of a plain connection after a command (2.9); `None` leaves it.
fn owner_name(command: Option<Command>) -> Option<Name> {
    let command = command?;
    let text = match command {
        Command::Register | Command::Version | Command::Restrict => return None,
        Command::AddLockspace | Command::InqLockspace | Command::RemLockspace => {
            command.debug_name()?.to_owned()
        }
        Command::Shutdown | Command::RegEvent | Command::SetConfig => command.debug_name()?.to_owned(),
        command if command.closes_plain_connection() => command.debug_name()?.to_owned(),
        command => format!("cmd{}", command.number()),
    };
    Some(Name::truncated(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_names_of_plain_connections() {
        let name = |command| owner_name(Some(command)).map(|name| name.to_string());
        assert_eq!(name(Command::Status).as_deref(), Some("status"));
        assert_eq!(name(Command::AddLockspace).as_deref(), Some("add_lockspace"));
        assert_eq!(name(Command::ReadResource).as_deref(), Some("cmd21"));
        assert_eq!(name(Command::Version), None);
        assert_eq!(owner_name(None), None);
    }
}
