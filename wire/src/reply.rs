//! Replies: what the daemon sends (socket-protocol.md 6, 7).
//!
//! The daemon makes a [`Reply`] with the constructors here, each taking the header of the request that it answers; a
//! client gets one from [`ReplyDecoder`](crate::reply_decoder::ReplyDecoder). REGISTER and SHUTDOWN have no reply.

use zerocopy::IntoBytes;

use crate::code;
use crate::header::{BARE_LENGTH, Header, length_field};
use crate::limits::{HEADER_LEN, MAX_LIST_REPLY, PROTOCOL_VERSION};
use crate::state::StateRecord;
use crate::types::{EventMessage, Host, Lockspace, Rentry, Resource};

/// One complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// As on the wire; [`Header::result`] is the result.
    pub header: Header,
    /// The payload, by command.
    pub body: ReplyBody,
}

/// The payload of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBody {
    /// Only a header.
    Empty,
    /// STATUS, HOST_STATUS, RENEWAL: records up to the end of the stream (8).
    States(Vec<StateRecord>),
    /// LOG_DUMP: text.
    Log(Vec<u8>),
    /// INQUIRE: the state string (7.9), without its NUL.
    StateString(Vec<u8>),
    /// READ_LOCKSPACE.
    Lockspace(Box<Lockspace>),
    /// READ_RESOURCE.
    Resource(Resource),
    /// GET_LOCKSPACES.
    Lockspaces(Vec<Lockspace>),
    /// GET_HOSTS.
    Hosts(Vec<Host>),
    /// READ_RESOURCE_OWNERS.
    Owners {
        /// With its version and mode.
        resource: Resource,
        /// The owner first, then shared holders.
        hosts: Vec<Host>,
    },
    /// GET_LVB.
    Lvb(Vec<u8>),
    /// UPDATE_RINDEX, LOOKUP_RINDEX, CREATE_RESOURCE, DELETE_RESOURCE.
    Rentry(Rentry),
}

impl ReplyBody {
    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => {}
            Self::States(records) => {
                for record in records {
                    record.encode(out);
                }
            }
            Self::Log(bytes) | Self::Lvb(bytes) => out.extend_from_slice(bytes),
            Self::StateString(text) => {
                out.extend_from_slice(text);
                out.push(0);
            }
            Self::Lockspace(ls) => out.extend_from_slice(ls.as_bytes()),
            Self::Resource(resource) => out.extend_from_slice(resource.as_bytes()),
            Self::Lockspaces(list) => out.extend_from_slice(list.as_bytes()),
            Self::Hosts(list) => out.extend_from_slice(list.as_bytes()),
            Self::Owners { resource, hosts } => {
                out.extend_from_slice(resource.as_bytes());
                out.extend_from_slice(hosts.as_bytes());
            }
            Self::Rentry(rentry) => out.extend_from_slice(rentry.as_bytes()),
        }
    }
}

