//! Carrying out what the manager asks for.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::delta::JoinError;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::rindex::Member;
use sanlock_lease::text::DiskSpec;
use sanlock_lease::timing::WatchdogFire;
use sanlock_manager::{
    Action, ConnId, Event, LeaseWrites, Level, LockspaceId, Reply as Answer, Signal, TaskId,
};
use sanlock_wire::header::Header;
use sanlock_wire::types::Rentry;
use sanlock_wire::{Command, Name, Reply, code};

use super::{Front, Message, convert};
use crate::helper::{Program, Purpose};
use crate::lockspace::{Control, Lockspace, Shared, not_started};
use crate::log;
use crate::resources::{Task, Work};
use crate::tools::{AREA_BYTES_MIN, IndexJob, IndexReport, Membership};
use crate::watchdog::{self, Times};

impl Front {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Reply { conn, reply } => self.reply(conn, &reply),
            Action::Forget { conn } => {
                self.helper.cancel(|purpose| matches!(purpose, Purpose::Killpath(of, ..) if of == conn));
                self.indexes.remove(&conn);
                self.slots.forget(conn, &self.poller);
            }
            Action::StartIndex { task, conn, ls, member, fire } => {
                self.start_index(task, conn, ls, member, fire);
            }
            Action::RunKillpath { conn, pid, request, words } => {
                let now = monotonic_now();
                let program = Program { purpose: Purpose::Killpath(conn, pid, request), words, since: now };
                let lost = self.helper.run(now, program).is_err();
                if lost && !(self.helper.is_dead() && request.is_some()) {
                    self.events.push_back(Event::KillpathLost { conn, request });
                }
            }
            Action::CancelKillpath { conn } => {
                // What another host asks of it stays.
                self.helper.cancel(|purpose| matches!(purpose, Purpose::Killpath(of, _, None) if of == conn));
            }
            Action::RunOnFail { ls, lockspace, arguments } => {
                let Some(path) = self.global.config.on_fail.program(&lockspace) else { return };
                let mut words = vec![path.as_os_str().as_bytes().to_vec()];
                words.extend(arguments);
                let now = monotonic_now();
                let program = Program { purpose: Purpose::OnFail(ls), words, since: now };
                if self.helper.run(now, program).is_err() {
                    self.global.log.error(format_args!(
                        "s{} on_fail program: too many programs wait, or the helper has ended",
                        ls.0
                    ));
                }
            }
            Action::Join { ls, spec, host, io_timeout } => self.join(ls, Shared::new(spec, host, io_timeout)),
            Action::Gone { ls } => {
                if let Some(lockspace) = self.lockspaces.get(&ls) {
                    lockspace.shared.set_gone();
                    lockspace.tell(Control::Changed);
                    self.resources.changed();
                }
            }
            Action::Leave { ls, release } => match self.lockspaces.get(&ls) {
                Some(lockspace) => lockspace.tell(Control::Leave { release }),
                // It could not be begun with.
                None => self.events.push_back(Event::Left { ls, writes: LeaseWrites::Ended }),
            },
            Action::StartAcquire { task, ls, config, mut options, value, disks } => {
                options.seed = uuid::Uuid::new_v4().as_u64_pair().0;
                self.start(task, ls, config, Work::Acquire { options, value }, disks);
            }
            Action::StartConvert { task, ls, config, mut options, held, value, disks } => {
                options.seed = uuid::Uuid::new_v4().as_u64_pair().0;
                self.start(task, ls, config, Work::Convert { options, held: Box::new(held), value }, disks);
            }
            Action::StartErase { task, ls, config, held, disks } => {
                self.start(task, ls, config, Work::Erase { held: Box::new(held) }, disks);
            }
            Action::StartRelease { task, ls, config, held, value, rename, disks } => {
                self.start(task, ls, config, Work::Release { held: Box::new(held), value, rename }, disks);
            }
            Action::StartRetract { task, ls, config, geometry, hold, attempt, value, rename, disks } => {
                let work = Work::Retract { geometry, hold, attempt, value, rename };
                self.start(task, ls, config, work, disks);
            }
            Action::ClientGone { task } => self.resources.client_gone(task),
            Action::ShuttingDown => {
                self.global.set_shutting_down();
                self.look_anew();
            }
            Action::Kill { conn, pid, signal } => {
                let signal = match signal {
                    Signal::Term => nix::sys::signal::Signal::SIGTERM,
                    Signal::Kill => nix::sys::signal::Signal::SIGKILL,
                };
                // None: it has ended already.
                let Some(process) = self.slots.process(conn) else { return };
                if let Err(error) = self.helper.signal(pid, process, signal) {
                    self.global.log.error(format_args!("cannot send {signal} to pid {pid}: {error}"));
                }
            }
            Action::SaveRejoin { ls, serial, record } => self.records.save(ls, serial, record),
            Action::DropRejoin { spec } => self.records.forget(spec.name, spec.host_id),
            Action::Outgoing { ls, event, bitmap } => {
                if let Some(lockspace) = self.lockspaces.get(&ls) {
                    lockspace.tell(Control::Outgoing { event, bitmap });
                }
            }
            Action::BecomeStream { conn } => self.become_stream(conn),
            Action::Deliver { conn, own, event, from, generation } => {
                self.deliver(conn, own, event, from, generation);
            }
            Action::EndStream { conn } => self.close(conn),
            Action::LookForRequests { ls, leases } => self.look_for_requests(ls, leases),
            Action::WatchdogCheck { ls, fire } => self.watchdog.order(watchdog::Order::Check { ls, fire }),
            Action::WatchdogArm { ls, name, fire, renewal, expire } => {
                let times = Times { renewal, expire };
                self.watchdog.order(watchdog::Order::Arm { ls, name, fire, times });
            }
            Action::WatchdogLive { ls, renewal, expire } => {
                self.watchdog.order(watchdog::Order::Live { ls, times: Times { renewal, expire } });
            }
            Action::WatchdogDisarm { ls } => self.watchdog.order(watchdog::Order::Disarm { ls }),
            Action::Log { level, ls, text } => self.log(level, ls, &text),
            Action::Exit => self.exit = true,
        }
    }

    fn log(&self, level: Level, ls: Option<LockspaceId>, text: &str) {
        let durable = level == Level::Durable;
        let level = match level {
            Level::Error | Level::Durable => log::Level::Error,
            Level::Warning => log::Level::Warning,
            Level::Debug => log::Level::Debug,
        };
        let log = match ls {
            Some(ls) => self.global.log.with_prefix(&format!("s{}", ls.0)),
            None => self.global.log.clone(),
        };
        if durable {
            log.write_durably(level, format_args!("{text}"));
        } else {
            log.write(level, format_args!("{text}"));
        }
    }

    fn reply(&mut self, conn: ConnId, answer: &Answer) {
        let Some(slot) = self.slots.get_mut(conn) else { return };
        let Some(header) = slot.request.take() else { return };
        if let (Some(command), Answer::Result(code)) = (header.command(), answer) {
            self.counters.add(command, *code, slot.since.elapsed());
        }
        self.indexes.remove(&conn);
        let reply = match answer {
            Answer::Result(code) if header.command() == Some(Command::SetConfig) => {
                Reply::set_config(&header, *code)
            }
            Answer::Result(code) => result(&header, *code),
            Answer::Held(held) => match convert::state_string(held) {
                Ok(text) => Reply::inquire(&header, u32::try_from(held.len()).unwrap_or(0), text),
                Err(error) => {
                    self.global.log.error(format_args!("inquire: {error}"));
                    Reply::result(&header, code::ELIBACC)
                }
            },
            Answer::Value(bytes) => Reply::get_lvb(&header, bytes.to_vec()),
            // Whoever waits for the end may start the next daemon with it.
            Answer::ShutdownDone => return self.wait_for_end.push(conn),
        };
        self.answer(conn, &reply);
    }

    fn start_index(
        &mut self,
        task: TaskId,
        conn: ConnId,
        ls: LockspaceId,
        member: Member,
        fire: WatchdogFire,
    ) {
        let lockspace = self.lockspaces.get(&ls).map(|lockspace| Arc::clone(&lockspace.shared));
        // Its client may have gone while the watchdog was being armed.
        let (Some(job), Some(lockspace)) = (self.indexes.remove(&conn), lockspace) else {
            return self.events.push_back(Event::IndexDone { task });
        };
        if let Some(slot) = self.slots.get_mut(conn) {
            slot.request = None;
            if let Some(conn) = slot.conn.as_mut() {
                conn.only_answer = true;
            }
        }
        let outbox = self.outbox.clone();
        self.tools.index(job, Membership { lockspace, member, fire }, move |report| {
            let (event, reply) = match report {
                IndexReport::Settling(reply) => (Event::IndexSettling { task }, Some(reply)),
                IndexReport::Done(reply) => (Event::IndexDone { task }, reply),
            };
            // First the bookkeeping: whoever has the reply may ask for the next thing at once.
            outbox.send(Message::Event(event));
            if let Some(reply) = reply {
                outbox.send(Message::Answer(conn, Box::new(reply)));
            }
        });
    }

    fn join(&mut self, ls: LockspaceId, shared: Arc<Shared>) {
        // More is not known of it yet.
        let area = DiskSpec { path: shared.spec.path.clone(), offset: shared.spec.offset };
        if let Some(errno) = self.kept_by_formats("lockspace", &shared.spec.name, &[area], AREA_BYTES_MIN) {
            let result = Err(JoinError::Read(IoFailure::Os(-errno)));
            return self.events.push_back(Event::JoinDone { ls, result });
        }
        let table = self.tables.remove(&(shared.spec.clone(), shared.io_timeout));
        let log = self.global.log.with_prefix(&format!("s{}", ls.0));
        let outbox = self.outbox.clone();
        let report = move |report| outbox.send(Message::Lockspace(report));
        let others = self.lockspaces.len();
        match Lockspace::start(ls, shared, others, table, Arc::clone(&self.global), log, report) {
            Ok(lockspace) => {
                self.lockspaces.insert(ls, lockspace);
            }
            Err(error) => {
                self.global.log.error(format_args!("s{} cannot be started: {error}", ls.0));
                let result = Err(not_started(&error));
                self.events.push_back(Event::JoinDone { ls, result });
            }
        }
    }

    fn start(&mut self, id: TaskId, ls: LockspaceId, config: PaxosConfig, work: Work, disks: Vec<DiskSpec>) {
        // What is held is not formatted in the first place.
        let sizes = match &work {
            Work::Acquire { .. } => Some(config.geometry),
            Work::Retract { geometry, .. } => Some(*geometry),
            Work::Convert { .. } | Work::Erase { .. } | Work::Release { .. } => None,
        };
        let kept = sizes.and_then(|sizes| {
            self.kept_by_formats("resource", &config.resource, &disks, sizes.align().bytes())
        });
        if let Some(code) = kept {
            return self.events.push_back(Event::StartFailed { task: id, code });
        }
        match self.lockspaces.get(&ls) {
            Some(lockspace) => {
                let task = Task { id, lockspace: Arc::clone(&lockspace.shared), config, work, disks };
                self.resources.run(Box::new(task));
            }
            None => self.events.push_back(Event::StartFailed { task: id, code: code::ENOSPC }),
        }
    }
}

/// A bare result in the shape of the command's replies.
fn result(header: &Header, code: i32) -> Reply {
    match header.command() {
        Some(
            Command::UpdateRindex | Command::LookupRindex | Command::CreateResource | Command::DeleteResource,
        ) => IndexJob::reply(header, code, Rentry::new(Name::EMPTY, 0)),
        _ => Reply::result(header, code),
    }
}
