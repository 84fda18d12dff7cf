//! A resource is formatted anew in the middle of a run, as `sanlock direct init` and WRITE_RESOURCE do it: the writes and their order
//! are theirs ([`sanlock_lease::format`]).
//!
//! # Fault model
//!
//! * The administrator begins when nobody uses the lease (A10): nobody holds it, works on it or has anything in flight to it, also no
//!   request. Until the first sector is gone from every disk nobody begins to use it, either; from then on hosts try to acquire it all the
//!   time, and read what is there.
//! * A write of a whole area reaches the disk in up to four pieces, in any order and each at its own moment; a read that is under way
//!   sees some sectors as they were, and others as they will be.
//! * A write may fail, and the tool ends: each piece of it has landed or never does. The power of its host may be cut: so it goes with each
//!   piece that has not landed by then. What is left is there, and tried, until somebody formats it again.
//!
//! A mirror leg from before a format is outside: [`crate::damage`] forgets what was copied. So is a dead disk, without which no lease on
//! several is formatted to the end.

use crate::clock::{Micros, SECOND};
use crate::daemon::Daemon;
use crate::disk::Area;
use crate::host::{Host, Path};
use crate::layout;
use crate::peer::Stage;
use crate::sabotage::Sabotage;
use crate::world::{Event, World};
use sanlock_lease::format::{self, Resource};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_manager::{Resource as Known, Work};
use std::rc::Rc;

/// Pieces of a write at most.
const PIECES: u64 = 4;
/// Slowest write of an area.
const SLOWEST: Micros = 10 * SECOND;
const ZEROS: [u8; SECTOR_BYTES_MAX] = [0; SECTOR_BYTES_MAX];

/// A format that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Formatting {
    number: u64,
    host: usize,
    epoch: u32,
    resource: u8,
    /// What is written to each disk.
    writes: Rc<Vec<Vec<u8>>>,
    /// Disk and write, in order, and the one that is in flight.
    order: Vec<(usize, usize)>,
    at: usize,
    /// Sectors of the one in flight, by piece, that have not landed.
    pieces: Vec<Vec<u64>>,
    fails: bool,
    /// The disks whose first sector has been written, a bit each.
    firsts: u8,
}

impl Formatting {
    /// Whether the first sector is still there on some disk.
    fn begins(&self) -> bool {
        self.order.iter().skip(self.at).any(|(_, number)| *number == 0)
    }
}

impl World {
    /// Somebody formats something, if nobody uses it. In the calm only what was left in pieces.
    pub(crate) fn formats(&mut self) {
        let mean = self.settings.format_mean_secs * SECOND;
        let next = if self.calm { SECOND } else { self.dice.spread(mean / 8 + 1, mean * 4) };
        self.at(self.now + next, Event::Formats);
        let all: Vec<u8> = self.settings.all_resources().collect();
        let last = (all.len() as u64).saturating_sub(1);
        let any = all.get(usize::try_from(self.dice.between(0, last)).unwrap_or(0)).copied();
        let unfinished = all.iter().copied().find(|r| self.checks.is_unformatted(*r));
        let wanted = if self.calm || self.dice.per_mille(700) { unfinished } else { any };
        let wanted = wanted.or(any.filter(|_| !self.calm));
        let host = self.some_host_of_ours();
        let Some(resource) = wanted.filter(|_| self.hosts[host].up && self.dead_disk.is_none()) else {
            return;
        };
        if self.formatting.is_some() || !self.is_unused(resource) {
            self.checks.marks.formats_put_off += 1;
            return;
        }
        let geometry = self.settings.geometry;
        let hosts = self.settings.num_hosts.max(self.settings.host_ids());
        let lease = Resource {
            lockspace: layout::lockspace(layout::disk_of(resource)),
            name: layout::resource(resource),
            geometry,
            num_hosts: u16::try_from(hosts).unwrap_or(geometry.max_hosts()),
            cleared_at: None,
        };
        let writes = lease.writes(geometry.sector().bytes());
        let writes = match &writes[..] {
            [none, _, first] if self.sabotaged(Sabotage::FormatsHeadsFirst) => {
                vec![none.clone(), first.clone(), lease.area()]
            }
            _ => writes,
        };
        let mut order = format::order(&vec![writes.len(); usize::from(self.settings.legs)]);
        if self.sabotaged(Sabotage::FormatsByDisk) {
            order.sort_unstable();
        }
        self.say(|w| format!("{:?} formats resource {resource}", w.hosts[host].id));
        self.checks.format_begins(resource, self.settings.legs);
        for copies in self.copies.values_mut() {
            copies.retain(|(area, _)| !matches!(area, Area::Resource(r, _) if *r == resource));
        }
        self.checks.marks.formats += 1;
        let epoch = self.hosts[host].epoch;
        let (number, pieces) = (self.checks.marks.formats, Vec::new());
        self.formatting = Some(Formatting {
            number,
            host,
            epoch,
            resource,
            writes: Rc::new(writes),
            order,
            at: 0,
            pieces,
            fails: false,
            firsts: 0,
        });
        self.format_on();
    }

