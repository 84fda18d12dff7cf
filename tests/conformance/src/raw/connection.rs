//! A connection to a daemon, and the commands as methods (socket-protocol.md 3, 7).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{
    HEADER_LEN, Header, HostEntry, Inquired, Lockspace, MAGIC, Resource, SELF, VERSION, acquire_payload, cmd,
    count_of,
};

/// Limit for one reply unless [`Connection::set_limit`] says otherwise.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A connection to a daemon.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    /// Connects to the daemon that uses `run_dir`.
    ///
    /// # Errors
    /// Those of `connect`.
    pub fn open(run_dir: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(run_dir.join("sanlock.sock"))?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        stream.set_write_timeout(Some(REPLY_LIMIT))?;
        Ok(Self { stream })
    }

    /// A socket at whose other end somebody passes on what comes to a daemon, and back.
    ///
    /// # Panics
    /// When the socket refuses the limits.
    #[must_use]
    pub fn through(stream: UnixStream) -> Self {
        let limited = stream.set_read_timeout(Some(REPLY_LIMIT));
        limited
            .and_then(|()| stream.set_write_timeout(Some(REPLY_LIMIT)))
            .unwrap_or_else(|error| panic!("limits of a socket: {error}"));
        Self { stream }
    }

    /// Changes the limit for replies.
    ///
    /// # Panics
    /// When the socket refuses.
    pub fn set_limit(&mut self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).unwrap_or_else(|error| panic!("read timeout: {error}"));
    }

    /// The socket itself, for cases that break the framing.
    #[must_use]
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|error| panic!("sending to the daemon: {error}"));
    }

    /// Sends a header and a payload.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub fn send_message(&mut self, header: Header, payload: &[u8]) {
        self.send(&header.encode());
        self.send(payload);
    }

    /// Receives a header.
    ///
    /// # Errors
    /// End of file, timeout, or another failure of the socket.
    pub fn try_receive(&mut self) -> io::Result<Header> {
        let mut bytes = [0; HEADER_LEN];
        self.stream.read_exact(&mut bytes)?;
        Ok(Header::decode(&bytes))
    }

    /// Receives a header and checks its fixed fields.
    ///
    /// # Panics
    /// When none comes in time or it is not a reply.
    pub fn receive(&mut self) -> Header {
        let header = self.try_receive().unwrap_or_else(|error| panic!("no reply: {error}"));
        assert_eq!((header.magic, header.version), (MAGIC, VERSION), "reply header {header:?}");
        header
    }

    /// Receives exactly `length` payload bytes.
    ///
    /// # Panics
    /// When fewer come in time.
    pub fn receive_payload(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap_or_else(|error| panic!("{length} payload bytes: {error}"));
        bytes
    }

    /// Receives until end of file.
    ///
    /// # Panics
    /// When the end does not come in time.
    pub fn receive_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap_or_else(|error| panic!("no end of file: {error}"));
        bytes
    }

    /// One command and its reply header.
    ///
    /// # Panics
    /// When the exchange fails.
    pub fn request(&mut self, cmd: u32, cmd_flags: u32, data: u32, data2: u32, payload: &[u8]) -> Header {
        let header = Header { cmd_flags, data, data2, ..Header::request(cmd, payload.len()) };
        self.send_message(header, payload);
        let reply = self.receive();
        if cmd != cmd::VERSION {
            assert_eq!((reply.cmd, reply.cmd_flags), (cmd, cmd_flags), "reply to command {cmd}: {reply:?}");
        }
        reply
    }

    /// REGISTER, which has no reply.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn register(&mut self) {
        self.send_message(Header::request(cmd::REGISTER, 0), &[]);
    }

    /// VERSION: the daemon's version number.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn version(&mut self) -> io::Result<u32> {
        self.stream.write_all(&Header::request(cmd::VERSION, 0).encode())?;
        self.try_receive().map(|header| header.data2)
    }

    /// ADD_LOCKSPACE.
    pub fn add_lockspace(&mut self, lockspace: &Lockspace, flags: u32, io_timeout: u32) -> i32 {
        self.request(cmd::ADD_LOCKSPACE, flags, io_timeout, 0, &lockspace.encode()).result()
    }

    /// REM_LOCKSPACE.
    pub fn rem_lockspace(&mut self, lockspace: &Lockspace, flags: u32) -> i32 {
        self.request(cmd::REM_LOCKSPACE, flags, 0, 0, &lockspace.encode()).result()
    }

    /// INQ_LOCKSPACE.
    pub fn inq_lockspace(&mut self, lockspace: &Lockspace, flags: u32) -> i32 {
        self.request(cmd::INQ_LOCKSPACE, flags, 0, 0, &lockspace.encode()).result()
    }

    /// ACQUIRE; `target` `None` means this connection.
    pub fn acquire(&mut self, resources: &[Resource], flags: u32, target: Option<u32>) -> i32 {
        let (count, payload) = acquire_payload(resources);
        self.request(cmd::ACQUIRE, flags, count, target.unwrap_or(SELF), &payload).result()
    }

    /// ACQUIRE of one resource for this connection, waiting for dead owners allowed.
    pub fn acquire_one(&mut self, resource: &Resource) -> i32 {
        self.acquire(std::slice::from_ref(resource), 0, None)
    }

    /// RELEASE of one lease of this connection.
    pub fn release_one(&mut self, resource: &Resource) -> i32 {
        self.release(std::slice::from_ref(resource), 0, None)
    }

    /// RELEASE of single leases; `target` `None` means this connection.
    ///
    /// # Panics
    /// When the exchange fails.
    pub fn release(&mut self, resources: &[Resource], flags: u32, target: Option<u32>) -> i32 {
        let payload: Vec<u8> = resources.iter().flat_map(Resource::encode_bare).collect();
        self.request(cmd::RELEASE, flags, count_of(resources), target.unwrap_or(SELF), &payload).result()
    }

    /// CONVERT of one lease of this connection, to the mode `resource` says.
    pub fn convert(&mut self, resource: &Resource) -> i32 {
        self.request(cmd::CONVERT, 0, 0, SELF, &resource.encode_bare()).result()
    }

    /// SET_LVB.
    pub fn set_lvb(&mut self, resource: &Resource, bytes: &[u8]) -> i32 {
        let payload = [&resource.encode_bare()[..], bytes].concat();
        self.request(cmd::SET_LVB, 0, 0, 0, &payload).result()
    }

    /// GET_LVB: the bytes, or the result if that is not 0. `length` 0 means all.
    ///
    /// # Errors
    /// The result.
    ///
    /// # Panics
    /// When the exchange fails.
    pub fn get_lvb(&mut self, resource: &Resource, length: u32) -> Result<Vec<u8>, i32> {
        let reply = self.request(cmd::GET_LVB, 0, 0, length, &resource.encode_bare());
        match reply.result() {
            0 => Ok(self.receive_payload((reply.length as usize).saturating_sub(HEADER_LEN))),
            code => Err(code),
        }
    }

    /// INQUIRE; `target` `None` means this connection.
    ///
    /// # Panics
    /// When the exchange fails.
    pub fn inquire(&mut self, target: Option<u32>) -> Inquired {
        let reply = self.request(cmd::INQUIRE, 0, 0, target.unwrap_or(SELF), &[]);
        let bytes = self.receive_payload((reply.length as usize).saturating_sub(HEADER_LEN));
        let text = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        Inquired {
            result: reply.result(),
            count: reply.data2,
            state: String::from_utf8_lossy(text).into_owned(),
            length: reply.length,
        }
    }

    /// READ_LOCKSPACE: result, io timeout, and the lockspace, which is sent also on failure.
    pub fn read_lockspace(&mut self, lockspace: &Lockspace) -> (i32, u32, Lockspace) {
        let reply = self.request(cmd::READ_LOCKSPACE, 0, 0, 0, &lockspace.encode());
        let bytes = self.receive_payload(Lockspace::LEN);
        (reply.result(), reply.data2, Lockspace::decode(&bytes))
    }

    /// READ_RESOURCE: result and the resource, which is sent also on failure.
    pub fn read_resource(&mut self, resource: &Resource) -> (i32, Resource) {
        let reply = self.request(cmd::READ_RESOURCE, 0, 0, 0, &resource.encode());
        let bytes = self.receive_payload(Resource::LEN);
        (reply.result(), Resource::decode(&bytes))
    }

    /// READ_RESOURCE_OWNERS: result, resource, owners.
    pub fn read_resource_owners(&mut self, resource: &Resource) -> (i32, Resource, Vec<HostEntry>) {
        let reply = self.request(cmd::READ_RESOURCE_OWNERS, 0, 0, 0, &resource.encode());
        let bytes = self.receive_payload(Resource::LEN);
        let owners = self.receive_payload(32 * reply.data2 as usize);
        (reply.result(), Resource::decode(&bytes), HostEntry::decode_all(&owners))
    }

    /// GET_LOCKSPACES: result and list. The daemon closes the connection.
    ///
    /// # Panics
    /// When the count does not agree with what came.
    #[must_use]
    pub fn get_lockspaces(mut self) -> (i32, Vec<Lockspace>) {
        let reply = self.request(cmd::GET_LOCKSPACES, 0, 0, 0, &[]);
        let bytes = self.receive_to_end();
        assert_eq!(bytes.len(), Lockspace::LEN * reply.data2 as usize, "payload of {reply:?}");
        (reply.result(), bytes.chunks_exact(Lockspace::LEN).map(Lockspace::decode).collect())
    }

    /// GET_HOSTS: result and list. The daemon closes the connection.
    ///
    /// # Panics
    /// When the count does not agree with what came.
    #[must_use]
    pub fn get_hosts(mut self, lockspace: &str, host_id: u64) -> (i32, Vec<HostEntry>) {
        let wanted = Lockspace::new(lockspace, host_id, "", 0);
        let reply = self.request(cmd::GET_HOSTS, 0, 0, 0, &wanted.encode());
        let bytes = self.receive_to_end();
        assert_eq!(bytes.len(), 32 * reply.data2 as usize, "payload of {reply:?}");
        (reply.result(), HostEntry::decode_all(&bytes))
    }
}
