//! The daemon's front, as in `daemon/src/front/`: gives the manager events, carries out its actions.

use crate::clock::SECOND;
use crate::daemon::{Message, Source, Thread};
use crate::layout;
use crate::link::Order;
use crate::sabotage::Sabotage;
use crate::tasks::{Kind, Task};
use crate::worker::{Knowledge, Shared, Worker};
use crate::world::{Event, World};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_manager::{Action, Command, Event as Told, LockspaceId, Reply, Watch, fast_rejoin, remembered};
use std::rc::Rc;

/// How often the front looks at ages.
const TICK_MS: u64 = 1000;
/// The same while users are being stopped.
const TICK_KILLING_MS: u64 = 200;

impl World {
    /// The front's timer.
    pub(crate) fn front_tick(&mut self, host: usize) {
        let Some(life) = self.daemon(host).map(|d| d.life) else { return };
        let killing = self.daemon(host).is_some_and(|d| d.manager.is_killing());
        let pause = if killing { TICK_KILLING_MS } else { TICK_MS };
        self.at(self.now + pause * 1000, Event::FrontTick { host, life });
        if self.runs(host, Thread::Front) {
            self.front_event(host, None);
        }
    }

    /// Gives the manager an event, or a tick, carries out what it asks for, and goes on with what that led to. Ages are looked at first
    /// if that is due.
    pub(crate) fn front_event(&mut self, host: usize, told: Option<Box<Told>>) {
        let now = self.hosts[host].clock.at(self.now);
        let sleepy = self.sabotaged(Sabotage::AgesUnseen);
        let Some(daemon) = self.daemon(host) else { return };
        let age_check = told.is_none();
        if age_check || now >= daemon.next_age_check {
            daemon.next_age_check = now.plus_millis(TICK_MS);
            if !sleepy {
                daemon.events.push_back(None);
            }
        }
        if !age_check {
            daemon.events.push_back(told);
        }
        while let Some(told) = self.daemon(host).and_then(|d| d.events.pop_front()) {
            let Some(told) = told else {
                self.front_looks(host, now);
                continue;
            };
            if let Told::Requested { lockspace, owner } = &*told {
                self.bit_set_for(host, layout::disk_of_name(*lockspace), *owner);
            }
            let left = match *told {
                Told::Left { ls, .. } | Told::LeaseSettled { ls } => Some(ls),
                _ => None,
            };
            let command = if let Told::Command { conn, .. } = *told { Some(conn) } else { None };
            let registers = match *told {
                Told::Command { conn, command: Command::Register { pid } } => Some((conn, pid)),
                _ => None,
            };
            let looked = if let Told::RequestsLooked { ls } = *told { Some(ls) } else { None };
            let looked = looked
                .map(|ls| self.daemon(host).and_then(|d| d.requests_found.remove(&ls.0)).unwrap_or_default());
            self.say(|w| format!("{:?} front: {}", w.hosts[host].id, short(&told)));
            if self.swallowed(&told) {
                continue;
            }
            self.drags_along(host, &told);
            let mut actions = std::mem::take(&mut self.spare_actions);
            if let Some(daemon) = self.daemon(host) {
                for request in looked.iter().flatten().copied() {
                    daemon.manager.handle(now, Told::RequestFound { request }, &mut actions);
                }
                daemon.manager.handle(now, *told, &mut actions);
            }
            if let Some((conn, pid)) = registers {
                self.watched(host, conn, pid);
            }
            if let Some(conn) = command {
                self.accepted(host, conn, &actions);
            }
            if let Some(found) = looked {
                self.acts(host, &found, &actions);
            }
            self.perform_all(host, actions);
            if let Some(ls) = left.filter(|ls| self.is_over(host, *ls)) {
                if let Some(daemon) = self.daemon(host) {
                    daemon.workers.remove(&ls.0);
                }
            }
        }
        self.check_ages(host);
    }

    fn front_looks(&mut self, host: usize, now: MonoTime) {
        let mut actions = std::mem::take(&mut self.spare_actions);
        if let Some(daemon) = self.daemon(host) {
            daemon.manager.handle(now, Told::Tick, &mut actions);
        }
        self.perform_all(host, actions);
    }

    fn perform_all(&mut self, host: usize, mut actions: Vec<Action>) {
        for action in actions.drain(..) {
            self.perform(host, action);
        }
        self.spare_actions = actions;
    }

    /// Sabotage: what the manager is not told.
    fn swallowed(&self, told: &Told) -> bool {
        match told {
            Told::Corrupt { .. } => self.sabotaged(Sabotage::CorruptUnseen),
            Told::ReleaseDone { .. } => self.sabotaged(Sabotage::ReleasesNeverEnd),
            _ => false,
        }
    }

