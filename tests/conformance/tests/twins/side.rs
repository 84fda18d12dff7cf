//! One of the two hosts: its daemon, its files, its clients, and how a request goes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use sanlock_conformance::program::build_dir;
use sanlock_conformance::raw::{Connection, HEADER_LEN, Header, Lockspace, Record, Resource, cmd};
use sanlock_conformance::{Host, bounded};

use crate::request::{Data2, Request, Site, Who};

/// Registered processes at a time.
pub(crate) const CLIENTS: usize = 4;
/// Lasting connections that are not registered.
pub(crate) const PLAINS: usize = 2;
/// No reply within this time counts as none. Nothing that is asked waits for longer.
const REPLY_LIMIT: Duration = Duration::from_secs(40);
/// A process id that nobody has.
const NOBODY: u32 = 0x7fff_fff0;

/// A process with a registered connection.
#[derive(Debug)]
struct Process {
    child: Child,
    connection: Connection,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing for [`REPLY_LIMIT`].
    Silence,
    /// The end of the connection.
    End,
    /// A reply; what follows it until the connection was closed, if it was to be.
    Message { header: Header, payload: Vec<u8>, rest: Vec<u8> },
}

impl Reply {
    /// The reply in short: what is there, zeros counted.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Silence => "no reply".to_owned(),
            Self::End => "the end of the connection".to_owned(),
            Self::Message { header, payload, rest } => {
                let Header { cmd, cmd_flags, length, seq, data2, .. } = header;
                let result = header.result();
                format!(
                    "result {result} (command {cmd}, flags {cmd_flags:#x}, length {length}, seq {seq}, data2 {data2}), payload [{}], then [{}]",
                    shown(payload),
                    shown(rest)
                )
            }
        }
    }

    /// The result, if there is one.
    pub(crate) fn result(&self) -> Option<i32> {
        match self {
            Self::Message { header, .. } => Some(header.result()),
            Self::Silence | Self::End => None,
        }
    }
}

/// One host.
#[derive(Debug)]
pub(crate) struct Side {
    clients: [Option<Process>; CLIENTS],
    plains: [Option<Connection>; PLAINS],
    /// Connections of REG_EVENT.
    streams: Vec<Connection>,
    /// What every process that ever registered is called, whatever its process id.
    labels: BTreeMap<u32, String>,
    starts: [u32; CLIENTS],
    /// Names of leases that were orphans when they were acquired last.
    pub(crate) adopted: BTreeSet<String>,
    pub(crate) host: Host,
    pub(crate) site: Site,
}

impl Side {
    pub(crate) fn new(host: Host, site: Site) -> Self {
        let labels = BTreeMap::from([(std::process::id(), "test".to_owned())]);
        Self {
            clients: [const { None }; CLIENTS],
            plains: [const { None }; PLAINS],
            streams: Vec::new(),
            labels,
            starts: [0; CLIENTS],
            adopted: BTreeSet::new(),
            host,
            site,
        }
    }

    /// Whether this client lives.
    pub(crate) fn has(&self, client: usize) -> bool {
        self.clients[client].is_some()
    }

    /// The name of a process in what is compared.
    pub(crate) fn label(&self, pid: u32) -> String {
        match (pid, self.labels.get(&pid)) {
            (0 | u32::MAX, _) => pid.to_string(),
            (_, Some(label)) => label.clone(),
            (_, None) => "unknown".to_owned(),
        }
    }

