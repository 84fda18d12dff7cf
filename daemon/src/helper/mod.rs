//! The helper: a child, forked before the daemon has threads and before it drops root, that runs killpath and `on_fail` programs.
//!
//! Signals do not need it: the daemon sends them itself, through the descriptor that each process got when it registered. Only
//! where it may not (it dropped root, and kept no right to signal) the helper does.
//!
//! Orders for programs wait *here*, not in the socket: the helper is rung a bell, and fetches one order at a time when it is ready.
//! So an order whose client has gone or has given everything up is simply not given any more, however long the helper stood still. One that
//! fetches nothing is replaced. Nothing here waits for the helper.

mod child;
mod message;
mod orders;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::signal::Signal;
use sanlock_lease::timing::MonoTime;
use sanlock_manager::{ConnId, LockspaceId, ResourceId};
use sanlock_sys::child::{ForkedChild, fork_child};
use sanlock_sys::clock;
use sanlock_sys::fdpass::{FdSocket, fd_socket_pair};
use sanlock_sys::pidfd::PidFd;

use crate::log::Log;
use message::{MESSAGE_BYTES_MAX, Order, Report};
use orders::{Lost, ORDER_LIFE_MS, Orders};

/// How long a signal may wait in a helper that stands still.
const SIGNAL_LIFE_MS: u64 = 1000;

/// What a program is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To end the users of a lease gently: of this connection, with this pid; or for a request for this lease.
    Killpath(ConnId, i32, Option<ResourceId>),
    /// Because a lockspace has failed.
    OnFail(LockspaceId),
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Killpath(_, pid, _) => write!(f, "killpath program of pid {pid}"),
            Self::OnFail(ls) => write!(f, "on_fail program of s{}", ls.0),
        }
    }
}

/// A program to be run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// What for.
    pub(crate) purpose: Purpose,
    /// The command line.
    pub(crate) words: Vec<Vec<u8>>,
    /// When it was wanted first.
    pub(crate) since: MonoTime,
}

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Helper {
    socket: FdSocket,
    guard: ForkedChild,
    /// The process that works now, once it has reported.
    worker: Option<(i32, PidFd)>,
    orders: Orders,
    rung: bool,
    /// Neither guard nor helper is left.
    dead: bool,
    full: Cell<u64>,
    seen_alive: Cell<u64>,
}

impl Helper {
    /// Forks guard and helper, with locked memory if wanted. Call it before any thread exists.
    ///
    /// # Errors
    /// As [`fork_child`]; no descriptor is to be had.
    pub(crate) fn start(locked: bool) -> io::Result<Self> {
        let (ours, theirs) = fd_socket_pair()?;
        let mut ends = Some((ours, theirs));
        let guard = fork_child(|| match ends.take() {
            Some((ours, theirs)) => {
                drop(ours);
                child::guard(&theirs, locked)
            }
            None => 1,
        })?;
        let (socket, theirs) = ends.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        drop(theirs);
        Ok(Self {
            socket,
            guard,
            worker: None,
            orders: Orders::default(),
            rung: false,
            dead: false,
            full: Cell::new(0),
            seen_alive: Cell::new(clock::boottime_seconds()),
        })
    }

    /// Signals a registered process. Never blocks.
    ///
    /// # Errors
    /// The pid is one that must not be signalled; or neither the daemon may signal it nor the helper be reached.
    pub(crate) fn signal(&self, pid: i32, process: &PidFd, signal: Signal) -> io::Result<()> {
        if !may_signal(pid, &self.own_pids()) {
            return Err(io::Error::other(format!("pid {pid} is never signalled (0, init, or this daemon)")));
        }
        match process.send_signal(signal) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                let until = clock::boottime_ms() + SIGNAL_LIFE_MS;
                let order = Order::Signal { signal: u8::try_from(signal as i32).unwrap_or(0), until };
                let sent = self.socket.send(&order.encode(), process.as_fd());
                self.count_full(&sent);
                sent
            }
            // It ended a moment ago.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }

    /// The daemon, its helper and its guard.
    fn own_pids(&self) -> [i32; 3] {
        [i32::try_from(std::process::id()).unwrap_or(0), self.pid(), self.guard.pid()]
    }

    /// Queues a program.
    ///
    /// # Errors
    /// Too many wait, or there is no helper any more; the order is lost.
    pub(crate) fn run(&mut self, now: MonoTime, program: Program) -> Result<(), Program> {
        if self.dead {
            return Err(program);
        }
        let pushed = self.orders.push(now, program);
        if pushed.is_err() {
            self.full.set(self.full.get() + 1);
        }
        self.ring();
        pushed
    }

    /// Drops the orders that are not wanted any more, unless they have been given already.
    pub(crate) fn cancel(&mut self, unwanted: impl Fn(Purpose) -> bool) {
        self.orders.cancel(unwanted);
    }

    fn ring(&mut self) {
        if !self.rung && self.orders.any_waiting() {
            let sent = self.socket.send_bytes(&Order::Bell.encode());
            self.count_full(&sent);
            self.rung = sent.is_ok();
        }
    }

