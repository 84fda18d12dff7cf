//! Host events.
//!
//! | Code | What |
//! |---|---|
//! | E1 | what is delivered was set, in that lockspace, by that host in that generation, with that number, data and generation of the receiver; and the receiver's bit was set by that host |
//! | E2 | what stays as it is gets delivered in time to whoever listens, unless something keeps the two hosts from renewing and looking |

use super::Checks;
use crate::clock::Micros;
use sanlock_lease::delta::Event;
use sanlock_lease::geometry::HostId;
use sanlock_manager::{ConnId, LockspaceId};
use std::collections::BTreeSet;

/// An event as a host shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lockspace.
    pub disk: u8,
    /// The host, and its generation.
    pub from: (HostId, u64),
    /// The event.
    pub event: Event,
}

impl Shown {
    fn key(&self) -> (u8, HostId, u64, [u64; 3]) {
        let Event { generation, event, data } = self.event;
        (self.disk, self.from.0, self.from.1, [generation, event, data])
    }
}

/// An event that is to be delivered on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The lockspace.
    pub disk: u8,
    /// Who shows it: host id and generation.
    pub sender: (HostId, u64),
    /// Its data, which no other event has.
    pub data: u64,
    /// When it was set.
    pub since: Micros,
    /// When it should have been delivered.
    pub due: Micros,
    /// Who shows it: machine, daemon, lockspace.
    pub from: (usize, u32, LockspaceId),
    /// Who is to see it.
    pub to: (usize, u32, LockspaceId),
    /// The stream.
    pub conn: ConnId,
}

/// What is known of events.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    set: BTreeSet<(u8, HostId, u64, [u64; 3])>,
    /// Whose bit was set, by which host in which generation.
    bits: BTreeSet<(u8, HostId, u64, HostId)>,
    pending: Vec<Note>,
}

impl Checks {
    /// SET_EVENT was accepted.
    pub fn event_set(&mut self, shown: Shown) {
        self.notes.set.insert(shown.key());
    }

    /// A host's bit was set, for an event or because of a request.
    pub fn bit_set(&mut self, (disk, (from, generation)): (u8, (HostId, u64)), to: HostId) {
        self.notes.bits.insert((disk, from, generation, to));
    }

    /// What a host shows is another event from now on, or its bits are.
    pub fn shown_event_changes(&mut self, (disk, sender): (u8, (HostId, u64))) {
        let before = self.notes.pending.len();
        self.notes.pending.retain(|note| (note.disk, note.sender) != (disk, sender));
        self.marks.events_superseded += (before - self.notes.pending.len()) as u64;
    }

    /// An event is to be delivered.
    pub fn note_pending(&mut self, note: Note) {
        self.notes.pending.push(note);
    }

    /// E1.
    pub fn event_delivered(&mut self, shown: Shown, to: HostId, conn: ConnId, host: usize) {
        self.marks.events_delivered += 1;
        let (from, generation) = shown.from;
        if !self.notes.set.contains(&shown.key()) {
            self.violated(format!("E1: {to:?} is told {shown:?}, which nobody has set"));
        }
        if !self.notes.bits.contains(&(shown.disk, from, generation, to)) {
            self.violated(format!("E1: {to:?} is told {shown:?}, which is not for it"));
        }
        let before = self.notes.pending.len();
        let its = |note: &Note| note.to.0 == host && note.conn == conn && note.data == shown.event.data;
        self.notes.pending.retain(|note| !its(note));
        self.marks.events_in_time += (before - self.notes.pending.len()) as u64;
    }

    /// Events whose time is over.
    pub fn notes_due(&mut self) -> Vec<Note> {
        if self.notes.pending.is_empty() {
            return Vec::new();
        }
        let now = self.now;
        let all = std::mem::take(&mut self.notes.pending);
        let (due, left) = all.into_iter().partition(|note| note.due <= now);
        self.notes.pending = left;
        due
    }
}
