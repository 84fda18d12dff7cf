//! Constructors of requests, for clients.

use super::{BadArgument, Request, RequestBody};
use crate::command::Command;
use crate::flags::{
    AcquireFlags, AddFlags, ConvertFlags, InqFlags, KillpathFlags, ReleaseFlags, RemFlags, RequestFlags,
    RestrictFlags, RindexCmdFlags, SetEventFlags, WriteFlags,
};
use crate::header::{Header, Target, length_field};
use crate::limits::{HEADER_LEN, MAX_ACQUIRE_RESOURCES, MAX_LVB, MAX_RELEASE_RESOURCES};
use crate::types::{Disk, HostEvent, Killpath, Lockspace, Options, Rentry, Resource, ResourceSpec, Rindex};

/// Constructors for the client. Each sets the header fields as the C library does, its wrong lengths included (3.4).
impl Request {
    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + 2048);
        out.extend_from_slice(&self.header.encode());
        self.body.encode(&mut out);
        out
    }

    fn build(command: Command, cmd_flags: u32, data: u32, data2: u32, body: RequestBody) -> Self {
        let mut payload = Vec::new();
        body.encode(&mut payload);
        Self { header: Header::request(command, cmd_flags, payload.len(), data, data2), body }
    }

    /// REGISTER (1).
    #[must_use]
    pub fn register() -> Self {
        Self::build(Command::Register, 0, 0, 0, RequestBody::Register)
    }

    /// ADD_LOCKSPACE (2); `io_timeout` in seconds, 0 for the daemon's default.
    #[must_use]
    pub fn add_lockspace(ls: Lockspace, flags: AddFlags, io_timeout: u32) -> Self {
        let body = RequestBody::AddLockspace(Box::new(ls));
        Self::build(Command::AddLockspace, flags.bits(), io_timeout, 0, body)
    }

    /// REM_LOCKSPACE (3).
    #[must_use]
    pub fn rem_lockspace(ls: Lockspace, flags: RemFlags) -> Self {
        Self::build(Command::RemLockspace, flags.bits(), 0, 0, RequestBody::RemLockspace(Box::new(ls)))
    }

    /// SHUTDOWN (4).
    #[must_use]
    pub fn shutdown(force: bool) -> Self {
        Self::build(Command::Shutdown, 0, force.into(), 0, RequestBody::Shutdown)
    }

    /// STATUS (5); `last_type` 1, 2 or 3 stops after that record type, 0 sends all.
    #[must_use]
    pub fn status(last_type: u32) -> Self {
        Self::build(Command::Status, 0, last_type, 0, RequestBody::Status)
    }

    /// LOG_DUMP (6).
    #[must_use]
    pub fn log_dump() -> Self {
        Self::build(Command::LogDump, 0, 0, 0, RequestBody::LogDump)
    }

    /// ACQUIRE (7).
    ///
    /// # Errors
    /// [`BadArgument::ResourceCount`] above 8 resources.
    pub fn acquire(
        target: Target,
        flags: AcquireFlags,
        resources: Vec<ResourceSpec>,
        options: Options,
    ) -> Result<Self, BadArgument> {
        let count = resource_count(resources.len(), MAX_ACQUIRE_RESOURCES)?;
        let body = RequestBody::Acquire { resources, options };
        Ok(Self::build(Command::Acquire, flags.bits(), count, target.data2(), body))
    }

    /// RELEASE (8). With [`ReleaseFlags::ALL`] no resource is sent, whatever is given.
    ///
    /// # Errors
    /// [`BadArgument::ResourceCount`] above [`MAX_RELEASE_RESOURCES`] resources.
    pub fn release(
        target: Target,
        flags: ReleaseFlags,
        mut resources: Vec<Resource>,
    ) -> Result<Self, BadArgument> {
        if flags.contains(ReleaseFlags::ALL) {
            resources.clear();
        }
        let count = resource_count(resources.len(), MAX_RELEASE_RESOURCES)?;
        Ok(Self::build(
            Command::Release,
            flags.bits(),
            count,
            target.data2(),
            RequestBody::Release(resources),
        ))
    }

    /// INQUIRE (9).
    #[must_use]
    pub fn inquire(target: Target) -> Self {
        Self::build(Command::Inquire, 0, 0, target.data2(), RequestBody::Inquire)
    }

    /// RESTRICT (10).
    #[must_use]
    pub fn restrict(flags: RestrictFlags) -> Self {
        Self::build(Command::Restrict, flags.bits(), 0, Target::Connection.data2(), RequestBody::Restrict)
    }

    /// REQUEST (11); `force_mode` is a [`ForceMode`](crate::flags::ForceMode) or a user's own number.
    #[must_use]
    pub fn request_lease(resource: ResourceSpec, flags: RequestFlags, force_mode: u32) -> Self {
        Self::build(Command::Request, flags.bits(), force_mode, 0, RequestBody::Request(resource))
    }

    /// ALIGN (12).
    #[must_use]
    pub fn align(disk: Disk) -> Self {
        Self::build(Command::Align, 0, 0, 0, RequestBody::Align(Box::new(disk)))
    }

    /// EXAMINE_LOCKSPACE (13).
    #[must_use]
    pub fn examine_lockspace(ls: Lockspace) -> Self {
        Self::build(Command::ExamineLockspace, 0, 0, 0, RequestBody::ExamineLockspace(Box::new(ls)))
    }

    /// EXAMINE_RESOURCE (14).
    #[must_use]
    pub fn examine_resource(resource: Resource) -> Self {
        Self::build(Command::ExamineResource, 0, 0, 0, RequestBody::ExamineResource(resource))
    }

    /// HOST_STATUS (15). Its `length` says 32 although a lockspace follows.
    #[must_use]
    pub fn host_status(ls: Lockspace) -> Self {
        let mut request = Self::build(Command::HostStatus, 0, 0, 0, RequestBody::HostStatus(Box::new(ls)));
        request.header.length = length_field(0);
        request
    }

    /// INQ_LOCKSPACE (16).
    #[must_use]
    pub fn inq_lockspace(ls: Lockspace, flags: InqFlags) -> Self {
        Self::build(Command::InqLockspace, flags.bits(), 0, 0, RequestBody::InqLockspace(Box::new(ls)))
    }

    /// KILLPATH (17), always for the own connection (2.6).
    #[must_use]
    pub fn killpath(flags: KillpathFlags, killpath: Killpath) -> Self {
        let body = RequestBody::Killpath(Box::new(killpath));
        Self::build(Command::Killpath, flags.bits(), 0, Target::Connection.data2(), body)
    }

    /// WRITE_LOCKSPACE (18). Daemons ignore `max_hosts`; `io_timeout` 0 is the default.
    #[must_use]
    pub fn write_lockspace(ls: Lockspace, max_hosts: u32, flags: u32, io_timeout: u32) -> Self {
        let body = RequestBody::WriteLockspace(Box::new(ls));
        Self::build(Command::WriteLockspace, flags, max_hosts, io_timeout, body)
    }

    /// WRITE_RESOURCE (19). Daemons use `max_hosts` as the number of hosts and ignore `num_hosts` (7.18).
    #[must_use]
    pub fn write_resource(resource: ResourceSpec, max_hosts: u32, num_hosts: u32, flags: WriteFlags) -> Self {
        let body = RequestBody::WriteResource(resource);
        Self::build(Command::WriteResource, flags.bits(), max_hosts, num_hosts, body)
    }

    /// READ_LOCKSPACE (20).
    #[must_use]
    pub fn read_lockspace(ls: Lockspace) -> Self {
        Self::build(Command::ReadLockspace, 0, 0, 0, RequestBody::ReadLockspace(Box::new(ls)))
    }

    /// READ_RESOURCE (21).
    #[must_use]
    pub fn read_resource(resource: ResourceSpec) -> Self {
        Self::build(Command::ReadResource, 0, 0, 0, RequestBody::ReadResource(resource))
    }

    /// GET_LOCKSPACES (22).
    #[must_use]
    pub fn get_lockspaces() -> Self {
        Self::build(Command::GetLockspaces, 0, 0, 0, RequestBody::GetLockspaces)
    }

    /// GET_HOSTS (23); host_id 0 in `ls` asks for all.
    #[must_use]
    pub fn get_hosts(ls: Lockspace) -> Self {
        Self::build(Command::GetHosts, 0, 0, 0, RequestBody::GetHosts(Box::new(ls)))
    }

    /// READ_RESOURCE_OWNERS (24).
    #[must_use]
    pub fn read_resource_owners(resource: ResourceSpec) -> Self {
        Self::build(Command::ReadResourceOwners, 0, 0, 0, RequestBody::ReadResourceOwners(resource))
    }

    /// SET_LVB (25).
    ///
    /// # Errors
    /// [`BadArgument::LvbLength`] for no bytes or more than 4096.
    pub fn set_lvb(resource: Resource, lvb: Vec<u8>) -> Result<Self, BadArgument> {
        if lvb.is_empty() || lvb.len() > MAX_LVB {
            return Err(BadArgument::LvbLength { len: lvb.len() });
        }
        Ok(Self::build(Command::SetLvb, 0, 0, 0, RequestBody::SetLvb { resource, lvb }))
    }

    /// GET_LVB (26): all of it.
    #[must_use]
    pub fn get_lvb(resource: Resource) -> Self {
        Self::build(Command::GetLvb, 0, 0, 0, RequestBody::GetLvb(resource))
    }

    /// CONVERT (27).
    #[must_use]
    pub fn convert(target: Target, flags: ConvertFlags, resource: Resource) -> Self {
        Self::build(Command::Convert, flags.bits(), 0, target.data2(), RequestBody::Convert(resource))
    }

    /// VERSION (28).
    #[must_use]
    pub fn version() -> Self {
        Self::build(Command::Version, 0, 0, 0, RequestBody::Version)
    }

    /// SHUTDOWN_WAIT (29).
    #[must_use]
    pub fn shutdown_wait(force: bool) -> Self {
        Self::build(Command::ShutdownWait, 0, force.into(), 0, RequestBody::ShutdownWait)
    }

    /// REG_EVENT (30).
    #[must_use]
    pub fn reg_event(ls: Lockspace, event: HostEvent) -> Self {
        let body = RequestBody::RegEvent { lockspace: Box::new(ls), event };
        Self::build(Command::RegEvent, 0, 0, 0, body)
    }

    /// END_EVENT (31).
    #[must_use]
    pub fn end_event(ls: Lockspace) -> Self {
        Self::build(Command::EndEvent, 0, 0, 0, RequestBody::EndEvent(Box::new(ls)))
    }

    /// SET_EVENT (32).
    #[must_use]
    pub fn set_event(ls: Lockspace, event: HostEvent, flags: SetEventFlags) -> Self {
        let body = RequestBody::SetEvent { lockspace: Box::new(ls), event };
        Self::build(Command::SetEvent, flags.bits(), 0, 0, body)
    }

    /// SET_CONFIG (33); `config` is a [`ConfigCommand`](crate::flags::ConfigCommand) or a later version's number.
    #[must_use]
    pub fn set_config(ls: Lockspace, config: impl Into<u32>) -> Self {
        Self::build(Command::SetConfig, 0, config.into(), 0, RequestBody::SetConfig(Box::new(ls)))
    }

    /// RENEWAL (34). Its `length` says 32 although a lockspace follows.
    #[must_use]
    pub fn renewal(ls: Lockspace) -> Self {
        let mut request = Self::build(Command::Renewal, 0, 0, 0, RequestBody::Renewal(Box::new(ls)));
        request.header.length = length_field(0);
        request
    }

    /// FORMAT_RINDEX (35).
    #[must_use]
    pub fn format_rindex(rindex: Rindex, flags: RindexCmdFlags) -> Self {
        Self::build(Command::FormatRindex, flags.bits(), 0, 0, RequestBody::FormatRindex(Box::new(rindex)))
    }

    /// UPDATE_RINDEX (36).
    #[must_use]
    pub fn update_rindex(rindex: Rindex, rentry: Rentry, flags: RindexCmdFlags) -> Self {
        let body = RequestBody::UpdateRindex(Box::new(rindex), rentry);
        Self::build(Command::UpdateRindex, flags.bits(), 0, 0, body)
    }

    /// LOOKUP_RINDEX (37). Its `length` says 1264 although 1168 bytes follow the header.
    #[must_use]
    pub fn lookup_rindex(rindex: Rindex, rentry: Rentry, flags: RindexCmdFlags) -> Self {
        let body = RequestBody::LookupRindex(Box::new(rindex), rentry);
        let mut request = Self::build(Command::LookupRindex, flags.bits(), 0, 0, body);
        request.header.length = LOOKUP_RINDEX_LENGTH;
        request
    }

    /// CREATE_RESOURCE (38). Daemons ignore `max_hosts`.
    #[must_use]
    pub fn create_resource(
        rindex: Rindex,
        rentry: Rentry,
        flags: RindexCmdFlags,
        max_hosts: u32,
        num_hosts: u32,
    ) -> Self {
        let body = RequestBody::CreateResource(Box::new(rindex), rentry);
        Self::build(Command::CreateResource, flags.bits(), max_hosts, num_hosts, body)
    }

    /// DELETE_RESOURCE (39).
    #[must_use]
    pub fn delete_resource(rindex: Rindex, rentry: Rentry, flags: RindexCmdFlags) -> Self {
        let body = RequestBody::DeleteResource(Box::new(rindex), rentry);
        Self::build(Command::DeleteResource, flags.bits(), 0, 0, body)
    }

    /// REBUILD_RINDEX (40).
    #[must_use]
    pub fn rebuild_rindex(rindex: Rindex, flags: RindexCmdFlags) -> Self {
        Self::build(Command::RebuildRindex, flags.bits(), 0, 0, RequestBody::RebuildRindex(Box::new(rindex)))
    }
}

/// What every client puts into the `length` of LOOKUP_RINDEX (3.4).
const LOOKUP_RINDEX_LENGTH: u32 = 1264;

fn resource_count(count: usize, max: usize) -> Result<u32, BadArgument> {
    match u32::try_from(count) {
        Ok(number) if count <= max => Ok(number),
        _ => Err(BadArgument::ResourceCount { count, max }),
    }
}