    /// Process ids of clients that live.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.clients.iter().flatten().map(|process| process.child.id()).collect()
    }

    /// Starts a client and registers it.
    pub(crate) fn register(&mut self, client: usize) {
        let (here, there) = UnixStream::pair().unwrap_or_else(|error| panic!("a pair of sockets: {error}"));
        let again = there.try_clone().unwrap_or_else(|error| panic!("a pair of sockets: {error}"));
        let child = bounded::dying_with_us(&build_dir().join("twin_client"))
            .arg(self.host.run_dir())
            .stdin(Stdio::from(OwnedFd::from(there)))
            .stdout(Stdio::from(OwnedFd::from(again)))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start twin_client: {error}"));
        self.starts[client] += 1;
        self.labels.insert(child.id(), format!("client{client}.{}", self.starts[client]));
        let mut connection = Connection::through(here);
        connection.set_limit(REPLY_LIMIT);
        let _ = connection.receive_payload(1);
        connection.register();
        // The reply comes after REGISTER has been dealt with.
        let version = connection.version();
        version.unwrap_or_else(|error| panic!("a client that has registered: {error}"));
        self.clients[client] = Some(Process { child, connection });
    }

    /// Ends a client by SIGKILL, or by hanging up.
    pub(crate) fn end(&mut self, client: usize, by_force: bool) {
        let Some(mut process) = self.clients[client].take() else { return };
        if by_force {
            // Fails only for a process that has ended already.
            let _ = process.child.kill();
        }
        drop(process.connection);
        process.child.wait().unwrap_or_else(|error| panic!("waiting for a client: {error}"));
    }

    /// Forgets the clients that have ended by themselves: that the daemon has killed.
    pub(crate) fn reap(&mut self) {
        for process in &mut self.clients {
            let ended = |process: &mut Process| process.child.try_wait().ok().flatten().is_some();
            if process.as_mut().is_some_and(ended) {
                *process = None;
            }
        }
    }

    fn data2(&self, request: &Request) -> u32 {
        match request.data2 {
            Data2::Number(number) => number,
            Data2::Client(client) => {
                self.clients[client].as_ref().map_or(NOBODY, |process| process.child.id())
            }
        }
    }

    fn connect(&self) -> Connection {
        let mut connection = self.host.connect();
        connection.set_limit(REPLY_LIMIT);
        connection
    }

    /// Sends a request; the reply is read later, so that both hosts are at work at once.
    pub(crate) fn send(&mut self, who: Who, request: &Request) -> Pending {
        let bytes = request.encode(&self.site, self.data2(request));
        match who {
            Who::Fresh => {
                let mut connection = self.connect();
                connection.send(&bytes);
                Pending(Some(connection))
            }
            Who::Plain(n) => {
                let mut connection = self.plains[n].take().unwrap_or_else(|| self.connect());
                connection.send(&bytes);
                self.plains[n] = Some(connection);
                Pending(None)
            }
            Who::Client(n) => {
                if let Some(process) = &mut self.clients[n] {
                    // Fails when the daemon has just killed the process; the reply will be an end.
                    let _ = std::io::Write::write_all(&mut process.connection.stream(), &bytes);
                }
                Pending(None)
            }
        }
    }

    /// Reads the reply to a request that was sent.
    pub(crate) fn receive(&mut self, who: Who, request: &Request, pending: Pending) -> Reply {
        let reply = match (pending, who) {
            (Pending(Some(mut connection)), _) => {
                let mut reply = reply_on(&mut connection, request);
                if let Reply::Message { rest, .. } = &mut reply {
                    if !request.closes() {
                        // Fails when the daemon has closed already.
                        let _ = connection.stream().shutdown(Shutdown::Write);
                    }
                    *rest = to_the_end(&connection);
                }
                reply
            }
            (Pending(None), Who::Plain(n)) => {
                let Some(mut connection) = self.plains[n].take() else { return Reply::End };
                let mut reply = reply_on(&mut connection, request);
                match &mut reply {
                    Reply::Message { rest, .. } if request.closes() => *rest = to_the_end(&connection),
                    Reply::Message { .. } => self.plains[n] = Some(connection),
                    Reply::Silence | Reply::End => {}
                }
                reply
            }
            (Pending(None), Who::Client(n)) => match &mut self.clients[n] {
                Some(process) => reply_on(&mut process.connection, request),
                None => Reply::End,
            },
            (Pending(None), Who::Fresh) => unreachable!("a fresh connection is pending"),
        };
        self.same_for_both(request, reply)
    }

    /// REG_EVENT: the connection stays when it is accepted.
    pub(crate) fn listen(&mut self, request: &Request) -> Reply {
        let mut connection = self.connect();
        connection.send(&request.encode(&self.site, self.data2(request)));
        let reply = reply_on(&mut connection, request);
        if reply.result() == Some(0) {
            self.streams.push(connection);
        }
        reply
    }

    /// How many streams are open; says goodbye to the oldest one, if there are more than `limit`.
    pub(crate) fn open_streams(&mut self, limit: usize) -> usize {
        self.streams.retain(|stream| {
            let _ = stream.stream().set_nonblocking(true);
            let read = stream.stream().read(&mut [0]);
            matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        if self.streams.len() > limit {
            let _ = self.streams.remove(0);
        }
        self.streams.len()
    }

    /// The reply without what differs between hosts that do the same.
    fn same_for_both(&self, request: &Request, reply: Reply) -> Reply {
        let Reply::Message { mut header, payload, rest } = reply else { return reply };
        let mut payload = self.without_paths(&payload);
        let mut rest = self.without_paths(&rest);
        match header.cmd {
            cmd::STATUS | cmd::HOST_STATUS | cmd::RENEWAL => {
                let mut lines: Vec<String> = Record::read_all(&rest).iter().map(record).collect();
                lines.dedup();
                rest = lines.join("\n").into_bytes();
            }
            cmd::LOG_DUMP => {
                header.data = u32::from(header.data > 0);
                rest.clear();
            }
            cmd::GET_HOSTS => payload.chunks_exact_mut(32).for_each(without_time),
            cmd::READ_RESOURCE_OWNERS => {
                payload[Resource::LEN..].chunks_exact_mut(32).for_each(without_time);
            }
            cmd::GET_LOCKSPACES => {
                for lockspace in payload.chunks_exact_mut(Lockspace::LEN) {
                    // Padding.
                    lockspace[60..64].fill(0);
                    lockspace[1096..].fill(0);
                }
            }
            _ => {}
        }
        if let (Data2::Client(_), true) = (request.data2, header.data2 == self.data2(request)) {
            header.data2 = NOBODY;
        }
        Reply::Message { header, payload, rest }
    }

    /// The directories of the two hosts differ in one word of one length.
    fn without_paths(&self, bytes: &[u8]) -> Vec<u8> {
        let dir = self.site.dir.to_string_lossy().into_owned().into_bytes();
        let mut bytes = bytes.to_vec();
        let mut at = 0;
        while at + dir.len() <= bytes.len() {
            if bytes[at..].starts_with(&dir) {
                bytes[at..at + dir.len()].fill(b'.');
            }
            at += 1;
        }
        bytes
    }
}

/// A connection on which a reply is awaited, if it is not one of those that last.
#[derive(Debug)]
pub(crate) struct Pending(Option<Connection>);

fn reply_on(connection: &mut Connection, request: &Request) -> Reply {
    let header = match connection.try_receive() {
        Ok(header) => header,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Reply::Silence;
        }
        Err(_) => return Reply::End,
    };
    let announced = (header.length as usize).saturating_sub(HEADER_LEN);
    let count = header.data2 as usize;
    let length = match request.cmd {
        cmd::READ_LOCKSPACE => Lockspace::LEN,
        cmd::READ_RESOURCE => Resource::LEN,
        cmd::READ_RESOURCE_OWNERS => Resource::LEN + 32 * count,
        cmd::UPDATE_RINDEX | cmd::LOOKUP_RINDEX | cmd::CREATE_RESOURCE | cmd::DELETE_RESOURCE => 64,
        cmd::GET_LVB if header.result() != 0 => 0,
        cmd::INQUIRE | cmd::GET_LVB => announced,
        cmd::GET_LOCKSPACES => Lockspace::LEN * count,
        cmd::GET_HOSTS if header.result() == 0 => 32 * count,
        _ => 0,
    };
    let payload = connection.receive_payload(length);
    Reply::Message { header, payload, rest: Vec::new() }
}

