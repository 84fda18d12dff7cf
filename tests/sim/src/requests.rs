//! Requests: hosts that ask the owner of a lease for it, administrators who have requests looked for, and what the owner's daemon does.
//!
//! # Fault model
//!
//! * Whoever asks is a client of any daemon of ours; it asks for the next version, a later one, or one that is over, in either force
//!   mode or an unknown one, and now and then takes back what was asked for. Nobody orders requests: the last one written counts.
//! * The transfers of a request and of a look suffer what all others do. A request that timed out may land at any later time, and over a
//!   newer one: it needs no lease and no host id (lease-algorithms.md 8.1), so rules R3, S14 do not concern it.
//! * Timetable and chance are a stream of their own.

use crate::asking::{Answer, Asking};
use crate::checks::Holder;
use crate::checks::requests::Pending;
use crate::clients::Manner;
use crate::clock::{Micros, SECOND};
use crate::daemon::{Message, Source, Thread};
use crate::host::JobKey;
use crate::layout;
use crate::sabotage::Sabotage;
use crate::work::{Outcome, Work};
use crate::world::{Event, World};
use sanlock_lease::name::Name;
use sanlock_lease::record::Wish;
use sanlock_lease::text::ResourceSpec;
use sanlock_manager::{Action, Command, ConnId, Event as Told, LockspaceId, Request, ResourceId, Signal};

/// Force modes.
const FORCE: u32 = 1;
const GRACEFUL: u32 = 2;
/// Bits of RESTRICT.
const NO_SIGKILL: u32 = 2;
const NO_SIGTERM: u32 = 4;
/// A transfer for requests, renewals or looks that takes longer is trouble: what follows from it may come late.
pub(crate) const TROUBLE: Micros = SECOND / 10;
/// What messages between threads and the look itself take at most, where nothing goes wrong.
pub(crate) const SLACK_SECS: u64 = 8;

/// What a short-lived thread of the daemon is about.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) resource: u8,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// To ask, for the client on this connection.
    Ask { conn: ConnId, wish: Wish },
    /// To look for requests for leases held here: the one at hand, those left, what was found.
    Look { ls: LockspaceId, held: ResourceId, left: Vec<(ResourceId, ResourceSpec)>, found: Vec<Request> },
}

impl World {
    /// Somebody asks for a lease, or has requests looked for.
    pub(crate) fn asks(&mut self) {
        if self.calm {
            return;
        }
        let mean = self.settings.request_mean_secs * SECOND;
        let next = self.dice.spread(mean / 8 + 1, mean * 4);
        self.at(self.now + next, Event::Asks);
        let host = self.some_host_of_ours();
        let resource = self.wanted_lease();
        let ResourceSpec { lockspace, name, .. } = self.spec_of(host, resource);
        let roll = self.dice.between(0, 99);
        if roll < 10 {
            let resource = self.dice.per_mille(500).then_some(name);
            return self.administer(host, Command::Examine { lockspace, resource });
        }
        let held = self.checks.holder(resource).map_or(0, |holder| holder.lver);
        let force_mode = match self.dice.between(0, 19) {
            0..=7 => 1,
            8..=18 => 2,
            _ => 3,
        };
        let wish = match roll {
            10..=14 => Wish { lver: 0, force_mode: 0, next: false },
            15..=24 => Wish { lver: held, force_mode, next: false },
            25..=39 => Wish { lver: held + 1, force_mode, next: false },
            40..=44 => Wish { lver: held + 2, force_mode, next: false },
            _ => Wish { lver: 0, force_mode, next: true },
        };
        self.say(|w| format!("{:?} asks for {resource}: {wish:?}", w.hosts[host].id));
        if let Some(conn) = self.connect(host, None) {
            let message = Message::Ask { conn, resource, name, wish };
            self.send(host, Source::Conn(conn), Thread::Front, message);
        }
    }

    pub(crate) fn some_host_of_ours(&mut self) -> usize {
        usize::try_from(self.dice.between(0, self.settings.ours - 1)).unwrap_or(0)
    }

    /// Most of the time one that somebody holds.
    fn wanted_lease(&mut self) -> u8 {
        let held = self.dice.per_mille(850);
        let all: Vec<u8> = self.settings.all_resources().collect();
        let mut wanted: Vec<u8> =
            all.iter().copied().filter(|r| held && self.checks.holder(*r).is_some()).collect();
        if wanted.is_empty() {
            wanted = all;
        }
        let last = (wanted.len() as u64).saturating_sub(1);
        wanted[usize::try_from(self.dice.between(0, last)).unwrap_or(0)]
    }