    /// Whether nobody does anything about a resource, or could begin to without being asked. Where there is no lease any more somebody may
    /// still mean to take something back, which he never can.
    fn is_unused(&self, resource: u8) -> bool {
        let leaders = (0..self.settings.legs).map(|leg| layout::leader_on(&self.disk, resource, leg));
        let none = leaders.filter(|leader| leader.magic.get() == 0).count();
        let lost = u32::try_from(none).is_ok_and(|none| none >= self.disk.majority());
        let by_daemon = |d: &Daemon| {
            let back = |work: &Work| lost && matches!(work, Work::Retry { .. } | Work::Releasing { .. });
            let here = |r: &Known| self.resource_of(&r.spec.disks) == Some(resource) && !back(&r.work);
            d.manager.resources().any(|(_, r)| here(r))
                || d.errands.values().any(|e| e.resource == resource)
                || d.tasks.values().any(|t| t.resource() == Some(resource))
        };
        let by_peer = |h: &Host| {
            let stage = h.peer.as_ref().and_then(|p| p.resources.get(usize::from(resource))).map(|r| r.stage);
            let idle = |stage| stage == Stage::Idle || (lost && matches!(stage, Stage::Later(_)));
            h.up && layout::disk_of(resource) == 0 && stage.is_some_and(|stage| !idle(stage))
        };
        let here = |area: Area| matches!(area, Area::Resource(r, _) if r == resource);
        self.checks.somebody_with(resource).is_none()
            && !self.flying().any(|io| here(io.area))
            && !self.hosts.iter().any(|h| h.daemon.as_ref().is_some_and(by_daemon) || by_peer(h))
    }

    /// Whether the administrator keeps somebody from beginning with it: with the lease, until the old one is gone; with taking something
    /// back, to the end.
    pub(crate) fn is_withheld(&self, resource: u8, takes: bool) -> bool {
        self.formatting.as_ref().is_some_and(|f| f.resource == resource && (f.begins() || !takes))
    }

    /// The next write is submitted, if there is one.
    fn format_on(&mut self) {
        let Some(mut f) = self.formatting.take() else { return };
        let Some((leg, number)) = f.order.get(f.at).copied() else {
            self.say(|_| format!("resource {} is formatted", f.resource));
            self.checks.marks.formats_done += 1;
            return;
        };
        let area = Area::Resource(f.resource, u8::try_from(leg).unwrap_or(0));
        let path = self.hosts[f.host].path(area.disk(), self.now);
        let errors = if self.calm { 0 } else { self.settings.errors_per_mille };
        f.fails = matches!(path, Path::Fails { .. }) || self.dice.per_mille(errors);
        let hangs = if let Path::Hangs { until } = path { until.saturating_sub(self.now) } else { 0 };
        let takes = hangs + if self.calm { 1000 } else { self.dice.spread(100, SLOWEST) };
        f.pieces = self.format_pieces(area, f.writes.get(number).map_or(&[], |bytes| bytes));
        for piece in 0..f.pieces.len() {
            if !f.fails || self.dice.per_mille(500) {
                let lands = self.now + self.dice.between(hangs, takes);
                self.at(lands, Event::FormatPiece { at: f.at, piece, serial: f.number });
            }
        }
        if !self.calm && self.dice.per_mille(self.settings.format_cuts_per_mille) {
            let cut = self.now + self.dice.between(hangs, takes);
            self.at(cut, Event::FormatCut { at: f.at, serial: f.number });
        }
        self.at(self.now + takes, Event::FormatEnd { at: f.at, serial: f.number });
        self.formatting = Some(f);
    }