    fn count_full(&self, sent: &io::Result<()>) {
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.full.set(self.full.get() + 1);
        }
    }

    /// Takes what the helper reports, and gives it orders. `to_stop`: whom the program of a connection is to stop, and its
    /// process, while that lives.
    pub(crate) fn ready<'a>(
        &mut self,
        now: MonoTime,
        log: &Log,
        to_stop: impl Fn(ConnId) -> Option<Option<&'a PidFd>>,
    ) {
        loop {
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            let received = match self.socket.receive_now(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM)) => {
                    // It is there when there is memory again.
                    log.error(format_args!("helper: {error}"));
                    return;
                }
                Err(error) => {
                    log.error(format_args!("helper: {error}"));
                    self.dead = true;
                    return;
                }
            };
            if received.len == 0 {
                log.error(format_args!(
                    "helper and guard have both ended: killpath and on_fail programs cannot be run until the daemon is restarted"
                ));
                self.dead = true;
                return;
            }
            match Report::decode(buffer.get(..received.len).unwrap_or_default()) {
                Some(Report::Hello { pid }) => {
                    if self.worker.is_some() {
                        log.error(format_args!("helper has ended, replaced by pid {pid}"));
                    }
                    // What the earlier one started goes on, but nobody is told of its end.
                    for purpose in self.orders.forget_running() {
                        log.warn(format_args!("{purpose} is not watched any more"));
                    }
                    self.worker = received.fd.map(|fd| (pid, PidFd::from_fd(fd)));
                }
                Some(Report::Fetch) => {
                    self.rung = false;
                    self.give(now, &to_stop);
                }
                Some(Report::Started { id, pid }) => {
                    let Some(purpose) = self.orders.started(id) else { continue };
                    log.warn(format_args!("{purpose} runs as pid {pid}"));
                }
                Some(Report::Refused { id, errno }) => {
                    if let Some(purpose) = self.orders.refused(id, errno) {
                        let reason = io::Error::from_raw_os_error(errno);
                        log.error(format_args!("{purpose} cannot be run: {reason}"));
                    }
                }
                Some(Report::Ended { id, status }) => {
                    if let Some(purpose) = self.orders.ended(id) {
                        match status {
                            0.. => log.warn(format_args!("{purpose} has ended with status {status}")),
                            _ => log.warn(format_args!("{purpose} was ended by signal {}", -status)),
                        }
                    }
                }
                None => {}
            }
        }
    }

    /// Gives the helper the next order that is still wanted.
    fn give<'a>(&mut self, now: MonoTime, to_stop: &impl Fn(ConnId) -> Option<Option<&'a PidFd>>) {
        while let Some(order) = self.orders.fetch(now) {
            let words = order.program.words.clone();
            let until = now.plus_millis(ORDER_LIFE_MS);
            let message = Order::Run { id: order.id, until: until.millis(), words }.encode();
            let sent = match order.program.purpose {
                Purpose::OnFail(_) => self.socket.send_bytes(&message),
                Purpose::Killpath(conn, ..) => match to_stop(conn) {
                    Some(Some(process)) => self.socket.send(&message, process.as_fd()),
                    Some(None) => self.socket.send_bytes(&message),
                    // Nobody is left to be stopped.
                    None => continue,
                },
            };
            self.count_full(&sent);
            match sent {
                Ok(()) => self.orders.given(order, until),
                Err(_) => self.orders.put_back(order),
            }
            return;
        }
        let _ = self.socket.send_bytes(&Order::Nothing.encode());
    }

    /// Ends a helper that does not fetch its orders: the guard starts another, which does. Returns what could not be started for a reason that may
    /// pass, and what may not have been: its helper has ended, or nobody is left who could.
    pub(crate) fn tick(&mut self, now: MonoTime, log: &Log) -> Vec<Program> {
        let Lost { silent: mut lost, unfetched, refused } = self.orders.lost(now);
        if self.dead {
            lost.extend(self.orders.give_up());
        }
        for program in &lost {
            log.error(format_args!("{}: the helper has not said that it was started", program.purpose));
        }
        if let Some(waiting) = unfetched {
            self.rung = false;
            log.error(format_args!(
                "{waiting} programs wait, and helper pid {} has fetched none of them for {} s",
                self.pid(),
                ORDER_LIFE_MS / 1000
            ));
            if let Some((pid, worker)) = &self.worker {
                match worker.send_signal(Signal::SIGKILL) {
                    Ok(()) => log.error(format_args!("helper pid {pid} stands still and is replaced")),
                    Err(error) => {
                        log.error(format_args!("helper pid {pid} cannot be replaced: {error}"));
                    }
                }
            }
        }
        self.ring();
        lost.extend(refused);
        lost
    }

    /// Programs that wait for the helper, were given to it and have not begun, or are to be tried again.
    pub(crate) fn waiting(&self) -> usize {
        self.orders.open()
    }

    /// Whether on_fail programs are among them.
    pub(crate) fn has_to_tell(&self) -> bool {
        self.orders.any_open(|purpose| matches!(purpose, Purpose::OnFail(_)))
    }

    /// Neither guard nor helper is left; the socket has nothing more to say.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Readable when the helper has something to report.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Its process id; the guard's until it has reported.
    pub(crate) fn pid(&self) -> i32 {
        self.worker.as_ref().map_or(self.guard.pid(), |(pid, _)| *pid)
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
        let process = self.worker.as_ref().map_or(self.guard.pidfd(), |(_, process)| process);
        if matches!(process.is_gone(), Ok(false)) {
            self.seen_alive.set(clock::boottime_seconds());
        }
        self.seen_alive.get()
    }
}

/// No client, whatever it made of its connection or of a request on disk, has the daemon kill init, a process group, itself or what
/// it needs to kill (weakness W42).
fn may_signal(pid: i32, own: &[i32]) -> bool {
    pid > 1 && !own.contains(&pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_init_nor_a_group_nor_the_daemon_is_ever_signalled() {
        let own = [4711, 4713, 4712];
        for pid in [i32::MIN, -4711, -1, 0, 1, 4711, 4712, 4713] {
            assert!(!may_signal(pid, &own), "{pid}");
        }
        assert!(may_signal(2, &own) && may_signal(4714, &own));
    }
}
