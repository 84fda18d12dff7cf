//! What may happen next: commands of clients, and the ends of what the manager has started.

use super::*;

impl World {
    pub(super) fn index(&mut self, pick: usize, detail: u8) {
        let Some(task) = nth(self.indexes.keys(), pick) else { return };
        let index = self.indexes[&task];
        if detail % 4 == 0 && !index.answered {
            self.event(Event::IndexSettling { task });
        } else {
            self.indexes.remove(&task);
            self.event(Event::IndexDone { task });
        }
        if let Some(index) = self.indexes.get_mut(&task) {
            index.answered = true;
        }
        if let Some(client) = self.open.get_mut(&index.conn).filter(|_| !index.answered) {
            assert!(std::mem::take(&mut client.waits), "one answer for each command");
        }
    }

    /// Requests are found, or another host shows an event.
    pub(super) fn other_hosts(&mut self, pick: usize, detail: u8) {
        if let Some(ls) = nth(self.looking.iter(), pick) {
            self.looking.remove(&ls);
            let request = |resource| Request { resource, lver: 7 + u64::from(detail % 3), force_mode: 1 };
            for request in self.looked.remove(&ls).unwrap_or_default().into_iter().map(request) {
                self.event(Event::RequestFound { request });
            }
            self.event(Event::RequestsLooked { ls });
        } else if let Some(ls) = nth(self.joined.keys(), pick) {
            let event = HostEvent { generation: 1, event: u64::from(detail % 2), data: 2 };
            let from = HostId::new(2).unwrap();
            self.event(Event::Noticed { ls, from, generation: 3, event });
        }
    }

    pub(super) fn watchdog(&mut self, pick: usize, detail: u8) {
        if let Some(ls) = nth(self.dog.checks.iter(), pick) {
            self.dog.checks.remove(&ls);
            let result = match detail % 11 {
                0 => Err("no answer".to_owned()),
                // Too long for an io timeout of 1.
                1 => Ok(6),
                _ => Ok(2),
            };
            self.event(Event::WatchdogChecked { ls, result });
        } else if let Some(ls) = nth(self.dog.arms.iter(), pick) {
            self.dog.arms.remove(&ls);
            let result = if detail % 7 == 0 { Err("no answer".to_owned()) } else { Ok(()) };
            if result.is_ok() {
                self.dog.armed.insert(ls);
            }
            self.event(Event::WatchdogArmed { ls, result });
        } else if let Some(ls) = nth(self.dog.armed.iter(), pick).filter(|_| (10..30).contains(&detail)) {
            self.event(Event::WatchdogStatus { ls, protects: detail % 2 == 0 });
        } else if let Some(ls) = nth(self.dog.armed.iter(), pick).filter(|_| detail < 10) {
            self.dog.armed.remove(&ls);
            self.dog.lost.insert(ls);
            self.event(Event::WatchdogLost { ls, text: String::new() });
        }
    }

    pub(super) fn lockspace(&mut self, pick: usize, detail: u8) {
        if let Some(ls) = nth(self.late.keys(), pick).filter(|_| detail % 8 == 1) {
            self.late.remove(&ls);
            self.event(Event::LeaseSettled { ls });
        } else if let Some(ls) = nth(self.leaving.iter(), pick).filter(|_| detail % 2 == 0) {
            self.leaving.remove(&ls);
            self.joined.remove(&ls);
            let writes = match detail % 8 {
                2 => LeaseWrites::Outstanding,
                4 => LeaseWrites::Overtaken,
                6 => LeaseWrites::Freed,
                _ => LeaseWrites::Ended,
            };
            if writes == LeaseWrites::Outstanding {
                self.late.insert(ls, self.m.lockspaces[&ls].spec.name);
            }
            self.event(Event::Left { ls, writes });
        } else if let Some(ls) = nth(self.joining.iter(), pick) {
            self.joining.remove(&ls);
            let result = if detail % 5 == 0 {
                Err(JoinError::Stopped { freed: true })
            } else {
                self.generation += 1;
                self.joined.insert(ls, self.generation);
                Ok(joined(self.generation, self.now))
            };
            self.event(Event::JoinDone { ls, result });
        } else if let Some(ls) = nth(self.joined.keys(), pick) {
            self.event(match detail {
                0..=4 => Event::Corrupt { ls, code: -260, text: String::new() },
                5..=20 => Event::RenewalFailed { ls, code: -202, text: String::new() },
                _ => Event::Renewed { ls, timestamp: self.now, read_ms: 1, write_ms: 1 },
            });
        }
    }