    /// The sectors that a write changes, in pieces.
    fn format_pieces(&mut self, area: Area, bytes: &[u8]) -> Vec<Vec<u64>> {
        let size = self.disk.sector_size().slice_len();
        let in_use = |(_, sector): &(u64, &[u8])| *sector != &ZEROS[..size];
        let written = (0..).zip(bytes.chunks(size));
        let end = (bytes.len() / size) as u64;
        let there = self.disk.area(area).into_iter().flat_map(|sectors| sectors.keys().copied());
        let mut all: Vec<u64> =
            written.filter(in_use).map(|(sector, _)| sector).chain(there.filter(|s| *s < end)).collect();
        all.push(0);
        all.sort_unstable();
        all.dedup();
        let mut pieces = Vec::new();
        while !all.is_empty() {
            let last = pieces.len() as u64 + 1 >= PIECES;
            let take = if last { all.len() as u64 } else { self.dice.between(1, all.len() as u64) };
            pieces.push(all.split_off(all.len().saturating_sub(usize::try_from(take).unwrap_or(0))));
        }
        pieces
    }

    /// A piece reaches the disk.
    pub(crate) fn format_piece(&mut self, at: usize, piece: usize, serial: u64) {
        let size = self.disk.sector_size().slice_len();
        let current = |f: &&mut Formatting| f.at == at && f.number == serial;
        let Some(f) = self.formatting.as_mut().filter(current) else { return };
        let Some((leg, number)) = f.order.get(at).copied() else { return };
        let sectors = f.pieces.get_mut(piece).map(std::mem::take).unwrap_or_default();
        let writes = Rc::clone(&f.writes);
        let Some(bytes) = writes.get(number) else { return };
        let (resource, last) = (f.resource, number + 1 == writes.len());
        let area = Area::Resource(resource, u8::try_from(leg).unwrap_or(0));
        for sector in &sectors {
            let from = usize::try_from(*sector).unwrap_or(0) * size;
            if let Some(content) = bytes.get(from..from + size) {
                self.disk.land_bytes(area, *sector, content);
            }
        }
        let Some(f) = self.formatting.as_mut() else { return };
        f.firsts |= u8::from(sectors.contains(&0)) << leg;
        let whole = last && f.pieces.iter().all(Vec::is_empty);
        if f.firsts.count_ones() == u32::from(self.settings.legs) {
            self.checks.lease_gone(resource);
        }
        if whole {
            self.checks.formatted(area);
        }
        self.checks.content_changed(resource, &self.disk);
    }

    /// A write has ended.
    pub(crate) fn format_end(&mut self, at: usize, serial: u64) {
        let current = |f: &&mut Formatting| f.at == at && f.number == serial;
        let Some(f) = self.formatting.as_mut().filter(current) else { return };
        if f.fails {
            let resource = f.resource;
            self.say(|_| format!("the format of {resource} ends with an error at write {at}"));
            self.checks.marks.formats_failed += 1;
            self.formatting = None;
        } else {
            f.at += 1;
            self.format_on();
        }
    }

    /// The power of its host is cut in the middle of a write.
    pub(crate) fn format_cut_off(&mut self, at: usize, serial: u64) {
        let of = self.formatting.as_ref().filter(|f| f.at == at && f.number == serial).map(|f| f.host);
        if let Some(host) = of.filter(|_| !self.calm) {
            self.say(|w| format!("{:?} loses power in the middle of a format", w.hosts[host].id));
            self.reset(host);
        }
    }

    /// The power of a host is cut: what is in flight of its format lands now, piece by piece, or never.
    pub(crate) fn format_cut(&mut self, host: usize) {
        let Some(f) = self.formatting.as_ref().filter(|f| f.host == host) else { return };
        let (number, at, pieces, begins) = (f.number, f.at, f.pieces.len(), f.begins());
        assert_eq!(f.epoch, self.hosts[host].epoch, "a format outlives its host");
        for piece in 0..pieces {
            if self.dice.per_mille(500) {
                self.format_piece(at, piece, number);
            }
        }
        let torn = self.formatting.as_ref().is_some_and(|f| {
            f.pieces.iter().any(|left| !left.is_empty()) && f.pieces.iter().any(Vec::is_empty)
        });
        self.checks.marks.formats_torn += u64::from(torn);
        self.checks.marks.formats_cut += u64::from(!begins);
        self.formatting = None;
    }
}
