//! The table of connections (socket-protocol.md 2.1).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use sanlock_lease::timing::MonoTime;
use sanlock_manager::ConnId;
use sanlock_sys::pidfd::PidFd;
use sanlock_wire::header::Header;

use super::conn::Conn;
use super::poller::{Interest, Poller, Token};

/// Connections of clients at a time, where there are descriptors for them: as many as the original has.
pub(crate) const CONNECTIONS_MAX: u32 = 1022;
/// The first slot for a client: 0 is the helper, 1 the listener.
pub(super) const FIRST_SLOT: u32 = 2;

/// Why a connection is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// There are as many as may be; the connection is given back.
    #[error("too many connections ({0})")]
    Full(u32, UnixStream),
    /// Nobody would hear of it.
    #[error("a connection cannot be watched: {0}")]
    Unwatched(io::Error),
}

/// How the log speaks of a connection.
pub(super) struct Description(Option<(u32, i32, i32)>);

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((ci, fd, pid)) => write!(f, "{ci} {fd} {pid}"),
            None => f.write_str("?"),
        }
    }
}

/// One connection, from accept until nothing concerns it any more.
pub(super) struct Slot {
    pub(super) id: ConnId,
    pub(super) ci: u32,
    /// `None` once closed.
    pub(super) conn: Option<Conn>,
    /// The registered process.
    pid: Option<PidFd>,
    watched: Option<Interest>,
    /// The request in progress.
    pub(super) request: Option<Header>,
    /// When it was given to the manager.
    pub(super) since: Instant,
}

/// All of them.
pub(super) struct Slots {
    /// Connections at a time.
    max: u32,
    slots: Vec<Option<Slot>>,
    index: HashMap<ConnId, usize>,
    /// Whether a message or a reply was under way when a connection was last looked at.
    unfinished: bool,
}

impl Slots {
    /// For so many connections at a time.
    pub(super) fn new(max: u32) -> Self {
        Self { max, slots: Vec::new(), index: HashMap::new(), unfinished: false }
    }

    /// Puts a connection into the lowest free slot and watches it.
    pub(super) fn add(&mut self, id: ConnId, stream: UnixStream, poller: &Poller) -> Result<u32, Refused> {
        let at = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let Some(free) = u32::try_from(at).ok().filter(|at| *at < self.max) else {
            return Err(Refused::Full(self.max, stream));
        };
        let (ci, conn) = (free + FIRST_SLOT, Conn::new(stream));
        poller.add(conn.fd(), Token::Conn(id), Interest::READ).map_err(Refused::Unwatched)?;
        let (watched, since) = (Some(Interest::READ), Instant::now());
        let slot = Slot { id, ci, conn: Some(conn), pid: None, watched, request: None, since };
        match self.slots.get_mut(at) {
            Some(place) => *place = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        self.index.insert(id, at);
        Ok(ci)
    }

    /// Connections that have made no progress for too long.
    pub(super) fn stuck(&mut self, now: MonoTime) -> Vec<ConnId> {
        let limits = self.iter().filter_map(|slot| Some((slot.id, slot.conn.as_ref()?.give_up_at()?)));
        let unfinished: Vec<(ConnId, MonoTime)> = limits.collect();
        self.unfinished = !unfinished.is_empty() || self.starved().next().is_some();
        unfinished.into_iter().filter(|(_, at)| *at <= now).map(|(id, _)| id).collect()
    }

    /// Connections whose replies the kernel had no memory for.
    pub(super) fn starved(&self) -> impl Iterator<Item = ConnId> {
        self.iter().filter(|slot| slot.conn.as_ref().is_some_and(Conn::is_starved)).map(|slot| slot.id)
    }

    /// Whether a connection may come to be one of [`Slots::stuck`] by waiting alone, or is one of [`Slots::starved`].
    pub(super) fn has_unfinished(&self) -> bool {
        self.unfinished
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().flatten()
    }

    fn get(&self, id: ConnId) -> Option<&Slot> {
        self.slots.get(*self.index.get(&id)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Slot> {
        self.slots.get_mut(*self.index.get(&id)?)?.as_mut()
    }

    pub(super) fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.get(id)?.conn.as_ref()
    }

    pub(super) fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.get_mut(id)?.conn.as_mut()
    }

    /// Slot, descriptor and pid, for the log.
    pub(super) fn describe(&self, id: ConnId) -> Description {
        Description(self.get(id).map(|slot| {
            let fd = slot.conn.as_ref().map_or(-1, Conn::raw_fd);
            let pid = slot.conn.as_ref().and_then(|conn| conn.registered).unwrap_or(-1);
            (slot.ci, fd, pid)
        }))
    }

    /// Watches the connection for what it can use now. After it hung up that is nothing: a hang-up would be reported again
    /// and again.
    pub(super) fn update(&mut self, id: ConnId, poller: &Poller) {
        let Some(slot) = self.get_mut(id) else { return };
        let (Some(conn), Some(watched)) = (slot.conn.as_ref(), slot.watched) else { return };
        let unfinished = conn.give_up_at().is_some() || conn.is_starved();
        let wanted = Interest { read: conn.reads() || conn.discards(), write: conn.waits_to_write() };
        if wanted != watched && poller.change(conn.fd(), Token::Conn(id), wanted).is_ok() {
            slot.watched = Some(wanted);
        }
        self.unfinished |= unfinished;
    }

    /// Ends the watch of a connection that hung up.
    pub(super) fn unwatch(&mut self, id: ConnId, poller: &Poller) {
        let Some(slot) = self.get_mut(id) else { return };
        if let (Some(conn), Some(_)) = (&slot.conn, slot.watched.take()) {
            poller.remove(conn.fd());
        }
    }

    /// Closes the connection, which ends its watch: no other process has the descriptor. Whether it was open.
    pub(super) fn close(&mut self, id: ConnId) -> bool {
        self.get_mut(id).is_some_and(|slot| {
            slot.watched = None;
            slot.conn.take().is_some()
        })
    }

    /// Frees the slot.
    pub(super) fn forget(&mut self, id: ConnId, poller: &Poller) {
        let Some(at) = self.index.remove(&id) else { return };
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::take) {
            if let Some(pid) = &slot.pid {
                poller.remove(pid.as_fd());
            }
        }
        while matches!(self.slots.last(), Some(None)) {
            self.slots.pop();
        }
    }