    pub(super) fn task(&mut self, pick: usize, detail: u8) {
        let outstanding = u32::from(detail % 4 == 0);
        if let Some(task) =
            nth(self.acquires.keys(), pick).filter(|_| detail > 60 || self.releases.is_empty())
        {
            let (ls, generation, share) = self.acquires.remove(&task).unwrap();
            let gone = self.gone.contains(&ls);
            if detail % 7 == 6 {
                return self.event(Event::StartFailed { task, code: -2 });
            }
            let fail = |error, retract: bool| AcquireOutcome::Failed {
                error,
                retract: retract.then(|| held(1, 1).block),
                geometry: held(1, 1).geometry,
            };
            let outcome = match detail % 7 {
                0 => fail(live_owner(), false),
                1 => fail(AcquireError::LeaderWrite(IoFailure::TimedOut), true),
                2 if gone => fail(AcquireError::LockspaceGone, true),
                _ => AcquireOutcome::Acquired(mode(held(generation, 7), share)),
            };
            if outstanding > 0 {
                self.unsettled.insert(task);
            }
            let value = match detail / 7 % 4 {
                0 => None,
                1 => Some(Err(IoFailure::Os(5))),
                _ => Some(Ok(vec![0; 512].into())),
            };
            let value = value.filter(|_| matches!(outcome, AcquireOutcome::Acquired(_)));
            self.event(Event::AcquireDone { task, outcome, value, outstanding });
        } else if let Some(task) = nth(self.converts.keys(), pick) {
            let (held, stays) = self.converts.remove(&task).unwrap();
            if detail % 7 == 6 {
                return self.event(Event::StartFailed { task, code: -2 });
            }
            let ok = detail % 7 > 2;
            let value = self.values.remove(&task);
            let result = match detail % 7 {
                0 if value => Err(AcquireError::Share(ReleaseError::Value(IoFailure::Os(5)))),
                0..=2 => Err(AcquireError::LockspaceGone),
                _ => Ok(()),
            };
            let held = if stays { held } else { mode(held, held.is_shared() != ok) };
            if outstanding > 0 {
                self.unsettled.insert(task);
            }
            let outcome =
                Box::new(ConvertOutcome { result, held, erase: detail % 3 == 0, value_written: ok && value });
            self.event(Event::ConvertDone { task, outcome, outstanding });
        } else if let Some(task) = nth(self.releases.iter(), pick) {
            self.releases.remove(&task);
            if detail % 7 == 6 {
                return self.event(Event::StartFailed { task, code: -2 });
            }
            let value = self.values.remove(&task);
            let result = match detail % 7 {
                0 if value => Err(ReleaseError::Value(IoFailure::Os(5))),
                0 => timed_out(),
                1 => Err(ReleaseError::LockspaceGone),
                2 => Err(ReleaseError::Lver { expected: 1, found: 2 }),
                _ => Ok(Released::LeaderFreed),
            };
            if outstanding > 0 {
                self.unsettled.insert(task);
            }
            let before = matches!(result, Err(ReleaseError::Value(_) | ReleaseError::LockspaceGone));
            if !(value && before) {
                self.gave_up.insert(self.names[&task].clone());
            }
            let outcome = ReleaseOutcome { result, block_failure: None, value_written: value && !before };
            self.event(Event::ReleaseDone { task, outcome, outstanding });
        }
    }

