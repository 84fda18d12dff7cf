//! Requests: what a client sends (socket-protocol.md 6, 7).
//!
//! [`Request`] is used by both sides: the client makes one with the constructors of this module and encodes it, the
//! daemon gets one from [`RequestDecoder`](crate::decoder::RequestDecoder). The header is kept as it was on the wire; the
//! documentation of each [`RequestBody`] variant says what `cmd_flags`, `data` and `data2` mean for it.

mod construct;

use zerocopy::IntoBytes;

use crate::code;
use crate::command::Command;
use crate::header::Header;
use crate::limits::{MAX_DISKS, MAX_LVB};
use crate::types::{Disk, HostEvent, Killpath, Lockspace, Options, Rentry, Resource, ResourceSpec, Rindex};

/// One complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// As on the wire.
    pub header: Header,
    /// The payload, by command.
    pub body: RequestBody,
}

/// The payload of a request. One variant per command 1–40, and two for what was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestBody {
    /// 7.1. No reply.
    Register,
    /// 7.2. cmd_flags [`AddFlags`](crate::flags::AddFlags); data: io timeout in seconds, 0 for the default.
    AddLockspace(Box<Lockspace>),
    /// 7.3. cmd_flags [`RemFlags`](crate::flags::RemFlags).
    RemLockspace(Box<Lockspace>),
    /// 7.4. data: force. No reply.
    Shutdown,
    /// 7.5. cmd_flags [`StatusFlags`](crate::counters::StatusFlags); data: last record type wanted, 0 for all.
    Status,
    /// 7.6.
    LogDump,
    /// 7.7. Targeted; cmd_flags [`AcquireFlags`](crate::flags::AcquireFlags); data: number of resources, signed.
    Acquire {
        /// At most 8; none when data was 0 or negative.
        resources: Vec<ResourceSpec>,
        /// Always present.
        options: Options,
    },
    /// 7.8. Targeted; cmd_flags [`ReleaseFlags`](crate::flags::ReleaseFlags). ALL: no resource. ORPHAN: one. RENAME: two. Otherwise `data` of them.
    Release(Vec<Resource>),
    /// 7.9. Targeted.
    Inquire,
    /// 7.10. cmd_flags [`RestrictFlags`](crate::flags::RestrictFlags).
    Restrict,
    /// 7.11. cmd_flags [`RequestFlags`](crate::flags::RequestFlags); data: [`ForceMode`](crate::flags::ForceMode).
    Request(ResourceSpec),
    /// 7.12.
    Align(Box<Disk>),
    /// 7.13.
    ExamineLockspace(Box<Lockspace>),
    /// 7.13.
    ExamineResource(Resource),
    /// 7.14.
    HostStatus(Box<Lockspace>),
    /// 7.15. cmd_flags [`InqFlags`](crate::flags::InqFlags).
    InqLockspace(Box<Lockspace>),
    /// 7.16. Targeted; cmd_flags [`KillpathFlags`](crate::flags::KillpathFlags).
    Killpath(Box<Killpath>),
    /// 7.17. data2: io timeout to write, 0 for the default.
    WriteLockspace(Box<Lockspace>),
    /// 7.18. cmd_flags [`WriteFlags`](crate::flags::WriteFlags); data is the number of hosts to write, data2 is ignored.
    WriteResource(ResourceSpec),
    /// 7.19.
    ReadLockspace(Box<Lockspace>),
    /// 7.20.
    ReadResource(ResourceSpec),
    /// 7.21.
    GetLockspaces,
    /// 7.22.
    GetHosts(Box<Lockspace>),
    /// 7.23.
    ReadResourceOwners(ResourceSpec),
    /// 7.24. 1 to 4096 bytes.
    SetLvb {
        /// Only its names count.
        resource: Resource,
        /// The new beginning of the lock value block.
        lvb: Vec<u8>,
    },
    /// 7.25. data2: bytes wanted, 0 for all.
    GetLvb(Resource),
    /// 7.26. Targeted; cmd_flags [`ConvertFlags`](crate::flags::ConvertFlags); RES_SHARED of the resource is the wanted mode.
    Convert(Resource),
    /// 7.27.
    Version,
    /// 7.28. data: force.
    ShutdownWait,
    /// 9. The event is ignored.
    RegEvent {
        /// Only its name counts.
        lockspace: Box<Lockspace>,
        /// Ignored.
        event: HostEvent,
    },
    /// 9.
    EndEvent(Box<Lockspace>),
    /// 7.30. cmd_flags [`SetEventFlags`](crate::flags::SetEventFlags).
    SetEvent {
        /// Only its name counts.
        lockspace: Box<Lockspace>,
        /// What to send to whom.
        event: HostEvent,
    },
    /// 7.31. data: [`ConfigCommand`](crate::flags::ConfigCommand).
    SetConfig(Box<Lockspace>),
    /// 7.32.
    Renewal(Box<Lockspace>),
    /// 7.33.
    FormatRindex(Box<Rindex>),
    /// 7.33. cmd_flags [`RindexCmdFlags`](crate::flags::RindexCmdFlags).
    UpdateRindex(Box<Rindex>, Rentry),
    /// 7.33.
    LookupRindex(Box<Rindex>, Rentry),
    /// 7.33. data2: number of hosts, 0 for the maximum.
    CreateResource(Box<Rindex>, Rentry),
    /// 7.33.
    DeleteResource(Box<Rindex>, Rentry),
    /// 7.33.
    RebuildRindex(Box<Rindex>),
    /// A known command with counts that no daemon accepts. Its payload is gone. Targeted commands first fail for their
    /// target (2.6); otherwise the answer is [`Refusal::code`].
    Refused(Refusal),
    /// Not understood; the announced payload is gone. The answer is -EOPNOTSUPP.
    Unsupported(Unsupported),
}

