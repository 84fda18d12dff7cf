//! The daemon's loop: one thread that waits for signals, connections, messages and times, tells [`Machine`] about them and
//! carries out what it decides. Nothing in it blocks, and nothing that concerns one connection, or passes, ends it: the device would
//! reset the host.

use crate::cli::Options;
use crate::conn::{Conn, Overdue, Read};
use crate::device::Device;
use crate::dump::{self, Head, Slot};
use crate::log::Log;
use crate::poller::{Poller, Token};
use crate::scripts::Scripts;
use crate::signals::Signals;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sanlock_sys::clock::monotonic_ms;
use sanlock_sys::credentials::peer_pid;
use sanlock_wdmd::decide::{Action, Event, Machine, Peer, SourceId, Time};
use sanlock_wdmd::protocol::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;

/// Numbers of the two slots that are no clients, as the dump shows them.
const SIGNAL_SLOT: SourceId = 0;
const LISTEN_SLOT: SourceId = 1;
const FIRST_CLIENT_SLOT: SourceId = 2;
/// Messages of one connection per turn, so that nobody starves.
const MESSAGES_PER_TURN: usize = 8;
/// Connections accepted per turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Descriptors kept for the device, scripts and files.
const RESERVED_DESCRIPTORS: u64 = 64;
/// Connections at most, however many descriptors there are.
const MAX_CONNECTIONS: u64 = 65_536;
/// After accepting failed, or was full, it is tried again after this.
const ACCEPT_AGAIN_MS: i64 = 1000;
/// How often peers that keep us waiting are looked at.
const OVERDUE_EVERY_MS: i64 = 1000;
/// Dumps that may wait for their readers at once; each may be a megabyte.
const MAX_UNREAD_DUMPS: usize = 16;
/// Longest wait.
const MAX_WAIT_MS: i64 = 60_000;

/// What a turn must not go on after.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    GoOn,
    Quit,
}

/// The running daemon.
pub(crate) struct Server<'a> {
    options: &'a Options,
    socket_gid: u32,
    log: &'a Log,
    machine: Machine,
    device: Device,
    /// With `-S 1`.
    scripts: Option<Scripts>,
    listener: UnixListener,
    signals: Signals,
    poller: Poller,
    conns: BTreeMap<SourceId, Conn>,
    free: BTreeSet<SourceId>,
    next: SourceId,
    max_connections: usize,
    accept_again: Option<Time>,
    look_for_overdue: Option<Time>,
    /// When what memory was lacking for is sent again.
    send_again: Option<Time>,
    flow: Flow,
}

fn now() -> Time {
    Time::from_millis(monotonic_ms())
}

/// Raises the limit of open descriptors as far as that is possible and of use. How many connections that allows.
fn connections_possible() -> usize {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    // No further than that: scripts inherit it, and some programs close whatever could be open.
    let wanted = hard.min(MAX_CONNECTIONS + RESERVED_DESCRIPTORS);
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    };
    usize::try_from(limit.saturating_sub(RESERVED_DESCRIPTORS).min(MAX_CONNECTIONS)).unwrap_or(usize::MAX)
}

impl<'a> Server<'a> {
    /// # Errors
    ///
    /// No descriptor is to be had.
    pub(crate) fn new(
        options: &'a Options,
        socket_gid: u32,
        log: &'a Log,
        device: Device,
        scripts: Option<Scripts>,
        listener: UnixListener,
        signals: Signals,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(signals.as_fd(), Token::Signal)?;
        poller.add(listener.as_fd(), Token::Listener)?;
        Ok(Self {
            options,
            socket_gid,
            log,
            machine: device.left_running().map_or_else(Machine::new, |device_timeout| {
                Machine::with_device_left_running(now(), device_timeout)
            }),
            device,
            scripts,
            listener,
            signals,
            poller,
            conns: BTreeMap::new(),
            free: BTreeSet::new(),
            next: FIRST_CLIENT_SLOT,
            max_connections: connections_possible(),
            accept_again: None,
            look_for_overdue: None,
            send_again: None,
            flow: Flow::GoOn,
        })
    }

