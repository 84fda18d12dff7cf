//! Operations in flight: submitted, looked at, landed, reported.

use crate::clock::Micros;
use crate::daemon::thread_of;
use crate::disk::{Area, SimView};
use crate::faults::{EIO, Fate};
use crate::host::{JobKey, Path};
use crate::layout;
use crate::requests::TROUBLE;
use crate::sabotage::Sabotage;
use crate::world::{Event, Io, World};
use sanlock_lease::machine::{Action, Content, Input, IoFailure, NoSectors, Op, Place, Sectors as _};
use sanlock_lease::record::RawLeader;
use std::rc::Rc;

/// An operation that takes longer is slow.
const SWIFT: Micros = 5_000;

impl World {
    /// The area an operation of this job is on.
    fn area(&self, host: usize, job: JobKey, place: Place) -> Option<Area> {
        let daemon = self.hosts[host].daemon.as_ref();
        match (place, job) {
            (Place::Lockspace, JobKey::Task(task)) => {
                let resource = daemon?.tasks.get(&task)?.resource()?;
                Some(Area::Lockspace(layout::disk_of(resource)))
            }
            (Place::Lockspace, _) if self.hosts[host].is_reference() => Some(Area::Lockspace(0)),
            (
                Place::Lockspace,
                JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Scan(ls) | JobKey::Leave(ls),
            ) => Some(Area::Lockspace(daemon?.workers.get(&ls)?.disk)),
            (Place::Resource(leg), JobKey::Task(task)) if leg < self.settings.legs => {
                Some(self.hosts[host].named(daemon?.tasks.get(&task)?.resource()?, leg))
            }
            (Place::Resource(leg), JobKey::Errand(errand)) if leg < self.settings.legs => {
                Some(Area::Resource(daemon?.errands.get(&errand)?.resource, leg))
            }
            (Place::Resource(0), JobKey::Peer(number)) => Some(Area::Resource(u8::try_from(number).ok()?, 0)),
            _ => None,
        }
    }

    /// Whether the machine of an operation is still there.
    fn is_current(&self, io: &Io) -> bool {
        let h = &self.hosts[io.host];
        io.epoch == h.epoch && h.jobs.get(&io.job).is_some_and(|j| j.serial == io.serial)
    }

    /// The generation that a task began with, 0 without one.
    fn generation_of(&self, host: usize, job: JobKey) -> u64 {
        let JobKey::Task(task) = job else { return 0 };
        let task = self.hosts[host].daemon.as_ref().and_then(|d| d.tasks.get(&task));
        task.map_or(0, |task| task.config.generation)
    }

