//! The helper process and its guard.
//!
//! The guard starts the helper, and starts another when it dies. When the guard dies the helper starts a new one and becomes the
//! guard itself. Both end when the daemon does: the helper then reads the end of the socket. Neither has threads, so both can
//! fork at any time, and neither touches a disk: what may hang, a program's start on a dead file system included, does so in a
//! process of its own.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::{io, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid, setgroups};
use sanlock_sys::child::{fork_child, take_default};
use sanlock_sys::clock;
use sanlock_sys::fdpass::{FdSocket, Received};
use sanlock_sys::notify::SOCKET_VARIABLE;
use sanlock_sys::pidfd::PidFd;
use sanlock_sys::priority::{MemoryLock, lock_memory};
use sanlock_sys::process::set_thread_name;
use sanlock_sys::reclaim::set_io_flusher;

use super::message::{MESSAGE_BYTES_MAX, Order, Report};

const HELPER_NAME: &str = "sanlock-helper";
const GUARD_NAME: &str = "sanlock-guard";
/// Pause before a helper that died is replaced: one that dies at once must not keep a processor busy.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// Programs that run at the same time; further ones are refused.
const PROGRAMS_MAX: usize = 1024;
/// How often the ends of programs are looked for while some run.
const REAP_MS: u16 = 500;
/// Exit status of a process that could not become the program, as shells use it.
const NOT_RUN: u8 = 127;

/// Body of the guard. Returns when the daemon has ended.
pub(super) fn guard(socket: &FdSocket, locked: bool) -> u8 {
    let _ = set_thread_name(GUARD_NAME);
    // Signals meant for the daemon reach its process group on a terminal; these two end with the daemon, not before.
    let meant_for_the_daemon: SigSet =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    let _ = meant_for_the_daemon.thread_block();
    let own = getpid();
    loop {
        if let Ok(child) = fork_child(|| helper(socket, own, locked)) {
            if ended_in_order(child.pid()) {
                return 0;
            }
        }
        thread::sleep(RESTART_PAUSE);
    }
}

/// Waits for the helper's end; other children are programs of a time when this process was the helper.
fn ended_in_order(helper: i32) -> bool {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, status)) if pid.as_raw() == helper => return status == 0,
            Ok(WaitStatus::Signaled(pid, ..)) if pid.as_raw() == helper => return false,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Why a helper stops being one.
enum End {
    /// The daemon has ended.
    Daemon,
    /// The guard has.
    Guard,
}

fn helper(socket: &FdSocket, guard_pid: Pid, locked: bool) -> u8 {
    let _ = set_thread_name(HELPER_NAME);
    if locked {
        // Where that is not allowed the helper works too, unless the system's disk is dead at the same time.
        let _ = lock_memory(MemoryLock::Current);
    }
    let parent = PidFd::open(guard_pid.as_raw()).ok().filter(|_| getppid() == guard_pid);
    let mut worker = Worker { socket, programs: Vec::new() };
    match parent.map_or(Ok(End::Guard), |parent| worker.serve(&parent)) {
        Ok(End::Daemon) => 0,
        Ok(End::Guard) => guard(socket, locked),
        Err(_) => 1,
    }
}

struct Worker<'a> {
    socket: &'a FdSocket,
    /// Order and pid of programs that run.
    programs: Vec<(u64, Pid)>,
}