    pub(super) fn command(&mut self, pick: usize, detail: u8) {
        let idle: Vec<ConnId> = self.open.iter().filter(|(_, c)| !c.waits).map(|(id, _)| *id).collect();
        let Some(conn) = nth(idle.iter(), pick) else { return };
        let which = usize::from(detail);
        let space = ls_spec(SPACES[which % 2]);
        let target = match detail % 3 {
            0 => Target::Pid(i32::try_from(which % 8).unwrap() + 100),
            _ => Target::Own,
        };
        let flag = detail % 5 == 0;
        let command = match pick % 25 {
            0 | 1 => {
                let pid = i32::try_from(conn.0 % 8).unwrap() + 100;
                self.open.get_mut(&conn).unwrap().registered = true;
                return self.event(Event::Command { conn, command: Command::Register { pid } });
            }
            2 | 3 => Command::AddLockspace { spec: space, io_timeout: 0, asynchronous: flag },
            4 => Command::InqLockspace { spec: space, wait: flag },
            5 if detail < 30 => {
                Command::RemLockspace { spec: space, asynchronous: flag, unused: detail % 3 == 0 }
            }
            6 => Command::Release { target, what: ReleaseWhat::All },
            7 => {
                let names = |n| request(RESOURCES[(which + n) % 5]).spec.names();
                let all = (0..1 + usize::from(detail % 4)).map(names).collect();
                Command::Release { target, what: ReleaseWhat::Named(all) }
            }
            11 if flag => Command::Release {
                target,
                what: ReleaseWhat::Orphans {
                    lockspace: space.name,
                    name: (detail % 2 == 0).then(|| request(RESOURCES[which % 5]).spec.name),
                },
            },
            11 => {
                let spec = request(RESOURCES[which % 5]).spec;
                let from = spec.names();
                Command::Release { target, what: ReleaseWhat::Renamed { from, to: name("renamed") } }
            }
            12 if flag => {
                let spec = request(RESOURCES[which % 5]).spec;
                Command::GetLvb { lockspace: spec.lockspace, name: spec.name, length: u32::from(detail) * 5 }
            }
            12 | 21 | 22 => {
                let spec = request(RESOURCES[which % 5]).spec;
                let bytes = vec![detail; if detail % 3 == 0 { 512 } else { 5 }];
                Command::SetLvb { lockspace: spec.lockspace, name: spec.name, bytes }
            }
            8 if detail < 8 => {
                return self.event(Event::Command { conn, command: Command::Shutdown { force: true } });
            }
            8 if !self.m.lockspaces.is_empty() => Command::ShutdownWait { force: false },
            13 => {
                let path = if flag { Vec::new() } else { b"/p".to_vec() };
                Command::Killpath { program: KillpathProgram { path, arguments: Vec::new() }, pid: flag }
            }
            // Not ALL, which the front keeps from the manager.
            14 => Command::Restrict { flags: u32::from(detail & 6) },
            20 if detail < 80 => Command::RegEvent { lockspace: space.name },
            18 => Command::SetEvent {
                lockspace: space.name,
                host_id: u64::from(detail % 4),
                event: HostEvent { generation: 0, event: u64::from(detail / 4 % 3), data: 5 },
                flags: SetEventFlags {
                    replace: flag,
                    clear_host: detail % 7 == 0,
                    ..SetEventFlags::default()
                },
            },
            19 => Command::Examine { lockspace: space.name, resource: flag.then(|| name("a")) },
            15 => {
                let setting = [Setting::Used(detail & 4 != 0), Setting::UsedByOrphans(detail & 4 != 0)];
                let setting = setting.get(which % 3).copied();
                Command::SetConfig { lockspace: space.name, setting }
            }
            16 | 17 => {
                self.asked.insert(conn, flag);
                Command::Index { lockspace: space.name, lease: flag }
            }
            9 | 10 => {
                let spec = request(RESOURCES[which % 5]).spec;
                let (lockspace, name) = (spec.lockspace, spec.name);
                Command::Convert { target, lockspace, name, shared: flag, owner_nowait: false }
            }
            _ => {
                let shared = which / 5 % 3 > 0;
                let wanted = &RESOURCES[which % 5..(which % 5 + 1 + which / 100).min(5)];
                let resources = wanted
                    .iter()
                    .map(|r| ResourceRequest { persistent: detail % 2 == 0, ..asking(r, shared) })
                    .collect();
                let orphan =
                    [OrphanUse::Refuse, OrphanUse::Adopt, OrphanUse::Adopt, OrphanUse::Only][which / 3 % 4];
                let flags = AcquireFlags { orphan, lvb: true, owner_nowait: false };
                Command::Acquire { target, owner_name: name("o"), resources, flags }
            }
        };
        self.open.get_mut(&conn).unwrap().waits = true;
        self.event(Event::Command { conn, command });
    }
}

/// Every converted lease keeps its place in the world; only the mode changes.
fn mode(held: Held, shared: bool) -> Held {
    let generation = held.leader.owner_generation.get();
    let mode = if shared { ModeBlock::shared(generation) } else { ModeBlock::zeroed() };
    Held { block: HostBlock { mode, ..held.block }, ..held }
}

fn asking(resource: &str, shared: bool) -> ResourceRequest {
    let mut request = request(resource);
    request.spec.shared = shared;
    request
}