    pub(crate) fn submit(&mut self, host: usize, job: JobKey, serial: u32, op: &mut Op) {
        let Some(area) = self.area(host, job, op.place) else {
            return self.checks.violated(format!("S15: {job:?} works on a resource"));
        };
        if let Some(sabotage) = self.sabotage {
            if !self.hosts[host].is_reference() && self.spoils_now(sabotage, area) {
                sabotage.spoil(op);
            }
        }
        if !matches!(job, JobKey::Scan(_)) {
            self.say(|w| format!("{:?} {job:?} submits {} {area:?}", w.hosts[host].id, brief(op)));
        }
        // Whatever ends is known to its machine by its number alone.
        let again = |io: &Io| io.host == host && io.job == job && io.op == op.id && self.is_current(io);
        if matches!(job, JobKey::Task(_)) && self.flying().any(again) {
            self.checks.violated(format!("R3: {job:?} uses {:?} again while it is in flight", op.id));
        }
        if let Action::Write { sector, content } = &op.action {
            let writer = self.writer(host);
            if let (Area::Resource(_, leg), JobKey::Task(_)) = (area, job) {
                if self.hosts[host].misnames(leg) {
                    let what =
                        format!("S15: {writer:?} {job:?} writes sector {sector} of another lease, {area:?}");
                    return self.checks.violated(what);
                }
            }
            self.checks.submitted(writer, area, *sector, content, &self.disk);
            if let (Area::Resource(resource, _), Content::Leader(_)) = (area, content) {
                let misjudged = self.hosts[host].jobs.get(&job).and_then(|j| j.work.misjudged());
                self.checks.commits(writer, resource, misjudged);
            }
            let own_now = self.hosts[host].clock.at(self.now);
            // A request is no part of the lease, and takes neither one nor a host id.
            let request = matches!(job, JobKey::Errand(_));
            let resource = matches!(area, Area::Resource(..)) && !writer.reference && !request;
            let generation = self.generation_of(host, job);
            if resource && !self.checks.may_write(writer.host, area.lockspace(), generation, own_now) {
                let what = format!(
                    "S14: {writer:?} writes sector {sector} of {area:?} without its host id, generation {generation}"
                );
                self.checks.violated(what);
            }
            let own = matches!(job, JobKey::Renewal(_) | JobKey::Leave(_));
            if own && !self.checks.may_write_own(writer.host, area.lockspace()) {
                let what = format!("W12: {writer:?} writes {area:?}, which it has read as somebody else's");
                self.checks.violated(what);
            }
            // The leader may be freed beside the mark, in the same step: neither has timed out, and their order makes no difference.
            let at_once = |io: &Io| {
                let of_block = matches!(io.write, Some((other, _)) if other != 0);
                *sector == 0
                    && of_block
                    && (io.job, io.serial, io.since) == (job, serial, self.now)
                    && !io.timed_out
            };
            // What an earlier daemon left behind in a lockspace is excepted: this one cannot know of it (R3).
            let to_same = |io: &Io| {
                let former = !self.is_current(io);
                // Nor is it the same host any more that had another host id, by mistake, and whose write has failed in doubt.
                let over =
                    former && (matches!(area, Area::Lockspace(_)) || io.claims != self.hosts[host].claims);
                // One renewal that failed keeps no other from being written.
                let renewal = io.doubtful && matches!(io.job, JobKey::Renewal(_));
                io.host == host
                    && io.area == area
                    && io.is_write()
                    && !over
                    && !renewal
                    && !io.is_request()
                    && !at_once(io)
            };
            if !request && self.flying().any(to_same) && !writer.reference {
                let what = format!("R3: {writer:?} writes to {area:?} while a write of it is in flight");
                self.checks.violated(what);
            }
        }
        let own_clock = self.hosts[host].clock.at(self.now);
        let limit = self.hosts[host].clock.when(op.deadline).saturating_sub(self.now);
        let renewal = op.is_write() && matches!(job, JobKey::Renewal(_));
        let very_late = renewal && std::mem::take(&mut self.hosts[host].very_late);
        if let (JobKey::Join(_) | JobKey::Renewal(_), Action::Write { sector, content }) = (job, &op.action) {
            if let Content::Delta { leader, .. } = content {
                self.hosts[host].own_records.insert(area.lockspace(), *leader);
                if matches!(job, JobKey::Join(_)) {
                    self.claims_anew(host, serial, area, (*sector, leader));
                    self.hosts[host].claimed = Some((serial, *leader));
                }
            }
        }
        let fate = if !self.is_open(host, job, area) {
            Fate::not_open()
        } else if very_late {
            Fate::very_late(&mut self.dice, limit)
        } else if self.troubles_leader(host, job, op) {
            Fate::of_troubled_leader(&mut self.dice, limit)
        } else if let Some(returns) = self.meets_a_spot(host, job, area, op) {
            Fate::hanging(&mut self.dice, returns, limit)
        } else {
            Fate::of(&mut self.dice, &self.hosts[host], area.disk(), self.now, limit, self.calm)
        };
        let doubt = self.hosts[host].clock.when(own_clock.plus_millis(op.doubt_ms)).saturating_sub(self.now);
        let fate = if doubt > 0 { fate.in_doubt(&mut self.dice, doubt) } else { fate };
        let fate = match self.lands_before(host, job, limit).filter(|_| op.is_write()) {
            Some(end) => fate.in_time(end),
            None => fate,
        };
        self.count_trouble(host, area, limit, &fate);
        if op.is_write() {
            let refused = matches!(fate.failure, Some(IoFailure::Os(e)) if e != EIO);
            self.checks.marks.refused_writes += u64::from(refused);
            if let (true, Area::Lockspace(number)) = (refused, area) {
                self.checks.delta_refused(self.writer(host).host, number);
            }
            self.checks.marks.short_writes += u64::from(fate.failure == Some(IoFailure::Short));
        }
        if matches!(job, JobKey::Renewal(_) | JobKey::Scan(_) | JobKey::Errand(_)) {
            let ends = fate.completes.unwrap_or(limit);
            if fate.failure.is_some() || fate.completes.is_none() || ends > TROUBLE {
                let troubled = &mut self.hosts[host].troubled;
                *troubled = (*troubled).max(self.now + ends);
            }
        }
        let io = self.next_io;
        self.next_io += 1;
        // Nobody looks at the operation any more: what it writes is moved.
        let (read, write) = match std::mem::replace(&mut op.action, Action::Read { first: 0, count: 0 }) {
            Action::Read { first, count } => (Some((first, count)), None),
            Action::Write { sector, content } => (None, Some((sector, Rc::new(content)))),
        };
        let mut place = self.spare_ios.pop();
        let room = place.as_mut().map(|over| over.take_room()).unwrap_or_default();
        let result = match fate.failure {
            Some(failure) => Err(failure),
            None => Ok(SimView::with_room(self.disk.sector_size(), read.unwrap_or_default(), room)),
        };
        let write_lands = fate.lands.filter(|_| write.is_some());
        let flying = Io {
            host,
            epoch: self.hosts[host].epoch,
            claims: self.hosts[host].claims,
            job,
            serial,
            op: op.id,
            write,
            area,
            to_land: write_lands.is_some(),
            lands: write_lands.map_or(Micros::MAX, |after| self.now + after),
            since: self.now,
            timed_out: false,
            doubt_ms: op.doubt_ms,
            doubtful: false,
            failed_late: false,
            deadline: self.now + limit,
            ends: fate.completes.map(|after| self.now + after),
            very_late,
            result,
        };
        let place = match place {
            Some(mut place) => {
                *place = flying;
                place
            }
            None => Box::new(flying),
        };
        self.ios.insert(io, place);
        match read {
            None => {
                if let Some(after) = write_lands {
                    self.at(self.now + after, Event::Land { io });
                }
            }
            Some((first, count)) => self.plan_samples(io, area, (first, count), fate.completes),
        }
        if let Some(after) = fate.completes {
            self.at(self.now + after, Event::Complete { io });
        }
        // A deadline that comes after the end matters only to a thread that stands still then.
        if fate.completes.is_none_or(|after| after >= limit) {
            self.at(self.now + limit, Event::Deadline { io });
        }
    }

