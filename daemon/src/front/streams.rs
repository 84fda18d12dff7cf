//! Host events: setting ours, and the streams on which clients get those of other hosts (socket-protocol.md 7.29, 7.30, 9).
//!
//! A stream is a connection whose requests are no longer read: what a client says on it is a farewell. It ends when its client closes
//! it or does not take an event at once; whoever said the farewell and left a copy of it open is parted with at the next END_EVENT
//! of the lockspace, and when a further stream needs the place.

use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::delta::Event as HostEvent;
use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_manager::{Command as Order, ConnId, STREAMS_MAX, SetEventFlags};
use sanlock_wire::flags::SetEventFlags as WireFlags;
use sanlock_wire::header::Header;
use sanlock_wire::types::{EventMessage, HostEvent as WireEvent, Lockspace};
use sanlock_wire::{Reply, code};

use super::conn::Conn;
use super::{Front, convert};

impl Front {
    pub(super) fn set_event(&mut self, id: ConnId, header: Header, lockspace: &Lockspace, event: &WireEvent) {
        let flags = WireFlags::from_bits_truncate(header.cmd_flags);
        let mut generation = event.generation.get();
        if generation == 0 && flags.contains(WireFlags::CUR_GENERATION) {
            generation = self.generation_of(lockspace, event.host_id.get());
        }
        let event_shown = HostEvent { generation, event: event.event.get(), data: event.data.get() };
        let order = Order::SetEvent {
            lockspace: convert::lease_name(&lockspace.name),
            host_id: event.host_id.get(),
            event: event_shown,
            flags: SetEventFlags {
                clear_host: flags.contains(WireFlags::CLEAR_HOSTID),
                clear_event: flags.contains(WireFlags::CLEAR_EVENT),
                replace: flags.contains(WireFlags::REPLACE_EVENT),
                all_hosts: flags.contains(WireFlags::ALL_HOSTS),
            },
        };
        self.command(id, header, order);
    }

    /// The generation a host was last seen with; 0 if it was not.
    fn generation_of(&self, lockspace: &Lockspace, host_id: u64) -> u64 {
        let table = self.named(lockspace).and_then(|(ls, _)| self.shared(ls)?.hosts());
        let status =
            table.zip(HostId::new(host_id)).and_then(|(table, host)| table.status(host, monotonic_now()));
        status.map_or(0, |status| status.seen.owner_generation)
    }

    pub(super) fn reg_event(&mut self, id: ConnId, header: Header, lockspace: &Lockspace) {
        let Some(conn) = self.slots.conn_mut(id) else { return };
        if conn.registered.is_some() {
            // A stream that its client is slow to read is closed; leases must not hang on that.
            return self.finish(id, &Reply::result(&header, code::EINVAL));
        }
        // Unless it becomes a stream.
        conn.closing = true;
        let lockspace = convert::lease_name(&lockspace.name);
        if self.manager.streams(&lockspace).len() >= STREAMS_MAX {
            self.part_with_streams(&lockspace);
        }
        self.command(id, header, Order::RegEvent { lockspace });
    }

    /// END_EVENT: the streams of the lockspace that said farewell end before it is answered.
    pub(super) fn end_event(&mut self, id: ConnId, header: Header, lockspace: &Lockspace) {
        let lockspace = convert::lease_name(&lockspace.name);
        self.part_with_streams(&lockspace);
        self.command(id, header, Order::EndEvent { lockspace });
    }

    fn part_with_streams(&mut self, lockspace: &Name) {
        let leaving: Vec<ConnId> =
            self.manager.streams(lockspace).iter().copied().filter(|id| self.said_farewell(*id)).collect();
        for id in leaving {
            self.close(id);
        }
    }

    /// Looks at one message of a stream, without waiting.
    fn said_farewell(&self, id: ConnId) -> bool {
        self.slots.conn(id).is_some_and(Conn::said_farewell)
    }

    pub(super) fn become_stream(&mut self, id: ConnId) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let header = slot.request.take();
        if let Some(conn) = slot.conn.as_mut() {
            (conn.closing, conn.deaf) = (false, true);
        }
        if let Some(header) = header {
            self.answer(id, &Reply::result(&header, 0));
        }
        // Its end was noticed before, while an earlier command ran, and is not reported again.
        if self.slots.conn(id).is_some_and(|conn| conn.hung_up) {
            self.close(id);
        }
    }

    pub(super) fn deliver(
        &mut self,
        id: ConnId,
        own: HostId,
        event: HostEvent,
        from: HostId,
        generation: u64,
    ) {
        let message = EventMessage {
            event: WireEvent {
                host_id: own.get().into(),
                generation: event.generation.into(),
                event: event.event.into(),
                data: event.data.into(),
            },
            from_host_id: from.get().into(),
            from_generation: generation.into(),
        };
        let taken = self.slots.conn_mut(id).is_some_and(|conn| conn.send_whole(&message.encode()));
        if !taken {
            self.close(id);
        }
    }
}
