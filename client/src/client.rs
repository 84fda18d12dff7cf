//! Commands that need no registered connection: one fresh connection per call (socket-protocol.md 11.3).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sanlock_wire::flags::{
    AcquireFlags, AddFlags, ConvertFlags, InqFlags, ReleaseFlags, RemFlags, RequestFlags, RindexCmdFlags,
    SetEventFlags, WriteFlags,
};
use sanlock_wire::{
    Command, Disk, Host, HostEvent, Lockspace, Name, Options, Rentry, Reply, ReplyBody, Request, Resource,
    ResourceSpec, Rindex, StateRecord, Target, counters,
};

use crate::arrived::{self, Arrived};
use crate::connection::{Until, call, count, open, send_request, success};
use crate::error::ClientError;
use crate::registered::{Inquiry, Registered};

/// The environment variable that names the run directory (1.1).
pub const RUN_DIR_VARIABLE: &str = "SANLOCK_RUN_DIR";
/// The run directory when the variable is unset.
pub const DEFAULT_RUN_DIR: &str = "/run/sanlock";
/// The socket's name in the run directory.
pub const SOCKET_NAME: &str = "sanlock.sock";

/// What VERSION says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonVersion {
    /// major << 24 | minor << 16 | patch << 8.
    pub version: u32,
    /// Protocol version.
    pub protocol: u32,
}