/// Why a request of a known command was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// ACQUIRE of more than 8, or RELEASE of more than [`MAX_RELEASE_RESOURCES`](crate::limits::MAX_RELEASE_RESOURCES) resources.
    #[error("{count} resources in one request, at most {max} are possible")]
    TooManyResources {
        /// Resources announced.
        count: i32,
        /// The limit.
        max: usize,
    },
    /// A resource with no disk or more than 4.
    #[error("resource with {} disks, 1 to {MAX_DISKS} are possible", resource.num_disks)]
    DiskCount {
        /// The resource, as received: READ_RESOURCE and READ_RESOURCE_OWNERS repeat it in their reply.
        resource: Resource,
    },
    /// SET_LVB with more than 4096 bytes.
    #[error("lock value block of {len} bytes, at most {MAX_LVB} are possible")]
    LvbTooLong {
        /// Bytes announced.
        len: usize,
    },
    /// SET_LVB that announces no bytes, or less than the resource structure.
    #[error("lock value block without bytes (message length {length})")]
    LvbMissing {
        /// The length field.
        length: u32,
    },
    /// RELEASE RENAME or ORPHAN with fewer resources than it needs.
    #[error("release with {count} resources where {needed} are needed")]
    TooFewResources {
        /// Resources sent.
        count: u32,
        /// Resources that these flags need.
        needed: u32,
    },
}

impl Refusal {
    /// The result for the reply (5).
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::TooManyResources { .. } | Self::LvbTooLong { .. } => code::E2BIG,
            Self::DiskCount { .. } => code::ERANGE,
            Self::LvbMissing { .. } | Self::TooFewResources { .. } => code::EINVAL,
        }
    }
}

/// Why a request was skipped unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Not a number of the protocol.
    #[error("unknown command {0}")]
    UnknownCommand(u32),
    /// A command of the protocol that this daemon does not have (41 to 44).
    #[error("command {} is not supported", .0.name())]
    Command(Command),
    /// Protocol major version above 0.
    #[error("protocol version {0:#010x} is not supported")]
    ProtocolVersion(u32),
}

impl RequestBody {
    /// Appends the payload. Refused and unsupported requests have none left.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Register
            | Self::Shutdown
            | Self::Status
            | Self::LogDump
            | Self::Inquire
            | Self::Restrict
            | Self::GetLockspaces
            | Self::Version
            | Self::ShutdownWait
            | Self::Refused(_)
            | Self::Unsupported(_) => {}
            Self::AddLockspace(ls)
            | Self::RemLockspace(ls)
            | Self::ExamineLockspace(ls)
            | Self::HostStatus(ls)
            | Self::InqLockspace(ls)
            | Self::WriteLockspace(ls)
            | Self::ReadLockspace(ls)
            | Self::GetHosts(ls)
            | Self::EndEvent(ls)
            | Self::SetConfig(ls)
            | Self::Renewal(ls) => out.extend_from_slice(ls.as_bytes()),
            Self::RegEvent { lockspace, event } | Self::SetEvent { lockspace, event } => {
                out.extend_from_slice(lockspace.as_bytes());
                out.extend_from_slice(event.as_bytes());
            }
            Self::Acquire { resources, options } => {
                for resource in resources {
                    resource.encode(out);
                }
                out.extend_from_slice(options.as_bytes());
            }
            Self::Release(resources) => out.extend_from_slice(resources.as_bytes()),
            Self::Request(spec)
            | Self::WriteResource(spec)
            | Self::ReadResource(spec)
            | Self::ReadResourceOwners(spec) => spec.encode(out),
            Self::Align(disk) => out.extend_from_slice(disk.as_bytes()),
            Self::ExamineResource(resource) | Self::GetLvb(resource) | Self::Convert(resource) => {
                out.extend_from_slice(resource.as_bytes());
            }
            Self::Killpath(killpath) => out.extend_from_slice(killpath.as_bytes()),
            Self::SetLvb { resource, lvb } => {
                out.extend_from_slice(resource.as_bytes());
                out.extend_from_slice(lvb);
            }
            Self::FormatRindex(rindex) | Self::RebuildRindex(rindex) => {
                out.extend_from_slice(rindex.as_bytes())
            }
            Self::UpdateRindex(rindex, rentry)
            | Self::LookupRindex(rindex, rentry)
            | Self::CreateResource(rindex, rentry)
            | Self::DeleteResource(rindex, rentry) => {
                out.extend_from_slice(rindex.as_bytes());
                out.extend_from_slice(rentry.as_bytes());
            }
        }
    }
}

/// What a client may not ask for: the C library returns -EINVAL for it before connecting (11.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadArgument {
    /// ACQUIRE takes at most 8 resources, RELEASE at most [`MAX_RELEASE_RESOURCES`](crate::limits::MAX_RELEASE_RESOURCES).
    #[error("{count} resources in one call, at most {max} are possible")]
    ResourceCount {
        /// Given.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// SET_LVB takes 1 to 4096 bytes.
    #[error("lock value block of {len} bytes, 1 to {MAX_LVB} are possible")]
    LvbLength {
        /// Given.
        len: usize,
    },
}