    /// Watches the registered process of a connection.
    ///
    /// # Errors
    /// No more can be watched.
    pub(super) fn watch_pid(&mut self, id: ConnId, pid: PidFd, poller: &Poller) -> io::Result<()> {
        let Some(slot) = self.get_mut(id) else { return Ok(()) };
        poller.add(pid.as_fd(), Token::Pid(id), Interest::READ)?;
        slot.pid = Some(pid);
        Ok(())
    }

    /// The process of this connection has ended: it is no longer watched, nor signalled. Whether there was one.
    pub(super) fn pid_gone(&mut self, id: ConnId, poller: &Poller) -> bool {
        let pid = self.get_mut(id).and_then(|slot| slot.pid.take());
        pid.inspect(|pid| poller.remove(pid.as_fd())).is_some()
    }

    /// The registered process of a connection, unless it has ended.
    pub(super) fn process(&self, id: ConnId) -> Option<&PidFd> {
        self.get(id)?.pid.as_ref()
    }

    /// Whom a program is to stop: the registered process, `None` if it has ended and another one has its connection; nothing if that is closed, too.
    pub(super) fn to_stop(&self, id: ConnId) -> Option<Option<&PidFd>> {
        let slot = self.get(id)?;
        (slot.pid.is_some() || slot.conn.is_some()).then_some(slot.pid.as_ref())
    }

    /// Bytes of replies that wait for their readers.
    pub(super) fn kept(&self) -> usize {
        self.iter().filter_map(|slot| slot.conn.as_ref()).map(Conn::kept).sum()
    }

    /// Whose reply has waited longest for its reader.
    pub(super) fn slowest(&self) -> Option<ConnId> {
        let waiting = self.iter().filter_map(|slot| Some((slot.conn.as_ref()?.waits_since()?, slot.id)));
        waiting.min().map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_of_a_connection_that_is_gone_does_not_meet_the_next_one_in_its_slot() {
        let (poller, mut slots) = (Poller::new().unwrap(), Slots::new(CONNECTIONS_MAX));
        let connect = |slots: &mut Slots, id| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (slots.add(ConnId(id), ours, &poller).unwrap(), theirs)
        };
        let (first, peer) = connect(&mut slots, 1);
        drop(peer);
        let mut ready = Vec::new();
        poller.wait(1000, &mut ready).unwrap();
        assert!(ready[0].hung_up);
        // Something that is looked at before closes it, and somebody else connects.
        slots.forget(ConnId(1), &poller);
        let (second, _peer) = connect(&mut slots, 2);
        assert_eq!(second, first, "the slot is the same");
        let Token::Conn(whose) = ready[0].token else { panic!("{:?}", ready[0]) };
        assert!(slots.conn(whose).is_none());
        assert!(!slots.pid_gone(whose, &poller));
        assert!(slots.conn(ConnId(2)).is_some());
    }
}