/// A daemon, known by its socket. Cheap to make and to clone; holds no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    socket: PathBuf,
    limit: Option<Duration>,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// The daemon of the run directory in the environment, else of `/run/sanlock`. An empty variable counts as set.
    #[must_use]
    pub fn new() -> Self {
        Self::with_run_dir(run_dir(std::env::var_os(RUN_DIR_VARIABLE)))
    }

    /// The daemon of this run directory.
    #[must_use]
    pub fn with_run_dir(run_dir: impl Into<OsString>) -> Self {
        let mut socket = run_dir.into();
        socket.push("/");
        socket.push(SOCKET_NAME);
        Self { socket: socket.into(), limit: None }
    }

    /// The same daemon, but no call takes longer than this: it fails then, `Io` with `ETIMEDOUT`. For commands that only look: the
    /// daemon goes on with one that was given up. Commands on a [`Registered`] connection take as long as they take.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The same daemon for one of several calls that are to be over by then, all of them together; past that a call fails at once.
    #[must_use]
    pub fn until(&self, end: Instant) -> Self {
        self.clone().within(end.saturating_duration_since(Instant::now()))
    }

    /// The socket that every call connects to.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.socket
    }

    /// Registers this process (7.1) and returns the connection that represents it.
    ///
    /// # Errors
    /// [`ClientError::Io`]. The daemon does not answer, so a refusal shows only with the next command.
    pub fn register(&self) -> Result<Registered, ClientError> {
        let until = Until::within(self.limit);
        Registered::new(open(&self.socket, true, until)?, until)
    }

    /// The daemon's version (7.27).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn version(&self) -> Result<DaemonVersion, ClientError> {
        let reply = self.ok(Command::Version, &Request::version())?;
        Ok(DaemonVersion { version: reply.header.data2, protocol: reply.header.version })
    }

    /// Joins a lockspace with the daemon's default io timeout (7.2).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -17 when it is joined already.
    pub fn add_lockspace(&self, ls: &Lockspace, flags: AddFlags) -> Result<(), ClientError> {
        self.add_lockspace_timeout(ls, flags, 0)
    }

    /// Joins a lockspace with this io timeout in seconds, 0 for the default (7.2).
    ///
    /// # Errors
    /// As [`Client::add_lockspace`].
    pub fn add_lockspace_timeout(
        &self,
        ls: &Lockspace,
        flags: AddFlags,
        io_timeout: u32,
    ) -> Result<(), ClientError> {
        self.ok(Command::AddLockspace, &Request::add_lockspace(*ls, flags, io_timeout)).map(drop)
    }

    /// Asks whether a lockspace is joined (7.15): `Ok` if it is, `Daemon` with -115 while it is being added or removed,
    /// -2 otherwise.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn inq_lockspace(&self, ls: &Lockspace, flags: InqFlags) -> Result<(), ClientError> {
        self.ok(Command::InqLockspace, &Request::inq_lockspace(*ls, flags)).map(drop)
    }

    /// Leaves a lockspace; processes that hold leases in it are killed (7.3).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn rem_lockspace(&self, ls: &Lockspace, flags: RemFlags) -> Result<(), ClientError> {
        self.ok(Command::RemLockspace, &Request::rem_lockspace(*ls, flags)).map(drop)
    }

    /// Acquires leases for a registered process, all or none (7.7).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -3 when no process with this pid is registered.
    pub fn acquire(
        &self,
        pid: i32,
        flags: AcquireFlags,
        resources: &[ResourceSpec],
        owner_name: Option<Name>,
    ) -> Result<(), ClientError> {
        let options = Options::new(owner_name.unwrap_or_default());
        let request = Request::acquire(Target::Pid(pid), flags, resources.to_vec(), options)?;
        self.ok(Command::Acquire, &request).map(drop)
    }

    /// Releases leases of a registered process (7.8). The number is that of the orphans released, 0 unless ORPHAN was
    /// given.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn release(&self, pid: i32, flags: ReleaseFlags, resources: &[Resource]) -> Result<u32, ClientError> {
        let request = Request::release(Target::Pid(pid), flags, resources.to_vec())?;
        count(Command::Release, &self.call(Command::Release, &request)?)
    }

    /// The leases of a registered process (7.9).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -3 when no process with this pid is registered.
    pub fn inquire(&self, pid: i32) -> Result<Inquiry, ClientError> {
        self.ok(Command::Inquire, &Request::inquire(Target::Pid(pid))).map(Inquiry::from_reply)
    }

    /// Changes the mode of a lease of a registered process (7.26).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn convert(&self, pid: i32, flags: ConvertFlags, resource: Resource) -> Result<(), ClientError> {
        self.ok(Command::Convert, &Request::convert(Target::Pid(pid), flags, resource)).map(drop)
    }

    /// Asks the holder of a lease to give it up (7.11).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn request(
        &self,
        resource: &ResourceSpec,
        flags: RequestFlags,
        force_mode: u32,
    ) -> Result<(), ClientError> {
        let request = Request::request_lease(resource.clone(), flags, force_mode);
        self.ok(Command::Request, &request).map(drop)
    }

    /// Makes the daemon look for requests on all held leases of a lockspace (7.13).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn examine_lockspace(&self, ls: &Lockspace) -> Result<(), ClientError> {
        self.ok(Command::ExamineLockspace, &Request::examine_lockspace(*ls)).map(drop)
    }

    /// Makes the daemon look for a request on one held lease (7.13).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn examine_resource(&self, resource: Resource) -> Result<(), ClientError> {
        self.ok(Command::ExamineResource, &Request::examine_resource(resource)).map(drop)
    }

    /// Replaces the beginning of the lock value block of a held lease (7.24). 1 to 4096 bytes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn set_lvb(&self, resource: Resource, lvb: &[u8]) -> Result<(), ClientError> {
        self.ok(Command::SetLvb, &Request::set_lvb(resource, lvb.to_vec())?).map(drop)
    }

    /// The lock value block of a held lease, one sector (7.25).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_lvb(&self, resource: Resource) -> Result<Vec<u8>, ClientError> {
        match self.ok(Command::GetLvb, &Request::get_lvb(resource))?.body {
            ReplyBody::Lvb(lvb) => Ok(lvb),
            _ => Ok(Vec::new()),
        }
    }

    /// State records (7.5); `last_type` 1, 2 or 3 stops after that record type, 0 gives all.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&self, last_type: u32) -> Result<Vec<StateRecord>, ClientError> {
        self.status_arrived(last_type)?.whole()
    }

    /// State records, also where the answer breaks off.
    ///
    /// # Errors
    /// [`ClientError`], where no answer has begun or it is none that a daemon sends.
    pub fn status_arrived(&self, last_type: u32) -> Result<Arrived<StateRecord>, ClientError> {
        arrived::status(&self.socket, last_type, Until::within(self.limit))
    }

    /// All state records, and those of the daemon's [`counters`](sanlock_wire::counters), if it has any: 3.8.5 does not.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status_with_counters(&self) -> Result<Vec<StateRecord>, ClientError> {
        Ok(records(self.ok(Command::Status, &counters::status_request())?))
    }

    /// State records of the hosts of a lockspace (7.14).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -28 when there is no such lockspace.
    pub fn host_status(&self, lockspace: Name) -> Result<Vec<StateRecord>, ClientError> {
        let request = Request::host_status(Lockspace::named(lockspace));
        Ok(records(self.ok(Command::HostStatus, &request)?))
    }

    /// The io timeout of a lockspace and the records of its past renewals, oldest first (7.32).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -28 when there is no such lockspace.
    pub fn renewal(&self, lockspace: Name) -> Result<(u32, Vec<StateRecord>), ClientError> {
        let reply = self.ok(Command::Renewal, &Request::renewal(Lockspace::named(lockspace)))?;
        Ok((reply.header.data2, records(reply)))
    }

    /// The log kept in memory (7.6), at most 1 MiB.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn log_dump(&self) -> Result<Vec<u8>, ClientError> {
        self.log_dump_arrived()?.whole()
    }

    /// The log kept in memory, also where the answer breaks off.
    ///
    /// # Errors
    /// As [`Client::status_arrived`].
    pub fn log_dump_arrived(&self) -> Result<Arrived<u8>, ClientError> {
        arrived::log_dump(&self.socket, Until::within(self.limit))
    }

    /// All lockspaces: joined, being removed, being added (7.21).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -28 when there are more than an answer holds.
    pub fn get_lockspaces(&self) -> Result<Vec<Lockspace>, ClientError> {
        self.lockspaces_arrived()?.whole()
    }

    /// Lockspaces, also where there are more than an answer holds.
    ///
    /// # Errors
    /// As [`Client::status_arrived`], and where an answer that should hold all breaks off.
    pub fn lockspaces_arrived(&self) -> Result<Arrived<Lockspace>, ClientError> {
        arrived::lockspaces(&self.socket, Until::within(self.limit))
    }

    /// Hosts of a lockspace (7.22); host_id 0 for all that have ever been seen alive.
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -11 shortly after joining: try again.
    pub fn get_hosts(&self, lockspace: Name, host_id: u64) -> Result<Vec<Host>, ClientError> {
        let request = Request::get_hosts(Lockspace::new(lockspace, host_id, Disk::EMPTY));
        match self.ok(Command::GetHosts, &request)?.body {
            ReplyBody::Hosts(list) => Ok(list),
            _ => Ok(Vec::new()),
        }
    }

    /// Reads a lockspace record (7.19): names and sizes as on disk, and the io timeout in seconds.
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -223 when nothing is initialised there.
    pub fn read_lockspace(&self, ls: &Lockspace) -> Result<(Lockspace, u32), ClientError> {
        need_path(&ls.host_id_disk)?;
        let reply = self.ok(Command::ReadLockspace, &Request::read_lockspace(*ls))?;
        match reply.body {
            ReplyBody::Lockspace(ls) => Ok((*ls, reply.header.data2)),
            _ => Err(ClientError::Closed),
        }
    }

    /// Reads a resource's leader from its first disk (7.20).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -223 when nothing is initialised there.
    pub fn read_resource(&self, resource: &ResourceSpec) -> Result<Resource, ClientError> {
        need_disks(resource)?;
        let request = Request::read_resource(resource.clone());
        match self.ok(Command::ReadResource, &request)?.body {
            ReplyBody::Resource(resource) => Ok(resource),
            _ => Err(ClientError::Closed),
        }
    }

    /// Reads a resource and who owns it (7.23). Both names must be given.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read_resource_owners(
        &self,
        resource: &ResourceSpec,
    ) -> Result<(Resource, Vec<Host>), ClientError> {
        need_disks(resource)?;
        let request = Request::read_resource_owners(resource.clone());
        match self.ok(Command::ReadResourceOwners, &request)?.body {
            ReplyBody::Owners { resource, hosts } => Ok((resource, hosts)),
            _ => Err(ClientError::Closed),
        }
    }

    /// Formats a lockspace (7.17); io timeout in seconds, 0 for the default. Daemons ignore `max_hosts`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write_lockspace(
        &self,
        ls: &Lockspace,
        max_hosts: u32,
        io_timeout: u32,
    ) -> Result<(), ClientError> {
        need_path(&ls.host_id_disk)?;
        let request = Request::write_lockspace(*ls, max_hosts, 0, io_timeout);
        self.ok(Command::WriteLockspace, &request).map(drop)
    }

    /// Formats a resource (7.18). Daemons take `max_hosts` as the number of hosts, 0 for the maximum, and ignore
    /// `num_hosts`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write_resource(
        &self,
        resource: &ResourceSpec,
        max_hosts: u32,
        num_hosts: u32,
        flags: WriteFlags,
    ) -> Result<(), ClientError> {
        need_disks(resource)?;
        let request = Request::write_resource(resource.clone(), max_hosts, num_hosts, flags);
        self.ok(Command::WriteResource, &request).map(drop)
    }

    /// The align size of a path in bytes (7.12).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -19 when the path cannot be opened.
    pub fn align(&self, disk: &Disk) -> Result<u32, ClientError> {
        count(Command::Align, &self.call(Command::Align, &Request::align(*disk))?)
    }

    /// Tells the daemon to end (7.4). Without `force` it ignores this while it has lockspaces. There is no answer.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn shutdown(&self, force: bool) -> Result<(), ClientError> {
        let until = Until::within(self.limit);
        let fd = open(&self.socket, false, until)?;
        send_request(std::os::fd::AsFd::as_fd(&fd), &Request::shutdown(force), until)
    }

    /// Tells the daemon to end and waits until it has (7.28).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -16 when it has lockspaces and `force` is not set, `Closed` when another waiter
    /// got the answer.
    pub fn shutdown_wait(&self, force: bool) -> Result<(), ClientError> {
        self.ok(Command::ShutdownWait, &Request::shutdown_wait(force)).map(drop)
    }

    /// Sends an event to another host (7.30).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn set_event(
        &self,
        lockspace: Name,
        event: HostEvent,
        flags: SetEventFlags,
    ) -> Result<(), ClientError> {
        let request = Request::set_event(Lockspace::named(lockspace), event, flags);
        self.ok(Command::SetEvent, &request).map(drop)
    }

    /// Sets or clears the "used" marks of a lockspace (7.31): a
    /// [`ConfigCommand`](sanlock_wire::flags::ConfigCommand) or a later version's number.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn set_config(&self, lockspace: Name, config: impl Into<u32>) -> Result<(), ClientError> {
        let request = Request::set_config(Lockspace::named(lockspace), config);
        self.ok(Command::SetConfig, &request).map(drop)
    }

    /// Formats a resource index and its lease (7.33). Its sizes are in its flags, 0 for those of the storage.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn format_rindex(&self, index: &Rindex, flags: RindexCmdFlags) -> Result<(), ClientError> {
        need_index(index)?;
        self.ok(Command::FormatRindex, &Request::format_rindex(*index, flags)).map(drop)
    }

    /// Sets or clears the entry of an area (7.33), and returns the entry as it is then.
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -22 when name or offset is missing.
    pub fn update_rindex(
        &self,
        index: &Rindex,
        entry: &Rentry,
        flags: RindexCmdFlags,
    ) -> Result<Rentry, ClientError> {
        self.entry(Command::UpdateRindex, index, Request::update_rindex(*index, *entry, flags))
    }

    /// Looks up a name, an offset, both, or the first free area (7.33).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -2 when there is no such name or no free area, -278 when the area has another name.
    pub fn lookup_rindex(
        &self,
        index: &Rindex,
        entry: &Rentry,
        flags: RindexCmdFlags,
    ) -> Result<Rentry, ClientError> {
        self.entry(Command::LookupRindex, index, Request::lookup_rindex(*index, *entry, flags))
    }

    /// Formats a resource in the first free area of an index and enters it (7.33). The entry returned has the offset only.
    /// `num_hosts` 0 means as many as fit; daemons ignore `max_hosts`.
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -2 when the lockspace is not joined or no area is free, -17 when the name is there.
    pub fn create_resource(
        &self,
        index: &Rindex,
        entry: &Rentry,
        flags: RindexCmdFlags,
        max_hosts: u32,
        num_hosts: u32,
    ) -> Result<Rentry, ClientError> {
        let request = Request::create_resource(*index, *entry, flags, max_hosts, num_hosts);
        self.entry(Command::CreateResource, index, request)
    }

    /// Takes a resource out of an index and clears its area (7.33).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -2 when the lockspace is not joined or there is no such name.
    pub fn delete_resource(
        &self,
        index: &Rindex,
        entry: &Rentry,
        flags: RindexCmdFlags,
    ) -> Result<(), ClientError> {
        self.entry(Command::DeleteResource, index, Request::delete_resource(*index, *entry, flags)).map(drop)
    }

    /// Makes the entries of an index anew from what lies in its areas (7.33).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn rebuild_rindex(&self, index: &Rindex, flags: RindexCmdFlags) -> Result<(), ClientError> {
        need_index(index)?;
        self.ok(Command::RebuildRindex, &Request::rebuild_rindex(*index, flags)).map(drop)
    }

    fn entry(&self, command: Command, index: &Rindex, request: Request) -> Result<Rentry, ClientError> {
        need_index(index)?;
        match self.ok(command, &request)?.body {
            ReplyBody::Rentry(entry) => Ok(entry),
            _ => Err(ClientError::Closed),
        }
    }

    fn call(&self, command: Command, request: &Request) -> Result<Reply, ClientError> {
        call(&self.socket, command, request, Until::within(self.limit))
    }

    fn ok(&self, command: Command, request: &Request) -> Result<Reply, ClientError> {
        success(command, self.call(command, request)?)
    }
}

