//! Requests for leases: writing one for another host, and reading those for leases held here (socket-protocol.md 7.11, 7.13).
//!
//! Each command has a short-lived thread of its own, which the front has hired, with a time limit for every transfer. A client waits for its answer, or is one of a limited
//! number that do not, so their number is bounded. How those for leases held here are read is in [`super::looking`].

use std::sync::Arc;
use std::time::Duration;

use sanlock_lease::geometry::SectorSize;
use sanlock_lease::name::Name;
use sanlock_lease::text::ResourceSpec as LeaseSpec;
use sanlock_lease::timing::IoTimeout;
use sanlock_manager::{ConnId, Event, LockspaceId, ResourceId};
use sanlock_wire::flags::RequestFlags;
use sanlock_wire::header::Header;
use sanlock_wire::types::ResourceSpec;
use sanlock_wire::{Reply, code};

use super::formats::geometry;
use super::{Front, Message, convert, looking};
use crate::global::Global;
use crate::oneshot::{Io, Limits, read_request, write_request};
use crate::tools::{AREA_BYTES_MIN, Kind, Spot};

/// Stack of such a thread; buffers are on the heap.
const STACK: usize = 128 * 1024;

impl Front {
    /// REQUEST (7.11).
    pub(super) fn ask(&mut self, id: ConnId, header: Header, resource: ResourceSpec) {
        let lockspace = convert::lease_name(&resource.resource().lockspace_name);
        let Some((io_timeout, sector)) = self.usable(&lockspace) else {
            return self.finish(id, &Reply::result(&header, code::ENOSPC));
        };
        if let Some(conn) = self.slots.conn_mut(id) {
            (conn.suspended, conn.only_answer) = (true, true);
        }
        let (global, outbox, late) = (Arc::clone(&self.global), self.outbox.clone(), self.tools.late());
        let work = move || {
            let next = RequestFlags::from_bits_truncate(header.cmd_flags).contains(RequestFlags::NEXT_LVER);
            let written = io(&global, io_timeout).and_then(|mut io| {
                // Before it is looked whose the lease is.
                let spots = resource.disks().iter().map(|disk| Spot::areas(disk, 1, Some(AREA_BYTES_MIN)));
                let written = late.enter(Kind::Request, spots.collect()).and_then(|place| {
                    let written = write_request(&mut io, &resource, sector, header.data, next);
                    io.close();
                    let doubt = Duration::from_millis(io_timeout.doubt_ms(global.config.fire));
                    place.keep(io, doubt);
                    written
                });
                written.map_err(|error| {
                    let code = error.code().0;
                    global.log.error(format_args!("request {lockspace}: {error} ({code})"));
                    code
                })
            });
            if let Ok(Some(owner)) = written {
                outbox.send(Message::Event(Event::Requested { lockspace, owner }));
            }
            let reply = Reply::result(&header, written.err().unwrap_or(0));
            outbox.send(Message::JobDone(id, Box::new(reply)));
        };
        let (outbox, log) = (self.outbox.clone(), self.global.log.clone());
        self.global.hirer.hire("sanlock-request", STACK, work, move |error| {
            log.error(format_args!("no thread for a request: {error}"));
            let reply = Reply::result(&header, code::EAGAIN);
            outbox.send(Message::JobDone(id, Box::new(reply)));
        });
        // That it is done comes by the mailbox, and later.
        self.event(Event::JobBegun);
    }

    pub(super) fn look_for_requests(&mut self, ls: LockspaceId, leases: Vec<(ResourceId, LeaseSpec)>) {
        let (global, outbox) = (Arc::clone(&self.global), self.outbox.clone());
        let io_timeout = self.shared(ls).map_or(IoTimeout::DEFAULT, |shared| shared.io_timeout);
        let lockspace = self.manager.lockspaces().find(|(id, _)| *id == ls);
        let sector = geometry(lockspace.map(|(_, lockspace)| lockspace)).sector();
        let reader = move || {
            let mut io = io(&global, io_timeout).ok()?;
            Some(move |spec: &LeaseSpec| read_request(&mut io, &convert::wire_resource(spec)?, sector))
        };
        let tell = move |event| outbox.send(Message::Event(event));
        looking::look(ls, leases, &self.global.hirer, &self.global.log, reader, tell);
    }

    /// Io timeout and sector size of a lockspace in which leases may be taken.
    fn usable(&self, name: &Name) -> Option<(IoTimeout, SectorSize)> {
        let (_, lockspace) = self.manager.lockspace_named(name)?;
        lockspace.usable().then(|| (lockspace.io_timeout, geometry(Some(lockspace)).sector()))
    }
}

fn io(global: &Global, io_timeout: IoTimeout) -> Result<Io, i32> {
    let limit = Duration::from_millis(io_timeout.millis());
    let io = Io::new(global.engine, Limits { io_timeout: limit, write_init: limit }).map(Io::counted);
    io.map_err(|error| {
        global.log.error(format_args!("{error}"));
        code::EAGAIN
    })
}