impl Reply {
    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&self.header.encode());
        self.body.encode(&mut out);
        out
    }

    /// Only a header with this result: 0, a positive count (RELEASE of orphans, ALIGN) or a negative code.
    #[must_use]
    pub const fn result(request: &Header, result: i32) -> Self {
        Self { header: request.reply(result), body: ReplyBody::Empty }
    }

    /// -EOPNOTSUPP for an unknown or unsupported command (15, defect 3).
    #[must_use]
    pub const fn unsupported(request: &Header) -> Self {
        Self::result(request, code::EOPNOTSUPP)
    }

    /// A reply whose `length` covers the payload.
    fn sized(mut header: Header, body: ReplyBody) -> Self {
        let mut payload = Vec::new();
        body.encode(&mut payload);
        header.length = length_field(payload.len());
        Self { header, body }
    }

    /// STATUS (7.5): length 32, data2 as in the request. The connection is closed afterwards.
    #[must_use]
    pub fn status(request: &Header, records: Vec<StateRecord>) -> Self {
        let header = Header { data2: request.data2, ..request.reply(0) };
        Self { header, body: ReplyBody::States(records) }
    }

    /// HOST_STATUS (7.14): length 32. The connection is closed afterwards.
    #[must_use]
    pub fn host_status(request: &Header, records: Vec<StateRecord>) -> Self {
        Self { header: request.reply(0), body: ReplyBody::States(records) }
    }

    /// RENEWAL (7.32): length 32; `io_timeout` of the lockspace in seconds. The connection is closed afterwards.
    #[must_use]
    pub fn renewal(request: &Header, io_timeout: u32, records: Vec<StateRecord>) -> Self {
        let header = Header { data2: io_timeout, ..request.reply(0) };
        Self { header, body: ReplyBody::States(records) }
    }

    /// LOG_DUMP (7.6): length 32, data the number of bytes. Only the last 1 MiB of `text` is sent.
    #[must_use]
    pub fn log_dump(request: &Header, mut text: Vec<u8>) -> Self {
        if text.len() > MAX_LIST_REPLY {
            text.drain(..text.len() - MAX_LIST_REPLY);
        }
        let count = i32::try_from(text.len()).unwrap_or(0);
        Self { header: request.reply(count), body: ReplyBody::Log(text) }
    }

    /// INQUIRE (7.9): the number of leases and their [state string](crate::strings::args_to_state); no payload without
    /// leases.
    #[must_use]
    pub fn inquire(request: &Header, leases: u32, state: Vec<u8>) -> Self {
        let header = Header { data2: leases, ..request.reply(0) };
        if leases == 0 {
            return Self { header, body: ReplyBody::Empty };
        }
        Self::sized(header, ReplyBody::StateString(state))
    }

    /// READ_LOCKSPACE (7.19): always with a lockspace; on failure the request's.
    #[must_use]
    pub fn read_lockspace(request: &Header, result: i32, io_timeout: u32, lockspace: Lockspace) -> Self {
        let header = Header { data2: io_timeout, ..request.reply(result) };
        Self::sized(header, ReplyBody::Lockspace(Box::new(lockspace)))
    }

    /// READ_RESOURCE (7.20): always with a resource; on failure the request's.
    #[must_use]
    pub fn read_resource(request: &Header, result: i32, resource: Resource) -> Self {
        Self::sized(request.reply(result), ReplyBody::Resource(resource))
    }

    /// READ_RESOURCE_OWNERS (7.23): always with a resource; hosts only on success.
    #[must_use]
    pub fn read_resource_owners(request: &Header, result: i32, resource: Resource, hosts: Vec<Host>) -> Self {
        let header = Header { data2: count(hosts.len()), ..request.reply(result) };
        Self::sized(header, ReplyBody::Owners { resource, hosts })
    }

    /// GET_LOCKSPACES (7.21). More than fit 1 MiB: -ENOSPC, with those that fit and their number (15, defect 14).
    #[must_use]
    pub fn get_lockspaces(request: &Header, mut lockspaces: Vec<Lockspace>) -> Self {
        let max = MAX_LIST_REPLY / Lockspace::SIZE;
        let result = if lockspaces.len() > max { code::ENOSPC } else { 0 };
        lockspaces.truncate(max);
        let header = Header { data2: count(lockspaces.len()), ..request.reply(result) };
        Self::sized(header, ReplyBody::Lockspaces(lockspaces))
    }

    /// GET_HOSTS (7.22). More than fit 1 MiB: -ENOSPC, with those that fit and their number.
    #[must_use]
    pub fn get_hosts(request: &Header, mut hosts: Vec<Host>) -> Self {
        let max = MAX_LIST_REPLY / Host::SIZE;
        let result = if hosts.len() > max { code::ENOSPC } else { 0 };
        hosts.truncate(max);
        let header = Header { data2: count(hosts.len()), ..request.reply(result) };
        Self::sized(header, ReplyBody::Hosts(hosts))
    }

    /// GET_LVB (7.25).
    #[must_use]
    pub fn get_lvb(request: &Header, lvb: Vec<u8>) -> Self {
        Self::sized(request.reply(0), ReplyBody::Lvb(lvb))
    }

    /// VERSION (7.27): cmd_flags and seq 0. `version` is major << 24 | minor << 16 | patch << 8.
    #[must_use]
    pub const fn version(request: &Header, version: u32) -> Self {
        let header = Header { cmd_flags: 0, seq: 0, data2: version, ..request.reply(0) };
        Self { header, body: ReplyBody::Empty }
    }

    /// SET_CONFIG (7.31): keeps data2.
    #[must_use]
    pub const fn set_config(request: &Header, result: i32) -> Self {
        let header = Header { data2: request.data2, ..request.reply(result) };
        Self { header, body: ReplyBody::Empty }
    }

    /// The end of a successful SHUTDOWN_WAIT (7.28): cmd, cmd_flags, seq and data all 0.
    #[must_use]
    pub const fn shutdown_done() -> Self {
        let header = Header {
            version: PROTOCOL_VERSION,
            cmd: 0,
            cmd_flags: 0,
            length: BARE_LENGTH,
            seq: 0,
            data: 0,
            data2: 0,
        };
        Self { header, body: ReplyBody::Empty }
    }

    /// UPDATE_RINDEX, LOOKUP_RINDEX, CREATE_RESOURCE, DELETE_RESOURCE (7.33): always with an entry, zeros on failure.
    #[must_use]
    pub fn rindex(request: &Header, result: i32, rentry: Rentry) -> Self {
        Self::sized(request.reply(result), ReplyBody::Rentry(rentry))
    }
}

