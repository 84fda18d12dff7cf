//! Evidence that nobody else holds a lease, independent of the lock managers, and what the holders know of each other.
//!
//! From the reply to its acquire until just before its release a holder has a POSIX record lock on the lease's byte of one plain
//! file: for writing when it is exclusive, for reading when it is shared. The kernel takes these locks away, in the order of the
//! descriptors, when a process ends; the proof is opened before the first connection, so it is always gone before a daemon can notice
//! that the process is. A lock that cannot be had is an overlap.
//!
//! The ledger has a line for each lease: who held it last and under which version, what its value must be, and which host keeps it for
//! a holder that has gone. It is read and changed under a lock of its own.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// How a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By one process of all hosts.
    Exclusive,
    /// Together with others.
    Shared,
}

/// Bytes of a line of the ledger.
const LINE: u64 = 256;
/// First byte of the locks of the ledger's lines; below are those of the leases.
const LEDGER_LOCKS: i64 = 1000;
/// First byte of the batons: a hundred for each host.
const BATONS: i64 = 10_000;

/// What the holders tell each other about one lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// Version under which it was last held exclusively.
    pub lver: u64,
    /// Host and process that had it then.
    pub host: u64,
    /// See `host`.
    pub pid: u64,
    /// When, in milliseconds of the wall clock.
    pub at: u64,
    /// The value set last; 0: never.
    pub value: u64,
    /// A value whose setting has begun; 0: none.
    pub begun: u64,
    /// The host whose process set `value` or `begun`.
    pub setter: u64,
    /// The host that owns it for a persistent holder, whether that lives or not; 0: none.
    pub keeper: u64,
    /// The version it keeps.
    pub kept_lver: u64,
    /// The name it must have: index into the two names and 1; 0: not known. [`NOT_SURE`] more: its holder told the daemon to.
    pub name: u64,
}

/// The original does not change the name where another host has committed the lease in the holder's name: the block's flag is the
/// release then, and the leader is left alone. Ours does, but such a commit may still be on its way and bring the old name back. How
/// often a name is lost is counted (`rename-lost`).
pub const NOT_SURE: u64 = 10;

impl Entry {
    fn parse(line: &str) -> Self {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            lver: next(),
            host: next(),
            pid: next(),
            at: next(),
            value: next(),
            begun: next(),
            setter: next(),
            keeper: next(),
            kept_lver: next(),
            name: next(),
        }
    }

    fn line(&self) -> String {
        let mut line = String::new();
        for number in [
            self.lver,
            self.host,
            self.pid,
            self.at,
            self.value,
            self.begun,
            self.setter,
            self.keeper,
            self.kept_lver,
            self.name,
        ] {
            // Writing to a string cannot fail.
            let _ = write!(line, "{number} ");
        }
        format!("{line:<width$}\n", width = usize::try_from(LINE).unwrap_or(0) - 1)
    }
}

/// Milliseconds of the wall clock.
#[must_use]
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The proof and the ledger, as one process has them open.
#[derive(Debug)]
pub struct Proof {
    locks: File,
    ledger: File,
    batons: File,
}