    /// For how long this look at several hosts hangs because of a bad spot among what it reads, if it does.
    fn meets_a_spot(&self, host: usize, job: JobKey, area: Area, op: &Op) -> Option<Micros> {
        let (JobKey::Scan(_), Area::Lockspace(disk)) = (job, area) else { return None };
        let Action::Read { count: 2.., .. } = &op.action else { return None };
        let until = self.hosts[host].spots.get(usize::from(disk))?;
        until.checked_sub(self.now).filter(|left| *left > 0)
    }

    /// Whether this is a leader that is written late, or fails.
    fn troubles_leader(&mut self, host: usize, job: JobKey, op: &Op) -> bool {
        let often = self.settings.leader_trouble_per_mille;
        let leader = matches!(&op.action, Action::Write { content: Content::Leader(_), .. });
        let ours = matches!(job, JobKey::Task(_)) && !self.hosts[host].is_reference();
        often > 0 && leader && ours && !self.calm && self.dice.per_mille(often)
    }

    /// S9: a claim of an earlier daemon that may still land, and may tell another io timeout, has a smaller generation. A peer does not see to that.
    fn claims_anew(&mut self, host: usize, serial: u32, area: Area, (sector, leader): (u64, &RawLeader)) {
        let (id, epoch, generation) =
            (self.hosts[host].id, self.hosts[host].epoch, leader.owner_generation.get());
        let not_before = |io: &Io| {
            let other = (io.host, io.epoch, io.area) == (host, epoch, area) && io.serial != serial;
            let Some((at, content)) = io.write.as_ref().filter(|_| other && io.to_land) else { return false };
            let Content::Delta { leader, .. } = &**content else { return false };
            *at == sector && leader.owner_generation.get() >= generation
        };
        if !self.hosts[host].is_reference() && self.flying().any(not_before) {
            let what = format!(
                "S9: {id:?} claims {area:?} with generation {generation}, or a later one, as a write does that may still land"
            );
            self.checks.violated(what);
        }
    }