impl Worker<'_> {
    fn serve(&mut self, guard: &PidFd) -> io::Result<End> {
        let pid = getpid().as_raw();
        let own = PidFd::open(pid)?;
        let mut hello = true;
        // An earlier helper may have taken the bell with it.
        let mut fetch = true;
        loop {
            // A daemon that does not read is not waited for; this comes again at the next turn.
            if hello {
                hello = self.socket.send(&Report::Hello { pid }.encode(), own.as_fd()).is_err();
            }
            if !hello && fetch && self.report(Report::Fetch) {
                fetch = false;
            }
            let mut fds = [
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(guard.as_fd(), PollFlags::POLLIN),
            ];
            let idle = self.programs.is_empty() && !fetch && !hello;
            match poll(&mut fds, if idle { PollTimeout::NONE } else { PollTimeout::from(REAP_MS) }) {
                Err(nix::Error::EINTR) | Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.reap();
            if guard.is_gone()? {
                return Ok(End::Guard);
            }
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            let Received { len, fd, lost_fd } = match self.socket.receive_now(&mut buffer) {
                Ok(received) => received,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            if len == 0 && fd.is_none() {
                return Ok(End::Daemon);
            }
            let process = fd.map(PidFd::from_fd);
            match Order::decode(buffer.get(..len).unwrap_or_default()) {
                Some(Order::Bell) => fetch = true,
                Some(Order::Run { id, until, words }) => {
                    // Without it nobody knows whether the process that the words name is still that one.
                    let report = if lost_fd {
                        Report::Refused { id, errno: libc::EMFILE }
                    } else {
                        self.run(id, until, process.as_ref(), &words)
                    };
                    self.report(report);
                    fetch = true;
                }
                Some(Order::Signal { signal, until }) if clock::boottime_ms() < until => {
                    let signal = Signal::try_from(i32::from(signal));
                    if let (Ok(signal), Some(process)) = (signal, process) {
                        // A process that is gone meanwhile is what was wanted.
                        let _ = process.send_signal(signal);
                    }
                }
                Some(Order::Signal { .. } | Order::Nothing) | None => {}
            }
        }
    }

    /// Never waits for a daemon that does not read.
    fn report(&self, report: Report) -> bool {
        self.socket.send_bytes(&report.encode()).is_ok()
    }

    fn run(&mut self, id: u64, until: u64, process: Option<&PidFd>, words: &[Vec<u8>]) -> Report {
        let refused = |errno| Report::Refused { id, errno };
        if clock::boottime_ms() >= until {
            return refused(libc::ETIMEDOUT);
        }
        if process.is_some_and(|process| process.is_gone().unwrap_or(false)) {
            return refused(libc::ESRCH);
        }
        if self.programs.len() >= PROGRAMS_MAX {
            return refused(libc::EAGAIN);
        }
        match fork_child(|| become_program(self.socket, id, words)) {
            Ok(child) => {
                self.programs.push((id, Pid::from_raw(child.pid())));
                Report::Started { id, pid: child.pid() }
            }
            Err(error) => refused(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        }
    }

    /// Notes which programs have ended.
    fn reap(&mut self) {
        let socket = self.socket;
        self.programs.retain(|(id, pid)| {
            let status = match waitpid(*pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, status)) => status,
                Ok(WaitStatus::Signaled(_, signal, _)) => -(signal as i32),
                Ok(_) | Err(nix::Error::EINTR) => return true,
                Err(_) => return false,
            };
            let _ = socket.send_bytes(&Report::Ended { id: *id, status }.encode());
            false
        });
    }
}

/// Runs in a process of its own, which becomes the program: nobody waits if that hangs.
fn become_program(socket: &FdSocket, id: u64, words: &[Vec<u8>]) -> u8 {
    // As the original: the program gets the helper's identity, without groups (lease-algorithms.md 10.2).
    let _ = setgroups(&[]);
    let _ = SigSet::empty().thread_set_mask();
    // What the daemon ignores is not for the program.
    let _ = take_default(Signal::SIGXFSZ);
    // Nor does it get the daemon's mark, and what it may start. Without the right to take it away there is none.
    let _ = set_io_flusher(false);
    let words: Vec<&OsStr> = words.iter().map(|word| OsStr::from_bytes(word)).collect();
    let Some((path, arguments)) = words.split_first() else { return NOT_RUN };
    let error = Command::new(path).args(arguments).env_remove(SOCKET_VARIABLE).exec();
    let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
    let _ = socket.send_bytes(&Report::Refused { id, errno }.encode());
    NOT_RUN
}
