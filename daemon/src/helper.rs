//! The helper: a child, forked before the daemon has threads and before it drops root, that sends signals.
//!
//! The daemon runs as a user of its own in the end, and could not signal the processes that hold leases. It passes the
//! helper a process's descriptor, never a pid: whom a signal reaches is decided when the process registers.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::signal::{SigSet, Signal};
use sanlock_sys::child::{ForkedChild, fork_child};
use sanlock_sys::clock;
use sanlock_sys::fdpass::{FdSocket, fd_socket_pair};
use sanlock_sys::pidfd::PidFd;
use sanlock_sys::process::set_thread_name;

/// Name of the process.
const NAME: &str = "sanlock-helper";

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Helper {
    socket: FdSocket,
    child: ForkedChild,
    full: Cell<u64>,
    seen_alive: Cell<u64>,
}

impl Helper {
    /// Forks the helper. Call it before any thread exists.
    ///
    /// # Errors
    /// As [`fork_child`]; no descriptor is to be had.
    pub(crate) fn start() -> io::Result<Self> {
        let (ours, theirs) = fd_socket_pair()?;
        let mut ends = Some((ours, theirs));
        let child = fork_child(|| match ends.take() {
            Some((ours, theirs)) => {
                drop(ours);
                serve(&theirs)
            }
            None => 1,
        })?;
        let (socket, theirs) = ends.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        drop(theirs);
        Ok(Self { socket, child, full: Cell::new(0), seen_alive: Cell::new(clock::monotonic_seconds()) })
    }

    /// Has a process signalled. Never blocks. Falls back on the daemon's own rights when the helper is gone.
    ///
    /// # Errors
    /// The helper is behind by a full socket; or it is gone, and the daemon may not signal the process itself.
    pub(crate) fn signal(&self, process: &PidFd, signal: Signal) -> io::Result<()> {
        let number = u8::try_from(signal as i32).unwrap_or(0);
        match self.socket.send(&[number], process.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.full.set(self.full.get() + 1);
                Err(error)
            }
            Err(_) => process.send_signal(signal),
            Ok(()) => Ok(()),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// The socket's number.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.socket.as_fd().as_raw_fd()
    }

    /// How often the socket was full.
    pub(crate) fn full_count(&self) -> u64 {
        self.full.get()
    }

    /// The second in which it was last seen alive.
    pub(crate) fn last_seen(&self) -> u64 {
        if matches!(self.child.pidfd().is_gone(), Ok(false)) {
            self.seen_alive.set(clock::monotonic_seconds());
        }
        self.seen_alive.get()
    }
}

/// Body of the helper: ends when the daemon's end is closed.
fn serve(socket: &FdSocket) -> u8 {
    let _ = set_thread_name(NAME);
    // Signals meant for the daemon reach its process group on a terminal; the helper ends with the daemon, not before.
    let meant_for_the_daemon: SigSet =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    let _ = meant_for_the_daemon.thread_block();
    let mut buffer = [0; 1];
    loop {
        match socket.receive(&mut buffer) {
            Ok(received) => match received.fd {
                Some(fd) => {
                    if let Ok(signal) = Signal::try_from(i32::from(buffer[0])) {
                        // A process that is gone meanwhile is what was wanted.
                        let _ = PidFd::from_fd(fd).send_signal(signal);
                    }
                }
                None if received.len == 0 => return 0,
                None => {}
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return 1,
        }
    }
}