    /// REQUEST reaches the front.
    pub(crate) fn ask_order(&mut self, host: usize, conn: ConnId, resource: u8, name: Name, wish: Wish) {
        let lockspace = layout::lockspace(layout::disk_of(resource));
        let Some(daemon) = self.daemon(host) else { return };
        let usable = daemon.manager.lockspace_named(&lockspace).is_some_and(|(_, ls)| ls.usable());
        if !usable {
            self.checks.marks.requests_refused += 1;
            return self.tell_front(host, conn, Told::ConnClosed { conn });
        }
        self.start_errand(host, name, Errand { resource, kind: Kind::Ask { conn, wish } });
    }

    /// The manager wants requests looked for.
    pub(crate) fn look_order(
        &mut self,
        host: usize,
        ls: LockspaceId,
        leases: Vec<(ResourceId, ResourceSpec)>,
    ) {
        self.look_on(host, ls, leases, Vec::new());
    }

    fn look_on(
        &mut self,
        host: usize,
        ls: LockspaceId,
        mut left: Vec<(ResourceId, ResourceSpec)>,
        found: Vec<Request>,
    ) {
        let next = if left.is_empty() { None } else { Some(left.remove(0)) };
        let place = next.and_then(|(held, spec)| {
            let resource = self.resource_of(&spec.disks)?;
            Some((held, resource, spec.name))
        });
        let Some((held, resource, name)) = place else {
            if let Some(daemon) = self.daemon(host) {
                daemon.requests_found.insert(ls.0, found);
            }
            return self.report(host, Thread::Asking, Told::RequestsLooked { ls });
        };
        self.start_errand(host, name, Errand { resource, kind: Kind::Look { ls, held, left, found } });
    }

    fn start_errand(&mut self, host: usize, name: Name, errand: Errand) {
        if self.is_withheld(errand.resource, false) {
            return self.errand_refused(host, errand);
        }
        let io_timeout = self.hosts[host].io_timeout_in(layout::disk_of(errand.resource));
        let legs = self.settings.legs;
        let wish = match &errand.kind {
            Kind::Ask { wish, .. } => Some(*wish),
            Kind::Look { .. } => None,
        };
        let work = Asking::new(wish, errand.resource, name, legs, io_timeout, self.disk.sector_size());
        let Some(daemon) = self.daemon(host) else { return };
        daemon.last_errand += 1;
        let number = daemon.last_errand;
        daemon.errands.insert(number, errand);
        let before = self.dice.turn_to(self.asking_stream());
        self.start(host, JobKey::Errand(number), Work::Asking(Box::new(work)));
        self.dice.turn_to(before);
    }

    /// Somebody is about to format the lease.
    fn errand_refused(&mut self, host: usize, Errand { resource, kind }: Errand) {
        match kind {
            Kind::Ask { conn, wish } => {
                self.asked(host, resource, wish, Answer::Refused("withheld".to_owned()));
                self.tell_front(host, conn, Told::ConnClosed { conn });
            }
            Kind::Look { ls, left, found, .. } => self.look_on(host, ls, left, found),
        }
    }

    /// A transfer was the last one, or one failed.
    pub(crate) fn errand_done(&mut self, host: usize, number: u64, outcome: Outcome) {
        self.hosts[host].jobs.remove(&JobKey::Errand(number));
        let errand = self.daemon(host).and_then(|daemon| daemon.errands.remove(&number));
        let (Some(Errand { resource, kind }), Outcome::Asking(answer)) = (errand, outcome) else { return };
        match kind {
            Kind::Ask { conn, wish } => {
                self.asked(host, resource, wish, answer);
                self.tell_front(host, conn, Told::ConnClosed { conn });
            }
            Kind::Look { ls, held, left, mut found } => {
                if let Answer::Found(lver, force_mode) = answer {
                    // Sabotage: what is asked for is always something newer.
                    let more = u64::from(self.sabotaged(Sabotage::RequestsMisread) && force_mode != 0);
                    found.push(Request { resource: held, lver: lver + more, force_mode });
                }
                self.look_on(host, ls, left, found);
            }
        }
    }

    fn asked(&mut self, host: usize, resource: u8, wish: Wish, answer: Answer) {
        let marks = &mut self.checks.marks;
        match answer {
            Answer::Written(lver, Some(owner)) => {
                marks.requests += 1;
                let lockspace = layout::lockspace(layout::disk_of(resource));
                self.report(host, Thread::Asking, Told::Requested { lockspace, owner });
                self.expect_an_act(host, resource, lver, wish.force_mode, owner);
            }
            Answer::Written(_, None) => marks.requests_cleared += 1,
            Answer::Free | Answer::Found(..) | Answer::Refused(_) => marks.requests_refused += 1,
        }
    }

