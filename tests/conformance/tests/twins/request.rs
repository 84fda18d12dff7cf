//! What a step of a run asks for, in words that mean the same to both hosts: paths and processes have no names of their own here.

use std::path::PathBuf;

use sanlock_conformance::raw::{self, Header, Lockspace, Resource, cmd};

/// A file or a place that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// The file with most of the leases.
    Leases,
    /// A second file: the second disk of a lease on two.
    More,
    /// A third file: a lockspace with sectors of 4096 bytes, and a lease of it. Where a daemon of ours has one of these in use, it takes
    /// what is to be formatted before it in the same file, and whose sizes are not given, for as large as such a one becomes on a disk.
    Large,
    /// No such file.
    Missing,
    /// An empty path.
    Empty,
    /// A directory.
    Directory,
    /// A file that not even root may open for writing.
    Closed,
}

/// The files of one host.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// Their directory.
    pub(crate) dir: PathBuf,
}

impl Site {
    pub(crate) fn path(&self, place: Where) -> Vec<u8> {
        let in_dir = |name: &str| self.dir.join(name).to_string_lossy().into_owned().into_bytes();
        match place {
            Where::Leases => in_dir("leases"),
            Where::More => in_dir("more"),
            Where::Large => in_dir("large"),
            Where::Missing => in_dir("missing"),
            Where::Empty => Vec::new(),
            Where::Directory => in_dir(""),
            Where::Closed => b"/sys/kernel/uevent_seqnum".to_vec(),
        }
    }
}

/// A part of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Disk(Where, u64),
    Lockspace {
        name: &'static str,
        host_id: u64,
        flags: u32,
        at: (Where, u64),
    },
    Resource(Lease),
    /// The same without its disks.
    Bare(Lease),
    Event {
        host_id: u64,
        generation: u64,
        event: u64,
        data: u64,
    },
    Index {
        lockspace: &'static str,
        at: (Where, u64),
        flags: u32,
        max_resources: u32,
    },
    Entry {
        name: &'static str,
        at: u64,
    },
    /// The options of an acquire.
    Options {
        owner: &'static str,
    },
    /// So many bytes of one value.
    Bytes(u8, usize),
    Killpath(&'static str, &'static str),
}

/// A resource of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) lockspace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) lver: u64,
    pub(crate) data32: u32,
    pub(crate) flags: u32,
    pub(crate) num_disks: u32,
    pub(crate) disks: Vec<(Where, u64)>,
}

impl Lease {
    fn on(&self, site: &Site) -> Resource {
        Resource {
            lockspace: self.lockspace.into(),
            name: self.name.into(),
            lver: self.lver,
            data32: self.data32,
            flags: self.flags,
            num_disks: self.num_disks,
            disks: self.disks.iter().map(|(place, offset)| (site.path(*place), *offset)).collect(),
        }
    }
}

impl Part {
    fn encode(&self, site: &Site) -> Vec<u8> {
        match self {
            Self::Disk(place, offset) => raw::disk(&site.path(*place), *offset),
            Self::Lockspace { name, host_id, flags, at: (place, offset) } => {
                let path = site.path(*place);
                let name = (*name).into();
                Lockspace { name, host_id: *host_id, flags: *flags, path, offset: *offset }.encode()
            }
            Self::Resource(lease) => lease.on(site).encode(),
            Self::Bare(lease) => lease.on(site).encode_bare(),
            Self::Event { host_id, generation, event, data } => {
                [host_id, generation, event, data].into_iter().flat_map(|field| field.to_le_bytes()).collect()
            }
            Self::Index { lockspace, at: (place, offset), flags, max_resources } => {
                let path = site.path(*place);
                raw::rindex(lockspace, &String::from_utf8_lossy(&path), *offset, *flags, *max_resources)
            }
            Self::Entry { name, at } => raw::rentry(name, *at),
            Self::Options { owner } => {
                let mut bytes = owner.as_bytes().to_vec();
                bytes.resize(56, 0);
                bytes
            }
            Self::Bytes(byte, count) => vec![*byte; *count],
            Self::Killpath(program, arguments) => raw::killpath(program, arguments),
        }
    }
}

/// Field `data2` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data2 {
    Number(u32),
    /// The process id of a client.
    Client(usize),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) cmd: u32,
    pub(crate) flags: u32,
    pub(crate) data: u32,
    pub(crate) data2: Data2,
    /// Header fields that need not be as they should.
    pub(crate) odd: Odd,
    pub(crate) parts: Vec<Part>,
}