fn records(reply: Reply) -> Vec<StateRecord> {
    match reply.body {
        ReplyBody::States(records) => records,
        _ => Vec::new(),
    }
}

/// The C library refuses an empty path before connecting (11.4).
fn need_path(disk: &Disk) -> Result<(), ClientError> {
    if disk.path.path()?.is_empty() { Err(ClientError::NoPath) } else { Ok(()) }
}

fn need_index(index: &Rindex) -> Result<(), ClientError> {
    if index.lockspace_name.is_empty() {
        return Err(ClientError::NoLockspace);
    }
    need_path(&index.disk)
}

fn need_disks(resource: &ResourceSpec) -> Result<(), ClientError> {
    match resource.disks().first() {
        Some(disk) => need_path(disk),
        None => Err(ClientError::NoDisks),
    }
}

/// The run directory for this value of the environment variable.
fn run_dir(variable: Option<OsString>) -> OsString {
    variable.unwrap_or_else(|| OsString::from(DEFAULT_RUN_DIR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_run_directory_counts_as_set() {
        let socket = |variable: Option<&str>| {
            Client::with_run_dir(run_dir(variable.map(OsString::from))).socket_path().to_owned()
        };
        assert_eq!(socket(None), Path::new("/run/sanlock/sanlock.sock"));
        assert_eq!(socket(Some("/x")), Path::new("/x/sanlock.sock"));
        assert_eq!(socket(Some("")), Path::new("/sanlock.sock"));
    }
}