fn shown(bytes: &[u8]) -> String {
    let mut words = Vec::new();
    for run in bytes.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
        words.push(match run {
            [0, ..] => format!("{} zeros", run.len()),
            _ => format!("\"{}\"", run.escape_ascii()),
        });
    }
    words.join(", ")
}

fn to_the_end(connection: &Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    match connection.stream().read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) => format!("no end: {error}").into_bytes(),
    }
}

/// What is compared of a record in a reply: of one of STATUS that it is there, for the rest is compared as state.
fn record(record: &Record) -> String {
    let Record { kind, data32, .. } = record;
    let values = |keys: &[&str]| -> Vec<Option<String>> {
        keys.iter().map(|key| record.get(key).map(str::to_owned)).collect()
    };
    match kind {
        5 => {
            let values = values(&["owner_id", "owner_generation", "io_timeout", "owner_name"]);
            format!("host {data32}, some time: {}, {values:?}", record.data64 != 0)
        }
        6 => format!("renewal {:?}", record.keys()),
        _ => format!("type {kind}"),
    }
}

/// Of an entry of a list of hosts only whether there is a time. The io timeout of a host that never was is 0 in the original, and what its
/// record says in ours.
fn without_time(entry: &mut [u8]) {
    if entry[8..24] == [0; 16] {
        entry[24..28].fill(0);
    }
    let some = entry[16..24] != [0; 8];
    entry[16..24].fill(u8::from(some));
}