/// Header fields that nobody depends on; `None`: as they should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Odd {
    pub(crate) version: Option<u32>,
    pub(crate) seq: Option<u32>,
    pub(crate) length: Option<u32>,
}

impl Request {
    pub(crate) fn new(cmd: u32, parts: Vec<Part>) -> Self {
        Self { cmd, flags: 0, data: 0, data2: Data2::Number(0), odd: Odd::default(), parts }
    }

    /// The bytes for one host.
    pub(crate) fn encode(&self, site: &Site, data2: u32) -> Vec<u8> {
        let payload: Vec<u8> = self.parts.iter().flat_map(|part| part.encode(site)).collect();
        let usual = Header::request(self.cmd, payload.len());
        let header = Header {
            version: self.odd.version.unwrap_or(usual.version),
            cmd_flags: self.flags,
            length: self.odd.length.unwrap_or(usual.length),
            seq: self.odd.seq.unwrap_or(usual.seq),
            data: self.data,
            data2,
            ..usual
        };
        [&header.encode()[..], &payload].concat()
    }

    /// Changes nothing, so that it may be asked again.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(
            self.cmd,
            cmd::STATUS
                | cmd::LOG_DUMP
                | cmd::INQUIRE
                | cmd::ALIGN
                | cmd::HOST_STATUS
                | cmd::INQ_LOCKSPACE
                | cmd::READ_LOCKSPACE
                | cmd::READ_RESOURCE
                | cmd::READ_RESOURCE_OWNERS
                | cmd::GET_LOCKSPACES
                | cmd::GET_HOSTS
                | cmd::GET_LVB
                | cmd::VERSION
                | cmd::RENEWAL
                | cmd::LOOKUP_RINDEX
        )
    }

    /// Concerns lockspaces and nothing that is in them.
    pub(crate) fn about_lockspaces(&self) -> bool {
        matches!(
            self.cmd,
            cmd::ADD_LOCKSPACE
                | cmd::REM_LOCKSPACE
                | cmd::INQ_LOCKSPACE
                | cmd::GET_LOCKSPACES
                | cmd::GET_HOSTS
                | cmd::HOST_STATUS
                | cmd::RENEWAL
                | cmd::SET_CONFIG
                | cmd::END_EVENT
        )
    }

    /// Answered by the main loop, which closes a connection that is not registered.
    pub(crate) fn closes(&self) -> bool {
        matches!(
            self.cmd,
            cmd::STATUS
                | cmd::LOG_DUMP
                | cmd::HOST_STATUS
                | cmd::RENEWAL
                | cmd::GET_LOCKSPACES
                | cmd::GET_HOSTS
                | cmd::END_EVENT
                | cmd::SET_CONFIG
        )
    }

    /// Whether `data`, `data2` and `length` mean nothing to it (socket-protocol.md 3.4, 6).
    pub(crate) fn takes_any_numbers(&self) -> bool {
        matches!(
            self.cmd,
            cmd::ALIGN
                | cmd::EXAMINE_LOCKSPACE
                | cmd::EXAMINE_RESOURCE
                | cmd::INQ_LOCKSPACE
                | cmd::READ_LOCKSPACE
                | cmd::READ_RESOURCE
                | cmd::READ_RESOURCE_OWNERS
                | cmd::SET_EVENT
                | cmd::LOOKUP_RINDEX
                | cmd::UPDATE_RINDEX
                | cmd::DELETE_RESOURCE
        )
    }

    /// All leases that it names.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.parts.iter().filter_map(|part| match part {
            Part::Resource(lease) | Part::Bare(lease) => Some(lease),
            _ => None,
        })
    }

    /// The lockspace that it is about, by the structure of that name.
    pub(crate) fn lockspace(&self) -> Option<&'static str> {
        self.parts.iter().find_map(|part| match part {
            Part::Lockspace { name, .. } => Some(*name),
            _ => None,
        })
    }
}

/// On which connection a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// One of its own.
    Fresh,
    /// One that lasts and is not registered.
    Plain(usize),
    /// That of a registered process.
    Client(usize),
}

/// One step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A process of this number begins, and registers.
    Register(usize),
    /// It is killed.
    Kill(usize),
    /// It hangs up.
    HangUp(usize),
    Ask(Who, Request),
    /// REG_EVENT, whose connection stays.
    Listen(Request),
}
