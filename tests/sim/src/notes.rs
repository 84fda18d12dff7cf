//! Host events: who sets them, and who listens.
//!
//! # Fault model
//!
//! * Anybody may set an event on any daemon of ours, for one host or for all, with its generation or without (then the daemon puts in the
//!   one it last saw), replace one that is still shown, take it back, or take a host's bit back. Every event has other data.
//! * Clients listen in one lockspace each. They hang up now and then, and are sent away when their lockspace ends.
//! * Timetable and chance are those of requests.

use crate::checks::notes::{Note, Shown};
use crate::clients::Asked;
use crate::clock::SECOND;
use crate::daemon::{Message, Source, Thread};
use crate::layout;
use crate::requests::SLACK_SECS;
use crate::world::{Event, World};
use sanlock_lease::delta::Event as HostEvent;
use sanlock_lease::geometry::HostId;
use sanlock_manager::{Command, ConnId, Event as Told, LockspaceId, SetEventFlags};

/// What SET_EVENT is to do, as its client says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub(crate) disk: u8,
    pub(crate) to: HostId,
    pub(crate) event: HostEvent,
    pub(crate) flags: SetEventFlags,
    /// `SANLK_SETEV_CUR_GENERATION`.
    pub(crate) current: bool,
}

/// Where there are fewer streams than this, somebody listens.
const LISTENERS: usize = 2;

impl World {
    /// Somebody sets an event, listens, or has listened long enough.
    pub(crate) fn notes(&mut self) {
        if self.calm {
            return;
        }
        let mean = self.settings.event_mean_secs * SECOND;
        let next = self.dice.spread(mean / 8 + 1, mean * 4);
        self.at(self.now + next, Event::Notes);
        for host in 0..self.hosts.len() {
            for disk in 0..self.settings.disks {
                self.listens(host, disk);
            }
        }
        let host = self.some_host_of_ours();
        let disk = u8::try_from(self.dice.between(0, u64::from(self.settings.disks) - 1)).unwrap_or(0);
        if self.dice.per_mille(50) {
            return self.stops_listening(host);
        }
        self.last_note += 1;
        let flags = SetEventFlags {
            clear_host: self.dice.per_mille(30),
            clear_event: self.dice.per_mille(30),
            replace: self.dice.per_mille(300),
            all_hosts: self.dice.per_mille(150),
        };
        let current = self.dice.per_mille(500);
        let generation = if current { 0 } else { self.dice.between(0, 5) };
        let event = HostEvent { generation, event: self.dice.between(1, 9), data: self.last_note };
        let to = layout::host_id(self.dice.between(1, self.settings.host_ids()));
        let setting = Setting { disk, to, event, flags, current };
        if let Some(conn) = self.connect(host, None) {
            self.send(host, Source::Conn(conn), Thread::Front, Message::SetEvent { conn, setting });
        }
    }

    /// Somebody listens on a host that has joined, if nobody does.
    fn listens(&mut self, host: usize, disk: u8) {
        let lockspace = layout::lockspace(disk);
        let Some(daemon) = self.hosts[host].daemon.as_ref() else { return };
        let enough = daemon.listeners.values().filter(|on| **on == disk).count() >= LISTENERS;
        let joined = daemon.manager.lockspace_named(&lockspace).is_some_and(|(_, ls)| ls.usable());
        if enough || !joined || !self.dice.per_mille(500) {
            return;
        }
        if let Some(conn) = self.connect(host, None) {
            if let Some(daemon) = self.daemon(host) {
                daemon.listeners.insert(conn.0, disk);
            }
            self.ask(host, conn, Asked::Listen, Command::RegEvent { lockspace });
        }
    }

    fn stops_listening(&mut self, host: usize) {
        let first =
            self.daemon(host).and_then(|d| d.listeners.iter().next().map(|(conn, disk)| (*conn, *disk)));
        let Some((conn, disk)) = first else { return };
        self.stream_ends(host, ConnId(conn));
        self.administer(host, Command::EndEvent { lockspace: layout::lockspace(disk) });
    }

    /// A stream is at its end, for whatever reason.
    pub(crate) fn stream_ends(&mut self, host: usize, conn: ConnId) {
        if self.daemon(host).is_some_and(|d| d.listeners.remove(&conn.0).is_some()) {
            self.tell_front(host, conn, Told::ConnClosed { conn });
        }
    }

    /// SET_EVENT reaches the front, which puts in the generation.
    pub(crate) fn set_event_order(&mut self, host: usize, conn: ConnId, mut setting: Setting) {
        let lockspace = layout::lockspace(setting.disk);
        if setting.current && setting.event.generation == 0 {
            setting.event.generation = self.generation_seen(host, setting.disk, setting.to);
        }
        let Setting { to, event, flags, .. } = setting;
        if let Some(client) = self.daemon(host).and_then(|d| d.clients.get_mut(&conn.0)) {
            client.asked = Some(Asked::Set { setting });
        }
        let command = Command::SetEvent { lockspace, host_id: to.get(), event, flags };
        self.front_event(host, Some(Box::new(Told::Command { conn, command })));
    }

