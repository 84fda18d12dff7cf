//! Host events and the bitmap that makes other hosts look (lease-algorithms.md 8.3, 8.4; socket-protocol.md 7.29, 7.30, 9).
//!
//! A host has one outgoing event per lockspace. It lies in the host's own delta record and goes out with its renewals; a bit for
//! each addressed host says "look", for [`Lockspace::set_bitmap_secs`]. A host that sees its bit in a record that has changed gets
//! the event, again at each renewal of the sender, and looks for requests for what it holds: at once, and once more when the time
//! of a bit is over if it has seen it again meanwhile. The same bit may stand for a request that was written after the first look.

use crate::action::Action;
use crate::bits::Bits;
use crate::ids::{ConnId, LockspaceId};
use crate::state::{Lockspace, LockspaceList};
use crate::{Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::Event as HostEvent;
use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_lease::record::Bitmap;
use sanlock_lease::timing::MonoTime;
use std::collections::BTreeMap;

/// Event streams of one lockspace.
pub const STREAMS_MAX: usize = 32;

/// What SET_EVENT is to do besides storing the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetEventFlags {
    /// Take the host's bit back, and nothing else.
    pub clear_host: bool,
    /// Take the event back, and nothing else.
    pub clear_event: bool,
    /// Also when another event is still being shown.
    pub replace: bool,
    /// To every host.
    pub all_hosts: bool,
}

/// What a lockspace shows to other hosts, and whom it tells of theirs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// The outgoing event.
    event: HostEvent,
    /// When it was last changed.
    changed: Option<MonoTime>,
    /// Hosts whose bit is set.
    bits: Bits,
    /// What the lockspace's thread was told last.
    told: (HostEvent, Bitmap),
    /// Connections that get the events of other hosts.
    streams: Vec<ConnId>,
    /// When requests were last looked for because of a host, and whether it has asked for that again.
    examined: BTreeMap<HostId, (MonoTime, bool)>,
}

impl Events {
    /// Whether nothing is shown that is to be taken back, and no request is to be looked for when it is time.
    pub(crate) fn is_quiet(&self) -> bool {
        self.bits.is_empty() && !self.examined.values().any(|(_, again)| *again)
    }

    /// A connection that may be one of its streams was closed.
    pub(crate) fn drop_stream(&mut self, conn: ConnId) {
        self.streams.retain(|stream| *stream != conn);
    }

    /// The streams of a lockspace end with it.
    pub(crate) fn end(&mut self, out: &mut Vec<Action>) {
        out.extend(self.streams.drain(..).map(|conn| Action::EndStream { conn }));
    }
}

impl Lockspace {
    /// How long a bit stays set, in seconds.
    fn set_bitmap_secs(&self, configured: Option<u64>) -> u64 {
        configured.unwrap_or_else(|| self.io_timeout.set_bitmap_secs())
    }

    /// When requests were last looked for because this host had asked for it.
    #[must_use]
    pub fn last_request(&self, host: HostId) -> Option<MonoTime> {
        self.events.examined.get(&host).map(|(at, _)| *at)
    }

    fn max_hosts(&self) -> u64 {
        self.joined.as_ref().map_or(0, |joined| u64::from(joined.geometry.max_hosts()))
    }
}

impl Manager {
    fn joined_named(&self, name: &Name) -> Option<LockspaceId> {
        let joined = |ls: &Lockspace| ls.spec.name == *name && ls.list == LockspaceList::Spaces;
        self.lockspaces.iter().find(|(_, ls)| joined(ls)).map(|(id, _)| *id)
    }

    /// The event streams of a joined lockspace; none of an unknown one.
    #[must_use]
    pub fn streams(&self, name: &Name) -> &[ConnId] {
        let lockspace = self.joined_named(name).and_then(|ls| self.lockspaces.get(&ls));
        lockspace.map_or(&[], |lockspace| &lockspace.events.streams)
    }

    pub(crate) fn set_event(
        &mut self,
        now: MonoTime,
        conn: ConnId,
        name: Name,
        (host, event): (u64, HostEvent),
        flags: SetEventFlags,
        out: &mut Vec<Action>,
    ) {
        let configured = self.settings.set_bitmap_secs;
        let Some(host) = HostId::new(host).filter(|_| !name.is_empty()) else {
            return reply(out, conn, ReturnCode::EINVAL.0);
        };
        let Some(ls) = self.joined_named(&name) else { return reply(out, conn, ReturnCode::ENOENT.0) };
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let max = lockspace.max_hosts();
        if host.get() > max {
            return reply(out, conn, ReturnCode::EINVAL.0);
        }
        let shown = lockspace.set_bitmap_secs(configured);
        let own = lockspace.host;
        let events = &mut lockspace.events;
        if flags.clear_event {
            events.event = HostEvent::default();
        } else if flags.clear_host {
            events.bits.clear(host);
        } else {
            let young = events.changed.is_some_and(|at| now.secs_since(at) < shown);
            let differs = events.event.event != 0 && event.event != 0 && events.event.event != event.event;
            if !flags.replace && young && differs {
                return reply(out, conn, ReturnCode::EBUSY.0);
            }
            events.event = event;
            events.changed = Some(now);
            let count = usize::try_from(max).unwrap_or(0);
            let all = (0..count).filter_map(HostId::from_index).filter(|_| flags.all_hosts);
            // A host's own bit would mean nothing.
            events.bits.set(now, all.chain([host]).filter(|to| *to != own));
        }
        self.tell_outgoing(now, ls, out);
        reply(out, conn, 0);
    }