    /// Sabotage: what befalls one lockspace is said of the others too.
    fn drags_along(&mut self, host: usize, told: &Told) {
        let Told::RenewalFailed { ls: failed, .. } = *told else { return };
        if !self.sabotaged(Sabotage::FailsTogether) {
            return;
        }
        let Some(daemon) = self.daemon(host) else { return };
        let others = daemon.manager.lockspaces().filter(|(ls, l)| *ls != failed && l.joined.is_some());
        let others: Vec<LockspaceId> = others.map(|(ls, _)| ls).collect();
        for ls in others {
            let (code, text) = (ReturnCode::AIO_TIMEOUT.0, "another lockspace's disk is gone".to_owned());
            daemon.events.push_back(Some(Box::new(Told::Corrupt { ls, code, text })));
        }
    }

    fn perform(&mut self, host: usize, action: Action) {
        if !matches!(action, Action::Log { .. }) {
            self.say(|w| format!("{:?} front does {}", w.hosts[host].id, short(&action)));
        }
        let front = Source::Thread(Thread::Front);
        match action {
            Action::Reply { conn, reply } => self.replied(host, conn, &reply),
            Action::Forget { conn } => {
                if let Some(daemon) = self.daemon(host) {
                    daemon.clients.remove(&conn.0);
                }
            }
            Action::Join { ls, spec, io_timeout, .. } => {
                let disk = layout::disk_of_spec(&spec);
                self.note_timeout(host, disk, io_timeout);
                let evidence = self.hosts[host].evidence(disk);
                let knowledge = Knowledge {
                    fast: fast_rejoin(evidence),
                    remembered: remembered(evidence),
                    recorded: self.hosts[host].recorded_generation(disk),
                    claimed: self.hosts[host].recorded_claim(disk),
                };
                let Some(daemon) = self.daemon(host) else { return };
                let table = daemon.tables.remove(&disk);
                let shared = Rc::new(Shared::new(io_timeout));
                daemon.workers.insert(ls.0, Worker::new(disk, shared, knowledge, table));
                self.worker_join(host, ls.0);
            }
            Action::Gone { ls } => {
                self.given_up(host, ls);
                self.send(host, front, Thread::Lockspace(ls.0), Message::Changed);
                self.send(host, front, Thread::Resources, Message::Changed);
            }
            Action::Leave { ls, release } => {
                self.send(host, front, Thread::Lockspace(ls.0), Message::Leave { release });
            }
            Action::StartAcquire { task, ls, config, mut options, value, disks } => {
                options.seed = self.dice.any();
                self.order_task(host, Task::new(task, ls, config, Kind::Acquire(options, value), &disks));
            }
            Action::StartConvert { task, ls, config, mut options, held, value, disks } => {
                options.seed = self.dice.any();
                let kind = Kind::Convert(options, held, value);
                self.order_task(host, Task::new(task, ls, config, kind, &disks));
            }
            Action::StartErase { task, ls, config, held, disks } => {
                self.checks.marks.erases += 1;
                self.order_task(host, Task::new(task, ls, config, Kind::Erase(held), &disks));
            }
            Action::StartRelease { task, ls, config, held, value, rename, disks } => {
                let kind = Kind::Release(held, value, rename);
                self.order_task(host, Task::new(task, ls, config, kind, &disks));
            }
            Action::StartRetract { task, ls, config, geometry, hold, attempt, value, rename, disks } => {
                let kind = Kind::Retract(geometry, hold, attempt, value, rename);
                self.order_task(host, Task::new(task, ls, config, kind, &disks));
            }
            Action::ClientGone { task } => {
                self.send(host, front, Thread::Resources, Message::ClientGone(task));
            }
            Action::ShuttingDown => {
                let Some(daemon) = self.daemon(host) else { return };
                daemon.shutting_down = true;
                let threads: Vec<u64> = daemon.workers.keys().copied().collect();
                self.send(host, front, Thread::Resources, Message::Changed);
                for ls in threads {
                    self.send(host, front, Thread::Lockspace(ls), Message::Changed);
                }
            }
            Action::WatchdogCheck { .. }
            | Action::WatchdogArm { .. }
            | Action::WatchdogLive { .. }
            | Action::WatchdogDisarm { .. } => {
                if let Some(order) = Order::of(&action) {
                    self.note_disk(host, order.lockspace());
                    self.send(host, front, Thread::Watchdog, Message::Wd(order));
                }
            }
            Action::RunKillpath { conn, request, .. } => self.run_killpath(host, conn, request),
            // What has begun goes on.
            Action::CancelKillpath { .. } | Action::RunOnFail { .. } => {}
            Action::Kill { conn, signal, .. } => self.kill(host, conn, signal),
            Action::SaveRejoin { ls, serial, record } => {
                let disk = layout::disk_of_name(record.spec.name);
                let record = Box::new(record);
                self.send(host, front, Thread::Records, Message::Save { ls, serial, disk, record });
            }
            Action::DropRejoin { spec } => {
                let disk = layout::disk_of_spec(&spec);
                let host_id = spec.host_id;
                self.send(host, front, Thread::Records, Message::Drop { disk, host_id });
            }
            Action::Log { text, .. } => {
                self.heard(host, &text);
                self.say(|w| format!("{:?} log: {text}", w.hosts[host].id));
            }
            Action::Exit => self.end_daemon(host, "exits"),
            Action::Outgoing { ls, event, bitmap } => {
                self.send(host, front, Thread::Lockspace(ls.0), Message::Outgoing { event, bitmap });
            }
            Action::LookForRequests { ls, leases } => self.look_order(host, ls, leases),
            // What becomes a stream has its answer.
            Action::BecomeStream { conn } => {
                if let Some(client) = self.daemon(host).and_then(|d| d.clients.get_mut(&conn.0)) {
                    client.asked = None;
                }
            }
            Action::Deliver { conn, own, event, from, generation } => {
                self.delivered(host, conn, own, event, (from, generation));
            }
            Action::EndStream { conn } => self.stream_ends(host, conn),
            // The resource index: nobody here asks for it.
            other => {
                self.checks.violated(format!("an action that nobody asked for: {}", short(&other)));
            }
        }
    }