    /// A host with its daemon and its lockspace on this disk, if that is joined and well.
    pub(crate) fn member(&self, host: usize, disk: u8) -> Option<(usize, u32, LockspaceId)> {
        let daemon = self.hosts[host].daemon.as_ref()?;
        let found = daemon.manager.lockspace_named(&layout::lockspace(disk));
        let (ls, _) = found.filter(|(_, ls)| ls.usable())?;
        Some((host, daemon.life, ls))
    }

    /// A request was written: whoever holds the lease is to be told of it, if nothing goes wrong (Q1).
    ///
    /// The bit appears with the next renewal of the host that asks, the owner sees it with its next look at that host, and looks for
    /// requests at the latest when it may again. An owner with a longer io timeout may look too seldom (decision 0015). A bit for
    /// another host than the owner helps nobody: the leader of the first disk may be an old one.
    fn expect_an_act(&mut self, host: usize, resource: u8, lver: u64, force_mode: u32, shown: u64) {
        let told = |h: &Holder| h.lver < lver && h.pid > 0 && h.id.get() == shown;
        let Some(holder) = self.checks.holder(resource).filter(told) else { return };
        let Some(owner) = self.hosts.iter().position(|h| h.id == holder.host) else { return };
        let disk = layout::disk_of(resource);
        let (Some(from), Some(to)) = (self.member(host, disk), self.member(owner, disk)) else { return };
        let [asking, owning] = [host, owner].map(|host| self.hosts[host].io_timeout_in(disk).secs());
        if host == owner || owning > asking || to.1 != holder.life || !(1..=2).contains(&force_mode) {
            return;
        }
        let secs = 2 * asking + 4 * owning + 6 * owning + SLACK_SECS;
        let due = self.now + secs * SECOND * 21 / 20;
        let pending = Pending { resource, lver, force_mode, since: self.now, due, from, to, holder };
        self.checks.request_pending(pending);
    }

    /// Every second: what should have been acted upon by now.
    pub(crate) fn look_at_requests(&mut self) {
        for pending in self.checks.requests_due() {
            let record = layout::request_on(&self.disk, pending.resource);
            let stands = (record.lver.get(), record.force_mode.get()) == (pending.lver, pending.force_mode);
            let process = self.hosts[pending.to.0].processes.get(&pending.holder.pid);
            let there = process.is_some_and(|p| p.alive && p.conn.is_some());
            let name = layout::lockspace(layout::disk_of(pending.resource));
            let fine = self.in_touch(pending.from, pending.to, &name, pending.since);
            if !stands {
                self.checks.marks.requests_superseded += 1;
            } else if !there || !fine || !self.holds_alone(&pending) {
                self.checks.marks.requests_excused += 1;
            } else {
                self.checks.violated(format!("Q1: nothing was done about {pending:?}"));
            }
        }
    }

    /// Whether the owner's daemon says so too: a conversion is under way now and then.
    fn holds_alone(&self, pending: &Pending) -> bool {
        let spec = layout::resource_spec(pending.resource, self.settings.legs, self.settings.geometry);
        let daemon = self.hosts[pending.to.0].daemon.as_ref();
        let found = daemon.and_then(|d| d.manager.resources().find(|(_, r)| r.spec.disks == spec.disks));
        found.is_some_and(|(_, r)| r.is_granted() && !r.spec.shared && r.lver == pending.holder.lver)
    }

    /// Whether nothing has kept the one from showing something since then, and the other from seeing it and acting in time.
    pub(crate) fn in_touch(
        &self,
        from: (usize, u32, LockspaceId),
        to: (usize, u32, LockspaceId),
        name: &Name,
        since: Micros,
    ) -> bool {
        let scan = self.hosts[to.0].jobs.get(&JobKey::Scan(to.2.0)).and_then(|job| job.work.scan());
        // Reads that are lost for good are so many that it leaves hosts like this one out.
        scan.is_some_and(|scan| scan.reaches(self.hosts[from.0].claims))
            && [from, to].into_iter().all(|of| self.untroubled(of, name, since))
    }

