//! Connections of clients: accepted, read, written to, given up and closed.

use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::timing::MonoTime;
use sanlock_manager::{ConnId, Event};
use sanlock_sys::accept::accept_nonblocking;
use sanlock_wire::{Command, Reply};
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::Front;
use super::conn::{Conn, Input};
use super::poller::{Interest, Ready, Token};
use super::slots::Refused;

/// Requests of one connection taken in one turn.
const REQUESTS_PER_TURN: usize = 8;

/// Bytes of replies that wait for their readers, all connections together; beyond that those are given up that have waited longest.
const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Refused connections are told of once in so many milliseconds: those who are refused try again at once, and the log has other things to tell.
const REFUSALS_EVERY_MS: u64 = 1000;

/// Connections that were closed for want of a place.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    untold: u64,
    next: Option<MonoTime>,
}

impl Refusals {
    /// One more. How many were not told of before it, if this one is to be.
    fn count(&mut self, now: MonoTime) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.untold += 1;
            return None;
        }
        self.next = Some(now.plus_millis(REFUSALS_EVERY_MS));
        Some(std::mem::take(&mut self.untold))
    }
}

/// How long a connection beyond the limit is kept.
const TURNED_AWAY_MS: u64 = 1000;

/// Connections beyond the limit. Their clients see an end, not silence, as soon as they look for an answer. Until they do they may write their
/// requests: where nobody would read these, the original's library would have its process killed (SIGPIPE).
#[derive(Debug)]
pub(super) struct TurnedAway {
    max: usize,
    kept: VecDeque<(MonoTime, UnixStream)>,
}

impl TurnedAway {
    /// Beside so many connections: an eighth of that, 64 at the most.
    pub(super) fn beside(connections: u32) -> Self {
        Self { max: usize::try_from(connections / 8).unwrap_or(0).min(64), kept: VecDeque::new() }
    }

    fn add(&mut self, stream: UnixStream, now: MonoTime) {
        // It has gone if that fails.
        if stream.shutdown(Shutdown::Write).is_ok() {
            self.kept.push_back((now.plus_millis(TURNED_AWAY_MS), stream));
        }
        if self.kept.len() > self.max {
            self.kept.pop_front();
        }
    }