    /// A lockspace is about to be joined with this io timeout.
    fn note_timeout(&mut self, host: usize, disk: u8, io_timeout: IoTimeout) {
        let h = &mut self.hosts[host];
        let changed = h.joins_with(disk, io_timeout);
        let others = h.daemon.iter().flat_map(|d| d.workers.values().map(|w| (w.disk, w.shared.io_timeout)));
        let differ = others.filter(|(other, _)| *other != disk).any(|(_, other)| other != io_timeout);
        self.checks.marks.timeouts_changed += u64::from(changed);
        self.checks.marks.timeouts_by_lockspace += u64::from(differ);
    }

    fn note_disk(&mut self, host: usize, ls: u64) {
        let Some(daemon) = self.daemon(host) else { return };
        let found = daemon.manager.lockspaces().find(|(id, _)| id.0 == ls);
        let told = found.map(|(_, l)| (layout::disk_of_spec(&l.spec), l.io_timeout.renewal_fail_secs()));
        if let Some(told) = told {
            daemon.watched.insert(ls, told);
        }
    }

    fn order_task(&mut self, host: usize, mut task: Task) {
        if self.sabotaged(Sabotage::OwnersDieYoung) {
            task.config.fire = WatchdogFire::new(*WatchdogFire::RANGE.start()).unwrap_or(task.config.fire);
            task.config.io_timeout = IoTimeout::new(1).unwrap_or(task.config.io_timeout);
        }
        self.spoil_task(&mut task);
        let message = Message::Start(Box::new(task));
        self.send(host, Source::Thread(Thread::Front), Thread::Resources, message);
    }

    /// From now on nothing is written in the name of this lockspace.
    fn given_up(&mut self, host: usize, ls: LockspaceId) {
        let now = self.hosts[host].clock.at(self.now);
        let id = self.hosts[host].id;
        let Some(daemon) = self.daemon(host) else { return };
        let Some(worker) = daemon.workers.get(&ls.0) else { return };
        worker.shared.set_gone();
        let disk = worker.disk;
        let seen = daemon.manager.lockspaces().find(|(other, _)| *other == ls);
        let asked = seen.is_some_and(|(_, l)| l.remove);
        let failed = seen.is_some_and(|(_, l)| l.joined.is_some() && !asked);
        // Without wdmd the device is about to fire.
        let lost = seen.is_some_and(|(_, l)| l.watch == Watch::Lost);
        let lost = lost && self.hosts[host].watchdog.faulted;
        // A front that stood still learns of renewals late.
        let since = self.now.saturating_sub(self.hosts[host].excused);
        let limit = self.hosts[host].io_timeout_in(disk).renewal_fail_secs() * SECOND;
        let excused = self.hosts[host].excused > 0 && since < limit;
        self.checks.marks.failed_lockspaces += u64::from(failed);
        self.checks.gone(id, disk, now, asked || lost || excused);
    }

    fn check_ages(&mut self, host: usize) {
        let now = self.hosts[host].clock.at(self.now);
        let id = self.hosts[host].id;
        if let Some(life) = self.daemon(host).map(|d| d.life) {
            self.checks.ages(id, life, now);
            let mut overdue = self.checks.past_gentle_time(id, life, now, self.settings.grace_secs);
            overdue.retain(|(_, pid)| self.is_spared(host, *pid));
            for (resource, pid) in overdue {
                let what = format!("S6: {pid} of {id:?} still holds {resource} and was sent no SIGKILL");
                self.checks.violated(what);
            }
        }
    }
}

/// The beginning of a thing's debug text.
fn short(what: &impl std::fmt::Debug) -> String {
    let text = format!("{what:?}");
    text.chars().take(220).collect()
}

/// The code of a reply, as far as it has one.
pub(crate) fn code_of(reply: &Reply) -> i32 {
    match reply {
        Reply::Result(code) => *code,
        Reply::Held(_) | Reply::Value(_) | Reply::ShutdownDone => 0,
    }
}