    /// A request for a lease of this host was written: it is to look for it.
    pub(crate) fn notify_host(&mut self, now: MonoTime, name: &Name, host: u64, out: &mut Vec<Action>) {
        let (Some(ls), Some(host)) = (self.joined_named(name), HostId::new(host)) else { return };
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if host != lockspace.host && host.get() <= lockspace.max_hosts() {
            lockspace.events.bits.set(now, [host]);
            self.tell_outgoing(now, ls, out);
        }
    }

    /// Forgets bits that were set long enough, and tells the lockspace's thread what changed.
    fn tell_outgoing(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        let configured = self.settings.set_bitmap_secs;
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let shown = lockspace.set_bitmap_secs(configured);
        let events = &mut lockspace.events;
        events.bits.expire(now, shown);
        let bitmap = events.bits.bitmap();
        if events.told != (events.event, bitmap) {
            events.told = (events.event, bitmap);
            out.push(Action::Outgoing { ls, event: events.event, bitmap: Box::new(bitmap) });
        }
    }

    /// The same for all lockspaces that have shown something long enough.
    pub(crate) fn age_outgoing(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let configured = self.settings.set_bitmap_secs;
        let old = |ls: &Lockspace| ls.events.bits.any_older(now, ls.set_bitmap_secs(configured));
        let all: Vec<LockspaceId> =
            self.lockspaces.iter().filter(|(_, ls)| old(ls)).map(|(id, _)| *id).collect();
        for ls in all {
            self.tell_outgoing(now, ls, out);
        }
    }

    pub(crate) fn reg_event(&mut self, conn: ConnId, name: Name, out: &mut Vec<Action>) {
        if name.is_empty() {
            return reply(out, conn, ReturnCode::EINVAL.0);
        }
        let Some(ls) = self.joined_named(&name) else { return reply(out, conn, ReturnCode::ENOENT.0) };
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if lockspace.events.streams.len() >= STREAMS_MAX {
            return reply(out, conn, ReturnCode::ENOCSI.0);
        }
        lockspace.events.streams.push(conn);
        out.push(Action::BecomeStream { conn });
    }

    pub(crate) fn end_event(&mut self, conn: ConnId, name: Name, out: &mut Vec<Action>) {
        // Those that said farewell have been closed by now: the front reads what is said on them.
        let code = match self.joined_named(&name) {
            _ if name.is_empty() => ReturnCode::EINVAL.0,
            Some(_) => 0,
            None => ReturnCode::ENOENT.0,
        };
        reply(out, conn, code);
    }

    /// Another host's record has our bit.
    pub(crate) fn noticed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        (from, generation): (HostId, u64),
        event: HostEvent,
        out: &mut Vec<Action>,
    ) {
        let configured = self.settings.set_bitmap_secs;
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if lockspace.list != LockspaceList::Spaces {
            return;
        }
        let shown = lockspace.set_bitmap_secs(configured);
        let own = lockspace.host;
        let events = &mut lockspace.events;
        if event.event != 0 {
            for conn in &events.streams {
                out.push(Action::Deliver { conn: *conn, own, event, from, generation });
            }
        }
        // No more often: the bit stays for a while. But it may be a new one, for what was written since.
        match events.examined.get_mut(&from) {
            Some((at, again)) if now.secs_since(*at) < shown => *again = true,
            _ => self.asked_to_look(now, ls, from, false, out),
        }
    }

    fn asked_to_look(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        from: HostId,
        again: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.events.examined.insert(from, (now, false));
        let name = lockspace.spec.name;
        log(out, Level::Debug, Some(ls), format!("host {} asks to look for requests", from.get()));
        self.examine(&name, None, again, out);
    }

    /// Looks once more because of hosts that have asked again since the last look.
    pub(crate) fn look_again(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let configured = self.settings.set_bitmap_secs;
        let mut due = Vec::new();
        for (id, ls) in self.lockspaces.iter().filter(|(_, ls)| ls.list == LockspaceList::Spaces) {
            let shown = ls.set_bitmap_secs(configured);
            let over = |(at, again): &(MonoTime, bool)| *again && now.secs_since(*at) >= shown;
            due.extend(ls.events.examined.iter().filter(|(_, e)| over(e)).map(|(from, _)| (*id, *from)));
        }
        for (ls, from) in due {
            self.asked_to_look(now, ls, from, true, out);
        }
    }
}