    fn count_trouble(&mut self, host: usize, area: Area, limit: Micros, fate: &Fate) {
        let good = self.hosts[host].path(area.disk(), self.now) == Path::Good;
        let marks = &mut self.checks.marks;
        let trouble = match fate.completes {
            _ if !good => &mut marks.lost_ios,
            None => &mut marks.late_ios,
            Some(after) if after >= limit => &mut marks.late_ios,
            Some(_) if fate.failure.is_some() => &mut marks.failed_ios,
            Some(after) if after > SWIFT => &mut marks.slow_ios,
            Some(_) => &mut marks.good_ios,
        };
        *trouble += 1;
    }

    /// Whether the disk of an operation could be opened when its task began.
    fn is_open(&self, host: usize, job: JobKey, area: Area) -> bool {
        let (JobKey::Task(task), Area::Resource(_, leg)) = (job, area) else { return true };
        let task = self.hosts[host].daemon.as_ref().and_then(|d| d.tasks.get(&task));
        task.is_none_or(|task| task.has_open(leg))
    }

    /// A read looks at its sectors in up to three pieces, each at its own moment.
    fn plan_samples(&mut self, io: u64, area: Area, (first, count): (u64, u64), completes: Option<Micros>) {
        let Some(completes) = completes else { return };
        // What is not in use is looked at right now: most of a lockspace is empty.
        let end = self.disk.used_until(area, first, count);
        let mut from = first;
        for piece in (0..3).rev() {
            let left = end - from;
            let take = if piece == 0 || left <= 2 { left } else { self.dice.between(1, left) };
            if take == 0 {
                break;
            }
            // Few hosts use few sectors: cut between those in use.
            let take = if piece > 0 && left > 2 && self.dice.per_mille(500) {
                take.min(self.dice.between(1, 6))
            } else {
                take
            };
            let when = self.now + self.dice.between(0, completes);
            self.at(when, Event::Sample { io, first: from, count: take });
            from += take;
        }
    }

    pub(crate) fn sample(&mut self, io: u64, first: u64, count: u64) {
        let Some(flying) = self.ios.get_mut(&io) else { return };
        if let Ok(view) = &mut flying.result {
            self.disk.sample(flying.area, first, count, view);
        }
        if let (JobKey::Join(_), Area::Lockspace(disk)) = (flying.job, flying.area) {
            let machine = self.hosts[flying.host].id;
            self.checks.looked(machine, disk, first..first + count);
        }
    }

    /// Whether this renews a lockspace of which others may have taken the host id by now: by the slowest clock of its host, and the fastest one of theirs.
    fn is_overdue(&self, host: usize, job: JobKey) -> bool {
        let JobKey::Renewal(ls) = job else { return false };
        let h = &self.hosts[host];
        let Some(worker) = h.daemon.as_ref().and_then(|d| d.workers.get(&ls)) else { return false };
        let dead_ms = worker.shared.io_timeout.host_dead_secs(h.fire) * 1000;
        let least = dead_ms - dead_ms * 2 * self.settings.drift_ppm.min(400_000) / 1_000_000;
        h.clock.at(self.now).millis_since(worker.shared.last_good.get()) >= least
    }

    pub(crate) fn land(&mut self, io: u64) {
        let left = |io: &Io| !self.is_current(io) || self.is_left_behind(io.host, io.job);
        let Some(orphan) = self.ios.get(&io).map(|flying| left(flying)) else { return };
        let Some(flying) = self.ios.get_mut(&io) else { return };
        if !std::mem::take(&mut flying.to_land) {
            return;
        }
        let Some((sector, content)) = flying.write.clone() else { return };
        let (area, late, host, job) = (flying.area, flying.timed_out, flying.host, flying.job);
        let (since, claims) = (flying.since, flying.claims);
        self.checks.marks.doubtful_landed += u64::from(flying.doubtful);
        self.checks.marks.doubtful_landed_late += u64::from(flying.failed_late);
        // A renewal that somebody may have overtaken who took the host id, because nothing was renewed for 8T + F.
        let overtaken =
            !orphan && self.checks.last_landing(area, sector) > since && self.is_overdue(host, job);
        self.checks.marks.renewals_overtaken += u64::from(overtaken);
        let orphan = orphan || overtaken;
        self.checks.landing(self.now, area, sector, &content, &self.disk);
        self.disk.land(area, sector, &content);
        self.say(|w| {
            let late = if late { " LATE" } else { "" };
            format!("{:?}'s write of {area:?} {sector} lands{late}", w.hosts[host].id)
        });
        let writer = self.writer(host);
        // Its host may have another host id by now.
        self.checks.claims_to_be(writer.host, claims);
        self.checks.landed(area, sector, &content, writer, (late, orphan), &self.disk);
        self.checks.claims_to_be(writer.host, self.hosts[host].claims);
    }