    /// The generation that a host was last seen with; 0 if it was not.
    fn generation_seen(&self, host: usize, disk: u8, of: HostId) -> u64 {
        let daemon = self.hosts[host].daemon.as_ref();
        let known = daemon.and_then(|d| {
            let (ls, _) = d.manager.lockspace_named(&layout::lockspace(disk))?;
            let table = d.workers.get(&ls.0)?.shared.hosts.borrow().clone()?;
            table.status(of, self.hosts[host].clock.at(self.now))
        });
        known.map_or(0, |status| status.seen.owner_generation)
    }

    /// The manager has answered.
    pub(crate) fn event_replied(&mut self, host: usize, setting: Setting, code: i32) {
        let Setting { disk, to, event, flags, .. } = setting;
        if code != 0 {
            self.checks.marks.events_refused += 1;
            return;
        }
        let sender = self.sender(host, disk);
        self.checks.shown_event_changes((disk, sender));
        if flags.clear_event || flags.clear_host {
            self.checks.marks.events_cleared += 1;
            return;
        }
        self.checks.marks.events_set += 1;
        self.checks.event_set(Shown { disk, from: sender, event });
        for id in
            (1..=self.settings.host_ids()).map(layout::host_id).filter(|id| flags.all_hosts || *id == to)
        {
            self.checks.bit_set((disk, sender), id);
        }
        // One that ends takes events too.
        let Some(from) = self.member(host, disk) else { return };
        for other in 0..self.hosts.len() {
            if flags.all_hosts || self.hosts[other].claims == to {
                self.expect_a_note(from, other, disk, event.data);
            }
        }
    }

    /// A request was written: the manager is about to set its owner's bit.
    pub(crate) fn bit_set_for(&mut self, host: usize, disk: u8, owner: u64) {
        if let Some(owner) = HostId::new(owner) {
            let sender = self.sender(host, disk);
            self.checks.bit_set((disk, sender), owner);
        }
    }

    /// Host id and generation by which a host shows something in a lockspace.
    pub(crate) fn sender(&self, host: usize, disk: u8) -> (HostId, u64) {
        let h = &self.hosts[host];
        let daemon = h.daemon.as_ref();
        let ls = daemon.and_then(|d| d.manager.lockspace_named(&layout::lockspace(disk)));
        (h.claims, ls.map_or(0, |(_, ls)| ls.generation()))
    }

    /// An event was set: whoever listens there is told of it, if nothing goes wrong (E2).
    fn expect_a_note(&mut self, from: (usize, u32, LockspaceId), host: usize, disk: u8, data: u64) {
        let Some(to) = self.member(host, disk) else { return };
        let [asking, owning] = [from.0, host].map(|host| self.hosts[host].io_timeout_in(disk).secs());
        let streams = self.daemon(host).map(|d| d.manager.streams(&layout::lockspace(disk)).to_vec());
        if owning > asking || self.hosts[host].claims == self.hosts[from.0].claims {
            return;
        }
        let secs = 2 * asking + 4 * owning + SLACK_SECS;
        let due = self.now + secs * SECOND * 21 / 20;
        let sender = self.sender(from.0, disk);
        for conn in streams.unwrap_or_default() {
            self.checks.note_pending(Note { disk, sender, data, since: self.now, due, from, to, conn });
        }
    }

    /// Every second: what should have been delivered by now.
    pub(crate) fn look_at_notes(&mut self) {
        for note in self.checks.notes_due() {
            let name = layout::lockspace(note.disk);
            let daemon = self.hosts[note.to.0].daemon.as_ref();
            let listens = daemon.is_some_and(|d| d.manager.streams(&name).contains(&note.conn));
            let fine = self.in_touch(note.from, note.to, &name, note.since);
            if listens && fine {
                self.checks.violated(format!("E2: not delivered: {note:?}"));
            } else {
                self.checks.marks.events_excused += 1;
            }
        }
    }

    /// E1: an event is delivered on a stream.
    pub(crate) fn delivered(
        &mut self,
        host: usize,
        conn: ConnId,
        own: HostId,
        event: HostEvent,
        from: (HostId, u64),
    ) {
        let Some(disk) = self.daemon(host).and_then(|d| d.listeners.get(&conn.0).copied()) else { return };
        let claims = self.hosts[host].claims;
        if own != claims {
            self.checks.violated(format!("E1: {claims:?} is told an event as {own:?}"));
        }
        self.checks.event_delivered(Shown { disk, from, event }, own, conn, host);
    }
}