impl Proof {
    /// Opens or makes both in `dir`. To be done once in a process, and before it connects to a daemon.
    ///
    /// # Panics
    /// When they cannot be opened.
    #[must_use]
    pub fn open(dir: &Path) -> Self {
        let open = |name: &str| {
            let path = dir.join(name);
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Self { locks: open("proof"), ledger: open("ledger"), batons: open("batons") }
    }

    /// Notes that this process holds `spot`, or that it holds it in another mode than before.
    ///
    /// # Errors
    /// Another process holds it in a way that excludes this: its pid (0: it has let go since).
    pub fn hold(&self, spot: usize, mode: Mode) -> Result<(), i32> {
        let kind = match mode {
            Mode::Exclusive => libc::F_WRLCK,
            Mode::Shared => libc::F_RDLCK,
        };
        let lock = byte(kind, offset(spot));
        if self.set(&lock) {
            return Ok(());
        }
        let mut other = lock;
        match fcntl(&self.locks, FcntlArg::F_GETLK(&mut other)) {
            Ok(_) if i32::from(other.l_type) != libc::F_UNLCK => Err(other.l_pid),
            _ => Err(0),
        }
    }

    /// Notes that this process does not hold `spot` any more, or is about to let go.
    pub fn let_go(&self, spot: usize) {
        assert!(self.set(&byte(libc::F_UNLCK, offset(spot))), "a lock can always be given up");
    }

    /// Takes the baton of `spot` among the processes of host `host_id`. `None`: another process has it; else the pid of the last one
    /// that had it and did not give it back (0: none). What that one began may still be going on.
    ///
    /// # Panics
    /// When the record of the batons cannot be read or written.
    #[must_use]
    pub fn take_baton(&self, host_id: u64, spot: usize) -> Option<u32> {
        if !self.set(&byte(libc::F_WRLCK, baton(host_id, spot))) {
            return None;
        }
        let mut bytes = [0; 4];
        let place = baton(host_id, spot).unsigned_abs() * 4;
        // Shorter at first.
        let read = self.batons.read_at(&mut bytes, place);
        read.unwrap_or_else(|error| panic!("the batons: {error}"));
        Some(u32::from_le_bytes(bytes))
    }

    /// Signs for a baton that was taken.
    ///
    /// # Panics
    /// When that cannot be written.
    pub fn sign_baton(&self, host_id: u64, spot: usize) {
        self.write_baton(host_id, spot, std::process::id());
    }

    /// Gives a baton back; `signed`: after use, so that nothing goes on under it.
    ///
    /// # Panics
    /// When that cannot be written.
    pub fn give_baton(&self, host_id: u64, spot: usize, signed: bool) {
        if signed {
            self.write_baton(host_id, spot, 0);
        }
        assert!(self.set(&byte(libc::F_UNLCK, baton(host_id, spot))), "a baton can always be given up");
    }

    fn write_baton(&self, host_id: u64, spot: usize, pid: u32) {
        let place = baton(host_id, spot).unsigned_abs() * 4;
        let written = self.batons.write_all_at(&pid.to_le_bytes(), place);
        written.unwrap_or_else(|error| panic!("the batons: {error}"));
    }

    /// Looks at the line of `spot`, and writes it back if it was changed. Nobody else changes it meanwhile.
    ///
    /// # Panics
    /// When the ledger cannot be locked, read or written.
    pub fn ledger<T>(&self, spot: usize, look: impl FnOnce(&mut Entry) -> T) -> T {
        let at = LEDGER_LOCKS + offset(spot);
        fcntl(&self.locks, FcntlArg::F_SETLKW(&byte(libc::F_WRLCK, at)))
            .unwrap_or_else(|error| panic!("locking the ledger: {error}"));
        let place = LINE * spot as u64;
        let mut bytes = vec![0; usize::try_from(LINE).unwrap_or(0)];
        // Shorter at first.
        let length =
            self.ledger.read_at(&mut bytes, place).unwrap_or_else(|error| panic!("the ledger: {error}"));
        let before = Entry::parse(&String::from_utf8_lossy(&bytes[..length]));
        let mut entry = before;
        let result = look(&mut entry);
        if entry != before {
            // One write: a process that is killed has written all of the line or nothing.
            let written = self.ledger.write_all_at(entry.line().as_bytes(), place);
            written.unwrap_or_else(|error| panic!("the ledger: {error}"));
        }
        assert!(self.set(&byte(libc::F_UNLCK, at)), "a lock can always be given up");
        result
    }

    fn set(&self, lock: &libc::flock) -> bool {
        match fcntl(&self.locks, FcntlArg::F_SETLK(lock)) {
            Ok(_) => true,
            Err(Errno::EAGAIN | Errno::EACCES) => false,
            Err(error) => panic!("a record lock: {error}"),
        }
    }
}

fn offset(spot: usize) -> i64 {
    i64::try_from(spot).unwrap_or(i64::MAX)
}

fn baton(host_id: u64, spot: usize) -> i64 {
    BATONS + 100 * i64::try_from(host_id).unwrap_or(0) + offset(spot)
}

/// A lock on one byte.
fn byte(kind: i32, at: i64) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or_else(|_| panic!("kind of lock {kind}")),
        l_whence: 0, // from the beginning
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}
