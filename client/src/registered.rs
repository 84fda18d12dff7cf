//! A connection that represents this process (socket-protocol.md 2.3 to 2.5).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use sanlock_wire::flags::{AcquireFlags, ConvertFlags, KillpathFlags, ReleaseFlags, RestrictFlags};
use sanlock_wire::strings::state_to_args;
use sanlock_wire::{
    Command, Header, Killpath, Name, Options, Reply, ReplyBody, Request, Resource, ResourceSpec, Target,
};

use crate::connection::{Until, count, read_reply, send_request, success};
use crate::error::ClientError;

/// What INQUIRE says about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Number of leases.
    pub count: u32,
    /// The state string (7.9); empty without leases.
    pub state: Vec<u8>,
}

impl Inquiry {
    pub(crate) fn from_reply(reply: Reply) -> Self {
        let count = reply.header.data2;
        let state = match reply.body {
            ReplyBody::StateString(state) => state,
            _ => Vec::new(),
        };
        Self { count, state }
    }

    /// The leases. `lver` is valid where the flags say so, RES_SHARED is set for shared ones.
    ///
    /// # Errors
    /// [`ClientError::State`] when the string does not parse.
    pub fn resources(&self) -> Result<Vec<ResourceSpec>, ClientError> {
        if self.state.is_empty() { Ok(Vec::new()) } else { Ok(state_to_args(&self.state)?) }
    }
}

/// The registered connection of this process. Made by [`Client::register`](crate::Client::register).
///
/// Dropping it closes the descriptor. When that was the last copy, the daemon releases the leases. The descriptor is
/// inherited by children and survives `execve`, so that a program started in this process keeps the leases (2.5).
#[derive(Debug)]
pub struct Registered {
    fd: OwnedFd,
    desynchronised: bool,
}

impl Registered {
    /// Sends REGISTER on a fresh connection, by then. There is no answer to wait for, and what is asked on it later takes as long as it takes.
    pub(crate) fn new(fd: OwnedFd, until: Until) -> Result<Self, ClientError> {
        send_request(fd.as_fd(), &Request::register(), until)?;
        until.lift(fd.as_fd())?;
        Ok(Self { fd, desynchronised: false })
    }

    /// Takes over the descriptor of a connection on which REGISTER was sent, for example one inherited through
    /// `execve`. No call may be in progress on it.
    #[must_use]
    pub const fn from_fd(fd: OwnedFd) -> Self {
        Self { fd, desynchronised: false }
    }

    /// Gives the descriptor away; the leases live as long as it.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Whether the descriptor survives `execve`: at first it does.
    ///
    /// # Errors
    /// [`ClientError::Io`] when the flag cannot be set.
    pub fn set_inheritable(&self, inheritable: bool) -> Result<(), ClientError> {
        let flags = if inheritable { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
        fcntl(&self.fd, FcntlArg::F_SETFD(flags))
            .map(drop)
            .map_err(|errno| ClientError::Io { op: "fcntl", errno: errno as i32 })
    }

    /// Acquires leases for this process, all or none (7.7). `owner_name` is shown by status instead of the pid.
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -243 when another host owns a lease, -17 when this host does.
    pub fn acquire(
        &mut self,
        flags: AcquireFlags,
        resources: &[ResourceSpec],
        owner_name: Option<Name>,
    ) -> Result<(), ClientError> {
        let options = Options::new(owner_name.unwrap_or_default());
        let request = Request::acquire(Target::Connection, flags, resources.to_vec(), options)?;
        self.zero(Command::Acquire, &request)
    }

    /// Releases leases of this process (7.8). The number is that of the orphans released, 0 unless ORPHAN was given.
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -1 when a lease is not held.
    pub fn release(&mut self, flags: ReleaseFlags, resources: &[Resource]) -> Result<u32, ClientError> {
        let request = Request::release(Target::Connection, flags, resources.to_vec())?;
        let reply = self.exchange(Command::Release, &request)?;
        count(Command::Release, &reply)
    }

    /// The leases of this process (7.9).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn inquire(&mut self) -> Result<Inquiry, ClientError> {
        let reply = self.exchange(Command::Inquire, &Request::inquire(Target::Connection))?;
        success(Command::Inquire, reply).map(Inquiry::from_reply)
    }

    /// Changes the mode of a lease of this process to that of its RES_SHARED flag (7.26).
    ///
    /// # Errors
    /// [`ClientError`]; `Daemon` with -114 when the lease has this mode already.
    pub fn convert(&mut self, flags: ConvertFlags, resource: Resource) -> Result<(), ClientError> {
        let request = Request::convert(Target::Connection, flags, resource);
        self.zero(Command::Convert, &request)
    }

    /// Replaces the restrictions of this connection (7.10). With RESTRICT_ALL every later call waits for ever.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn restrict(&mut self, flags: RestrictFlags) -> Result<(), ClientError> {
        self.zero(Command::Restrict, &Request::restrict(flags))
    }

    /// Sets the program that is run instead of a first signal (7.16). Each string is cut to 126 bytes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn killpath(
        &mut self,
        flags: KillpathFlags,
        path: impl AsRef<[u8]>,
        args: impl AsRef<[u8]>,
    ) -> Result<(), ClientError> {
        self.zero(Command::Killpath, &Request::killpath(flags, Killpath::new(path, args)))
    }

    fn zero(&mut self, command: Command, request: &Request) -> Result<(), ClientError> {
        let reply = self.exchange(command, request)?;
        success(command, reply).map(drop)
    }

    /// One request and its reply. After a failure half-way nobody knows what the next bytes on the stream are, so the
    /// connection carries no further call; it must stay open, because the leases hang on it.
    fn exchange(&mut self, command: Command, request: &Request) -> Result<Reply, ClientError> {
        if self.desynchronised {
            return Err(ClientError::Desynchronised);
        }
        let result = send_request(self.fd.as_fd(), request, Until::NEVER)
            .and_then(|()| read_reply(self.fd.as_fd(), command, Until::NEVER))
            .and_then(|reply| answers(&request.header, reply));
        self.desynchronised = result.is_err();
        result
    }
}

/// On a connection with more than one command a reply must be that of the command that was sent.
fn answers(request: &Header, reply: Reply) -> Result<Reply, ClientError> {
    if reply.header.cmd == request.cmd { Ok(reply) } else { Err(ClientError::Desynchronised) }
}

impl AsFd for Registered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
impl AsRawFd for Registered {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