    /// Whether nothing has kept the host from renewing, looking and acting in time since then, or shortly before.
    fn untroubled(&self, (host, life, ls): (usize, u32, LockspaceId), name: &Name, since: Micros) -> bool {
        let h = &self.hosts[host];
        let before = since.saturating_sub(4 * h.longest_io_timeout().secs() * SECOND);
        let long_ago = |time: Micros| time == 0 || time < before;
        let Some(daemon) = h.daemon.as_ref().filter(|d| d.life == life && h.up) else { return false };
        let member = daemon.manager.lockspace_named(name);
        member.is_some_and(|(now, l)| now == ls && l.usable())
            && daemon.stalled.is_empty()
            && !daemon.frozen
            && [h.excused, h.troubled, h.stopped_until].into_iter().all(long_ago)
    }

    /// The manager has been told what a look has found, and this is what it wants done.
    pub(crate) fn acts(&mut self, host: usize, found: &[Request], actions: &[Action]) {
        for action in actions {
            match action {
                Action::Kill { conn, signal, .. } => self.acts_on(host, *conn, Some(*signal), found),
                Action::RunKillpath { conn, .. } => self.acts_on(host, *conn, None, found),
                _ => {}
            }
        }
        let Some(daemon) = self.hosts[host].daemon.as_ref() else { return };
        let held = |id: ResourceId| daemon.manager.resources().find(|(r, _)| *r == id).map(|(_, r)| r.lver);
        let over = |f: &&Request| f.force_mode != 0 && f.lver != 0 && held(f.resource) >= Some(f.lver);
        let old = found.iter().filter(over).count();
        self.checks.marks.requests_old += old as u64;
    }

    /// Q2: a process is told: because of a request that was made, for a later version than it holds, in the way that this asks for.
    fn acts_on(&mut self, host: usize, conn: ConnId, signal: Option<Signal>, found: &[Request]) {
        let id = self.hosts[host].id;
        let Some(pid) = self.daemon(host).and_then(|d| d.clients.get(&conn.0)).and_then(|c| c.pid) else {
            return;
        };
        let reasons = self.reasons_to_act(host, (conn, pid), signal, found).unwrap_or_default();
        if !reasons.is_empty() {
            if let Some(process) = self.hosts[host].processes.get_mut(&pid) {
                process.asked_to_go += 1;
            }
        } else if !self.checks.has_lost_a_lockspace(id, pid) {
            // Else its lockspace fails at the same time.
            let what = format!("Q2: {pid} of {id:?} is told by {signal:?}, found was only {found:?}");
            self.checks.violated(what);
        }
        // Who is told gives up all that it is asked for, an older request's lease and a newer one's.
        for request in reasons {
            self.checks.acted_upon(request, id, pid);
        }
    }

    /// The requests that explain it.
    fn reasons_to_act(
        &self,
        host: usize,
        (conn, pid): (ConnId, i32),
        signal: Option<Signal>,
        found: &[Request],
    ) -> Option<Vec<(u8, u64, u32)>> {
        let id = self.hosts[host].id;
        let daemon = self.hosts[host].daemon.as_ref()?;
        let manager = &daemon.manager;
        let (_, client) = manager.conns().find(|(c, _)| *c == conn)?;
        let ways = ways_of(daemon.clients.get(&conn.0)?.manner);
        let explains = |f: &Request| {
            let (_, r) = manager.resources().find(|(r, _)| *r == f.resource)?;
            let resource = self.resource_of(&r.spec.disks)?;
            let holder = self.checks.holder(resource).filter(|h| h.host == id && h.pid == pid);
            let newer = f.lver > holder.map_or(r.lver, |h| h.lver);
            let asked = self.checks.was_asked(resource, f.lver, f.force_mode);
            let fits = ways.contains(&(f.force_mode, signal));
            (newer && asked && fits).then_some((resource, f.lver, f.force_mode))
        };
        Some(
            found
                .iter()
                .filter(|f| client.held().any(|held| held == f.resource))
                .filter_map(explains)
                .collect(),
        )
    }
}

/// In which ways a process is told, by force mode. `None` is its killpath program.
fn ways_of(manner: Manner) -> [(u32, Option<Signal>); 2] {
    let (term, kill) = (Some(Signal::Term), Some(Signal::Kill));
    // Whoever has a program asks for nothing else.
    let restricted = if manner.killpath { 0 } else { manner.restrictions };
    let forced = if restricted & NO_SIGKILL == 0 { kill } else { term };
    let asked = if restricted & NO_SIGTERM == 0 { term } else { kill };
    [(FORCE, forced), (GRACEFUL, if manner.killpath { None } else { asked })]
}