impl EventMessage {
    /// The 80 bytes of an event message (9).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let header = Header {
            version: PROTOCOL_VERSION,
            cmd: Self::CMD,
            cmd_flags: 0,
            length: length_field(Self::SIZE),
            seq: 0,
            data: 0,
            data2: 0,
        };
        let mut out = Vec::with_capacity(Self::MESSAGE_LEN);
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(self.as_bytes());
        out
    }

    /// Decodes an event message; `None` when the magic or `cmd` is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::MESSAGE_LEN]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let header = Header::decode(header).ok()?;
        if header.cmd != Self::CMD {
            return None;
        }
        zerocopy::FromBytes::read_from_bytes(rest).ok()
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::name::Name;

    fn request(command: Command) -> Header {
        Header { seq: 7, ..Header::request(command, 3, 0, 5, 6) }
    }

    #[test]
    fn ordinary_results_copy_cmd_flags_and_seq() {
        let reply = Reply::result(&request(Command::AddLockspace), -17);
        assert_eq!((reply.header.cmd, reply.header.cmd_flags, reply.header.seq), (2, 3, 7));
        assert_eq!((reply.header.result(), reply.header.data2, reply.header.length), (-17, 0, 32));
    }

    #[test]
    fn exceptions_to_copying() {
        let version = Reply::version(&request(Command::Version), 0x0308_0500).header;
        assert_eq!((version.cmd, version.cmd_flags, version.seq, version.data2), (28, 0, 0, 0x0308_0500));
        let done = Reply::shutdown_done().header;
        assert_eq!((done.cmd, done.cmd_flags, done.seq, done.length), (0, 0, 0, 32));
        assert_eq!(Reply::status(&request(Command::Status), vec![]).header.data2, 6);
        assert_eq!(Reply::set_config(&request(Command::SetConfig), 0).header.data2, 6);
    }

    #[test]
    fn a_list_announces_what_it_sends() {
        let ls = Lockspace::named(Name::truncated("LS"));
        let reply = Reply::get_lockspaces(&request(Command::GetLockspaces), vec![ls; 950]);
        assert_eq!(reply.header.result(), code::ENOSPC);
        assert_eq!(reply.header.data2, 949);
        assert_eq!(reply.encode().len(), 32 + 949 * 1104);
        assert_eq!(reply.header.length as usize, reply.encode().len());
        let reply = Reply::get_lockspaces(&request(Command::GetLockspaces), vec![ls; 949]);
        assert_eq!(reply.header.result(), 0);
        let host = Host {
            host_id: 1.into(),
            generation: 1.into(),
            timestamp: 1.into(),
            io_timeout: 1.into(),
            flags: 3.into(),
        };
        let reply = Reply::get_hosts(&request(Command::GetHosts), vec![host; 32_769]);
        assert_eq!((reply.header.result(), reply.header.data2), (code::ENOSPC, 32_768));
        assert_eq!(reply.encode().len(), 32 + MAX_LIST_REPLY);
        let reply = Reply::get_hosts(&request(Command::GetHosts), vec![host; 32_768]);
        assert_eq!((reply.header.result(), reply.header.data2), (0, 32_768));
    }

    #[test]
    fn a_long_log_keeps_its_end() {
        let mut text = vec![b'a'; MAX_LIST_REPLY];
        text.extend_from_slice(b"xyz");
        let reply = Reply::log_dump(&request(Command::LogDump), text);
        assert_eq!(reply.header.data, 1_048_576);
        assert_eq!(reply.header.length, 32);
        assert_eq!(reply.encode().last(), Some(&b'z'));
        assert_eq!(reply.encode().len(), 32 + MAX_LIST_REPLY);
    }

    #[test]
    fn inquire_without_leases_has_no_payload() {
        assert_eq!(Reply::inquire(&request(Command::Inquire), 0, vec![]).encode().len(), 32);
        let reply = Reply::inquire(&request(Command::Inquire), 1, b"L:R:/p:0:1".to_vec());
        assert_eq!(reply.header.length, 32 + 11);
        assert_eq!(reply.encode().last(), Some(&0));
    }
}