    /// An operation's completion or deadline reaches its host.
    pub(crate) fn reported(&mut self, io: u64, deadline: bool) {
        // What fell into doubt has no deadline any more.
        let Some(flying) = self.ios.get(&io).filter(|io| !(deadline && io.doubtful)) else { return };
        let (host, thread) = (flying.host, thread_of(flying.job));
        let current = self.is_current(flying);
        if current && !self.runs(host, thread) {
            let (timed_out, due) = (flying.timed_out, flying.deadline);
            if let Some(daemon) = self.daemon(host) {
                daemon.keep(io, deadline);
                if !deadline && !timed_out && due > self.now {
                    self.at(due, Event::Deadline { io });
                }
                return;
            }
        }
        if deadline {
            self.tell_timeout(io, current);
        } else if self.falls_in_doubt(io, current) {
            // It ends once more when that is over.
        } else if let Some(flying) = self.ios.remove(&io).filter(|_| current) {
            self.tell_end(flying);
        }
    }

    /// What a renewal, or whoever leaves, has found.
    fn own_was_read(&mut self, host: usize, area: Area, view: &mut SimView) {
        let h = &self.hosts[host];
        let Area::Lockspace(disk) = area else { return };
        let sector = h.claims.delta_sector();
        let Some(ours) = h.own_records.get(&disk).copied() else { return };
        let Some(found) = view.sector(sector).map(RawLeader::from_sector) else { return };
        let own = (found.owner_id, found.owner_generation, found.resource_name)
            == (ours.owner_id, ours.owner_generation, ours.resource_name);
        self.checks.read_own(h.id, disk, own);
        if !own && self.sabotaged(Sabotage::RenewsBlindly) {
            view.replace(sector, &Content::Leader(ours));
        }
    }

    fn tell_timeout(&mut self, io: u64, current: bool) {
        let Some(flying) = self.ios.get_mut(&io) else { return };
        let (host, key, op) = (flying.host, flying.job, flying.op);
        flying.timed_out = true;
        let forgotten = flying.ends.is_none() && !flying.is_write();
        if forgotten {
            self.ios.remove(&io);
        }
        if current {
            self.say(|w| format!("{:?} {key:?} {op:?} timed out", w.hosts[host].id));
            self.deliver(host, key, Input::TimedOut { op });
        }
    }

    /// Whether an operation has failed only just now, and may land all the same. Its machine is told so.
    fn falls_in_doubt(&mut self, io: u64, current: bool) -> bool {
        let Some(flying) = self.ios.get_mut(&io) else { return false };
        let Some(failure) = flying.will_be_in_doubt() else { return false };
        let (host, key, op, late) = (flying.host, flying.job, flying.op, flying.timed_out);
        let doubt_ms = std::mem::take(&mut flying.doubt_ms);
        (flying.doubtful, flying.failed_late, flying.timed_out) = (true, late, true);
        let clock = &self.hosts[host].clock;
        let until = clock.when(clock.at(self.now).plus_millis(doubt_ms)).max(self.now + 1);
        flying.ends = Some(until);
        self.at(until, Event::Complete { io });
        if current && !late {
            self.say(|w| format!("{:?} {key:?} {op:?} failed in doubt: {failure}", w.hosts[host].id));
            self.deliver(host, key, Input::Doubtful { op, failure });
        }
        true
    }

    /// The machine that submitted it is still there.
    fn tell_end(&mut self, mut flying: Box<Io>) {
        let (host, key, op) = (flying.host, flying.job, flying.op);
        if let (Ok(view), JobKey::Task(task), Some(_)) = (&mut flying.result, key, self.sabotage) {
            self.misread(host, task, flying.area, view);
        }
        if let (Ok(view), JobKey::Join(_)) = (&mut flying.result, key) {
            self.claim_unchecked(host, flying.serial, view);
        }
        if let (Ok(view), JobKey::Renewal(_) | JobKey::Leave(_)) = (&mut flying.result, key) {
            self.own_was_read(host, flying.area, view);
        }
        let result = match &flying.result {
            Ok(_) if flying.is_write() => Ok(&NoSectors as &dyn sanlock_lease::machine::Sectors),
            Ok(view) => Ok(view as &dyn sanlock_lease::machine::Sectors),
            Err(e) => Err(*e),
        };
        if flying.timed_out {
            self.deliver(host, key, Input::CompletedLate { op, result });
            self.settled(host, key);
        } else {
            self.deliver(host, key, Input::Completed { op, result });
        }
        // Whatever a lockspace's thread waits for may have come.
        if let JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Leave(ls) = key {
            self.worker_look(host, ls);
        }
        flying.let_go();
        self.spare_ios.push(flying);
    }