    /// Closes those that have had their time.
    pub(super) fn close(&mut self, now: MonoTime) {
        while self.kept.front().is_some_and(|(until, _)| *until <= now) {
            self.kept.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

/// Commands that work on disks for clients that are gone; more of them keep the places of their connections, which bounds their threads.
const ABANDONED_MAX: usize = 256;

impl Front {
    /// One: of more the poller says so again.
    pub(super) fn accept(&mut self) {
        let stream = match accept_nonblocking(&self.listener) {
            Ok(stream) => stream,
            Err(error) => {
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
                ) {
                    self.global.log.error(format_args!("connections wait: {error}"));
                    self.deaf = true;
                    let none = Interest { read: false, write: false };
                    let _ = self.poller.change(self.listener.as_fd(), Token::Listener, none);
                }
                return;
            }
        };
        let id = ConnId(self.next_conn);
        let ci = match self.slots.add(id, stream, &self.poller) {
            Ok(ci) => ci,
            Err(refused) => return self.refuse(refused),
        };
        self.next_conn += 1;
        if self.global.config.debug_clients != 0 {
            self.global.log.debug(format_args!("client connection {} opened", self.slots.describe(id)));
        }
        self.event(Event::ConnOpened { conn: id, ci });
        // Most have sent their request by now.
        self.serve(id);
    }

    fn refuse(&mut self, refused: Refused) {
        let now = monotonic_now();
        if let Some(others) = self.refusals.count(now) {
            self.global
                .log
                .error(format_args!("{refused}; one is closed, after {others} that were not told of"));
        }
        if let Refused::Full(_, stream) = refused {
            self.turned_away.add(stream, now);
        }
    }

    pub(super) fn conn_ready(&mut self, id: ConnId, ready: Ready) {
        if ready.writable {
            self.flush_again(id);
        }
        if ready.hung_up {
            self.hung_up(id);
        } else if ready.readable {
            self.serve(id);
        }
        self.update(id);
    }

    /// Tries once more to send what waits. To be followed by [`Front::update`].
    pub(super) fn flush_again(&mut self, id: ConnId) {
        if let Some(conn) = self.slots.conn_mut(id) {
            conn.flush(monotonic_now());
        }
        self.sent(id);
    }

    /// Both directions are closed.
    fn hung_up(&mut self, id: ConnId) {
        let Some(conn) = self.slots.conn_mut(id) else { return };
        conn.hung_up = true;
        // Whatever it still wanted to hear is lost.
        conn.flush(monotonic_now());
        if conn.suspended && conn.registered.is_none() && !conn.deaf {
            // The command goes on, and what the client sent behind it is worked on too (socket-protocol.md 2.5).
            if self.goes_on_alone(id) {
                return self.close(id);
            }
            self.slots.unwatch(id, &self.poller);
            return;
        }
        if conn.suspended || conn.deaf || conn.closing {
            return self.close(id);
        }
        self.serve(id);
    }

    /// Whether the command of a connection that hung up needs the connection no more: only its answer is lost without it, and the client
    /// sent nothing else. Such a command may wait for long, or for ever, and clients that gave up must not take the places of others.
    fn goes_on_alone(&mut self, id: ConnId) -> bool {
        let Some(slot) = self.slots.get_mut(id) else { return false };
        let command = slot.request.and_then(|header| header.command());
        let alone = matches!(
            command,
            Some(
                Command::AddLockspace
                    | Command::RemLockspace
                    | Command::InqLockspace
                    | Command::ShutdownWait
                    | Command::Acquire
                    | Command::Release
                    | Command::Convert
                    | Command::SetConfig
            )
        );
        let works = |conn: &Conn| conn.only_answer && self.abandoned.len() < ABANDONED_MAX;
        slot.conn.as_ref().is_some_and(|conn| (alone || works(conn)) && conn.is_read_to_the_end())
    }

    /// Takes requests of a connection until nothing more is there or its turn is over.
    pub(super) fn serve(&mut self, id: ConnId) {
        for _ in 0..REQUESTS_PER_TURN {
            let now = monotonic_now();
            let Some(conn) = self.slots.conn_mut(id) else { return };
            if !conn.reads() {
                if conn.discards() {
                    conn.discard();
                }
                return self.update(id);
            }
            match conn.read(now) {
                Input::Nothing => return self.update(id),
                Input::Request(request) => {
                    self.request(id, *request);
                    self.sent(id);
                }
                Input::End(cut) => {
                    if let Some(header) = cut {
                        conn.reply(&Reply::result(&header, sanlock_wire::code::ENOTCONN), now);
                    }
                    // It says no more, but has its leases until its last copy is closed, both ways.
                    return if conn.hung_up { self.close(id) } else { self.broken(id) };
                }
                Input::Broken(why) => {
                    self.global
                        .log
                        .error(format_args!("client connection {}: {why}", self.slots.describe(id)));
                    return self.broken(id);
                }
            }
        }
        if self.slots.conn(id).is_some_and(|conn| conn.hung_up) {
            self.runnable.push_back(id);
        }
        self.update(id);
    }

    /// Message boundaries are lost, or its client says no more. A plain connection is closed; on a registered one leases may hang, so it
    /// stays open and only its end is waited for.
    fn broken(&mut self, id: ConnId) {
        let Some(conn) = self.slots.conn_mut(id) else { return };
        if conn.registered.is_none() {
            return self.close(id);
        }
        conn.listen_no_more();
        self.update(id);
    }

    /// Closes a plain connection that is stuck. A registered one costs nothing more than it holds already, as long as there is room.
    pub(super) fn give_up(&mut self, id: ConnId, why: &str) {
        let Some(conn) = self.slots.conn(id) else { return };
        if conn.registered.is_none() {
            self.global
                .log
                .error(format_args!("client connection {} is closed: {why}", self.slots.describe(id)));
            self.close(id);
        }
    }

    /// Gives up the reply that has waited longest for its reader: of all that hoard, not of whoever asks next. On a registered connection
    /// leases may hang, so it stays open and only its end is waited for.
    fn make_room(&mut self) -> bool {
        const WHY: &str = "too many bytes wait for their readers";
        let Some(id) = self.slots.slowest() else { return false };
        let Some(conn) = self.slots.conn_mut(id).filter(|conn| conn.registered.is_some()) else {
            self.give_up(id, WHY);
            return true;
        };
        conn.drop_reply();
        let who = self.slots.describe(id);
        self.global.log.error(format_args!("client connection {who} gets and says no more: {WHY}"));
        self.update(id);
        true
    }

    /// After replies went out: closes what is to be closed, and makes room.
    fn sent(&mut self, id: ConnId) {
        let Some(conn) = self.slots.conn(id) else { return };
        if conn.closing && !conn.writes() {
            return self.close(id);
        }
        if conn.writes() {
            while self.slots.kept() > UNSENT_BYTES_MAX && self.make_room() {}
        }
    }

    /// Has the connection watched for what it can use now.
    pub(super) fn update(&mut self, id: ConnId) {
        self.slots.update(id, &self.poller);
    }

    pub(super) fn close(&mut self, id: ConnId) {
        if self.global.config.debug_clients != 0 && self.slots.conn(id).is_some() {
            self.global.log.debug(format_args!("client connection {} closed", self.slots.describe(id)));
        }
        if self.slots.conn(id).is_some_and(|conn| conn.only_answer) {
            self.abandoned.insert(id);
            self.tools.abandon(id);
        }
        if self.slots.close(id) {
            self.event(Event::ConnClosed { conn: id });
        }
    }

    /// A reply to the command in progress; the connection may go on with the next one.
    pub(super) fn answer(&mut self, id: ConnId, reply: &Reply) {
        let Some(conn) = self.slots.conn_mut(id) else { return };
        (conn.suspended, conn.only_answer) = (false, false);
        let closes = Command::from_number(reply.header.cmd).is_some_and(Command::closes_plain_connection);
        conn.closing |= closes && conn.registered.is_none();
        conn.reply(reply, monotonic_now());
        if conn.hung_up {
            self.runnable.push_back(id);
        }
        self.sent(id);
        self.update(id);
    }

    /// Last replies before the end; a client that does not read does not keep the daemon.
    pub(super) fn flush_all(&mut self) {
        let now = monotonic_now();
        for slot in self.slots.iter_mut() {
            if let Some(conn) = slot.conn.as_mut() {
                conn.flush(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_of_once_a_second_with_their_number() {
        let mut refusals = Refusals::default();
        let mut at = |ms: u64| refusals.count(MonoTime::from_secs(100).plus_millis(ms));
        assert_eq!((at(0), at(1), at(999), at(1000)), (Some(0), None, None, Some(2)));
        assert_eq!((at(1001), at(5000), at(6000)), (None, Some(1), Some(0)));
    }
}