    /// Runs until the daemon may stop. The device is stopped then.
    ///
    /// # Errors
    ///
    /// Waiting failed, which a correct program does not meet. **The device may be running.**
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        while self.flow == Flow::GoOn {
            let wait = self.wait_ms();
            ready.clear();
            self.poller.wait(wait, &mut ready)?;
            for &token in &ready {
                match token {
                    Token::Signal => self.signals.hear(),
                    Token::Listener => self.accept(),
                    Token::Conn(id) => self.serve(id),
                }
            }
            self.heed_signals();
            self.send_again();
            self.look_for_overdue();
            self.resume_accepting();
            if let Some(scripts) = &mut self.scripts {
                let (enabled, fire_timeout) = (self.machine.enabled(), self.machine.fire_timeout());
                for verdict in scripts.turn(now(), enabled, fire_timeout, self.log) {
                    self.tell(Event::Script { slot: verdict.slot, good: verdict.good });
                }
            }
            self.tell(Event::Tick);
        }
        Ok(())
    }

    /// Milliseconds until something is due.
    fn wait_ms(&self) -> u16 {
        let now = now();
        let mut at = now.plus_millis(MAX_WAIT_MS);
        let scripts = self.scripts.as_ref().and_then(|scripts| scripts.wake_at(now));
        let machine = self.machine.wake_at(now);
        for due in [machine, scripts, self.accept_again, self.look_for_overdue, self.send_again] {
            at = due.map_or(at, |due| at.min(due));
        }
        let wait = at.millis_since(now).clamp(0, MAX_WAIT_MS);
        if self.log.debugs() && self.machine.enabled() {
            let interval = self.machine.current_interval(now);
            self.log.debug(format_args!(
                "test_interval {interval} sleep_seconds {} poll_timeout {wait}",
                wait / 1000
            ));
        }
        u16::try_from(wait).unwrap_or(u16::MAX)
    }

    fn heed_signals(&mut self) {
        if self.signals.take_stop() {
            self.tell(Event::Terminate);
        }
        if self.signals.take_rescan() {
            if let Some(scripts) = &mut self.scripts {
                scripts.rescan();
            }
        }
    }

    /// Tells the decisions what happened and carries out what follows from it.
    fn tell(&mut self, event: Event) {
        let now = now();
        for action in self.machine.handle(now, event) {
            match action {
                Action::Arm { fire_timeout, device_timeout } => {
                    let result = self.device.arm(fire_timeout, device_timeout, self.log);
                    self.tell(Event::Armed(result));
                }
                Action::Ping => {
                    self.log.debug(format_args!("test_time {}", now.seconds()));
                    let ok = self.device.ping(now, self.log);
                    self.tell(Event::Pinged(ok));
                }
                Action::Disarm => {
                    let ok = self.device.disarm(now, self.log);
                    self.tell(Event::Disarmed(ok));
                }
                Action::Reply(id, message) => self.send(id, &message.encode()),
                Action::Dump(id) => {
                    let text = self.dump(now);
                    self.send(id, text.as_bytes());
                }
                Action::Log(notice) => self.log.write(notice.level(), &notice),
                Action::Quit => self.flow = Flow::Quit,
            }
        }
    }

    fn send(&mut self, id: SourceId, bytes: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.write(now(), bytes);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.conns.len() >= self.max_connections {
                self.log.error(format_args!(
                    "{} connections, which is the limit: no more for now",
                    self.conns.len()
                ));
                return self.pause_accepting();
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => return,
                    Some(Errno::EINTR | Errno::ECONNABORTED) => continue,
                    _ => {
                        self.log.error(format_args!("cannot accept a connection: {error}"));
                        return self.pause_accepting();
                    }
                },
            };
            let pid = peer_pid(&stream).unwrap_or(0);
            let peer = Peer { fd: stream.as_raw_fd(), pid };
            let id = self.free.pop_first().unwrap_or(self.next);
            let added =
                stream.set_nonblocking(true).and_then(|()| self.poller.add(stream.as_fd(), Token::Conn(id)));
            if let Err(error) = added {
                self.free.insert(id);
                self.log.error(format_args!("cannot watch a connection: {error}"));
                continue;
            }
            self.next = self.next.max(id + 1);
            self.conns.insert(id, Conn::new(stream));
            self.tell(Event::Connected(id, peer));
        }
    }

    fn pause_accepting(&mut self) {
        self.poller.remove(self.listener.as_fd());
        self.accept_again = Some(now().plus_millis(ACCEPT_AGAIN_MS));
    }

    fn resume_accepting(&mut self) {
        if self.accept_again.is_none_or(|at| now() < at) {
            return;
        }
        self.accept_again = None;
        if let Err(error) = self.poller.add(self.listener.as_fd(), Token::Listener) {
            self.log.error(format_args!("cannot watch for connections, trying again: {error}"));
            self.pause_accepting();
        }
    }

    /// Sends what waits for the peer, then reads its messages, some per turn, and only while no reply waits.
    fn serve(&mut self, id: SourceId) {
        let at = now();
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.flush(at);
        }
        for _ in 0..MESSAGES_PER_TURN {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.unsent() == 0) else { break };
            match conn.read(at) {
                Read::Message(message) => self.tell(Event::Message(id, *message)),
                Read::Nothing => break,
                Read::End(0) => return self.end(id),
                Read::End(size) => {
                    self.log.error(format_args!("ci {id} recv size {size}"));
                    return self.end(id);
                }
                Read::Failed(errno) => {
                    self.log.error(format_args!("ci {id} recv error {}", errno as i32));
                    return self.end(id);
                }
            }
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let wanted = conn.wants();
        let lacking = conn.send_again();
        if let Some((_, again)) = lacking {
            self.send_again = Some(self.send_again.map_or(again, |at| at.min(again)));
        }
        if wanted != conn.watched {
            if let Some((errno, _)) = lacking {
                self.log.error(format_args!("ci {id} send error {}, trying again", errno as i32));
            }
            conn.watched = wanted;
            if let Err(error) = self.poller.change(conn.as_fd(), Token::Conn(id), wanted) {
                // Nothing would be heard of it any more.
                self.log.error(format_args!("ci {id} cannot be watched, dropped: {error}"));
                return self.end(id);
            }
        }
        if conn.is_waited_for() {
            self.look_for_overdue.get_or_insert(at.plus_millis(OVERDUE_EVERY_MS));
        }
    }

    /// Sends what memory was lacking for.
    fn send_again(&mut self) {
        let at = now();
        if self.send_again.is_none_or(|due| at < due) {
            return;
        }
        let again = |conn: &Conn| conn.send_again().map(|(_, again)| again);
        let due = self.conns.iter().filter(|(_, conn)| again(conn).is_some_and(|due| at >= due));
        let due: Vec<SourceId> = due.map(|(&id, _)| id).collect();
        for id in due {
            self.serve(id);
        }
        self.send_again = self.conns.values().filter_map(again).min();
    }

    /// The connection has ended; what it leaves behind is decided elsewhere.
    fn end(&mut self, id: SourceId) {
        if let Some(conn) = self.conns.remove(&id) {
            self.poller.remove(conn.as_fd());
        }
        self.tell(Event::Ended(id));
        if self.machine.source(id).is_none() {
            self.free.insert(id);
        }
    }

    /// Drops peers that keep us waiting.
    fn look_for_overdue(&mut self) {
        let at = now();
        if self.look_for_overdue.is_none_or(|due| at < due) {
            return;
        }
        let overdue: Vec<(SourceId, Overdue)> =
            self.conns.iter().filter_map(|(&id, conn)| Some((id, conn.overdue(at)?))).collect();
        for (id, why) in overdue {
            match why {
                Overdue::Partial(size) => self.log.error(format_args!("ci {id} recv size {size}")),
                Overdue::Unread(size) => {
                    self.log.error(format_args!("ci {id} has left {size} bytes of replies unread, dropped"));
                }
                Overdue::Unsent(size, errno) => {
                    let errno = errno as i32;
                    self.log.error(format_args!(
                        "ci {id} send error {errno}, {size} bytes of replies unsent, dropped"
                    ));
                }
            }
            self.end(id);
        }
        let waiting = self.conns.values().any(Conn::is_waited_for);
        self.look_for_overdue = waiting.then(|| at.plus_millis(OVERDUE_EVERY_MS));
    }

    fn dump(&self, now: Time) -> String {
        let unread = self.conns.values().filter(|conn| conn.unsent() > 0).count();
        if unread >= MAX_UNREAD_DUMPS {
            return format!("{unread} dumps wait to be read; try again later\n");
        }
        let mut text = String::new();
        let head = Head {
            socket_gid: self.socket_gid,
            high_priority: self.options.high_priority,
            now: now.seconds(),
            last_keepalive: self.machine.last_keepalive(),
            allow_scripts: self.options.scripts,
            kill_script_after: self.options.kill_script_after,
            fire_timeout: self.machine.fire_timeout(),
            identity: self.device.identity(),
        };
        dump::head(&mut text, &head);
        if let Some(scripts) = &self.scripts {
            scripts.dump(now, &mut text);
        }
        let internal = [
            (SIGNAL_SLOT, b"signal".as_slice(), self.signals.as_fd().as_raw_fd()),
            (LISTEN_SLOT, b"listen".as_slice(), self.listener.as_raw_fd()),
        ];
        for (number, name, fd) in internal {
            let name = Name::new(name).unwrap_or(Name::EMPTY);
            let slot =
                Slot { number, name: &name, pid: 0, fd, dead: false, refcount: false, renewal: 0, expire: 0 };
            dump::slot(&mut text, now.seconds(), &slot);
        }
        for (number, source) in self.machine.sources() {
            let slot = Slot {
                number,
                name: source.name(),
                pid: source.pid(),
                fd: source.fd(),
                dead: source.dead(),
                refcount: source.refcount(),
                renewal: source.renewal(),
                expire: source.expire(),
            };
            dump::slot(&mut text, now.seconds(), &slot);
        }
        dump::limited(&text)
    }
}

#[cfg(test)]
mod tests;