    fn settled(&mut self, host: usize, key: JobKey) {
        if let JobKey::Task(task) = key {
            self.task_settled(host, task);
        }
    }
}

/// An operation in a few words.
fn brief(op: &Op) -> String {
    match &op.action {
        Action::Read { first, count } => format!("{:?} read {first}+{count}", op.id),
        Action::Write { sector, content: Content::Block(b) } => {
            let d = &b.dblock;
            let released = if d.is_released() { " RELEASED" } else { "" };
            format!(
                "{:?} write {sector} block mbal {} bal {} value {}/{}/{} lver {}{released}",
                op.id, d.mbal, d.bal, d.inp, d.inp2, d.inp3, d.lver
            )
        }
        Action::Write { sector, content: Content::Leader(l) } => format!("{:?} write {sector} {l:?}", op.id),
        Action::Write { sector, content: Content::Delta { leader, .. } } => {
            format!("{:?} write {sector} {leader:?}", op.id)
        }
        Action::Write { sector, content: Content::Value(_) } => format!("{:?} write {sector} value", op.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::settings::Settings;
    use sanlock_lease::geometry::SectorSize;
    use sanlock_lease::machine::OpId;
    use sanlock_lease::record::Bitmap;

    /// A renewal of host 1 is on its way, another one takes the host id, and the renewal lands so long after the last one that was good.
    fn lands_over_another(age_secs: u64) -> World {
        let (host, job, area) = (0, JobKey::Renewal(1), Area::Lockspace(0));
        let mut world = World::new(Settings::quiet(), 1, false);
        assert!(world.run_until(100 * SECOND, |w| w.hosts.iter().all(|h| h.jobs.get(&job).is_some())));
        let sector = world.hosts[host].claims.delta_sector();
        let renewal = layout::delta_on(&world.disk, 0, world.hosts[host].claims);
        let later = RawLeader {
            owner_generation: (renewal.owner_generation.get() + 1).into(),
            resource_name: layout::name("another").to_field(),
            ..renewal
        };
        let serial = world.hosts[host].jobs.get(&job).map_or(0, |job| job.serial);
        let flying = Io {
            host,
            epoch: 0,
            claims: world.hosts[host].claims,
            job,
            serial,
            op: OpId(1000),
            write: Some((sector, Rc::new(Content::Delta { leader: renewal, bitmap: Bitmap::default() }))),
            area,
            to_land: true,
            lands: Micros::MAX,
            since: world.now,
            timed_out: false,
            doubt_ms: 0,
            doubtful: false,
            failed_late: false,
            deadline: Micros::MAX,
            ends: None,
            very_late: false,
            result: Ok(SimView::new(SectorSize::B512, 0, 0)),
        };
        world.ios.insert(1_000_000, Box::new(flying));
        world.now += 1;
        let other = world.writer(1);
        let content = Content::Delta { leader: later, bitmap: Bitmap::default() };
        world.checks.landing(world.now, area, sector, &content, &world.disk);
        world.checks.landed(area, sector, &content, other, (false, false), &world.disk);
        let good = world.hosts[host]
            .daemon
            .as_ref()
            .and_then(|d| d.workers.get(&1))
            .map(|w| w.shared.last_good.get());
        world.now = world.hosts[host].clock.when(good.unwrap_or_default().plus_secs(age_secs));
        world.checks.time_is(world.now);
        world.checks.violations.clear();
        world.land(1_000_000);
        world
    }

    #[test]
    fn a_renewal_lands_over_another_machine_s_record_only_where_that_may_be() {
        let young = lands_over_another(139);
        assert!(
            young.checks.violations.iter().any(|v| v.starts_with("S9:")),
            "{:?}",
            young.checks.violations
        );
        let old = lands_over_another(141);
        assert_eq!((old.checks.violations.clone(), old.checks.marks.renewals_overtaken), (Vec::new(), 1));
    }
}
